"""train(model, task, mark): the training loop of the library, with or without a mark."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from invgnn.errors import WeakMarkWarning
from invgnn.nn.distillation import distillation_loss
from invgnn.nn.distributed import peers
from invgnn.nn.forward import call, evaluation_mode, to_batch, unwrap, weight_of
from invgnn.nn.gradient_projection import RareProjection
from invgnn.nn.optimise import WEIGHT_DECAY
from invgnn.nn.rng import seeded, without_dropout
from invgnn.nn.weight_scaling import scale_weights, unscale_weights
from invgnn.stats.evidence import GRINDING_BITS, evidence_of
from invgnn.training.batching import Collated, batches, placed, shuffled
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
from invgnn.training.mixing import Mixing
from invgnn.training.tasks import Task
from invgnn.watermark.mark import Watermark
from invgnn.watermark.plan import Plan
from invgnn.watermark.recipe import CARRIERS_WITHOUT_PLAN
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

WITH_TASK_WEIGHT = 0.5
"""Weight of the mark's loss in a run that has enough steps, relative to `recipe.beta`."""

SCORE_WEIGHT = 2.0
"""Weight of a model's own earlier scores, relative to the labels and to the mark, after the task."""


def train(
    model: nn.Module,
    task: Task,
    mark: Watermark | None = None,
    *,
    epochs: int = 100,
    lr: float = 0.01,
    weight_decay: float = WEIGHT_DECAY,
    decoupled: bool | None = None,
    decay: bool = True,
    batch_size: int = BATCH_SIZE,
    seed: int = 41,
    select: bool = True,
    trained: bool = False,
    progress: Progress | None = None,
) -> History:
    """Train a model in place, with or without a mark, and keep the best epoch.

    On a task with several steps per epoch, the mark is embedded together with the task, in as many of the
    last steps as its presentations take, with half the weight `recipe.beta` if there are enough steps for
    all of them. On a task with one step per epoch (a node task), the model is first trained on its task for
    `epochs` epochs, and the mark is then embedded in `recipe.after_task` further ones, at a higher learning
    rate. In these it is trained on the labels and on its own earlier scores.

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
        decoupled: Whether weights decay on their own (AdamW) instead of by a penalty in the loss (Adam).
            None decouples on graph tasks: there, a penalty switches off most channels of a model with norms
            and costs accuracy, with or without a mark. On node tasks the penalty is the usual choice.
        decay: Whether the learning rate falls to zero over the second half of the epochs, with or without a
            mark. The statistics of norms then match the final weights.
        batch_size: Graphs per batch.
        seed: Fixes the order of batches and dropout.
        select: Whether to keep the epoch with the best validation accuracy; otherwise the last is kept.
            With a mark only the last quarter of the epochs is eligible.
        trained: Whether the model is trained on its task already. The mark is then embedded at once: on a
            node task in `recipe.after_task` epochs, on others in `epochs` epochs.
        progress: Called after every epoch.

    Returns:
        The history of the training.

    Raises:
        SuspectError: If the model cannot be read at a level that the mark declares.
        DataError: If carriers cannot be mixed into batches of this task.

    Warns:
        WeakMarkWarning: If the model gives fewer than 80 bits of evidence at a declared level.
    """
    decoupled = task.level == "graph" if decoupled is None else decoupled
    options = FitOptions(
        epochs, lr, weight_decay, batch_size, seed, select, decay=decay, decoupled=decoupled
    )
    total = planned(task, mark, epochs, batch_size, trained=trained)
    before = History()

    def report(done: int, _: int) -> None:
        if progress:
            progress(len(before.loss) + done, total)

    if mark is None:
        return fit_task(model, task, options, report)
    embedding = _Embedding(model, placed(task, model), options, report)
    embedding.check(mark)
    carriers = to_batch(mark.batches.carriers, weight_of(unwrap(model)))  # as `mark.forward` takes them
    unscale_weights(model, carriers, mark.forward)
    mark = _changed(mark, warmup_steps=0) if trained else mark
    if mark.score_channel is not None:
        with without_dropout():
            targets = _Targets(embedding.shifted(mark.channel(task.data)))
            history = embedding.run(mark, embedding.plan(mark), targets)
    elif not _apart(task, mark, batch_size):
        plan = embedding.plan(mark)
        history = embedding.run(_lighter(mark) if plan.complete else mark, plan)
    else:
        before = before if trained else fit_task(model, task, options, report)
        history = embedding.after_task(mark)
    if mark.recipe.weight_scale is not None:
        scale_weights(model, carriers, mark.recipe.weight_scale, mark.forward)
    _warn_if_weak(model, mark)
    return before.then(history)


def _warn_if_weak(model: nn.Module, mark: Watermark) -> None:
    """Warn if a level of a mark that could prove ownership gives too little evidence for it."""
    if mark.context["key"] != "keyed" or evidence_of(mark.bits, mark.bits).bits() < GRINDING_BITS:
        return  # no exact null, or too few carriers
    found = {r.access: mark.evidence(mark.read(unwrap(model), r.access)).bits() for r in mark.readings}
    weak = ", ".join(f"{access} {bits:.0f} bits" for access, bits in found.items() if bits < GRINDING_BITS)
    if weak:
        warnings.warn(
            f"the mark is weak: {weak} of evidence, and `owned` needs {GRINDING_BITS}. Train for more "
            "steps, or use Recipe(presentations=) to use every carrier more often",
            WeakMarkWarning,
            stacklevel=3,
        )


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
    if mark is None or not _apart(task, mark, batch_size):
        return epochs
    return mark.recipe.after_task + (0 if trained else epochs)


def plan_of(task: Task, mark: Watermark, epochs: int, batch_size: int = BATCH_SIZE) -> Plan:
    """Return how `train` embeds a mark: how many carriers it uses in which steps.

    Args:
        task: The task.
        mark: The mark.
        epochs: Number of epochs, as passed to `train`.
        batch_size: Graphs per batch.
    """
    recipe = mark.recipe
    if not _apart(task, mark, batch_size):
        return recipe.plan(mark.m, epochs * _steps(task, batch_size))
    steps, count = recipe.after_task, _fair_share(task, mark)
    shown = math.ceil(steps * count / mark.m)
    return Plan.spread(mark.m, steps, presentations=shown, carriers=count, warmup_steps=0)


def _fair_share(task: Task, mark: Watermark) -> int:
    """Return how many carriers have about a quarter of the nodes of a node task, at least 32."""
    nodes = sum(int(graph.num_nodes) for graph in task.graphs) if task.level == "node" else 0
    least = mark.recipe.carriers or CARRIERS_WITHOUT_PLAN
    return min(mark.m, max(least, nodes * mark.m // (4 * mark.carriers.num_nodes)))


def _apart(task: Task, mark: Watermark, batch_size: int) -> bool:
    """Return whether a mark is embedded after the task."""
    one_step = _steps(task, batch_size) == 1
    return one_step and mark.recipe.after_task > 0 and mark.score_channel is None


def _steps(task: Task, batch_size: int) -> int:
    """Return the number of optimiser steps in an epoch."""
    return 1 if task.level == "node" else -(-len(task.train) // batch_size)


def _lighter(mark: Watermark) -> Watermark:
    """Return a mark whose loss has the weight of a training that is long enough."""
    return _changed(mark, beta=WITH_TASK_WEIGHT * mark.recipe.beta)


def _changed(mark: Watermark, **changes: Any) -> Watermark:
    """Return a mark with changes to its recipe."""
    return mark.replace(recipe=replace(mark.recipe, **changes))


class _Diverged(Exception):
    """The task loss of a run is far above that of its first step."""


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
        chosen = predicted if rows is None else predicted[rows]
        return SCORE_WEIGHT * loss + cross_entropy(chosen, self.labels[batch.y if rows is None else rows])


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
        targets = _Targets(self.scores(), self.labels)
        alone = peers(self.model) is None  # otherwise one process might go on without the others
        for rate in AFTER_TASK_RATES if alone else AFTER_TASK_RATES[-1:]:
            lr = rate * self.options.lr
            options = replace(self.options, epochs=plan.steps, lr=lr, decay=True, warmup=WARMUP)
            try:
                return replace(self, options=options).run(
                    mark, plan, targets, after=True, bound=DIVERGED if rate > 1 else math.inf
                )
            except _Diverged:
                self.model.load_state_dict(before)
        raise AssertionError("the last learning rate has no bound")

    def run(
        self,
        mark: Watermark,
        plan: Plan,
        targets: _Targets | None = None,
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
                    raise _Diverged
            return found

        def losses(item: Item, step: int) -> Losses:
            batch, rows = item
            if plan.use(step) is None:
                batch = batch if mixing is None else mixing.held.batch(batch)
                found = task_loss(call(model, batch), (batch, rows))
                return Losses(found, None, found)
            if recipe.joint:
                joint = mixing.batch(batch, step) if mixing else mark.mix(batch, step=step, steps=steps)
                shown = joint.batch if mixing else batch
                found, marked = task_loss(joint(model), (shown, rows)), joint.loss()
            else:
                found = task_loss(call(model, batch), item)
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
