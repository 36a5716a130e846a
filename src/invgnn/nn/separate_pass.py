"""A forward pass apart from the task's: on copies of the buffers, and sent backward in the same way.

Gradient checkpointing runs parts of a forward pass again during the backward pass. The second run must find
what the first one found, and must leave the model's statistics alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from invgnn.nn.distributed import leaves
from invgnn.nn.gradient_projection import CHECKPOINTED, accumulated
from invgnn.nn.layers import parts_of

Buffers = list[tuple[nn.Module, str, Tensor]]
"""Buffers with the modules and names that hold them."""


def cloned_buffers(model: nn.Module) -> Buffers:
    """Return copies of all buffers of a model, each tensor copied once."""
    copies: dict[int, Tensor] = {}
    return [
        (part, name, copies.setdefault(id(value), value.clone()))
        for part in parts_of(model)
        for name, value in part._buffers.items()
        if value is not None
    ]


@contextmanager
def each_within(modules: Iterable[nn.Module], inner: AbstractContextManager[Any]) -> Iterator[None]:
    """Let every call of some modules run within another block, while this block runs.

    Torch suspends function modes in a backward pass, and with it in what a checkpoint runs again.

    Args:
        modules: The modules.
        inner: The context manager to enter for every call; it can be entered again and again.
    """
    held = [(module, vars(module).get("forward")) for module in modules]
    try:
        for module, _ in held:
            vars(module)["forward"] = _within(module.forward, inner)
        yield
    finally:
        for module, own in held:
            del vars(module)["forward"]
            if own is not None:
                vars(module)["forward"] = own


def _within(forward: Callable[..., Any], inner: AbstractContextManager[Any]) -> Callable[..., Any]:
    """Return a function that runs within a block."""

    def called(*args: Any, **kwargs: Any) -> Any:
        with inner:
            return forward(*args, **kwargs)

    return called


@contextmanager
def swapped(buffers: Buffers) -> Iterator[None]:
    """Let a model use other buffers in a block.

    Args:
        buffers: What `cloned_buffers` returned for it.
    """
    before = [(part, name, part._buffers[name]) for part, name, _ in buffers]
    try:
        for part, name, value in buffers:
            part._buffers[name] = value
        yield
    finally:
        for part, name, held in before:
            part._buffers[name] = held


def sent_back_within(
    loss: Tensor, model: nn.Module, block: Callable[[], AbstractContextManager[None]]
) -> Tensor:
    """Return the same loss, whose backward pass runs within a block.

    Args:
        loss: The loss of a forward pass that ran within such a block.
        model: The model.
        block: Returns the context manager.
    """
    trainable = [p for p in model.parameters() if p.requires_grad]
    if not loss.requires_grad or not trainable:
        return loss
    used = leaves(loss)
    reached = trainable if used.hidden else [p for p in trainable if id(p) in used.ids]
    return torch.as_tensor(_Within.apply([loss], block, *reached))  # type: ignore[no-untyped-call]


class _Within(torch.autograd.Function):
    """A loss whose gradient is computed within a block."""

    @staticmethod
    def forward(ctx: Any, held: list[Tensor], block: Any, *parameters: Tensor) -> Tensor:
        ctx.held, ctx.block, ctx.parameters = held, block, parameters
        return held[0].detach().clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *outer: Tensor) -> Any:
        loss, parameters = ctx.held[0], ctx.parameters
        with ctx.block():
            try:
                found = torch.autograd.grad(
                    loss, parameters, outer[0], retain_graph=True, allow_unused=True
                )
            except RuntimeError as error:
                if CHECKPOINTED not in str(error):
                    raise
                found = tuple(accumulated(loss, parameters, outer[0]))
        return None, None, *found
