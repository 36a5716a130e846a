"""The constant μ of the Polyak-Łojasiewicz inequality, from recorded losses and gradients."""

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
    """A line through the origin.

    Attributes:
        slope: Its slope.
        low: Lower confidence bound of the slope.
    """

    slope: float
    low: float


@dataclass(frozen=True, kw_only=True)
class Curvature(Statement):
    """Estimates of μ in ½‖∇L‖² ≥ μ (L - L*) from recorded points.

    Guarantee: none beyond the recorded points. The inequality has ½ on its left side, so the line gives
    `fitted` = slope_low / 2. A line with half of the points below it is not a bound, so the certified μ is
    `envelope`.

    Attributes:
        points: Number of recorded points, including the one with the smallest loss.
        slope: Slope of the Huber line of ‖∇L‖² against L - L*, with the largest gradients trimmed.
        slope_low: Its lower confidence bound, which the paper uses as μ.
        envelope: The largest μ for which the inequality holds at every recorded point.
        from_zero: The same with L* = 0, the smallest possible cross-entropy, because the true L* is
            unknown.
    """

    points: int
    slope: float
    slope_low: float
    envelope: float
    from_zero: float

    @property
    def fitted(self) -> float:
        """μ by the regression, with the factor ½ of the inequality."""
        return self.slope_low / 2


def curvature(losses: ArrayLike, squared_gradients: ArrayLike, trim: float = 0.05) -> Curvature:
    """Estimate μ in three ways from losses and squared gradient norms at points near a minimum.

    Args:
        losses: The loss at every point.
        squared_gradients: The squared gradient norm at every point.
        trim: Share of the largest gradients that the regression leaves out.

    Raises:
        ParameterError: If the inputs do not match, are not finite, or if fewer than three points are left.
    """
    loss, square = (np.asarray(a, dtype=np.float64) for a in (losses, squared_gradients))
    if loss.shape != square.shape or loss.ndim != 1:
        raise ParameterError(
            f"losses have shape {loss.shape}, squared gradients {square.shape}",
            "pass one of each per point",
        )
    if not (np.isfinite(loss).all() and np.isfinite(square).all() and (square >= 0).all()):
        raise ParameterError(
            "a loss or squared gradient is negative or not finite",
            "lower the learning rate and record again",
        )
    gap = loss - loss.min(initial=np.inf)
    above = gap > 0
    kept = trimmed(square, trim) & above
    if kept.sum() < 3:
        raise ParameterError(
            f"only {int(kept.sum())} points lie above the smallest loss, at least 3 are needed",
            "record more checkpoints",
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
            Assumption("the smallest recorded loss is the minimum in the neighbourhood"),
            Assumption("the inequality holds between the recorded points as well as at them"),
            Assumption("the regression is a lower bound at every point", line.low / 2 <= envelope),
        ),
    )


def trimmed(norms: ArrayLike, share: float) -> Bools:
    """Return which values are kept when the largest `share` of them, rounded down, is dropped.

    Args:
        norms: The values.
        share: Share to drop, in [0, 1).
    """
    values = np.asarray(norms, dtype=np.float64)
    if not 0 <= share < 1:
        raise ParameterError(f"trim={share} is not in [0, 1)", "the paper uses 0.05")
    kept = np.ones(len(values), dtype=np.bool_)
    kept[np.argsort(values, kind="stable")[len(values) - int(share * len(values)) :]] = False
    return kept


def huber_line(x: ArrayLike, y: ArrayLike, *, delta: float | None = None, level: float = 0.95) -> Line:
    """Fit the line through the origin that minimises the Huber loss of y - slope x, for positive x.

    Guarantee: `low` is asymptotic, for independent points. Consecutive checkpoints are not independent, so
    the true confidence is lower.

    Args:
        x: Positive values.
        y: Values to fit.
        delta: Residual at which the loss changes from squares to absolute values; by default 1.345 robust
            standard deviations of the residuals about the median ratio.
        level: Confidence level of `low`.

    Raises:
        ParameterError: If there are fewer than two points, or some x is not positive.
    """
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if len(x) < 2 or not (x > 0).all():
        raise ParameterError("a line needs at least two points with x > 0", "record more checkpoints")
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
    """Return the slope at which the derivative of the Huber loss is zero.

    The derivative decreases in the slope, and its root lies between the smallest and the largest ratio, so
    bracketing finds it to full precision.
    """
    low, high = float((y / x).min()), float((y / x).max())

    def pull(slope: float) -> float:
        return float((x * np.clip(y - slope * x, -delta, delta)).sum())

    if pull(low) <= 0 or pull(high) >= 0:  # all ratios alike, up to rounding
        return low
    return float(brentq(pull, low, high, xtol=1e-300, rtol=8.9e-16, maxiter=1000))
