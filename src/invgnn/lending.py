"""Features for carriers: a few nodes of the task lend theirs to each, dealt to its nodes at random.

A carrier with the features of its seed graph looks to a model like that graph, and what it is taught about
the one it believes of the other. Features that never occur together are no concern of the task's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from invgnn.graphs import Draws, Features, Graphs, Ints, offsets_of

ASKED = 4096
"""How many nodes of a large data set are asked to lend."""


@dataclass(frozen=True, eq=False)
class Lenders:
    """The different feature rows of some nodes, how many nodes have each, and how many lend to a graph."""

    rows: Features
    counts: Ints
    number: int

    @classmethod
    def ask(cls, x: Features, number: int, draws: Draws) -> Lenders:
        """All nodes, or as many random ones as are enough; rows in the order they were met."""
        if len(x) > ASKED:
            x = x.take(draws.below(np.full(ASKED, len(x))), axis=0)
        x = np.ascontiguousarray(x + x.dtype.type(0))  # without negative zeros: no look of their own
        looks = x.view(f"V{x.strides[0]}").ravel()
        _, first, counts = np.unique(looks, return_index=True, return_counts=True)
        order = np.argsort(first)  # and not by their bytes, which machines may order differently
        return cls(x.take(first[order], axis=0), counts[order].astype(np.int64), min(number, len(order)))

    def lend(self, g: Graphs, draws: Draws) -> Graphs:
        """The graphs with that many different rows each, as likely as they are common, dealt to the nodes.

        Takes a number for every lender and graph, then one for every node.
        """
        starts, total = offsets_of(self.counts), int(self.counts.sum())
        chosen = np.empty((len(g), 0), dtype=np.int64)
        for _ in range(self.number):
            drawn = draws.below(total - self.counts[chosen].sum(1))
            for taken in np.sort(chosen).T:  # skip, in order, those who lend to this graph already
                drawn = drawn + np.where(drawn >= starts[taken], self.counts[taken], 0)
            found = np.searchsorted(starts, drawn, "right") - 1
            chosen = np.column_stack([chosen, found])
        dealt = draws.below(np.full(g.num_nodes, self.number))
        x = self.rows.take(chosen[g.graph_of_node, dealt], axis=0)
        return Graphs.unchecked(g.ptr, g.edges, x)
