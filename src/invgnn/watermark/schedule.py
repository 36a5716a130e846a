"""The carrier schedule: which carriers are used in which optimiser step."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from invgnn.errors import ParameterError
from invgnn.nn.observation import num_graphs
from invgnn.secret import Stream
from invgnn.watermark.recipe import Recipe


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
    """The portions of m carriers, in rounds; every round has its own order, from a stream of its own."""

    def __init__(self, m: int, level: str, stream: Callable[[int], Stream]) -> None:
        self.m, self.level, self.stream = m, level, stream
        self.all, self.none = (Portion(np.arange(m), length, 0) for length in (m, 0))
        self._order = lru_cache(maxsize=2)(self._drawn)  # the last batch of an epoch has its own

    def at(self, recipe: Recipe, batch: Any, step: int | None) -> Portion:
        """Return the carriers of a step.

        Args:
            recipe: The recipe, which says how many carriers a step uses.
            batch: The task batch of the step; needed with a ratio.
            step: The number of the optimiser step; needed with a ratio or `every`.

        Raises:
            ParameterError: If the batch or the step is needed and missing.
        """
        ratio, every = recipe.ratio, recipe.every
        if ratio is None and every == 1:
            return self.all
        if step is None or (batch is None and ratio is not None):
            raise ParameterError(
                "`ratio` requires `batch` and `step`; `every` requires `step`",
                "pass the task batch and the number of the optimiser step",
            )
        if not recipe.uses_carriers(step):
            return self.none
        if ratio is None:
            return self.all
        if self.level == "node":  # there is one graph only: the ratio is a share of the carriers
            count = round(ratio * every * self.m)
        else:
            count = round(ratio / (1 - ratio) * every * num_graphs(batch))
        return self.portion(step // every, max(1, count))

    def portion(self, number: int, count: int) -> Portion:
        """Return so many carriers, or all there are; each is used once in a round."""
        if count >= self.m:
            return self.all
        portions = -(-self.m // count)
        return Portion(self._order(number // portions, portions * count), count, number % portions)

    def _drawn(self, number: int, size: int) -> NDArray[np.int64]:
        """All carriers in the order of a round; the first are repeated to fill the last portion."""
        return self.stream(number).permutation(self.m).take(np.arange(size), mode="wrap")
