"""Estimate the running statistics of batch norms again, for weights that moved since."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from invgnn.nn.forward import Forward, observe, placed, unwrap, weight_of
from invgnn.nn.layers import batch_norms, parts_of
from invgnn.nn.rng import preserved_rng


def tracking_norms(model: nn.Module) -> list[_BatchNorm]:
    """Return the batch norms of a model that keep running statistics."""
    return [norm for norm in batch_norms(model) if norm.running_mean is not None]


@torch.no_grad()
def reestimate(model: nn.Module, batches: Iterable[Any], forward: Forward | None = None) -> int:
    """Replace the running statistics of batch norms by plain averages over batches of task inputs.

    Only the norms run in training mode, so dropout has no effect. No weight changes. Modes, momenta and
    random states are restored; after an error, or without any batch, the statistics are, too.

    Args:
        model: The model, changed in place.
        batches: PyG batches.
        forward: Calls the model on a batch; by default the names of its arguments decide.

    Returns:
        The number of norms whose statistics were estimated.
    """
    core = unwrap(model)
    norms, like = tracking_norms(core), weight_of(core)
    if not norms:
        return 0
    count = 0
    with preserved_rng(), _averaging(core, norms) as restore:
        for count, batch in enumerate(batches, 1):  # noqa: B007 - counted for the check below
            observe(core, batch if like is None else placed(batch, like), None, forward)
        if not count:
            restore()
    return len(norms) if count else 0


@contextmanager
def _averaging(core: nn.Module, norms: list[_BatchNorm]) -> Iterator[Any]:
    """Let norms average over a block, everything else in evaluation mode; yield what undoes it."""
    modes = [(part, part.training) for part in parts_of(core)]
    momenta = [norm.momentum for norm in norms]
    kept = [{name: value.clone() for name, value in norm.named_buffers()} for norm in norms]

    def restore() -> None:
        for norm, values in zip(norms, kept, strict=True):
            for name, value in norm.named_buffers():
                value.copy_(values[name])

    try:
        core.eval()
        for norm in norms:
            norm.reset_running_stats()
            norm.train().momentum = None  # in PyTorch None means a plain average
        yield restore
    except BaseException:
        restore()
        raise
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
        for part, training in modes:
            part.training = training
