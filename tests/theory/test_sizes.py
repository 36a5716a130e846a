"""Thresholds, sizes and intervals, compared with SciPy and with the numbers in the errata."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from invgnn.errors import ParameterError
from invgnn.stats.null import NULLS, RHO0
from invgnn.theory.budget import eps_err
from invgnn.theory.intervals import bound_share, coverage, mean_interval, t_quantile
from invgnn.theory.sizes import paper_table, sizes, threshold, thresholds

# --- thresholds and their true alpha ------------------------------------------------------------


def by_null(rows):
    return {name: [row for row in rows if row.null == name] for name in NULLS}


def test_thresholds_of_every_null_at_the_papers_sizes():
    taus = {name: [row.threshold for row in rows] for name, rows in by_null(thresholds()).items()}
    assert taus == {
        "exact": [52, 72, 92, 130],
        "binomial": [51, 72, 92, 130],
        "hoeffding": [54, 74, 94, 133],
        "paper": [43, 71, 99, 156],
    }


def test_the_papers_example_follows_the_corrected_formula_and_not_the_literal_one():
    eps = math.sqrt(math.log(1e6) / (2 * (1 - 4 * RHO0) * 128))
    assert round(eps, 4) == 0.2327
    rows = {row.null: row for row in thresholds([128])}
    assert rows["paper"].threshold == math.ceil(128 * (1 - eps)) == 99
    assert rows["hoeffding"].threshold == math.ceil(128 * (0.5 + eps)) == 94
    assert round(rows["hoeffding"].tolerated, 4) == 0.2656  # the number printed in the paper


@pytest.mark.parametrize(
    ("m", "exact", "iid"),
    [
        (64, "1.2e-02", "8e-03"),
        (96, "4.3e-05", "3e-05"),
        (128, "9.1e-08", "5e-08"),
        (192, "1.8e-15", "1e-15"),
    ],
)
def test_the_papers_table_has_another_alpha_than_it_says(m, exact, iid):
    row = next(row for row in paper_table() if row.m == m)
    assert (f"{row.true_alpha:.1e}", f"{row.iid_alpha:.0e}") == (exact, iid)
    assert row.sound == (m >= 128)


def test_the_papers_column_of_tolerated_errors_follows_no_formula():
    printed = {64: 0.358, 96: 0.298, 128: 0.266, 192: 0.222}
    for row in paper_table():
        literal = eps_err(row.m, 1e-6, form="paper")
        corrected = eps_err(row.m, 1e-6)
        assert abs(printed[row.m] - literal) > 0.02
        assert row.m == 128 or abs(printed[row.m] - corrected) > 0.02
        assert row.threshold == math.ceil(row.m * (1 - printed[row.m]))  # these two columns do agree


def test_the_literal_formula_at_64_lets_three_to_four_in_a_thousand_pass():
    row = threshold("paper", 64, NULLS["paper"].threshold(64, 1e-6), 1e-6, NULLS["paper"])
    assert (row.threshold, round(row.true_alpha, 3), round(row.iid_alpha, 3)) == (43, 0.003, 0.004)
    assert not row.sound
    assert not row.checked


def test_ties_make_an_odd_threshold_easier_and_the_row_says_so():
    row = next(row for row in thresholds([64]) if row.null == "binomial")
    assert row.threshold == 51
    assert row.true_alpha < row.alpha < row.worst_alpha
    assert row.worst_alpha == pytest.approx(NULLS["exact"].true_alpha(64, 51, ones=33))
    assert not row.sound


@given(st.integers(4, 50), st.floats(1e-12, 0.4))
def test_rows_carry_scipys_tails_and_valid_nulls_are_sound(half, alpha):
    m = 2 * half
    for row in thresholds([m], alpha):
        x = math.ceil(row.threshold / 2)  # T = 2X
        assert row.true_alpha == pytest.approx(
            stats.hypergeom.sf(x - 1, m, half, half), rel=1e-8, abs=1e-290
        )
        assert row.iid_alpha == pytest.approx(
            stats.binom.sf(row.threshold - 1, m, 0.5), rel=1e-8, abs=1e-290
        )
        said = np.arange(m + 1)
        worst = stats.hypergeom.sf(np.ceil((row.threshold - half + said) / 2) - 1, m, half, said).max()
        assert row.worst_alpha == pytest.approx(worst, rel=1e-8, abs=1e-290)
        assert row.sound or not NULLS[row.null].valid_for_balanced


# --- the smallest m -----------------------------------------------------------------------------


def test_the_smallest_m_at_each_accuracy():
    found = {(row.threshold.null, row.accuracy): row.threshold.m for row in sizes()}
    assert {name: [found[name, a] for a in (0.8, 0.9, 0.95)] for name in NULLS} == SMALLEST


SMALLEST = {
    "exact": [132, 64, 46],
    "binomial": [126, 62, 44],
    "hoeffding": [144, 74, 52],
    "paper": [8, 8, 8],  # its threshold there is 1 match of 8
}


def test_sizes_reach_their_power_and_unsound_ones_say_so():
    for row in sizes(alpha=1e-4, power=0.9):
        at = row.threshold
        assert row.power == pytest.approx(stats.binom.sf(at.threshold - 1, at.m, row.accuracy))
        assert row.power >= 0.9
        assert at.sound == NULLS[at.null].valid_for_balanced


@given(st.sampled_from(["exact", "binomial", "hoeffding"]), st.data())
def test_better_reading_needs_no_more_carriers(name, data):
    low, high = sorted(data.draw(st.tuples(*[st.floats(0.75, 0.99)] * 2)))
    worse, better = sizes(1e-3, (low, high), 0.9, [NULLS[name]])
    assert better.threshold.m <= worse.threshold.m


# --- intervals ----------------------------------------------------------------------------------


def test_three_seeds_with_the_normal_quantile_cover_81_percent():
    assert round(coverage(1.96, 3), 2) == 0.81
    assert round(t_quantile(0.95, 3), 2) == 4.30
    assert coverage(t_quantile(0.95, 3), 3) == pytest.approx(0.95)


def test_the_papers_interval_covers_as_often_as_it_says_in_simulation():
    runs = np.random.default_rng(0).normal(size=(100_000, 3))
    half = 1.96 * runs.std(axis=1, ddof=1) / math.sqrt(3)
    hits = int((np.abs(runs.mean(axis=1)) <= half).sum())
    assert stats.binomtest(hits, len(runs), coverage(1.96, 3)).pvalue > 1e-3
    assert stats.binomtest(hits, len(runs), 0.95).pvalue < 1e-300


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=9), st.sampled_from([0.5, 0.9, 0.95, 0.999]))
def test_mean_intervals_are_scipys(values, level):
    student, paper = (mean_interval(values, level, method) for method in ("student", "paper"))
    n, se = len(values), np.std(values, ddof=1) / math.sqrt(len(values))
    assert student.half == pytest.approx(se * stats.t.ppf((1 + level) / 2, n - 1))
    assert paper.half == pytest.approx(se * stats.norm.ppf((1 + level) / 2))
    assert student.covers == pytest.approx(level)
    assert paper.covers < level
    assert student.mean == paper.mean == pytest.approx(np.mean(values))


def test_an_interval_reads_well():
    assert str(mean_interval([114, 115, 119], method="paper")) == "116 ± 3 (81%, n=3)"


@given(st.integers(1, 400), st.floats(1e-9, 0.5), st.data())
def test_share_bounds_are_scipys_clopper_pearson(n, delta, data):
    ones = data.draw(st.integers(0, n))
    share = bound_share(ones, n, delta)
    for side, bound in (("greater", share.lower), ("less", share.upper)):
        interval = stats.binomtest(ones, n, alternative=side).proportion_ci(1 - delta, "exact")
        expected = interval.low if side == "greater" else interval.high
        assert bound == pytest.approx(expected, rel=1e-7, abs=1e-12)


@given(st.integers(1, 400), st.floats(0.001, 0.49), st.data())
def test_the_papers_share_is_the_flat_posterior_and_lies_inside(n, delta, data):
    ones = data.draw(st.integers(0, n))
    share, exact = bound_share(ones, n, delta, "paper"), bound_share(ones, n, delta)
    posterior = stats.beta(1 + ones, 1 + n - ones)
    assert posterior.cdf(share.lower) == pytest.approx(delta, rel=1e-6)
    assert posterior.sf(share.upper) == pytest.approx(delta, rel=1e-6)
    assert exact.lower <= share.lower <= share.upper <= exact.upper
    assert not share.checked


@pytest.mark.parametrize(
    "call",
    [
        lambda: bound_share(3, 2),
        lambda: bound_share(0, 0),
        lambda: bound_share(1, 2, 0.0),
        lambda: mean_interval([1.0]),
        lambda: mean_interval([1.0, math.nan]),
        lambda: mean_interval([1.0, 2.0], level=1.0),
        lambda: coverage(1.96, 1),
    ],
)
def test_senseless_requests_are_refused(call):
    with pytest.raises(ParameterError) as caught:
        call()
    assert caught.value.advice
