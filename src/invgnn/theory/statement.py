"""What every result of the theory carries: the assumptions it rests on, and whether they were checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Standing = Literal["held", "did not hold", "vacuous", "unproved"]
"""How a statement fared: on real numbers, or `unproved` where the paper's proof does not show it."""


@dataclass(frozen=True)
class Assumption:
    """Something a result takes for granted; `holds` is None where nobody looked."""

    says: str
    holds: bool | None = None

    def __str__(self) -> str:
        look = {True: "checked, holds", False: "checked, does not hold", None: "not checked"}
        return f"{self.says} ({look[self.holds]})"


@dataclass(frozen=True, kw_only=True)
class Statement:
    """A result together with what it rests on."""

    assumptions: tuple[Assumption, ...] = ()

    @property
    def checked(self) -> bool:
        """Every assumption was looked at and holds."""
        return all(assumption.holds for assumption in self.assumptions)
