"""μ of the Polyak-Łojasiewicz inequality from recorded losses and gradients: pure functions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.stats import t as student

from invgnn.errors import ParameterError
from invgnn.graphs.disjoint_union import Bools, Floats
from invgnn.theory.statement import Assumption, Statement

HUBER = 1.345  # standard deviations: 95 % as efficient as least squares where errors are normal
NORMAL = 0.6745  # median absolute normal deviation, in standard deviations


@dataclass(frozen=True)
class Line:
    """A line through the origin: its slope, and what it is above with the given confidence."""

    slope: float
    low: float


@dataclass(frozen=True, kw_only=True)
class Curvature(Statement):
    """What recorded points say about ½‖∇L‖² ≥ μ (L - L*).

    points      how many were recorded, that of least loss included
    slope       Huber line of ‖∇L‖² against L - L*, the largest gradients trimmed
    slope_low   its lower confidence bound, which the paper takes for μ as it is
    envelope    the largest μ for which the inequality holds at every recorded point
    from_zero   the same with 0, the least a cross-entropy can be, for an L* that nobody knows

    Guarantee: none beyond the recorded points. The inequality has ½ on its left, so the line gives
    `fitted` = slope_low / 2; and a line that half of the points lie below is no bound at all, so the
    certified μ is `envelope`.
    """

    points: int
    slope: float
    slope_low: float
    envelope: float
    from_zero: float

    @property
    def fitted(self) -> float:
        """μ by the regression, with the half that the inequality has."""
        return self.slope_low / 2


def curvature(losses: ArrayLike, squared_gradients: ArrayLike, trim: float = 0.05) -> Curvature:
    """μ in three ways from the loss and the squared gradient norm at points near a minimum."""
    loss, square = (np.asarray(a, dtype=np.float64) for a in (losses, squared_gradients))
    if loss.shape != square.shape or loss.ndim != 1:
        raise ParameterError(f"losses {loss.shape}, gradients {square.shape}", "give one of each per point")
    if not (np.isfinite(loss).all() and np.isfinite(square).all() and (square >= 0).all()):
        raise ParameterError("a loss or gradient is not finite", "lower the learning rate, and record anew")
    gap = loss - loss.min(initial=np.inf)
    above = gap > 0
    kept = trimmed(square, trim) & above
    if kept.sum() < 3:
        raise ParameterError(
            f"{int(kept.sum())} points lie above the least loss", "record more checkpoints"
        )
    line = huber_line(gap[kept], square[kept])
    envelope = float((square[above] / gap[above]).min() / 2)
    return Curvature(
        points=len(loss),
        slope=line.slope,
        slope_low=line.low,
        envelope=envelope,
        from_zero=float((square / loss).min() / 2) if loss.min() > 0 else 0.0,
        assumptions=(
            Assumption("the least recorded loss is the least there is nearby"),
            Assumption("the inequality holds between the recorded points as it does at them"),
            Assumption("the regression is a lower bound at every point", line.low / 2 <= envelope),
        ),
    )


def trimmed(norms: ArrayLike, share: float) -> Bools:
    """Which values stay when this share of them, rounded down, is dropped from the top."""
    values = np.asarray(norms, dtype=np.float64)
    if not 0 <= share < 1:
        raise ParameterError(f"trim={share} is not in [0, 1)", "the paper trims 0.05")
    kept = np.ones(len(values), dtype=np.bool_)
    kept[np.argsort(values, kind="stable")[len(values) - int(share * len(values)) :]] = False
    return kept


def huber_line(x: ArrayLike, y: ArrayLike, *, delta: float | None = None, level: float = 0.95) -> Line:
    """The line through the origin that minimises the Huber loss of y - slope x, for positive x.

    `delta` is where the loss turns from squares to absolute values; by default 1.345 robust standard
    deviations of the residuals about the median ratio.

    Guarantee: `low` is asymptotic, for independent points. Consecutive checkpoints are not independent,
    and the true confidence is then less.
    """
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if len(x) < 2 or not (x > 0).all():
        raise ParameterError("a line needs two points with x above 0", "record more checkpoints")
    ratio = y / x
    if delta is None:
        delta = HUBER * float(np.median(np.abs(y - np.median(ratio) * x))) / NORMAL
    slope = _root(x, y, delta) if delta > 0 else float(np.median(ratio))
    pull = np.clip(y - slope * x, -delta, delta)
    within = np.abs(y - slope * x) <= delta
    bend = float((x**2)[within].sum())
    if bend == 0:
        return Line(slope, -np.inf if pull.any() else slope)
    error = np.sqrt(len(x) / (len(x) - 1) * ((x * pull) ** 2).sum()) / bend
    return Line(slope, slope - float(student.ppf(level, len(x) - 1) * error))


def _root(x: Floats, y: Floats, delta: float) -> float:
    """Where the derivative of the loss is zero: it falls in the slope, between the least and the largest
    ratio, so bracketing finds it to the last digit.
    """
    low, high = float((y / x).min()), float((y / x).max())

    def pull(slope: float) -> float:
        return float((x * np.clip(y - slope * x, -delta, delta)).sum())

    if pull(low) <= 0 or pull(high) >= 0:  # all ratios alike, up to rounding
        return low
    return float(brentq(pull, low, high, xtol=1e-300, rtol=8.9e-16, maxiter=1000))
