"""Graphs and streams that several tests draw from."""

from __future__ import annotations

from types import SimpleNamespace

import networkx as nx
import numpy as np
from hypothesis import strategies as st

from invgnn.graphs.disjoint_union import Graphs


class Lcg:
    """Knuth's generator: a stream simple enough to write down."""

    def __init__(self, seed=1):
        self.state, self.drawn = seed, 0

    def below(self, bounds):
        self.drawn += len(bounds)
        assert (bounds >= 1).all()
        return np.array([self._next() % int(bound) for bound in bounds], dtype=np.int64)

    def permutation(self, n):
        return np.argsort([self._next() for _ in range(n)], kind="stable")

    def _next(self):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return self.state >> 33


def item(graph, x=None):
    nodes = {node: place for place, node in enumerate(graph)}
    pairs = [(nodes[u], nodes[v]) for u, v in graph.edges]
    pairs += [(v, u) for u, v in pairs]
    edge_index = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    return SimpleNamespace(edge_index=edge_index, num_nodes=len(nodes), x=x)


def union(graphs):
    return Graphs.from_data([item(graph) for graph in graphs])


def random_graphs():
    one = st.builds(
        lambda n, p, seed: nx.gnp_random_graph(n, p, seed=seed),
        st.integers(1, 10),
        st.sampled_from([0.0, 0.2, 0.5, 0.8, 1.0]),
        st.integers(0, 10**6),
    )
    return st.lists(one, min_size=1, max_size=6)


def same(left, right):
    assert left.dtype == right.dtype
    np.testing.assert_array_equal(left, right)


# Edgeless graphs first, last and twice in the middle: where offsets go wrong.
GAPS = [
    nx.empty_graph(3),
    nx.cycle_graph(4),
    nx.empty_graph(1),
    nx.empty_graph(2),
    nx.complete_graph(5),
    nx.disjoint_union(nx.path_graph(3), nx.star_graph(4)),
    nx.empty_graph(1),
]
