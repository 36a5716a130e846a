"""How a mark is taught: the loss of a forward pass over carriers, and the owner's refresh."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import batch_norm
from torch.overrides import TorchFunctionMode

from invgnn.errors import DataError, ParameterError
from invgnn.forward import observe, politely, to_batch, unwrap, weight_of
from invgnn.graphs import Graphs
from invgnn.perception import PerceptionHead, gradient_penalty
from invgnn.randomness import kept, seeded
from invgnn.reading import Observation, Reading, answer, full, natural_spread, num_graphs
from invgnn.recipe import (
    SCORE_WEIGHT,
    distillation_loss,
    in_nats,
    logistic_loss,
    mse_loss,
    perception_loss,
    standardise,
)
from invgnn.stiffness import stiffen

if TYPE_CHECKING:
    from invgnn.watermark import Watermark


def own_loss(
    mark: Watermark,
    model: nn.Module,
    chosen: NDArray[np.int64] | None,
    at: Mapping[str, Tensor],
) -> Tensor:
    """The mark's loss, weighed, from a forward of its own, the model left exactly as found."""
    core = unwrap(model)
    carriers = mark.carriers if chosen is None else mark.carriers.take(chosen)
    batch = batch_like(mark, carriers, weight_of(model), keep=chosen is None)
    swapped = {f"model.{name}": value.clone() for name, value in core.named_buffers()}
    parameters = dict(core.named_parameters())
    swapped |= {f"model.{name}": parameters[name] + shift.detach() for name, shift in at.items()}
    with kept(), _UsualStatistics(carriers, batch):
        caller = _Caller(mark, core)
        return torch.as_tensor(torch.func.functional_call(caller, swapped, (batch, chosen)))


class _UsualStatistics(TorchFunctionMode):
    """A block in which BatchNorm measures the ordinary inputs of a batch only, which follow the carriers.

    What a suspect's BatchNorm knows are statistics of the task: by those the carriers will be read. One
    that keeps no statistics, or is over other rows than nodes, graphs or edges, measures all.
    """

    def __init__(self, carriers: Graphs, batch: Any) -> None:
        super().__init__()
        edges, nodes, graphs = batch.edge_index.shape[1], int(batch.num_nodes), int(batch.num_graphs)
        self.first = {edges: 2 * len(carriers.edges), graphs: len(carriers), nodes: carriers.num_nodes}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """What torch asks before every call."""
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
        usual, aside = x[self.first[len(x)] :], [0, *range(2, x.dim())]
        var, mean = torch.var_mean(usual, aside, correction=0, keepdim=True)
        x = (x - mean) * torch.rsqrt(var + eps)
        x = x if weight is None else x * weight.view(mean.shape)
        x = x if bias is None else x + bias.view(mean.shape)
        return x.to(input.dtype)


class _Caller(nn.Module):
    """A model and the mark's loss on it, as one module whose parameters can be swapped for a call."""

    def __init__(self, mark: Watermark, model: nn.Module) -> None:
        super().__init__()
        self.mark, self.model = mark, model

    def forward(self, batch: Any, chosen: NDArray[np.int64] | None) -> Tensor:
        size = self.mark.m if chosen is None else len(chosen)
        seen = observe(self.model, batch, self.mark.layer, self.mark.forward)
        wanted = Wanted.of(self.mark, chosen, seen.scores)
        return observed_loss(self.mark, seen, self.model, slice(size), slice(size, None), wanted)


class Wanted(NamedTuple):
    """What some carriers are to answer: their bits and targets."""

    bits: Tensor
    targets: Tensor

    @classmethod
    def of(cls, mark: Watermark, chosen: NDArray[np.int64] | None, like: Tensor) -> Wanted:
        """Of the chosen carriers, or all, where a tensor is and as exact, in single precision at least."""
        exact = torch.promote_types(like.dtype, torch.float32)
        told = (values if chosen is None else values[chosen] for values in (mark.bits, mark.targets))
        return cls(*(torch.from_numpy(values).to(like.device, exact) for values in told))


def observed_loss(
    mark: Watermark,
    seen: Observation,
    model: nn.Module,
    carriers: slice,
    ordinary: slice,
    wanted: Wanted,
) -> Tensor:
    """The loss of one forward pass, weighed, given which of its graphs are carriers and which usual."""
    headless = [reading for reading in mark.readings if reading.access != "perception"]
    losses = []
    if headless:  # all at once: the calls are small, and many
        said = torch.stack([_measured(mark, seen, model, r, carriers, ordinary) for r in headless])
        losses.append(_answers_loss(mark, said, headless, wanted))
    if len(headless) < len(mark.readings):
        losses.append(_head_loss(mark, seen, model, carriers, wanted))
    return mark.recipe.weight / len(mark.readings) * sum(losses[1:], losses[0])


def _measured(
    mark: Watermark, seen: Observation, model: nn.Module, reading: Reading, carriers: slice, ordinary: slice
) -> Tensor:
    """The carriers' answers, by the scale on which they are taught."""
    said = answer(seen, reading, mark.direction, model)
    if reading.access == "embedding":
        return standardise(said[carriers], said[ordinary], natural_spread(seen, reading, ordinary))
    return in_nats(said[carriers], said[ordinary]) if reading.access == "logits" else said[carriers]


def _answers_loss(mark: Watermark, said: Tensor, readings: Sequence[Reading], wanted: Wanted) -> Tensor:
    """The losses of some readings, a row of answers each, weighed and added up."""
    weights = [SCORE_WEIGHT if reading.access == "logits" else 1.0 for reading in readings]
    if mark.recipe.loss == "mse":
        losses = mse_loss(said, wanted.targets.to(said))
    else:
        losses = logistic_loss(said, wanted.bits.to(said), mark.recipe.margin)
    return losses.dot(torch.tensor(weights).to(losses))


def _head_loss(
    mark: Watermark, seen: Observation, model: nn.Module, carriers: slice, wanted: Wanted
) -> Tensor:
    """That of the paper's head, and the penalty on its gradient."""
    reading = next(reading for reading in mark.readings if reading.access == "perception")
    said = answer(seen, reading, mark.direction, model)[carriers]
    loss = perception_loss(said, wanted.targets.to(said))
    if not mark.recipe.penalty:
        return loss
    weights: list[Tensor] = [p for p in model.parameters() if p.requires_grad]
    return loss + mark.recipe.penalty * gradient_penalty(said, weights)


@torch.inference_mode(False)  # what is kept may be trained on later
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


# -- the owner's refresh --------------------------------------------------------------------------


def refresh(
    mark: Watermark,
    student: nn.Module,
    teacher: nn.Module,
    batches: Collection[Any],
    *,
    epochs: int,
    lr: float,
    temperature: float,
    seed: int,
    progress: Callable[[int, int], None] | None,
) -> None:
    """Distil a teacher into a student who learns the mark as well; see `Watermark.refresh`.

    Weight noise, simulated and extra steps of the recipe belong to `train` and are left out.
    """
    if student is teacher:
        raise ParameterError("the student is the teacher", "pass a fresh model, or copy.deepcopy(teacher)")
    if epochs < 1 or not all(0 < value < float("inf") for value in (lr, temperature)):
        raise ParameterError("epochs, lr and temperature must be positive", "usual are 100, 0.01 and 2")
    for reading in mark.readings:  # a student who cannot be read fails now, not when the mark joins in
        mark.read(student, reading.access)
    with seeded(seed), _as_found_after_errors(student):
        steps, beside = _measure(batches)
        beside = None if mark.context["level"] == "node" else beside
        mark = mark.replace(recipe=mark.recipe.paced(mark.m, steps, beside))
        optimiser = torch.optim.Adam(student.parameters(), lr=lr, weight_decay=5e-4)
        step, first = 0, mark.recipe.begins(epochs * steps)
        for epoch in range(epochs):
            student.train()
            for batch in batches:
                taught, rides = _scores(mark, teacher, batch), step >= first and mark.recipe.rides(step)
                optimiser.zero_grad()
                _lesson(mark, student, batch, taught, temperature, step if rides else None).backward()
                optimiser.step()
                _project(student)
                step += 1
            if progress:
                progress(epoch + 1, epochs)
        student.eval()
        if mark.recipe.stiff is not None:
            carriers = to_batch(mark.carriers, weight_of(student))
            stiffen(student, carriers, mark.recipe.stiff, mark.forward)


def _measure(batches: Collection[Any]) -> tuple[int, int | None]:
    """How many batches there are, and how many graphs are in the first."""
    advice = "pass a list or a DataLoader of PyG batches; for a node task [data]"
    if isinstance(batches, Iterator) or not isinstance(batches, Sized):
        raise ParameterError("batches are gone through once an epoch, these only once", advice)
    batch = next(iter(batches), None)
    if not hasattr(batch, "edge_index"):
        raise ParameterError("there are no batches of graphs to learn from", advice)
    return len(batches), num_graphs(batch)


def _lesson(
    mark: Watermark, student: nn.Module, batch: Any, taught: Tensor, temperature: float, step: int | None
) -> Tensor:
    """The loss of one batch: what the teacher says and, once a step is given, the mark."""
    if step is not None and mark.recipe.joint:
        joint = mark.mix(batch, step=step)
        soft = _divergence(joint(student), taught, temperature)
        return joint.guard(soft) if mark.recipe.guard else soft + joint.loss()
    soft = _divergence(observe(student, batch, None, mark.forward).scores, taught, temperature)
    if step is None:
        return soft
    if mark.recipe.guard:
        return mark.guard(student, soft, step=step, beside=batch)
    return soft + mark.loss(student, step=step, beside=batch)


def _divergence(said: Tensor, taught: Tensor, temperature: float) -> Tensor:
    if said.shape != taught.shape:
        message = f"the teacher's scores are {tuple(taught.shape)}, the student's {tuple(said.shape)}"
        raise DataError(message, "give the student as many classes, and both the same inputs")
    return distillation_loss(said, taught, temperature).mean()


@torch.no_grad()
def _scores(mark: Watermark, teacher: nn.Module, batch: Any) -> Tensor:
    with politely(teacher):
        return observe(teacher, batch, None, mark.forward).scores


def _project(model: nn.Module) -> None:
    for part in model.modules():
        if isinstance(part, PerceptionHead):
            part.project()


@contextmanager
def _as_found_after_errors(model: nn.Module) -> Iterator[None]:
    """A model that is taught to the end, or keeps its weights and modes."""
    before = copy.deepcopy(model.state_dict())
    modes = [(module, module.training) for module in model.modules()]
    try:
        yield
    except BaseException:
        model.load_state_dict(before)
        for module, training in modes:
            module.training = training
        raise
    finally:
        model.zero_grad()
