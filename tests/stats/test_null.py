"""The null laws against independent oracles: enumeration, scipy, fractions, the errata's table."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from invgnn.errors import ParameterError, SuspectError
from invgnn.stats import laws, null
from invgnn.stats.evidence import STATISTICS, decode, empirical_p, evidence_of, matches
from invgnn.stats.laws import log_p_combined, log_p_matches
from invgnn.stats.null import NULLS
from invgnn.stats.rank_sum import log_p_rank, log_rank_bound, rank_sum

TIED = {
    4: [0.1, 0.5, 0.5, 0.9],
    6: [1, 2, 2, 2, 3, 9],
    8: [0, 0, 0, 1, 1, 2, 3, 3],
    10: [5, 5, 1, 1, 1, 2, 7, 7, 7, 7],
    12: [0, 1, 1, 2, 2, 2, 3, 4, 4, 8, 8, 9],
}
TIE_FREE = {m: np.random.default_rng(m).normal(size=m) for m in TIED}
CASES = [*TIED.values(), *TIE_FREE.values(), [1.0] * 6, [0.0] * 5 + [1.0] * 3]


def balanced_keys(m):
    keys = np.zeros((math.comb(m, m // 2), m), dtype=bool)
    for key, ones in zip(keys, combinations(range(m), m // 2), strict=True):
        key[list(ones)] = True
    return keys


def random_case(m, seed, digits=None, shift=0.0):
    rng = np.random.default_rng(seed)
    bits = rng.permutation(np.arange(m) % 2)
    answers = rng.normal(size=m) + shift * bits
    return (answers if digits is None else np.round(answers, digits)), bits


def exact_fraction(t, m, ones):
    """Pr[T >= t | ones] term by term, with another formula for T than the module's."""
    n = m // 2
    hits = (x for x in range(max(0, ones - n), min(n, ones) + 1) if x + n - (ones - x) >= t)
    return Fraction(sum(math.comb(n, x) * math.comb(n, ones - x) for x in hits), math.comb(m, ones))


def log_fraction(p):
    return math.log(p.numerator) - math.log(p.denominator)


# --- decoding -----------------------------------------------------------------------------------


@pytest.mark.parametrize("answers", CASES, ids=str)
def test_decode_is_above_the_median(answers):
    r = np.asarray(answers, dtype=float)
    assert decode(r).tolist() == (r > np.median(r)).tolist()


def test_decode_survives_neighbouring_floats_and_infinities():
    # The mean of the middle two rounds onto the upper one, or is inf - inf: half must still be 1.
    lo = np.nextafter(1.0, 2.0)
    assert decode([lo, lo, np.nextafter(lo, 2), np.nextafter(lo, 2)]).sum() == 2
    assert decode([-np.inf, -np.inf, np.inf, np.inf]).tolist() == [False, False, True, True]


def test_decode_at_a_threshold_includes_it():
    assert decode([0.4, 0.5, 0.6], threshold=0.5).tolist() == [False, True, True]


def test_matches_counts_agreements():
    assert matches([True, False, True, False], [1, 1, 1, 0]) == 3


# --- the law of T -------------------------------------------------------------------------------


@pytest.mark.parametrize("m", range(4, 13, 2))
def test_matches_law_by_enumeration(m):
    keys = balanced_keys(m)
    for ones in range(m + 1):
        decoded = np.arange(m) < ones
        t_of_key = (keys == decoded).sum(axis=1)
        for t in range(-1, m + 2):
            p = math.exp(log_p_matches(t, m, ones))
            assert p == pytest.approx((t_of_key >= t).mean(), abs=1e-13), (ones, t)


@pytest.mark.parametrize("key_ones", [0, 1, 3, 7, 8])
def test_matches_law_of_an_opened_part_with_its_own_count(key_ones):
    keys = np.zeros((math.comb(8, key_ones), 8), dtype=bool)
    for key, ones in zip(keys, combinations(range(8), key_ones), strict=True):
        key[list(ones)] = True
    for ones in range(9):
        t_of_key = (keys == (np.arange(8) < ones)).sum(axis=1)
        for t in range(10):
            p = math.exp(log_p_matches(t, 8, ones, key_ones))
            assert p == pytest.approx((t_of_key >= t).mean(), abs=1e-13), (ones, t)


@given(st.integers(4, 150), st.data())
def test_matches_law_is_scipys_hypergeometric(half, data):
    m, ones = 2 * half, data.draw(st.integers(0, 2 * half))
    t = data.draw(st.integers(0, m))
    x = math.ceil((t - half + ones) / 2)
    expected = stats.hypergeom.sf(x - 1, m, half, ones)
    assert math.exp(log_p_matches(t, m, ones)) == pytest.approx(expected, rel=1e-8, abs=1e-290)


@pytest.mark.parametrize(
    ("m", "t", "ones"),
    [
        (128, 128, 64),
        (512, 400, 250),
        (1024, 1000, 512),
        (2048, 1500, 1024),
        (4096, 2200, 2048),
        (4096, 4094, 2048),
        (4096, 4096, 2048),
        (4096, 3500, 1801),
        (4096, 0, 2048),
    ],
)
def test_deep_tails_are_right_to_eleven_digits(m, t, ones):
    expected = log_fraction(exact_fraction(t, m, ones))
    # An absolute error of the logarithm is a relative error of p, however small p is.
    # Up to 2.6e-12 of it is paid for rounding at m = 4096.
    assert log_p_matches(t, m, ones) == pytest.approx(expected, rel=0, abs=5e-12)


def test_numpy_integers_do_not_overflow():
    assert log_p_matches(np.int64(300), 512, np.int32(256)) == log_p_matches(300, 512, 256)


def test_an_impossible_count_has_probability_zero():
    assert log_p_matches(65, 64, 32) == -math.inf
    assert log_p_matches(64, 64, 31) == -math.inf


# --- the law of U -------------------------------------------------------------------------------


@pytest.fixture(params=[0, 128], ids=["halves", "whole"])
def tables(request, monkeypatch):
    """Subsets counted in two halves that are paired, and in one table."""
    monkeypatch.setattr("invgnn.stats.rank_sum.WHOLE_UP_TO", request.param)


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize("answers", CASES, ids=str)
def test_rank_law_by_enumeration(answers):
    r = np.asarray(answers, dtype=float)
    keys = balanced_keys(r.size)
    sums = (2 * stats.rankdata(r) * keys).sum(axis=1)
    for key, s in zip(keys[::7], sums[::7], strict=True):
        assert rank_sum(r, key) == s
        p, exact = log_p_rank(r, key)
        assert exact
        assert math.exp(p) == pytest.approx((sums >= s).mean(), rel=1e-12)


@given(st.integers(2, 22), st.integers(0, 2**31), st.floats(-1, 3))
@settings(max_examples=60, deadline=None)
def test_rank_law_is_scipys_exact_mann_whitney(half, seed, shift):
    r, w = random_case(2 * half, seed, shift=shift)
    expected = stats.mannwhitneyu(r[w == 1], r[w == 0], alternative="greater", method="exact")
    assert math.exp(log_p_rank(r, w).log_p) == pytest.approx(expected.pvalue, rel=1e-9)


def full_convolution(ranks, n, s):
    """Subsets of n ranks summing to at least s: the plain table, in Python integers."""
    table = [{0: 1}] + [{} for _ in range(n)]
    for rank in ranks:
        for k in range(n, 0, -1):
            for total, ways in table[k - 1].items():
                table[k][total + rank] = table[k].get(total + rank, 0) + ways
    return sum(ways for total, ways in table[n].items() if total >= s)


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize("digits", [None, 2, 1, 0])
@pytest.mark.parametrize("shift", [-1.0, 0.5, 5.0])
def test_rank_law_at_m_48_in_integers(digits, shift):
    r, w = random_case(48, 5, digits, shift)
    ranks = [int(2 * x) for x in stats.rankdata(r)]
    count = full_convolution(ranks, 24, sum(x for x, bit in zip(ranks, w, strict=True) if bit))
    expected = math.log(count) - math.log(math.comb(48, 24))
    assert log_p_rank(r, w).log_p == pytest.approx(expected, rel=0, abs=1e-12)


def test_rank_law_deep_at_m_512():
    # Top 256 but one, which is the best of the rest: 1 key is better, so exactly 2 reach it.
    w = np.zeros(512, dtype=int)
    w[257:], w[255] = 1, 1
    p, exact = log_p_rank(np.arange(512.0), w)
    assert exact
    assert p == pytest.approx(math.log(2) - math.log(math.comb(512, 256)), rel=0, abs=1e-10)


@pytest.mark.parametrize("digits", [None, 1])
def test_rank_law_is_symmetric_at_m_512(digits):
    # Reversing answers reverses the tail: Pr[S >= s] + Pr[S' >= S'(s) ] = 1 + Pr[S = s].
    r, w = random_case(512, 3, digits, shift=0.1)
    up, down = (math.exp(log_p_rank(x, w).log_p) for x in (r, -r))
    assert 1 < up + down < 1 + 1e-3


def test_rank_p_value_is_near_the_normal_one_at_m_512():
    r, w = random_case(512, 8, 1, shift=0.3)
    expected = stats.mannwhitneyu(r[w == 1], r[w == 0], alternative="greater", method="asymptotic")
    assert log_p_rank(r, w).log_p == pytest.approx(math.log(expected.pvalue), rel=0.02)


@pytest.mark.parametrize("m", [64, 128, 256, 512])
@pytest.mark.parametrize("shift", [-0.5, 0.0, 0.3, 1.0, 6.0])
@pytest.mark.parametrize("digits", [None, 0])
def test_chernoff_bound_is_above_the_exact_tail_and_near_it(m, shift, digits):
    r, w = random_case(m, 11, digits, shift)
    exact = log_p_rank(r, w).log_p
    bound = log_rank_bound(2 * stats.rankdata(r), m // 2, rank_sum(r, w))
    assert exact <= bound <= exact + math.log(1000)


def test_chernoff_bound_is_used_and_labelled_above_512():
    r, w = random_case(514, 2, shift=0.4)
    p, exact = log_p_rank(r, w)
    normal = stats.mannwhitneyu(r[w == 1], r[w == 0], alternative="greater", method="asymptotic")
    assert not exact
    assert math.log(normal.pvalue) < p < math.log(normal.pvalue) + math.log(1000)
    assert log_p_rank(np.ones(514), w) == (0.0, False)


# --- validity of the p-values -------------------------------------------------------------------


def all_p_values(r):
    """log p of T, U and both, over every balanced key."""
    r = np.asarray(r, dtype=float)
    decoded = decode(r)
    for key in balanced_keys(r.size):
        by_t = log_p_matches(matches(decoded, key), r.size, int(decoded.sum()))
        by_u = log_p_rank(r, key).log_p
        yield by_t, by_u, log_p_combined(by_t, by_u)


@given(st.lists(st.integers(0, 5), min_size=8, max_size=8))
@settings(max_examples=40, deadline=None)
def test_every_p_value_is_valid_given_the_answers(answers):
    p = np.exp(np.array(list(all_p_values(answers))))
    for column in p.T:
        for u in np.unique(column):
            assert (column <= u * (1 + 1e-12)).mean() <= u * (1 + 1e-9)


@pytest.mark.parametrize("answers", [TIED[10], TIE_FREE[10], TIED[12]], ids=["10t", "10", "12t"])
def test_every_p_value_is_valid_and_single_ones_are_exact(answers):
    p = np.exp(np.array(list(all_p_values(answers))))
    for name, column in zip(STATISTICS, p.T, strict=True):
        share = np.array([(column <= u * (1 + 1e-12)).mean() for u in column])
        assert (share <= column * (1 + 1e-9)).all()
        if name != "combined":
            assert share == pytest.approx(column, rel=1e-9)


def test_combined_is_corrected_for_two_tests():
    assert log_p_combined(-10.0, -3.0) == pytest.approx(math.log(2) - 10)
    assert log_p_combined(-0.1, -0.2) == 0.0


# --- one front door -----------------------------------------------------------------------------


def test_log_p_reports_the_declared_statistic_and_its_counts():
    r, w = random_case(32, 4, digits=1, shift=1.0)
    decoded = r > np.median(r)
    found = {s: evidence_of(r, w, s) for s in STATISTICS}
    for s, evidence in found.items():
        assert evidence.statistic == s
        assert (evidence.m, evidence.matches, evidence.ones) == (32, (decoded == w).sum(), decoded.sum())
        assert evidence.rank_sum == 2 * stats.rankdata(r)[w == 1].sum()
        assert evidence.exact
    by_t, by_u = found["matches"].log_p, found["rank"].log_p
    assert by_t == log_p_matches(found["matches"].matches, 32, found["matches"].ones)
    assert by_u == log_p_rank(r, w).log_p
    assert by_t != by_u
    assert found["combined"].log_p == log_p_combined(by_t, by_u)


def test_log_p_reads_at_a_given_threshold():
    bits = [1, 1, 1, 1, 0, 0, 0, 0]
    answers = [0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2]
    evidence = evidence_of(answers, bits, "matches", threshold=0.5)
    assert (evidence.matches, evidence.ones) == (7, 5)
    assert evidence.p == pytest.approx(math.comb(4, 1) / math.comb(8, 5))


def test_a_bound_is_labelled_and_matches_need_none():
    r, w = random_case(600, 1)
    assert [evidence_of(r, w, s).exact for s in STATISTICS] == [True, False, False]


def test_constant_answers_give_no_evidence():
    evidence = evidence_of(np.zeros(16), np.arange(16) % 2)
    assert (evidence.log_p, evidence.matches, evidence.ones, evidence.bits()) == (0.0, 8, 0, 0.0)


@pytest.mark.parametrize(
    ("answers", "bits", "statistic", "error", "word"),
    [
        (range(9), [0, 1] * 4 + [0], "combined", ParameterError, "odd"),
        (range(6), [0, 1] * 3, "combined", ParameterError, "too small"),
        (range(8), [1] * 5 + [0] * 3, "combined", ParameterError, "balanced"),
        (range(8), [0, 1] * 5, "combined", ParameterError, "8 answers"),
        (range(8), [0, 2] * 4, "combined", ParameterError, "zeros and ones"),
        (range(8), [0, 1] * 4, "best", ParameterError, "statistic"),
        ([math.nan] * 8, [0, 1] * 4, "matches", SuspectError, "NaN"),
        ([[1.0] * 8], [0, 1] * 4, "matches", SuspectError, "nested"),
    ],
)
def test_bad_input_is_refused_with_advice(answers, bits, statistic, error, word):
    with pytest.raises(error, match=word) as caught:
        evidence_of(list(answers), bits, statistic)
    assert caught.value.advice


# --- evidence -----------------------------------------------------------------------------------


def test_worked_figures_of_the_protocol():
    assert math.exp(log_p_matches(122, 128, 64)) == pytest.approx(7e-29, rel=0.05)
    assert math.exp(log_p_matches(80, 128, 64)) == pytest.approx(4e-3, rel=0.05)
    assert laws.evidence_bits(log_p_matches(128, 128, 64)) == pytest.approx(124.2, abs=0.05)


def test_where_the_six_errors_lie_decides_between_t_and_u():
    # T = 122 each time: errors near the median favour U, errors at the ends favour T.
    w = np.arange(128) >= 64

    def p_rank(low, high):
        r = np.arange(128.0)
        r[low], r[high] = r[high].copy(), r[low].copy()
        assert evidence_of(r, w, "matches").matches == 122
        return evidence_of(r, w, "rank").p

    near, far = p_rank([61, 62, 63], [64, 65, 66]), p_rank([0, 1, 2], [125, 126, 127])
    assert near < 1e-34 < 7e-29 < 7e-22 < far


def test_evidence_bits_are_corrected_for_every_test():
    assert laws.evidence_bits(-math.log(2) * 40) == pytest.approx(40)
    assert laws.evidence_bits(-math.log(2) * 40, tests=1024) == pytest.approx(30)
    assert laws.evidence_bits(-1.0, tests=1024) == 0.0
    with pytest.raises(ParameterError):
        laws.evidence_bits(-1.0, tests=0)


# --- thresholds ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "taus"),
    [
        ("exact", [52, 72, 92, 130]),
        ("binomial", [51, 72, 92, 130]),
        ("hoeffding", [54, 74, 94, 133]),
        ("paper", [43, 71, 99, 156]),
    ],
)
def test_thresholds_of_the_errata(name, taus):
    assert [NULLS[name].threshold(m, 1e-6) for m in (64, 96, 128, 192)] == taus
    assert NULLS[name].name == name
    assert NULLS[name].caveat


def test_true_alpha_of_the_papers_thresholds():
    true = NULLS["paper"].true_alpha
    assert true(64, 43) == pytest.approx(0.00277, rel=0.01)  # "0.3 %" at a promised 1e-6
    assert true(64, 43, ones=31) == pytest.approx(0.00589, rel=0.01)  # one tie at the median
    assert true(64, 42) == pytest.approx(0.0119, rel=0.01)  # the paper's table
    assert true(96, 68) == pytest.approx(4.28e-5, rel=0.01)
    assert math.exp(NULLS["binomial"].log_tail(64, 43)) == pytest.approx(0.00407, rel=0.01)
    assert NULLS["paper"].log_tail(64, 43) <= math.log(1.1e-6)  # what it claims of itself


@pytest.mark.parametrize("alpha", [0.3, 1e-2, 1e-6, 1e-12, 1e-40])
@pytest.mark.parametrize("m", [8, 10, 64, 128, 130])
def test_exact_threshold_is_the_smallest_even_one(m, alpha):
    tau = NULLS["exact"].threshold(m, alpha)
    if tau == m + 1:
        assert alpha < Fraction(1, math.comb(m, m // 2))
        return
    assert tau % 2 == 0
    assert exact_fraction(tau, m, m // 2) <= Fraction(alpha) < exact_fraction(tau - 2, m, m // 2)


def test_unreachable_alpha_asks_for_more_than_m():
    # 1/C(8,4) = 1/70: even a perfect answer is no evidence at 1 %.
    assert NULLS["exact"].threshold(8, 0.01) == 9
    assert NULLS["exact"].threshold(8, 0.02) == 8
    assert NULLS["exact"].true_alpha(8, 9) == 0.0
    assert NULLS["hoeffding"].threshold(8, 1e-6) == 9


@given(st.integers(4, 30), st.data())
def test_an_even_threshold_holds_for_any_number_of_decoded_ones(half, data):
    m = 2 * half
    tau = data.draw(st.integers(half + 1, m).filter(lambda t: t % 2 == 0))
    at_median = log_p_matches(tau, m, half)
    assert max(log_p_matches(tau, m, ones) for ones in range(m + 1)) <= at_median + 1e-12


def test_the_binomial_law_is_too_lax_for_balanced_keys():
    binomial = NULLS["binomial"]
    assert not binomial.valid_for_balanced
    assert binomial.true_alpha(128, binomial.threshold(128, 1e-3)) > 1.2e-3
    assert binomial.true_alpha(64, binomial.threshold(64, 1e-6), ones=31) > 1.8e-6


@given(st.integers(4, 300), st.floats(1e-300, 0.49))
def test_binomial_threshold_is_scipys(half, alpha):
    m, tau = 2 * half, NULLS["binomial"].threshold(2 * half, alpha)
    slack = 1e-9 * alpha
    assert tau == m + 1 or stats.binom.sf(tau - 1, m, 0.5) <= alpha + slack
    assert stats.binom.sf(tau - 2, m, 0.5) > alpha - slack


@given(st.integers(4, 400), st.data())
def test_exact_tail_is_below_the_corrected_hoeffding_bound(half, data):
    m = 2 * half
    t = data.draw(st.integers(half, m))
    ones = data.draw(st.integers(0, m))
    for rho0 in (0.0, null.RHO0, 0.2):
        c = min(4 * rho0, 0.5)
        bound = -2 * (1 - c) * m * (t / m - 0.5) ** 2
        assert null.hoeffding(rho0).log_tail(m, t) == pytest.approx(bound)
        assert log_p_matches(t, m, ones) <= bound + 1e-12


@given(st.sampled_from(["exact", "binomial", "hoeffding"]), st.integers(4, 200), st.data())
def test_tau_is_monotone_in_alpha_and_m(name, half, data):
    alphas = sorted(data.draw(st.tuples(*[st.floats(1e-30, 0.4)] * 2)))
    tau = NULLS[name].threshold
    assert tau(2 * half, alphas[0]) >= tau(2 * half, alphas[1])
    assert tau(2 * half, alphas[0]) <= tau(2 * half + 2, alphas[0])


@given(st.sampled_from(["exact", "binomial", "hoeffding"]), st.integers(4, 200), st.data())
def test_tau_keeps_what_its_own_tail_promises(name, half, data):
    alpha = data.draw(st.floats(1e-30, 0.4))
    tau = NULLS[name].threshold(2 * half, alpha)
    assert tau == 2 * half + 1 or NULLS[name].log_tail(2 * half, tau) <= math.log(alpha) + 1e-9


def test_a_larger_correlation_asks_for_more():
    assert null.hoeffding(0.1).threshold(128, 1e-6) > null.hoeffding(0.0).threshold(128, 1e-6)
    assert null.hoeffding(0.2).threshold(128, 1e-6) == null.hoeffding(0.9).threshold(128, 1e-6)  # c <= 1/2


@pytest.mark.parametrize("m", [7, 9, 6, 0, -8, 127])
def test_odd_or_tiny_m_is_refused(m):
    for call in (lambda: NULLS["exact"].threshold(m, 1e-6), lambda: null.power(m, 5, 0.9)):
        with pytest.raises(ParameterError, match="odd or too small") as caught:
            call()
        assert "even" in caught.value.advice


@pytest.mark.parametrize("alpha", [0.0, 1.0, -1e-6, 2.0, math.nan])
def test_alpha_outside_the_unit_interval_is_refused(alpha):
    for law in NULLS.values():
        with pytest.raises(ParameterError, match="alpha"):
            law.threshold(64, alpha)


# --- empirical nulls ----------------------------------------------------------------------------


def test_empirical_p_counts_ties_and_nan_against_the_owner():
    assert empirical_p(90, [60, 90, 91]) == 3 / 4
    assert empirical_p(100, [60, 64, 70]) == 1 / 4
    assert empirical_p(100, [60, math.nan, 70]) == 2 / 4
    assert empirical_p(math.nan, [60, 64, 70]) == 1.0
    assert empirical_p(100, []) == 1.0


@given(st.lists(st.integers(0, 9), min_size=2, max_size=8))
def test_empirical_p_is_valid_under_exchange(values):
    p = [empirical_p(v, values[:i] + values[i + 1 :]) for i, v in enumerate(values)]
    for u in p:
        assert sum(q <= u for q in p) / len(p) <= u + 1e-12


@pytest.mark.parametrize(("make", "name"), [(null.models, "models"), (null.decoys, "decoys")])
def test_empirical_nulls_are_nulls(make, name):
    law = make(np.arange(40, 79))  # 39 values: the smallest p is 1/40
    assert law.name == name
    assert "1/40" in law.caveat
    assert law.threshold(128, 1 / 40) == 79
    assert law.threshold(128, 2 / 40) == 78
    assert law.threshold(128, 1 / 41) == 129
    assert law.log_tail(128, 78) == pytest.approx(math.log(2 / 40))
    assert law.true_alpha(128, 92) == NULLS["exact"].true_alpha(128, 92)


# --- power --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("m", "tau"), [(128, 92), (64, 52), (8, 1), (8, 8), (8, 0), (8, 9)])
@pytest.mark.parametrize("accuracy", [0.0, 0.5, 0.8, 0.97, 1.0])
def test_power_is_a_binomial_tail(m, tau, accuracy):
    expected = math.fsum(
        math.comb(m, x) * accuracy**x * (1 - accuracy) ** (m - x) for x in range(tau, m + 1)
    )
    assert null.power(m, tau, accuracy) == pytest.approx(expected, rel=1e-10, abs=1e-300)


@pytest.mark.parametrize("law", [None, *NULLS.values()], ids=lambda n: n.name if n else "default")
@pytest.mark.parametrize("accuracy", [0.75, 0.9, 1.0])
def test_smallest_m_is_the_first_that_reaches_the_power(law, accuracy):
    tau = (law or NULLS["exact"]).threshold
    reached = [m for m in range(8, 402, 2) if stats.binom.sf(tau(m, 1e-6) - 1, m, accuracy) >= 0.95]
    assert null.smallest_m(1e-6, accuracy, power=0.95, null=law) == reached[0]


def test_a_perfect_reader_needs_as_many_carriers_as_keys():
    assert null.smallest_m(1e-6, 1.0) == 24
    assert math.comb(22, 11) < 10**6 < math.comb(24, 12)


@pytest.mark.parametrize(
    ("accuracy", "power", "word"),
    [(0.5, 0.99, "no m"), (1.1, 0.9, "accuracy"), (0.9, 1.0, "power")],
)
def test_hopeless_or_senseless_plans_are_refused(accuracy, power, word, monkeypatch):
    monkeypatch.setattr(null, "LARGEST_M", 128)
    with pytest.raises(ParameterError, match=word):
        null.smallest_m(1e-6, accuracy, power)


def test_more_ones_than_carriers_are_rejected():
    with pytest.raises(ParameterError, match="ones=9 is not a number from 0 to 8"):
        log_p_matches(4, 8, 9)


def test_a_threshold_is_never_negative():
    """The paper's literal formula accepts everything at a level that is small enough."""
    assert null.paper().threshold(8, 1e-9) == 0


@pytest.mark.parametrize("m", [6, 9])
def test_tails_of_odd_or_tiny_m_are_refused(m):
    for law in NULLS.values():
        with pytest.raises(ParameterError, match="odd or too small"):
            law.log_tail(m, 4)
        with pytest.raises(ParameterError, match="odd or too small"):
            law.true_alpha(m, 4)


def test_the_repr_of_a_null_omits_its_functions():
    for law in (*NULLS.values(), null.models([1, 2])):
        assert repr(law).startswith(
            f"Null(name='{law.name}', valid_for_balanced={law.valid_for_balanced}, "
        )
        assert "lambda" not in repr(law)
        assert "0x" not in repr(law)


@pytest.mark.parametrize(
    ("answers", "decoded"),
    [([1, 2, 3], [0, 0, 1]), ([3, 1, 2, 5, 4], [0, 0, 0, 1, 1]), ([7], [0]), ([2, 1], [1, 0])],
)
def test_the_middle_of_an_odd_number_of_answers_decodes_to_zero(answers, decoded):
    assert decode(answers).tolist() == [bool(bit) for bit in decoded]


@pytest.mark.parametrize("power", [0.0, 1.0, -0.5, 1.5, math.nan])
def test_a_power_to_reach_lies_strictly_between_0_and_1(power):
    with pytest.raises(ParameterError, match="expected a probability inside"):
        null.smallest_m(1e-6, 1.0, power)


def test_the_largest_m_is_tried_and_a_power_that_is_reached_exactly_is_reached(monkeypatch):
    reached = null.power(24, NULLS["exact"].threshold(24, 1e-6), 0.875)
    monkeypatch.setattr(null, "LARGEST_M", 24)
    assert null.smallest_m(1e-6, 0.875, reached) == 24
    with pytest.raises(ParameterError, match="no m up to 24"):
        null.smallest_m(1e-6, 0.875, math.nextafter(reached, 1))
    monkeypatch.setattr(null, "LARGEST_M", 23)
    with pytest.raises(ParameterError, match="no m up to 23"):
        null.smallest_m(1e-6, 0.875, reached)


def test_every_even_m_from_8_to_4096_is_tried():
    tried = []

    def never(m, alpha):
        tried.append(m)
        return m + 1

    law = null.Null("never", True, "no count suffices", never, lambda m, t: 0.0)
    with pytest.raises(ParameterError, match=r"no m up to 4096 reaches power 0\.99 at alpha"):
        null.smallest_m(1e-6, 1.0, null=law)
    assert tried == [*range(8, 4097, 2)]


def test_which_nulls_keep_their_level_under_a_balanced_key():
    laws = {**NULLS, "models": null.models([1]), "decoys": null.decoys([1])}
    assert {name: law.valid_for_balanced for name, law in laws.items()} == {
        "exact": True,
        "binomial": False,
        "hoeffding": True,
        "paper": False,
        "models": True,
        "decoys": True,
    }
    assert all(law.name == name for name, law in laws.items())


def test_a_null_claims_no_more_than_certainty():
    law = null.Null("odd", True, "claims too much", lambda m, alpha: 4, lambda m, t: 0.5)
    assert law.log_tail(8, 4) == 0.0


def test_a_level_near_1_leaves_only_the_least_count():
    """Of 256 keys of eight fair bits all but one match at least once."""
    assert NULLS["binomial"].threshold(8, 255 / 256) == 1
    assert NULLS["binomial"].threshold(8, 0.996) == 2
    assert NULLS["binomial"].threshold(8, 0.9999) == 1


def test_all_matches_may_be_what_an_empirical_null_asks_for():
    assert null.models([7] * 39).threshold(8, 1 / 40) == 8
    assert null.models([6] * 39).threshold(8, 1 / 40) == 7


def test_the_tail_of_no_matches_is_certain():
    for law in NULLS.values():
        assert law.log_tail(8, -1) == (0.0 if law.name != "paper" else law.log_tail(8, 17))
    for name in ("exact", "binomial", "hoeffding"):
        assert NULLS[name].log_tail(8, 0) == 0.0
    assert NULLS["binomial"].log_tail(8, 1) == pytest.approx(math.log(255 / 256))


@pytest.mark.parametrize("accuracy", [-0.1, 1.1, math.nan])
def test_an_accuracy_is_a_probability(accuracy):
    for call in (lambda: null.power(8, 4, accuracy), lambda: null.smallest_m(1e-6, accuracy)):
        with pytest.raises(ParameterError, match=r"accuracy is .*, expected a probability"):
            call()
