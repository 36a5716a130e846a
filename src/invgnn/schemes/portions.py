"""Private graphs in portions, one for every optimiser step in turn."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from invgnn.graphs.disjoint_union import Graphs
from invgnn.nn.forward import to_batch


@dataclass(frozen=True, eq=False)
class Portions:
    """Graphs and a target for each of them, in portions of equal length.

    Attributes:
        graphs: The graphs.
        targets: One target per graph.
        length: Number of graphs in a portion; the last one may be shorter.
    """

    graphs: Graphs
    targets: Tensor
    length: int

    @cached_property
    def _parts(self) -> list[tuple[Any, Tensor]]:
        """The portions as PyG batches with their targets; every k-th graph is in the same portion."""
        count = -(-len(self.graphs) // self.length)
        chosen = [np.arange(first, len(self.graphs), count) for first in range(count)]
        return [(to_batch(self.graphs.take(one)), self.targets[torch.from_numpy(one)]) for one in chosen]

    def batch(self, step: int) -> Any:
        """Return the graphs of a step as a PyG batch.

        Args:
            step: Number of the optimiser step.
        """
        return self._parts[step % len(self._parts)][0]

    def wanted(self, batch: Any) -> Tensor:
        """Return the targets of a batch that `batch` returned.

        Args:
            batch: The batch.
        """
        return next(targets for part, targets in self._parts if part is batch)
