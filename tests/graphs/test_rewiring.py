"""Rewired graphs and sampled subgraphs: preserved properties, and golden values."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from _helpers.drawn import GAPS, Lcg, item, random_graphs, same, union
from invgnn.errors import DataError, ParameterError
from invgnn.graphs.disjoint_union import Graphs
from invgnn.graphs.rewiring import rewire, sample_subgraphs
from invgnn.graphs.statistics import components, connected, degrees


@settings(max_examples=60)
@given(random_graphs(), st.integers(0, 6), st.integers(0, 2**32))
def test_rewiring_keeps_degrees_and_features(graphs, swaps, seed):
    x = np.arange(sum(map(len, graphs)))[:, None]
    g = union(graphs)
    g = Graphs(g.ptr, g.edges, x)
    before, stream = g.digest(), Lcg(seed)
    out, done = rewire(g, swaps, stream, tries=5)
    assert g.digest() == before
    same(degrees(out), degrees(g))
    same(out.edge_ptr, g.edge_ptr)
    same(out.x, g.x)
    assert ((done >= 0) & (done <= swaps)).all()
    assert stream.drawn <= 5 * swaps * 3 * len(g)
    assert stream.drawn % (3 * len(g)) == 0


def _reference_rewire(graphs, swaps, draws, tries):
    """One attempt after the other, one graph after the other, on sets of edges."""
    lists = [sorted(tuple(sorted(edge)) for edge in graph.edges) for graph in graphs]
    done = [0] * len(graphs)
    bounds = [[max(len(edges) - less, 1) for edges in lists] for less in (0, 1)] + [[2] * len(graphs)]
    for _ in range(swaps * tries):
        if all(d == swaps for d, edges in zip(done, lists, strict=True) if len(edges) >= 2):
            break
        for number, (i, j, flip) in enumerate(draws.below(np.ravel(bounds)).reshape(3, -1).T.tolist()):
            edges = lists[number]
            if len(edges) < 2 or done[number] == swaps:
                continue
            j += j >= i
            (a, b), (c, d) = edges[i], edges[j]
            new = [(a, c), (d, b)] if flip else [(a, d), (c, b)]
            new = [tuple(sorted(pair)) for pair in new]
            if all(u != v and (u, v) not in edges for u, v in new):
                edges[i], edges[j] = new
                done[number] += 1
    return [sorted(edges) for edges in lists], done


@settings(max_examples=100)
@given(
    random_graphs(), st.integers(0, 6), st.integers(1, 30), st.integers(0, 2**32), st.sampled_from([0, 1e9])
)
def test_rewiring_equals_sequential_attempts(graphs, swaps, tries, seed, room):
    stream, replay = Lcg(seed), Lcg(seed)
    with pytest.MonkeyPatch.context() as patch:  # edges are searched for, or looked up in matrices
        patch.setattr("invgnn.graphs.adjacency.MAX_CELLS_PER_EDGE", room)
        out, done = rewire(union(graphs), swaps, stream, tries)
    edges, expected = _reference_rewire(graphs, swaps, replay, tries)
    assert done.tolist() == expected
    for number, one in enumerate(edges):
        assert out.take([number]).edges.tolist() == [list(pair) for pair in one]
    assert stream.state == replay.state  # nothing is drawn that was not needed


@given(random_graphs(), st.integers(0, 2**32))
def test_one_swap_moves_two_edges(graphs, seed):
    g = union(graphs)
    out, done = rewire(g, 1, Lcg(seed))
    for number in range(len(g)):
        left, right = (set(map(tuple, h.take([number]).edges.tolist())) for h in (g, out))
        assert len(left - right) == len(right - left) == 2 * done[number]


def test_rewiring_finishes_or_reports_fewer_swaps():
    stuck = [nx.star_graph(5), nx.complete_graph(5), nx.path_graph(2), nx.empty_graph(4)]
    free = [nx.cycle_graph(8), nx.path_graph(9), nx.petersen_graph()]
    stream = Lcg()
    _, done = rewire(union([*stuck, *free]), 7, stream)
    assert done.tolist() == [0, 0, 0, 0, 7, 7, 7]
    assert stream.drawn == 7 * 20 * 3 * 7  # the stuck are tried to the end
    stream = Lcg()
    assert rewire(union(free), 7, stream)[1].tolist() == [7, 7, 7]
    assert stream.drawn < 7 * 20 * 3 * 3  # and nobody is tried once all are done


def test_rewiring_takes_exactly_the_swaps_there_are():
    # A hexagon under every choice of two edges and a crossing: 6 neighbouring pairs share a node,
    # 6 pairs one apart allow one crossing, 3 opposite pairs allow both, one of them two triangles.
    choices = np.array(list(product(range(6), range(5), range(2)))).T
    every = SimpleNamespace(below=lambda bounds: choices.ravel())
    out, done = rewire(union([nx.cycle_graph(6)] * 60), 1, every, tries=1)
    assert done.sum() == 2 * (6 + 3 * 2)
    assert components(out).tolist().count(2) == 2 * 3
    moved = {tuple(map(tuple, (one.edges).tolist())) for one in map(out.take, np.flatnonzero(done))}
    assert len(moved) == 6 + 3 * 2


def test_rewiring_golden():
    g = union([nx.cycle_graph(6), nx.empty_graph(1), nx.path_graph(5), nx.star_graph(2)])
    out, done = rewire(g, 3, Lcg(7))
    assert done.tolist() == [3, 0, 3, 0]
    assert out.edges.tolist() == [
        [0, 2],
        [0, 4],
        [1, 3],
        [1, 5],
        [2, 4],
        [3, 5],
        [7, 9],
        [8, 9],
        [8, 10],
        [10, 11],
        [12, 13],
        [12, 14],
    ]


@pytest.mark.parametrize(("swaps", "tries"), [(-1, 20), (1, 0)])
def test_rewiring_refuses_senseless_counts(swaps, tries):
    with pytest.raises(ParameterError):
        rewire(union(GAPS), swaps, Lcg(), tries)


def scattered():
    """A hub-heavy part, a ring of 15, a part too small, and isolated nodes; numbers shuffled."""
    parts = [nx.barabasi_albert_graph(80, 2, seed=1), nx.cycle_graph(15), nx.complete_graph(6)]
    whole = nx.disjoint_union_all([*parts, nx.empty_graph(3)])
    order = np.random.default_rng(5).permutation(len(whole)).tolist()
    out = nx.Graph()
    out.add_nodes_from(range(len(whole)))
    out.add_edges_from((order[u], order[v]) for u, v in whole.edges)
    return out


def test_subgraphs_are_connected_induced_and_of_the_drawn_size():
    graph = scattered()
    g = Graphs.from_data([item(graph, np.arange(len(graph))[:, None])])
    out = sample_subgraphs(g, 150, Lcg(3))
    replay = Lcg(3)
    start = replay.below(np.full(150, len(graph)))
    target = 12 + replay.below(np.full(150, 21))
    room = np.array([len(nx.node_connected_component(graph, int(node))) for node in start])
    assert (room < 12).any()
    assert ((room >= 12) & (room < target)).any()
    assert out.sizes.tolist() == np.minimum(target, room)[room >= 12].tolist()
    assert connected(out).all()
    for number, begin in enumerate(start[room >= 12]):
        one = out.take([number])
        nodes = one.x[:, 0].astype(int)
        assert begin in nodes
        assert (np.diff(nodes) > 0).all()
        edges = {tuple(pair) for pair in nodes[one.edges].tolist()}
        assert edges == {tuple(sorted(pair)) for pair in graph.subgraph(nodes.tolist()).edges}


def test_subgraphs_of_a_path_reach_their_size():
    out = sample_subgraphs(union([nx.path_graph(200)]), 40, Lcg(), low=32, high=32)
    assert out.sizes.tolist() == [32] * 40
    assert out.x is None
    assert (np.diff(out.edge_ptr) == 31).all()


def test_subgraphs_of_one_node():
    out = sample_subgraphs(union([nx.empty_graph(4)]), 5, Lcg(), low=1, high=3)
    assert out.sizes.tolist() == [1] * 5


def test_subgraphs_refuse():
    with pytest.raises(DataError, match="component of 12"):
        sample_subgraphs(union([nx.complete_graph(11)]), 5, Lcg())
    with pytest.raises(DataError, match="component"):
        sample_subgraphs(union([nx.empty_graph(0)]), 5, Lcg())
    with pytest.raises(ParameterError, match="one graph"):
        sample_subgraphs(union(GAPS), 5, Lcg())
    for count, low, high in [(0, 1, 2), (1, 0, 2), (1, 3, 2)]:
        with pytest.raises(ParameterError):
            sample_subgraphs(union([nx.path_graph(9)]), count, Lcg(), low, high)


# -- directed graphs -------------------------------------------------------------------------------


def _arrows(graph):
    pairs = np.array(sorted(graph.edges), dtype=np.int64).reshape(-1, 2).T
    return SimpleNamespace(edge_index=pairs, num_nodes=len(graph), x=None)


def _directed(seed, sizes):
    found = [nx.gnp_random_graph(n, p, seed=seed + n, directed=True) for n, p in sizes]
    return found, Graphs.from_data([_arrows(one) for one in found], keep_directions=True)


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 10**6),
    st.lists(st.tuples(st.integers(2, 12), st.sampled_from([0.1, 0.3, 0.6])), min_size=1, max_size=5),
)
def test_swaps_of_directed_graphs_keep_in_and_out_degrees(seed, sizes):
    before, held = _directed(seed, sizes)
    if not held.is_directed:  # every edge happens to have its reverse
        return
    rewired, done = rewire(held, 6, Lcg(seed))
    assert rewired.is_directed
    Graphs(rewired.ptr, rewired.edges, None, True)  # simple, sorted, within each graph
    for number, old in enumerate(before):
        one = rewired.take([number])
        new = nx.DiGraph()
        new.add_nodes_from(range(one.num_nodes))
        new.add_edges_from(one.edges.tolist())
        assert dict(new.in_degree) == dict(old.in_degree)
        assert dict(new.out_degree) == dict(old.out_degree)
        assert nx.number_of_selfloops(new) == 0
        assert (set(new.edges) != set(old.edges)) <= (done[number] > 0)


def test_a_directed_graph_without_any_swap_is_left_as_it_is():
    star = nx.DiGraph([(0, leaf) for leaf in range(1, 6)])
    held = Graphs.from_data([_arrows(star)], keep_directions=True)
    rewired, done = rewire(held, 5, Lcg())
    assert done.tolist() == [0]
    assert rewired.edges.tolist() == held.edges.tolist()


def test_networkx_agrees_on_which_directed_graphs_can_be_swapped():
    """Two edges a -> b and c -> d can be swapped if a -> d and c -> b are neither loops nor present."""
    for seed in range(12):
        (graph,), held = _directed(seed, [(5, 0.25)])
        if not held.is_directed or graph.number_of_edges() < 2:
            continue
        pairs = [(e, f) for e in graph.edges for f in graph.edges if e < f]
        able = any(
            a != d and c != b and not graph.has_edge(a, d) and not graph.has_edge(c, b)
            for (a, b), (c, d) in pairs
        )
        assert bool(rewire(held, 1, Lcg(seed), tries=400)[1][0]) == able
