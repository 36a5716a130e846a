"""The evidence in a vector of answers: matches, rank sum, and their combined p-value."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from invgnn.errors import ParameterError
from invgnn.stats.laws import check_m, evidence_bits, log_p_combined, log_p_matches, p_of
from invgnn.stats.rank_sum import (
    RankTail,
    as_answers,
    as_bits,
    log_p_rank,
    rank_sum,
)

STATISTICS = ("matches", "rank", "combined")


@dataclass(frozen=True)
class Evidence:
    """What m answers say about a key.

    Attributes:
        statistic: Name of the statistic that `log_p` belongs to.
        log_p: Natural logarithm of the p-value, rounded upwards.
        m: Number of carriers.
        t: Number of bits said right.
        ones: Number of ones said.
        rank_sum: Twice the sum of the midranks on 1-carriers.
        exact: False where a Chernoff bound stands in for the exact law.

    """

    statistic: str
    log_p: float
    m: int
    matches: int
    ones: int
    rank_sum: int
    exact: bool

    @property
    def p(self) -> float:
        """The p-value, rounded upwards."""
        return p_of(self.log_p)

    def bits(self, tests: int = 1) -> float:
        """Return the evidence in bits, see `evidence_bits`."""
        return evidence_bits(self.log_p, tests)


def evidence_of(
    answers: ArrayLike, bits: ArrayLike, statistic: str = "combined", threshold: float | None = None
) -> Evidence:
    """Compute the p-value of the answers under the declared statistic, with all its counts.

    Guarantee: if the key is uniform among balanced keys given the answers, Pr[p <= u] <= u for
    every u. Void if the threshold, the reading or the statistic was chosen after seeing bits, if
    the secret was chosen after seeing answers, or if what reads was trained with the bits.

    Args:
        answers: One number for each carrier.
        bits: The key, one bit for each carrier, half of them 1.
        statistic: One of `STATISTICS`, declared beforehand.
        threshold: Answers of at least this say 1; by default answers above their median do.

    Returns:
        The evidence.

    Raises:
        SuspectError: If the answers are empty, nested or NaN.
        ParameterError: If the key is not balanced, the sizes differ, or there is no such statistic.

    """
    r, w = as_answers(answers), as_bits(bits)
    _check_pair(r, w, statistic)
    said = decode(r, threshold)
    t, ones = matches(said, w), int(said.sum())
    by_t = log_p_matches(t, w.size, ones) if statistic != "rank" else 0.0
    by_u = log_p_rank(r, w) if statistic != "matches" else RankTail(0.0, True)
    p = {"matches": by_t, "rank": by_u.log_p, "combined": log_p_combined(by_t, by_u.log_p)}
    return Evidence(statistic, p[statistic], w.size, t, ones, rank_sum(r, w), by_u.exact)


def decode(answers: ArrayLike, threshold: float | None = None) -> NDArray[np.bool_]:
    """Decode answers into the bits said.

    Args:
        answers: One number for each carrier.
        threshold: Answers of at least this say 1; by default answers above their median do.

    Returns:
        One boolean for each carrier.

    Raises:
        SuspectError: If the answers are empty, nested or NaN.

    """
    r = as_answers(answers)
    if threshold is not None:
        return r >= threshold
    # Above the lower middle value is above the median, without the rounding (or inf - inf)
    # of averaging the two middle values.
    middle = float(np.sort(r)[(r.size - 1) // 2])
    return r > middle


def matches(said: ArrayLike, bits: ArrayLike) -> int:
    """Count the bits said right: the statistic T.

    Args:
        said: The bits said.
        bits: The key.

    Returns:
        The number of places where both agree.

    Raises:
        ParameterError: If either is not a vector of zeros and ones.

    """
    return int(np.count_nonzero(as_bits(said) == as_bits(bits)))


def empirical_p(observed: float, null_values: ArrayLike) -> float:
    """Compute (1 + #{null >= observed}) / (n + 1).

    Guarantee: valid if the observed value is exchangeable with the null's under H0; never below
    1/(n+1). Void if the null's members were picked after looking. The quotient is rounded upwards: it is
    the least double that is not smaller.

    Args:
        observed: The value of the suspect.
        null_values: The n values of the null. NaN counts as larger than anything.

    Returns:
        The p-value.

    """
    values = np.asarray(null_values, dtype=np.float64)
    over, under = 1 + int(np.count_nonzero(~(values < observed))), values.size + 1
    p = over / under
    n, d = p.as_integer_ratio()
    return p if n * under >= over * d else math.nextafter(p, 1.0)


def _check_pair(r: NDArray[np.float64], w: NDArray[np.bool_], statistic: str) -> None:
    check_m(w.size)
    if r.size != w.size:
        raise ParameterError(f"{r.size} answers for {w.size} bits", "ask every carrier once")
    if 2 * int(w.sum()) != w.size:
        advice = "a constant answer matches most bits of an unbalanced key; draw a balanced one"
        raise ParameterError(f"the key has {int(w.sum())} ones among {w.size} bits", advice)
    if statistic not in STATISTICS:
        raise ParameterError(f"no statistic {statistic!r}", f"choose one of {STATISTICS}")
