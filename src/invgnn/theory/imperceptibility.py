"""Theorem 1: the largest weight of a mark that keeps the task loss within a tolerance, and its check."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from invgnn.errors import ParameterError
from invgnn.theory.statement import Assumption, Standing, Statement

Bound = Literal["corrected", "paper"]
"""`corrected`: the bound that the proof shows. `paper`: the printed bound, twice as large and unsound."""


class Constants(NamedTuple):
    """The constants that the paper prints for one setting.

    Attributes:
        eps: Tolerance.
        mu: μ.
        lipschitz: L_s.
        beta: The weight that the paper chose.
    """

    eps: float
    mu: float
    lipschitz: float
    beta: float


PAPER_CONSTANTS = {
    "Cora/GCN": Constants(0.012, 0.85, 1120, 9.5e-5),
    "Cora/GraphSAGE": Constants(0.010, 0.72, 1250, 8.0e-5),
    "Cora/SGC": Constants(0.015, 0.91, 1050, 1.2e-4),
    "PubMed/GCN": Constants(0.015, 0.65, 1400, 9.0e-5),
    "Photo/GraphSAGE": Constants(0.010, 0.58, 1550, 6.5e-5),
    "PROTEINS/GIN": Constants(0.020, 0.42, 1880, 5.5e-5),
    "NCI1/GIN": Constants(0.018, 0.45, 1950, 5.0e-5),
}
"""The paper's table of constants; each weight exceeds the corrected bound for its row."""


def beta_max(mu: float, eps: float, lipschitz: float, bound: Bound = "corrected") -> float:
    """Return the largest weight β for which Theorem 1 bounds the increase of the task loss by `eps`.

    Guarantee: at an interior minimiser of L + β · mean (s - t)² with s, t in [0, 1] the task's gradient is
    at most 2 β L_s, so the gap is at most 2 β² L_s² / μ, which is `eps` at the corrected bound. The paper's
    literal bound omits the factor 2 and allows a gap of 4 `eps`.

    Args:
        mu: μ of ½‖∇L‖² ≥ μ (L - L*) around the minimum.
        eps: Tolerated increase of the task loss.
        lipschitz: Bound on ‖∇s(G)‖ over all carriers.
        bound: "corrected", or "paper" for the literal bound.

    Raises:
        ParameterError: If the bound is unknown, or a number is negative or infinite.
    """
    if bound not in get_args(Bound):
        raise ParameterError(f"unknown bound {bound!r}", f"choose one of {', '.join(get_args(Bound))}")
    _check(mu, eps, lipschitz)
    if lipschitz == 0:
        return math.inf
    literal = math.sqrt(2 * mu * eps) / lipschitz
    return literal if bound == "paper" else literal / 2


def pull_bound(beta: float, lipschitz: float) -> float:
    """Return 2 β L_s, the largest norm that β times the mark's gradient can have.

    Guarantee: for mean squares of s - t with s, t in [0, 1] and ‖∇s‖ ≤ L_s (Lemmas A.2). At an interior
    minimum of the sum, the task's gradient is the negative of this gradient.

    Args:
        beta: Weight of the mark.
        lipschitz: L_s.
    """
    _check(0.0, beta, lipschitz)
    return 2 * beta * lipschitz


def gap_bound(beta: float, mu: float, lipschitz: float) -> float:
    """Return 2 β² L_s² / μ, the largest increase of the task loss at a weight β that the proof allows.

    Args:
        beta: Weight of the mark.
        mu: μ of the Polyak-Łojasiewicz inequality.
        lipschitz: L_s.
    """
    _check(mu, beta, lipschitz)
    square = pull_bound(beta, lipschitz) ** 2
    return 0.0 if square == 0 else square / (2 * mu) if mu > 0 else math.inf


def _check(mu: float, size: float, lipschitz: float) -> None:
    """Raise an error if a number is negative or not finite."""
    if not all(0 <= value < math.inf for value in (mu, size, lipschitz)):
        raise ParameterError(
            f"mu={mu}, eps or beta={size}, L_s={lipschitz}", "use finite numbers that are not negative"
        )


@dataclass(frozen=True, kw_only=True)
class Imperceptibility(Statement):
    """Theorem 1, checked on a trained model.

    Guarantee: if `checked`, the gap is at most `eps` by the theorem; `standing` compares it with the
    measurement.

    Attributes:
        beta: Weight of the mark in training.
        beta_max: Largest weight that is certified for `eps`.
        eps: Tolerated increase of the task loss.
        gap: Measured task loss minus that of the reference.
        gradient: Norm of the task gradient; at most `pull` by the proof.
        pull: 2 β L_s.
        distance: Distance of the parameters from the reference.
        radius: Distance within which the inequality was observed.
    """

    beta: float
    beta_max: float
    eps: float
    gap: float
    gradient: float
    pull: float
    distance: float
    radius: float

    @property
    def inside(self) -> bool:
        """Whether the model lies where the inequality was observed to hold."""
        return self.distance <= self.radius

    @property
    def standing(self) -> Standing:
        """`vacuous` if a premise fails, `held` if the gap is at most `eps`, `did not hold` otherwise."""
        if self.beta > self.beta_max or any(given.holds is False for given in self.assumptions):
            return "vacuous"
        return "held" if self.gap <= self.eps else "did not hold"


def check_theorem(
    *,
    beta: float,
    beta_max: float,
    eps: float,
    gap: float,
    gradient: float,
    lipschitz: float,
    distance: float,
    radius: float,
    covered: bool | None = None,
    fixed_buffers: bool | None = None,
) -> Imperceptibility:
    """Check the theorem on one trained model, including each assumption that can be checked.

    Args:
        beta: Weight of the mark in training.
        beta_max: Largest weight that is certified for `eps`.
        eps: Tolerated increase of the task loss.
        gap: Measured task loss minus that of the reference.
        gradient: Norm of the task gradient.
        lipschitz: L_s.
        distance: Distance of the parameters from the reference.
        radius: Distance within which the inequality was observed.
        covered: Whether L_s bounds the gradients at other checkpoints; None if not checked.
        fixed_buffers: Whether the model has no running statistics; None if not checked.
    """
    pull = pull_bound(beta, lipschitz)
    return Imperceptibility(
        beta=beta,
        beta_max=beta_max,
        eps=eps,
        gap=gap,
        gradient=gradient,
        pull=pull,
        distance=distance,
        radius=radius,
        assumptions=(
            Assumption("the weight is at most the certified weight", beta <= beta_max),
            Assumption(
                "training ended at a minimum of the total loss: task gradient <= 2 beta L_s",
                gradient <= pull,
            ),
            Assumption("the model lies in the neighbourhood of the fit", distance <= radius),
            Assumption(
                "the task loss is one function of the parameters: no running statistics", fixed_buffers
            ),
            Assumption("L_s bounds the perception's gradients at other checkpoints too", covered),
            Assumption("the inequality holds throughout the neighbourhood"),
        ),
    )
