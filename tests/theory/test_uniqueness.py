"""Keys of independent owners, the pooled null, and cross-owner scores against enumeration and scipy."""

from __future__ import annotations

import math
import tracemalloc
from itertools import combinations

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from invgnn import null
from invgnn.errors import ParameterError
from invgnn.secret import public_stream
from invgnn.theory import pooled
from invgnn.theory.intervals import bound_share
from invgnn.theory.pooled import PooledNull
from invgnn.theory.uniqueness import (
    HammingLaw,
    cross_scores,
    differ,
    p_min,
    pair_distances,
    separation,
    total_variation,
)


def balanced_keys(m):
    keys = np.zeros((math.comb(m, m // 2), m), dtype=np.int64)
    for key, ones in zip(keys, combinations(range(m), m // 2), strict=True):
        key[list(ones)] = 1
    return keys


# --- p_min and q --------------------------------------------------------------------------------


def failure_rate(p, n, delta, method):
    """The exact probability that p_min lies above min(p, 1 - p)."""
    least = np.array([p_min(bound_share(x, n, delta, method)) for x in range(n + 1)])
    return float(stats.binom.pmf(np.arange(n + 1), n, p)[least > min(p, 1 - p) + 1e-12].sum())


@pytest.mark.parametrize("n", [5, 40, 200])
@pytest.mark.parametrize("delta", [0.05, 0.2])
def test_p_min_fails_no_more_often_than_delta(n, delta):
    rates = [failure_rate(p, n, delta, "clopper-pearson") for p in np.linspace(0.002, 0.998, 84)]
    assert max(rates) <= delta + 1e-12
    assert max(rates) > delta / 3  # and is no empty promise


def test_the_papers_p_min_fails_far_more_often():
    assert failure_rate(0.001, 40, 0.05, "paper") == pytest.approx(1.0)  # above 0 though no 1 was seen
    assert failure_rate(0.9, 40, 0.05, "paper") == pytest.approx(1.0)  # it never looks above 1/2


def test_p_min_looks_at_both_sides():
    few, many = bound_share(80, 1000), bound_share(920, 1000)
    assert p_min(few) == few.lower
    assert p_min(many) == 1 - many.upper == pytest.approx(p_min(few))
    expected = stats.binomtest(80, 1000, alternative="greater").proportion_ci(0.95, "exact").low
    assert p_min(few) == pytest.approx(expected)
    literal = bound_share(920, 1000, method="paper")
    assert p_min(literal) == pytest.approx(stats.beta.ppf(0.05, 921, 81))


@given(st.floats(0, 1))
def test_q_is_the_chance_that_two_bits_differ(p):
    assert differ(p) == pytest.approx(1 - p**2 - (1 - p) ** 2, abs=1e-12)
    assert 0 <= differ(p) <= 0.5


# --- the Hamming law ----------------------------------------------------------------------------


@pytest.mark.parametrize("m", [8, 10])
def test_balanced_law_by_enumeration(m):
    keys = balanced_keys(m)
    distances = (keys[0] != keys).sum(axis=1)  # every key sees the same distances
    law = HammingLaw(m)
    assert law.pmf() == pytest.approx(np.bincount(distances, minlength=m + 1) / len(keys), abs=1e-13)
    assert law.mean == distances.mean()
    assert math.exp(law.log_collision) == pytest.approx(1 / len(keys))


@given(st.integers(4, 100), st.floats(0.01, 0.99))
def test_independent_bits_follow_scipys_binomial(half, p):
    m = 2 * half
    law = HammingLaw(m, p)
    assert law.pmf() == pytest.approx(stats.binom.pmf(np.arange(m + 1), m, differ(p)), abs=1e-12)
    assert law.log_collision == pytest.approx(m * math.log1p(-differ(p)))
    assert law.log_collision <= -differ(p) * m


def test_the_laws_reach_deep_without_underflow():
    assert HammingLaw(4096, 0.5).log_collision == pytest.approx(-4096 * math.log(2))
    assert HammingLaw(4096).log_collision == pytest.approx(-math.log(math.comb(4096, 2048)))
    assert HammingLaw(64, 0.3).log_cdf(-1) == HammingLaw(64).log_cdf(-1) == -math.inf
    assert HammingLaw(64, 0.3).log_cdf(64) == pytest.approx(0.0, abs=1e-12)


def test_a_balanced_key_collides_more_often_than_a_free_one():
    assert HammingLaw(128).log_collision / math.log(2) == pytest.approx(-124.2, abs=0.05)
    assert HammingLaw(128, 0.5).log_collision / math.log(2) == pytest.approx(-128)


@given(st.integers(2, 9), st.integers(1, 40), st.integers(0, 99))
def test_pair_distances_count_places(owners, m, seed):
    keys = np.random.default_rng(seed).integers(2, size=(owners, m))
    expected = [int((a != b).sum()) for a, b in combinations(keys, 2)]
    assert pair_distances(keys).tolist() == expected


def test_the_keys_this_library_draws_follow_the_balanced_law():
    m, stream = 64, public_stream("test", "hamming")
    keys = np.array([stream.balanced(m) for _ in range(300)])
    law, found = HammingLaw(m), separation(keys, HammingLaw(m))
    assert found.pairs == 300 * 299 // 2
    # Distances of different pairs are uncorrelated, so their mean has the spread of independent ones.
    spread = math.sqrt(m**2 / 4 / (m - 1) / found.pairs)
    assert abs(found.mean - law.mean) < 4 * spread
    assert found.log_p_least > math.log(1e-3)
    separate = np.array([stream.balanced(m) for _ in range(4000)]).reshape(2, 2000, m)
    distances = (separate[0] != separate[1]).sum(axis=1)
    expected = 2000 * law.pmf()
    large = expected > 5
    seen = np.bincount(distances, minlength=m + 1)[large]
    rest = [2000 - seen.sum()], [2000 - expected[large].sum()]
    test = stats.chisquare(np.append(seen, rest[0]), np.append(expected[large], rest[1]))
    assert test.pvalue > 1e-3


def test_keys_that_are_copies_are_noticed():
    key = np.arange(64) % 2
    near = key.copy()
    near[[0, 1]] = near[[1, 0]]
    found = separation([key, near], HammingLaw(64))
    assert found.least == 2
    assert found.log_p_least < math.log(1e-15)


# --- what the paper's theorem does not show -----------------------------------------------------


def test_total_variation_is_said_to_be_unproved_with_the_step_that_fails():
    found = total_variation(128, 94)
    assert found.standing == "unproved"
    assert (found.needed, found.expected) == (68, 64.0)  # keys would have to be further apart than they are
    assert found.closer == pytest.approx(stats.hypergeom.sf(29, 128, 64, 64))  # H <= 68: 30 in common
    assert found.closer > 0.7
    assert not found.checked
    assert "not proved" in type(found).__doc__


@pytest.mark.parametrize("m", [2, 4])
def test_one_coupling_bounds_tv_from_above_and_both_laws_are_the_same(m):
    # Two owners' bit strings, independent and uniform: one law, TV = 0, and yet Pr[X = Y] is small.
    law = np.full(2**m, 2.0**-m)
    tv, agree = np.abs(law - law).sum() / 2, float((law * law).sum())
    assert tv <= 1 - agree
    assert not tv >= 1 - agree


# --- the pooled null ----------------------------------------------------------------------------


def test_pooled_tail_by_enumeration():
    keys, ones = balanced_keys(8), (0, 3, 4, 4, 7)
    said = np.array([np.arange(8) < a for a in ones])
    t = (said[:, None] == keys).sum(axis=-1).ravel()
    pool = PooledNull(8, ones)
    for at in range(10):
        assert math.exp(pool.log_tail(at)) == pytest.approx((t >= at).mean(), abs=1e-13)
    for alpha in (0.4, 0.1, 0.02, 1e-3):
        assert pool.tau(alpha) == next(at for at in range(10) if (t >= at).mean() <= alpha)


def test_models_that_split_evenly_have_the_exact_null():
    pool = PooledNull(128, (64,) * 5)
    assert pool.log_tail(92) == pytest.approx(null.NULLS["exact"].log_tail(128, 92))
    assert pool.tau(1e-6) in {91, 92}  # T is even, so 91 and 92 are the same


def test_a_pool_is_made_from_answers():
    rng = np.random.default_rng(1)
    answers = rng.normal(size=(4, 16))
    assert PooledNull.of(answers).ones == (8,) * 4
    assert PooledNull.of(answers, 0.0).ones == tuple((answers >= 0).sum(axis=1))


def test_simulation_agrees_with_the_exact_law():
    pool = PooledNull(32, (16, 16, 15, 9))
    found = pool.simulate(200_000, np.random.default_rng(2))
    pmf = -np.diff(np.exp([pool.log_tail(t) for t in range(34)]))
    expected = found.total * pmf
    large = expected > 5
    seen = np.array(found.counts)[large]
    rest = found.total - seen.sum(), found.total - expected[large].sum()
    test = stats.chisquare(np.append(seen, rest[0]), np.append(expected[large], rest[1]))
    assert test.pvalue > 1e-3
    assert found.exceeding(0) == found.total == 200_000


def test_ten_million_trials_take_little_memory_and_show_3e_7():
    pool = PooledNull(128, (64, 63, 60, 71))
    tracemalloc.start()
    found = pool.simulate(10_000_000, np.random.default_rng(3))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * 8 * pooled.BLOCK
    assert found.total == 10_000_000
    assert found.exceeding(105) == 0
    limit = found.alpha(105)
    assert limit.lower == 0
    assert f"{limit.upper:.1e}" == "3.0e-07"  # not the paper's "< 1e-7"
    assert math.exp(pool.log_tail(105)) < 1e-12  # the exact tail says far more
    often = found.alpha(80, delta=1e-4)
    assert often.lower < math.exp(pool.log_tail(80)) < often.upper


def test_simulation_is_that_of_its_generator():
    pool = PooledNull(16, (8, 5))
    first, second = (pool.simulate(1000, np.random.default_rng(7)) for _ in range(2))
    assert first.counts == second.counts


@pytest.mark.parametrize(
    "call",
    [
        lambda: PooledNull(16, ()),
        lambda: PooledNull(16, (17,)),
        lambda: PooledNull(15, (3,)),
        lambda: PooledNull.of([[0.0] * 8, [0.0] * 10]),
        lambda: PooledNull(16, (8,)).simulate(0, np.random.default_rng(0)),
        lambda: differ(1.5),
        lambda: pair_distances([[0, 1]]),
        lambda: pair_distances([[0, 2], [1, 1]]),
        lambda: separation([[0, 1], [1, 0]], HammingLaw(8)),
    ],
)
def test_senseless_requests_are_refused(call):
    with pytest.raises(ParameterError) as caught:
        call()
    assert caught.value.advice


# --- other owners' marks ------------------------------------------------------------------------


def perceiving(batch):
    """A model that was never marked and is confident where lambda2 is large."""
    graphs = nx.Graph()
    graphs.add_nodes_from(range(batch.num_nodes))
    graphs.add_edges_from(batch.edge_index.T.tolist())
    laplacian = nx.laplacian_matrix(graphs, nodelist=range(batch.num_nodes)).toarray().astype(float)
    ends = zip(batch.ptr[:-1], batch.ptr[1:], strict=True)
    found = [np.linalg.eigvalsh(laplacian[low:high, low:high])[1] for low, high in ends]
    return torch.tensor([[value, 0.0] for value in found])


def test_who_perceives_the_invariant_passes_for_every_plain_owner_and_no_keyed_one(draw):
    how = {"m": 32, "access": "logits", "feature": "confidence"}
    marks = {f"plain {i}": draw(seed=i, key="plain", **how) for i in range(3)}
    marks |= {f"keyed {i}": draw(seed=i, **how) for i in range(3)}
    scores = {score.owner: score for score in cross_scores(perceiving, marks, alpha=1e-6)}
    assert list(scores) == list(marks)
    for owner, score in scores.items():
        mark = marks[owner]
        answers = mark.read(perceiving)
        assert score.t == null.matches(null.decode(answers.carriers), mark.bits)
        assert score.log_p == mark.weigh(answers).log_p
        assert (score.m, score.tried, score.access) == (32, 6, "logits")
        if owner.startswith("plain"):
            assert score.passes  # everybody's carriers, and no evidence of anything
            assert (score.null, score.bits) == ("models", 0.0)
        else:
            assert not score.passes
            assert (score.null, score.key) == ("exact", "keyed")
            assert score.bits == null.evidence_bits(score.log_p, 6) < 10
    assert any("exchangeable" in a.says for a in scores["plain 0"].assumptions)


def test_cross_scores_need_a_level(draw):
    with pytest.raises(ParameterError, match="alpha"):
        cross_scores(perceiving, {"one": draw()}, alpha=0.0)
