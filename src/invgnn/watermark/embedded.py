"""Embedded: what `mark.embed` did to a model, and what it cost."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from invgnn.watermark.levels import Level
from invgnn.watermark.plan import Plan


@dataclass(frozen=True)
class Embedded:
    """What `mark.embed` did to a model, and what it cost.

    Attributes:
        levels: Evidence at every declared level, read in evaluation mode.
        before: The metric before embedding; None if no metric was given.
        after: The metric after embedding.
        agreement: Share of task inputs with the same top class as before; R² with the scores before, for
            outputs that are not class scores.
        seconds: How long it took, metric and readings included.
        steps: Optimiser steps that were made.
        plan: What was planned: the largest number of steps, and the carriers in each.
        lr: The highest learning rate of the steps.
    """

    levels: dict[str, Level]
    before: float | None
    after: float | None
    agreement: float
    seconds: float
    steps: int
    plan: Plan
    lr: float

    @property
    def bits(self) -> dict[str, float]:
        """Evidence in bits at every declared level."""
        return {name: level.bits for name, level in self.levels.items()}

    @property
    def presentations(self) -> float:
        """How often every carrier was used."""
        return self.steps * self.plan.count / self.plan.m

    def record(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return asdict(self) | {"bits": self.bits, "presentations": self.presentations}

    def __str__(self) -> str:
        levels = ", ".join(f"{name} {level}" for name, level in self.levels.items())
        kept = f"{self.agreement:.1%} of the answers on task inputs as before"
        if self.before is not None:
            kept = f"metric {self.before:.4g} before, {self.after:.4g} after; {kept}"
        return (
            f"embedded in {self.seconds:.1f} s\n"
            f"  evidence   {levels}\n"
            f"  task       {kept}\n"
            f"  cost       {self.steps} of at most {self.plan.steps} optimiser steps, each with "
            f"{self.plan.count} of {self.plan.m} carriers: {self.presentations:.0f} presentations of each "
            f"carrier; learning rate {self.lr:g}"
        )
