"""train(model, task, mark): the training loop of the library, with or without a mark."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from invgnn.nn.distillation import distillation_loss
from invgnn.nn.distributed import peers
from invgnn.nn.forward import call, evaluation_mode, to_batch, unwrap, weight_of
from invgnn.nn.gradient_projection import projected_sum
from invgnn.nn.optimise import WEIGHT_DECAY
from invgnn.nn.rng import seeded, without_dropout
from invgnn.nn.weight_scaling import scale_weights, unscale_weights
from invgnn.training.batching import Collated, batches, placed
from invgnn.training.distillation import TEMPERATURE
from invgnn.training.fitting import (
    BATCH_SIZE,
    FitOptions,
    History,
    Item,
    Losses,
    Progress,
    fit,
    fit_task,
    label_loss,
)
from invgnn.training.tasks import Task
from invgnn.watermark.mark import Watermark
from invgnn.watermark.score_channel import ScoreChannel

LABEL_WEIGHT = 0.5
"""Weight of the labels relative to the model's own scores, for a model that is trained on its task."""


def train(
    model: nn.Module,
    task: Task,
    mark: Watermark | None = None,
    *,
    epochs: int = 100,
    lr: float = 0.01,
    weight_decay: float = WEIGHT_DECAY,
    batch_size: int = BATCH_SIZE,
    seed: int = 41,
    select: bool = True,
    trained: bool = False,
    progress: Progress | None = None,
) -> History:
    """Train a model in place, with or without a mark, and keep the best epoch.

    On a task with several steps per epoch, the mark is embedded together with the task, after the warm-up
    steps of its recipe. On a task with one step per epoch (a node task), the model is first trained on its
    task for `epochs` epochs, and the mark is then embedded in twice as many (unless `recipe.after_task` is
    false). In these further epochs it is trained on the labels and, unless its validation accuracy was
    still rising, on its own earlier scores.

    A mark with a score channel needs a model that is trained on its task, and `mark.with_baseline(model,
    data)`. It is embedded by distillation from the baseline scores, shifted along the secret direction,
    without dropout.

    After a mark is embedded, weights before norms are scaled by `recipe.weight_scale`: the function of the
    model stays the same, and later fine-tuning changes it less. Scaled weights are unscaled before a mark
    is embedded.

    Args:
        model: The model; left in evaluation mode.
        task: The task.
        mark: The mark to embed, if any.
        epochs: Number of epochs; `planned` returns the total number.
        lr: Learning rate of Adam.
        weight_decay: Weight decay of Adam.
        batch_size: Graphs per batch.
        seed: Fixes the order of batches and dropout.
        select: Whether to keep the epoch with the best validation accuracy; otherwise the last is kept.
            With a mark only the last quarter of the epochs is eligible.
        trained: Whether the model is trained on its task already. The mark is then embedded at once, in
            `epochs` epochs.
        progress: Called after every epoch.

    Returns:
        The history of the training.

    Raises:
        SuspectError: If the model cannot be read at a level that the mark declares.
        DataError: If carriers cannot be mixed into batches of this task.
    """
    options = FitOptions(epochs, lr, weight_decay, batch_size, seed, select)
    total = planned(task, mark, epochs, batch_size, trained=trained)
    before = History()

    def report(done: int, _: int) -> None:
        if progress:
            progress(len(before.loss) + done, total)

    if mark is None:
        return fit_task(model, task, options, report)
    embedding = _Embedding(model, placed(task, model), options, report)
    embedding.check(mark)
    carriers = to_batch(mark.carriers, weight_of(unwrap(model)))  # inputs that `mark.forward` accepts
    unscale_weights(model, carriers, mark.forward)
    mark = _changed(mark, warmup_steps=0) if trained else mark
    if mark.score_channel is not None:
        with without_dropout():
            history = embedding.run(mark, _Targets(embedding.shifted(mark.channel(task.data))))
    elif not _apart(task, mark, batch_size):
        history = embedding.run(mark)
    else:
        before = before if trained else fit_task(model, task, options, report)
        targets = None if before.unfinished else _Targets(embedding.scores(), embedding.labels)
        longer = replace(embedding, options=replace(options, epochs=total - len(before.loss)))
        history = longer.run(_changed(mark, warmup_steps=0), targets)
    if mark.recipe.weight_scale is not None:
        scale_weights(model, carriers, mark.recipe.weight_scale, mark.forward)
    return before.then(history)


def planned(
    task: Task, mark: Watermark | None, epochs: int, batch_size: int = BATCH_SIZE, *, trained: bool = False
) -> int:
    """Return the total number of epochs of `train`, with a mark that may be embedded after the task.

    Args:
        task: The task.
        mark: The mark to embed, if any.
        epochs: Number of epochs, as passed to `train`.
        batch_size: Graphs per batch.
        trained: Whether the model is trained on its task already.
    """
    if mark is None or mark.score_channel is not None or trained:
        return epochs
    return 3 * epochs if _apart(task, mark, batch_size) else epochs


def _apart(task: Task, mark: Watermark, batch_size: int) -> bool:
    """Return whether a mark is embedded after the task."""
    return mark.recipe.after_task and _steps(task, batch_size) == 1


def _steps(task: Task, batch_size: int) -> int:
    """Return the number of optimiser steps in an epoch."""
    return 1 if task.level == "node" else -(-len(task.train) // batch_size)


def _changed(mark: Watermark, **changes: Any) -> Watermark:
    """Return a mark with changes to its recipe."""
    return mark.replace(recipe=replace(mark.recipe, **changes))


@dataclass(frozen=True)
class _Targets:
    """Scores that a model should keep, one row per node or graph, and labels to train on as well."""

    scores: Tensor
    labels: Tensor | None = None

    def loss(self, predicted: Tensor, batch: Any, rows: Tensor | None) -> Tensor:
        """Return the loss of one batch of numbered graphs, or of all nodes of a node task."""
        kept = self.scores[batch.y] if rows is None else self.scores
        loss = distillation_loss(predicted, kept, TEMPERATURE).mean()
        if self.labels is None:
            return loss
        if rows is None:
            return loss + LABEL_WEIGHT * cross_entropy(predicted, self.labels[batch.y])
        return loss + LABEL_WEIGHT * cross_entropy(predicted[rows], self.labels[rows])


@dataclass(frozen=True)
class _Embedding:
    """A model that is trained with a mark; one object may run several times."""

    model: nn.Module
    task: Task
    options: FitOptions
    progress: Progress

    @cached_property
    def held(self) -> Collated | None:
        """The collated graphs of a graph task."""
        return Collated(self.task.graphs) if self.task.level == "graph" else None

    @property
    def labels(self) -> Tensor:
        """The class of every node or graph."""
        return self.task.graphs[0].y if self.held is None else self.held.y

    def run(self, mark: Watermark, targets: _Targets | None = None) -> History:
        """Train on the labels, or on targets instead, and embed the mark after its warm-up steps."""
        model, task, held, options = self.model, self.task, self.held, self.options
        source = held if held is None or targets is None else held.numbered()
        steps = _steps(task, options.batch_size)
        first = mark.recipe.first_step(options.epochs * steps)
        mark = mark.replace(recipe=mark.recipe.paced(mark.m, steps, options.batch_size))

        def losses(item: Item, step: int) -> Losses:
            batch, rows = item

            def task_loss(scores: Tensor) -> Tensor:
                return (
                    label_loss(scores, batch, rows)
                    if targets is None
                    else targets.loss(scores, batch, rows)
                )

            if step < first or not mark.recipe.uses_carriers(step):
                found = task_loss(call(model, batch))
                return Losses(found, None, found)
            if mark.recipe.joint:
                joint = mark.mix(batch, step=step)
                found, marked = task_loss(joint(model)), joint.loss()
            else:
                found = task_loss(call(model, batch))
                marked = mark.loss(model, step=step, batch=batch)
            if not mark.recipe.gradient_projection:
                return Losses(found, marked, found + marked)
            total = projected_sum(found, marked, model.parameters(), mark.recipe.cap, peers(model))
            return Losses(found, marked, total)

        with seeded(options.seed):
            return fit(
                model,
                task,
                lambda: batches(task, source, options.batch_size),
                losses,
                options,
                eligible=lambda epoch: 4 * (epoch + 1) > 3 * options.epochs,
                held=held,
                progress=self.progress,
            )

    def check(self, mark: Watermark) -> None:
        """Raise an error before training if the model cannot be read or carriers cannot be mixed in."""
        if mark.recipe.joint:
            held, task = self.held, self.task
            mark.mix(task.graphs[0] if held is None else held.batch(task.train[:2]), step=0)
        for reading in mark.readings:
            mark.read(self.model, reading.access)

    def scores(self) -> Tensor:
        """Return the model's scores of every node or graph."""
        every = torch.arange(len(self.labels), device=self.labels.device)
        whole = self.task.graphs[0] if self.held is None else self.held.batch(every)
        with evaluation_mode(unwrap(self.model)), torch.no_grad():
            return call(unwrap(self.model), whole)

    def shifted(self, channel: ScoreChannel) -> Tensor:
        """Return the baseline scores of the training inputs, shifted along the secret direction."""
        batch = self.task.graphs[0] if self.held is None else self.held.batch(self.task.train)
        place = batch.edge_index.device
        found = channel.shift(torch.tensor(channel.before, dtype=torch.float32).to(place), batch)
        if self.held is None:
            return found
        return found.new_zeros(len(self.labels), found.shape[1]).index_copy(0, self.task.train, found)
