"""Invariants against networkx, closed forms and dense solvers; scales and targets by hand."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from _helpers.drawn import union
from invgnn.errors import DataError, ParameterError
from invgnn.graphs import invariants
from invgnn.graphs.disjoint_union import Graphs
from invgnn.graphs.invariants import (
    INVARIANTS,
    Scale,
    find_invariant,
    invariant,
    keyed_targets,
    lambda2,
    plain_bits,
    spectral_radius,
    triangle_count,
)


def random_graphs():
    one = st.builds(
        lambda n, p, seed: nx.gnp_random_graph(n, p, seed=seed),
        st.integers(1, 12),
        st.sampled_from([0.0, 0.3, 0.6, 1.0]),
        st.integers(0, 10**6),
    )
    return st.lists(one, min_size=1, max_size=6)


def close(values, expected):
    np.testing.assert_allclose(values, expected, rtol=0, atol=1e-10)


@given(random_graphs())
def test_small_graphs_agree_with_networkx(graphs):
    g = union(graphs)
    spectra = [np.sort(nx.laplacian_spectrum(graph)) for graph in graphs]
    close(lambda2(g), [s[1] if len(s) > 1 else 0 for s in spectra])
    close(spectral_radius(g), [max(nx.adjacency_spectrum(graph).real) for graph in graphs])
    assert triangle_count(g).tolist() == [sum(nx.triangles(graph).values()) / 3 for graph in graphs]
    apart = [not nx.is_connected(graph) for graph in graphs]
    assert (lambda2(g)[apart] == 0.0).all()
    assert (lambda2(g) >= 0.0).all()


def test_lambda2_is_networkx_algebraic_connectivity():
    graphs = [nx.petersen_graph(), nx.path_graph(7), nx.barabasi_albert_graph(30, 2, seed=1)]
    expected = [nx.algebraic_connectivity(graph, method="lanczos", seed=1) for graph in graphs]
    np.testing.assert_allclose(lambda2(union(graphs)), expected, atol=1e-6)


LARGE = 700
assert LARGE > invariants.DENSE_UP_TO


def test_large_graphs_agree_with_closed_forms():
    n = LARGE
    shapes = [nx.path_graph(n), nx.cycle_graph(n), nx.star_graph(n - 1), nx.empty_graph(n)]
    g = union([*shapes, nx.disjoint_union(nx.cycle_graph(n), nx.path_graph(2))])
    close(lambda2(g), [2 - 2 * np.cos(np.pi / n), 2 - 2 * np.cos(2 * np.pi / n), 1, 0, 0])
    assert lambda2(g)[3:].tolist() == [0, 0]
    close(spectral_radius(g), [2 * np.cos(np.pi / (n + 1)), 2, np.sqrt(n - 1), 0, 2])


def test_sparse_and_dense_solvers_agree(monkeypatch):
    graphs = [nx.barabasi_albert_graph(60, 3, seed=2), nx.random_regular_graph(3, 60, seed=4)]
    g = union([*graphs, nx.connected_caveman_graph(12, 5), nx.complete_graph(60)])
    dense = lambda2(g), spectral_radius(g)
    monkeypatch.setattr(invariants, "DENSE_UP_TO", 10)
    close(lambda2(g), dense[0])
    close(spectral_radius(g), dense[1])


def test_sparse_solvers_fall_back_when_they_fail(monkeypatch):
    def fail(*_, **__):
        raise invariants.ArpackError(-9999)

    g = union([nx.petersen_graph(), nx.path_graph(20)])
    expected = lambda2(g), spectral_radius(g)
    monkeypatch.setattr(invariants, "DENSE_UP_TO", 5)
    monkeypatch.setattr(invariants, "eigsh", fail)
    close(lambda2(g), expected[0])
    close(spectral_radius(g), expected[1])


def test_global_random_state_is_left_alone():
    before = np.random.get_state()[1].copy()  # noqa: NPY002 - the state under test
    g = union([nx.path_graph(LARGE)])
    assert lambda2(g) == lambda2(g)
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002 - the state under test


@pytest.mark.parametrize("name", sorted(INVARIANTS))
def test_a_value_does_not_depend_on_other_graphs(name, monkeypatch):
    graphs = [nx.empty_graph(2), nx.path_graph(5), nx.cycle_graph(5), nx.empty_graph(1)]
    graphs += [nx.gnp_random_graph(5, 0.7, seed=seed) for seed in range(6)]
    graphs += [nx.complete_graph(4), nx.empty_graph(3)]
    alone = np.concatenate([find_invariant(name)(union([graph])) for graph in graphs])
    close(find_invariant(name)(union(graphs)), alone)
    monkeypatch.setattr(invariants, "BLOCK", 60)  # two graphs of five nodes at a time
    close(find_invariant(name)(union(graphs)), alone)


@pytest.mark.parametrize("name", sorted(INVARIANTS))
def test_every_invariant_ignores_numbering_and_takes_no_graphs(name):
    graph = nx.barabasi_albert_graph(20, 3, seed=1)
    order = np.random.default_rng(0).permutation(20).tolist()
    turned = nx.Graph([(order[u], order[v]) for u, v in graph.edges])
    values = find_invariant(name)(union([graph, turned]))
    assert values.dtype == np.float64
    assert values[0] > 0
    close(values[0], values[1])
    assert find_invariant(name)(union([graph]).take([])).shape == (0,)


def test_registry_names_what_it_has(monkeypatch):
    monkeypatch.setattr(invariants, "INVARIANTS", dict(INVARIANTS))

    @invariant
    def size(g):
        return g.sizes.astype(float)

    assert find_invariant("size") is size
    with pytest.raises(ParameterError, match="already"):
        invariant(size)
    with pytest.raises(ParameterError, match="lambda2, size, spectral_radius, triangle_count"):
        find_invariant("lamda2")


# ----------------------------------------------------------------------------- scale, targets


def test_scale_runs_from_fifth_to_ninety_fifth_percentile():
    scale = Scale.fit(np.arange(101.0))
    assert scale == Scale(5.0, 95.0)
    assert scale([0, 5, 27.5, 50, 95, 1000]).tolist() == [0, 0, 0.25, 0.5, 1, 1]


def test_scale_falls_back_to_the_extremes():
    assert Scale.fit([3.0] * 99 + [7.0]) == Scale(3.0, 7.0)
    assert Scale.fit([1e6] * 50 + [1e6 + 1e-7] * 49 + [1e6 + 5]) == Scale(1e6, 1e6 + 5)


def test_scale_rounds_so_that_machines_agree():
    scale = Scale(0.0, 3.0)
    assert scale([1.0]).tolist() == [0.333333333]
    assert scale([1.5 - 1e-11]) == 0.5


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([], "no values"),
        ([1.0, np.nan], "finite"),
        ([0.0, 0.0], "is 0 on all 2"),
        ([0.3, 0.1 + 0.2], "tells none apart"),
    ],
)
def test_scale_refuses(values, message):
    with pytest.raises(DataError, match=message) as caught:
        Scale.fit(values)
    assert caught.value.advice


@pytest.mark.parametrize(("low", "high"), [(1.0, 1.0), (2.0, 1.0), (0.0, np.inf), (np.nan, 1.0)])
def test_scale_needs_a_range(low, high):
    with pytest.raises(ParameterError):
        Scale(low, high)


def test_plain_bits_count_one_half_as_one():
    assert plain_bits([0.0, 0.499999999, 0.5, 1.0]).tolist() == [0, 0, 1, 1]


def test_keyed_targets_by_hand():
    t = [0.5, 0.5, 0.9, 0.9, 0.1, 0.1, 0.45]
    w = np.array([0, 1, 0, 1, 0, 1, 1], dtype=np.uint8)
    close(keyed_targets(t, w, 0.1), [0.4, 0.6, 0.1, 0.9, 0.1, 0.9, 0.6])


@given(
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 1)), min_size=1),
    st.floats(1e-6, 0.5),
)
def test_keyed_targets_carry_the_bit_and_keep_the_gap(pairs, gap):
    t, w = np.array(pairs).T
    out = keyed_targets(t, w, gap)
    assert plain_bits(out).tolist() == w.tolist()
    assert (np.abs(out - 0.5) >= gap - 1e-15).all()
    assert ((out >= 0) & (out <= 1)).all()


@pytest.mark.parametrize(
    ("t", "bits", "gap"),
    [
        ([0.5], [1], -0.1),
        ([0.5], [1], 0.6),
        ([0.5], [1], np.nan),
        ([0.5], [2], 0.1),
        ([0.5], [1, 0], 0.1),
        ([1.5], [1], 0.1),
        ([np.nan], [1], 0.1),
    ],
)
def test_keyed_targets_refuse(t, bits, gap):
    with pytest.raises(ParameterError):
        keyed_targets(t, bits, gap)


def test_sparse_solvers_start_from_a_published_vector():
    """One more than the fractions of multiples of the golden section: whoever computes it gets the same."""
    start = invariants._start(Graphs(np.array([0, 4]), np.array([[0, 1]])))
    assert start.tolist() == pytest.approx([1.0, 1.6180339887, 1.2360679775, 1.8541019662])


def test_graphs_of_up_to_500_nodes_are_solved_exactly(monkeypatch):
    assert invariants.DENSE_UP_TO == 500
    asked = []
    monkeypatch.setattr(invariants, "_sparse_lambda2", lambda g: asked.append(g.num_nodes) or 1.0)
    monkeypatch.setattr(invariants, "DENSE_UP_TO", 20)
    found = lambda2(union([nx.path_graph(nodes) for nodes in (22, 20, 21, 21)]))
    assert asked == [21, 21, 22]
    close(
        found, [1 - 1e-6, 2 - 2 * np.cos(np.pi / 20), 1 - 1e-6, 1 - 1e-6]
    )  # what the sparse solver says is what counts


def test_dense_matrices_are_solved_two_to_the_24_entries_at_a_time():
    """That is 128 MB; 256 matrices of 256 rows are exactly as many."""
    runs = list(invariants._equal_sizes(np.array([100, *[256] * 600])))
    assert runs == [(100, 0, 1), (256, 1, 257), (256, 257, 513), (256, 513, 601)]
    assert list(invariants._equal_sizes(np.array([5000] * 2))) == [(5000, 0, 1), (5000, 1, 2)]


def test_two_nodes_are_the_least_that_are_connected():
    close(lambda2(union([nx.path_graph(1), nx.path_graph(2)])), [0, 2])


def test_triangles_by_hand():
    graphs = [nx.path_graph(3), nx.complete_graph(3), nx.complete_graph(5), nx.empty_graph(1)]
    assert triangle_count(union(graphs)).tolist() == [0, 1, 10, 0]


def test_targets_reach_both_ends_at_the_smallest_and_the_largest_gap():
    assert keyed_targets([0, 0.5, 1, 1], [0, 1, 0, 1], 0.0).tolist() == [0, 0.5, 0, 1]
    assert keyed_targets([0.5, 0.5, 0.25], [0, 1, 1], 0.5).tolist() == [0, 1, 1]
