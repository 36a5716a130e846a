"""How strong a mark may be so that the task does not notice: Theorem 1, its bound, and its check."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from invgnn.errors import ParameterError
from invgnn.theory.statement import Assumption, Standing, Statement

Bound = Literal["corrected", "paper"]
"""`corrected`: what the proof shows. `paper`: twice as large, as the theorem is printed; unsound."""


class Constants(NamedTuple):
    """What the paper prints for one setting: tolerance, μ, L_s and the weight it chose."""

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
"""The paper's table of constants; each weight exceeds the corrected bound of its own row."""


def beta_max(mu: float, eps: float, lipschitz: float, bound: Bound = "corrected") -> float:
    """The largest weight β of the mark for which Theorem 1 promises a task loss within `eps` of the best.

    mu         of ½‖∇L‖² ≥ μ (L - L*) around the minimum
    eps        tolerated increase of the task loss
    lipschitz  bound on ‖∇s(G)‖ over all carriers

    Guarantee: at an interior minimiser of L + β · mean (s - t)² with s, t in [0, 1] the task's gradient is
    at most 2 β L_s, so the gap is at most 2 β² L_s² / μ, which is `eps` at the corrected bound. The
    literal bound of the paper forgets the 2 and allows a gap of 4 `eps`.
    """
    if bound not in get_args(Bound):
        raise ParameterError(f"unknown bound {bound!r}", f"choose one of {', '.join(get_args(Bound))}")
    _check(mu, eps, lipschitz)
    if lipschitz == 0:
        return math.inf
    literal = math.sqrt(2 * mu * eps) / lipschitz
    return literal if bound == "paper" else literal / 2


def pull_bound(beta: float, lipschitz: float) -> float:
    """How hard the mark can pull at a weight β: β times its gradient has norm 2 β L_s at most.

    Guarantee: for mean squares of s - t with s, t in [0, 1] and ‖∇s‖ ≤ L_s (Lemmas A.2). At an interior
    minimum of the sum the task's gradient is the same but for its sign.
    """
    _check(0.0, beta, lipschitz)
    return 2 * beta * lipschitz


def gap_bound(beta: float, mu: float, lipschitz: float) -> float:
    """How far above the best the task loss can be at a weight β, as the proof shows: 2 β² L_s² / μ."""
    _check(mu, beta, lipschitz)
    square = pull_bound(beta, lipschitz) ** 2
    return 0.0 if square == 0 else square / (2 * mu) if mu > 0 else math.inf


def _check(mu: float, size: float, lipschitz: float) -> None:
    if not all(0 <= value < math.inf for value in (mu, size, lipschitz)):
        raise ParameterError(
            f"mu={mu}, eps or beta={size}, L_s={lipschitz}", "none of them is negative or infinite"
        )


@dataclass(frozen=True, kw_only=True)
class Imperceptibility(Statement):
    """Theorem 1 held against a trained model.

    beta       weight it was trained with
    beta_max   the most that is certified for `eps`
    gap        its task loss less that of the reference, as measured
    gradient   norm of its task gradient; the proof says at most `pull` = 2 β L_s
    distance   of its parameters from the reference; the inequality was seen within `radius`

    Guarantee: if `checked`, the gap is at most `eps` by the theorem; `standing` says what was measured.
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
        """Whether the model lies where the inequality was seen to hold."""
        return self.distance <= self.radius

    @property
    def standing(self) -> Standing:
        """`vacuous` where a premise fails, the certified weight among them: nothing is promised then."""
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
    """The theorem on one trained model, each of its assumptions looked at where that is possible."""
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
            Assumption("the weight is at most the certified one", beta <= beta_max),
            Assumption(
                "training ended at a minimum of the sum: task gradient <= 2 beta L_s", gradient <= pull
            ),
            Assumption("the model lies in the neighbourhood of the fit", distance <= radius),
            Assumption(
                "the task loss is one function of the parameters: no running statistics", fixed_buffers
            ),
            Assumption("L_s bounds the perception's gradients at other checkpoints too", covered),
            Assumption("the inequality holds throughout the neighbourhood"),
        ),
    )
