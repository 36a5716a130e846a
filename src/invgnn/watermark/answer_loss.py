"""The loss of answers on carriers, with its gradient, as one node of the autograd graph.

The tensors are small, so the number of recorded operations decides the cost. Forward and backward took 0.28
instead of 0.33 ms with a GIN model on NCI1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from invgnn.readout.reading import NATURAL_SHARE, Access
from invgnn.watermark.losses import MARGIN, NAT_SHARE, SCORE_WEIGHT, SPREAD_SHARE
from invgnn.watermark.recipe import Loss


@dataclass(frozen=True)
class _Scale:
    """How answers of an access level are scaled: (answer - centre) / (unit + share * spread).

    Attributes:
        centre: 1 if answers are relative to the mean of ordinary answers, else 0.
        own: 1 if answers are relative to the centre of the carriers, else 0: halfway between the mean
            answers of both bits. They are decoded at their own median, and real-valued outputs on carriers
            may all be far from those on ordinary inputs, which need not change.
        unit: The fixed part of the divisor.
        share: How much of the spread of ordinary answers is in the divisor.
        narrows: Whether the gradient takes account of the spread. At real-valued outputs it does not: the
            loss must not fall because all task inputs get the same output.
        weight: Weight of the loss. The task depends on the outputs, so they have less.
    """

    centre: float = 1.0
    own: float = 0.0
    unit: float = 0.0
    share: float = 0.0
    narrows: float = 0.0
    weight: float = 1.0


_SCALES: dict[str, _Scale] = {
    "embedding": _Scale(share=1.0, narrows=1.0),
    "logits": _Scale(unit=NAT_SHARE, weight=SCORE_WEIGHT),
    "values": _Scale(centre=0.0, own=1.0, share=SPREAD_SHARE, weight=SCORE_WEIGHT),
    "labels": _Scale(centre=0.0, unit=1.0),
}


@lru_cache(maxsize=64)
def _scales(levels: tuple[Access, ...], dtype: torch.dtype, device: torch.device) -> tuple[Tensor, ...]:
    """Return the fields of the scales of some access levels, one row each."""
    found = [_SCALES[level] for level in levels]
    columns = zip(*map(astuple, found), strict=True)
    with torch.inference_mode(False):
        return tuple(torch.tensor(c, dtype=dtype, device=device).unsqueeze(1) for c in columns)


def answer_loss(
    answers: Tensor,
    levels: Sequence[Access],
    natural: Tensor,
    carriers: slice,
    ordinary: slice,
    wanted: Tensor,
    loss: Loss,
) -> Tensor:
    """Return the weighted sum of the losses of some readings.

    `logistic` is the mean of softplus(margin - sign * answer), with answers in standard deviations of
    ordinary answers at an embedding, in quarters of a nat at class scores, and in quarters of the spread at
    real-valued outputs. `mse` is the squared error of the squashed answers.

    Args:
        answers: One row of answers per reading, one column per graph of the batch.
        levels: The access level of every row.
        natural: Spread of the answers of every row along a random direction, without gradient. It limits
            the spread from below, so that reducing the spread along the secret direction has no effect.
        carriers: Which columns are carriers.
        ordinary: Which columns are ordinary inputs.
        wanted: The bits of the carriers, or with `mse` their targets.
        loss: Which loss.
    """
    scales = _scales(tuple(levels), answers.dtype, answers.device)
    relative = any(_SCALES[level].own for level in levels)
    return _AnswerLoss.apply(answers, scales, relative, natural, carriers, ordinary, wanted, loss)  # type: ignore[no-any-return,no-untyped-call]


class _AnswerLoss(torch.autograd.Function):
    """The loss, which computes its gradient at once."""

    @staticmethod
    def forward(
        ctx: Any,
        answers: Tensor,
        scales: tuple[Tensor, ...],
        relative: bool,
        natural: Tensor,
        carriers: slice,
        ordinary: slice,
        wanted: Tensor,
        loss: Loss,
    ) -> Tensor:
        """Return the loss, and keep its gradient."""
        centre, own, unit, share, narrows, weight = scales
        found, usual = answers[:, carriers], answers[:, ordinary]
        mean = usual.mean(1, keepdim=True)
        away, spread, floor = _spread(usual, mean, natural)
        divisor = torch.addcmul(unit, share, torch.maximum(spread, floor))
        shares = _shares(wanted) if relative else None
        if relative and shares is None:  # carriers of one bit have no centre between the two
            centre = centre + own
        zero = centre * mean
        if shares is not None:
            zero = zero + own * (shares * found).sum(1, keepdim=True)
        standard = (found - zero) / divisor
        losses, slope = (_logistic if loss == "logistic" else _squared)(standard, wanted)
        slope = slope * (weight / (found.shape[1] * divisor))
        total = slope.sum(1, keepdim=True)
        turned = (slope * standard).sum(1, keepdim=True) * (narrows * (spread >= floor) / spread)
        gradient = torch.zeros_like(answers)
        gradient[:, carriers] = slope if shares is None else slope - own * shares * total
        gradient[:, ordinary] = torch.addcmul(centre * total, turned, away).div_(-usual.shape[1])
        ctx.save_for_backward(gradient)
        return (weight * losses.mean(1, keepdim=True)).sum()

    @staticmethod
    def backward(ctx: Any, above: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradient of the answers."""
        (gradient,) = ctx.saved_tensors
        return above * gradient, None, None, None, None, None, None, None


def _shares(wanted: Tensor) -> Tensor | None:
    """Return the share of every carrier in the centre of both bits; None if all have the same bit."""
    ones = (wanted > 0.5).to(wanted.dtype)
    count = float(ones.sum())
    if count in {0, len(wanted)}:
        return None
    return ones * (0.5 / count) + (1 - ones) * (0.5 / (len(wanted) - count))


def _spread(usual: Tensor, mean: Tensor, natural: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the distances of ordinary answers from their mean, their spread and its lower limit."""
    away = usual - mean
    spread = away.square().mean(1, keepdim=True).sqrt()
    if usual.shape[1] < 2:
        return away, torch.ones_like(spread), torch.ones_like(spread)
    floor = 1e-3 * usual.abs().mean(1, keepdim=True) + 1e-6
    return away, spread.clamp(min=1e-30), torch.maximum(floor, NATURAL_SHARE * natural.unsqueeze(1))


def _logistic(standard: Tensor, bits: Tensor) -> tuple[Tensor, Tensor]:
    """Return the logistic loss of every answer and its derivative."""
    against = 1 - 2 * bits
    short = torch.addcmul(standard.new_full((), MARGIN), against, standard)
    return softplus(short, beta=2), against * torch.sigmoid(2 * short)


def _squared(standard: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return the squared error of every squashed answer and its derivative."""
    squashed = torch.sigmoid(standard)
    error = squashed - targets
    return error.square(), 2 * error * squashed * (1 - squashed)
