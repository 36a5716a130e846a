"""The rows of a stress test."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal

Kind = Literal["released", "edit", "attack"]


@dataclass(frozen=True)
class Found:
    """The result of one reading of a model.

    Attributes:
        access: The access level of the reading.
        matches: Number of matches.
        m: Number of carriers.
        threshold: The threshold for the number of matches.
        evidence: Evidence bits as if this reading alone had been declared, including the score channel if
            there is one; 0 for a plain key, which has no exact law.
        gamma: Largest drift of an answer, in [0, 1], from that of the released model.
        margin: Smallest signed margin of the answers; negative if any bit is read wrong.
        certain: Matches that a drift of this size must leave, by the certificate of `theory.margins`.
        score_channel: Evidence bits of the score channel alone; None without one.
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
        """Share of the bits that are read right."""
        return self.matches / self.m

    @property
    def headroom(self) -> int:
        """T - tau, the number of matches that may still be lost."""
        return self.matches - self.threshold


@dataclass(frozen=True)
class Row:
    """The result of one change: task accuracy, and one result per reading.

    Attributes:
        change: Name of the edit or attack.
        kind: "released", "edit" or "attack".
        knows: What the change requires, in words.
        accuracy: Test accuracy; None if the change does not apply to this model.
        seconds: Time taken.
        found: The results of the readings.
        note: Why a change does not apply, or why a reading is missing.
    """

    change: str
    kind: Kind
    knows: str
    accuracy: float | None
    seconds: float
    found: tuple[Found, ...] = ()
    note: str = ""

    def at(self, access: str) -> Found | None:
        """Return the result of the reading at an access level, if the model could be read there."""
        return next((found for found in self.found if found.access == access), None)

    def record(self) -> dict[str, Any]:
        """Return one flat row of plain values; numbers of a reading have the name `access.name`."""
        plain = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "found"}
        for found in self.found:
            held = {name: getattr(found, name) for name in (*NUMBERS, "score_channel")}
            plain |= {f"{found.access}.{name}": value for name, value in held.items() if value is not None}
        return plain


NUMBERS = ("matches", "m", "threshold", "headroom", "wm_acc", "evidence", "gamma", "margin", "certain")
