"""The rows of a stress test."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal

Kind = Literal["released", "edit", "attack"]


@dataclass(frozen=True)
class Found:
    """What one reading finds in a model.

    evidence  in bits, as if this reading alone had been declared, with the score channel if there is one;
              0 for a plain key, which has no exact law
    gamma     largest drift of an answer, in [0, 1], from the released model's
    margin    least signed margin of the answers: negative as soon as one bit is read wrong
    certain   matches that so large a drift must leave, by the certificate of `theory.margins`
    function  evidence of the score channel by itself; None without one
    """

    access: str
    matches: int
    m: int
    threshold: int
    evidence: float
    gamma: float
    margin: float
    certain: int
    score_channel: float | None = None

    @property
    def wm_acc(self) -> float:
        """Share of the bits read right."""
        return self.matches / self.m

    @property
    def headroom(self) -> int:
        """T - tau: matches that may still be lost."""
        return self.matches - self.threshold


@dataclass(frozen=True)
class Row:
    """What one change leaves: task accuracy, and what each reading finds.

    `note` says why a change does not apply to this model (then there is no accuracy), or why a reading is
    missing.
    """

    change: str
    kind: Kind
    knows: str
    accuracy: float | None
    seconds: float
    found: tuple[Found, ...] = ()
    note: str = ""

    def at(self, access: str) -> Found | None:
        """What the reading at an access level found, if the model could be read there."""
        return next((found for found in self.found if found.access == access), None)

    def record(self) -> dict[str, Any]:
        """One flat line of plain values: numbers of a reading under `access.name`."""
        plain = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "found"}
        for found in self.found:
            held = {name: getattr(found, name) for name in (*NUMBERS, "score_channel")}
            plain |= {f"{found.access}.{name}": value for name, value in held.items() if value is not None}
        return plain


NUMBERS = ("matches", "m", "threshold", "headroom", "wm_acc", "evidence", "gamma", "margin", "certain")
