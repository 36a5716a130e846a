"""Combine two losses so that the gradient of the second does not conflict with that of the first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from invgnn.nn.distributed import mean_over


def projected_sum(
    task_loss: Tensor,
    mark_loss: Tensor,
    parameters: Iterable[Tensor],
    cap: float | None = None,
    peers: Any = None,
) -> Tensor:
    """Return the sum of both losses, with the conflicting part of the mark's gradient projected out.

    If the two gradients conflict, the component of the mark's gradient along the task's gradient is
    removed. A small gradient step along the rest then does not increase the task loss (Adam changes the
    direction of the step). The rest is at most `cap` times as long as the task's gradient. Call `backward`
    on the result as on any loss. Only the given parameters receive a gradient, and hooks on them fire for
    each loss and for the sum. With a `GradScaler`, scale both losses and not the result.

    With `peers`, both gradients are means over all processes, so that the compared gradients are those of
    the optimiser step. This is then a collective call: every process must make it.

    Args:
        task_loss: The loss of the task.
        mark_loss: The loss of the mark.
        parameters: The parameters to train.
        cap: Largest length of the mark's gradient relative to that of the task; None for no limit.
        peers: The process group of a data-parallel model, or None.

    Returns:
        The loss.
    """
    wanted = [p for p in parameters if p.requires_grad]
    found = _pairs(wanted, _gradient(task_loss, wanted), _gradient(mark_loss, wanted), peers)
    if not found:
        return task_loss + mark_loss
    pairs = [pair for _, pair in found]
    back, share = _weights(pairs, cap)
    both = tuple(torch.add(task.mul(1 + share * back), mark, alpha=share) for task, mark in pairs)
    value = (task_loss + mark_loss).detach()
    return torch.as_tensor(_Given.apply(value, both, *(p for p, _ in found)))  # type: ignore[no-untyped-call]


def _pairs(
    wanted: Sequence[Tensor], task: Sequence[Tensor | None], mark: Sequence[Tensor | None], peers: Any
) -> list[tuple[Tensor, tuple[Tensor, Tensor]]]:
    """Return every parameter for which some process has a gradient, with both gradients."""
    used = torch.tensor([t is not None or m is not None for t, m in zip(task, mark, strict=True)])
    filled = [
        torch.zeros_like(p) if g is None else g
        for side in (task, mark)
        for p, g in zip(wanted, side, strict=True)
    ]
    if peers is not None and wanted:
        *filled, anywhere = mean_over(peers, [*filled, used.to(filled[0])])
        used = anywhere > 0
    size = len(wanted)
    return [(wanted[i], (filled[i], filled[size + i])) for i in used.nonzero().view(-1).tolist()]


def _weights(pairs: Sequence[tuple[Tensor, Tensor]], cap: float | None) -> tuple[float, float]:
    """Return how much of the task's gradient to add to resolve the conflict, and the share to keep."""
    task, mark = (_flat(side) for side in zip(*pairs, strict=True))
    size, agree, strength = (
        float(one.dot(other)) for one, other in ((task, task), (task, mark), (mark, mark))
    )
    back = max(0.0, -agree / size) if size > 0 else 0.0
    free = max(0.0, strength - back * back * size) ** 0.5
    return back, 1.0 if cap is None or free == 0 else min(1.0, cap * size**0.5 / free)


def _gradient(loss: Tensor, parameters: list[Tensor]) -> Sequence[Tensor | None]:
    """Return the gradient of a loss with respect to each parameter, None where there is none."""
    if not loss.requires_grad or not parameters:
        return [None] * len(parameters)
    return torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True)


def _flat(gradients: Sequence[Tensor]) -> Tensor:
    """Concatenate gradients, in double precision if available.

    Products of half-precision numbers underflow.
    """
    dense = (g.to_dense() if g.is_sparse else g for g in gradients)
    flat = torch.cat([g.reshape(-1).to(gradients[0].device) for g in dense])
    return flat.double() if flat.device.type in {"cpu", "cuda"} else flat.float()


class _Given(torch.autograd.Function):
    """A number with a precomputed gradient."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, gradients: tuple[Tensor, ...], *parameters: Tensor) -> Tensor:
        ctx.gradients = gradients
        return value.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *outer: Tensor) -> Any:
        return (None, None, *(outer[0].to(g) * g for g in ctx.gradients))
