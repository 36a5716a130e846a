"""Test whether pairs of nodes are adjacent, for many pairs and many small graphs at once."""

from __future__ import annotations

import numpy as np

from invgnn.graphs.disjoint_union import Bools, Graphs, Ints, key_edges, offsets_of

MAX_CELLS_PER_EDGE = 128
"""Adjacency matrices are stored if they have at most this many cells per edge."""


class Matrices:
    """Adjacency matrices of many graphs, stored one after the other in a flat array.

    A test for an edge reads one cell instead of searching the list of edges.
    """

    def __init__(self, g: Graphs) -> None:
        first = offsets_of(g.sizes**2)
        # Cell (u, v) is at row[u] + v, where u and v are node numbers of the union.
        self.row = np.repeat(first[:-1] - g.ptr[:-1] * (g.sizes + 1), g.sizes)
        self.row += np.arange(g.num_nodes) * np.repeat(g.sizes, g.sizes)
        self.directed, self.cells = g.is_directed, np.zeros(first[-1], dtype=np.bool_)
        self.put(g.edges[:, 0], g.edges[:, 1], True)

    @classmethod
    def of(cls, g: Graphs) -> Matrices | None:
        """Return the adjacency matrices of small graphs, or None if they would take too much memory."""
        return cls(g) if int((g.sizes**2).sum()) <= MAX_CELLS_PER_EDGE * len(g.edges) else None

    def put(self, u: Ints, v: Ints, joined: bool) -> None:
        """Set or clear the edges (u[i], v[i]).

        Args:
            u: Nodes in the numbering of the union.
            v: Nodes of the same graphs as `u`.
            joined: True to add the edges, False to remove them.
        """
        self.cells[self.row[u] + v] = joined
        if not self.directed:
            self.cells[self.row[v] + u] = joined

    def joined(self, u: Ints, v: Ints) -> Bools:
        """Return whether (u[i], v[i]) is an edge, for every i.

        Args:
            u: Nodes in the numbering of the union.
            v: Nodes of the same graphs as `u`.

        Returns:
            One boolean per pair.
        """
        return np.asarray(self.cells.take(self.row.take(u) + v))


def adjacent(g: Graphs, u: Ints, v: Ints) -> Bools:
    """Return whether (u[i], v[i]) is an edge, for every i.

    Args:
        g: The graphs.
        u: Nodes in the numbering of the union.
        v: Nodes of the same graphs as `u`.

    Returns:
        One boolean per pair.
    """
    if len(g.edges) == 0:
        return np.zeros(len(u), dtype=np.bool_)
    matrices = Matrices.of(g)
    if matrices is not None:
        return matrices.joined(u, v)
    wanted = u * g.num_nodes + v if g.is_directed else key_edges(u, v, g.num_nodes)
    found = np.searchsorted(g.edge_keys, wanted)
    return np.equal(g.edge_keys[np.minimum(found, len(g.edges) - 1)], wanted)
