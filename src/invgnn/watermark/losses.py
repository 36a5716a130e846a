"""Constants of the losses that embed a mark, and the loss of the paper."""

from __future__ import annotations

from torch import Tensor

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


def perception_loss(perceived: Tensor, targets: Tensor) -> Tensor:
    """Return the paper's loss: mean squared error of the head's output to the normalised invariant."""
    return (perceived - targets).square().mean()
