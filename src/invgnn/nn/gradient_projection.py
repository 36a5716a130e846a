"""Combine two losses so that the gradient of the second does not conflict with that of the first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from invgnn.errors import ParameterError
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
    return _projected(task_loss, mark_loss, parameters, cap, peers)[0]


class RareProjection:
    """Gradient projection that is measured in some steps only.

    Projecting out the conflict adds a multiple of the task's gradient. In the steps between two
    measurements, the multiple of the last one is the weight of the task loss, which needs one backward pass
    instead of two.

    Args:
        every: A measurement is made in every so-many-th step.
    """

    def __init__(self, every: int) -> None:
        self.every, self._step, self._weight = every, 0, 1.0

    def sum(
        self,
        task_loss: Tensor,
        mark_loss: Tensor,
        parameters: Iterable[Tensor],
        cap: float | None = None,
        peers: Any = None,
    ) -> Tensor:
        """Return the sum of both losses for the next step; arguments as in `projected_sum`."""
        self._step += 1
        if cap is None and (self._step - 1) % self.every:
            return self._weight * task_loss + mark_loss
        found, self._weight = _projected(task_loss, mark_loss, parameters, cap, peers)
        return found


def _projected(
    task_loss: Tensor, mark_loss: Tensor, parameters: Iterable[Tensor], cap: float | None, peers: Any
) -> tuple[Tensor, float]:
    """Return the sum of both losses, and the factor of the task's gradient in that of the sum."""
    wanted = [p for p in parameters if p.requires_grad]
    found = _pairs(wanted, _gradient(task_loss, wanted), _gradient(mark_loss, wanted), peers)
    if not found:
        return task_loss + mark_loss, 1.0
    both, weight = _combined([pair for _, pair in found], cap)
    value = (task_loss + mark_loss).detach()
    given = _Given.apply(value, both, *(p for p, _ in found))  # type: ignore[no-untyped-call]
    return torch.as_tensor(given), weight


def check_task_loss(loss: Any) -> None:
    """Refuse a task loss that no gradient can be taken of.

    Raises:
        ParameterError: If it is not a single number in a tensor, or has no gradient where gradients are on.
    """
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        what = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
        raise ParameterError(
            f"the task loss is {what}, expected a tensor with a single number",
            "write mark.joint_loss(model, task_loss), the model first, with a mean or sum as the loss",
        )
    if not loss.requires_grad and torch.is_grad_enabled():
        raise ParameterError(
            "the task loss has no gradient, so the model would learn the mark alone",
            "compute it from the model's output without detach(), item() or torch.no_grad()",
        )


def add_projected(
    mark_loss: Tensor, parameters: Iterable[Tensor], cap: float | None = None, peers: Any = None
) -> None:
    """Add the gradient of a mark to the gradients that parameters hold, without what conflicts with them.

    Args:
        mark_loss: The loss of the mark.
        parameters: The parameters to train, with the task's gradient in `grad`.
        cap: Largest length of the mark's gradient relative to that of the task; None for no limit.
        peers: The process group of a data-parallel model, or None.
    """
    wanted = [p for p in parameters if p.requires_grad]
    found = _pairs(wanted, [p.grad for p in wanted], _gradient(mark_loss, wanted), peers)
    if found:
        both, _ = _combined([pair for _, pair in found], cap)
        for (p, _), grad in zip(found, both, strict=True):
            p.grad = grad


def _combined(
    pairs: Sequence[tuple[Tensor, Tensor]], cap: float | None
) -> tuple[tuple[Tensor, ...], float]:
    """Return the sum of both gradients of every parameter, without conflicts, and the task's factor."""
    back, share = _weights(pairs, cap)
    weight = 1 + share * back
    return tuple(torch.add(task.mul(weight), mark, alpha=share) for task, mark in pairs), weight


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
    try:
        return torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True)
    except RuntimeError as error:
        if CHECKPOINTED in str(error):
            return accumulated(loss, parameters)
        if _DONATED not in str(error):
            raise
    # A compiled graph that gives its buffers away can be sent backward once. It is shared with no other
    # loss: a mark's own forward pass runs the module inside.
    return torch.autograd.grad(loss, parameters, allow_unused=True)


CHECKPOINTED = "heckpoint"
"""Part of the error of torch for a reentrant checkpoint, which `autograd.grad` cannot pass."""
_DONATED = "donated buffers"
"""Part of the error of torch for a compiled graph that is to be kept."""


def accumulated(
    loss: Tensor, parameters: Sequence[Tensor], outer: Tensor | None = None
) -> list[Tensor | None]:
    """Return the gradient of a loss by a backward pass that accumulates, as reentrant checkpoints need it.

    The gradients that the parameters hold are left as they were.

    Args:
        loss: The loss.
        parameters: The parameters.
        outer: Gradient of the final loss with respect to this one; by default 1.
    """
    before = [p.grad for p in parameters]
    try:
        for p in parameters:
            p.grad = None
        torch.autograd.backward(loss, outer, retain_graph=True)
        return [p.grad for p in parameters]
    finally:
        for p, grad in zip(parameters, before, strict=True):
            p.grad = grad


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
