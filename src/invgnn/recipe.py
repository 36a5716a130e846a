"""How strongly and by which loss a mark is embedded: pure functions and their settings."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from invgnn.errors import ParameterError

Loss = Literal["logistic", "mse"]


@dataclass(frozen=True)
class Recipe:
    """Settings of the embedding; none of them changes how a suspect is read.

    loss      `logistic` on the signed answer, or the paper's `mse` to the target
    beta      weight beside a mean task loss; answers are standardised, so it means the same everywhere
    margin    how far beyond the task's mean a carrier should answer, in standard deviations of the
              model's answers on task inputs
    joint     carriers ride in the task batch (one forward) instead of a forward of their own
    ratio     share of carriers in a joint batch (node tasks: share of the carriers used per step);
              None: all of them in every step
    noise     weight noise under which the mark is trained, relative to the mean absolute weight
    simulate  task-only steps simulated before the gradient of the mark is taken
    penalty   weight of the squared gradient of the paper's head with respect to all parameters
    """

    loss: Loss = "logistic"
    beta: float = 1.0
    margin: float = 1.0
    joint: bool = True
    ratio: float | None = None
    noise: float = 0.0
    simulate: int = 0
    penalty: float = 0.0

    def __post_init__(self) -> None:
        if self.loss not in get_args(Loss):
            raise ParameterError(
                f"unknown loss {self.loss!r}", f"choose one of {', '.join(get_args(Loss))}"
            )
        if not all(value >= 0 for value in (self.beta, self.noise, self.simulate, self.penalty)):
            raise ParameterError(
                "beta, noise, simulate and penalty are not negative", "the default beta is 1"
            )
        if self.ratio is not None and not 0 < self.ratio < 1:
            raise ParameterError(f"ratio={self.ratio} is not in (0, 1)", "the paper uses 0.16")
        if self.joint and (self.noise or self.simulate):
            raise ParameterError(
                "weight noise and simulated steps need a forward pass of their own",
                "set joint=False",
            )

    def record(self) -> dict[str, Any]:
        """The settings as plain values."""
        return asdict(self)


NATURAL_SHARE = 0.25
"""Least spread that answers are measured by, as a share of the spread along a random direction."""


def standardise(answers: Tensor, ordinary: Tensor, natural: Tensor | float = 0.0) -> Tensor:
    """Answers in standard deviations from the model's own ordinary answers.

    Differentiable in both, so moving or stretching all answers together gains nothing and the loss
    cannot drive embeddings away; the `natural` spread along other directions is a floor, so shrinking
    the spread along this one gains nothing either.
    """
    spread = ordinary.std(unbiased=False) if ordinary.numel() > 1 else ordinary.new_ones(())
    floor = 1e-3 * ordinary.detach().abs().mean() + 1e-6
    floor = torch.maximum(floor, NATURAL_SHARE * torch.as_tensor(natural).to(floor))
    return (answers - ordinary.mean()) / torch.maximum(spread, floor)


def logistic_loss(standard: Tensor, bits: Tensor, margin: float) -> Tensor:
    """Mean logistic loss of the signed standardised answers short of the margin."""
    signed = (2 * bits - 1) * standard
    return torch.nn.functional.softplus(2 * (margin - signed)).mean() / 2


def mse_loss(standard: Tensor, targets: Tensor) -> Tensor:
    """Mean squared error between squashed standardised answers and targets in [0, 1]."""
    return (torch.sigmoid(standard) - targets).square().mean()


def perception_loss(perceived: Tensor, targets: Tensor) -> Tensor:
    """The paper's loss: mean squared error of the head's output to the normalised invariant."""
    return (perceived - targets).square().mean()
