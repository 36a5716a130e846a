"""Layers and hidden units: what makes them, what takes them in, and models for which we know."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

from torch import Tensor, nn

from invgnn.errors import EditError
from invgnn.nn.forward import Forward, executed
from invgnn.nn.layers import NORMS, biases_of, is_map, layers_of, weights_of

TOLERANCE = 1e-5
_ADVICE = (
    "known are stacks of linear maps, of convolutions made of linear maps (GCN, GraphSAGE, SGC, GIN and "
    "their like) and of norms, with activations and pooling between them"
)


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


def hidden_units(model: nn.Module, inputs: Any) -> list[Units]:
    """The layers of hidden units from input to scores; refuses a model that is no such stack."""
    found = stages(model, inputs)
    maps = [place for place, stage in enumerate(found) if is_map(stage)]
    if len(maps) < 2:
        raise EditError(
            "the model is one linear map of its propagated features and has no hidden units",
            "there is nothing here to permute, rescale or cut out",
        )
    return [_between(found[a], found[a + 1 : b], found[b]) for a, b in pairwise(maps)]


def stages(model: nn.Module, inputs: Any, forward: Forward | None = None) -> list[nn.Module]:
    """The maps and norms that a batch of inputs passes, in order; refuses a model with anything else."""
    found = executed(model, layers_of(model), inputs, forward)
    strange = [type(stage).__name__ for stage in found if not (is_map(stage) or isinstance(stage, NORMS))]
    if strange:
        raise EditError(f"the hidden units of a {', '.join(sorted(set(strange)))} are unknown", _ADVICE)
    return found


def _between(first: nn.Module, norms: list[nn.Module], then: nn.Module) -> Units:
    makers, takers = weights_of(first), weights_of(then)
    width = len(makers[0])
    makers += biases_of(first)
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
