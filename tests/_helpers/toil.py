"""A worker's part of grids in tests, in a file of its own so that worker processes can import it."""

import os
import time
from pathlib import Path


def perform(measure, arguments):
    """Leave a note before and after, as one row; a trial without patience fails."""
    log, n = Path(arguments["scheme"]), arguments["seed"]
    with log.open("a") as file:
        file.write(f"begin {n} {os.getpid()}\n")
    if measure == "scratch":
        raise ValueError("no patience")
    time.sleep(float(arguments.get("setting", 0.05)))
    with log.open("a") as file:
        file.write(f"end {n} {os.getpid()}\n")
    return [{"accuracy": n * n, "took": 0.05, "reason": ""}]


def main(folder, log, count, seconds):
    """Run a grid of this many trials with two workers, as a process of its own."""
    from invgnn.bench.grids import run
    from invgnn.bench.grids.cost import Estimate
    from invgnn.bench.grids.identity import Planned

    run.perform = perform
    trials = [
        Planned("mark", {"setting": seconds, "seed": n, "scheme": log}, {}, "code", "again")
        for n in range(int(count))
    ]
    results = run.Results(Path(folder))
    ids = {row.id for row in results.store.rows()}
    plan = run.Plan(None, trials, [t for t in trials if t.id not in ids], 0, Estimate([], 0))
    for _ in results.run(plan, workers=2):
        pass


if __name__ == "__main__":
    import sys

    main(*sys.argv[1:])
