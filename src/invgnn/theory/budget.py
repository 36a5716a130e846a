"""The paper's bounds: error rates by Hoeffding, and the drift a composite edit may cause.

Each is given corrected; `form="paper"` gives the literal formula, whose standing is `unproved`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from torch import nn

from invgnn.errors import ParameterError
from invgnn.graphs.disjoint_union import Floats
from invgnn.stats import laws, null
from invgnn.theory.margins import drift
from invgnn.theory.mixing import weakening
from invgnn.theory.statement import Assumption, Standing, Statement

Form = Literal["corrected", "paper"]
Sweep = Iterable[tuple[float, nn.Module | Callable[[], nn.Module]]]
"""Amounts of an edit, each with the edited model or a function that makes it."""

PRUNED = (0.2, 0.4, 0.5)
DISTILLED = (0.25, 0.5, 0.75, 1.0)
"""The amounts of the paper's sweeps: shares of weights pruned, shares of inputs without the teacher."""

MIXING = Assumption("Hoeffding's inequality holds for the matches up to a factor 1 - c of the exponent")


@dataclass(frozen=True)
class Bound(Statement):
    """An upper bound on an error rate, by the corrected or by the paper's literal formula."""

    value: float
    form: Form

    @property
    def standing(self) -> Standing:
        """`vacuous` at 1; `unproved` for the literal formulas."""
        return "vacuous" if self.value >= 1 else "unproved" if self.form == "paper" else "held"


def eps_err(m: int, alpha: float, rho0: float = null.RHO0, form: Form = "corrected") -> float:
    """You get the share of wrong bits allowed at level alpha; tau = ceil(m (1 - eps_err)).

    Under H0 the mean match is 1/2, so the deviation sqrt(ln(1/alpha) / (2 (1 - c) m)) is what eps_err
    falls short of 1/2 by. The paper's formula takes the deviation itself.
    """
    laws.check_m(m)
    laws.check_alpha(alpha)
    deviation = math.sqrt(-math.log(alpha) / (2 * (1 - weakening(rho0)) * m))
    return deviation if form == "paper" else 0.5 - deviation


def alpha_bound(m: int, eps: float, rho0: float = null.RHO0, form: Form = "corrected") -> Bound:
    """You get the bound on Pr[T >= m (1 - eps)] for an innocent suspect (B.3).

    Guarantee: as far as its assumptions, which the exact null does without. The paper's formula puts
    eps where 1/2 - eps belongs.
    """
    deviation = eps if form == "paper" else max(0.0, 0.5 - eps)
    return Bound(_hoeffding(m, deviation, weakening(rho0)), form, assumptions=(MIXING,))


def beta_fn_bound(
    m: int, slack: float, eps: float, r: float = 0.5, rho0: float = null.RHO0, form: Form = "corrected"
) -> Bound:
    """You get the bound on Pr[T < m (1 - eps)] when every answer jitters uniformly in [-r, r] (B.4).

    `slack` is kappa - gamma, the least signed margin left after the edit. A jitter of at most r <= 1/2
    flips a bit with probability at most 1/2 - slack, and none at all if slack > r. So T has mean at least
    m (1/2 + slack), and the bound is vacuous (1) unless slack > 1/2 - eps, slack >= 0 and eps >= 0.

    Guarantee: Hoeffding's, if the jitter is uniform and independent over the carriers; no mixing needed.
    The paper's exp(-2 (1 - c) m slack²) claims it for every symmetric jitter up to 1: it fails for ±1.
    """
    if form == "paper":
        jitter = Assumption("any symmetric jitter flips a bit with probability at most 1/2 - slack", False)
        return Bound(_hoeffding(m, slack, weakening(rho0)), form, assumptions=(MIXING, jitter))
    if not 0 <= r <= 0.5:
        raise ParameterError(f"jitter of width {r}", "the bound holds for 0 <= r <= 1/2")
    sure = slack > r and eps >= 0
    gained = slack - (0.5 - eps) if slack >= 0 <= eps else 0.0
    value = 0.0 if sure else _hoeffding(m, max(0.0, gained), 0.0)
    uniform = Assumption("jitter is uniform in [-r, r] and independent over the carriers")
    return Bound(value, form, assumptions=() if sure else (uniform,))


def _hoeffding(m: int, deviation: float, c: float) -> float:
    laws.check_m(m)
    return math.exp(-2 * (1 - c) * m * deviation**2)


def c_prune(read: Callable[[nn.Module], Floats], base: nn.Module, sweep: Sweep) -> float:
    """You get the largest drift per square root of the pruned share over a sweep (B.5)."""
    return _steepest(read, base, sweep, math.sqrt)


def c_distill(read: Callable[[nn.Module], Floats], base: nn.Module, sweep: Sweep) -> float:
    """You get the largest drift per share pi of inputs without the teacher over a sweep (B.5)."""
    return _steepest(read, base, sweep, float)


def _steepest(
    read: Callable[[nn.Module], Floats],
    base: nn.Module,
    sweep: Sweep,
    size: Callable[[float], float],
) -> float:
    before, slopes = read(base), [0.0]
    for amount, edited in sweep:
        if not 0 < amount <= 1:
            raise ParameterError(f"an edit of amount {amount}", "give shares in (0, 1]")
        model = edited if isinstance(edited, nn.Module) else edited()
        slopes.append(drift(before, read(model)) / size(amount))
    return max(slopes)


@dataclass(frozen=True)
class Budget(Statement):
    """The composite bound L_s·Δ + c_prune·√p + c_distill·π on the drift, beside the drift measured.

    Guarantee: none beyond its assumptions. L_s is a slope at one point and no Lipschitz constant; c_prune
    and c_distill are worst slopes over sweeps on the same carriers, so that they hold for the edits they
    were fitted to and are a guess for others.
    """

    slope: float = 0.0
    shift: float = 0.0
    prune_slope: float = 0.0
    share: float = 0.0
    distill_slope: float = 0.0
    pi: float = 0.0
    gamma: float | None = None

    @property
    def value(self) -> float:
        """The bound; terms of an edit that did not happen are 0."""
        return (
            _times(self.slope, self.shift)
            + _times(self.prune_slope, math.sqrt(self.share))
            + _times(self.distill_slope, self.pi)
        )

    @property
    def standing(self) -> Standing:
        """`vacuous` from 1 on: answers in [0, 1] never drift further."""
        if self.value >= 1:
            return "vacuous"
        if self.gamma is None:
            return "unproved"
        return "held" if self.gamma <= self.value * (1 + 1e-12) else "did not hold"

    def __str__(self) -> str:
        beside = "" if self.gamma is None else f" beside a measured drift of {self.gamma:.3g}"
        return f"{self.value:.3g}{beside} ({self.standing})"


def _times(slope: float, size: float) -> float:
    """A product in which nothing of something infinite is nothing."""
    return slope * size if size else 0.0
