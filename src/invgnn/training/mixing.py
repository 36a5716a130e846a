"""Batches of a graph task with carriers, gathered in one go from graphs and carriers collated together."""

from __future__ import annotations

import torch
from torch import Tensor

from invgnn.nn.forward import to_batch
from invgnn.training.batching import Collated
from invgnn.watermark.carrier_batches import ENOUGH
from invgnn.watermark.mark import Watermark
from invgnn.watermark.mixed_batch import MixedBatch


class Mixing:
    """The graphs of a task, followed by the carriers of a mark.

    A batch of task graphs and carriers is the same as that of `mark.mix`, and costs no copies of its own.

    Args:
        held: The collated graphs of the task, with the classes or indices that the loss needs.
        mark: The mark, with a recipe that follows a plan.
        steps: Optimiser steps of the run.
    """

    def __init__(self, held: Collated, mark: Watermark, steps: int) -> None:
        self.mark, self.steps, self.first = mark, steps, len(held.nodes)
        self.held = held.followed_by(to_batch(mark.batches.carriers, held.x))

    def batch(self, index: Tensor, step: int) -> MixedBatch:
        """Return the mixed batch of some task graphs in a step that uses carriers.

        Its `batch.y` holds the classes or indices of the task graphs alone.

        Args:
            index: The task graphs.
            step: Number of the optimiser step.
        """
        portion = self.mark.schedule.at(self.mark.recipe, step, self.steps)
        if len(index) < ENOUGH:  # too few to serve as ordinary inputs
            mixed = MixedBatch(self.mark, self.held.batch(index), portion)
            mixed.batch.y = self.held.y[index]
            return mixed
        carriers = torch.from_numpy(portion.carriers).to(index.device) + self.first
        batch = self.held.batch(torch.cat([index, carriers]))
        batch.y = batch.y[: len(index)]
        return MixedBatch(self.mark, batch, portion, appended=True)
