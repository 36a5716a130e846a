"""How likely an innocent suspect's answers are: the law of T, evidence, thresholds, power.

Under H0 the answers are fixed and the key is a uniformly random balanced vector (m/2 ones among
m bits). Nothing else is assumed: not of models, nor of carriers, nor of mixing. Logarithms are
natural; counts of keys are exact integers as long as that is affordable.
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
from invgnn.ranks import RankTail, as_answers, as_bits, log_p_rank, rank_sum

STATISTICS = ("matches", "rank", "combined")
SMALLEST_M, LARGEST_M = 8, 4096  # the range `smallest_m` searches; thresholds know no upper end
RHO0 = 7.6e-4  # the paper's carrier correlation; no guarantee rests on it


@dataclass(frozen=True)
class Evidence:
    """What m answers say about a key; `exact` is false where a Chernoff bound stands in."""

    statistic: str
    log_p: float
    m: int
    t: int
    ones: int
    rank_sum: int
    exact: bool

    @property
    def p(self) -> float:
        return math.exp(self.log_p)

    def bits(self, tried: int = 1) -> float:
        return evidence_bits(self.log_p, tried)


def log_p(
    answers: ArrayLike, bits: ArrayLike, statistic: str = "combined", threshold: float | None = None
) -> Evidence:
    """You get the p-value of the answers under the declared statistic, with all its counts.

    Guarantee: if the key is uniform among balanced keys given the answers, Pr[p <= u] <= u for
    every u. Void if the threshold, the reading or the statistic was chosen after seeing bits, if
    the secret was chosen after seeing answers, or if what reads was trained with the bits.
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
    """You get the bits said: answers above their own median, or >= a given threshold."""
    r = as_answers(answers)
    if threshold is not None:
        return r >= threshold
    # Above the lower middle value is above the median, without the rounding (or inf - inf)
    # of averaging the two middle values.
    middle = float(np.sort(r)[(r.size - 1) // 2])
    return r > middle


def matches(said: ArrayLike, bits: ArrayLike) -> int:
    """You get T, the number of bits said right."""
    return int(np.count_nonzero(as_bits(said) == as_bits(bits)))


def log_p_matches(t: int, m: int, ones: int, key_ones: int | None = None) -> float:
    """You get log Pr[T >= t] for a suspect that says 1 on `ones` of m carriers.

    Guarantee: exact for every `ones`, at any depth (integers; the logarithm is right to 1e-12),
    if the key is uniform among those with `key_ones` ones (default m/2) given what was said.
    """
    n, a = m // 2 if key_ones is None else int(key_ones), int(ones)
    if not 0 <= a <= m:
        raise ParameterError(f"{a} ones said on {m} carriers", "count the ones of `decode`")
    low, high = max(0, n + a - m), min(n, a)
    # T = 2X + m - n - a, where X counts the ones said on 1-carriers.
    x = max(low, -((m - n - a - int(t)) // 2))
    tail = sum(islice(_overlaps(m, n, a), max(0, high - x + 1)))
    return _log_ratio(tail, math.comb(m, a))


def log_p_combined(log_p_t: float, log_p_u: float) -> float:
    """You get min(1, 2 min(p_T, p_U)) in logs: valid whatever the dependence of the two."""
    return min(0.0, math.log(2.0) + min(log_p_t, log_p_u))


def log_p_cosine(cosine: float, dimension: int) -> float:
    """You get log Pr[a random direction has at least this cosine with a given one].

    Guarantee: exact for a direction uniform on the sphere of that dimension, whatever it is compared with.
    """
    half = (dimension - 1) / 2
    tail = float(betainc(half, half, (1 - cosine) / 2))
    return math.log(tail) if tail > 0 else math.log(5e-324)  # smaller than any double: say no less


def log_p_channels(log_ps: Sequence[float]) -> float:
    """You get the log p-value of independent channels together: Fisher's product of all p-values.

    Guarantee: a p-value again if the channels are independent under H0 and were all declared beforehand.
    """
    total = sum(log_ps)
    terms = [1.0]
    for k in range(1, len(log_ps)):
        terms.append(terms[-1] * -total / k)
    return min(0.0, total + math.log(sum(terms)))


def evidence_bits(log_p: float, tried: int = 1) -> float:
    """You get -log2 p, less log2 of the number of suspects, readings and layers tried.

    Guarantee: Pr[bits >= b for any of those tried] <= 2^-b, if `tried` counts all of them.
    """
    if tried < 1:
        raise ParameterError(f"tried is {tried}", "count at least the one attempt you report")
    return max(0.0, -log_p / math.log(2.0) - math.log2(tried))


def empirical_p(observed: float, null_values: ArrayLike) -> float:
    """You get (1 + #{null >= observed}) / (n + 1); values that are NaN count against you.

    Guarantee: valid if the observed value is exchangeable with the null's under H0; never below
    1/(n+1). Void if the null's members were picked after looking.
    """
    values = np.asarray(null_values, dtype=np.float64)
    return (1 + int(np.count_nonzero(~(values < observed)))) / (values.size + 1)


@dataclass(frozen=True)
class Null:
    """A law of T under H0: the threshold it asks for, the tail it claims, and the true one."""

    name: str
    valid_for_balanced: bool
    caveat: str
    _threshold: Callable[[int, float], int] = field(repr=False)
    _claim: Callable[[int, int], float] = field(repr=False)

    def tau(self, m: int, alpha: float) -> int:
        """You get the threshold: T >= tau rejects at level alpha; m + 1 if no T suffices.

        Guarantee: as far as `valid_for_balanced` and `caveat` say. The smallest exact p at m is
        1/C(m, m/2), so a smaller alpha gives m + 1.
        """
        check_m(m)
        check_alpha(alpha)
        return min(max(self._threshold(int(m), float(alpha)), 0), m + 1)

    def log_tail(self, m: int, t: int) -> float:
        """You get the log of what this null *claims* Pr[T >= t] to be."""
        check_m(m)
        return min(0.0, self._claim(int(m), int(t)))

    def true_alpha(self, m: int, tau: int, ones: int | None = None) -> float:
        """You get the true Pr[T >= tau] for a balanced key and median decoding, whatever the null.

        `ones` is how many ones were said: m/2 without ties. An odd tau can be passed more often
        with ties (T is then odd), an even tau above m/2 never.
        """
        check_m(m)
        return math.exp(log_p_matches(tau, m, m // 2 if ones is None else ones))


def hoeffding(rho0: float = RHO0) -> Null:
    """You get the paper's Hoeffding null, corrected to the mean m/2 that T has under H0."""
    c = min(4 * rho0, 0.5)
    return Null(
        "hoeffding",
        True,
        "Its proof needs independent matches. For balanced keys the exact tail was compared and "
        "is below it; `exact` is sharper and assumes less.",
        lambda m, alpha: math.ceil(m * (0.5 + _deviation(m, alpha, c))),
        lambda m, t: -2 * (1 - c) * m * max(0.0, t / m - 0.5) ** 2,
    )


def paper(rho0: float = RHO0) -> Null:
    """You get the paper's literal formula, which is unsound: at m = 64 it accepts 0.3 %."""
    c = min(4 * rho0, 0.5)
    return Null(
        "paper",
        False,
        "Unsound: the literal formula puts the mean of T under H0 at m, not at m/2. Far too lax "
        "for small m, needlessly strict for large; for reproduction only.",
        lambda m, alpha: math.ceil(m * (1 - _deviation(m, alpha, c))),
        lambda m, t: -2 * (1 - c) * m * (1 - t / m) ** 2,
    )


def models(values: ArrayLike) -> Null:
    """You get the empirical null over the match counts of unmarked models."""
    return _empirical("models", "An innocent suspect must be exchangeable with them", values)


def decoys(values: ArrayLike) -> Null:
    """You get the empirical null over the suspect's match counts with other secrets."""
    return _empirical("decoys", "They must be drawn as the owner's was, and all kept", values)


def power(m: int, tau: int, accuracy: float) -> float:
    """You get Pr[T >= tau] when each bit is read right, independently, with this probability.

    Guarantee: exact for T ~ Binomial(m, accuracy). A planning figure: under median decoding
    errors come in pairs (T is even), and neighbouring carriers may fail together.
    """
    check_m(m)
    return _binomial_tail(tau, m, accuracy)


def smallest_m(alpha: float, accuracy: float, power: float = 0.99, null: Null | None = None) -> int:
    """You get the first even m >= 8 whose threshold is reached with at least this power.

    The power is not monotone in m, thresholds being integers: slightly larger m may fall short.
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


def _log_ratio(count: int, total: int) -> float:
    return math.log(count) - math.log(total) if count else -math.inf


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


def _empirical(name: str, caveat: str, values: ArrayLike) -> Null:
    known = np.array(values, dtype=np.float64)
    p = partial(empirical_p, null_values=known)
    return Null(
        name,
        True,
        f"{caveat}; the smallest honest p is 1/{known.size + 1}.",
        lambda m, alpha: next((t for t in range(m + 1) if p(t) <= alpha), m + 1),
        lambda m, t: math.log(p(t)),
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
    lambda m, t: _log_ratio(sum(math.comb(m, x) for x in range(max(t, 0), m + 1)), 2**m),
)
NULLS: Mapping[str, Null] = {n.name: n for n in (EXACT, BINOMIAL, hoeffding(), paper())}
