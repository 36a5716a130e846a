"""Find the layers and weight matrices of any model, and draw new weights."""

from __future__ import annotations

import copy
from itertools import chain
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import is_lazy
from torch_geometric.nn import LayerNorm, Linear, MessagePassing

from invgnn.errors import EditError


def weight_matrices(model: nn.Module) -> list[Tensor]:
    """Return every weight matrix, including those of PyG layers, but no biases and norms.

    Raises:
        EditError: If there is none.
    """
    found: list[Tensor] = [p for p in model.parameters() if p.dim() >= 2 and p.is_floating_point()]
    if not found:
        raise EditError("the model has no weight matrix", "pass the model itself, not a wrapper around it")
    return found


def all_learn(model: nn.Module) -> None:
    """Make all floating-point parameters trainable, also those that the owner had frozen."""
    for value in model.parameters():
        value.requires_grad_(value.is_floating_point())


@torch.no_grad()
def reset(module: nn.Module) -> None:
    """Draw new weights in place by calling `reset_parameters` of every module.

    All weights are set to NaN first. A weight that is still NaN afterwards was not reset, and a model that
    keeps a weight of the old one must not count as new.

    Raises:
        EditError: If some weight was not reset.
    """
    learnt = [(name, p) for name, p in module.named_parameters() if p.is_floating_point()]
    for _, value in learnt:
        value.fill_(torch.nan)
    for part in reversed(list(module.modules())):  # outer modules after inner ones, which they may override
        renew = getattr(part, "reset_parameters", None)
        if callable(renew):
            renew()
    forgotten = [name for name, value in learnt if value.isnan().any()]
    if forgotten:
        raise EditError(
            f"no reset_parameters() renews {', '.join(forgotten)} of the {type(module).__name__}",
            "add reset_parameters() to the module that holds it, or distil with your own student=",
        )


def fresh_twin(model: nn.Module) -> nn.Module:
    """Return a model of the same architecture with new weights, all of them trainable.

    Raises:
        EditError: If some weight cannot be reset.
    """
    twin = copy.deepcopy(model)
    reset(twin)
    all_learn(twin)
    return twin


class Walk(NamedTuple):
    """The modules of a model, each once, in the order of `modules()`.

    Attributes:
        parts: The model and all modules in it.
        weighted: The outermost modules that hold a weight matrix: linear maps and whole convolutions.
    """

    parts: list[nn.Module]
    weighted: list[nn.Module]


def walk(model: nn.Module) -> Walk:
    """Collect all modules of a model in one pass, three times as fast as `modules()`."""
    known: set[nn.Module] = set()
    found = Walk([], [])

    def enter(part: nn.Module, inside: bool) -> None:
        """Visit a module and its children."""
        known.add(part)
        found.parts.append(part)
        if not inside and (isinstance(part, MessagePassing) or _has_matrix(part)):
            found.weighted.append(part)
            inside = True
        for inner in part._modules.values():
            if inner is not None and inner not in known:
                enter(inner, inside)

    enter(model, False)
    return found


def _has_matrix(part: nn.Module) -> bool:
    """Return whether a module itself holds a weight matrix."""
    held = part._parameters.values()
    return any(p is not None and not is_lazy(p) and p.dim() >= 2 for p in held)


def parts_of(model: nn.Module) -> list[nn.Module]:
    """Return a model and all modules in it."""
    return walk(model).parts


def weighted(model: nn.Module) -> list[nn.Module]:
    """Return the outermost modules that hold a weight matrix: linear maps and whole convolutions."""
    return walk(model).weighted


LINEAR = (nn.Linear, Linear)
"""Linear layers of torch and PyG."""
NORMS = (_BatchNorm, nn.LayerNorm, LayerNorm)
"""Norms of torch and PyG that act on each unit."""


def has_batch_norm(model: nn.Module) -> bool:
    """Return whether a model has a batch norm."""
    return bool(batch_norms(model))


def batch_norms(model: nn.Module) -> list[_BatchNorm]:
    """Return the batch norms of a model."""
    return [part for part in parts_of(model) if isinstance(part, _BatchNorm)]


def layers_of(module: nn.Module) -> list[nn.Module]:
    """Return the outermost modules that are linear maps or norms, or hold parameters of their own."""
    own = any(p.numel() > 1 for p in module.parameters(recurse=False))
    if own or is_map(module) or isinstance(module, NORMS):
        return [module]
    return list(chain.from_iterable(layers_of(child) for child in module.children()))


def _linears(module: nn.Module) -> list[nn.Module]:
    """Return the linear layers of a module, directly or in a list."""
    if isinstance(module, LINEAR):
        return [module]
    lists = [part for part in module.children() if isinstance(part, nn.ModuleList)]
    return [m for m in chain(module.children(), *lists) if isinstance(m, LINEAR)]


def is_map(module: nn.Module) -> bool:
    """Return whether a module is linear in its input.

    That holds for linear layers, and for convolutions whose only parameters are linear layers and a bias.
    """
    if isinstance(module, LINEAR):
        return True
    linears = _linears(module)
    held = {id(p) for linear in linears for p in linear.parameters()} | {id(getattr(module, "bias", None))}
    return isinstance(module, MessagePassing) and bool(linears) and {*map(id, module.parameters())} <= held


def weights_of(module: nn.Module) -> list[Tensor]:
    """Return the matrices of a linear map, one row per output unit."""
    return [torch.as_tensor(linear.weight) for linear in _linears(module)]


def biases_of(module: nn.Module) -> list[Tensor]:
    """Return the biases of a linear map."""
    return [p for p in module.parameters() if p.dim() == 1]
