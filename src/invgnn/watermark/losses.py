"""The losses that embed a mark, as pure functions."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import softplus

MARGIN = 1.0
"""How far beyond the mean of ordinary answers a carrier should answer, in standard deviations."""

NAT_SHARE = 0.25
"""How much log-probability counts as one standard deviation."""

SPREAD_SHARE = 0.25
"""How much of the spread of ordinary real-valued outputs counts as one standard deviation."""

SCORE_WEIGHT = 0.5
"""Weight of the loss at outputs beside that at an embedding: the task depends on the outputs."""


def in_nats(answers: Tensor, ordinary: Tensor) -> Tensor:
    """Return class scores relative to the mean of ordinary ones, in units of a quarter of a nat.

    Scores have a scale of their own. Measured by their spread, the mark's loss would fall if all task
    inputs got the same scores, which would destroy the task.
    """
    return (answers - ordinary.mean()) / NAT_SHARE


def in_spreads(answers: Tensor, ordinary: Tensor) -> Tensor:
    """Return real-valued outputs relative to the mean of ordinary ones, in quarters of their spread.

    The spread has no gradient: the loss must not fall because all task inputs get the same output.
    """
    values = ordinary.detach()
    spread = values.std(correction=0) if values.numel() > 1 else torch.ones_like(values).sum()
    floor = 1e-3 * values.abs().mean() + 1e-6
    return (answers - ordinary.mean()) / (SPREAD_SHARE * torch.maximum(spread, floor))


def logistic_loss(standard: Tensor, bits: Tensor, margin: float = MARGIN) -> Tensor:
    """Return the mean logistic loss of signed standardised answers below the margin, of every row."""
    return softplus(margin - (2 * bits - 1) * standard, beta=2).mean(-1)


def mse_loss(standard: Tensor, targets: Tensor) -> Tensor:
    """Return the mean squared error of squashed standardised answers to targets in [0, 1], of every row."""
    return (torch.sigmoid(standard) - targets).square().mean(-1)


def perception_loss(perceived: Tensor, targets: Tensor) -> Tensor:
    """Return the paper's loss: mean squared error of the head's output to the normalised invariant."""
    return (perceived - targets).square().mean()
