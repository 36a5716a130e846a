"""Run a benchmark from the command line: resumable trials, rows in a CSV file, a table in a page."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from invgnn.bench.sweep import Work, sweep
from invgnn.errors import FileError
from invgnn.storage.tables import Trial, missing

BEGIN, END = "<!-- table -->\n", "<!-- end -->"
"""The comments of a page between which its generated table stands."""


def benchmark_parser(about: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options that every benchmark has.

    Args:
        about: Text of `--help`, usually the docstring of the script.

    Returns:
        A parser with `--summary` and `--into`.
    """
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--summary", action="store_true", help="run nothing, print the table only")
    parser.add_argument("--into", type=Path, metavar="PAGE", help="write the table into this page")
    return parser


def run_benchmark(
    about: str | None,
    path: Path,
    work: Work,
    grid: Iterable[Trial],
    summary: Callable[[], str],
    arguments: Sequence[str] | None = None,
) -> None:
    """Parse the command line, run the missing trials and print the table.

    Args:
        about: Text of `--help`, usually the docstring of the script.
        path: CSV file of the results.
        work: Function that runs one trial and returns its rows.
        grid: All trials.
        summary: Function that returns the table in Markdown.
        arguments: Command line; None takes it from `sys.argv`.
    """
    parser = benchmark_parser(about)
    parser.add_argument("--workers", type=int, default=2, help="number of processes on this machine")
    parser.add_argument("--cluster", metavar="ADDRESS", help="Dask scheduler, e.g. tcp://127.0.0.1:8786")
    options = parser.parse_args(arguments)
    if not options.summary:
        run_trials(path, work, list(grid), options.workers, options.cluster)
    publish(summary(), options.into)


def run_trials(
    path: Path, work: Work, trials: Sequence[Trial], workers: int = 2, cluster: str | None = None
) -> None:
    """Run the trials that have no rows in a file yet, and report progress.

    Args:
        path: CSV file of the results.
        work: Function that runs one trial and returns its rows.
        trials: All trials.
        workers: Number of processes on this machine.
        cluster: Address of a Dask scheduler whose workers run the trials instead.
    """
    done = len(trials) - len(missing(trials, path))
    print(f"{path.name}: {done} of {len(trials)} trials done", flush=True)
    for trial, _ in sweep(work, trials, into=path, workers=workers, cluster=cluster):
        print("done", *trial.values(), flush=True)


def publish(table: str, page: Path | None = None) -> None:
    """Print a table and, if a page is given, replace the generated table of that page.

    Args:
        table: Table in Markdown.
        page: Page with the comments `<!-- table -->` and `<!-- end -->`.

    Raises:
        FileError: If the page lacks one of the comments.
    """
    print(table)
    if page is not None:
        before, after = _around(page)
        page.write_text(f"{before}{BEGIN}{table}\n{END}{after}")


def published(page: Path) -> str:
    """Return the generated table of a page.

    Args:
        page: Page with the comments `<!-- table -->` and `<!-- end -->`.

    Returns:
        The text between the comments, without surrounding white space.

    Raises:
        FileError: If the page lacks one of the comments.
    """
    before, after = _around(page)
    text = page.read_text()
    return text[len(before) + len(BEGIN) : len(text) - len(END) - len(after)].strip()


def _around(page: Path) -> tuple[str, str]:
    """Return the text before and after the generated table."""
    before, begin, rest = page.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise FileError(
            f"{page} has no place for a table", f"add the lines {BEGIN.strip()} and {END} to the page"
        )
    return before, after
