"""Run a grid: only what is missing, in pieces if wanted, with every finished row kept at once."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from invgnn.bench.grids.cost import Costs, Estimate
from invgnn.bench.grids.grid import Grid
from invgnn.bench.grids.identity import Planned
from invgnn.bench.grids.store import Row, Store, latest, read_csv, write_csv
from invgnn.bench.sweep import Failure, outcomes
from invgnn.bench.trials.measures import MEASURES, perform
from invgnn.storage.tables import Trial

STORE = "bench.sqlite"
"""Name of the store in the folder of the results. It is not committed; the CSV files are."""


@dataclass(frozen=True)
class Plan:
    """What a run would do.

    Attributes:
        grid: The grid.
        planned: All of its trials that were selected.
        missing: Those without a row of the present code, as many as were asked for.
        stale: How many of the missing ones have a row of other code.
        cost: Estimated cost of the missing ones.
    """

    grid: Grid
    planned: Sequence[Planned]
    missing: Sequence[Planned]
    stale: int
    cost: Estimate


@dataclass
class Progress:
    """How far a run is.

    Attributes:
        row: The row that was just finished; None if the trial failed.
        trial: Its trial.
        done: Number of finished trials of this run.
        total: Number of trials of this run.
        left: Estimated seconds that are left; None if unknown.
        failure: What went wrong.
    """

    row: Row | None
    trial: Planned
    done: int
    total: int
    left: float | None
    failure: str = ""


@dataclass
class Results:
    """The results of grids in a folder: a store, and a folder of CSV files for each grid.

    Attributes:
        folder: The folder.
    """

    folder: Path
    store: Store = field(init=False)

    def __post_init__(self) -> None:
        """Open the store."""
        self.store = Store(self.folder / STORE)

    def take_in(self) -> None:
        """Add the rows of all CSV files that the store lacks, as after a fresh checkout."""
        known = {row.id for row in self.store.rows()}
        found = [row for row in csv_rows(self.folder) if row.id not in known]
        if found:
            self.store.add(found)

    def plan(self, grid: Grid, planned: Sequence[Planned], limit: int | None, again: bool = False) -> Plan:
        """Return what a run would do.

        Args:
            grid: The grid.
            planned: The selected trials.
            limit: Most trials to run; None for all.
            again: Whether to run trials that have rows already.
        """
        rows = self.store.rows()
        ids, slots = {row.id for row in rows}, {row.slot for row in rows}
        todo = [one for one in planned if again or one.id not in ids][:limit]
        stale = sum(one.slot in slots and one.id not in ids for one in todo)
        return Plan(grid, planned, todo, stale, Costs(rows).estimate(todo))

    def run(
        self,
        plan: Plan,
        *,
        workers: int = 2,
        cluster: str | None = None,
        minutes: float | None = None,
    ) -> Iterator[Progress]:
        """Run the missing trials of a plan. Every row is in the store before it is handed on.

        Args:
            plan: The plan.
            workers: Number of processes, with one thread each.
            cluster: Address of a Dask scheduler whose workers run the trials instead.
            minutes: When to stop. Trials that are running then are given up and run again next time.

        Yields:
            How far the run is, after every trial.
        """
        begun, todo = time.monotonic(), list(plan.missing)
        costs = Costs(self.store.rows())
        guess = {one.id: costs.of(one) for one in todo}
        seconds = None if minutes is None else 60 * minutes
        with self.store.writing():
            told: list[Trial] = [{"measure": o.measure, "arguments": dict(o.arguments)} for o in todo]
            arriving = outcomes(perform, told, workers, cluster, seconds)
            for done, (index, outcome) in enumerate(arriving, 1):
                trial = todo[index]
                guess.pop(trial.id)
                took = time.monotonic() - begun
                left = time_left(took, done, list(guess.values()), workers)
                if isinstance(outcome, Failure):
                    yield Progress(None, trial, done, len(todo), left, outcome.message)
                    continue
                row = Row.of(trial, outcome[0])
                self.store.add([row], replace=True)
                yield Progress(row, trial, done, len(todo), left)

    def export(self, grid: Grid, planned: Sequence[Planned]) -> list[Path]:
        """Write the CSV files of a grid: one for each kind of trial, in the order of the grid.

        Args:
            grid: The grid.
            planned: All of its trials.

        Returns:
            The files.
        """
        rows, written = latest(self.store.rows(), planned), []
        for measure in dict.fromkeys(part.measure.name for part in grid.parts):
            kind, part = MEASURES[measure], [row for row in rows if row.measure == measure]
            path = self.folder / grid.name / f"{measure}.csv"
            if part or path.exists():
                write_csv(path, part, kind.arguments, kind.all_columns)
                written.append(path)
        return written


def csv_rows(folder: Path) -> list[Row]:
    """Return the rows of all CSV files of a folder of results.

    Args:
        folder: The folder.
    """
    return [
        row
        for path in sorted(folder.glob("*/*.csv"))
        if path.stem in MEASURES
        for row in read_csv(path, path.stem, MEASURES[path.stem].arguments)
    ]


def time_left(took: float, done: int, guesses: Sequence[float | None], workers: int) -> float | None:
    """Return the seconds that a run will still take.

    Args:
        took: Seconds so far.
        done: Number of finished trials.
        guesses: Estimated processor time of every other trial; None if unknown. Those without an estimate
            count as much as the mean of the finished ones.
        workers: Number of processes.
    """
    if not guesses:
        return 0.0
    if not done:
        return None
    usual = took * workers / done
    return sum(usual if one is None else one for one in guesses) / workers
