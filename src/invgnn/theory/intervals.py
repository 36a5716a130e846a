"""Intervals with known coverage: for a share of many trials, and for a mean over few runs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincinv, ndtri, stdtr, stdtrit

from invgnn.errors import ParameterError
from invgnn.theory.statement import Assumption, Statement

ShareMethod = Literal["clopper-pearson", "paper"]
MeanMethod = Literal["student", "paper"]


@dataclass(frozen=True)
class Share(Statement):
    """A share observed as `ones` of `n` trials, with a lower and an upper bound, each of level 1 - delta.

    Attributes:
        ones: Number of successes.
        n: Number of trials.
        delta: Error probability of each bound.
        lower: Lower bound.
        upper: Upper bound.
        method: How the bounds were computed.
    """

    ones: int
    n: int
    delta: float
    lower: float
    upper: float
    method: ShareMethod


def bound_share(ones: int, n: int, delta: float = 0.05, method: ShareMethod = "clopper-pearson") -> Share:
    """Return one-sided bounds on the probability behind `ones` successes in `n` trials.

    Guarantee: each `clopper-pearson` bound is wrong with probability at most delta, for every probability
    and every n, if trials are independent. `paper` takes quantiles of Beta(1 + x, 1 + n - x), the Bayesian
    posterior under a uniform prior; for a probability near 0 its lower bound is wrong far more often.

    Args:
        ones: Number of successes.
        n: Number of trials.
        delta: Error probability of each bound.
        method: "clopper-pearson" or "paper".

    Raises:
        ParameterError: If the counts do not fit, or delta is not inside (0, 1).
    """
    if not 0 <= ones <= n or n < 1:
        raise ParameterError(f"{ones} ones among {n} trials", "use n >= 1 and 0 <= ones <= n")
    _check_level(delta, "delta")
    if method == "paper":
        low, high = (float(betaincinv(1 + ones, 1 + n - ones, u)) for u in (delta, 1 - delta))
    else:
        low = float(betaincinv(ones, n - ones + 1, delta)) if ones else 0.0
        high = float(betaincinv(ones + 1, n - ones, 1 - delta)) if ones < n else 1.0
    trials = Assumption("the trials are independent with the same probability")
    prior = Assumption("the probability itself was drawn uniformly from [0, 1]", False)
    rests = (trials, prior) if method == "paper" else (trials,)
    return Share(ones, n, delta, low, high, method, assumptions=rests)


@dataclass(frozen=True)
class MeanInterval(Statement):
    """A mean over `n` runs, plus or minus `half`.

    Attributes:
        mean: The mean.
        half: Half the width of the interval.
        n: Number of runs.
        level: The nominal level.
        covers: The true probability of covering the mean, for normal values.
        method: How the interval was computed.
    """

    mean: float
    half: float
    n: int
    level: float
    covers: float
    method: MeanMethod

    def __str__(self) -> str:
        return f"{self.mean:.4g} ± {self.half:.2g} ({self.covers:.0%}, n={self.n})"


def mean_interval(values: ArrayLike, level: float = 0.95, method: MeanMethod = "student") -> MeanInterval:
    """Return the mean of a few runs with Student's interval, or with the paper's normal interval.

    Guarantee: for independent normal values `student` covers the true mean with probability exactly
    `level`. `paper` uses the normal quantile, 1.96 for 95 %, as if the standard deviation were known: over
    three runs it covers 81 %. `covers` is the true probability.

    Args:
        values: One number per run.
        level: Nominal level.
        method: "student" or "paper".

    Raises:
        ParameterError: If there are fewer than two runs or a value is not finite.
    """
    runs = np.asarray(values, dtype=np.float64)
    _check_runs(runs.size)
    _check_level(level, "level")
    if not np.isfinite(runs).all():
        raise ParameterError(
            "a run has a value that is not finite", "find the cause; do not leave out runs silently"
        )
    z = t_quantile(level, runs.size) if method == "student" else float(ndtri((1 + level) / 2))
    half = z * float(runs.std(ddof=1)) / math.sqrt(runs.size)
    normal = Assumption("the runs are independent and normal")
    covers = coverage(z, runs.size)
    return MeanInterval(float(runs.mean()), half, runs.size, level, covers, method, assumptions=(normal,))


def t_quantile(level: float, n: int) -> float:
    """Return the factor of s / sqrt(n) that covers the mean of n normal runs at this level.

    Args:
        level: Probability of covering the mean.
        n: Number of runs.
    """
    _check_runs(n)
    return float(stdtrit(n - 1, (1 + level) / 2))


def coverage(z: float, n: int) -> float:
    """Return the probability that the mean of n normal runs ± z s / sqrt(n) covers the true mean.

    Args:
        z: The factor.
        n: Number of runs.
    """
    _check_runs(n)
    return float(2 * stdtr(n - 1, z) - 1)


def _check_level(value: float, name: str) -> None:
    """Raise an error unless the value is inside (0, 1)."""
    if not 0.0 < value < 1.0:
        raise ParameterError(f"{name} is {value}", "choose a probability inside (0, 1)")


def _check_runs(n: int) -> None:
    """Raise an error for fewer than two runs."""
    if n < 2:
        raise ParameterError(
            f"the standard deviation of {n} runs is undefined",
            "run at least two seeds, better five or more",
        )
