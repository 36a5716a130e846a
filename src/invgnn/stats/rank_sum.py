"""The permutation law of the rank sum, and a bound for cases in which the exact law is too expensive.

The answers are fixed, with their ties. The key is uniform among the keys with the same number of ones.
Every p-value is an upper bound in floating point too: a bound on the rounding error is added (`up`).
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize
from scipy.special import expit

from invgnn.errors import ParameterError, SuspectError

EXACT_RANK_UP_TO = 512
"""Largest m for which the exact law of the rank sum is computed."""
WHOLE_UP_TO = 128
"""Up to this many answers, subsets are counted in one table; above, those of two halves are combined."""

ROUNDING = 2.0**-50
"""Relative error of eight roundings: each errs by at most 2^-53 of its result.

A logarithm or an exponential counts as two (one unit in the last place).
"""

Row = tuple[int, NDArray[np.float64]]


class RankTail(NamedTuple):
    """The log p-value of a rank sum.

    Attributes:
        log_p: Natural logarithm of the p-value, rounded upwards.
        exact: Whether it is the permutation law (true) or a Chernoff bound on it (false).
    """

    log_p: float
    exact: bool


def up(value: float, error: float) -> float:
    """Round the logarithm of a probability upwards.

    Args:
        value: The logarithm as computed.
        error: A bound on its error, of either sign.

    Returns:
        The least double above `value + error`, but at most 0. NaN gives 0, the probability 1. An impossible
            event (-inf) stays impossible.
    """
    if value == -math.inf:
        return value
    return min(0.0, math.nextafter(value + error, math.inf))


def log_ratio(count: int, total: int) -> float:
    """Compute log(count / total) of exact integers, rounded upwards.

    Guarantee: at least the true logarithm, and above it by at most 2^-49 (1 + |log|). A power of two keeps
    the quotient a normal double. The quotient is correctly rounded (2^-53), its logarithm errs by 2^-52 of
    itself, the product with log 2 takes two roundings and the difference one. Together they err by at most
    4 * 2^-53 (1 + |log|); the bound allows for twice that.

    Args:
        count: Number of favourable cases, at least 0.
        total: Number of all cases, at least `count` and 1.

    Returns:
        The logarithm; -inf only if no case is favourable.
    """
    if not count:
        return -math.inf
    shift = max(0, total.bit_length() - count.bit_length()) // 512 * 512
    value = math.log((count << shift) / total) - shift * math.log(2.0)
    return up(value, ROUNDING * (1 + abs(value)))


def rank_sum(answers: ArrayLike, bits: ArrayLike) -> int:
    """Compute twice the sum of the midranks of the answers on carriers whose bit is 1.

    Args:
        answers: One number for each carrier.
        bits: The key, one bit for each carrier.

    Returns:
        An integer, because a midrank is a multiple of 1/2.
    """
    return int(_doubled_midranks(as_answers(answers))[as_bits(bits)].sum())


def log_p_rank(answers: ArrayLike, bits: ArrayLike) -> RankTail:
    """Compute log Pr[rank sum >= the observed one], ties included.

    Guarantee: for m <= 512 the exact permutation law given the answers, rounded upwards by less than 1e-9;
    above, an upper bound (`exact` false), valid and only less sharp. The condition is that of
    `laws.log_p_matches`.

    Args:
        answers: One number for each carrier; infinities are allowed.
        bits: The key, one bit for each carrier.

    Returns:
        The log p-value, and whether it is the exact law or a bound.

    Raises:
        SuspectError: If the answers are empty, nested or NaN.
        ParameterError: If the bits are not a vector of zeros and ones.
    """
    ranks, w = _doubled_midranks(as_answers(answers)), as_bits(bits)
    n, s = int(w.sum()), int(ranks[w].sum())
    if w.size > EXACT_RANK_UP_TO:
        return RankTail(log_rank_bound(ranks, n, s), False)
    tail = _count_tail(np.sort(ranks).tolist(), n, s)
    return RankTail(log_ratio(tail, math.comb(w.size, n)), True)


def log_rank_bound(weights: ArrayLike, n: int, s: float) -> float:
    """Compute a Chernoff bound on log Pr[sum of n weights drawn without replacement >= s].

    Guarantee: an upper bound at every (shift a, slope b >= 0), so a poor optimum costs sharpness and never
    validity. With z_i = a + b w_i, and A the set where z_i > 0, it is

        sum_i log(1 + exp(z_i)) - a n - b s - log C(m, n)
        = a (|A| - n) + b (sum_A w_i - s) + sum_i log(1 + exp(-|z_i|)) - log C(m, n).

    Rounding: the large terms that cancel are the first two. They are computed in fractions and rounded
    once. z_i errs by at most 2^-53 (|a| + 2 b |w_i|), of which log(1 + exp(-|z_i|)) passes on the share
    1/(1 + exp |z_i|); numpy's exp and log1p err by 8 * 2^-53 each, log C by five, the sum by one. Fewer
    than 18 roundings of each term are needed and the bound allows for 32: for ranks, less than 1e-9 in
    total up to m = 4096.

    Args:
        weights: The m weights.
        n: Number of weights drawn.
        s: The sum to reach.

    Returns:
        The bound, at most 0; 0 if no bound can be computed.
    """
    w = np.asarray(weights, dtype=np.float64)
    centre, spread = float(w.mean()), float(w.std())
    if not (0.0 < spread < math.inf and math.isfinite(s)):
        return 0.0
    u, goal = (w - centre) / spread, (s - n * centre) / spread

    def bound(at: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        """Return the bound at (shift, slope) for standardised weights, and its gradient."""
        z = at[0] + at[1] * u
        value = float(np.logaddexp(0.0, z).sum() - at[0] * n - at[1] * goal)
        return value, np.array([expit(z).sum() - n, expit(z) @ u - goal])

    region = [(None, None), (0, None)]
    best = minimize(bound, np.zeros(2), jac=True, method="L-BFGS-B", bounds=region)
    slope = max(0.0, float(best.x[1])) / spread
    shift = float(best.x[0]) - slope * centre
    size = abs(shift) + slope * float(np.abs(w).max())
    if not size <= 2.0**30:  # every slope gives a valid bound; with this one z_i errs by less than 2^-22
        shift, slope = shift * (2.0**30 / size), slope * (2.0**30 / size)
    if not (math.isfinite(shift) and math.isfinite(slope)):
        return 0.0
    z = shift + slope * w
    over = sum(map(Fraction, w[z > 0].tolist())) - Fraction(s if isinstance(s, int) else float(s))
    cancelled = float(Fraction(shift) * (int((z > 0).sum()) - n) + Fraction(slope) * over)
    rest, keys = np.log1p(np.exp(-np.abs(z))).tolist(), math.log(math.comb(w.size, n))
    passed = float(expit(-np.abs(z)) @ (abs(shift) + slope * np.abs(w)))
    terms = abs(cancelled) + sum(rest) + keys + passed
    return up(math.fsum((cancelled, *rest, -keys)), 4 * ROUNDING * terms)


def as_answers(answers: ArrayLike) -> NDArray[np.float64]:
    """Check answers and return them as a vector of doubles.

    Args:
        answers: One number for each carrier.

    Returns:
        The vector.

    Raises:
        SuspectError: If the answers are empty, nested or NaN.
    """
    r = np.asarray(answers, dtype=np.float64)
    if r.ndim != 1 or not r.size or np.isnan(r).any():
        advice = "pass one number per carrier; NaN has no rank"
        raise SuspectError(f"answers of shape {r.shape} are empty, nested or NaN", advice)
    return r


def as_bits(bits: ArrayLike) -> NDArray[np.bool_]:
    """Check bits and return them as a vector of booleans.

    Args:
        bits: One zero or one for each carrier.

    Returns:
        The vector.

    Raises:
        ParameterError: If this is not a vector of zeros and ones.
    """
    w = np.asarray(bits)
    if w.ndim != 1 or not ((w == 0) | (w == 1)).all():
        raise ParameterError("bits must be a vector of zeros and ones", "pass the mark's own bits")
    return w.astype(np.bool_)


def _doubled_midranks(r: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return twice the midrank of every answer."""
    ordered = np.sort(r)
    return np.searchsorted(ordered, r, "left") + np.searchsorted(ordered, r, "right") + 1


@lru_cache(maxsize=2)  # answers without ties all share one table
def _subsets(weights: tuple[int, ...]) -> tuple[Row, ...]:
    """Count subsets of ascending weights by their sum.

    Returns for each size k the least sum of k weights, and the number of subsets with each sum from there
    on.
    """
    low = (0, *accumulate(weights))
    high = (0, *accumulate(reversed(weights)))
    size, half = len(weights), len(weights) // 2
    rows = [np.zeros(b - a + 1) for a, b in zip(low[: half + 1], high, strict=False)]
    rows[0][0] = 1.0
    for i, weight in enumerate(weights):
        for k in range(min(i + 1, half), 0, -1):
            start = weight - weights[k - 1]
            # Sums of k - 1 of the first i weights: from the least to the largest.
            width = low[i] - low[i - k + 1] - low[k - 1] + 1
            rows[k][start : start + width] += rows[k - 1][:width]
    # The complement of k weights has size - k weights: the same counts, with the sums in reverse order.
    rows += [rows[size - k][::-1].copy() for k in range(half + 1, size + 1)]
    return tuple(zip(low, rows, strict=True))


@lru_cache(maxsize=1)
def _tails(weights: tuple[int, ...]) -> tuple[Row, ...]:
    """Return for each size k the least sum of k weights, and how many subsets have at least each sum."""
    rows = _subsets(weights)
    return tuple((low, np.append(np.cumsum(row[::-1])[::-1], 0.0)) for low, row in rows)


def _count_tail(ranks: list[int], n: int, s: int) -> int:
    """Return an upper bound on the number of n-subsets of the ascending ranks that sum to at least s.

    Rounding: the doubles that count subsets are only added and multiplied, so each rounding errs by 2^-53
    of the count. A count takes one rounding for each weight, one for each entry of the row that is
    cumulated, one for each entry of the row it is multiplied with, one for a product and one for the last
    sum. The true number is at most 1 + rounds * 2^-52 times the computed one. It is an integer, so nothing
    is added while counts are small.
    """
    step = math.gcd(*(rank - ranks[0] for rank in ranks)) or 1
    w = [(rank - ranks[0]) // step for rank in ranks]
    need, half = (s - n * ranks[0]) // step, len(w) // 2 if len(w) > WHOLE_UP_TO else 0
    lower = _subsets(tuple(w[:half]))
    upper = _tails(tuple(x - w[half] for x in w[half:]))
    sizes = range(max(0, n - len(w) + half), min(n, half) + 1)
    count = int(math.fsum(_pairs_reaching(lower[k], upper[n - k], need - (n - k) * w[half]) for k in sizes))
    rounds = len(w) + 2 + sum(max(row.size for _, row in rows) for rows in (lower, upper))
    return count + (count * rounds >> 52)


def _pairs_reaching(lower: Row, upper: Row, need: int) -> float:
    """Count the pairs of subsets, one of a row and one of a tail, that together sum to at least `need`."""
    (low, few), (base, tail) = lower, upper
    index = np.arange(need - low - base, need - low - base - few.size, -1)
    return float(few @ tail.take(index, mode="clip"))
