"""Weight matrices and fresh weights of models."""

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
    """Every weight matrix, PyG's own `Linear` and convolutions included; no biases, no norms."""
    found: list[Tensor] = [p for p in model.parameters() if p.dim() >= 2 and p.is_floating_point()]
    if not found:
        raise EditError("the model has no weight matrix", "is it a model, or a wrapper around one?")
    return found


def all_learn(model: nn.Module) -> None:
    """Whatever the owner had frozen learns: the copy is the editor's."""
    for value in model.parameters():
        value.requires_grad_(value.is_floating_point())


@torch.no_grad()
def reset(module: nn.Module) -> None:
    """Fresh weights in place, through the `reset_parameters` of every part.

    Weights are made NaN first: one that is NaN afterwards was forgotten, and a "fresh" model that keeps
    a weight of the old one must not pass for fresh.
    """
    learnt = [(name, p) for name, p in module.named_parameters() if p.is_floating_point()]
    for _, value in learnt:
        value.fill_(torch.nan)
    for part in reversed(list(module.modules())):  # the outer after the inner: it may know better
        renew = getattr(part, "reset_parameters", None)
        if callable(renew):
            renew()
    forgotten = [name for name, value in learnt if value.isnan().any()]
    if forgotten:
        raise EditError(
            f"no reset_parameters() renews {', '.join(forgotten)} of the {type(module).__name__}",
            "give the module that holds it a reset_parameters(), or distil with a student= of your own",
        )


def fresh_twin(model: nn.Module) -> nn.Module:
    """A model of the same architecture with weights of its own, all of which learn."""
    twin = copy.deepcopy(model)
    reset(twin)
    all_learn(twin)
    return twin


class Walk(NamedTuple):
    """A model and all modules in it, each once, as `modules()` has them; that takes three times as long.

    `weighted` are the outermost of them that hold a weight matrix: linear maps and whole convolutions.
    """

    parts: list[nn.Module]
    weighted: list[nn.Module]


def walk(model: nn.Module) -> Walk:
    """Every module of a model in one go."""
    known: set[nn.Module] = set()
    found = Walk([], [])

    def enter(part: nn.Module, inside: bool) -> None:
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
    held = part._parameters.values()
    return any(p is not None and not is_lazy(p) and p.dim() >= 2 for p in held)


def parts_of(model: nn.Module) -> list[nn.Module]:
    """A model and all modules in it."""
    return walk(model).parts


def weighted(model: nn.Module) -> list[nn.Module]:
    """Outermost modules that hold a weight matrix: linear maps and whole convolutions."""
    return walk(model).weighted


LINEAR = (nn.Linear, Linear)


NORMS = (_BatchNorm, nn.LayerNorm, LayerNorm)


def layers_of(module: nn.Module) -> list[nn.Module]:
    """The outermost modules that are maps or norms, or hold parameters of their own."""
    own = any(p.numel() > 1 for p in module.parameters(recurse=False))
    if own or is_map(module) or isinstance(module, NORMS):
        return [module]
    return list(chain.from_iterable(layers_of(child) for child in module.children()))


def _linears(module: nn.Module) -> list[nn.Module]:
    if isinstance(module, LINEAR):
        return [module]
    lists = [part for part in module.children() if isinstance(part, nn.ModuleList)]
    return [m for m in chain(module.children(), *lists) if isinstance(m, LINEAR)]


def is_map(module: nn.Module) -> bool:
    """Linear in its input: a linear map, or a convolution with nothing but such maps and a bias."""
    if isinstance(module, LINEAR):
        return True
    linears = _linears(module)
    held = {id(p) for linear in linears for p in linear.parameters()} | {id(getattr(module, "bias", None))}
    return isinstance(module, MessagePassing) and bool(linears) and {*map(id, module.parameters())} <= held


def weights_of(module: nn.Module) -> list[Tensor]:
    """The matrices of a map, one row per unit it makes."""
    return [torch.as_tensor(linear.weight) for linear in _linears(module)]


def biases_of(module: nn.Module) -> list[Tensor]:
    """What a map adds to the units it makes."""
    return [p for p in module.parameters() if p.dim() == 1]
