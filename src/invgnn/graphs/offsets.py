"""Node offsets: which nodes of a disjoint union belong to which graph."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class Offsets:
    """Graphs whose nodes are numbered through, one graph after the other.

    Attributes:
        ptr: Node offsets of the graphs [G+1].
    """

    ptr: Ints

    def __len__(self) -> int:
        return self.num_graphs

    @property
    def num_graphs(self) -> int:
        """The number of graphs."""
        return len(self.ptr) - 1

    @property
    def num_nodes(self) -> int:
        """The number of nodes of all graphs together."""
        return int(self.ptr[-1])

    @cached_property
    def sizes(self) -> Ints:
        """The number of nodes of each graph [G]."""
        return np.diff(self.ptr)

    @cached_property
    def graph_of_node(self) -> Ints:
        """The number of the graph that each node belongs to [N]."""
        return np.repeat(np.arange(self.num_graphs), self.sizes)
