"""Every p-value is an upper bound in floating point too: against 60 digits, integers and fractions.

Each law is compared with an independent oracle, without tolerance from below and closely from above.
"""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from itertools import accumulate, combinations
from types import SimpleNamespace

import mpmath
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.special import betainc

import invgnn.stats.rank_sum
from invgnn.errors import ParameterError
from invgnn.stats import laws, null
from invgnn.stats.evidence import Evidence, empirical_p
from invgnn.stats.rank_sum import _count_tail, log_p_rank, log_rank_bound, log_ratio, rank_sum, up

MP = mpmath.mp.clone()
MP.dps = 60
LOG_PS = st.floats(-1e5, 0.0) | st.floats(-50.0, 0.0)
ANY = st.floats(allow_nan=True, allow_infinity=True)


def check(ours, truth, slack):
    """`ours` is a log p-value: not below the truth at all, and not above it by more than `slack`."""
    assert ours <= 0.0
    assert truth <= MP.mpf(ours), float(truth - ours)
    assert ours == truth or MP.mpf(ours) <= truth + slack, float(ours - truth)


def log_share(count, total):
    return MP.log(MP.mpf(count) / total) if count else -MP.inf


# --- rounding -----------------------------------------------------------------------------------


@given(ANY, st.floats(0.0, 1.0))
def test_up_is_a_logarithm_of_a_probability_whatever_it_gets(value, error):
    ours = up(value, error)
    assert ours <= 0.0
    if not math.isnan(value):
        assert (ours == -math.inf) == (value == -math.inf)
        assert ours == 0.0 or MP.mpf(ours) >= MP.mpf(value) + MP.mpf(error)


@given(st.integers(1, 2**3000), st.data())
def test_ratio_of_integers(total, data):
    count = data.draw(st.integers(0, total) | st.integers(0, min(total, 2**60)))
    check(log_ratio(count, total), log_share(count, total), 2.0**-49 * (1 + total.bit_length()))


@pytest.mark.parametrize("shift", [0, 1, 511, 512, 513, 1023, 1024, 1025, 1074, 1075, 5000, 512 * 1172])
def test_ratio_of_integers_at_every_scale(shift):
    for count, total in ((1, 1), (1, 3), (3, 4), (10**400 - 1, 10**400), (2**53 + 1, 2**53 + 3)):
        check(log_ratio(count, total << shift), log_share(count, total << shift), 2.0**-49 * (shift + 3))


@given(st.floats(-800.0, 0.0) | LOG_PS)
@example(0.0)
@example(-5e-324)
@example(-708.4)
@example(-744.5)
@example(-745.2)
@example(-1e300)
def test_p_is_rounded_upwards(log_p):
    p, truth = laws.p_of(log_p), MP.exp(MP.mpf(log_p))
    assert truth <= MP.mpf(p) <= truth * (1 + MP.mpf(2) ** -49) + MP.mpf(2) ** -1072
    assert 0.0 < p <= 1.0
    assert Evidence("matches", log_p, 8, 8, 4, 52, True).p == p


def test_p_of_impossible_events_and_nan():
    assert laws.p_of(-math.inf) == 0.0
    assert laws.p_of(math.nan) == laws.p_of(math.inf) == laws.p_of(1e-9) == 1.0


@given(LOG_PS, st.integers(1, 10**6) | st.integers(1, 2**1200))
@example(-40 * math.log(2.0), 1)
@example(-40 * math.log(2.0), 1024)
@example(-112 * math.log(2.0), 1)
def test_bits_are_rounded_downwards(log_p, tried):
    truth = -MP.mpf(log_p) / MP.log(2) - MP.log(tried, 2)
    ours = MP.mpf(laws.evidence_bits(log_p, tried))
    assert ours <= max(truth, MP.zero)
    assert ours >= truth - MP.mpf(2) ** -49 * (1 - 2 * log_p + tried.bit_length())
    assert Evidence("matches", log_p, 8, 8, 4, 52, True).bits(tried) == ours


def test_bits_of_impossible_events_and_nan():
    assert laws.evidence_bits(-math.inf, 7) == math.inf
    assert laws.evidence_bits(math.nan) == laws.evidence_bits(math.inf) == laws.evidence_bits(0.0) == 0.0


@given(st.floats(-300.0, 0.0), st.floats(1e-200, 1.0))
def test_p_value_of_a_law_that_may_fail(log_p, chance):
    truth = min(MP.zero, MP.log(MP.exp(MP.mpf(log_p)) + MP.mpf(chance)))
    check(laws.log_p_plus(log_p, chance), truth, 1e-12)
    assert laws.log_p_plus(log_p, 0.0) == log_p


def test_a_law_that_may_fail_bounds_the_evidence():
    check(laws.log_p_plus(-math.inf, 2.0**-90), -90 * MP.log(2), 1e-12)
    assert laws.log_p_plus(-math.inf, 0.0) == -math.inf
    assert laws.log_p_plus(math.nan, 0.0) == laws.log_p_plus(-3.0, 2.0) == 0.0
    for chance in (-1e-9, math.nan):
        with pytest.raises(ParameterError, match="chance"):
            laws.log_p_plus(-3.0, chance)


# --- matches ------------------------------------------------------------------------------------


def match_tails(m, ones, key_ones):
    """Pr[T >= t] for t = 0..m, in fractions: over the ones decoded on carriers with bit 1."""
    ways = [0] * (m + 2)
    for hits in range(min(ones, key_ones) + 1):
        zeros_right = m - key_ones - (ones - hits)
        if zeros_right >= 0:
            ways[hits + zeros_right] += math.comb(key_ones, hits) * math.comb(m - key_ones, ones - hits)
    total = math.comb(m, ones)
    return [Fraction(n, total) for n in accumulate(reversed(ways))][::-1]


def check_matches(m, ones, key_ones, step=1):
    tails = match_tails(m, ones, key_ones)
    assert tails[0] == 1
    for t in range(0, m + 2, step):
        ours = laws.log_p_matches(t, m, ones, key_ones)
        check(ours, log_share(*tails[t].as_integer_ratio()), 2.0**-49 * (1 - max(ours, -1e4)))
    assert laws.log_p_matches(-1, m, ones, key_ones) == 0.0


@pytest.mark.parametrize("m", [1, 2, 3, 5, 8, 11, 14])
def test_matches_for_every_count_of_small_marks(m):
    for ones in range(m + 1):
        for key_ones in range(m + 1):
            check_matches(m, ones, key_ones)


@given(st.integers(1, 256), st.data())
@settings(max_examples=25)
@example(256, None)
def test_matches_for_every_t_up_to_512(half, data):
    ones = half if data is None else data.draw(st.integers(0, 2 * half))
    check_matches(2 * half, ones, half)


# --- rank ---------------------------------------------------------------------------------------


def doubled_midranks(answers):
    """By counting, for every answer, those below and those not above."""
    return [sum(x < y for x in answers) + sum(x <= y for x in answers) + 1 for y in answers]


def subset_tails(ranks, n):
    """How many n-subsets of the ranks sum to at least s: from the least sum on, in integers.

    A long integer for each size holds, in one group of bytes for each sum, how many subsets have it.
    """
    base, width = min(ranks), len(ranks) // 8 + 1
    sizes = [1] + [0] * n
    for rank in ranks:
        for k in range(n, 0, -1):
            sizes[k] += sizes[k - 1] << 8 * width * (rank - base)
    held = sizes[n].to_bytes(sizes[n].bit_length() // 8 + width, "little")
    ways = [int.from_bytes(held[i : i + width], "little") for i in range(0, len(held), width)]
    tails = list(accumulate(reversed(ways)))[::-1]
    assert tails[0] == math.comb(len(ranks), n)
    return {n * base + i: tail for i, tail in enumerate(tails)}


def ranked(m, seed, digits):
    """Answers, with ties if rounded, and keys from what a stranger says to what a marked model says."""
    rng = np.random.default_rng(seed)
    answers = rng.normal(size=m) if digits is None else np.round(rng.normal(size=m), digits)
    for noise in (100.0, 1.0, 0.3, 0.05, 0.0, -0.3):
        guess = (answers + abs(noise) * rng.normal(size=m)) * (1 if noise >= 0 else -1)
        yield answers, np.argsort(np.argsort(guess)) >= m // 2


def check_ranks(m, seed, digits, slack):
    tails = None
    for answers, key in ranked(m, seed, digits):
        ranks, n = doubled_midranks(answers.tolist()), int(key.sum())
        s = sum(rank for rank, bit in zip(ranks, key, strict=True) if bit)
        tails = tails or subset_tails(ranks, n)
        truth = log_share(tails[s], math.comb(m, n))
        found = log_p_rank(answers, key)
        assert (rank_sum(answers, key), found.exact) == (s, True)
        check(found.log_p, truth, slack)
        assert truth <= MP.mpf(log_rank_bound(ranks, n, s)) <= truth + MP.log(1000)


@pytest.fixture(params=[0, 128], ids=["halves", "whole"])
def tables(request, monkeypatch):
    """Subsets counted in two halves that are paired, and in one table."""
    monkeypatch.setattr("invgnn.stats.rank_sum.WHOLE_UP_TO", request.param)


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize("m", [2, 4, 6, 8, 10, 12])
@pytest.mark.parametrize("values", [1, 2, 3, 5, 100])
def test_rank_by_enumeration_of_all_balanced_keys(m, values):
    answers = np.random.default_rng([m, values]).integers(0, values, size=m)
    ranks = doubled_midranks(answers.tolist())
    keys = {sum(ranks[i] for i in ones): ones for ones in combinations(range(m), m // 2)}
    sums = Counter(sum(ranks[i] for i in ones) for ones in combinations(range(m), m // 2))
    for s, ones in keys.items():
        key = np.isin(np.arange(m), ones)
        count = sum(ways for total, ways in sums.items() if total >= s)
        found = log_p_rank(answers, key)
        assert found.exact
        truth = log_share(count, math.comb(m, m // 2))
        check(found.log_p, truth, 1e-14)
        assert log_rank_bound(ranks, m // 2, s) >= truth


@given(st.integers(2, 64), st.integers(0, 2**31), st.sampled_from([None, 2, 1, 0]))
@settings(max_examples=25)
def test_rank_and_its_bound_up_to_64_against_integers(m, seed, digits):
    check_ranks(m, seed, digits, 1e-12)


@pytest.mark.parametrize(("m", "digits"), [(100, None), (128, 1), (130, 0), (139, None)])
def test_rank_and_its_bound_beyond_exact_doubles_against_integers(m, digits):
    check_ranks(m, m, digits, 1e-11)


def keys_within(deficit, half):
    """Keys whose rank sum is at most `deficit` below the largest: partitions with at most `half` parts."""
    assert deficit <= half  # so that no partition is too wide or too long
    ways = [1] + [0] * deficit
    for part in range(1, deficit + 1):
        for total in range(part, deficit + 1):
            ways[total] += ways[total - part]
    return sum(ways)


@pytest.mark.parametrize("deficit", [0, 1, 7, 100, 256])
def test_rank_deep_in_the_tail_at_512(deficit):
    key = np.arange(512) >= 256
    key[256], key[256 - deficit if deficit < 256 else 0] = key[256] and not deficit, True  # one bit down
    assert (key.sum(), rank_sum(np.arange(512), key)) == (256, 256 * 769 - 2 * deficit)
    found = log_p_rank(np.arange(512), key)
    check(found.log_p, log_share(keys_within(deficit, 256), math.comb(512, 256)), 1e-10)


@pytest.mark.parametrize("m", [514, 1024, 4096])
@pytest.mark.parametrize("deficit", [0, 1, 60, 250])
def test_rank_bound_deep_in_the_tail_of_large_marks(m, deficit):
    truth = log_share(keys_within(deficit, m // 2), math.comb(m, m // 2))
    ranks = 2 * np.arange(1, m + 1)
    ours = log_rank_bound(ranks, m // 2, int(ranks[m // 2 :].sum()) - 2 * deficit)
    assert truth <= MP.mpf(ours) <= truth + MP.log(300)


@given(st.data(), st.sampled_from([0.0, 1.0, -1e6, 1e12]), st.floats(1e-6, 1e6))
@settings(max_examples=60)
def test_rank_bound_of_any_weights_by_enumeration(data, offset, scale):
    weights = [offset + scale * x for x in data.draw(st.lists(st.floats(-1, 1), min_size=2, max_size=9))]
    n = data.draw(st.integers(0, len(weights)))
    drawn = data.draw(st.permutations(weights))[:n]
    s = math.fsum(drawn)
    s = s if Fraction(s) <= sum(map(Fraction, drawn)) else math.nextafter(s, -math.inf)
    sums = [sum(map(Fraction, some), Fraction(0)) for some in combinations(weights, n)]
    ours = log_rank_bound(weights, n, s)
    assert log_share(sum(total >= s for total in sums), len(sums)) <= MP.mpf(ours) <= 0


def test_rank_bound_is_trivial_where_none_can_be_computed():
    for s in (math.nan, math.inf, -math.inf, 2.0):
        assert log_rank_bound([1.0, 2.0, 3.0, 4.0], 2, s) == 0.0
    assert log_rank_bound([3.0] * 4, 2, 6.0) == 0.0
    assert log_rank_bound([1.0, 2.0, 3.0, 4.0], 2, 8.0) < -30  # more than any two can sum to


# --- two looks, several channels ----------------------------------------------------------------


@given(LOG_PS, LOG_PS)
def test_combined(one, other):
    truth = min(MP.zero, MP.log(2) + MP.mpf(min(one, other)))
    check(laws.log_p_combined(one, other), truth, 2.0**-49 * (1 - min(one, other)))


@given(LOG_PS, st.integers(1, 10**6))
def test_the_smallest_of_several(log_p, tests):
    truth = min(MP.zero, MP.log(tests) + MP.mpf(log_p))
    check(laws.log_p_times(log_p, tests), truth, 2.0**-49 * (1 - log_p))


@given(st.lists(LOG_PS, min_size=1, max_size=12))
@settings(max_examples=150)
def test_channels_are_fishers(log_ps):
    x = -sum(map(MP.mpf, log_ps))
    truth = MP.log(MP.gammainc(len(log_ps), x, regularized=True)) if x else MP.zero
    check(laws.log_p_channels(log_ps), truth, 2.0**-49 * (len(log_ps) + 1) * (1 + float(x)))


@pytest.mark.parametrize(("k", "each"), [(2, -354.9), (400, -9.0), (600, -500.0), (3, -1e-9), (5, -1e-300)])
def test_channels_at_the_ends(k, each):
    truth = MP.log(MP.gammainc(k, -k * MP.mpf(each), regularized=True))
    check(laws.log_p_channels([each] * k), truth, 1e-11 if k < 10 else 2.0**-49 * k * (1 - k * each))


@given(st.lists(ANY, max_size=5))
def test_combinations_are_logarithms_of_probabilities_whatever_they_get(values):
    together = laws.log_p_channels(values)
    assert together <= 0.0
    assert (together == -math.inf) == (-math.inf in values)
    for one in values:
        for other in values:
            both = laws.log_p_combined(one, other)
            assert both <= 0.0
            assert both > -math.inf or -math.inf in (one, other)


def test_no_channel_gives_no_evidence():
    assert laws.log_p_channels([]) == laws.log_p_channels([0.0, 0.0]) == 0.0


# --- direction ----------------------------------------------------------------------------------


def log_cap(chord, dimension):
    """The exact law plus 2^-112, in 60 digits."""
    a = MP.mpf(dimension - 1) / 2
    x = (min(MP.mpf(chord), MP.mpf(2)) / 2) ** 2
    return MP.log(MP.betainc(a, a, 0, x, regularized=True) + MP.mpf(2) ** -112)


DIMENSIONS = st.integers(16, 64) | st.integers(16, 4096) | st.sampled_from([16, 17, 4095, 4096])


@given(DIMENSIONS, st.data())
@settings(max_examples=90)
def test_chord_is_the_incomplete_beta_function(dimension, data):
    usual = st.floats(-12, 6).map(lambda z: max(0.0, math.sqrt(2) * (1 + z / (2 * math.sqrt(dimension)))))
    chord = data.draw(st.floats(0, 2) | usual | st.floats(-15, 0.3).map(lambda e: 10.0**e))
    check(laws.log_p_chord(chord, dimension), min(MP.zero, log_cap(chord, dimension)), 1e-10)


@pytest.mark.parametrize("dimension", [16, 17, 33, 512, 4096])
def test_chord_at_the_ends(dimension):
    right = math.sqrt(2)
    near = [math.nextafter(right, 0), right, math.nextafter(right, 2), 1e-9, 1e-160, 5e-324, 1.9999]
    for chord in [*near, math.nextafter(2.0, 0)]:
        check(laws.log_p_chord(chord, dimension), min(MP.zero, log_cap(chord, dimension)), 1e-10)
    assert laws.log_p_chord(2.0, dimension) == laws.log_p_chord(2.1, dimension) == 0.0
    assert laws.log_p_chord(math.inf, dimension) == 0.0


@given(DIMENSIONS, st.floats(0, 2), st.floats(0, 2))
def test_a_longer_chord_is_never_worth_more(dimension, one, other):
    near, far = (laws.log_p_chord(c, dimension) for c in sorted((one, other)))
    assert near <= far + 1e-10


@given(st.integers(16, 4096), st.floats(0, 1e-3))
@example(16, 0.0)
@example(4096, 0.0)
def test_no_direction_is_worth_more_than_112_bits(dimension, chord):
    log_p = laws.log_p_chord(chord, dimension)
    assert MP.mpf(log_p) >= -112 * MP.log(2)
    assert laws.evidence_bits(log_p) <= laws.CHANNEL_BITS == 112
    assert chord > 1e-5 or laws.evidence_bits(log_p) > 112 - 1e-9


@pytest.mark.parametrize("dimension", [16, 33])
def test_chord_by_simulation(dimension):
    u = np.random.default_rng(dimension).normal(size=(200_000, dimension))
    u /= np.linalg.norm(u, axis=1, keepdims=True)
    f = np.ones(dimension) / math.sqrt(dimension)
    chords = np.sort(np.linalg.norm(u - f, axis=1))
    for share in (0.9, 0.5, 0.1, 1e-2, 1e-3, 1e-4):
        count = math.ceil(share * len(chords))
        p = laws.p_of(laws.log_p_chord(float(chords[count - 1]), dimension))
        assert abs(p - share) < 5 * math.sqrt(share / len(chords)), share


@pytest.mark.parametrize("chord", [-1e-9, -math.inf, math.nan])
def test_a_chord_that_is_no_distance_is_refused(chord):
    with pytest.raises(ParameterError, match="expected a distance from 0 to 2") as caught:
        laws.log_p_chord(chord, 16)
    assert caught.value.advice


@pytest.mark.parametrize("dimension", [-1, 0, 1, 2, 15])
def test_a_direction_of_few_dimensions_is_refused(dimension):
    with pytest.raises(ParameterError, match=f"is {dimension}, expected at least 16") as caught:
        laws.log_p_chord(0.5, dimension)
    assert "16 features" in caught.value.advice


def old_bits(cosine, dimension):
    """The law that was: `1 - cosine` cancels, and a cosine that rounds to 1 was worth the least double."""
    half = (dimension - 1) / 2
    tail = betainc(half, half, (1 - cosine) / 2)
    return -np.log2(np.maximum(tail, 5e-324))


def test_defect_cosine_rounded_to_one_was_worth_1074_bits():
    # On the circle, given an angle below 4e-8 (probability 4e-8/pi), the old law claims 87 bits or more in
    # a quarter of all cases: with probability 2^-28 or so instead of 2^-87.
    rng, span = np.random.default_rng(1), 4e-8
    found = np.clip(rng.normal(size=(50_000, 2)), -3, 3)
    angle = np.arctan2(found[:, 1], found[:, 0]) + rng.uniform(-span, span, size=len(found))
    drawn = rng.rayleigh(size=(len(found), 1)) * np.column_stack([np.cos(angle), np.sin(angle)])
    direction = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
    cosine = np.minimum(1.0, (found * direction).sum(axis=1) / np.linalg.norm(found, axis=1))
    chance = float((old_bits(cosine, 2) >= 87).mean()) * span / math.pi
    assert 2.0**-30 < chance < 2.0**-27
    assert old_bits(1.0, 2) == old_bits(1.0, 16) == 1074
    with pytest.raises(ParameterError, match="at least 16"):
        laws.log_p_chord(0.0, 2)
    assert laws.evidence_bits(laws.log_p_chord(0.0, 16)) <= 112
    assert not hasattr(null, "log_p_cosine")


# --- nulls --------------------------------------------------------------------------------------


def claim(name, m, t, rho0=null.RHO0):
    """What a null claims Pr[T >= t] to be, in 60 digits."""
    c = min(4 * MP.mpf(rho0), MP.mpf(0.5))
    if name == "exact":
        return log_share(*match_tails(m, m // 2, m // 2)[max(0, t)].as_integer_ratio())
    if name == "binomial":
        return log_share(sum(math.comb(m, x) for x in range(max(0, t), m + 1)), 2**m)
    if name == "hoeffding":
        return -2 * (1 - c) * m * max(MP.zero, MP.mpf(t) / m - 0.5) ** 2
    return -2 * (1 - c) * m * (1 - MP.mpf(t) / m) ** 2


@given(st.sampled_from([*null.NULLS]), st.integers(4, 256), st.data())
@settings(max_examples=150)
def test_claims_of_the_nulls(name, half, data):
    t = data.draw(st.integers(-1, 2 * half + 1))
    ours = null.NULLS[name].log_tail(2 * half, t)
    check(ours, claim(name, 2 * half, t), 2.0**-49 * (1 - max(ours, -1e4)))


@given(st.sampled_from([null.hoeffding, null.paper]), st.floats(0, 0.3), st.integers(4, 2048), st.data())
def test_claims_and_thresholds_at_any_correlation(make, rho0, half, data):
    law, m = make(rho0), 2 * half
    t, alpha = data.draw(st.integers(0, m)), data.draw(st.floats(1e-300, 0.99))
    check(law.log_tail(m, t), claim(law.name, m, t, rho0), 2.0**-49 * 4 * m)
    tau = law.threshold(m, alpha)
    if law.name == "hoeffding" and tau <= m:
        assert claim(law.name, m, tau, rho0) <= MP.log(alpha)
    if tau > m // 2 + 1 and law.name == "hoeffding":
        assert claim(law.name, m, tau - 1, rho0) > MP.log(alpha) - 1e-9


@pytest.mark.parametrize("rho0", [0.0, null.RHO0, 0.1])
@pytest.mark.parametrize("name", ["hoeffding", "paper"])
def test_thresholds_hold_at_levels_a_unit_in_the_last_place_off(name, rho0):
    law = {"hoeffding": null.hoeffding, "paper": null.paper}[name](rho0)
    for m in (8, 50, 128, 1000):
        for t in range(m // 2 + 1, m, 1 + m // 60):
            alpha = float(MP.exp(claim(name, m, t, rho0)))
            for level in (math.nextafter(alpha, 0.0), alpha, math.nextafter(alpha, 1.0)):
                tau, sign = law.threshold(m, level), 1 if name == "hoeffding" else -1
                assert tau in (t, t + 1)
                assert sign * claim(name, m, tau, rho0) <= sign * MP.log(level)


@given(st.integers(4, 256), st.data())
@settings(max_examples=40)
def test_true_alpha_is_rounded_upwards(half, data):
    m, tau = 2 * half, data.draw(st.integers(0, 2 * half + 1))
    ones = data.draw(st.integers(0, m))
    truth = match_tails(m, ones, half)[tau]
    ours = null.NULLS["exact"].true_alpha(m, tau, ones)
    assert truth <= Fraction(ours) <= truth * (1 + Fraction(1, 10**11)) + Fraction(1, 10**320)


VALUES = st.lists(st.integers(0, 12) | st.just(math.nan), max_size=120)


@given(st.integers(0, 12), VALUES)
def test_empirical_p_is_the_least_double_above_the_fraction(observed, values):
    truth = Fraction(1 + sum(not value < observed for value in values), len(values) + 1)
    ours = empirical_p(observed, values)
    assert Fraction(math.nextafter(ours, 0.0)) < truth <= Fraction(ours) <= 1


@given(st.integers(0, 12), VALUES, st.sampled_from([null.models, null.decoys]), st.floats(1e-3, 0.99))
def test_empirical_nulls_claim_no_less_and_ask_for_no_less(t, values, make, alpha):
    law = make(values)
    count = 1 + sum(not value < t for value in values)
    check(law.log_tail(16, t), log_share(count, len(values) + 1), 1e-14)
    tau = law.threshold(16, alpha)
    below = [Fraction(1 + sum(not v < at for v in values), len(values) + 1) <= alpha for at in range(17)]
    assert tau == (below.index(True) if True in below else 17)


@pytest.mark.parametrize("n", range(1, 60))
def test_empirical_p_of_one_in_n(n):
    # 1/49 is one that the nearest double falls short of.
    assert Fraction(empirical_p(1.0, [0.0] * (n - 1))) >= Fraction(1, n)


# --- what is paid for rounding is what the pages say


@pytest.mark.parametrize("k", [1, 2, 5])
def test_channels_allow_for_eight_roundings_each_and_eight_more(k):
    """So large an x that what is paid shows in the result."""
    each = -1e13
    x = MP.mpf(-each) * k
    exact = MP.log(sum(x**j / MP.factorial(j) for j in range(k))) - x
    paid = float(laws.log_p_channels([each] * k) - exact)
    assert paid == pytest.approx(8 * (k + 1) * 2.0**-53 * float(x), rel=0.2)


@pytest.mark.parametrize(
    ("x", "dimension", "units"), [(0.5, 16, 1350), (0.3, 33, 1092), (1e-9, 128, 20_780), (0.45, 501, 6699)]
)
def test_a_cap_allows_for_sixteen_roundings_of_everything(x, dimension, units):
    assert laws._log_cap(x, dimension)[1] * 2**53 == pytest.approx(units, rel=1e-3)


def units(found, exact):
    """What was paid, in roundings of one: 2^-53."""
    return float((MP.mpf(found) - exact) * 2**53)


E1, LN2 = MP.exp(-1), MP.log(2)
PAID = {
    "combined": (lambda: laws.log_p_combined(-1.0, -0.9), LN2 - 1, 8 * (1 + 1)),
    "combined, the other": (lambda: laws.log_p_combined(-2.0, -3.0), LN2 - 3, 8 * (1 + 3)),
    "times": (lambda: laws.log_p_times(-1.5, 3), MP.log(3) - MP.mpf(1.5), 8 * (1 + 1.5)),
    "one channel": (lambda: laws.log_p_channels([-1.0]), MP.mpf(-1), 8 * 2 * (1 + 1)),
    "two channels": (lambda: laws.log_p_channels([-1.0, -1.0]), MP.log(3) - 2, 8 * 3 * (1 + 2)),
    "p": (lambda: laws.p_of(-1.0), E1, 8 * float(E1)),
    "base ten": (lambda: laws.log10_of(-2.0), -2 / MP.log(10), 8 * 2),
    "bits": (lambda: -laws.evidence_bits(-3.0, 2), 1 - 3 / LN2, 8 * (3 / math.log(2) + 1)),
    "ratio": (lambda: log_ratio(1, 3), -MP.log(3), 8 * (1 + math.log(3))),
    "plus": (
        lambda: laws.log_p_plus(-1.0, 0.25),
        MP.log(E1 + 0.25),
        8 * (1 + abs(math.log(E1 + 0.25))) + 8 * float(E1 / (E1 + 0.25)),
    ),
    "hoeffding": (lambda: null.hoeffding(0.0).log_tail(8, 8), MP.mpf(-4), 8 * 4),
    "paper": (lambda: null.paper(0.0).log_tail(8, 6), MP.mpf(-1), 8),
    "models": (lambda: null.models([1, 2, 3]).log_tail(8, 4), -MP.log(4), 8 * math.log(4)),
}


@pytest.mark.parametrize("name", PAID)
def test_every_law_allows_for_as_many_roundings_as_documented(name):
    """Neither fewer, which could be too few, nor more; an own rounding or two may be seen."""
    law, exact, expected = PAID[name]
    assert units(law(), exact) == pytest.approx(expected, abs=1 + 2 * abs(float(exact)))


def test_a_p_value_is_never_zero_unless_the_event_is_impossible():
    assert laws.p_of(-1e4) == 2 * math.ulp(0.0)
    assert laws.p_of(-math.inf) == 0


# --- the tables that count subsets --------------------------------------------------------------


@pytest.mark.parametrize(
    ("ranks", "s", "expected"),
    [
        (list(range(2, 130, 2)), 2500, 4029960670852854),
        ([2, 2, 2, *range(5, 66)], 1200, 77494286527587147),
    ],
)
def test_golden_counts_with_their_rounding(ranks, s, expected):
    assert _count_tail(ranks, 32, s) == expected


def test_up_to_128_answers_are_counted_in_one_table(monkeypatch):
    sizes, tails = [], invgnn.stats.rank_sum._tails
    monkeypatch.setattr("invgnn.stats.rank_sum._tails", lambda w: sizes.append(len(w)) or tails(w))
    for m in (128, 129, 130):
        log_p_rank(np.arange(m), np.arange(m) % 2)
    assert sizes == [128, 65, 65]


def test_up_to_512_answers_are_counted_and_more_are_bounded():
    assert log_p_rank(np.arange(512) // 64, np.arange(512) % 2).exact
    for m in (513, 514):
        assert not log_p_rank(np.arange(m) // 64, np.arange(m) % 2).exact


@pytest.mark.parametrize(
    ("offset", "expected"), [(0.0, -16.7357166), (1e3, -16.7357166), (1e12, -5.8546306)]
)
def test_golden_bounds_also_where_slopes_are_cut(offset, expected):
    """Far from zero a slope is cut, so that no rounding of its products shows; the bound is then weaker."""
    w = np.arange(600.0) * 1.5 + offset
    assert log_rank_bound(w, 300, float(w.mean() * 300) + 20_000) == pytest.approx(expected, rel=1e-4)


def test_channels_are_exact_where_their_terms_are_scaled():
    """The first sum of terms above 2^500, and the one after it."""
    terms, total, k = MP.mpf(1), MP.mpf(1), 1
    while total <= MP.mpf(2) ** 500:
        terms, k = terms * 1000 / k, k + 1
        total += terms
    for channels in (k - 1, k, k + 1):
        each = -1000.0 / channels
        x = -channels * MP.mpf(each)
        truth = MP.log(MP.gammainc(channels, x, regularized=True))
        check(laws.log_p_channels([each] * channels), truth, 2.0**-49 * (channels + 1) * 1001)


def test_channels_of_immense_evidence_do_not_overflow():
    assert laws.log_p_channels([-1e30] * 50) == pytest.approx(-5e31)


def test_channels_above_zero_or_nan_count_as_zero():
    for nothing in (0.5, 2.0, math.inf, math.nan):
        assert laws.log_p_channels([nothing, -3.0]) == laws.log_p_channels([0.0, -3.0])


def test_one_test_costs_nothing_and_two_cost_a_bit():
    assert laws.log_p_times(-3.0, 1) == -3.0
    assert laws.log_p_times(-3.0, 2) == pytest.approx(math.log(2) - 3)
    assert laws.log_level(1e-6) == math.log(1e-6)
    assert laws.log_level(1e-6, 4) == pytest.approx(math.log(2.5e-7))
    assert Evidence("matches", -40 * math.log(2), 8, 8, 4, 52, True).bits() == pytest.approx(40)


def test_fewer_ones_than_none_are_refused():
    with pytest.raises(ParameterError, match="ones=-1 is not a number from 0 to 8"):
        laws.log_p_matches(4, 8, -1)


def test_a_count_above_all_cases_is_certain():
    """Counts are rounded upwards, so one may exceed the number of all cases."""
    assert log_ratio(4, 3) == log_ratio(2**600, 2**600 - 1) == 0.0


def test_the_far_cap_allows_for_eight_roundings_at_every_step(monkeypatch):
    """Of the opposite cap, of the logarithm, of the probability, and of the sum with 2^-112."""
    monkeypatch.setattr(laws, "_log_cap", lambda x, dimension: (-0.7, 0.0))
    cap = MP.exp(MP.mpf(-0.7))
    odds, exact = float(cap / (1 - cap)), MP.log(1 - cap)
    expected = 8 * odds + 8 + 8 + 8 * (1 - float(exact))
    assert units(laws.log_p_chord(1.5, 16), exact) == pytest.approx(expected, abs=5)


@pytest.mark.parametrize(
    ("mean", "deviation", "allowed"), [(0.5, 0.25, 6), (1.0, -0.25, 10)], ids=["hoeffding", "paper"]
)
def test_thresholds_allow_for_eight_roundings_of_what_is_added(mean, deviation, allowed):
    """In units of 2^-50: 8 (1/2 + 1/4) = 6 and 8 (1 + 1/4) = 10, by sizes."""
    for below, expected in ((0, 7), (allowed - 1, 7), (allowed, 6)):
        assert null._ceil(8, mean, deviation - below * 2.0**-53) == expected


def at(monkeypatch, *place):
    """Let the optimiser stop at this shift and slope."""
    found = SimpleNamespace(x=np.array(place))
    monkeypatch.setattr(invgnn.stats.rank_sum, "minimize", lambda *_, **__: found)


@pytest.mark.parametrize("s", [8, 8.0, np.float32(8), np.int64(8)])
def test_the_rank_bound_is_its_formula_and_allows_for_32_roundings_of_each_term(monkeypatch, s):
    """Four weights of mean 2 and spread 1 at shift -1 and slope 1: one z is 0, the other 2."""
    at(monkeypatch, 1.0, 1.0)
    rest = 2 * MP.log(2) + 2 * MP.log(1 + MP.exp(-2))
    exact = (6 - 8) + rest - MP.log(6)
    passed = 2 * 0.5 * (1 + 1) + 2 / (1 + math.exp(2)) * (1 + 3)
    expected = 32 * (2 + float(rest) + math.log(6) + passed)
    assert units(log_rank_bound([1, 1, 3, 3], 2, s), exact) == pytest.approx(expected, abs=8)


@pytest.mark.parametrize("place", [(math.nan, 1.0), (math.inf, 1.0), (-math.inf, 1.0), (0.0, math.inf)])
def test_the_rank_bound_is_trivial_where_the_optimiser_fails(monkeypatch, place):
    at(monkeypatch, *place)
    assert log_rank_bound([1, 1, 3, 3], 2, 8) == 0.0


def test_the_rank_bound_does_not_depend_on_the_unit_of_the_weights():
    w = np.arange(600.0) * 1.5
    for unit in (2.0**-20, 1.0, 2.0**20):
        assert log_rank_bound(unit * w, 300, unit * 154_775.0) == pytest.approx(-16.7357166, rel=1e-4)


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize("n", [0, 1, 2, 6, 7, 8])
def test_rank_by_enumeration_of_unbalanced_keys(n):
    answers = [3, 1, 4, 1, 5, 9, 2, 6]
    ranks = doubled_midranks(answers)
    sums = [sum(ranks[i] for i in ones) for ones in combinations(range(8), n)]
    for ones in combinations(range(8), n):
        s = sum(ranks[i] for i in ones)
        truth = log_share(sum(total >= s for total in sums), len(sums))
        check(log_p_rank(answers, np.isin(np.arange(8), ones)).log_p, truth, 1e-14)


def test_ranks_are_counted_in_the_largest_steps_that_fit(monkeypatch):
    """Midranks of pairs are four apart."""
    seen, tails = [], invgnn.stats.rank_sum._tails
    monkeypatch.setattr("invgnn.stats.rank_sum._tails", lambda w: seen.append(w) or tails(w))
    log_p_rank(np.arange(8) // 2, np.arange(8) % 2)
    assert seen == [(0, 0, 1, 1, 2, 2, 3, 3)]
