"""The published numbers of the paper, each with the table that it stands in."""

from __future__ import annotations

import csv
import tomllib
from collections.abc import Mapping
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

    @property
    def unit(self) -> float:
        """One unit of the last digit that is printed."""
        digits, _, power = self.value.lstrip("<").partition("e")
        return float(10.0 ** (int(power or 0) - len(digits.partition(".")[2])))

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


@dataclass(frozen=True)
class Explained:
    """A sentence for published numbers that do not come out.

    Attributes:
        where: Values of the fields of `Published`, and of `row` (our scheme), that the number must have.
        why: The sentence.
    """

    where: Mapping[str, tuple[str, ...]]
    why: str


def read_reasons(path: Path) -> list[Explained]:
    """Read the sentences for numbers that do not come out.

    Args:
        path: TOML file with a list `difference`: `why`, and lists of values by field; no sentences if it
            does not exist.

    Raises:
        FileError: If it has other keys.
    """
    if not path.exists():
        return []
    known = {one.name for one in fields(Published)} | {"row"}
    try:
        found = []
        for one in tomllib.loads(path.read_text(encoding="utf-8"))["difference"]:
            where = {name: tuple(value) for name, value in one.items() if name != "why"}
            if not where or where.keys() - known or not str(one["why"]).strip():
                raise KeyError(*(where.keys() - known or {"why"}))
            found.append(Explained(where, str(one["why"])))
        return found
    except (tomllib.TOMLDecodeError, KeyError, TypeError) as error:
        advice = (
            f"each [[difference]] has a sentence `why`, and lists for some of {', '.join(sorted(known))}"
        )
        raise FileError(f"{path} does not hold sentences: {error}", advice) from error
