"""Intervals that cover what they say: for a share of many trials, and for a mean over few runs."""

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
    """A share seen as `ones` of `n` trials, with a lower and an upper bound, each of level 1 - delta."""

    ones: int
    n: int
    delta: float
    lower: float
    upper: float
    method: ShareMethod


def bound_share(ones: int, n: int, delta: float = 0.05, method: ShareMethod = "clopper-pearson") -> Share:
    """You get one-sided bounds on the probability behind `ones` successes in `n` trials.

    Guarantee: `clopper-pearson` errs on either side with probability at most delta, whatever the
    probability and n, if trials are independent. `paper` takes quantiles of Beta(1 + x, 1 + n - x), the
    Bayesian posterior under a flat prior: for a probability near 0 its lower bound errs far more often.
    """
    if not 0 <= ones <= n or n < 1:
        raise ParameterError(f"{ones} ones among {n} trials", "count ones out of at least one trial")
    _check_level(delta, "delta")
    if method == "paper":
        low, high = (float(betaincinv(1 + ones, 1 + n - ones, u)) for u in (delta, 1 - delta))
    else:
        low = float(betaincinv(ones, n - ones + 1, delta)) if ones else 0.0
        high = float(betaincinv(ones + 1, n - ones, 1 - delta)) if ones < n else 1.0
    trials = Assumption("the trials are independent with one probability")
    prior = Assumption("the probability itself was drawn uniformly from [0, 1]", False)
    rests = (trials, prior) if method == "paper" else (trials,)
    return Share(ones, n, delta, low, high, method, assumptions=rests)


@dataclass(frozen=True)
class MeanInterval(Statement):
    """A mean over `n` runs, plus or minus `half`: the level it claims, and how often it truly covers."""

    mean: float
    half: float
    n: int
    level: float
    covers: float
    method: MeanMethod

    def __str__(self) -> str:
        return f"{self.mean:.4g} ± {self.half:.2g} ({self.covers:.0%}, n={self.n})"


def mean_interval(values: ArrayLike, level: float = 0.95, method: MeanMethod = "student") -> MeanInterval:
    """You get the mean of a few runs with an interval: Student's, or the paper's normal one.

    Guarantee: for independent normal values `student` covers the true mean with probability `level`
    exactly. `paper` uses the normal quantile, 1.96 for 95 %, as if the spread were known: over three
    runs it covers 81 %; `covers` says how often.
    """
    runs = np.asarray(values, dtype=np.float64)
    _check_runs(runs.size)
    _check_level(level, "level")
    if not np.isfinite(runs).all():
        raise ParameterError("a run gave no finite number", "leave out no run in silence: find out why")
    z = t_quantile(level, runs.size) if method == "student" else float(ndtri((1 + level) / 2))
    half = z * float(runs.std(ddof=1)) / math.sqrt(runs.size)
    normal = Assumption("the runs are independent and normal")
    covers = coverage(z, runs.size)
    return MeanInterval(float(runs.mean()), half, runs.size, level, covers, method, assumptions=(normal,))


def t_quantile(level: float, n: int) -> float:
    """You get the factor of s / sqrt(n) that covers the mean of n normal runs at this level."""
    _check_runs(n)
    return float(stdtrit(n - 1, (1 + level) / 2))


def coverage(z: float, n: int) -> float:
    """You get how often the mean of n normal runs ± z s / sqrt(n) covers the true mean."""
    _check_runs(n)
    return float(2 * stdtr(n - 1, z) - 1)


def _check_level(value: float, name: str) -> None:
    if not 0.0 < value < 1.0:
        raise ParameterError(f"{name} is {value}", "give a probability inside (0, 1)")


def _check_runs(n: int) -> None:
    if n < 2:
        raise ParameterError(f"{n} runs have no spread", "run at least two seeds; three tell little")
