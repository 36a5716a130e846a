"""The loss of a mark: from one forward pass over carriers, mixed into a batch or on their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm
from torch.overrides import TorchFunctionMode

from invgnn.graphs.attributed import Shown
from invgnn.nn.forward import observe, unwrap, weight_of
from invgnn.nn.layers import batch_norms
from invgnn.nn.observation import Observation, full
from invgnn.nn.perception import head_penalty
from invgnn.nn.rng import preserved_rng
from invgnn.nn.separate_pass import cloned_buffers, each_within, sent_back_within, swapped
from invgnn.readout.reading import Reading, answer, natural_spread
from invgnn.watermark.answer_loss import answer_loss
from invgnn.watermark.carrier_batches import Wanted
from invgnn.watermark.losses import perception_loss
from invgnn.watermark.protocol import Embeddable
from invgnn.watermark.schedule import Portion


def own_loss(mark: Embeddable, model: nn.Module, portion: Portion | None) -> Tensor:
    """Return the weighted loss of a mark from a forward pass of its own; the model is left unchanged.

    Args:
        mark: The mark.
        model: The model, in any mode.
        portion: The carriers to use; None for all.
    """
    core = unwrap(model)
    chosen = None if portion is None else portion.carriers
    carriers = mark.batches.carriers if chosen is None else mark.batches.carriers.take(chosen)
    batch = mark.batches.with_ordinary(portion, weight_of(model))
    size, buffers = len(carriers), cloned_buffers(core)
    statistics = _OrdinaryStatistics(carriers, batch)

    @contextmanager
    def again() -> Iterator[None]:
        with preserved_rng(), swapped(buffers), each_within(batch_norms(core), statistics):
            yield

    with preserved_rng(), statistics, swapped(buffers):
        seen = observe(core, batch, mark.layer, mark.forward)
        wanted = mark.batches.wanted(chosen, seen.scores)
        loss = observed_loss(mark, seen, core, slice(size), slice(size, None), wanted)
    return sent_back_within(loss, core, again)


class _OrdinaryStatistics(TorchFunctionMode):
    """A block in which BatchNorm takes its statistics from the ordinary inputs of a batch only.

    The ordinary inputs follow the carriers in the batch. A suspect's BatchNorm holds statistics of the
    task, and carriers are read by those. A norm that keeps no statistics, or whose rows are not nodes,
    graphs or edges, takes its statistics from all rows.
    """

    def __init__(self, carriers: Shown, batch: Any) -> None:
        super().__init__()
        edges, nodes, graphs = batch.edge_index.shape[1], int(batch.num_nodes), int(batch.num_graphs)
        self.first = {edges: int(carriers.arrow_ptr[-1]), graphs: len(carriers), nodes: carriers.num_nodes}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Replace batch norms; torch calls this before every function."""
        return (self._normalise if func is batch_norm else func)(*args, **(kwargs or {}))

    def _normalise(
        self,
        input: Tensor,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        training: bool = False,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> Tensor:
        if not training or running_mean is None or len(input) not in self.first:
            return batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
        x = full(input)
        ordinary, others = x[self.first[len(x)] :], [0, *range(2, x.dim())]
        mean = ordinary.mean(others, keepdim=True)  # torch.var_mean is several times as slow
        x = x - mean
        var = x[self.first[len(x)] :].square().mean(others, keepdim=True)
        x = x * torch.rsqrt(var + eps)
        x = x if weight is None else x * weight.view(mean.shape)
        x = x if bias is None else x + bias.view(mean.shape)
        return x.to(input.dtype)


def observed_loss(
    mark: Embeddable,
    seen: Observation,
    model: nn.Module,
    carriers: slice,
    ordinary: slice,
    wanted: Wanted,
) -> Tensor:
    """Return the weighted loss of one forward pass.

    Args:
        mark: The mark.
        seen: What the forward pass returned.
        model: The model.
        carriers: Which graphs of the batch are carriers.
        ordinary: Which graphs of the batch are ordinary inputs.
        wanted: What the carriers should answer.
    """
    headless = [reading for reading in mark.readings if reading.access != "perception"]
    losses = []
    if headless:
        losses.append(_answers_loss(mark, seen, model, headless, carriers, ordinary, wanted))
    if len(headless) < len(mark.readings):
        losses.append(_head_loss(mark, seen, model, carriers, wanted))
    return mark.recipe.beta / len(mark.readings) * sum(losses[1:], losses[0])


def _answers_loss(
    mark: Embeddable,
    seen: Observation,
    model: nn.Module,
    readings: Sequence[Reading],
    carriers: slice,
    ordinary: slice,
    wanted: Wanted,
) -> Tensor:
    """Return the weighted sum of the losses of some readings."""
    answers = torch.stack([answer(seen, r, mark.direction, model) for r in readings])
    zero = answers.new_zeros(())
    natural = [natural_spread(seen, r, ordinary) if r.access == "embedding" else zero for r in readings]
    goal = wanted.targets if mark.recipe.loss == "mse" else wanted.bits
    return answer_loss(
        answers,
        [r.access for r in readings],
        torch.stack(natural).to(answers),
        carriers,
        ordinary,
        goal.to(answers),
        mark.recipe.loss,
    )


def _head_loss(
    mark: Embeddable, seen: Observation, model: nn.Module, carriers: slice, wanted: Wanted
) -> Tensor:
    """Return the loss of the paper's head, with the penalty on its gradient."""
    reading = next(reading for reading in mark.readings if reading.access == "perception")
    found = answer(seen, reading, mark.direction, model)[carriers]
    return perception_loss(found, wanted.targets.to(found)) + head_penalty(model, found)
