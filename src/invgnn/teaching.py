"""How a mark is taught: the loss of a forward pass over carriers and ordinary inputs."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from invgnn.graphs import Graphs
from invgnn.perception import gradient_penalty
from invgnn.query import observe, to_batch, unwrap, weight_of
from invgnn.randomness import kept
from invgnn.reading import Observation, Reading, answer, natural_spread
from invgnn.recipe import SCORE_WEIGHT, in_nats, logistic_loss, mse_loss, perception_loss, standardise

if TYPE_CHECKING:
    from invgnn.watermark import Watermark


def own_loss(
    mark: Watermark,
    model: nn.Module,
    chosen: NDArray[np.int64] | None,
    at: Mapping[str, Tensor],
) -> Tensor:
    """β times the mark's loss from a forward of its own, the model left exactly as found."""
    core = unwrap(model)
    carriers = mark.carriers if chosen is None else mark.carriers.take(chosen)
    batch = batch_like(mark, carriers, weight_of(model), keep=chosen is None)
    swapped = {f"model.{name}": value.clone() for name, value in core.named_buffers()}
    parameters = dict(core.named_parameters())
    swapped |= {f"model.{name}": parameters[name] + shift.detach() for name, shift in at.items()}
    with kept():
        caller = _Caller(mark, core)
        return torch.as_tensor(torch.func.functional_call(caller, swapped, (batch, chosen)))


class _Caller(nn.Module):
    """A model and the mark's loss on it, as one module whose parameters can be swapped for a call."""

    def __init__(self, mark: Watermark, model: nn.Module) -> None:
        super().__init__()
        self.mark, self.model = mark, model

    def forward(self, batch: Any, chosen: NDArray[np.int64] | None) -> Tensor:
        size = self.mark.m if chosen is None else len(chosen)
        seen = observe(self.model, batch, self.mark.layer, self.mark.forward)
        return observed_loss(self.mark, seen, self.model, slice(size), slice(size, None), chosen)


def observed_loss(
    mark: Watermark,
    seen: Observation,
    model: nn.Module,
    carriers: slice,
    ordinary: slice,
    chosen: NDArray[np.int64] | None,
) -> Tensor:
    """β times the loss of one forward pass, given which of its graphs are carriers and which usual."""
    losses = []
    for reading in mark.readings:
        said = answer(seen, reading, mark.direction, model)
        measured = said[carriers]
        if reading.access == "embedding":
            measured = standardise(measured, said[ordinary], natural_spread(seen, reading, ordinary))
        elif reading.access == "logits":
            measured = in_nats(measured, said[ordinary])
        weight = SCORE_WEIGHT if reading.access == "logits" else 1.0
        losses.append(weight * _reading_loss(mark, reading, measured, chosen))
        if mark.recipe.penalty and reading.access == "perception":
            weights: list[Tensor] = [p for p in model.parameters() if p.requires_grad]
            losses[-1] = losses[-1] + mark.recipe.penalty * gradient_penalty(said[carriers], weights)
    return mark.recipe.beta * torch.stack(losses).mean()


def _reading_loss(
    mark: Watermark, reading: Reading, said: Tensor, chosen: NDArray[np.int64] | None
) -> Tensor:
    index = slice(None) if chosen is None else chosen
    targets = torch.as_tensor(mark.targets[index]).to(said)
    if reading.access == "perception":
        return perception_loss(said, targets)
    if mark.recipe.loss == "mse":
        return mse_loss(said, targets)
    bits = torch.as_tensor(mark.bits[index]).to(said)
    return logistic_loss(said, bits, mark.recipe.margin)


def batch_like(mark: Watermark, carriers: Graphs, like: Tensor | None, *, keep: bool) -> Any:
    """Carriers and ordinary inputs, placed as a tensor is; the whole set is made once."""
    held = mark.__dict__.setdefault("_batches", {})
    place = None if like is None else (like.device, like.dtype)
    batch = held.get(place) if keep else None
    if batch is None:
        batch = to_batch(Graphs.concat([carriers, mark.ordinary]), like)
    if keep:
        held[place] = batch
    batch = copy.copy(batch)
    batch.x = None if batch.x is None else batch.x.clone()  # some models write into what they are given
    return batch
