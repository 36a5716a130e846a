"""One model on many processes: what they must agree on so that none drifts from the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.autograd.function import once_differentiable


def peers(model: nn.Module) -> Any:
    """The process group that trains a `DistributedDataParallel` model together; None for any other."""
    if not isinstance(model, nn.parallel.DistributedDataParallel):
        return None
    return model.process_group


def mean_over(peers: Any, tensors: Sequence[Tensor]) -> list[Tensor]:
    """The mean of every tensor over all processes, in one message; the tensors themselves if alone.

    Every process has to ask, with tensors of the same shapes.
    """
    if peers is None or not tensors:
        return list(tensors)
    wide = torch.promote_types(tensors[0].dtype, torch.float32)  # sums of halves lose too much
    flat = torch.cat([tensor.detach().reshape(-1).to(wide) for tensor in tensors])
    distributed.all_reduce(flat, group=peers)
    parts = flat.div_(distributed.get_world_size(peers)).split([tensor.numel() for tensor in tensors])
    return [part.view_as(tensor).to(tensor) for part, tensor in zip(parts, tensors, strict=True)]


@torch.no_grad()
def agree(model: nn.Module) -> None:
    """All processes that train a model together hold what the first of them holds; every one has to ask."""
    group = peers(model)
    if group is not None:
        first = distributed.get_global_rank(group, 0)
        for value in model.state_dict().values():
            distributed.broadcast(value, first, group=group)


def shared(loss: Tensor, model: nn.Module) -> Tensor:
    """The same loss, whose gradient is the mean over the processes that train the model together.

    A data-parallel wrapper averages only what follows its own forward pass, and only once: a loss from
    elsewhere, sent backward by itself, would silently move every process's copy its own way.
    """
    group = peers(model)
    if group is None or not loss.requires_grad:
        return loss
    used = _leaves(loss)
    reached = [p for p in model.parameters() if p.requires_grad and id(p) in used]
    return torch.as_tensor(_Shared.apply([loss], group, *reached))  # type: ignore[no-untyped-call]


def _leaves(loss: Tensor) -> set[int]:
    """Ids of the tensors that a loss is a function of: the wrapper must not hear of any other."""
    todo: list[Any] = [loss.grad_fn]
    seen, found = set(), set()
    while todo:
        node = todo.pop()
        if node is not None and node not in seen:
            seen.add(node)
            found.add(id(getattr(node, "variable", None)))
            todo += [before for before, _ in node.next_functions]
    return found


class _Shared(torch.autograd.Function):
    """A loss from one process with the gradient of all."""

    @staticmethod
    def forward(ctx: Any, held: list[Tensor], group: Any, *parameters: Tensor) -> Tensor:
        ctx.held, ctx.group, ctx.parameters = held, group, parameters
        return held[0].detach().clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *outer: Tensor) -> Any:
        found = torch.autograd.grad(ctx.held[0], ctx.parameters, outer[0])
        return None, None, *mean_over(ctx.group, found)
