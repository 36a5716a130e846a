"""The Hamming distances between keys of independent owners, for three ways to draw keys."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp
from scipy.stats import binom

from invgnn.errors import ParameterError
from invgnn.graphs.disjoint_union import Floats, Ints
from invgnn.stats import laws
from invgnn.theory.statement import Assumption, Statement

INDEPENDENT = Assumption("the two keys were drawn independently")


def differ(p: float) -> float:
    """Return q = 2p(1 - p), the probability that two independent bits with Pr[1] = p differ."""
    if not 0.0 <= p <= 1.0:
        raise ParameterError(f"p is {p}", "choose a probability between 0 and 1")
    return 2.0 * p * (1.0 - p)


@dataclass(frozen=True)
class HammingLaw(Statement):
    """The distribution of the Hamming distance H of two independently drawn keys of m bits.

    There are three cases:

    - `HammingLaw(m)`: keys are uniform among balanced keys, as in keyed marks. H = m - 2X is even, where X
      ~ Hypergeom(m, m/2, m/2) counts the ones in common.
    - `HammingLaw(m, p)`: independent bits with Pr[1] = p, as in the paper: H ~ Binom(m, 2p(1 - p)).
    - `HammingLaw(m, p, quota=True)`: such bits, refused once half of the key has their value, as in plain
      marks. The keys are balanced but not uniform. The last bits of all keys tend to have the rarer value,
      so these keys are closer to each other than under the other two laws.

    Attributes:
        m: Number of bits.
        p: Probability of a 1, or None for uniform balanced keys.
        quota: Whether each value occurs exactly m/2 times.
    """

    m: int
    p: float | None = None
    quota: bool = False

    def __post_init__(self) -> None:
        laws.check_m(self.m)
        if self.p is not None:
            differ(self.p)
        if self.quota and (self.p is None or not 0 < self.p < 1):
            raise ParameterError(f"a quota with p={self.p}", "choose 0 < p < 1: both values must occur")
        bits = "" if self.p is None else f"bits are i.i.d., Pr[1]={self.p:.4g}"
        full = ", refused once half of the key has their value" if self.quota else ""
        drawn = Assumption(bits + full or "keys are uniform among balanced keys")
        object.__setattr__(self, "assumptions", (INDEPENDENT, drawn))

    @property
    def q(self) -> float:
        """The probability that two keys differ at a position; under a quota its mean over all positions."""
        return self.mean / self.m if self.quota else 0.5 if self.p is None else differ(self.p)

    @property
    def mean(self) -> float:
        """The expected distance."""
        return float(np.arange(self.m + 1) @ self._quota) if self.quota else self.m * self.q

    def log_cdf(self, h: int) -> float:
        """Return log Pr[H <= h]; at h = 0 it is the log of the collision probability.

        Guarantee: computed from exact integer counts for balanced keys, and as a sum of logs, which does
        not underflow, for independent bits. Under a quota it is a sum of positive numbers, correct up to
        rounding.
        """
        if h < 0:
            return -math.inf
        if self.quota:
            return min(0.0, math.log(self._quota[: h + 1].sum()))
        if self.p is None:
            return laws.log_p_matches(self.m - h, self.m, self.m // 2)
        terms = binom.logpmf(np.arange(min(h, self.m) + 1), self.m, self.q)
        return min(0.0, float(logsumexp(terms)))

    @property
    def log_collision(self) -> float:
        """The log of Pr[the two keys are equal]: -log C(m, m/2) if balanced, m log(1 - q) if i.i.d."""
        return self.log_cdf(0)

    def pmf(self) -> Floats:
        """Return Pr[H = h] for h = 0..m."""
        if self.quota:
            return self._quota
        if self.p is not None:
            log_pmf = binom.logpmf(np.arange(self.m + 1), self.m, self.q)  # pmf overflows near q = 0
            return np.asarray(np.exp(log_pmf))
        cdf = np.exp([self.log_cdf(h) for h in range(self.m + 1)])
        return np.diff(cdf, prepend=0.0)

    def beyond(self, deviation: float) -> float:
        """Return Pr[|H - mean| >= deviation].

        Guarantee: for independent bits at most 2 exp(-2 deviation² / m) (Hoeffding), which at
        sqrt(m log m) is the 2/m² of C.5.
        """
        away = np.abs(np.arange(self.m + 1) - self.mean)
        return float(self.pmf()[away >= deviation - 1e-9].sum())

    @cached_property
    def _quota(self) -> Floats:
        """The distribution under a quota."""
        return quota_pmf(self.m, self.p or 0.5)


def quota_pmf(m: int, p: float) -> Floats:
    """Return Pr[H = h] for h = 0..m of two keys whose bits are drawn one by one, each value m/2 times.

    The recursion follows both keys bit by bit: the number of ones in each, and the number of positions
    where only the first has a one. Balanced keys differ at twice as many positions. It takes O(m⁴)
    operations, one or two seconds at m = 192.

    Args:
        m: Number of bits, even.
        p: Probability of a 1 while both values are available.
    """
    half = m // 2
    seen = np.zeros((half + 2,) * 3)  # one more entry, for a last step that has probability 0
    seen[0, 0, 0] = 1.0
    for k in range(m):
        low, high = max(0, k - half), min(k, half)  # the ones that a key of k bits can have
        count = np.arange(low, high + 1)
        one = np.where(count == half, 0.0, np.where(k - count == half, 1.0, p))
        first, second = one[:, None, None], one[None, :, None]
        same, more = slice(low, high + 1), slice(low + 1, high + 2)
        apart, wider = slice(0, high + 1), slice(1, high + 2)
        now, seen = seen[same, same, apart], np.zeros_like(seen)
        raised, kept = now * first, now * (1 - first)
        seen[same, same, apart] = kept * (1 - second)
        seen[same, more, apart] += kept * second
        seen[more, more, apart] += raised * second
        seen[more, same, wider] += raised * (1 - second)
    pmf = np.zeros(m + 1)
    pmf[::2] = seen[half, half, :-1]
    return pmf


@dataclass(frozen=True)
class Separation(Statement):
    """The distances between many keys, compared with their distribution.

    Attributes:
        pairs: Number of pairs of keys.
        mean: Mean distance.
        least: Smallest distance.
        expected_mean: Expected distance.
        log_p_least: Upper bound on the log probability that some pair is as close as the closest one.
    """

    pairs: int
    mean: float
    least: int
    expected_mean: float
    log_p_least: float


def separation(keys: ArrayLike, law: HammingLaw) -> Separation:
    """Compare the Hamming distances of all pairs of keys with a distribution.

    Guarantee: `log_p_least` is a union bound over the pairs and needs no independence among them. A tiny
    value means that the keys were not drawn according to the law.

    Args:
        keys: Keys of shape [owners, m].
        law: The distribution of the distance.

    Raises:
        ParameterError: If the keys do not have the number of bits of the law.
    """
    distances = pair_distances(keys)
    if np.asarray(keys).shape[1] != law.m:
        raise ParameterError(
            f"keys have {np.asarray(keys).shape[1]} bits, the law is for {law.m}", "use the same m for both"
        )
    least = int(distances.min())
    p = min(0.0, math.log(distances.size) + law.log_cdf(least))
    mean = float(distances.mean())
    return Separation(distances.size, mean, least, law.mean, p, assumptions=law.assumptions)


def pair_distances(keys: ArrayLike) -> Ints:
    """Return the Hamming distance of every pair of keys [owners, m], in the order (0,1), (0,2), ..."""
    k = np.asarray(keys)
    if k.ndim != 2 or len(k) < 2 or not np.isin(k, (0, 1)).all():
        raise ParameterError(f"keys have shape {k.shape}", "pass two or more rows of zeros and ones")
    signs = 2.0 * k - 1.0
    agree_less_differ = np.rint(signs @ signs.T).astype(np.int64)
    return np.asarray((k.shape[1] - agree_less_differ[np.triu_indices(len(k), 1)]) // 2, dtype=np.int64)
