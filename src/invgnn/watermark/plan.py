"""Plan: in which optimiser steps of a training run a budget of presentations is spent."""

from __future__ import annotations

from dataclasses import dataclass

from invgnn.errors import ParameterError

SCARCE = 0.5
"""A run with fewer than this share of the budget probably embeds too little."""


@dataclass(frozen=True)
class Plan:
    """Which steps of a training run use carriers, and how many.

    A presentation is one use of one carrier in one optimiser step. All steps from the first that uses
    carriers to the end of the run use as many. Between steps without carriers a mark is forgotten, and
    carriers in every second or fourth step embed little.

    Attributes:
        m: Number of carriers.
        wanted: Presentations of every carrier that the recipe asks for.
        steps: Optimiser steps of the run.
        first: Number of steps before the first that uses carriers.
        count: Carriers in a step that uses any.
    """

    m: int
    wanted: int
    steps: int
    first: int
    count: int

    @classmethod
    def spread(cls, m: int, steps: int, *, presentations: int, carriers: int, warmup_steps: int) -> Plan:
        """Spread a budget over the last steps of a run.

        They use `carriers` carriers each. If the run is too short for that, every step after the warm-up
        uses carriers, and as many as the budget needs, at most all.

        Args:
            m: Number of carriers.
            steps: Optimiser steps of the run.
            presentations: How often every carrier should be used.
            carriers: Carriers in a step that uses any, at least.
            warmup_steps: Steps without carriers at the start, at most a fifth of all.

        Raises:
            ParameterError: If there is no step.
        """
        if steps < 1:
            raise ParameterError(
                f"a run of {steps} steps cannot embed a mark", "train for one step or more"
            )
        total, left = presentations * m, steps - min(warmup_steps, steps // 5)
        count = min(m, max(carriers, -(-total // left)))
        return cls(m, presentations, steps, steps - min(left, -(-total // count)), count)

    @property
    def uses(self) -> int:
        """Number of steps that use carriers."""
        return self.steps - self.first

    @property
    def presentations(self) -> float:
        """How often every carrier is used in this run."""
        return self.uses * self.count / self.m

    @property
    def complete(self) -> bool:
        """Whether the run has enough steps for all presentations that the recipe asks for."""
        return self.presentations >= self.wanted

    @property
    def scarce(self) -> bool:
        """Whether the run has too few steps for the budget, so that the mark is probably weak."""
        return self.presentations < SCARCE * self.wanted

    def use(self, step: int) -> int | None:
        """Return how many steps used carriers before a step that uses them; None if it uses none.

        Args:
            step: Number of the optimiser step, counted from 0. A run may go on beyond its planned end.
        """
        return step - self.first if step >= self.first else None

    def __str__(self) -> str:
        return (
            f"{self.count} of {self.m} carriers in {self.uses} of {self.steps} optimiser steps: "
            f"{self.presentations:.0f} presentations of each carrier"
        )
