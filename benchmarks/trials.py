"""A benchmark's command line: a sweep whose rows are kept in a CSV file, and a table of them."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from invgnn.bench.sweep import sweep
from invgnn.storage.tables import missing
from invgnn.storage.tables import read_rows as read

__all__ = ["RESULTS", "main", "parser", "read", "run", "show"]
RESULTS = Path(__file__).parent / "results"


def run(
    path: Path,
    work: Callable[..., list[dict[str, Any]]],
    trials: list[dict[str, Any]],
    workers: int = 2,
    cluster: str | None = None,
) -> None:
    """Run the trials that are not in the file yet; keep every result."""
    print(
        f"{path.name}: {len(trials) - len(missing(trials, path))} of {len(trials)} trials done", flush=True
    )
    for trial, _ in sweep(work, trials, into=path, workers=workers, cluster=cluster):
        print("done", *trial.values(), flush=True)


def parser(about: str | None) -> argparse.ArgumentParser:
    """The options that every benchmark has."""
    options = argparse.ArgumentParser(description=about, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--summary", action="store_true", help="only print the table")
    options.add_argument("--into", type=Path, metavar="PAGE", help="put the table into this document")
    return options


def main(
    about: str | None,
    path: Path,
    work: Callable[..., list[dict[str, Any]]],
    grid: Iterable[dict[str, Any]],
    summary: Callable[[], str],
) -> None:
    """Run what is missing, print the table."""
    options = parser(about)
    options.add_argument("--workers", type=int, default=2, help="processes on this machine")
    options.add_argument("--cluster", metavar="ADDRESS", help="a Dask scheduler, e.g. tcp://127.0.0.1:8786")
    args = options.parse_args()
    if not args.summary:
        run(path, work, list(grid), args.workers, args.cluster)
    show(summary(), args.into)


def show(table: str, page: Path | None) -> None:
    """Print a table, and put it between the marks of a document."""
    print(table)
    if page:
        before, _, rest = page.read_text().partition("<!-- table -->\n")
        after = rest.partition("<!-- end -->")[2]
        page.write_text(f"{before}<!-- table -->\n{table}\n<!-- end -->{after}")
