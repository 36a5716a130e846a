"""Distances of independent keys, compared with enumeration up to m = 12, SciPy and drawn keys."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from _helpers.keys import balanced_keys
from invgnn.errors import ParameterError
from invgnn.graphs.invariants import find_invariant
from invgnn.secret import public_stream
from invgnn.theory.hamming import HammingLaw, differ, pair_distances, separation
from invgnn.watermark.carriers import Carriers

P = 0.3


def quota_probability(key, p):
    """Return the probability of a key whose bits are drawn one by one, each value m/2 times."""
    left, likely = [len(key) // 2] * 2, 1.0
    for bit in key:
        likely *= (p if bit else 1 - p) if all(left) else 1.0
        left[bit] -= 1
    return likely


@given(st.floats(0, 1))
def test_q_is_the_chance_that_two_bits_differ(p):
    assert differ(p) == pytest.approx(1 - p**2 - (1 - p) ** 2, abs=1e-12)
    assert 0 <= differ(p) <= 0.5


@pytest.mark.parametrize("m", [8, 10, 12])
def test_uniform_balanced_keys_by_enumeration(m):
    keys = balanced_keys(m)
    distances = (keys[:, None] != keys).sum(axis=-1).ravel()
    law = HammingLaw(m)
    assert law.pmf() == pytest.approx(np.bincount(distances, minlength=m + 1) / distances.size, abs=1e-13)
    twice = stats.hypergeom(m, m // 2, m // 2).pmf(np.arange(m // 2 + 1))  # ones apart: H is twice as many
    assert law.pmf()[::2] == pytest.approx(twice, abs=1e-13)
    assert law.mean == distances.mean() == m / 2
    assert math.exp(law.log_collision) == pytest.approx(1 / len(keys))


@pytest.mark.parametrize("m", [8, 10, 12])
@pytest.mark.parametrize("p", [0.08, 0.5, 0.672])
def test_keys_balanced_by_quota_by_enumeration(m, p):
    keys = balanced_keys(m)
    likely = np.array([quota_probability(key, p) for key in keys])
    assert likely.sum() == pytest.approx(1)
    distances = (keys[:, None] != keys).sum(axis=-1)
    weights = np.outer(likely, likely)
    expected = np.bincount(distances.ravel(), weights=weights.ravel(), minlength=m + 1)
    law = HammingLaw(m, p, quota=True)
    assert law.pmf() == pytest.approx(expected, abs=1e-11)
    assert law.mean == pytest.approx((weights * distances).sum())
    assert law.q == pytest.approx(law.mean / m)
    assert math.exp(law.log_collision) == pytest.approx((likely**2).sum())
    assert math.exp(law.log_cdf(4)) == pytest.approx(weights[distances <= 4].sum())


@pytest.mark.parametrize("m", [8, 10, 12])
def test_independent_bits_by_enumeration(m):
    keys = (np.arange(2**m)[:, None] >> np.arange(m)) & 1
    ones = keys.sum(axis=1)
    likely, law = P**ones * (1 - P) ** (m - ones), HammingLaw(m, P)
    assert math.exp(law.log_collision) == pytest.approx((likely**2).sum())
    apart = np.bincount(ones, weights=likely, minlength=m + 1)  # the distance from the key of zeros
    assert stats.binom.pmf(np.arange(m + 1), m, P) == pytest.approx(apart)
    flipped = likely[np.arange(2**m)[:, None] ^ 2 ** np.arange(m)]  # keys at distance 1 from each
    assert law.pmf()[1] == pytest.approx((likely[:, None] * flipped).sum())


@given(st.integers(4, 100), st.floats(0.01, 0.99))
def test_independent_bits_follow_scipys_binomial(half, p):
    m = 2 * half
    law = HammingLaw(m, p)
    assert law.pmf() == pytest.approx(stats.binom.pmf(np.arange(m + 1), m, differ(p)), abs=1e-12)
    assert law.log_collision == pytest.approx(m * math.log1p(-differ(p)))
    assert law.log_collision <= -differ(p) * m


@given(st.integers(4, 200), st.floats(0, 1), st.floats(0, 100))
def test_independent_keys_keep_their_mean_distance_as_the_paper_says(half, p, deviation):
    m, law = 2 * half, HammingLaw(2 * half, p)
    assert law.beyond(deviation) <= 2 * math.exp(-2 * deviation**2 / m) + 1e-12
    assert law.beyond(math.sqrt(m * math.log(m))) <= 2 / m**2
    assert HammingLaw(m).beyond(math.sqrt(m * math.log(m))) <= 2 / m**2


def test_keys_balanced_by_quota_lie_closer_and_scatter_more():
    by_quota, independent = HammingLaw(128, 0.672, quota=True), HammingLaw(128, 0.672)
    assert by_quota.mean < 46 < 56 < independent.mean < HammingLaw(128).mean == 64
    assert by_quota.log_collision > independent.log_collision
    assert HammingLaw(128, 0.6, quota=True).beyond(math.sqrt(128 * math.log(128))) > 2 / 128**2
    assert [a.holds for a in by_quota.assumptions] == [None, None]
    assert "refused" in by_quota.assumptions[1].says


def test_the_laws_reach_deep_without_underflow():
    assert HammingLaw(4096, 0.5).log_collision == pytest.approx(-4096 * math.log(2))
    assert HammingLaw(4096).log_collision == pytest.approx(-math.log(math.comb(4096, 2048)))
    for law in (HammingLaw(64, P), HammingLaw(64), HammingLaw(64, P, quota=True)):
        assert law.log_cdf(-1) == -math.inf
        assert law.log_cdf(64) == pytest.approx(0.0, abs=1e-12)
        assert law.pmf().sum() == pytest.approx(1)


def test_a_balanced_key_collides_more_often_than_a_free_one():
    assert HammingLaw(128).log_collision / math.log(2) == pytest.approx(-124.2, abs=0.05)
    assert HammingLaw(128, 0.5).log_collision / math.log(2) == pytest.approx(-128)


@given(st.integers(2, 9), st.integers(1, 40), st.integers(0, 99))
def test_pair_distances_count_places(owners, m, seed):
    keys = np.random.default_rng(seed).integers(2, size=(owners, m))
    expected = [int((a != b).sum()) for a, b in combinations(keys, 2)]
    assert pair_distances(keys).tolist() == expected


# --- the keys this library draws ----------------------------------------------------------------


def test_keyed_keys_follow_the_balanced_law():
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


def test_plain_keys_follow_the_quota(draw, references):
    keys = np.array([draw(seed=owner, key="plain", m=32).bits for owner in range(36)])
    drawn = Carriers.draw(references["graph"], 256, public_stream("test", "candidates")).graphs
    p = float((references["graph"].scale("lambda2")(find_invariant("lambda2")(drawn)) >= 0.5).mean())
    by_quota, iid, uniform = HammingLaw(32, p, quota=True), HammingLaw(32, p), HammingLaw(32)
    found = separation(keys, by_quota)
    assert max(abs(found.mean - law.mean) for law in (by_quota, iid)) < abs(found.mean - uniform.mean) / 4
    assert found.mean < iid.mean  # a quota brings keys closer together
    assert found.log_p_least > math.log(1e-3)
    assert separation(keys, uniform).log_p_least < math.log(1e-3)  # which these keys refute


def test_keys_that_are_copies_are_noticed():
    key = np.arange(64) % 2
    near = key.copy()
    near[[0, 1]] = near[[1, 0]]
    found = separation([key, near], HammingLaw(64))
    assert found.least == 2
    assert found.log_p_least < math.log(1e-15)


@pytest.mark.parametrize(
    "call",
    [
        lambda: differ(1.5),
        lambda: HammingLaw(7),
        lambda: HammingLaw(8, 1.5),
        lambda: HammingLaw(8, quota=True),
        lambda: HammingLaw(8, 1.0, quota=True),
        lambda: pair_distances([[0, 1]]),
        lambda: pair_distances([[0, 2], [1, 1]]),
        lambda: separation([[0, 1], [1, 0]], HammingLaw(8)),
    ],
)
def test_senseless_requests_are_refused(call):
    with pytest.raises(ParameterError) as caught:
        call()
    assert caught.value.advice
