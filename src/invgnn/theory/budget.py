"""The paper's bounds: Hoeffding bounds on the error rates, and a bound on the drift of a composite edit.

Each bound is given in a corrected form. `form="paper"` gives the paper's literal formula, whose standing is
`unproved`.
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
"""Pairs of an amount of an edit and the edited model, or a function that returns it."""

PRUNED = (0.2, 0.4, 0.5)
DISTILLED = (0.25, 0.5, 0.75, 1.0)
"""The amounts in the paper's sweeps: shares of pruned weights, shares of inputs without teacher scores."""

MIXING = Assumption("Hoeffding's inequality holds for the matches up to a factor 1 - c of the exponent")


@dataclass(frozen=True)
class Bound(Statement):
    """An upper bound on an error rate, by the corrected or by the paper's literal formula.

    Attributes:
        value: The bound.
        form: Which formula was used.
    """

    value: float
    form: Form

    @property
    def standing(self) -> Standing:
        """`vacuous` from 1 on, `unproved` for the paper's literal formulas, `held` otherwise."""
        return "vacuous" if self.value >= 1 else "unproved" if self.form == "paper" else "held"


def eps_err(m: int, alpha: float, rho0: float = null.RHO0, form: Form = "corrected") -> float:
    """Return the share of wrong bits that is allowed at level alpha.

    The threshold is tau = ceil(m (1 - eps_err)). Under H0 the mean share of matches is 1/2, so eps_err is
    1/2 minus the deviation sqrt(ln(1/alpha) / (2 (1 - c) m)). The paper's formula uses the deviation
    itself.

    Args:
        m: Number of carriers.
        alpha: Significance level.
        rho0: Bound on the dependence between carriers; c = min(4 rho0, 1/2).
        form: "corrected", or "paper" for the literal formula.
    """
    laws.check_m(m)
    laws.check_alpha(alpha)
    deviation = math.sqrt(-math.log(alpha) / (2 * (1 - weakening(rho0)) * m))
    return deviation if form == "paper" else 0.5 - deviation


def alpha_bound(m: int, eps: float, rho0: float = null.RHO0, form: Form = "corrected") -> Bound:
    """Return a bound on Pr[T >= m (1 - eps)] for a suspect that is independent of the secret (B.3).

    Guarantee: holds only under its assumptions, which the exact null does not need. The paper's formula
    uses eps in place of 1/2 - eps.

    Args:
        m: Number of carriers.
        eps: Allowed share of wrong bits.
        rho0: Bound on the dependence between carriers.
        form: "corrected", or "paper" for the literal formula.
    """
    deviation = eps if form == "paper" else max(0.0, 0.5 - eps)
    return Bound(_hoeffding(m, deviation, weakening(rho0)), form, assumptions=(MIXING,))


def beta_fn_bound(
    m: int, slack: float, eps: float, r: float = 0.5, rho0: float = null.RHO0, form: Form = "corrected"
) -> Bound:
    """Return a bound on Pr[T < m (1 - eps)] if every answer is perturbed uniformly within [-r, r] (B.4).

    A perturbation of at most r <= 1/2 flips a bit with probability at most 1/2 - slack, and never if slack
    > r. So T has a mean of at least m (1/2 + slack), and the bound is vacuous (1) unless slack > 1/2 - eps,
    slack >= 0 and eps >= 0.

    Guarantee: Hoeffding's inequality, if the perturbations are uniform and independent over the carriers;
    no mixing assumption is needed. The paper's exp(-2 (1 - c) m slack²) is claimed for every symmetric
    perturbation up to 1. It is false for perturbations of ±1.

    Args:
        m: Number of carriers.
        slack: kappa - gamma, the smallest signed margin that is left after the edit.
        eps: Allowed share of wrong bits.
        r: Largest perturbation of an answer, in [0, 1/2].
        rho0: Bound on the dependence between carriers; used by the paper's formula only.
        form: "corrected", or "paper" for the literal formula.

    Raises:
        ParameterError: If r is outside [0, 1/2] in the corrected form.
    """
    if form == "paper":
        jitter = Assumption("any symmetric jitter flips a bit with probability at most 1/2 - slack", False)
        return Bound(_hoeffding(m, slack, weakening(rho0)), form, assumptions=(MIXING, jitter))
    if not 0 <= r <= 0.5:
        raise ParameterError(f"jitter of width {r}", "choose r in [0, 1/2], where the bound holds")
    sure = slack > r and eps >= 0
    gained = slack - (0.5 - eps) if slack >= 0 <= eps else 0.0
    value = 0.0 if sure else _hoeffding(m, max(0.0, gained), 0.0)
    uniform = Assumption("jitter is uniform in [-r, r] and independent over the carriers")
    return Bound(value, form, assumptions=() if sure else (uniform,))


def _hoeffding(m: int, deviation: float, c: float) -> float:
    """Return Hoeffding's bound with the exponent weakened by a factor 1 - c."""
    laws.check_m(m)
    return math.exp(-2 * (1 - c) * m * deviation**2)


def c_prune(read: Callable[[nn.Module], Floats], base: nn.Module, sweep: Sweep) -> float:
    """Return the largest drift per square root of the pruned share over a sweep (B.5).

    Args:
        read: Returns the answers of a model on the carriers, in [0, 1].
        base: The model before pruning.
        sweep: Pairs of a pruned share in (0, 1] and the pruned model.
    """
    return _steepest(read, base, sweep, math.sqrt)


def c_distill(read: Callable[[nn.Module], Floats], base: nn.Module, sweep: Sweep) -> float:
    """Return the largest drift per share pi of inputs without teacher scores over a sweep (B.5).

    Args:
        read: Returns the answers of a model on the carriers, in [0, 1].
        base: The teacher.
        sweep: Pairs of a share pi in (0, 1] and the student.
    """
    return _steepest(read, base, sweep, float)


def _steepest(
    read: Callable[[nn.Module], Floats],
    base: nn.Module,
    sweep: Sweep,
    size: Callable[[float], float],
) -> float:
    """Return the largest drift divided by `size(amount)` over a sweep, at least 0."""
    before, slopes = read(base), [0.0]
    for amount, edited in sweep:
        if not 0 < amount <= 1:
            raise ParameterError(f"the amount of an edit is {amount}", "use shares in (0, 1]")
        model = edited if isinstance(edited, nn.Module) else edited()
        slopes.append(drift(before, read(model)) / size(amount))
    return max(slopes)


@dataclass(frozen=True)
class Budget(Statement):
    """The composite bound L_s·Δ + c_prune·√p + c_distill·π on the drift, next to the measured drift.

    Guarantee: none beyond its assumptions. L_s is the slope at one point and not a Lipschitz constant.
    c_prune and c_distill are the largest slopes over sweeps on the same carriers, so they hold for the
    edits they were fitted to and are an extrapolation for others.

    Attributes:
        slope: L_s, the slope of the answers with respect to the parameters.
        shift: Δ, the distance between the parameters before and after the edit.
        prune_slope: c_prune.
        share: p, the pruned share.
        distill_slope: c_distill.
        pi: π, the share of inputs without teacher scores.
        gamma: The measured drift, if any.
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
        """The bound; the term of an edit that was not made is 0."""
        return (
            _times(self.slope, self.shift)
            + _times(self.prune_slope, math.sqrt(self.share))
            + _times(self.distill_slope, self.pi)
        )

    @property
    def standing(self) -> Standing:
        """`vacuous` from 1 on, because answers in [0, 1] cannot drift further."""
        if self.value >= 1:
            return "vacuous"
        if self.gamma is None:
            return "unproved"
        return "held" if self.gamma <= self.value * (1 + 1e-12) else "did not hold"

    def __str__(self) -> str:
        beside = "" if self.gamma is None else f" beside a measured drift of {self.gamma:.3g}"
        return f"{self.value:.3g}{beside} ({self.standing})"


def _times(slope: float, size: float) -> float:
    """Return the product, with 0 times infinity equal to 0."""
    return slope * size if size else 0.0
