"""How likely an innocent suspect's answers are: the law of T, evidence, thresholds, power.

Under H0 the answers are fixed and the key is a uniformly random balanced vector (m/2 ones among
m bits). Nothing else is assumed: not of models, nor of carriers, nor of mixing. Logarithms are
natural; counts of keys are exact integers as long as that is affordable.

Every p-value is an upper bound in floating point too, and evidence in bits a lower bound. Each function
states how many roundings it takes, and pays for more than that (`ranks.up`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, islice, takewhile

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc

from invgnn.errors import ParameterError
from invgnn.ranks import ROUNDING, RankTail, as_answers, as_bits, log_p_rank, log_ratio, rank_sum, up

STATISTICS = ("matches", "rank", "combined")
SMALLEST_M, LARGEST_M = 8, 4096  # the range `smallest_m` searches; thresholds know no upper end
RHO0 = 7.6e-4  # the paper's carrier correlation; no guarantee rests on it
LEAST_DIMENSION = 16  # of a direction: with fewer, a close direction is too easily met by chance
CHANNEL_BITS = 112  # the most that a direction can be worth, see `log_p_chord`


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
    t: int
    ones: int
    rank_sum: int
    exact: bool

    @property
    def p(self) -> float:
        """The p-value, rounded upwards."""
        return p_of(self.log_p)

    def bits(self, tried: int = 1) -> float:
        """Return the evidence in bits, see `evidence_bits`."""
        return evidence_bits(self.log_p, tried)


def log_p(
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


def log_p_matches(t: int, m: int, ones: int, key_ones: int | None = None) -> float:
    """Compute log Pr[T >= t] for a suspect that says 1 on `ones` of m carriers.

    Guarantee: exact for every `ones`, at any depth, if the key is uniform among those with `key_ones` ones
    given what was said. Keys are counted in integers. The logarithm is rounded upwards, by at most
    2^-49 (1 + |log p|): below 1e-12 up to m = 512.

    Args:
        t: Number of bits said right.
        m: Number of carriers.
        ones: Number of ones said.
        key_ones: Number of ones of the key; m/2 by default.

    Returns:
        The log p-value; -inf where no key gives so many matches.

    Raises:
        ParameterError: If more ones were said than there are carriers, or fewer than none.

    """
    n, a = m // 2 if key_ones is None else int(key_ones), int(ones)
    if not 0 <= a <= m:
        raise ParameterError(f"{a} ones said on {m} carriers", "count the ones of `decode`")
    low, high = max(0, n + a - m), min(n, a)
    # T = 2X + m - n - a, where X counts the ones said on 1-carriers.
    x = max(low, -((m - n - a - int(t)) // 2))
    tail = sum(islice(_overlaps(m, n, a), max(0, high - x + 1)))
    return log_ratio(tail, math.comb(m, a))


def log_p_combined(log_p_t: float, log_p_u: float) -> float:
    """Combine two p-values of the same data: log min(1, 2 min(p_T, p_U)).

    Guarantee: a p-value again, whatever the dependence of the two. The doubled one takes two roundings,
    of log 2 and of the sum; eight are paid.

    Args:
        log_p_t: Natural logarithm of one p-value.
        log_p_u: Natural logarithm of the other.

    Returns:
        The log p-value of both together.

    """
    least = min(log_p_t, log_p_u)
    return up(math.log(2.0) + least, ROUNDING * (1 + abs(least)))


def log_p_chord(chord: float, dimension: int) -> float:
    """Compute log Pr[|u - f| <= chord] for u uniform on the unit sphere and f any fixed unit vector.

    With x = (chord/2)^2 = (1 - cosine)/2 the law is the regularised incomplete beta function I_x(a, a),
    a = (dimension - 1)/2. The chord does not cancel where the vectors are close; the cosine does.

    Guarantee: an upper bound on that probability plus 2^-112 (`CHANNEL_BITS`), if `chord` is an upper bound
    on the distance. What is added absorbs the chance, of at most 2^-112, that the derivation of the
    direction is not what the law assumes. So no direction is ever worth more than 112 bits. The logarithm
    is above that of the exact law plus 2^-112 by less than 1e-10 up to dimension 4096.

    Args:
        chord: Euclidean distance of the two unit vectors, from 0 (same direction) to 2 (opposite), rounded
            upwards by the caller. More than 2 counts as 2.
        dimension: Dimension of the space, at least `LEAST_DIMENSION`.

    Returns:
        The log p-value, from -112 log 2 to 0.

    Raises:
        ParameterError: If the chord is NaN or negative, or the dimension too small.

    """
    if not chord >= 0.0:
        raise ParameterError(
            f"the chord is {chord}, expected a distance from 0 to 2",
            "pass the distance of two unit vectors",
        )
    if dimension < LEAST_DIMENSION:
        raise ParameterError(
            f"the dimension is {dimension}, expected at least {LEAST_DIMENSION}",
            f"draw the direction among {LEAST_DIMENSION} features or more",
        )
    # Rounded up. Chords below 2^-100 count as 2^-100: larger, and far below the 2^-112 that is added.
    half = min(1.0, max(chord, 2.0**-100) / 2)
    x = math.nextafter(half * half, 2.0)
    if x >= 1.0:
        return 0.0
    value, error = _log_cap(min(x, 1.0 - x), int(dimension))  # 1 - x is exact from x = 1/2 on
    if x <= 0.5:
        return log_p_plus(up(value, error), 2.0**-CHANNEL_BITS)
    rest = math.exp(value - error) * (1 - ROUNDING)  # a lower bound on the opposite cap
    return log_p_plus(up(math.log1p(-rest), ROUNDING), 2.0**-CHANNEL_BITS)


def log_p_plus(log_p: float, chance: float) -> float:
    """Compute log min(1, p + chance): what a p-value is worth if its law may fail with some probability.

    Guarantee: a p-value again, if p is one except with probability `chance`. The exponential is rounded
    upwards; the sum takes one rounding and the logarithm two; eight are paid.

    Args:
        log_p: Natural logarithm of the p-value.
        chance: An upper bound on the probability that its law fails.

    Returns:
        The log p-value of what is left.

    Raises:
        ParameterError: If `chance` is negative or NaN.

    """
    if not chance >= 0.0:
        raise ParameterError(f"the chance is {chance}", "give a probability between 0 and 1")
    if not chance:
        return min(0.0, log_p)
    value = math.log(p_of(log_p) + chance)
    return up(value, ROUNDING * (1 + abs(value)))


def log_p_times(log_p: float, tests: int) -> float:
    """Compute log min(1, tests * p): the smallest of several p-values, all of them paid for.

    Guarantee: a p-value again, whatever the dependence among the tests, if `tests` counts all of them and
    is fixed before the bits are known. The logarithm and the sum take three roundings; eight are paid.

    Args:
        log_p: Natural logarithm of the smallest p-value.
        tests: How many tests were made, at least 1.

    Returns:
        The log p-value of all tests together.

    """
    return log_p if tests == 1 else up(log_p + math.log(tests), ROUNDING * (1 + abs(log_p)))


def log_p_channels(log_ps: Sequence[float]) -> float:
    """Combine independent channels by Fisher's product of all p-values.

    With k channels and x = -sum(log p) it is log of exp(-x) (1 + x + ... + x^(k-1)/(k-1)!).

    Guarantee: a p-value again if the channels are independent under H0 and were all declared beforehand.
    Rounding: x takes k - 1 roundings, and the logarithm changes no faster than x. The last term takes 2k,
    the sum of the terms k. The two logarithms, their sum and the difference take six of at most x.
    Together they err by at most 4 (k + 1) 2^-53 (1 + x); twice that is paid.

    Args:
        log_ps: Natural logarithms of the p-values. Above 0 or NaN counts as 0.

    Returns:
        The log p-value of all together; -inf only where one of them is.

    """
    if -math.inf in log_ps:
        return -math.inf
    x = -sum(min(0.0, each) for each in log_ps)
    term, total, halvings = 1.0, 1.0, 0
    for k in range(1, len(log_ps)):
        term *= x / k
        total += term
        if total > 2.0**500:  # exact powers of two, so that nothing overflows
            term, total, halvings = term * 2.0**-500, total * 2.0**-500, halvings + 500
    value = math.log(total) + halvings * math.log(2.0) - x
    return up(value, ROUNDING * (len(log_ps) + 1) * (1 + x))


def p_of(log_p: float) -> float:
    """Turn the logarithm of a p-value into the p-value, rounded upwards.

    Guarantee: at least exp(log_p). The exponential takes two roundings, or one unit of the least double;
    eight roundings and two such units are paid. So only an impossible event has p = 0.

    Args:
        log_p: Natural logarithm of the p-value; NaN counts as 0.

    Returns:
        The p-value, from 0 to 1.

    """
    if log_p == -math.inf:
        return 0.0
    return min(1.0, math.exp(min(0.0, log_p)) * (1 + ROUNDING) + 2 * math.ulp(0.0))


def log10_of(log_p: float) -> float:
    """Convert a natural log p to base 10, rounded upwards; two roundings are made, eight paid."""
    return up(log_p / math.log(10.0), ROUNDING * abs(log_p))


def log_level(alpha: float, tried: int = 1) -> float:
    """Compute log(alpha / tried): a log p at or below it is significant.

    The two logarithms and the difference take at most three roundings. Every law pays for more than its own
    (`ROUNDING` is eight), so that these three are covered where a log p meets the level.

    """
    return math.log(alpha) - math.log(tried)


def evidence_bits(log_p: float, tried: int = 1) -> float:
    """Compute -log2 p, less log2 of the number of suspects, readings and layers tried.

    Guarantee: Pr[bits >= b for any of those tried] <= 2^-b, if `tried` counts all of them. The bits are
    rounded downwards: each of the two logarithms takes less than four roundings, and the differences two;
    eight of both are paid.

    Args:
        log_p: Natural logarithm of the p-value.
        tried: Number of attempts, the reported one included.

    Returns:
        The bits, at least 0; infinite only where p is 0.

    Raises:
        ParameterError: If `tried` is less than 1.

    """
    if tried < 1:
        raise ParameterError(f"tried is {tried}", "count at least the one attempt you report")
    if log_p == -math.inf:
        return math.inf
    bits, paid = -log_p / math.log(2.0), math.log2(tried)
    return max(0.0, math.nextafter(bits - paid - ROUNDING * (abs(bits) + paid), -math.inf))


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


@dataclass(frozen=True)
class Null:
    """A law of T under H0: the threshold it asks for, the tail it claims, and the true one.

    Attributes:
        name: Short name, the key in `NULLS`.
        valid_for_balanced: Whether its threshold keeps the level under a balanced key.
        caveat: What it needs, or what is wrong with it.

    """

    name: str
    valid_for_balanced: bool
    caveat: str
    _threshold: Callable[[int, float], int] = field(repr=False)
    _claim: Callable[[int, int], float] = field(repr=False)

    def tau(self, m: int, alpha: float) -> int:
        """Compute the threshold: T >= tau rejects at level alpha.

        Guarantee: as far as `valid_for_balanced` and `caveat` say. The smallest exact p at m is
        1/C(m, m/2), so a smaller alpha gives m + 1. No rounding makes it too small.

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
        """Compute the log of what this null *claims* Pr[T >= t] to be, rounded upwards.

        Args:
            m: Number of carriers, even and at least 8.
            t: Number of bits said right.

        Returns:
            The logarithm, at most 0.

        Raises:
            ParameterError: If `m` is odd or too small.

        """
        check_m(m)
        return min(0.0, self._claim(int(m), int(t)))

    def true_alpha(self, m: int, tau: int, ones: int | None = None) -> float:
        """Compute the true Pr[T >= tau] for a balanced key and median decoding, whatever the null.

        An odd tau can be passed more often with ties (T is then odd), an even tau above m/2 never.

        Guarantee: the exact probability, rounded upwards.

        Args:
            m: Number of carriers, even and at least 8.
            tau: The threshold.
            ones: Number of ones said; m/2 by default, as without ties.

        Returns:
            The probability.

        Raises:
            ParameterError: If `m` or `ones` is out of range.

        """
        check_m(m)
        return p_of(log_p_matches(tau, m, m // 2 if ones is None else ones))


def hoeffding(rho0: float = RHO0) -> Null:
    """Build the paper's Hoeffding null, corrected to the mean m/2 that T has under H0.

    It claims Pr[T >= t] <= exp(-2 (1 - c) m (t/m - 1/2)^2) for t >= m/2, with c = min(4 rho0, 1/2).

    Args:
        rho0: The paper's correlation of carriers.

    Returns:
        The null.

    """
    c = min(4 * rho0, 0.5)
    return Null(
        "hoeffding",
        True,
        "Its proof needs independent matches. For balanced keys the exact tail was compared and "
        "is below it; `exact` is sharper and assumes less.",
        lambda m, alpha: _ceil(m, 0.5, _deviation(m, alpha, c)),
        lambda m, t: _log_gauss(c, max(0, 2 * t - m), m),
    )


def paper(rho0: float = RHO0) -> Null:
    """Build the null of the paper's literal formula, which is unsound: at m = 64 it accepts 0.3 %.

    It claims Pr[T >= t] <= exp(-2 (1 - c) m (1 - t/m)^2), with c = min(4 rho0, 1/2).

    Args:
        rho0: The paper's correlation of carriers.

    Returns:
        The null.

    """
    c = min(4 * rho0, 0.5)
    return Null(
        "paper",
        False,
        "Unsound: the literal formula puts the mean of T under H0 at m, not at m/2. Far too lax "
        "for small m, needlessly strict for large; for reproduction only.",
        lambda m, alpha: _ceil(m, 1.0, -_deviation(m, alpha, c)),
        lambda m, t: _log_gauss(c, 2 * (m - t), m),
    )


def models(values: ArrayLike) -> Null:
    """Build the empirical null over the match counts of unmarked models.

    Args:
        values: Their match counts.

    Returns:
        The null.

    """
    return _empirical("models", "An innocent suspect must be exchangeable with them", values)


def decoys(values: ArrayLike) -> Null:
    """Build the empirical null over the suspect's match counts with other secrets.

    Args:
        values: The match counts.

    Returns:
        The null.

    """
    return _empirical("decoys", "They must be drawn as the owner's was, and all kept", values)


def power(m: int, tau: int, accuracy: float) -> float:
    """Compute Pr[T >= tau] when each bit is read right, independently, with this probability.

    Guarantee: exact for T ~ Binomial(m, accuracy), to rounding. A planning figure and no p-value: under
    median decoding errors come in pairs (T is even), and neighbouring carriers may fail together.

    Args:
        m: Number of carriers, even and at least 8.
        tau: The threshold.
        accuracy: Probability that a bit is read right.

    Returns:
        The power.

    Raises:
        ParameterError: If `m` or `accuracy` is out of range.

    """
    check_m(m)
    return _binomial_tail(tau, m, accuracy)


def smallest_m(alpha: float, accuracy: float, power: float = 0.99, null: Null | None = None) -> int:
    """Find the first even m >= 8 whose threshold is reached with at least this power.

    The power is not monotone in m, thresholds being integers: slightly larger m may fall short.

    Args:
        alpha: Level, inside (0, 1).
        accuracy: Probability that a bit is read right.
        power: The power to reach, inside (0, 1).
        null: The null that sets the threshold; the exact one by default.

    Returns:
        The number of carriers.

    Raises:
        ParameterError: If a value is out of range, or no m up to `LARGEST_M` reaches the power.

    """
    null = NULLS["exact"] if null is None else null
    if not 0.0 < power < 1.0:
        raise ParameterError(f"power is {power}", "give a probability inside (0, 1)")
    for m in range(SMALLEST_M, LARGEST_M + 1, 2):
        if _binomial_tail(null.tau(m, alpha), m, accuracy) >= power:
            return m
    raise ParameterError(
        f"no m up to {LARGEST_M} reaches power {power} at alpha {alpha} with accuracy {accuracy}",
        "embed more strongly, or allow a larger alpha: near accuracy 1/2 nothing helps",
    )


def check_m(m: int) -> None:
    if m < SMALLEST_M or m % 2:
        advice = f"use an even m of at least {SMALLEST_M}; 128 is usual. Half the bits must be 1"
        raise ParameterError(f"m is {m}: odd or tiny", advice)


def check_alpha(alpha: float) -> None:
    if not 0.0 < alpha < 1.0:
        raise ParameterError(f"alpha is {alpha}", "give a level inside (0, 1); 1e-6 is usual")


def _check_pair(r: NDArray[np.float64], w: NDArray[np.bool_], statistic: str) -> None:
    check_m(w.size)
    if r.size != w.size:
        raise ParameterError(f"{r.size} answers for {w.size} bits", "ask every carrier once")
    if 2 * int(w.sum()) != w.size:
        advice = "a constant answer matches most bits of an unbalanced key; draw a balanced one"
        raise ParameterError(f"the key has {int(w.sum())} ones among {w.size} bits", advice)
    if statistic not in STATISTICS:
        raise ParameterError(f"no statistic {statistic!r}", f"choose one of {STATISTICS}")


def _log_cap(x: float, dimension: int) -> tuple[float, float]:
    """Compute log I_x(a, a), a = (dimension - 1)/2 >= 1, for 0 < x <= 1/2, and a bound on its error.

    I_x(a, a) = (4x(1-x))^a / (4^a a B(a, a)) * (1 + t_1 + t_2 + ...), t_j = t_(j-1) x (2a+j-1)/(a+j).
    With k = floor(a), 4^a a B(a, a) is 2 * 4^k / C(2k, k) if a is whole, else pi (2k+1) C(2k, k) / 4^k.
    All terms are positive. Their ratios fall and are below 1: what follows t_J is at most t_J r/(1 - r).

    Rounding: 4x(1-x) takes two roundings, so its power 2a; its logarithm and the product with a take
    three of the value. The constant is too large by at most 13 of 1 + its value, and two for pi. A term
    takes 3J, the sum of J terms J, and the rest left out is less than one. The logarithm of the sum takes
    two of its value, the sums of logarithms and what the caller subtracts three of all. So 16 of
    everything are enough.
    """
    a, k = (dimension - 1) / 2, (dimension - 1) // 2
    ways, power = math.comb(2 * k, k), 4**k
    constant = log_ratio(ways, 2 * power)
    if dimension % 2 == 0:
        constant = log_ratio(power, (2 * k + 1) * ways) - math.log(math.pi)
    term, total, ratio, j = 1.0, 1.0, 1.0, 0
    while term * ratio > 2.0**-53 * total * (1 - ratio):
        ratio = x * (2 * a + j) / (a + 1 + j)
        term, j = term * ratio, j + 1
        total += term
    body, series = a * math.log(4 * x * (1 - x)), math.log(total)
    return body + constant + series, 2 * ROUNDING * (a + abs(body) + abs(constant) + j + series + 3)


def _overlaps(m: int, n: int, a: int) -> Iterator[int]:
    """C(n, x) C(m-n, a-x), the keys with x ones among the a said, from the largest x down."""
    x = min(n, a)
    ways = math.comb(n, x) * math.comb(m - n, a - x)
    while ways:
        yield ways
        # Exact: the quotient of two successive terms, multiplied out before dividing.
        ways = ways * x * (m - n - a + x) // ((n - x + 1) * (a - x + 1))
        x -= 1


def _passing(ways: Iterator[int], total: int, alpha: float) -> int:
    """How many of the largest values together have probability at most alpha."""
    over, under = alpha.as_integer_ratio()
    limit = over * total // under
    return sum(1 for _ in takewhile(limit.__ge__, accumulate(ways)))


def _tau_exact(m: int, alpha: float) -> int:
    # T = 2X without ties. With ties T >= an even tau > m/2 is only rarer.
    return m + 2 - 2 * _passing(_overlaps(m, m // 2, m // 2), math.comb(m, m // 2), alpha)


def _tau_binomial(m: int, alpha: float) -> int:
    return m + 1 - _passing((math.comb(m, x) for x in range(m, -1, -1)), 2**m, alpha)


def _binomial_tail(t: int, m: int, accuracy: float) -> float:
    if not 0.0 <= accuracy <= 1.0:
        raise ParameterError(f"accuracy is {accuracy}", "give a probability between 0 and 1")
    return float(betainc(t, m - t + 1, accuracy)) if 0 < t <= m else float(t <= 0)


def _deviation(m: int, alpha: float, c: float) -> float:
    return math.sqrt(-math.log(alpha) / (2 * (1 - c) * m))


def _ceil(m: int, mean: float, deviation: float) -> int:
    """Compute ceil(m (mean + deviation)), rounded upwards: less than seven roundings, eight paid."""
    return math.ceil(m * (mean + deviation) + ROUNDING * m * (mean + abs(deviation)))


def _log_gauss(c: float, twice: int, m: int) -> float:
    """Compute -2 (1 - c) m (twice/2m)^2, rounded upwards: three roundings, eight paid."""
    value = -(1 - c) * (twice * twice / (2 * m))
    return up(value, -ROUNDING * value)


def _empirical(name: str, caveat: str, values: ArrayLike) -> Null:
    known = np.array(values, dtype=np.float64)
    p = partial(empirical_p, null_values=known)
    return Null(
        name,
        True,
        f"{caveat}; the smallest honest p is 1/{known.size + 1}.",
        lambda m, alpha: next((t for t in range(m + 1) if p(t) <= alpha), m + 1),
        lambda m, t: up(math.log(p(t)), -ROUNDING * math.log(p(t))),
    )


EXACT = Null(
    "exact",
    True,
    "Needs only that the balanced key is random given the answers, and alpha below 1/2.",
    _tau_exact,
    lambda m, t: log_p_matches(t, m, m // 2),
)
BINOMIAL = Null(
    "binomial",
    False,
    "For independent fair bits only: under a balanced key T spreads wider than this law says.",
    _tau_binomial,
    lambda m, t: log_ratio(sum(math.comb(m, x) for x in range(max(t, 0), m + 1)), 2**m),
)
NULLS: Mapping[str, Null] = {n.name: n for n in (EXACT, BINOMIAL, hoeffding(), paper())}
