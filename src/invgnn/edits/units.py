"""Hidden units: what makes them, what takes them in, and models for which we know."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, pairwise

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch_geometric.nn import LayerNorm, Linear, MessagePassing

from invgnn.edits.layers import executed
from invgnn.errors import EditError
from invgnn.tasks import Task

TOLERANCE = 1e-5
_ADVICE = (
    "known are stacks of linear maps, of convolutions made of linear maps (GCN, GraphSAGE, SGC, GIN and "
    "their like) and of norms, with activations and pooling between them"
)
LINEAR = (nn.Linear, Linear)
NORMS = (_BatchNorm, nn.LayerNorm, LayerNorm)


@dataclass(frozen=True)
class Units:
    """One layer of hidden units, as views of a model's own tensors.

    makers  weights and biases, one row per unit
    norms   everything a norm after them holds, one entry per unit
    sizes   what a unit is proportional to: the last norm's weight and bias, or else the makers
    takers  weights of the next layer, one column per unit
    """

    makers: list[Tensor]
    norms: list[Tensor]
    sizes: list[Tensor]
    takers: list[Tensor]

    def __len__(self) -> int:
        return len(self.makers[0])


def hidden_units(model: nn.Module, task: Task) -> list[Units]:
    """The layers of hidden units from input to scores; refuses a model that is no such stack."""
    stages = executed(model, _parts(model), task)
    strange = [type(stage).__name__ for stage in stages if not (_is_map(stage) or isinstance(stage, NORMS))]
    if strange:
        raise EditError(f"the hidden units of a {', '.join(sorted(set(strange)))} are unknown", _ADVICE)
    maps = [place for place, stage in enumerate(stages) if _is_map(stage)]
    if len(maps) < 2:
        raise EditError(
            "the model is one linear map of its propagated features and has no hidden units",
            "there is nothing here to permute, rescale or cut out",
        )
    return [_between(stages[a], stages[a + 1 : b], stages[b]) for a, b in pairwise(maps)]


def _parts(module: nn.Module) -> list[nn.Module]:
    """The outermost modules that are maps or norms, or hold parameters of their own."""
    own = any(p.numel() > 1 for p in module.parameters(recurse=False))
    if own or _is_map(module) or isinstance(module, NORMS):
        return [module]
    return list(chain.from_iterable(_parts(child) for child in module.children()))


def _linears(module: nn.Module) -> list[nn.Module]:
    if isinstance(module, LINEAR):
        return [module]
    lists = [part for part in module.children() if isinstance(part, nn.ModuleList)]
    return [m for m in chain(module.children(), *lists) if isinstance(m, LINEAR)]


def _is_map(module: nn.Module) -> bool:
    """Linear in its input: a linear map, or a convolution with nothing but such maps and a bias."""
    if isinstance(module, LINEAR):
        return True
    linears = _linears(module)
    held = {id(p) for linear in linears for p in linear.parameters()} | {id(getattr(module, "bias", None))}
    return isinstance(module, MessagePassing) and bool(linears) and {*map(id, module.parameters())} <= held


def _weights(module: nn.Module) -> list[Tensor]:
    return [torch.as_tensor(linear.weight) for linear in _linears(module)]


def _between(first: nn.Module, norms: list[nn.Module], then: nn.Module) -> Units:
    makers, takers = _weights(first), _weights(then)
    width = len(makers[0])
    makers += [p for p in first.parameters() if p.dim() == 1]
    held = [t for norm in norms for t in chain(norm.parameters(), norm.buffers()) if t.dim() == 1]
    sizes: list[Tensor] = [p for p in norms[-1].parameters() if p.dim() == 1] if norms else makers
    lengths = {len(t) for t in (*makers, *held)} | {t.shape[1] for t in takers}
    if lengths != {width}:
        raise EditError(
            f"a {type(first).__name__} makes {width} units, but what follows it has {sorted(lengths)}",
            _ADVICE,
        )
    return Units(makers, held, sizes, takers)


def require_same_scores(before: Tensor, after: Tensor, what: str) -> None:
    """Refuse where hidden units turn out to be more entangled than a stack of layers."""
    error = difference(before, after)
    if not error <= TOLERANCE:
        raise EditError(
            f"{what} changes this model's scores by {error:.1e} of their size: it is no stack of layers",
            _ADVICE,
        )


def difference(before: Tensor, after: Tensor) -> float:
    """Largest difference between scores, relative to the largest score if that exceeds one."""
    return float((before - after).abs().max() / before.abs().max().clamp(min=1))
