"""The base class of all results of the theory: each lists its assumptions and whether they were checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Standing = Literal["held", "did not hold", "vacuous", "unproved"]
"""Whether a statement held when measured; `unproved` if the paper's proof does not show it."""


@dataclass(frozen=True)
class Assumption:
    """An assumption of a result.

    Attributes:
        says: The assumption in words.
        holds: Whether it holds; None if it was not checked.
    """

    says: str
    holds: bool | None = None

    def __str__(self) -> str:
        look = {True: "checked, holds", False: "checked, does not hold", None: "not checked"}
        return f"{self.says} ({look[self.holds]})"


@dataclass(frozen=True, kw_only=True)
class Statement:
    """A result together with its assumptions.

    Attributes:
        assumptions: The assumptions.
    """

    assumptions: tuple[Assumption, ...] = ()

    @property
    def checked(self) -> bool:
        """Whether every assumption was checked and holds."""
        return all(assumption.holds for assumption in self.assumptions)
