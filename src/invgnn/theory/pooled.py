"""The pooled null: the distribution of matches of unmarked models over all keys, exact and simulated."""

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
KEYS = Assumption("keys are uniform among balanced keys and independent of the models")
ALIKE = Assumption("an independent suspect returns as many ones as a random one of these models")


@dataclass(frozen=True)
class PooledNull(Statement):
    """The distribution of T for a random unmarked model and a random balanced key.

    A model that returns 1 on `a` carriers has T = 2X + m/2 - a, X ~ Hypergeom(m, m/2, a). The pool is the
    uniform mixture of these laws, so it has an exact tail and needs no simulation; `simulate` checks it.

    Attributes:
        m: Number of carriers.
        ones: Number of ones that each model returns.
    """

    m: int
    ones: tuple[int, ...]

    def __post_init__(self) -> None:
        laws.check_m(self.m)
        if not self.ones or not all(0 <= a <= self.m for a in self.ones):
            raise ParameterError(
                f"{len(self.ones)} models, or a number of ones outside 0 to {self.m}",
                "pass, for at least one unmarked model, the number of ones among its m decoded bits",
            )
        object.__setattr__(self, "assumptions", (KEYS, ALIKE))

    @classmethod
    def of(cls, answers: Iterable[ArrayLike], threshold: float | None = None) -> PooledNull:
        """Return the pool of the models with these answers.

        Args:
            answers: One row of m answers per model.
            threshold: The threshold of decoding; by default the median of each row.

        Raises:
            ParameterError: If the rows have different lengths, or there are none.
        """
        said = [decode(row, threshold) for row in answers]
        if len({row.size for row in said}) != 1:
            raise ParameterError(
                "the models have different numbers of answers, or there is no model",
                "pass the answers of every model on the same carriers",
            )
        return cls(said[0].size, tuple(int(row.sum()) for row in said))

    def log_tail(self, t: int) -> float:
        """Return log Pr[T >= t].

        Guarantee: exact up to rounding, for models like these. `exact` in `invgnn.stats.null` conditions on
        the suspect's own count of ones and does not need this assumption.
        """
        count = Counter(self.ones)
        tails = [laws.log_p_matches(t, self.m, a) for a in count]
        return float(logsumexp(tails, b=list(count.values()))) - math.log(len(self.ones))

    def threshold(self, alpha: float) -> int:
        """Return the smallest t with Pr[T >= t] <= alpha, or m + 1 if there is none."""
        laws.check_alpha(alpha)
        # The tail falls with t, so its negative is sorted.
        return bisect_left(range(self.m + 1), -math.log(alpha), key=lambda t: -self.log_tail(t))

    def simulate(self, trials: int, rng: np.random.Generator) -> Trials:
        """Return the counts of matches in independent draws of a model and a key.

        Memory use is limited to one block of draws for any number of trials.

        Args:
            trials: Number of draws.
            rng: Source of randomness.

        Raises:
            ParameterError: If `trials` is below 1.
        """
        if trials < 1:
            raise ParameterError(f"the number of trials is {trials}", "use at least one trial")
        count, counts = Counter(self.ones), np.zeros(self.m + 1, dtype=np.int64)
        share = np.array(list(count.values())) / len(self.ones)
        for a, n in zip(count, rng.multinomial(trials, share).tolist(), strict=True):
            for start in range(0, n, BLOCK):
                counts += self._draw(a, min(BLOCK, n - start), rng)
        return Trials(self.m, tuple(counts.tolist()), assumptions=self.assumptions)

    def _draw(self, a: int, n: int, rng: np.random.Generator) -> Ints:
        """Return how often each number of matches occurs in n draws for models with `a` ones."""
        half = self.m // 2
        t = 2 * rng.hypergeometric(half, half, a, size=n) + half - a
        return np.bincount(t, minlength=self.m + 1).astype(np.int64)


@dataclass(frozen=True)
class Trials(Statement):
    """How often each number of matches from 0 to m occurred in a simulation.

    Attributes:
        m: Number of carriers.
        counts: One count per number of matches.
    """

    m: int
    counts: tuple[int, ...]

    @property
    def total(self) -> int:
        """Number of trials."""
        return sum(self.counts)

    def exceeding(self, tau: int) -> int:
        """Return the number of trials with T >= tau."""
        return sum(self.counts[max(tau, 0) :])

    def alpha(self, tau: int, delta: float = 0.05) -> Share:
        """Return the share of trials with T >= tau and its Clopper-Pearson bounds.

        Guarantee: the true rate lies above `upper` with probability at most delta. Without any exceedance
        in n trials, `upper` is about 3/n at delta = 5 %: 3e-7 for 1e7 trials, not 1e-7.

        Args:
            tau: The threshold.
            delta: Error probability of each bound.
        """
        return bound_share(self.exceeding(tau), self.total, delta)
