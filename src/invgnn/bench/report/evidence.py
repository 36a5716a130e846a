"""The rows that a report is made of, and what is computed from several of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from invgnn.bench.grids.grid import Grid, load_grid
from invgnn.bench.grids.identity import Planned
from invgnn.bench.grids.run import csv_rows
from invgnn.bench.grids.store import Row, latest

BASE = "SS"
"""The scheme that accuracy and cost are compared with."""


@dataclass(frozen=True)
class Cell:
    """A cell of a table: its text, and the rows that it follows from.

    Attributes:
        text: What is shown.
        rows: Content hashes of the rows.
        value: A number to sort by; None for text.
        stale: Whether a row was made by other code than the present one.
    """

    text: str
    rows: tuple[str, ...] = ()
    value: float | None = None
    stale: bool = False

    def __str__(self) -> str:
        return f"{self.text} †" if self.stale and self.text else self.text


class Evidence:
    """The rows of some grids, from their CSV files.

    Args:
        grids: The grids.
        rows: All rows.
        planned: The trials of all grids.
    """

    def __init__(self, grids: Sequence[Grid], rows: Iterable[Row], planned: Sequence[Planned]) -> None:
        self.grids, self.planned = list(grids), list(planned)
        current = {one.id for one in planned}
        self.rows = list({row.id: row for row in latest(rows, planned)}.values())
        self.stale = frozenset(row.id for row in self.rows if row.id not in current)
        self.missing = len({one.slot for one in planned} - {row.slot for row in self.rows})

    @classmethod
    def load(cls, paths: Sequence[Path], folder: Path) -> Evidence:
        """Return the rows of grids.

        Args:
            paths: The grids.
            folder: The folder of the results.
        """
        grids = [load_grid(path) for path in paths]
        return cls(grids, csv_rows(folder), [one for grid in grids for one in grid.planned()])

    def find(self, measure: str, **conditions: str) -> list[Row]:
        """Return the rows of one kind with figures, that fulfil all conditions.

        Args:
            measure: Name of the kind of trial.
            **conditions: Values of arguments.
        """
        return [
            row
            for row in self.rows
            if row.measure == measure
            and not row.get("reason")
            and conditions.items() <= row.arguments.items()
        ]

    def values(self, measure: str, name: str) -> list[str]:
        """Return the values of an argument that occur in the rows of one kind, in the order of the grids.

        Args:
            measure: Name of the kind of trial.
            name: Name of the argument.
        """
        there = {row.arguments[name] for row in self.rows if row.measure == measure}
        every = (one.cells()[name] for one in self.planned if one.measure == measure)
        return [value for value in dict.fromkeys(every) if value in there]

    def cell(self, text: str, rows: Iterable[Row], value: float | None = None) -> Cell:
        """Return a cell that follows from some rows.

        Args:
            text: What it shows.
            rows: The rows.
            value: A number to sort by.
        """
        ids = tuple(dict.fromkeys(row.id for row in rows))
        return Cell(text, ids, value, bool(self.stale.intersection(ids)))


def numbers(rows: Iterable[Row], name: str) -> dict[str, float]:
    """Return a figure by seed, of the rows that have it.

    Args:
        rows: The rows.
        name: Name of the figure, or `share` for that of right answers.
    """
    found = {}
    for row in rows:
        if name == "share":
            if row.get("asked"):
                found[row.arguments["seed"]] = int(row.get("matches")) / int(row.get("asked"))
        elif row.get(name):
            found[row.arguments["seed"]] = float(row.get(name))
    return found
