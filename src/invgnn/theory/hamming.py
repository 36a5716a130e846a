"""How far apart the keys of independent owners lie, by how keys are drawn."""

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
    """You get q = 2p(1 - p), the probability that two independent bits with Pr[1] = p differ."""
    if not 0.0 <= p <= 1.0:
        raise ParameterError(f"p is {p}", "give a probability between 0 and 1")
    return 2.0 * p * (1.0 - p)


@dataclass(frozen=True)
class HammingLaw(Statement):
    """The law of the Hamming distance H of two independently drawn keys of m bits.

    HammingLaw(m)                 keys uniform among the balanced, as keyed marks have them: H = m - 2X is
                                  even, X ~ Hypergeom(m, m/2, m/2) counting the ones in common
    HammingLaw(m, p)              independent bits with Pr[1] = p, as in the paper: H ~ Binom(m, 2p(1 - p))
    HammingLaw(m, p, quota=True)  such bits, refused once half of the key has their value, as plain marks
                                  have them: balanced and not uniform. Everybody's last bits are of the
                                  rarer kind, so that such keys lie closer than by either other law
    """

    m: int
    p: float | None = None
    quota: bool = False

    def __post_init__(self) -> None:
        laws.check_m(self.m)
        if self.p is not None:
            differ(self.p)
        if self.quota and (self.p is None or not 0 < self.p < 1):
            raise ParameterError(f"a quota with p={self.p}", "both kinds must occur: give 0 < p < 1")
        bits = "" if self.p is None else f"bits are i.i.d., Pr[1]={self.p:.4g}"
        full = ", refused where a half is full" if self.quota else ""
        drawn = Assumption(bits + full or "keys are uniform among the balanced")
        object.__setattr__(self, "assumptions", (INDEPENDENT, drawn))

    @property
    def q(self) -> float:
        """The probability that two keys differ at a place, the mean over all of them under a quota."""
        return self.mean / self.m if self.quota else 0.5 if self.p is None else differ(self.p)

    @property
    def mean(self) -> float:
        """The expected distance."""
        return float(np.arange(self.m + 1) @ self._quota) if self.quota else self.m * self.q

    def log_cdf(self, h: int) -> float:
        """You get log Pr[H <= h]; at h = 0 it is the log of the collision probability.

        Guarantee: for balanced keys from exact integer counts; for independent bits a sum of logs, so
        that nothing underflows. Under a quota a sum of positive numbers, to rounding.
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
        """The log of Pr[the two keys are the same]: -log C(m, m/2) if balanced, m log(1 - q) if i.i.d."""
        return self.log_cdf(0)

    def pmf(self) -> Floats:
        """You get Pr[H = h] for h = 0..m."""
        if self.quota:
            return self._quota
        if self.p is not None:
            log_pmf = binom.logpmf(np.arange(self.m + 1), self.m, self.q)  # pmf overflows near q = 0
            return np.asarray(np.exp(log_pmf))
        cdf = np.exp([self.log_cdf(h) for h in range(self.m + 1)])
        return np.diff(cdf, prepend=0.0)

    def beyond(self, deviation: float) -> float:
        """You get Pr[|H - mean| >= deviation].

        Guarantee: for independent bits at most 2 exp(-2 deviation² / m) (Hoeffding), which at
        sqrt(m log m) is the 2/m² of C.5.
        """
        away = np.abs(np.arange(self.m + 1) - self.mean)
        return float(self.pmf()[away >= deviation - 1e-9].sum())

    @cached_property
    def _quota(self) -> Floats:
        return quota_pmf(self.m, self.p or 0.5)


def quota_pmf(m: int, p: float) -> Floats:
    """You get Pr[H = h] for h = 0..m of two keys whose bits are drawn one by one, each value m/2 times.

    Both keys are followed bit by bit: the ones in each so far, and the places where only the first has
    one; balanced keys differ at twice as many. Takes O(m⁴), a second or two at m = 192.
    """
    half = m // 2
    seen = np.zeros((half + 2,) * 3)  # room for a last step that has probability 0
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
    """The distances between many drawn keys beside what their law says.

    `log_p_least` bounds from above the log probability that some pair comes as close as the closest did.
    """

    pairs: int
    mean: float
    least: int
    expected_mean: float
    log_p_least: float


def separation(keys: ArrayLike, law: HammingLaw) -> Separation:
    """You get the Hamming distances of all pairs of keys [owners, m], summed up against a law.

    Guarantee: `log_p_least` is a union bound over the pairs and needs no independence among them. A
    tiny value says that the keys were not drawn as the law has it.
    """
    distances = pair_distances(keys)
    if np.asarray(keys).shape[1] != law.m:
        raise ParameterError(f"keys of {np.asarray(keys).shape[1]} bits under a law for {law.m}", "match m")
    least = int(distances.min())
    p = min(0.0, math.log(distances.size) + law.log_cdf(least))
    mean = float(distances.mean())
    return Separation(distances.size, mean, least, law.mean, p, assumptions=law.assumptions)


def pair_distances(keys: ArrayLike) -> Ints:
    """You get the Hamming distance of every pair of keys [owners, m], in the order (0,1), (0,2), ..."""
    k = np.asarray(keys)
    if k.ndim != 2 or len(k) < 2 or not np.isin(k, (0, 1)).all():
        raise ParameterError(f"keys of shape {k.shape}", "give two or more rows of zeros and ones")
    signs = 2.0 * k - 1.0
    agree_less_differ = np.rint(signs @ signs.T).astype(np.int64)
    return np.asarray((k.shape[1] - agree_less_differ[np.triu_indices(len(k), 1)]) // 2, dtype=np.int64)
