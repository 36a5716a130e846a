"""The pooled null: the match counts of unmarked models over all keys, exactly and by simulation."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from invgnn.errors import ParameterError
from invgnn.graphs.disjoint_union import Ints
from invgnn.stats import laws
from invgnn.stats.evidence import decode
from invgnn.theory.intervals import Share, bound_share
from invgnn.theory.statement import Assumption, Statement

BLOCK = 1 << 20  # draws held at once: 8 MB
KEYS = Assumption("keys are uniform among the balanced and independent of the models")
ALIKE = Assumption("an innocent suspect says as many ones as one of these models, picked at random")


@dataclass(frozen=True)
class PooledNull(Statement):
    """T of a random unmarked model under a random balanced key, given how many ones each model says.

    A model that says 1 on `a` carriers has T = 2X + m/2 - a, X ~ Hypergeom(m, m/2, a). The pool is the
    even mixture of these laws, so it has an exact tail and needs no simulation; `simulate` checks it.
    """

    m: int
    ones: tuple[int, ...]

    def __post_init__(self) -> None:
        laws.check_m(self.m)
        if not self.ones or not all(0 <= a <= self.m for a in self.ones):
            raise ParameterError(
                f"{len(self.ones)} models with ones outside 0 to {self.m}, or no model",
                "count the ones that each unmarked model says on the m carriers",
            )
        object.__setattr__(self, "assumptions", (KEYS, ALIKE))

    @classmethod
    def of(cls, answers: Iterable[ArrayLike], threshold: float | None = None) -> PooledNull:
        """You get the pool of models that gave these answers, one row of m numbers each."""
        said = [decode(row, threshold) for row in answers]
        if len({row.size for row in said}) != 1:
            raise ParameterError(
                "models answered different numbers of carriers, or none did", "ask all alike"
            )
        return cls(said[0].size, tuple(int(row.sum()) for row in said))

    def log_tail(self, t: int) -> float:
        """You get log Pr[T >= t].

        Guarantee: exact up to rounding. It speaks of models like these: `exact` in `invgnn.stats.null`
        conditions on the suspect's own count of ones and assumes nothing of the kind.
        """
        count = Counter(self.ones)
        tails = [laws.log_p_matches(t, self.m, a) for a in count]
        return float(logsumexp(tails, b=list(count.values()))) - math.log(len(self.ones))

    def threshold(self, alpha: float) -> int:
        """You get the smallest t with Pr[T >= t] <= alpha; m + 1 if no match count is that rare."""
        laws.check_alpha(alpha)
        # The tail falls with t, so its negative is sorted.
        return bisect_left(range(self.m + 1), -math.log(alpha), key=lambda t: -self.log_tail(t))

    def simulate(self, trials: int, rng: np.random.Generator) -> Trials:
        """You get the match counts of `trials` independent draws of a model and a key.

        Baseline stays at one block of draws, whatever the number of trials.
        """
        if trials < 1:
            raise ParameterError(f"{trials} trials", "draw at least one")
        count, counts = Counter(self.ones), np.zeros(self.m + 1, dtype=np.int64)
        share = np.array(list(count.values())) / len(self.ones)
        for a, n in zip(count, rng.multinomial(trials, share).tolist(), strict=True):
            for start in range(0, n, BLOCK):
                counts += self._draw(a, min(BLOCK, n - start), rng)
        return Trials(self.m, tuple(counts.tolist()), assumptions=self.assumptions)

    def _draw(self, a: int, n: int, rng: np.random.Generator) -> Ints:
        half = self.m // 2
        t = 2 * rng.hypergeometric(half, half, a, size=n) + half - a
        return np.bincount(t, minlength=self.m + 1).astype(np.int64)


@dataclass(frozen=True)
class Trials(Statement):
    """How often a simulation gave each match count from 0 to m."""

    m: int
    counts: tuple[int, ...]

    @property
    def total(self) -> int:
        return sum(self.counts)

    def exceeding(self, tau: int) -> int:
        """You get the number of trials with T >= tau."""
        return sum(self.counts[max(tau, 0) :])

    def alpha(self, tau: int, delta: float = 0.05) -> Share:
        """You get the share of trials with T >= tau and its Clopper-Pearson bounds.

        Guarantee: the true rate lies above `upper` with probability at most delta. Without a single
        exceedance in n trials that is still 3/n at delta = 5 %: 3e-7 for 1e7 trials, not 1e-7.
        """
        return bound_share(self.exceeding(tau), self.total, delta)
