"""Graph counts against networkx and brute force."""

from __future__ import annotations

from itertools import combinations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given

from _helpers.drawn import GAPS, random_graphs, same, union
from invgnn.graphs.statistics import clustering, components, connected, degrees, motifs, triangles
from invgnn.graphs.wl_hash import wl_hash


def flat(graphs, function):
    return [function(graph)[node] for graph in graphs for node in graph]


@given(random_graphs())
def test_counts_agree_with_networkx(graphs):
    g = union(graphs)
    assert degrees(g).tolist() == flat(graphs, lambda graph: dict(graph.degree))
    assert triangles(g).tolist() == flat(graphs, nx.triangles)
    assert clustering(g).tolist() == flat(graphs, nx.clustering)  # bit for bit
    assert components(g).tolist() == [nx.number_connected_components(graph) for graph in graphs]
    assert connected(g).tolist() == [nx.is_connected(graph) for graph in graphs]


SHAPES = [(1, 1, 2, 2), (1, 1, 1, 3), (2, 2, 2, 2), (1, 2, 2, 3), (2, 2, 3, 3), (3, 3, 3, 3)]


def brute_motifs(graph):
    found = [0] * 6
    for four in combinations(graph, 4):
        shape = tuple(sorted(degree for _, degree in graph.subgraph(four).degree))
        if shape in SHAPES:
            found[SHAPES.index(shape)] += 1
    return found


@given(random_graphs())
def test_motifs_agree_with_brute_force(graphs):
    assert motifs(union(graphs)).tolist() == [brute_motifs(graph) for graph in graphs]


def test_motif_order():
    names = ["path", "star", "cycle", "tailed triangle", "diamond", "clique"]
    tailed = nx.Graph([(0, 1), (1, 2), (2, 0), (2, 3)])
    diamond = nx.Graph([(0, 1), (1, 2), (2, 0), (1, 3), (2, 3)])
    shapes = [nx.path_graph(4), nx.star_graph(3), nx.cycle_graph(4), tailed, diamond]
    counts = motifs(union([*shapes, nx.complete_graph(4)]))
    same(counts, np.eye(len(names), dtype=np.int64))


FUNCTIONS = [degrees, triangles, clustering, motifs, components, connected, wl_hash]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_counts_do_not_depend_on_other_graphs(function):
    graphs = [*GAPS, nx.gnp_random_graph(12, 0.4, seed=3), *GAPS[::-1]]
    alone = np.concatenate([function(union([graph])) for graph in graphs])
    same(function(union(graphs)), alone)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_no_graphs_give_no_counts(function):
    assert len(function(union(GAPS).take([]))) == 0
