"""Data-parallel training: averages and broadcasts that keep the copies of a model equal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, distributed, nn
from torch.autograd.function import once_differentiable


def peers(model: nn.Module) -> Any:
    """Return the process group of a `DistributedDataParallel` model, or None for any other model."""
    if not isinstance(model, nn.parallel.DistributedDataParallel):
        return None
    return model.process_group


def mean_over(peers: Any, tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return the mean of every tensor over all processes, using one message.

    Collective call: every process must make it, with tensors of the same shapes.

    Args:
        peers: The process group. With None the tensors are returned unchanged.
        tensors: The tensors.
    """
    if peers is None or not tensors:
        return list(tensors)
    wide = torch.promote_types(
        tensors[0].dtype, torch.float32
    )  # sums in half precision lose too much accuracy
    flat = torch.cat([tensor.detach().reshape(-1).to(wide) for tensor in tensors])
    distributed.all_reduce(flat, group=peers)
    parts = flat.div_(distributed.get_world_size(peers)).split([tensor.numel() for tensor in tensors])
    return [part.view_as(tensor).to(tensor) for part, tensor in zip(parts, tensors, strict=True)]


@torch.no_grad()
def agree(model: nn.Module) -> None:
    """Copy the state of the first process to all processes that train the model.

    Collective call: every process must make it. Without data-parallel training nothing happens.
    """
    group = peers(model)
    if group is not None:
        first = distributed.get_global_rank(group, 0)
        for value in model.state_dict().values():
            distributed.broadcast(value, first, group=group)


def shared(loss: Tensor, model: nn.Module) -> Tensor:
    """Return the same loss with a gradient that is the mean over the processes that train the model.

    A data-parallel wrapper averages only the gradients of its own forward pass, and only once. A separate
    backward pass of another loss would let the copies of the model diverge silently.

    Args:
        loss: A loss of this process.
        model: The model, with or without a data-parallel wrapper.
    """
    group = peers(model)
    if group is None or not loss.requires_grad:
        return loss
    used = leaves(loss).ids  # the data-parallel wrapper must not be notified of any other parameter
    reached = [p for p in model.parameters() if p.requires_grad and id(p) in used]
    return torch.as_tensor(_Shared.apply([loss], group, *reached))  # type: ignore[no-untyped-call]


class Leaves(NamedTuple):
    """On which leaf tensors a loss depends.

    Attributes:
        ids: Their ids.
        hidden: Whether a reentrant checkpoint hides some of them.
    """

    ids: set[int]
    hidden: bool


def leaves(loss: Tensor) -> Leaves:
    """Return the leaf tensors on which a loss depends.

    Args:
        loss: The loss.
    """
    todo: list[Any] = [loss.grad_fn]
    seen, found, hidden = set(), set(), False
    while todo:
        node = todo.pop()
        if node is not None and node not in seen:
            seen.add(node)
            found.add(id(getattr(node, "variable", None)))
            hidden = hidden or node.name() == "CheckpointFunctionBackward"
            todo += [before for before, _ in node.next_functions]
    return Leaves(found, hidden)


class _Shared(torch.autograd.Function):
    """A loss of one process whose gradient is the mean over all processes."""

    @staticmethod
    def forward(ctx: Any, held: list[Tensor], group: Any, *parameters: Tensor) -> Tensor:
        ctx.held, ctx.group, ctx.parameters = held, group, parameters
        return held[0].detach().clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *outer: Tensor) -> Any:
        found = torch.autograd.grad(ctx.held[0], ctx.parameters, outer[0])
        return None, None, *mean_over(ctx.group, found)
