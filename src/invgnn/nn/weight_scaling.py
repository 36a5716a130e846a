"""The scale that BatchNorm leaves free, and what it is good for: large weights are slow to turn.

A norm divides by the size of what it is given, so the weights before it may be of any size. But an
optimiser such as Adam moves a weight by about its learning rate in a step, whatever the size of the weight.
In a model with large weights the same fine-tuning turns less, and forgets less.
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

SOFT, STIFF = 2.0, 8.0
"""What training from scratch leaves, against fresh weights, and what it does not."""

LARGEST = 2.0**15
"""What the statistics of norms may grow to: half of what half precision can hold."""

TOLERANCE = 1e-4
"""How far scores may move, in parts of their spread, beyond what rounding does to them."""


def weight_scale(model: nn.Module, inputs: Any, forward: Forward | None = None) -> float | None:
    """How many times as large as fresh ones the weights before norms are; None if that is not free."""
    stack = _stack(unwrap(model), inputs, forward)
    return None if stack is None else stack.size()


@torch.no_grad()
def scale_weights(
    model: nn.Module, inputs: Any, to: float = 64.0, forward: Forward | None = None
) -> float | None:
    """Bring the weights before norms to `to` times the size of fresh ones; every score stays the same.

    All weight matrices grow by one factor, so that pruning by magnitude finds them as it would have, and
    the last norm shrinks for the map after it, and with it the embedding. They grow no further than half
    precision can hold. Gives the factor, or None where the model is left as it was: it is no plain stack
    of maps and BatchNorms with ReLU, pooling and their like between them and one map at its end. To train a
    stiff model on, make it soft first (`unscale_weights`).

    Guarantee: in evaluation mode, scores on the inputs and on inputs with features a hundred times as large
    agree to 1e-4 of their spread, or nothing is changed. It hinders only who does not know of it: whoever
    softens the model first fine-tunes it as if it had never been stiff.
    """
    if not 0 < to <= 1e3:
        raise ParameterError(f"to={to} is not in (0, 1000]", "2 is what training leaves, 64 is stiff")
    model = unwrap(model)
    stack = _stack(model, inputs, forward)
    if stack is None:
        return None
    asked = [inputs, *_extreme(inputs)]
    with _restored(model) as restore:
        before = [_scores(model, batch, forward) for batch in asked]
        factor = min(to / stack.size(), max(1.0, stack.room()))
        stack.grow(factor)
        after = [_scores(model, batch, forward) for batch in asked]
        if not all(map(_agree, before, after)):
            restore()
            return None
    return factor


def unscale_weights(model: nn.Module, inputs: Any, forward: Forward | None = None) -> None:
    """Give a model that somebody made stiff weights of the usual size; others stay as they are."""
    if (weight_scale(model, inputs, forward) or 0) > STIFF:
        scale_weights(model, inputs, SOFT, forward)


@dataclass(frozen=True)
class _Stack:
    """Maps, each run of them closed by the norm that takes out its size, and the one map after the last."""

    runs: list[tuple[list[nn.Module], _BatchNorm]]
    head: nn.Module

    def size(self) -> float:
        """The geometric mean over matrices of their size against that of torch's usual fresh weights."""
        weights = [w for maps, _ in self.runs for stage in maps for w in weights_of(stage)]
        ratios = [float(_precise(w).square().mean()) * 3 * w.shape[1] for w in weights]
        return math.exp(sum(map(math.log, ratios)) / len(ratios) / 2)

    def room(self) -> float:
        """The factor by which weights may grow until what some norm keeps is too large."""
        found: list[float] = []
        for maps, norm in self.runs:
            mean, var = (max(1e-30, float(_precise(kept).abs().max())) for kept in _statistics(norm))
            if maps:
                found.append(min(LARGEST / mean, math.sqrt(LARGEST / var)) ** (1 / len(maps)))
        return min(found)

    def grow(self, factor: float) -> None:
        """Multiply every matrix and make up for it in norms and biases."""
        for maps, norm in self.runs:
            scale = 1.0
            for stage in maps:
                scale *= factor
                _multiply(weights_of(stage), factor)
                _multiply(biases_of(stage), scale)
            _absorb(norm, scale)
        _multiply(self.runs[-1][1].parameters(), 1 / factor)
        _multiply(weights_of(self.head), factor)


def _stack(model: nn.Module, inputs: Any, forward: Forward | None) -> _Stack | None:
    """None for a model whose scale is not free, or not known to be: what is called twice, or not at all."""
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
    return cast(Tensor, norm.running_mean), cast(Tensor, norm.running_var)


def _absorb(norm: _BatchNorm, scale: float) -> None:
    """What comes in is `scale` times as large, and what goes out stays the same.

    The small number that a norm adds to a variance does not grow with it: its weight makes up for that.
    """
    mean, var = _statistics(norm)
    wide = _precise(var)
    lost = ((wide + norm.eps / scale**2) / (wide + norm.eps)).sqrt()
    norm.weight.mul_(lost.to(norm.weight.dtype).to(norm.weight.device))
    mean.mul_(scale)
    var.mul_(scale**2)


def _precise(values: Tensor) -> Tensor:
    """On the CPU: some devices have no double precision."""
    return values.detach().cpu().double()


def _multiply(values: Iterable[Tensor], factor: float) -> None:
    for value in values:
        value.mul_(factor)


def _extreme(inputs: Any) -> Iterator[Any]:
    """Inputs that drive every activation far out, where one that saturates or clamps shows.

    Half precision cannot hold them.
    """
    if inputs.x is not None and inputs.x.dtype in (torch.float32, torch.float64):
        large = copy.copy(inputs)
        large.x = 100 * inputs.x
        yield large


def _scores(model: nn.Module, inputs: Any, forward: Forward | None) -> Tensor:
    with evaluation_mode(model):
        return observe(model, inputs, None, forward).scores


def _agree(before: Tensor, after: Tensor) -> bool:
    rounding = 32 * torch.finfo(before.dtype).eps
    before, after = _precise(before), _precise(after)
    spread = (before - before.mean(0)).abs().max()
    return bool((before - after).abs().max() <= TOLERANCE * spread + rounding * before.abs().max())


@contextmanager
def _restored(model: nn.Module) -> Iterator[Any]:
    """A block that leaves all of a model or nothing changed; it is given what undoes its changes."""
    held = [(value, value.clone()) for value in chain(model.parameters(), model.buffers())]

    def restore() -> None:
        for value, before in held:
            value.copy_(before)

    try:
        yield restore
    except BaseException:
        restore()
        raise
