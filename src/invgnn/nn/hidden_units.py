"""Layers of hidden units in models that are plain stacks of linear maps and norms."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

from torch import Tensor, nn

from invgnn.errors import EditError
from invgnn.nn.forward import Forward, executed
from invgnn.nn.layers import NORMS, biases_of, is_map, layers_of, weights_of

TOLERANCE = 1e-5
"""Largest relative difference of scores between two forms of the same function."""
_ADVICE = (
    "supported are stacks of linear maps, convolutions made of linear maps (GCN, GraphSAGE, SGC, GIN and "
    "similar) and norms, with activations and pooling between them"
)


@dataclass(frozen=True)
class Units:
    """One layer of hidden units, as views of the model's own tensors.

    Attributes:
        makers: Weights and biases that produce the units, one row per unit.
        norms: All vectors of the norms after them, one entry per unit.
        sizes: The tensors that a unit is proportional to: weight and bias of the last norm, or else the
            makers.
        takers: Weights of the next layer, one column per unit.
    """

    makers: list[Tensor]
    norms: list[Tensor]
    sizes: list[Tensor]
    takers: list[Tensor]

    def __len__(self) -> int:
        return len(self.makers[0])


def hidden_units(model: nn.Module, inputs: Any, forward: Forward | None = None) -> list[Units]:
    """Return the layers of hidden units, from the input to the scores.

    Args:
        model: The model.
        inputs: A PyG batch.
        forward: Calls the model on a batch; by default the names of its arguments decide.

    Raises:
        EditError: If the model is not a plain stack of layers, or has no hidden units.
    """
    found = stages(model, inputs, forward)
    maps = [place for place, stage in enumerate(found) if is_map(stage)]
    if len(maps) < 2:
        raise EditError(
            "the model is one linear map of its propagated features and has no hidden units",
            "choose another edit: this model has no units to permute, rescale or remove",
        )
    return [_between(found[a], found[a + 1 : b], found[b]) for a, b in pairwise(maps)]


def stages(model: nn.Module, inputs: Any, forward: Forward | None = None) -> list[nn.Module]:
    """Return the linear maps and norms that a batch passes through, in order.

    Args:
        model: The model.
        inputs: A PyG batch.
        forward: Calls the model on a batch; by default the names of its arguments decide.

    Raises:
        EditError: If the model has other layers with parameters.
    """
    found = executed(model, layers_of(model), inputs, forward)
    strange = [type(stage).__name__ for stage in found if not (is_map(stage) or isinstance(stage, NORMS))]
    if strange:
        raise EditError(f"the hidden units of a {', '.join(sorted(set(strange)))} are unknown", _ADVICE)
    return found


def _between(first: nn.Module, norms: list[nn.Module], then: nn.Module) -> Units:
    """Return the units between two linear maps."""
    makers, takers = weights_of(first), weights_of(then)
    width = len(makers[0])
    makers += biases_of(first)
    held = [t for norm in norms for t in chain(norm.parameters(), norm.buffers()) if t.dim() == 1]
    sizes: list[Tensor] = [p for p in norms[-1].parameters() if p.dim() == 1] if norms else makers
    lengths = {len(t) for t in (*makers, *held)} | {t.shape[1] for t in takers}
    if lengths != {width}:
        raise EditError(
            f"a {type(first).__name__} has {width} output units, the next layers have {sorted(lengths)}",
            _ADVICE,
        )
    return Units(makers, held, sizes, takers)


def require_same_scores(before: Tensor, after: Tensor, what: str) -> None:
    """Raise `EditError` if an edit of hidden units changed the scores: the model is then not a plain stack.

    Args:
        before: Scores before the edit.
        after: Scores after it.
        what: Name of the edit, for the message.
    """
    error = difference(before, after)
    if not error <= TOLERANCE:
        raise EditError(
            f"{what} changes this model's scores by {error:.1e} of their size: it is no stack of layers",
            _ADVICE,
        )


def difference(before: Tensor, after: Tensor) -> float:
    """Return the largest difference of scores, relative to the largest score if that exceeds one.

    Args:
        before: Scores of one model.
        after: Scores of the other.
    """
    return float((before - after).abs().max() / before.abs().max().clamp(min=1))
