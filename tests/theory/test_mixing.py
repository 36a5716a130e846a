"""ρ₀ and its limits: the bank compared with networkx, the corrections with SciPy, the rest exactly."""

from __future__ import annotations

import math
import warnings

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import false_discovery_control, pearsonr

from _helpers.drawn import GAPS, random_graphs, union
from invgnn.errors import ParameterError
from invgnn.theory import mixing as rho
from invgnn.theory.lipschitz import perceived
from invgnn.theory.portrait import assortativity, names, neighbour_degree, portrait, quantiles, summaries
from invgnn.training.tasks import new_model

# --- the bank of statistics


def pearson_assortativity(graph):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # networkx divides by zero where all degrees are one
        value = nx.degree_assortativity_coefficient(graph) if graph.number_of_edges() else math.nan
    return 0.0 if math.isnan(value) else value


@given(random_graphs())
def test_assortativity_agrees_with_networkx(graphs):
    wanted = [pearson_assortativity(graph) for graph in graphs]
    np.testing.assert_allclose(assortativity(union(graphs)), wanted, atol=1e-9)


@given(random_graphs())
def test_neighbour_degree_agrees_with_networkx(graphs):
    g = union(graphs)
    wanted = [value for graph in graphs for value in nx.average_neighbor_degree(graph).values()]
    degree = np.array([d for graph in graphs for _, d in graph.degree], dtype=np.int64)
    np.testing.assert_allclose(neighbour_degree(g, degree), wanted, atol=1e-12)


@settings(max_examples=30)
@given(st.lists(st.lists(st.floats(-5, 5), min_size=1, max_size=9), min_size=1, max_size=5))
def test_summaries_run_by_run(runs):
    ptr = np.concatenate([[0], np.cumsum([len(run) for run in runs])])
    values = np.array([value for run in runs for value in run])
    found = summaries(values, ptr)
    for row, run in zip(found, runs, strict=True):
        for k in range(1, 9):
            size = np.mean(np.array(run) ** k)
            assert np.sign(row[k - 1]) * abs(row[k - 1]) ** k == pytest.approx(size, abs=1e-5, rel=1e-6)
        for k in range(2, 9):
            cell, moment = row[6 + k], np.mean((run - np.mean(run)) ** k)
            assert np.sign(cell) * abs(cell) ** k == pytest.approx(moment, abs=1e-4, rel=1e-6)
        np.testing.assert_allclose(row[15:], np.quantile(run, np.linspace(0, 1, 11)), atol=1e-9)
    np.testing.assert_array_equal(found[:, 15:], quantiles(values, ptr))


def test_a_portrait_has_128_named_statistics():
    graphs = [nx.gnp_random_graph(12, 0.4, seed=3), nx.karate_club_graph(), nx.star_graph(5)]
    said = [0.1, 0.2, 0.3]
    table = portrait(union(graphs), said)
    listed = names()
    assert table.shape == (3, 128)
    assert len(listed) == len(set(listed)) == 128
    for row, graph, s in zip(table, graphs, said, strict=True):
        cell = dict(zip(listed, row.tolist(), strict=True))
        assert cell["nodes"] == len(graph)
        assert cell["edges"] == graph.number_of_edges()
        assert cell["density"] == pytest.approx(nx.density(graph))
        assert cell["transitivity"] == pytest.approx(nx.transitivity(graph))
        assert cell["assortativity"] == pytest.approx(nx.degree_assortativity_coefficient(graph))
        assert cell["clustering: moment 1"] == pytest.approx(nx.average_clustering(graph))
        assert cell["degree: central moment 2"] == pytest.approx(np.std([d for _, d in graph.degree]))
        assert cell["triangles: quantile 1.0"] == max(nx.triangles(graph).values())
        assert cell["perception"] == s
    star = dict(zip(listed, table[2].tolist(), strict=True))
    assert star["count: star"] == math.comb(5, 3)
    assert star["log count: star"] == pytest.approx(math.log(11))
    assert star["share: star"] == 1


def test_a_portrait_in_any_company_and_of_odd_graphs():
    graphs, said = [*GAPS, nx.gnp_random_graph(9, 0.5, seed=1)], np.linspace(0, 1, 8)
    together = portrait(union(graphs), said)
    alone = np.concatenate([portrait(union([g]), [s]) for g, s in zip(graphs, said, strict=True)])
    assert np.isfinite(together).all()
    np.testing.assert_allclose(together, alone, atol=1e-9)
    with pytest.raises(ParameterError, match="one per graph"):
        portrait(union(graphs), said[:-1])


# --- correlations and their corrections

TABLES = arrays(np.float64, (6, 9), elements=st.floats(-10, 10), unique=True)


@settings(max_examples=30)
@given(TABLES)
def test_correlations_of_carriers_agree_with_scipy(table):
    found = rho.carrier_correlations(table)
    wanted = [pearsonr(table[i], table[j]).statistic for i in range(6) for j in range(i + 1, 6)]
    np.testing.assert_allclose(found, wanted, atol=1e-6)


@given(arrays(np.float64, 20, elements=st.floats(-10, 10), unique=True))
def test_one_statistic_over_all_pairs_says_nothing(values):
    """The correlation over all ordered pairs is -1 / (m - 1) for any data."""
    first, second = np.nonzero(~np.eye(20, dtype=bool))
    assert pearsonr(values[first], values[second]).statistic == pytest.approx(-1 / 19, abs=1e-9)
    assert 1 / 127 > 7.6e-4  # so the paper's figure is not this one


@given(arrays(np.float64, st.sampled_from([7, 12]), elements=st.floats(-10, 10), unique=True))
def test_lag_correlations_by_hand(values):
    z = rho.standard_columns(values[:, None])[:, 0]
    wanted = [np.mean(z * np.roll(z, lag)) for lag in range(1, len(z) // 2 + 1)]
    np.testing.assert_allclose(rho.lag_correlations(z), wanted, atol=1e-9)


@given(arrays(np.float64, st.integers(1, 40), elements=st.floats(0, 1)), st.sampled_from([0.05, 0.2]))
def test_benjamini_hochberg_agrees_with_scipy(p, q):
    adjusted = false_discovery_control(p)
    clear = np.abs(adjusted - q) > 1e-12  # at the border both may round either way
    np.testing.assert_array_equal(rho.rejected(p, q)[clear], (adjusted <= q)[clear])


def test_benjamini_hochberg_on_many_at_once():
    rng = np.random.default_rng(0)
    p = np.concatenate([rng.uniform(size=500), rng.uniform(size=50) * 1e-4])
    np.testing.assert_array_equal(rho.rejected(p), false_discovery_control(p) <= 0.05)
    assert rho.rejected(p).sum() >= 50
    assert not rho.rejected(np.ones(10)).any()
    assert rho.rejected([]).shape == (0,)


def test_p_values_agree_with_scipy():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 30))
    found = pearsonr(x, y)
    assert rho.p_values([found.statistic], 30)[0] == pytest.approx(found.pvalue)
    assert rho.p_values([1.0, -1.0], 30).tolist() == [0, 0]
    assert rho.p_values([0.5], 2).tolist() == [1]


def test_standard_columns():
    table = np.array([[1.0, 5], [2, 5], [3, 5]])
    found = rho.standard_columns(table)
    np.testing.assert_allclose(found[:, 0], np.array([-1, 0, 1]) * math.sqrt(1.5))
    assert found[:, 1].tolist() == [0, 0, 0]


# --- maxima and their nulls


def test_128_independent_statistics_cannot_give_a_rho_of_a_thousandth():
    """A pairwise correlation has standard error 0.09; the largest of 8,128 is far above 1e-3 by chance."""
    rng = np.random.default_rng(0)
    table = rho.standard_columns(rng.normal(size=(128, 128)))
    pairs = rho.carrier_correlations(table)
    assert pairs.std() == pytest.approx(0.089, abs=0.003)
    found = rho.bank_maximum(table, rng, 50)
    assert found.pairs == 8128
    assert 0.25 < found.value < 0.5
    assert abs(found.value - found.expected) < 0.1
    assert found.p > 0.02
    assert found.passing <= 5  # Benjamini and Hochberg find nothing in noise


def test_a_twin_among_the_carriers_is_found():
    rng = np.random.default_rng(1)
    table = rng.normal(size=(40, 128))
    table[7] = table[3]
    found = rho.bank_maximum(rho.standard_columns(table), rng, 99)
    assert found.value == pytest.approx(1)
    assert found.kept == found.value
    assert found.p == 0.01


def test_the_lag_test_is_exact_and_sees_a_trend():
    """For exchangeable carriers Pr[p <= u] <= u, for every series."""
    rng = np.random.default_rng(2)
    few = [
        rho.lag_maximum(rho.standard_columns(rng.exponential(size=(32, 2))), rng, 19).p for _ in range(300)
    ]
    assert np.mean(np.array(few) <= 0.2) < 0.2 + 3 * math.sqrt(0.2 * 0.8 / 300)
    trend = np.column_stack([np.sin(np.arange(128) / 20), rng.normal(size=128)])
    assert rho.lag_maximum(rho.standard_columns(trend), rng, 99).p == 0.01


def test_mixing_of_a_mark(motifs, draw):
    mark, model = draw(m=32), new_model(motifs, "GIN", 0, hidden_channels=8)
    found = rho.mixing_of(mark, model, np.random.default_rng(0), permutations=30)
    again = rho.mixing_of(mark, model, np.random.default_rng(0), permutations=30)
    assert found == again
    assert found.m == 32
    assert 60 < found.statistics <= 128
    assert found.rho0 == max(found.bank.value, found.proxies.value)
    assert found.rho0 > 1e-3
    assert found.c == 0.5
    assert found.proxies.pairs == 2 * 16
    assert [a.holds for a in found.assumptions] == [False, None, False]
    assert not found.checked
    series = rho.standard_columns(np.column_stack([perceived(model, mark, mark.carriers), mark.perceived]))
    by_hand = [abs(np.mean(z * np.roll(z, lag))) for z in series.T for lag in range(1, 17)]
    assert found.proxies.value == pytest.approx(max(by_hand))


# --- what the paper makes of it


def test_the_papers_figures():
    assert rho.weakening(7.6e-4) == pytest.approx(3.04e-3)
    assert rho.weakening(0.3) == 0.5
    assert rho.block_length(7.6e-4) == 37
    assert rho.blocks(128, 7.6e-4) == 3
    for wrong in (-0.1, 1.1, math.nan):
        with pytest.raises(ParameterError):
            rho.weakening(wrong)
    with pytest.raises(ParameterError, match="no end"):
        rho.block_length(0)


def test_pairwise_independent_bits_can_all_agree():
    """127 bits from 7 coins, over all 128 outcomes: every correlation is 0, Hoeffding is off by 2^85."""
    bits = rho.xor_bits(7)
    assert bits.shape == (128, 127)
    ones = bits.astype(np.int64)
    together = ones.T @ ones
    assert (np.diag(together) == 64).all()  # each bit is fair
    assert (together[~np.eye(127, dtype=bool)] == 32).all()  # each two are independent
    assert (~bits).all(axis=1).sum() == 1  # of 128 outcomes one makes all agree
    assert not bits.all(axis=1).any()
    assert sorted(set(ones.sum(axis=1).tolist())) == [0, 64]
    claimed = math.exp(-2 * 127 * 0.25)
    assert 2**-7 / claimed > 2**84


def test_xor_bits_are_what_they_say():
    bits = rho.xor_bits(3)
    for coins in range(8):
        for subset in range(1, 8):
            assert bits[coins, subset - 1] == bool(bin(coins & subset).count("1") % 2)
    with pytest.raises(ParameterError):
        rho.xor_bits(0)
