"""One run of the training loop that embeds a mark: together with the task, or after it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from invgnn.nn.distillation import divergence, softened
from invgnn.nn.distributed import peers
from invgnn.nn.forward import evaluation_mode, unwrap
from invgnn.nn.gradient_projection import RareProjection
from invgnn.nn.rng import seeded
from invgnn.training.batching import Collated, batches, shuffled
from invgnn.training.distillation import TEMPERATURE
from invgnn.training.fitting import FitOptions, History, Item, Losses, Progress, fit, label_loss
from invgnn.training.mixing import Mixing
from invgnn.training.planning import plan_of
from invgnn.training.tasks import Task
from invgnn.watermark.mark import Watermark
from invgnn.watermark.plan import Plan
from invgnn.watermark.score_channel import ScoreChannel

AFTER_TASK_RATES = (4.0, 1.0)
"""Learning rates of the steps after the task, relative to that of the task: the next if one diverges."""

DIVERGED = 3.0
"""A run has diverged once its task loss is this many times that of its first step."""

SETTLED = 0.02
"""A mark is embedded once its mean loss, relative to beta, is below this value over a round of carriers."""

ELIGIBLE = 0.25
"""Share of the epochs, counted from the end, of which a marked model keeps the best."""

EARLIEST = 12
"""Number of steps after which a mark may count as embedded."""

WARMUP = 8
"""Number of steps after the task in which the learning rate rises."""

PROJECT_EVERY = 4
"""After the task, conflicts of gradients are measured in every so-many-th step: they change slowly."""

FALL = 1.0
"""In how many steps the learning rate falls once a mark is embedded, relative to those made so far."""

SCORE_WEIGHT = 2.0
"""Weight of a model's own earlier scores, relative to the labels and to the mark, after the task."""


class Diverged(Exception):
    """The task loss of a run is far above that of its first step."""


@dataclass(frozen=True)
class Targets:
    """Scores that a model should keep, one row per node or graph, and labels to train on as well."""

    scores: Tensor
    labels: Tensor | None = None

    @cached_property
    def softened(self) -> Tensor:
        """The scores as softened log-probabilities."""
        return softened(self.scores, TEMPERATURE)

    def loss(self, predicted: Tensor, batch: Any, rows: Tensor | None) -> Tensor:
        """Return the loss of one batch of numbered graphs, or of all nodes of a node task."""
        kept = self.softened[batch.y] if rows is None else self.softened
        loss = divergence(predicted, kept, TEMPERATURE).mean()
        if self.labels is None:
            return loss
        chosen = predicted if rows is None else predicted[rows]
        return SCORE_WEIGHT * loss + cross_entropy(chosen, self.labels[batch.y if rows is None else rows])


@dataclass(frozen=True)
class Embedding:
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

    def plan(self, mark: Watermark) -> Plan:
        """Return which steps use carriers."""
        return plan_of(self.task, mark, self.options.epochs, self.options.batch_size)

    def after_task(self, mark: Watermark) -> History:
        """Embed the mark in a few steps, each on the whole graph and on a fair share of the carriers.

        The learning rate is high at first, because a mark that is embedded in large steps withstands
        fine-tuning better. If the model cannot take it, its weights are restored and the rate is lowered.
        """
        plan = self.plan(mark)
        before = {name: value.clone() for name, value in self.model.state_dict().items()}
        targets = Targets(self.scores(), self.labels)
        alone = peers(self.model) is None  # otherwise one process might go on without the others
        for rate in AFTER_TASK_RATES if alone else AFTER_TASK_RATES[-1:]:
            lr = rate * self.options.lr
            options = replace(self.options, epochs=plan.steps, lr=lr, decay=True, warmup=WARMUP)
            try:
                return replace(self, options=options).run(
                    mark, plan, targets, after=True, bound=DIVERGED if rate > 1 else math.inf
                )
            except Diverged:
                self.model.load_state_dict(before)
        raise AssertionError("the last learning rate has no bound")

    def run(
        self,
        mark: Watermark,
        plan: Plan,
        targets: Targets | None = None,
        *,
        after: bool = False,
        bound: float = math.inf,
    ) -> History:
        """Train on the labels, or on targets instead, and embed the mark after its warm-up steps.

        Args:
            mark: The mark.
            plan: Which steps use carriers.
            targets: Scores to train on.
            after: Whether the task has been learnt: finish early if the mark is, and project gradients.
            bound: Largest task loss relative to the first.
        """
        model, task, held, options = self.model, self.task, self.held, self.options
        source = held if held is None or targets is None else held.numbered()
        mark = mark.replace(recipe=mark.recipe.following(plan))
        recipe, steps, most = mark.recipe, plan.steps, math.inf
        project = recipe.gradient_projection
        project = after or recipe.cap is not None if project is None else project
        projection = RareProjection(PROJECT_EVERY if after else 1)
        plain = recipe.joint and not mark.batches.carriers.more
        mixing = Mixing(source, mark, steps) if source is not None and plain else None

        def task_loss(scores: Tensor, item: Item) -> Tensor:
            nonlocal most
            found = label_loss(scores, *item) if targets is None else targets.loss(scores, *item)
            if bound < math.inf:
                most = bound * float(found.detach()) if most == math.inf else most
                if not float(found.detach()) <= most:
                    raise Diverged
            return found

        def losses(item: Item, step: int) -> Losses:
            batch, rows = item
            if plan.use(step) is None:
                batch = batch if mixing is None else mixing.held.batch(batch)
                found = task_loss(self.task.scores(model, batch), (batch, rows))
                return Losses(found, None, found)
            if recipe.joint:
                joint = mixing.batch(batch, step) if mixing else mark.mix(batch, step=step, steps=steps)
                shown = joint.batch if mixing else batch
                found, marked = task_loss(joint(model), (shown, rows)), joint.loss()
            else:
                found = task_loss(self.task.scores(model, batch), item)
                marked = mark.loss(model, step=step, steps=steps)
            if not project:
                return Losses(found, marked, found + marked)
            both = projection.sum(found, marked, model.parameters(), recipe.cap, peers(model))
            return Losses(found, marked, both)

        def settled(history: History) -> int:
            done, portions = len(history.mark_loss), math.ceil(mark.m / plan.count)
            used = [loss for step, loss in enumerate(history.mark_loss) if plan.use(step) is not None]
            last = used[-portions:]
            low = len(last) == portions and sum(last) < portions * SETTLED * recipe.beta
            return round(FALL * done) if low and done >= EARLIEST else 0

        def items() -> Iterable[Item]:
            if mixing is None:
                return batches(task, source, options.batch_size)
            return ((index, None) for index in shuffled(task, options.batch_size))

        with seeded(options.seed):
            return fit(
                model,
                task,
                items,
                losses,
                options,
                eligible=ELIGIBLE,
                settled=settled if after and peers(model) is None else None,
                held=held,
                progress=self.progress,
            )

    def check(self, mark: Watermark) -> None:
        """Raise an error before training if the model cannot be read or carriers cannot be mixed in."""
        if mark.recipe.joint:
            held, task = self.held, self.task
            known = mark.batches.carriers.more
            mark.mix(task.graphs[0] if held is None else held.only(known).batch(task.train[:2]), step=0)
        for reading in mark.readings:
            mark.read(self.model, reading.access)

    def scores(self) -> Tensor:
        """Return the model's scores of every node or graph."""
        every = torch.arange(len(self.labels), device=self.labels.device)
        whole = self.task.graphs[0] if self.held is None else self.held.batch(every)
        with evaluation_mode(unwrap(self.model)), torch.no_grad():
            return self.task.scores(unwrap(self.model), whole)

    def shifted(self, channel: ScoreChannel) -> Tensor:
        """Return the baseline scores of the training inputs, shifted along the secret direction."""
        batch = self.task.graphs[0] if self.held is None else self.held.batch(self.task.train)
        place = batch.edge_index.device
        found = channel.shift(torch.tensor(channel.before, dtype=torch.float32).to(place), batch)
        if self.held is None:
            return found
        return found.new_zeros(len(self.labels), found.shape[1]).index_copy(0, self.task.train, found)
