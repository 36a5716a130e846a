"""Place the nodes of a small graph for a drawing."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import shortest_path

from invgnn.graphs.disjoint_union import Floats, Graphs, Ints

ROUNDS = 60
"""Steps of stress majorisation; small graphs converge much earlier."""


def place(graph: Graphs) -> Floats:
    """Return positions for the nodes of one graph, with distances close to the number of hops.

    The layout is deterministic: the same graph always gets the same picture.

    Args:
        graph: A single graph.

    Returns:
        The positions [N, 2].
    """
    if graph.num_nodes < 2:
        return np.zeros((graph.num_nodes, 2))
    hops = _hops(graph.num_nodes, graph.edges)
    weight = np.where(hops > 0, 1.0 / np.maximum(hops, 1.0) ** 2, 0.0)
    inverse = np.linalg.pinv(np.diag(weight.sum(axis=1)) - weight)
    at = _scaled(hops)
    for _ in range(ROUNDS):
        apart = np.linalg.norm(at[:, None] - at[None], axis=2)
        pull = weight * hops / np.maximum(apart, 1e-9)
        at = inverse @ (pull.sum(axis=1, keepdims=True) * at - pull @ at)
    return np.asarray(at - at.mean(axis=0))


def _hops(nodes: int, edges: Ints) -> Floats:
    """Return the hops between all pairs; components are placed beside each other."""
    links = csr_array((np.ones(len(edges)), edges.T), shape=(nodes, nodes))
    hops = np.asarray(shortest_path(links, directed=False, unweighted=True), dtype=np.float64)
    far = np.isinf(hops)
    hops[far] = max(2.0, 0.6 * hops[~far].max())
    return hops


def _scaled(hops: Floats) -> Floats:
    """Return the start by classical multidimensional scaling, which needs no random numbers."""
    centre = np.eye(len(hops)) - 1.0 / len(hops)
    values, vectors = np.linalg.eigh(-0.5 * centre @ hops**2 @ centre)
    top = vectors[:, [-1, -2]] * np.sqrt(np.maximum(values[[-1, -2]], 1e-6))
    # Twins (leaves of one star) start at one point and would part by rounding errors alone, on
    # each machine differently: nudge each its own way.
    turn = 2.399963 * np.arange(len(hops))
    return np.asarray(top + 0.05 * np.stack([np.cos(turn), np.sin(turn)], axis=1))
