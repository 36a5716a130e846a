"""Null distributions of the number of matches T: thresholds, p-values and power.

Under H0 the answers are fixed and the key is a uniformly random balanced vector (m/2 ones among m bits).
Nothing else is assumed about models, carriers or mixing. Logarithms are natural; counts of keys are exact
integers as long as that is affordable.

Every p-value is an upper bound in floating point too, and evidence in bits is a lower bound. Each function
states how many roundings it makes, and its bound allows for more than that (`rank_sum.up`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, takewhile

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betainc

from invgnn.errors import ParameterError
from invgnn.stats.evidence import empirical_p
from invgnn.stats.laws import LARGEST_M, SMALLEST_M, _overlaps, check_alpha, check_m, log_p_matches, p_of
from invgnn.stats.rank_sum import (
    ROUNDING,
    log_ratio,
    up,
)

RHO0 = 7.6e-4
"""The paper's correlation of carriers. No guarantee depends on it."""


@dataclass(frozen=True)
class Null:
    """A law of T under H0, with the threshold and the tail probability that follow from it.

    Attributes:
        name: Short name, the key in `NULLS`.
        valid_for_balanced: Whether its threshold keeps the level under a balanced key.
        caveat: What it requires, or why it is unsound.
    """

    name: str
    valid_for_balanced: bool
    caveat: str
    _threshold: Callable[[int, float], int] = field(repr=False)
    _claim: Callable[[int, int], float] = field(repr=False)

    def threshold(self, m: int, alpha: float) -> int:
        """Compute the threshold: T >= threshold rejects H0 at level alpha.

        Guarantee: to the extent that `valid_for_balanced` and `caveat` state. The smallest exact p at m is
        1/C(m, m/2), so a smaller alpha gives m + 1. No rounding makes the threshold too small.

        Args:
            m: Number of carriers, even and at least 8.
            alpha: Level, inside (0, 1).

        Returns:
            The threshold, from 0 to m + 1; m + 1 if no T suffices.

        Raises:
            ParameterError: If `m` or `alpha` is out of range.
        """
        check_m(m)
        check_alpha(alpha)
        return min(max(self._threshold(int(m), float(alpha)), 0), m + 1)

    def log_tail(self, m: int, t: int) -> float:
        """Compute the logarithm of Pr[T >= t] as this null *claims* it, rounded upwards.

        Args:
            m: Number of carriers, even and at least 8.
            t: Number of matches.

        Returns:
            The logarithm, at most 0.

        Raises:
            ParameterError: If `m` is odd or too small.
        """
        check_m(m)
        return min(0.0, self._claim(int(m), int(t)))

    def true_alpha(self, m: int, threshold: int, ones: int | None = None) -> float:
        """Compute the true Pr[T >= threshold] for a balanced key and median decoding, whatever the null.

        With ties T is odd: an odd threshold may then be reached more often, an even threshold above m/2
        never is.

        Guarantee: the exact probability, rounded upwards.

        Args:
            m: Number of carriers, even and at least 8.
            threshold: The threshold.
            ones: Number of answers decoded as 1; m/2 by default, as without ties.

        Returns:
            The probability.

        Raises:
            ParameterError: If `m` or `ones` is out of range.
        """
        check_m(m)
        return p_of(log_p_matches(threshold, m, m // 2 if ones is None else ones))


def _dependence(rho0: float) -> float:
    """Return the paper's allowance c for dependent carriers."""
    return min(4 * rho0, 0.5)


def hoeffding(rho0: float = RHO0) -> Null:
    """Build the paper's Hoeffding null, corrected to the mean m/2 that T has under H0.

    It claims Pr[T >= t] <= exp(-2 (1 - c) m (t/m - 1/2)^2) for t >= m/2, with c = min(4 rho0, 1/2).

    Args:
        rho0: The paper's correlation of carriers.

    Returns:
        The null.
    """
    c = _dependence(rho0)
    return Null(
        "hoeffding",
        True,
        "Its proof requires independent matches. For balanced keys the exact tail was compared and "
        "is below it; `exact` is sharper and assumes less.",
        lambda m, alpha: _ceil(m, 0.5, _deviation(m, alpha, c)),
        lambda m, t: _log_gauss(c, max(0, 2 * t - m), m),
    )


def paper(rho0: float = RHO0) -> Null:
    """Build the null of the paper's literal formula, which is unsound: at m = 64 it accepts 0.3 %.

    It claims Pr[T >= t] <= exp(-2 (1 - c) m (1 - t/m)^2), with c and rho0 as in `hoeffding`.
    """
    c = _dependence(rho0)
    return Null(
        "paper",
        False,
        "Unsound: the literal formula puts the mean of T under H0 at m, not at m/2. Far too lax "
        "for small m, needlessly strict for large m; for reproduction only.",
        lambda m, alpha: _ceil(m, 1.0, -_deviation(m, alpha, c)),
        lambda m, t: _log_gauss(c, 2 * (m - t), m),
    )


def models(values: ArrayLike) -> Null:
    """Build the empirical null over the match counts of unmarked models.

    Args:
        values: The match counts.

    Returns:
        The null.
    """
    return _empirical("models", "An innocent suspect must be exchangeable with them", values)


def decoys(values: ArrayLike) -> Null:
    """Build the empirical null over the match counts of the suspect with other secrets.

    Args:
        values: The match counts.

    Returns:
        The null.
    """
    return _empirical(
        "decoys", "They must be drawn in the same way as the owner's secret, and all must be kept", values
    )


def power(m: int, threshold: int, accuracy: float) -> float:
    """Compute Pr[T >= threshold] if each bit is decoded correctly with this probability, independently.

    Guarantee: exact for T ~ Binomial(m, accuracy), to rounding. This is a figure for planning and not a
    p-value: under median decoding errors come in pairs (T is even), and neighbouring carriers may fail
    together.

    Args:
        m: Number of carriers, even and at least 8.
        threshold: The threshold.
        accuracy: Probability that a bit is decoded correctly.

    Returns:
        The power.

    Raises:
        ParameterError: If `m` or `accuracy` is out of range.
    """
    check_m(m)
    return _binomial_tail(threshold, m, accuracy)


def smallest_m(alpha: float, accuracy: float, power: float = 0.99, null: Null | None = None) -> int:
    """Find the first even m >= 8 whose threshold is reached with at least this power.

    The power is not monotone in m because thresholds are integers: a slightly larger m may fall short.

    Args:
        alpha: Level, inside (0, 1).
        accuracy: Probability that a bit is decoded correctly.
        power: The power to reach, inside (0, 1).
        null: The null that sets the threshold; the exact one by default.

    Returns:
        The number of carriers.

    Raises:
        ParameterError: If a value is out of range, or no m up to `LARGEST_M` reaches the power.
    """
    null = NULLS["exact"] if null is None else null
    if not 0.0 < power < 1.0:
        raise ParameterError(
            f"power is {power}, expected a probability inside (0, 1)", "use a power such as 0.99"
        )
    for m in range(SMALLEST_M, LARGEST_M + 1, 2):
        if _binomial_tail(null.threshold(m, alpha), m, accuracy) >= power:
            return m
    raise ParameterError(
        f"no m up to {LARGEST_M} reaches power {power} at alpha {alpha} with accuracy {accuracy}",
        "embed more strongly or use a larger alpha; an accuracy close to 1/2 cannot reach any power",
    )


def _passing(ways: Iterator[int], total: int, alpha: float) -> int:
    """Count how many of the largest values together have probability at most alpha."""
    over, under = alpha.as_integer_ratio()
    limit = over * total // under
    return sum(1 for _ in takewhile(limit.__ge__, accumulate(ways)))


def _tau_exact(m: int, alpha: float) -> int:
    # T = 2X without ties. With ties, T >= an even threshold above m/2 is only rarer.
    """Return the threshold of the exact law."""
    return m + 2 - 2 * _passing(_overlaps(m, m // 2, m // 2), math.comb(m, m // 2), alpha)


def _tau_binomial(m: int, alpha: float) -> int:
    """Return the threshold of the binomial law."""
    return m + 1 - _passing((math.comb(m, x) for x in range(m, -1, -1)), 2**m, alpha)


def _binomial_tail(t: int, m: int, accuracy: float) -> float:
    """Compute Pr[Binomial(m, accuracy) >= t]."""
    if not 0.0 <= accuracy <= 1.0:
        raise ParameterError(f"accuracy is {accuracy}, expected a probability", "pass a number from 0 to 1")
    return float(betainc(t, m - t + 1, accuracy)) if 0 < t <= m else float(t <= 0)


def _deviation(m: int, alpha: float, c: float) -> float:
    """Return the deviation of T/m from its mean at which the Hoeffding bound equals alpha."""
    return math.sqrt(-math.log(alpha) / (2 * (1 - c) * m))


def _ceil(m: int, mean: float, deviation: float) -> int:
    """Compute ceil(m (mean + deviation)), rounded upwards: at most six roundings, eight allowed for."""
    return math.ceil(m * (mean + deviation) + ROUNDING * m * (mean + abs(deviation)))


def _log_gauss(c: float, twice: int, m: int) -> float:
    """Compute -2 (1 - c) m (twice/2m)^2, rounded upwards: three roundings, eight allowed for."""
    value = -(1 - c) * (twice * twice / (2 * m))
    return up(value, -ROUNDING * value)


def _empirical(name: str, caveat: str, values: ArrayLike) -> Null:
    """Build the empirical null over some match counts."""
    known = np.array(values, dtype=np.float64)
    p = partial(empirical_p, null_values=known)
    return Null(
        name,
        True,
        f"{caveat}; the smallest possible p is 1/{known.size + 1}.",
        lambda m, alpha: next((t for t in range(m + 1) if p(t) <= alpha), m + 1),
        lambda m, t: up(math.log(p(t)), -ROUNDING * math.log(p(t))),
    )


EXACT = Null(
    "exact",
    True,
    "Requires only that the balanced key is random given the answers, and alpha below 1/2.",
    _tau_exact,
    lambda m, t: log_p_matches(t, m, m // 2),
)
BINOMIAL = Null(
    "binomial",
    False,
    "For independent fair bits only: under a balanced key T has a wider spread than in this law.",
    _tau_binomial,
    lambda m, t: log_ratio(sum(math.comb(m, x) for x in range(max(t, 0), m + 1)), 2**m),
)
NULLS: Mapping[str, Null] = {n.name: n for n in (EXACT, BINOMIAL, hoeffding(), paper())}
