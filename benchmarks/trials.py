"""Resumable trials: each row of a CSV file is one finished trial, found again by its key columns."""

from __future__ import annotations

import argparse
import csv
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def done(path: Path, key: Iterable[str]) -> set[tuple[str, ...]]:
    """Keys of the rows already in a results file."""
    names = tuple(key)
    if not path.exists():
        return set()
    with path.open(newline="") as file:
        return {tuple(row[n] for n in names) for row in csv.DictReader(file)}


def append(path: Path, rows: list[dict[str, Any]]) -> None:
    """Add rows to a results file, writing the header once."""
    fresh = not path.exists()
    path.parent.mkdir(exist_ok=True)
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        if fresh:
            writer.writeheader()
        writer.writerows(rows)


def run(
    path: Path,
    work: Callable[..., list[dict[str, Any]]],
    trials: list[dict[str, Any]],
    workers: int = 2,
) -> None:
    """Run the trials that are not in the file yet, a process each with one thread; keep every result."""
    known = done(path, trials[0])
    todo = [t for t in trials if tuple(str(v) for v in t.values()) not in known]
    print(f"{path.name}: {len(trials) - len(todo)} of {len(trials)} trials done", flush=True)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    for name in ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"):
        os.environ[name] = str(2**32)  # freed tensors stay with the process: up to twice as fast on Photo
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        jobs = {pool.submit(work, **trial): trial for trial in todo}
        for job in as_completed(jobs):
            append(path, job.result())
            print("done", *jobs[job].values(), flush=True)


def read(path: Path) -> list[dict[str, str]]:
    """All rows of a results file."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def main(
    about: str | None,
    path: Path,
    work: Callable[..., list[dict[str, Any]]],
    grid: Iterable[dict[str, Any]],
    summary: Callable[[], str],
) -> None:
    """A benchmark's command line: run what is missing, print the table."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--summary", action="store_true", help="only print the table")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--into", type=Path, metavar="PAGE", help="put the table into this document")
    args = parser.parse_args()
    if not args.summary:
        run(path, work, list(grid), args.workers)
    table = summary()
    print(table)
    if args.into:
        before, _, rest = args.into.read_text().partition("<!-- table -->\n")
        after = rest.partition("<!-- end -->")[2]
        args.into.write_text(f"{before}<!-- table -->\n{table}\n<!-- end -->{after}")
