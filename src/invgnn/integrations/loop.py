"""MarkLoop: the three places where a mark enters a hand-written training loop."""

from __future__ import annotations

from typing import Any

from torch import nn

from invgnn.nn.distributed import peers
from invgnn.nn.forward import unwrap
from invgnn.nn.gradient_projection import add_projected
from invgnn.watermark.levels import Level
from invgnn.watermark.mark import Watermark


class MarkLoop:
    """A mark beside a training loop: its gradient, its monitoring and its end.

    Call `before_step` between `loss.backward()` and `optimiser.step()`, `after_epoch` once per epoch and
    `finish` at the end. The task loss, accumulated gradients and mixed precision stay yours; with a
    `GradScaler`, call `scaler.unscale_(optimiser)` before `before_step`.

    Args:
        mark: The mark.
        model: The model that is trained, with or without a data-parallel or compiled wrapper.
        steps: Optimiser steps of the whole training, at whose end the presentations are made; None uses
            some carriers in every step.

    Raises:
        SuspectError: If the model cannot be read at a declared level.
    """

    def __init__(self, mark: Watermark, model: nn.Module, steps: int | None = None) -> None:
        self.mark, self.model, self.steps, self.step = mark, model, steps, 0
        for reading in mark.readings:
            mark.read(unwrap(model), reading.access)

    def before_step(self) -> float:
        """Add the mark's gradient to the gradients of the parameters, without what conflicts with them.

        Returns:
            The mark's loss; 0 in a step without carriers.
        """
        loss = self.mark.loss(unwrap(self.model), step=self.step, steps=self.steps)
        self.step += 1
        if loss.requires_grad:
            add_projected(loss, self.model.parameters(), self.mark.recipe.cap, peers(self.model))
        return float(loss.detach())

    def after_epoch(self) -> dict[str, float]:
        """Return what `mark.monitor` measures, to be logged."""
        return self.mark.monitor(self.model)

    def finish(self, data: Any) -> dict[str, Level]:
        """Finish the embedding on inputs of the task; see `Watermark.finish`."""
        return self.mark.finish(self.model, data)
