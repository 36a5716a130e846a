"""An edit that adds hidden units without effect; the function of the model stays the same."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from invgnn.attacks.edits.edit import Edit
from invgnn.errors import EditError
from invgnn.nn.backbones import Backbone, build
from invgnn.nn.forward import weight_of
from invgnn.nn.hidden_units import Units, hidden_units, require_same_scores
from invgnn.nn.layers import is_map, weights_of
from invgnn.training.batching import scores, some_inputs
from invgnn.training.tasks import Task


class IdleUnit(Edit):
    """Append to every hidden layer a unit that is always 0 and has no effect; all scores stay the same.

    Padding widths to round numbers has the same effect. A perception head keeps its width.

    Guarantee: scores on task inputs agree to 1e-5 of their size, or the edit refuses the model.
    """

    same_architecture = False
    same_function = True

    @torch.no_grad()
    def apply(self, model: nn.Module, task: Task) -> nn.Module:
        """Return the wider model.

        Raises:
            EditError: If the model has no hidden units, or is not a stack of layers that can be widened.
        """
        before, layers = scores(model, task), hidden_units(model, some_inputs(task), task.forward)
        wide = _rebuilt(model) if isinstance(model, Backbone) else _padded(model, layers)
        try:
            after = scores(wide, task)
        except RuntimeError as error:  # shapes that do not fit
            raise EditError(f"the wider model does not run: {error}", _ADVICE) from error
        require_same_scores(before, after, "an idle unit")
        return wide

    def __repr__(self) -> str:
        """Return the name in tables and test ids."""
        return "idle hidden unit"


_ADVICE = "supported are stacks of linear layers, of convolutions made of them, and of batch norms"


def _rebuilt(model: Backbone) -> Backbone:
    """Build a backbone anew with one more hidden unit, so that it can be saved to a model file."""
    plan = {**model.architecture, "hidden_channels": model.architecture["hidden_channels"] + 1}
    wide, like, head = build(plan), weight_of(model), getattr(model, "perception", None)
    if head is not None:
        wide.add_module("perception", head)
    wide, held = wide if like is None else wide.to(like), model.state_dict()
    for name, value in wide.state_dict().items():
        old = held[name].clone()
        value.fill_(_idle(name))
        value[tuple(map(slice, old.shape))] = old
    return wide


def _padded(model: nn.Module, layers: list[Units]) -> nn.Module:
    """Append a row or a column to every tensor of the hidden units, in place."""
    for part, name, axis in list(dict.fromkeys(_places(model, layers))):
        old: Tensor = getattr(part, name)
        shape = [1 if a == axis else n for a, n in enumerate(old.shape)]
        new = torch.cat([old, old.new_full(shape, _idle(name))], dim=axis)
        setattr(part, name, nn.Parameter(new, old.requires_grad) if name in part._parameters else new)
    for part in filter(is_map, model.modules()):
        rows, columns = weights_of(part)[0].shape
        widths = {
            "out_features": rows,
            "out_channels": rows,
            "in_features": columns,
            "in_channels": columns,
        }
        for name, width in widths.items():
            if isinstance(getattr(part, name, None), int):
                setattr(part, name, width)
    return model


def _places(model: nn.Module, layers: list[Units]) -> Iterator[tuple[nn.Module, str, int]]:
    """Yield the module and name of each tensor of the hidden units, and the axis of its units."""
    names = [(part, name) for part in model.modules() for name in (*part._parameters, *part._buffers)]
    owners: dict[int, list[tuple[nn.Module, str]]] = {}
    for part, name in names:
        owners.setdefault(id(getattr(part, name)), []).append((part, name))
    for units in layers:
        rows = [(value, 0) for value in (*units.makers, *units.norms)]
        for value, axis in (*rows, *((value, 1) for value in units.takers)):
            held = owners.get(id(value), [])
            if len(held) != 1:
                raise EditError("a weight of the hidden units is computed, or used in two places", _ADVICE)
            yield *held[0], axis


def _idle(name: str) -> float:
    """Return the value of a tensor for a unit that is always 0: 1 for a running variance, else 0."""
    return float(name.endswith("running_var"))
