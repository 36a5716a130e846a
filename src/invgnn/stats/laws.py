"""Exact laws of the test statistics, and operations on p-values, in natural logarithms.

Every p-value is an upper bound in floating point too. A docstring states how many roundings a function
makes at most and how many its bound allows for; the difference is the safety margin.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import islice

from invgnn.errors import ParameterError
from invgnn.stats.rank_sum import (
    ROUNDING,
    log_ratio,
    up,
)

LEAST_DIMENSION = 16
"""Smallest dimension of a direction: in fewer dimensions a close direction is too likely by chance."""
CHANNEL_BITS = 112
"""Largest evidence in bits that a direction can give, see `log_p_chord`."""


def log_p_matches(t: int, m: int, ones: int, key_ones: int | None = None) -> float:
    """Compute log Pr[T >= t] for a suspect whose answers decode to 1 on `ones` of m carriers.

    Guarantee: exact for every `ones` and for arbitrarily small p, if the key is uniform among those with
    `key_ones` ones given the answers. Keys are counted in integers. The logarithm is rounded upwards, by at
    most 2^-49 (1 + |log p|): below 1e-12 up to m = 512.

    Args:
        t: Number of matches.
        m: Number of carriers.
        ones: Number of answers decoded as 1.
        key_ones: Number of ones of the key; m/2 by default.

    Returns:
        The log p-value; -inf if no key gives this many matches.

    Raises:
        ParameterError: If `ones` is not a number from 0 to m.
    """
    n, a = m // 2 if key_ones is None else int(key_ones), int(ones)
    if not 0 <= a <= m:
        raise ParameterError(
            f"ones={a} is not a number from 0 to {m}", "count the ones that `decode` returns"
        )
    # T = 2X + m - n - a, where X counts the carriers with bit 1 whose answer decodes to 1.
    x = -((m - n - a - int(t)) // 2)
    tail = sum(islice(_overlaps(m, n, a), max(0, min(n, a) - x + 1)))
    return log_ratio(tail, math.comb(m, a))


def log_p_combined(log_p_t: float, log_p_u: float) -> float:
    """Combine two p-values of the same data: log min(1, 2 min(p_T, p_U)).

    Guarantee: a p-value again, for any dependence between the two. Doubling makes two roundings, of log 2
    and of the sum; the bound allows for eight.

    Args:
        log_p_t: Natural logarithm of the p-value of the matches.
        log_p_u: Natural logarithm of the p-value of the rank sum.

    Returns:
        The log p-value of both together.
    """
    least = min(log_p_t, log_p_u)
    return up(math.log(2.0) + least, ROUNDING * (1 + abs(least)))


def log_p_chord(chord: float, dimension: int) -> float:
    """Compute log Pr[|u - f| <= chord] for u uniform on the unit sphere and f any fixed unit vector.

    With x = (chord/2)^2 = (1 - cosine)/2 the law is the regularised incomplete beta function I_x(a, a), a =
    (dimension - 1)/2. The chord does not suffer from cancellation if the vectors are close; the cosine
    does.

    Guarantee: an upper bound on that probability plus 2^-112 (`CHANNEL_BITS`), if `chord` is an upper bound
    on the distance. The added term covers the chance, of at most 2^-112, that the derivation of the
    direction is not as the law assumes. So no direction is ever worth more than 112 bits. The logarithm
    exceeds that of the exact law plus 2^-112 by less than 1e-10 up to dimension 4096.

    Args:
        chord: Euclidean distance of the two unit vectors, from 0 (same direction) to 2 (opposite), rounded
            upwards by the caller. More than 2 counts as 2.
        dimension: Dimension of the space, at least `LEAST_DIMENSION`.

    Returns:
        The log p-value, from -112 log 2 to 0.

    Raises:
        ParameterError: If the chord is NaN or negative, or the dimension is too small.
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
    half = float(chord) / 2
    x = math.nextafter(half * half, math.inf)  # rounded up, and above 0 even where the square is not
    if x >= 1.0:
        return 0.0
    value, error = _log_cap(min(x, 1.0 - x), int(dimension))  # 1 - x is exact from x = 1/2 on
    if x <= 0.5:
        return log_p_plus(up(value, error), 2.0**-CHANNEL_BITS)
    rest = math.exp(value - error) * (1 - ROUNDING)  # a lower bound on the opposite cap
    return log_p_plus(up(math.log1p(-rest), ROUNDING), 2.0**-CHANNEL_BITS)


def log_p_plus(log_p: float, chance: float) -> float:
    """Compute log min(1, p + chance): the p-value if its law may fail with some probability.

    Guarantee: a p-value again, if p is one except with probability `chance`. The exponential is rounded
    upwards; the sum makes one rounding and the logarithm two; the bound allows for eight.

    Args:
        log_p: Natural logarithm of the p-value.
        chance: An upper bound on the probability that its law fails.

    Returns:
        The log p-value, corrected.

    Raises:
        ParameterError: If `chance` is negative or NaN.
    """
    if not chance >= 0.0:
        raise ParameterError(f"the chance is {chance}, expected a probability", "pass a number from 0 to 1")
    if not chance:
        return min(0.0, log_p)
    value = math.log(p_of(log_p) + chance)
    return up(value, ROUNDING * (1 + abs(value)))


def log_p_times(log_p: float, tests: int) -> float:
    """Compute log min(1, tests * p): the smallest of several p-values, corrected for their number.

    Guarantee: a p-value again, for any dependence between the tests, if `tests` counts all of them and is
    fixed before the bits are known. The logarithm and the sum make three roundings; the bound allows for
    eight.

    Args:
        log_p: Natural logarithm of the smallest p-value.
        tests: Number of tests, at least 1.

    Returns:
        The log p-value of all tests together.
    """
    return log_p if tests == 1 else up(log_p + math.log(tests), ROUNDING * (1 + abs(log_p)))


def log_p_channels(log_ps: Sequence[float]) -> float:
    """Combine the p-values of independent channels by Fisher's method.

    With k channels and x = -sum(log p) the result is log of exp(-x) (1 + x + ... + x^(k-1)/(k-1)!).

    Guarantee: a p-value again if the channels are independent under H0 and were all declared beforehand.
    Rounding: x takes k - 1 roundings, and the logarithm changes no faster than x. The last term takes 2k
    roundings, the sum of the terms k. The two logarithms, their sum and the difference take six roundings
    of at most x. Their total error is at most 4 (k + 1) 2^-53 (1 + x); the bound allows for twice that.

    Args:
        log_ps: Natural logarithms of the p-values. A value above 0 or NaN counts as 0.

    Returns:
        The log p-value of all channels together; -inf only if one of them is.
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
    """Convert the logarithm of a p-value to the p-value, rounded upwards.

    Guarantee: at least exp(log_p). The exponential takes two roundings, or one unit of the least double;
    the bound allows for eight roundings and two such units. So only an impossible event has p = 0.

    Args:
        log_p: Natural logarithm of the p-value; NaN counts as 0.

    Returns:
        The p-value, from 0 to 1.
    """
    if log_p == -math.inf:
        return 0.0
    return min(1.0, math.exp(min(0.0, log_p)) * (1 + ROUNDING) + 2 * math.ulp(0.0))


def log10_of(log_p: float) -> float:
    """Convert a natural log p to base 10, rounded upwards.

    Two roundings are made; the bound allows for eight.
    """
    return up(log_p / math.log(10.0), ROUNDING * abs(log_p))


def log_level(alpha: float, tests: int = 1) -> float:
    """Compute log(alpha / tests): a log p at or below it is significant.

    The two logarithms and the difference take at most three roundings. The bound of every law allows for
    more roundings than it makes (`ROUNDING` is eight), which covers these three when a log p is compared
    with the level.

    Args:
        alpha: The level.
        tests: Number of tests.
    """
    return math.log(alpha) - math.log(tests)


def evidence_bits(log_p: float, tests: int = 1) -> float:
    """Compute -log2 p, less log2 of the number of tests (suspects, readings, layers).

    Guarantee: Pr[bits >= b for any of these tests] <= 2^-b, if `tests` counts all of them. The bits are
    rounded downwards: each of the two logarithms takes less than four roundings, and the differences two;
    the bound allows for eight of both.

    Args:
        log_p: Natural logarithm of the p-value.
        tests: Number of tests, the reported one included.

    Returns:
        The bits, at least 0; infinite only if p is 0.

    Raises:
        ParameterError: If `tests` is less than 1.
    """
    if tests < 1:
        raise ParameterError(f"tests={tests} is less than 1", "count at least the reported test")
    if log_p == -math.inf:
        return math.inf
    bits, paid = -log_p / math.log(2.0), math.log2(tests)
    return max(0.0, math.nextafter(bits - paid - ROUNDING * (abs(bits) + paid), -math.inf))


def _log_cap(x: float, dimension: int) -> tuple[float, float]:
    """Compute log I_x(a, a), a = (dimension - 1)/2 >= 1, for 0 < x <= 1/2, and a bound on its error.

    I_x(a, a) = (4x(1-x))^a / (4^a a B(a, a)) * (1 + t_1 + t_2 + ...), t_j = t_(j-1) x (2a+j-1)/(a+j).
    With k = floor(a), 4^a a B(a, a) is 2 * 4^k / C(2k, k) if a is whole, else pi (2k+1) C(2k, k) / 4^k.
    All terms are positive. Their ratios decrease and are below 1: the terms after t_J sum to at most t_J
    r/(1 - r).

    Rounding: 4x(1-x) takes two roundings, so its power takes 2a; its logarithm and the product with a take
    three of the value. The constant is too large by at most 13 of 1 + its value, and two for pi. A term
    takes 3J, the sum of J terms J, and the omitted rest is less than one. The logarithm of the sum takes
    two of its value, the sums of logarithms and the caller's subtraction three of all. So 16 of everything
    are enough.
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


SMALLEST_M, LARGEST_M = 8, 4096
"""The range of m that `smallest_m` searches. Thresholds have no upper limit on m."""


def check_m(m: int) -> None:
    """Raise `ParameterError` unless m is even and at least `SMALLEST_M`."""
    if m < SMALLEST_M or m % 2:
        advice = f"use an even m of at least {SMALLEST_M}, usually 128; half of the bits are 1"
        raise ParameterError(f"m is {m}, which is odd or too small", advice)


def check_alpha(alpha: float) -> None:
    """Raise `ParameterError` unless alpha lies inside (0, 1)."""
    if not 0.0 < alpha < 1.0:
        raise ParameterError(
            f"alpha is {alpha}, expected a level inside (0, 1)", "use a small level, usually 1e-6"
        )


def _overlaps(m: int, n: int, a: int) -> Iterator[int]:
    """Yield C(n, x) C(m-n, a-x), the number of keys with x of their n ones among a given carriers.

    x runs from its largest value down.
    """
    x = min(n, a)
    ways = math.comb(n, x) * math.comb(m - n, a - x)
    while ways:
        yield ways
        # Exact: the quotient of two successive terms, multiplied out before dividing.
        ways = ways * x * (m - n - a + x) // ((n - x + 1) * (a - x + 1))
        x -= 1
