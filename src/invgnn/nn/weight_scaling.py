"""Scale the weights before BatchNorm layers, which changes no score but slows down fine-tuning.

BatchNorm divides by the size of its input, so the scale of the weights before it is free. An optimiser such
as Adam changes a weight by about its learning rate per step, whatever the size of the weight. The same
fine-tuning therefore changes large weights less in relative terms, and less of the mark is lost.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from invgnn.errors import EditError, ParameterError
from invgnn.nn.forward import Forward, evaluation_mode, observe, unwrap
from invgnn.nn.hidden_units import stages
from invgnn.nn.layers import biases_of, is_map, layers_of, weights_of

USUAL_SCALE = 2.0
"""Usual size of weights after training from scratch, relative to newly initialised weights."""

SCALED_ABOVE = 16.0
"""Weights above this size were scaled: training from scratch does not reach it."""

SMALLEST = 0.125
"""Smallest mean size of the weights of an inner norm: smaller ones change too fast in fine-tuning."""

LARGEST = 2.0**15
"""Largest value of the statistics of norms: half of the largest half-precision number."""

TOLERANCE = 1e-4
"""Largest change of scores relative to their spread, in addition to rounding."""


def weight_scale(model: nn.Module, inputs: Any, forward: Forward | None = None) -> float | None:
    """Return how many times as large as newly initialised weights the weights before norms are.

    Args:
        model: The model.
        inputs: A PyG batch.
        forward: Calls the model on a batch; by default the names of its arguments decide.

    Returns:
        The scale, or None if the weights of this model cannot be scaled.
    """
    stack = _stack(unwrap(model), inputs, forward)
    return None if stack is None else stack.size()


@torch.no_grad()
def scale_weights(
    model: nn.Module, inputs: Any, to: float = 256.0, forward: Forward | None = None
) -> float | None:
    """Scale the weights before norms to `to` times the size of new weights, without changing any score.

    All weight matrices are multiplied by one factor, so that pruning by magnitude selects the same weights.
    The last norm, and with it the embedding, is divided by the factor to compensate for the linear map
    after it. Half precision must be able to represent the statistics of the norms: where they become too
    large, the norm before is made smaller, and the factor is limited.

    The model is left unchanged if it is not a plain stack of linear maps and BatchNorm layers, with ReLU,
    pooling and similar operations between them and one linear map at the end. Before you train a model with
    scaled weights further, call `unscale_weights`.

    Guarantee: in evaluation mode, scores on the inputs and on inputs with features a hundred times as large
    agree to 1e-4 of their spread, or nothing is changed. Scaling hinders only those who do not know about
    it: anyone who first unscales the weights can fine-tune the model as if they had never been scaled.

    Args:
        model: The model, changed in place.
        inputs: A PyG batch of task inputs, used to check that the scores stay the same.
        to: The target size relative to newly initialised weights, in (0, 1000].
        forward: Calls the model on a batch; by default the names of its arguments decide.

    Returns:
        The factor, or None if the model was left unchanged.

    Raises:
        ParameterError: If `to` is out of range.
    """
    if not 0 < to <= 1e3:
        raise ParameterError(
            f"to={to} is not in (0, 1000]", "use 256 to scale weights, or 2 for the usual size"
        )
    model = unwrap(model)
    stack = _stack(model, inputs, forward)
    if stack is None:
        return None
    batches = [inputs, *_extreme(inputs)]
    with _restored(model) as restore:
        before = [_scores(model, batch, forward) for batch in batches]
        for balanced in (True, False):  # what follows a norm may need inputs of the same size
            factor = min(to / stack.size(), max(1.0, stack.headroom(balanced)))
            stack.multiply(factor, balanced)
            after = [_scores(model, batch, forward) for batch in batches]
            if all(map(_agree, before, after)):
                return factor
            restore()
    return None


def unscale_weights(model: nn.Module, inputs: Any, forward: Forward | None = None) -> None:
    """Scale weights back to the usual size after training, if they are much larger.

    Models with weights of the usual size, and models whose weights cannot be scaled, are left unchanged.

    Args:
        model: The model, changed in place.
        inputs: A PyG batch of task inputs.
        forward: Calls the model on a batch; by default the names of its arguments decide.
    """
    if (weight_scale(model, inputs, forward) or 0) > SCALED_ABOVE:
        scale_weights(model, inputs, USUAL_SCALE, forward)


@dataclass(frozen=True)
class _Stack:
    """Runs of linear maps, each followed by the norm that cancels their scale, and the final linear map."""

    runs: list[tuple[list[nn.Module], _BatchNorm]]
    head: nn.Module

    def size(self) -> float:
        """Return the geometric mean of the matrices' sizes relative to torch's default initialisation."""
        weights = [w for maps, _ in self.runs for stage in maps for w in weights_of(stage)]
        ratios = [float(_precise(w).square().mean()) * 3 * w.shape[1] for w in weights]
        return math.exp(sum(map(math.log, ratios)) / len(ratios) / 2)

    def headroom(self, balanced: bool) -> float:
        """Return the largest factor for which the statistics of all norms stay below `LARGEST`.

        Args:
            balanced: Whether inner norms may be made smaller for it.
        """
        least = [1.0] + [SMALLEST / _size(norm) if balanced else 1.0 for _, norm in self.runs[:-1]]
        found = [
            float((_room(norm) / smallest) ** (1 / len(maps)))
            for (maps, norm), smallest in zip(self.runs, least, strict=True)
            if maps
        ]
        return min(found)

    def multiply(self, factor: float, balanced: bool) -> None:
        """Multiply every matrix and compensate in norms and biases.

        Args:
            factor: The factor.
            balanced: Whether to bring inner norms to size 1, or less where statistics would be too large.
        """
        following = [*self.runs[1:], None]
        scale = 1.0  # of the inputs of a run
        for (maps, norm), after in zip(self.runs, following, strict=True):
            for stage in maps:
                scale *= factor
                _multiply(weights_of(stage), factor)
                _multiply(biases_of(stage), scale)
            _absorb(norm, scale)
            scale = 1.0
            if balanced and after is not None:
                scale = min(max(1.0, 1 / _size(norm)), _room(after[1]) / factor ** len(after[0]))
                _multiply(norm.parameters(), scale)
        _multiply(self.runs[-1][1].parameters(), 1 / factor)
        _multiply(weights_of(self.head), factor)


def _size(norm: _BatchNorm) -> float:
    """Return the root mean square of the weights of a norm."""
    return max(1e-30, float(_precise(norm.weight).square().mean().sqrt()))


def _room(norm: _BatchNorm) -> float:
    """Return how many times as large the input of a norm may become."""
    mean, var = (max(1e-30, float(_precise(kept).abs().max())) for kept in _statistics(norm))
    return min(LARGEST / mean, math.sqrt(LARGEST / var))


def _stack(model: nn.Module, inputs: Any, forward: Forward | None) -> _Stack | None:
    """Return the stack of a model, or None if its scale is not free or not known to be.

    Layers that are called twice or not at all, and shared parameters, are not supported.
    """
    try:
        found = stages(model, inputs, forward)
    except EditError:
        return None
    held = [id(p) for stage in found for p in stage.parameters()]
    if len({*held}) < len(held) or {*found} != {*layers_of(model)} or not found or not is_map(found[-1]):
        return None
    runs: list[tuple[list[nn.Module], _BatchNorm]] = []
    maps: list[nn.Module] = []
    for stage in found[:-1]:
        if is_map(stage):
            maps.append(stage)
        elif isinstance(stage, _BatchNorm) and stage.affine and stage.running_var is not None:
            runs.append((maps, stage))
            maps = []
        else:
            return None
    known = all(bool(w.count_nonzero()) for stage in found if is_map(stage) for w in weights_of(stage))
    return _Stack(runs, found[-1]) if known and not maps and any(part for part, _ in runs) else None


def _statistics(norm: _BatchNorm) -> tuple[Tensor, Tensor]:
    """Return the running mean and variance of a norm."""
    return cast(Tensor, norm.running_mean), cast(Tensor, norm.running_var)


def _absorb(norm: _BatchNorm, scale: float) -> None:
    """Adapt a norm to an input that is `scale` times as large, so that its output stays the same.

    The constant `eps` that a norm adds to the variance does not grow with it; the weight of the norm
    compensates for that.
    """
    mean, var = _statistics(norm)
    wide = _precise(var)
    lost = ((wide + norm.eps / scale**2) / (wide + norm.eps)).sqrt()
    norm.weight.mul_(lost.to(norm.weight.dtype).to(norm.weight.device))
    mean.mul_(scale)
    var.mul_(scale**2)


def _precise(values: Tensor) -> Tensor:
    """Return values in double precision on the CPU, because some devices lack double precision."""
    return values.detach().cpu().double()


def _multiply(values: Iterable[Tensor], factor: float) -> None:
    """Multiply tensors in place."""
    for value in values:
        value.mul_(factor)


def _extreme(inputs: Any) -> Iterator[Any]:
    """Yield inputs so large that activations which saturate or clamp become visible.

    Half precision cannot represent them, so there are none for it.
    """
    if inputs.x is not None and inputs.x.dtype in (torch.float32, torch.float64):
        large = copy.copy(inputs)
        large.x = 100 * inputs.x
        yield large


def _scores(model: nn.Module, inputs: Any, forward: Forward | None) -> Tensor:
    """Return the scores of a model in evaluation mode."""
    with evaluation_mode(model):
        return observe(model, inputs, None, forward).scores


def _agree(before: Tensor, after: Tensor) -> bool:
    """Return whether scores agree up to `TOLERANCE` and rounding."""
    rounding = 32 * torch.finfo(before.dtype).eps
    before, after = _precise(before), _precise(after)
    spread = (before - before.mean(0)).abs().max()
    return bool((before - after).abs().max() <= TOLERANCE * spread + rounding * before.abs().max())


@contextmanager
def _restored(model: nn.Module) -> Iterator[Any]:
    """Restore a model if the block raises an error; the yielded function restores it on request."""
    held = [(value, value.clone()) for value in chain(model.parameters(), model.buffers())]

    def restore() -> None:
        for value, before in held:
            value.copy_(before)

    try:
        yield restore
    except BaseException:
        restore()
        raise
