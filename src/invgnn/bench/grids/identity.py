"""What identifies a trial and its row."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any


def canonical(value: Any) -> str:
    """Return plain values as text that is the same wherever they are equal.

    Args:
        value: Plain values.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def content_hash(*parts: Any) -> str:
    """Return the first 16 digits of the SHA-256 digest of plain values.

    Args:
        *parts: Plain values.
    """
    return hashlib.sha256(canonical(list(parts)).encode()).hexdigest()[:16]


@dataclass(frozen=True, eq=False)
class Planned:
    """One trial of a grid.

    Attributes:
        measure: Name of the kind of trial.
        arguments: Its arguments.
        settings: The settings of the scheme, the change and the forgery that it uses.
        code: Digest of the code that it can run.
        command: The command that repeats it.
    """

    measure: str
    arguments: Mapping[str, Any]
    settings: Mapping[str, Any]
    code: str
    command: str

    @cached_property
    def slot(self) -> str:
        """Its place in the grid, whatever code fills it."""
        return slot_of(self.measure, self.cells())

    @cached_property
    def id(self) -> str:
        """The content hash of its row: place, settings and code."""
        return id_of(self.slot, canonical(self.settings), self.code)

    def cells(self) -> dict[str, str]:
        """Return measure and arguments as text."""
        return {"measure": self.measure, **{name: str(value) for name, value in self.arguments.items()}}


def slot_of(measure: str, cells: Mapping[str, str]) -> str:
    """Return the place of a trial in a grid.

    Args:
        measure: Name of the kind of trial.
        cells: Its arguments as text.
    """
    return content_hash(measure, {name: value for name, value in cells.items() if name != "measure"})


def id_of(slot: str, settings: str, code: str) -> str:
    """Return the content hash of a row.

    Args:
        slot: Its place.
        settings: The settings as canonical text.
        code: Digest of the code.
    """
    return content_hash(slot, settings, code)
