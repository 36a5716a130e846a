"""The training loop of the library: Adam over batches, epoch by epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import torch
from torch import Tensor, nn

from invgnn.nn.perception import project_heads

WEIGHT_DECAY = 5e-4
"""Default weight decay."""
B = TypeVar("B")


def optimise(
    model: nn.Module,
    batches: Callable[[], Iterable[B]],
    loss: Callable[[B, int], Tensor],
    *,
    epochs: int,
    lr: float,
    weight_decay: float = WEIGHT_DECAY,
    after_epoch: Callable[[int], None] | None = None,
) -> None:
    """Minimise a loss in place with Adam.

    Args:
        model: The model. It is set to training mode at the start of every epoch.
        batches: Returns the batches of one epoch.
        loss: Maps a batch and the number of the optimiser step to the loss.
        epochs: Number of epochs.
        lr: Learning rate.
        weight_decay: Weight decay.
        after_epoch: Called with the number of every finished epoch, counted from 0.
    """
    optimiser = torch.optim.Adam(model.parameters(), lr=lr, weight_decay=weight_decay)
    step = 0
    for epoch in range(epochs):
        model.train()
        for batch in batches():
            found = loss(batch, step)
            optimiser.zero_grad()
            found.backward()
            optimiser.step()
            project_heads(model)
            step += 1
        if after_epoch is not None:
            after_epoch(epoch)
