"""The carrier schedule: which carriers are used in which optimiser step."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from invgnn.errors import ParameterError
from invgnn.secret import Stream
from invgnn.watermark.plan import Plan
from invgnn.watermark.recipe import CARRIERS_WITHOUT_PLAN, Recipe

LAST = 0.05
"""Share of the steps with carriers, at the end of a run, in which norms treat them as a suspect's do."""


class Portion(NamedTuple):
    """The carriers of one step: one of the portions of equal length that make up a round."""

    order: NDArray[np.int64]
    length: int
    number: int

    @property
    def carriers(self) -> NDArray[np.int64]:
        """The numbers of the carriers."""
        return self.order[self.number * self.length : (self.number + 1) * self.length]


class CarrierSchedule:
    """The portions of m carriers, in rounds.

    On graph tasks every round has an order of its own, from a stream of its own. On node tasks, which train
    on the same graph in every step, all rounds have the same order, so that mixed batches can be kept.
    """

    def __init__(self, m: int, level: str, stream: Callable[[int], Stream]) -> None:
        self.m, self.level, self.stream = m, level, stream
        self.all, self.none = (Portion(np.arange(m), length, 0) for length in (m, 0))
        self._order = lru_cache(maxsize=2)(self._drawn)
        self._plan = lru_cache(maxsize=2)(Recipe.plan)

    def at(self, recipe: Recipe, step: int | None, steps: int | None, *, apart: bool = False) -> Portion:
        """Return the carriers of a step.

        Args:
            recipe: The recipe, which says how many carriers a step uses.
            step: Number of the optimiser step. With None all carriers are used.
            steps: Optimiser steps of the whole run, at whose end the recipe's presentations are made. With
                None every step uses `recipe.carriers`, by default 32.
            apart: Whether the carriers get a forward pass of their own.

        Raises:
            ParameterError: If the number of the step is missing or negative.
        """
        if step is None:
            if steps is not None:
                raise ParameterError(
                    f"steps={steps} is given without step", "pass step=, the number of the optimiser step"
                )
            return self.all
        if step < 0:
            raise ParameterError(f"step={step} is negative", "count optimiser steps from 0")
        if steps is None:
            return self.portion(step, recipe.carriers or CARRIERS_WITHOUT_PLAN)
        plan: Plan = self._plan(recipe, self.m, steps, apart=apart)
        use = plan.use(step)
        return self.none if use is None else self.portion(use, plan.count)

    def settling(self, recipe: Recipe, step: int | None, steps: int | None) -> bool:
        """Return whether a step is among the last ones of a run that use carriers.

        Args:
            recipe: The recipe.
            step: Number of the optimiser step.
            steps: Optimiser steps of the whole run.
        """
        if step is None or steps is None:
            return False
        plan: Plan = self._plan(recipe, self.m, steps)
        return step >= steps - math.ceil(LAST * plan.uses)

    def portion(self, number: int, count: int) -> Portion:
        """Return so many carriers, or all there are; each is used once in a round."""
        if count >= self.m:
            return self.all
        portions = -(-self.m // count)
        current = number // portions if self.level == "graph" else 0
        return Portion(self._order(current, portions * count), count, number % portions)

    def _drawn(self, number: int, size: int) -> NDArray[np.int64]:
        """All carriers in the order of a round; the first are repeated to fill the last portion."""
        return self.stream(number).permutation(self.m).take(np.arange(size), mode="wrap")
