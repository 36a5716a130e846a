"""The training loop of the library: Adam over batches, epoch by epoch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TypeVar

import torch
from torch import Tensor, nn

from invgnn.nn.perception import project_heads

WEIGHT_DECAY = 5e-4
"""Default weight decay."""
B = TypeVar("B")


class LearningRate:
    """The learning rate of every epoch of a run: it may rise at the start and fall to zero at the end.

    Args:
        lr: The highest learning rate.
        epochs: Number of epochs.
        decay: Whether the rate falls linearly to nearly zero over the second half of the epochs. The
            running statistics of norms then match the final weights.
        warmup: Over how many epochs the rate rises to its highest value.
    """

    def __init__(self, lr: float, epochs: int, *, decay: bool = False, warmup: int = 0) -> None:
        self.lr, self.epochs, self.warmup = lr, epochs, warmup
        self._last_full = epochs / 2 if decay else math.inf

    def at(self, epoch: int) -> float:
        """Return the learning rate of an epoch.

        Args:
            epoch: Number of the epoch, counted from 0.
        """
        rise = (epoch + 1) / (self.warmup + 1)
        left = self.epochs - epoch - 0.5
        fall = left / (self.epochs - self._last_full) if epoch >= self._last_full else 1.0
        return self.lr * min(1.0, rise, fall)

    def falls(self, epoch: int) -> bool:
        """Return whether the rate of an epoch is one of those that fall to zero.

        Args:
            epoch: Number of the epoch, counted from 0.
        """
        return epoch >= self._last_full

    def finish_after(self, epoch: int, epochs: int) -> None:
        """Let the rate fall to nearly zero from this epoch on, unless the run ends sooner anyway.

        Args:
            epoch: Number of the epoch that was just finished.
            epochs: Number of epochs in which the rate falls.
        """
        if epoch < self._last_full:
            self.epochs, self._last_full = min(self.epochs, epoch + 1 + epochs), epoch + 1


def optimise(
    model: nn.Module,
    batches: Callable[[], Iterable[B]],
    loss: Callable[[B, int], Tensor],
    rate: LearningRate,
    *,
    weight_decay: float = WEIGHT_DECAY,
    decoupled: bool = False,
    after_epoch: Callable[[int], None] | None = None,
) -> None:
    """Minimise a loss in place with Adam.

    Args:
        model: The model. It is set to training mode at the start of every epoch.
        batches: Returns the batches of one epoch.
        loss: Maps a batch and the number of the optimiser step to the loss.
        rate: Learning rate and number of epochs.
        weight_decay: Weight decay.
        decoupled: Whether weights decay on their own (AdamW) instead of by a penalty in the loss. Adam
            turns a penalty into steps of constant size, which over thousands of steps set most weights of
            norms to zero.
        after_epoch: Called with the number of every finished epoch, counted from 0.
    """
    kind = torch.optim.AdamW if decoupled else torch.optim.Adam
    optimiser = kind(model.parameters(), lr=rate.lr, weight_decay=weight_decay)
    epoch = step = 0
    while epoch < rate.epochs:
        model.train()
        for group in optimiser.param_groups:
            group["lr"] = rate.at(epoch)
        for batch in batches():
            found = loss(batch, step)
            optimiser.zero_grad()
            found.backward()
            optimiser.step()
            project_heads(model)
            step += 1
        if after_epoch is not None:
            after_epoch(epoch)
        epoch += 1
