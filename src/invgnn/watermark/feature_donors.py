"""Feature donors: a few nodes of the task whose features are assigned to the nodes of a carrier at random.

With the features of its seed graph a carrier is hard for a model to tell from that graph, so that embedding
the mark would change the model's predictions on the task. Features that never occur together avoid this.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from invgnn.graphs.disjoint_union import Draws, Features, Graphs, Ints, offsets_of

MOST_NODES = 4096
"""How many nodes of a large data set are considered as donors."""


@dataclass(frozen=True, eq=False)
class FeatureDonors:
    """The distinct feature rows of some nodes, how many nodes have each, and how many donate to a graph."""

    rows: Features
    counts: Ints
    number: int

    @classmethod
    def collect(cls, x: Features, number: int, draws: Draws) -> FeatureDonors:
        """Collect the rows of all nodes, or of enough random ones, in the order of their first
        occurrence.
        """
        if len(x) > MOST_NODES:
            x = x.take(draws.below(np.full(MOST_NODES, len(x))), axis=0)
        x = np.ascontiguousarray(x + x.dtype.type(0))  # without negative zeros: no look of their own
        looks = x.view(f"V{x.strides[0]}").ravel()
        _, first, counts = np.unique(looks, return_index=True, return_counts=True)
        order = np.argsort(first)  # and not by their bytes, which machines may order differently
        return cls(x.take(first[order], axis=0), counts[order].astype(np.int64), min(number, len(order)))

    def donate(self, g: Graphs, draws: Draws) -> Graphs:
        """Return the graphs with features from that many distinct rows each, drawn by how common they are.

        Takes a number for every donor and graph, then one for every node.
        """
        starts, total = offsets_of(self.counts), int(self.counts.sum())
        chosen = np.empty((len(g), 0), dtype=np.int64)
        for _ in range(self.number):
            drawn = draws.below(total - self.counts[chosen].sum(1))
            for taken in np.sort(chosen).T:  # skip, in order, the rows chosen for this graph already
                drawn = drawn + np.where(drawn >= starts[taken], self.counts[taken], 0)
            found = np.searchsorted(starts, drawn, "right") - 1
            chosen = np.column_stack([chosen, found])
        dealt = draws.below(np.full(g.num_nodes, self.number))
        x = self.rows.take(chosen[g.graph_of_node, dealt], axis=0)
        return Graphs.unchecked(g.ptr, g.edges, x, g.is_directed)


@dataclass(frozen=True, eq=False)
class TypedDonors:
    """Donors for every type of node: a node gets the features of nodes of its own type."""

    of_type: dict[int, FeatureDonors]
    types: int

    @classmethod
    def collect(cls, x: Features, types: int, number: int, draws: Draws) -> TypedDonors:
        """Collect the rows of every type that occurs; the first columns of a row are a code of its type."""
        kind = types_of(x, types)
        found = {int(t): FeatureDonors.collect(x[kind == t], number, draws) for t in np.unique(kind)}
        return cls(found, types)

    def donate(self, g: Graphs, draws: Draws) -> Graphs:
        """Return the graphs with features from that many rows for each type, type after type."""
        x, kind = np.asarray(g.x).copy(), types_of(g.x, self.types)
        for number, donors in self.of_type.items():
            mine = kind == number
            sizes = np.bincount(g.graph_of_node[mine], minlength=len(g))
            part = Graphs.unchecked(offsets_of(sizes), g.edges[:0], x[mine])
            x[mine] = donors.donate(part, draws).x
        return Graphs.unchecked(g.ptr, g.edges, x, g.is_directed)


def types_of(x: Features | None, types: int) -> Ints:
    """Return the type of every node from the one-hot code in its first columns."""
    found: Ints = np.asarray(x)[:, :types].argmax(1).astype(np.int64)
    return found
