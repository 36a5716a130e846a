"""Evidence in a vector of answers: matches, rank sum and their combined p-value."""

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

GRINDING_BITS = 80
"""Evidence in bits that no search for a fitting secret can reach: it would take about 2^80 trials."""
STATISTICS = ("matches", "rank", "combined")
"""The statistics that a test may declare."""


@dataclass(frozen=True)
class Evidence:
    """The evidence that m answers give for a key.

    Attributes:
        statistic: Name of the statistic that `log_p` belongs to.
        log_p: Natural logarithm of the p-value, rounded upwards.
        m: Number of carriers.
        matches: Number of decoded bits that equal the bit of the key (the statistic T).
        ones: Number of answers decoded as 1.
        rank_sum: Twice the sum of the midranks on carriers whose bit is 1 (the statistic U).
        exact: False if a Chernoff bound is used instead of the exact law of the rank sum.
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
        """Return the evidence in bits, see `evidence_bits`.

        Args:
            tests: Number of tests, the reported one included.
        """
        return evidence_bits(self.log_p, tests)


def evidence_of(
    answers: ArrayLike, bits: ArrayLike, statistic: str = "combined", threshold: float | None = None
) -> Evidence:
    """Compute the p-value of the answers under the declared statistic.

    Guarantee: if the key is uniform among balanced keys given the answers, Pr[p <= u] <= u for every u.
    Void if the threshold, the reading or the statistic was chosen after seeing bits, if the secret was
    chosen after seeing answers, or if the component that reads the answers was trained with the bits.

    Args:
        answers: One number for each carrier.
        bits: The key, one bit for each carrier, half of them 1.
        statistic: One of `STATISTICS`, declared beforehand.
        threshold: Answers of at least this value decode to 1; by default answers above their median do.

    Returns:
        The evidence, with all counts.

    Raises:
        SuspectError: If the answers are empty, nested or NaN.
        ParameterError: If the key is not balanced, the sizes differ, or the statistic is unknown.
    """
    r, w = as_answers(answers), as_bits(bits)
    _check_pair(r, w, statistic)
    decoded = decode(r, threshold)
    t, ones = matches(decoded, w), int(decoded.sum())
    by_t = log_p_matches(t, w.size, ones) if statistic != "rank" else 0.0
    by_u = log_p_rank(r, w) if statistic != "matches" else RankTail(0.0, True)
    p = {"matches": by_t, "rank": by_u.log_p, "combined": log_p_combined(by_t, by_u.log_p)}
    return Evidence(statistic, p[statistic], w.size, t, ones, rank_sum(r, w), by_u.exact)


def decode(answers: ArrayLike, threshold: float | None = None) -> NDArray[np.bool_]:
    """Decode answers into bits.

    Args:
        answers: One number for each carrier.
        threshold: Answers of at least this value decode to 1; by default answers above their median do.

    Returns:
        One boolean for each carrier.

    Raises:
        SuspectError: If the answers are empty, nested or NaN.
    """
    r = as_answers(answers)
    if threshold is not None:
        return r >= threshold
    # An answer above the lower middle value is above the median. This avoids the rounding (or inf - inf)
    # of averaging the two middle values.
    middle = float(np.sort(r)[(r.size - 1) // 2])
    return r > middle


def matches(decoded: ArrayLike, bits: ArrayLike) -> int:
    """Count the decoded bits that equal the bits of the key: the statistic T.

    Args:
        decoded: The decoded bits.
        bits: The key.

    Returns:
        The number of positions at which both agree.

    Raises:
        ParameterError: If either is not a vector of zeros and ones.
    """
    return int(np.count_nonzero(as_bits(decoded) == as_bits(bits)))


def empirical_p(observed: float, null_values: ArrayLike) -> float:
    """Compute the empirical p-value (1 + #{null >= observed}) / (n + 1).

    Guarantee: valid if the observed value is exchangeable with the null values under H0; never below
    1/(n+1). Void if the members of the null were selected after looking at them. The quotient is rounded
    upwards: it is the least double that is not smaller.

    Args:
        observed: The value of the suspect.
        null_values: The n values of the null. NaN counts as larger than any number.

    Returns:
        The p-value.
    """
    values = np.asarray(null_values, dtype=np.float64)
    over, under = 1 + int(np.count_nonzero(~(values < observed))), values.size + 1
    p = over / under
    n, d = p.as_integer_ratio()
    return p if n * under >= over * d else math.nextafter(p, 1.0)


def _check_pair(r: NDArray[np.float64], w: NDArray[np.bool_], statistic: str) -> None:
    """Raise `ParameterError` unless answers, key and statistic fit together."""
    check_m(w.size)
    if r.size != w.size:
        raise ParameterError(f"got {r.size} answers for {w.size} bits", "pass one answer per carrier")
    if 2 * int(w.sum()) != w.size:
        advice = "draw a balanced key: a constant answer matches most bits of an unbalanced one"
        raise ParameterError(f"the key has {int(w.sum())} ones among {w.size} bits", advice)
    if statistic not in STATISTICS:
        raise ParameterError(f"unknown statistic {statistic!r}", f"choose one of {', '.join(STATISTICS)}")
