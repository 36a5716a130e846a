"""Exact laws and upper bounds on p-values, in natural logarithms."""

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

LEAST_DIMENSION = 16  # of a direction: with fewer, a close direction is too easily met by chance


CHANNEL_BITS = 112  # the most that a direction can be worth, see `log_p_chord`


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
    """Portion the logarithm of a p-value into the p-value, rounded upwards.

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


def log_level(alpha: float, tests: int = 1) -> float:
    """Compute log(alpha / tests): a log p at or below it is significant.

    The two logarithms and the difference take at most three roundings. Every law pays for more than its own
    (`ROUNDING` is eight), so that these three are covered where a log p meets the level.

    """
    return math.log(alpha) - math.log(tests)


def evidence_bits(log_p: float, tests: int = 1) -> float:
    """Compute -log2 p, less log2 of the number of tests (suspects, readings, layers).

    Guarantee: Pr[bits >= b for any of these tests] <= 2^-b, if `tests` counts all of them. The bits are
    rounded downwards: each of the two logarithms takes less than four roundings, and the differences two;
    eight of both are paid.

    Args:
        log_p: Natural logarithm of the p-value.
        tests: Number of tests, the reported one included.

    Returns:
        The bits, at least 0; infinite only where p is 0.

    Raises:
        ParameterError: If `tests` is less than 1.

    """
    if tests < 1:
        raise ParameterError(f"tests={tests} is less than 1", "count at least the test you report")
    if log_p == -math.inf:
        return math.inf
    bits, paid = -log_p / math.log(2.0), math.log2(tests)
    return max(0.0, math.nextafter(bits - paid - ROUNDING * (abs(bits) + paid), -math.inf))


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


SMALLEST_M, LARGEST_M = 8, 4096  # the range `smallest_m` searches; thresholds know no upper end


def check_m(m: int) -> None:
    if m < SMALLEST_M or m % 2:
        advice = f"use an even m of at least {SMALLEST_M}; 128 is usual. Half the bits must be 1"
        raise ParameterError(f"m is {m}: odd or tiny", advice)


def check_alpha(alpha: float) -> None:
    if not 0.0 < alpha < 1.0:
        raise ParameterError(f"alpha is {alpha}", "give a level inside (0, 1); 1e-6 is usual")


def _overlaps(m: int, n: int, a: int) -> Iterator[int]:
    """C(n, x) C(m-n, a-x), the keys with x ones among the a said, from the largest x down."""
    x = min(n, a)
    ways = math.comb(n, x) * math.comb(m - n, a - x)
    while ways:
        yield ways
        # Exact: the quotient of two successive terms, multiplied out before dividing.
        ways = ways * x * (m - n - a + x) // ((n - x + 1) * (a - x + 1))
        x -= 1
