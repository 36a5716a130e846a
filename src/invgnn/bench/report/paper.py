"""The published numbers of the paper, each with the table that it stands in."""

from __future__ import annotations

import csv
from dataclasses import dataclass, fields
from pathlib import Path

from invgnn.errors import FileError


@dataclass(frozen=True)
class Published:
    """A number that the paper prints.

    Attributes:
        table: Label of the table in the paper's source.
        setting: Task and backbone.
        scheme: The scheme, under the paper's name; OURS is InvGNN-WM.
        variant: The changed setting or the edit, if the table has one in its rows.
        quantity: What the number is.
        value: The number as printed; it may be a limit such as `<1e-7`.
        half: Half the width of the printed interval; empty if there is none.
    """

    table: str
    setting: str
    scheme: str
    variant: str
    quantity: str
    value: str
    half: str

    @property
    def number(self) -> float | None:
        """The number; None for a limit."""
        try:
            return float(self.value)
        except ValueError:
            return None

    def __str__(self) -> str:
        return f"{self.value} ± {self.half}" if self.half else self.value.replace("<", "below ")


def read_paper(path: Path) -> list[Published]:
    """Read the published numbers.

    Args:
        path: CSV file with the columns of `Published`.

    Raises:
        FileError: If it has other columns.
    """
    names = [one.name for one in fields(Published)]
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        if reader.fieldnames != names:
            raise FileError(
                f"{path} does not hold published numbers", f"the columns are {', '.join(names)}"
            )
        return [Published(**row) for row in reader]
