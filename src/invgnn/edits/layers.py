"""The layers of a model in the order in which they run, and fresh weights for them."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch

from invgnn.errors import EditError
from invgnn.forward import call, executed, politely, weighted
from invgnn.tasks import Task


def some_inputs(task: Task, count: int = 64) -> Any:
    """A few training graphs as one batch, or the one graph of a node task."""
    if task.level == "node":
        return task.graphs[0]
    return Batch.from_data_list([task.graphs[i] for i in task.train[:count].tolist()])


@torch.no_grad()
def scores(model: nn.Module, task: Task) -> Tensor:
    """What a model says on some inputs of the task, in evaluation mode; the model stays as it was."""
    with politely(model):
        return call(model, some_inputs(task))


def last_layer(model: nn.Module, task: Task) -> nn.Module:
    """The convolution or linear map that runs last: the head of a graph model, a node model's last hop."""
    called = executed(model, weighted(model), some_inputs(task))
    if not called or called[-1] is model:
        raise EditError(
            "the model has no layer of its own that could be called its last",
            "put its weights into submodules and call them in forward()",
        )
    return called[-1]


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
