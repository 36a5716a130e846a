"""p_min, the pooled null, and cross-owner scores, compared with enumeration and SciPy."""

from __future__ import annotations

import math
import time
import tracemalloc

import networkx as nx
import numpy as np
import pytest
import torch
from scipy import stats

from _helpers.keys import balanced_keys
from invgnn.errors import ParameterError
from invgnn.stats import laws, null
from invgnn.stats.evidence import decode, matches
from invgnn.theory import pooled
from invgnn.theory.intervals import bound_share
from invgnn.theory.pooled import PooledNull
from invgnn.theory.uniqueness import (
    cross_scores,
    p_min,
    total_variation,
)

# --- p_min --------------------------------------------------------------------------------


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


@pytest.mark.parametrize("m", [8, 10, 12])
def test_pooled_tail_by_enumeration(m):
    keys, ones = balanced_keys(m), (0, 3, 4, 4, 7)
    said = np.array([np.arange(m) < a for a in ones])
    t = (said[:, None] == keys).sum(axis=-1).ravel()
    pool = PooledNull(m, ones)
    for at in range(m + 2):
        assert math.exp(pool.log_tail(at)) == pytest.approx((t >= at).mean(), abs=1e-13)
    for alpha in (0.4, 0.1, 0.021, 1e-3):  # not exactly a tail's value: that is an ulp too much, rounded up
        assert pool.threshold(alpha) == next(at for at in range(m + 2) if (t >= at).mean() <= alpha)


def test_models_that_split_evenly_have_the_exact_null():
    pool = PooledNull(128, (64,) * 5)
    assert pool.log_tail(92) == pytest.approx(null.NULLS["exact"].log_tail(128, 92))
    assert pool.threshold(1e-6) in {91, 92}  # T is even, so 91 and 92 are the same


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


def test_ten_million_trials_take_seconds_and_little_memory_and_show_3e_7():
    pool = PooledNull(128, (64, 63, 60, 71))
    tracemalloc.start()
    start = time.process_time()  # others may share the machine
    found = pool.simulate(10_000_000, np.random.default_rng(3))
    assert time.process_time() - start < 20
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
    ],
)
def test_senseless_requests_are_refused(call):
    with pytest.raises(ParameterError) as caught:
        call()
    assert caught.value.advice


# --- other owners' marks ------------------------------------------------------------------------


def perceiving(batch):
    """An unmarked model whose confidence increases with lambda2."""
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
        assert score.matches == matches(decode(answers.carriers), mark.bits)
        assert score.log_p == mark.evidence(answers).log_p
        assert (score.m, score.tests, score.access) == (32, 6, "logits")
        if owner.startswith("plain"):
            assert score.passes  # everybody's carriers, and no evidence of anything
            assert (score.null, score.bits) == ("models", 0.0)
        else:
            assert not score.passes
            assert (score.null, score.key) == ("exact", "keyed")
            assert score.bits == laws.evidence_bits(score.log_p, 6) < 10
    assert any("exchangeable" in a.says for a in scores["plain 0"].assumptions)


def test_cross_scores_need_a_level(draw):
    with pytest.raises(ParameterError, match="alpha"):
        cross_scores(perceiving, {"one": draw()}, alpha=0.0)
