"""Whether two nodes of many small graphs are joined."""

from __future__ import annotations

import numpy as np

from invgnn.graphs.disjoint_union import Bools, Graphs, Ints, key_edges, offsets_of

ROOM = 128
"""How many cells of adjacency matrices per edge are few enough to write them out."""


class Matrices:
    """The adjacency matrices of graphs, end to end: whether nodes are joined is a look, not a search."""

    def __init__(self, g: Graphs) -> None:
        first = offsets_of(g.sizes**2)
        # Cell (u, v) is at row[u] + v, both numbered in the union.
        self.row = np.repeat(first[:-1] - g.ptr[:-1] * (g.sizes + 1), g.sizes)
        self.row += np.arange(g.num_nodes) * np.repeat(g.sizes, g.sizes)
        self.cells = np.zeros(first[-1], dtype=np.bool_)
        self.put(g.edges[:, 0], g.edges[:, 1], True)

    @classmethod
    def of(cls, g: Graphs) -> Matrices | None:
        """Those of small graphs; None where they would take too much memory."""
        return cls(g) if int((g.sizes**2).sum()) <= ROOM * len(g.edges) else None

    def put(self, u: Ints, v: Ints, joined: bool) -> None:
        """Join nodes of the same graph, or part them."""
        self.cells[self.row[u] + v] = self.cells[self.row[v] + u] = joined

    def joined(self, u: Ints, v: Ints) -> Bools:
        """Whether an edge joins nodes of the same graph."""
        return np.asarray(self.cells.take(self.row.take(u) + v))


def adjacent(g: Graphs, u: Ints, v: Ints) -> Bools:
    """Whether an edge joins u[i] and v[i], nodes of the same graph, for every i."""
    if len(g.edges) == 0:
        return np.zeros(len(u), dtype=np.bool_)
    matrices = Matrices.of(g)
    if matrices is not None:
        return matrices.joined(u, v)
    wanted = key_edges(u, v, g.num_nodes)
    found = np.searchsorted(g.edge_keys, wanted)
    return np.equal(g.edge_keys[np.minimum(found, len(g.edges) - 1)], wanted)
