"""What trials will cost, estimated from rows of earlier ones, and guessed where there are none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import median

from invgnn.bench.grids.identity import Planned
from invgnn.bench.grids.store import Row

WHAT = ("scheme", "change", "variant", "forgery", "search", "level", "thief")
ALIKE: tuple[tuple[str, ...], ...] = (
    ("measure", "epochs", "setting", *WHAT),
    ("measure", "epochs", "setting", "change", "search", "thief"),
    ("measure", "epochs", "setting", "scheme"),
    ("measure", "epochs", "setting"),
)
"""What trials have in common with those they are estimated from; the first that some row fits."""
ELSEWHERE = (("measure", *WHAT), ("measure", "change", "thief"), ("measure",))
"""The same for rows of other settings, whose cost is scaled by that of an unmarked training."""
UNMARKED: Mapping[str, float] = {
    "Cora/GCN": 2.5,
    "Cora/GraphSAGE": 4.1,
    "Cora/SGC": 1.0,
    "PubMed/GCN": 9.1,
    "PubMed/GraphSAGE": 12.7,
    "PubMed/SGC": 2.1,
    "Photo/GCN": 10.0,
    "Photo/GraphSAGE": 10.1,
    "Photo/SGC": 3.8,
    "PROTEINS/GIN": 12.2,
    "PROTEINS/GraphSAGE": 8.4,
    "NCI1/GIN": 35.3,
    "NCI1/GraphSAGE": 24.9,
}
"""Processor seconds of an unmarked training of 100 epochs: medians of `benchmarks/results/strength.csv`."""
FIRST: Mapping[str, float] = {
    "mark": 2.0,
    "change": 0.7,
    "scratch": 1.0,
    "refresh": 3.0,
    "uniqueness": 2.0,
    "sensitivity": 0.2,
    "variant": 2.0,
    "forgery": 0.5,
    "search": 5.0,
}
"""First guess of the cost of a trial, in unmarked trainings."""


@dataclass(frozen=True)
class Estimate:
    """The estimated cost of some trials.

    Attributes:
        each: Processor seconds of every trial; None where there is not even a guess.
        unknown: How many of them no earlier row of their setting resembles.
        shared: Processor seconds of the unmarked models that the trials need and no earlier trial needed.
    """

    each: Sequence[float | None]
    unknown: int
    shared: float = 0.0

    @property
    def total(self) -> float | None:
        """Seconds of all trials; those without an estimate cost what the others do. None without any."""
        known = [seconds for seconds in self.each if seconds is not None]
        if not self.each:
            return 0.0
        return self.shared + sum(known) * len(self.each) / len(known) if known else None

    def fitting(self, seconds: float) -> int | None:
        """Return how many trials, in their order, fit into some processor time; None if unknown.

        Args:
            seconds: The processor time.
        """
        if self.total is None or not self.each:
            return None
        usual = (self.total - self.shared) / len(self.each)
        spent = accumulate((usual if one is None else one for one in self.each), initial=self.shared)
        return sum(after <= seconds for after in list(spent)[1:])

    def __str__(self) -> str:
        total = self.total
        if total is None:
            return "unknown: no earlier row resembles these trials"
        more = f", {self.unknown} of {len(self.each)} guessed" if self.unknown else ""
        if self.shared:
            more += f", {duration(self.shared)} of it for unmarked models"
        return f"{duration(total)} of processor time{more}"


class Costs:
    """Estimates the cost of trials from rows.

    Args:
        rows: Rows of earlier trials with the processor time `took`.
    """

    def __init__(self, rows: Sequence[Row]) -> None:
        self._known: dict[tuple[str | None, ...], list[float]] = {}
        self._trained: set[tuple[str | None, ...]] = set()
        for row in rows:
            cells = {"measure": row.measure, **row.arguments}
            self._trained.add(_controls(cells))
            try:
                took = float(row.figures.get("took", ""))
            except ValueError:
                continue
            for names in ALIKE:
                self._known.setdefault(_key(names, cells), []).append(took)
            unit = _unit(cells)
            for names in ELSEWHERE if unit else ():
                self._known.setdefault(_key(names, cells), []).append(took / unit)

    def seen(self, planned: Planned) -> float | None:
        """Return the median processor time of the rows most like a trial; None if there are none.

        Args:
            planned: The trial.
        """
        return self._median(ALIKE, planned.cells())

    def of(self, planned: Planned) -> float | None:
        """Return the estimate from rows like a trial, or a guess from its setting; None without either.

        Args:
            planned: The trial.
        """
        found, cells = self.seen(planned), planned.cells()
        if found is not None:
            return found
        scaled = self._median(ELSEWHERE, cells)
        return _unit(cells) * (FIRST[planned.measure] if scaled is None else scaled) or None

    def estimate(self, planned: Sequence[Planned]) -> Estimate:
        """Return the cost of trials.

        Args:
            planned: The trials.
        """
        needed = {
            _controls(cells): _unit(cells) * int(cells["controls"])
            for cells in (one.cells() for one in planned)
            if "controls" in cells and _controls(cells) not in self._trained
        }
        unknown = sum(self.seen(one) is None for one in planned)
        return Estimate([self.of(one) for one in planned], unknown, sum(needed.values()))

    def _median(self, ways: Sequence[tuple[str, ...]], cells: Mapping[str, str]) -> float | None:
        """Return the median of the rows that have the first of some lists of cells in common."""
        found = (self._known.get(_key(names, cells)) for names in ways)
        return next((median(one) for one in found if one), None)


def _key(names: Sequence[str], cells: Mapping[str, str]) -> tuple[str | None, ...]:
    """Return names and values of some cells."""
    return (*names, *(cells.get(name) for name in names))


def _controls(cells: Mapping[str, str]) -> tuple[str | None, ...]:
    """Return what identifies the unmarked models of a trial."""
    return tuple(cells.get(name) for name in ("setting", "epochs", "controls"))


def _unit(cells: Mapping[str, str]) -> float:
    """Return the processor seconds of an unmarked training; 0 if they are unknown."""
    return UNMARKED.get(cells.get("setting", ""), 0.0) * int(cells.get("epochs", "100")) / 100


def duration(seconds: float) -> str:
    """Return a time as people say it.

    Args:
        seconds: The time.
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
