"""The one short loop the library owns: train a task, with or without a mark."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from invgnn.batches import Collated, accuracy, batches, placed
from invgnn.forward import call, politely, to_batch, unwrap, weight_of
from invgnn.parallel import agree, peers
from invgnn.randomness import seeded, undropped
from invgnn.recipe import distillation_loss, guarded
from invgnn.stiffness import soften, stiffen
from invgnn.tasks import Task

if TYPE_CHECKING:  # edits train too, and must not be able to reach a mark
    from invgnn.channel import Channel
    from invgnn.watermark import Watermark

TEMPERATURE = 2.0
"""At which a model learns from its own scores, as students usually do."""

LABELS = 0.5
"""Weight of the labels beside its own scores in the lessons of a model that knows its task."""

Progress = Callable[[int, int], None]
"""Told the number of epochs done and their total."""


@dataclass
class History:
    """What happened during training, epoch by epoch, and what was kept."""

    val_acc: list[float] = field(default_factory=list)
    loss: list[float] = field(default_factory=list)
    mark_loss: list[float] = field(default_factory=list)
    best_epoch: int = -1
    best_val_acc: float = -1.0
    test_acc: float = float("nan")

    @property
    def unfinished(self) -> bool:
        """Whether the model was at its best in the last tenth of its epochs: it might learn more yet."""
        n = len(self.val_acc)
        return n > 0 and 10 * (self.val_acc.index(max(self.val_acc)) + 1) > 9 * n

    def then(self, after: History) -> History:
        """Both in a row; what was kept is what the second kept."""
        return History(
            val_acc=self.val_acc + after.val_acc,
            loss=self.loss + after.loss,
            mark_loss=self.mark_loss + after.mark_loss,
            best_epoch=after.best_epoch + (len(self.loss) if after.best_epoch >= 0 else 0),
            best_val_acc=after.best_val_acc,
            test_acc=after.test_acc,
        )


def train(
    model: nn.Module,
    task: Task,
    mark: Watermark | None = None,
    *,
    epochs: int = 100,
    lr: float = 0.01,
    weight_decay: float = 5e-4,
    batch_size: int = 64,
    seed: int = 41,
    select: bool = True,
    trained: bool = False,
    progress: Progress | None = None,
) -> History:
    """Train in place and keep the checkpoint with the best validation accuracy.

    A mark joins in after its recipe's first steps. But where an epoch is a single step (a node task), the
    epochs are for the task alone, and followed by twice as many in which the model that was kept learns the
    mark (unless `recipe.after` is false): `planned` epochs in all. Beside that it learns the labels and,
    unless it was at its best in the last tenth of its epochs and so still learning, its own scores. A mark
    needs time to settle: while it is taught, only the last quarter of the epochs is eligible.
    `select=False` keeps the last epoch; `trained` says that the model knows its task, so that the mark is
    taught at once and in `epochs` alone.

    A mark with a second channel needs a model that knows the task, and `mark.remember(model, task.data)`:
    it is then taught not the labels but the scores it gave before, leaning, and without dropout: there is
    no noise in them to fit.

    A marked model is left stiff (`recipe.stiff`): the same function, slow to be trained on. One that comes
    in stiff is made soft before it learns a mark.
    """
    total = planned(task, mark, epochs, batch_size, trained=trained)
    loop = _Loop(model, placed(task, model), lr, weight_decay, batch_size, seed, select)
    before = History()

    def tell(done: int, _: int) -> None:
        if progress:
            progress(len(before.loss) + done, total)

    if mark is None:
        return loop.run(epochs, None, None, tell)
    loop.check(mark)
    carriers = to_batch(mark.carriers, weight_of(unwrap(model)))  # what `mark.forward` surely understands
    soften(model, carriers, mark.forward)
    mark = _changed(mark, wait=0) if trained else mark
    if mark.function is not None:
        leaning = _Lessons(loop.leaning(mark.channel(task.data)))
        with undropped():
            history = loop.run(epochs, mark, leaning, tell)
    elif not _apart(task, mark, batch_size):
        history = loop.run(epochs, mark, None, tell)
    else:
        before = before if trained else loop.run(epochs, None, None, tell)
        lessons = None if before.unfinished else _Lessons(loop.scores(), loop.labels)
        history = loop.run(total - len(before.loss), _changed(mark, wait=0), lessons, tell)
    if mark.recipe.stiff is not None:
        stiffen(model, carriers, mark.recipe.stiff, mark.forward)
    return before.then(history)


def planned(
    task: Task, mark: Watermark | None, epochs: int, batch_size: int = 64, *, trained: bool = False
) -> int:
    """How many epochs a `train` of so many takes in all, with a mark that may be taught after the task."""
    if mark is None or mark.function is not None or trained:
        return epochs
    return 3 * epochs if _apart(task, mark, batch_size) else epochs


def _apart(task: Task, mark: Watermark, batch_size: int) -> bool:
    """Whether a mark is taught after the task."""
    return mark.recipe.after and _steps(task, batch_size) == 1


def _steps(task: Task, batch_size: int) -> int:
    """How many steps make an epoch."""
    return 1 if task.level == "node" else -(-len(task.train) // batch_size)


def _changed(mark: Watermark, **changes: Any) -> Watermark:
    return mark.replace(recipe=replace(mark.recipe, **changes))


@dataclass(frozen=True)
class _Lessons:
    """Scores that a model is to repeat, one row per node or graph, and labels beside them, if any."""

    scores: Tensor
    labels: Tensor | None = None

    def loss(self, said: Tensor, batch: Any, rows: Tensor | None) -> Tensor:
        """Of one batch, its graphs numbered; a node task's scores are repeated on all of its nodes."""
        taught = self.scores[batch.y] if rows is None else self.scores
        loss = distillation_loss(said, taught, TEMPERATURE).mean()
        if self.labels is None:
            return loss
        if rows is None:
            return loss + LABELS * cross_entropy(said, self.labels[batch.y])
        return loss + LABELS * cross_entropy(said[rows], self.labels[rows])


@dataclass(frozen=True)
class _Loop:
    """A model in training; one object may run several times, each time from where the model stands."""

    model: nn.Module
    task: Task
    lr: float
    weight_decay: float
    batch_size: int
    seed: int
    select: bool

    @cached_property
    def held(self) -> Collated | None:
        """The graphs of a graph task."""
        return Collated(self.task.graphs) if self.task.level == "graph" else None

    @property
    def labels(self) -> Tensor:
        """Of every node or graph."""
        return self.task.graphs[0].y if self.held is None else self.held.y

    def run(
        self, epochs: int, mark: Watermark | None, lessons: _Lessons | None, progress: Progress
    ) -> History:
        """All epochs, with the mark from when it may join; lessons, if any, stand in for the labels."""
        model, task, held, history = self.model, self.task, self.held, History()
        optimiser = torch.optim.Adam(model.parameters(), lr=self.lr, weight_decay=self.weight_decay)
        source = held if held is None or lessons is None else held.numbered()
        best: dict[str, Tensor] = {}
        step, first = 0, 0
        if mark is not None:
            steps = _steps(task, self.batch_size)
            first = mark.recipe.begins(epochs * steps)
            mark = mark.replace(recipe=mark.recipe.paced(mark.m, steps, self.batch_size))
        with seeded(self.seed):
            for epoch in range(epochs):
                model.train()
                total, marked = 0.0, 0.0
                for batch, rows in batches(task, source, self.batch_size):
                    taught = mark if mark and step >= first and mark.recipe.rides(step) else None
                    task_loss, mark_loss = _step(model, batch, rows, taught, step, self.lr, lessons)
                    optimiser.zero_grad()
                    _sum(task_loss, mark_loss, model, taught).backward()
                    optimiser.step()
                    if taught is not None:
                        _mark_alone(model, taught, optimiser, batch, step)
                    _project(model)
                    total += float(task_loss.detach())
                    marked += float(mark_loss.detach())
                    step += 1
                history.loss.append(total)
                history.mark_loss.append(marked)
                history.val_acc.append(accuracy(model, task, task.val, held))
                settled = mark is None or 4 * (epoch + 1) > 3 * epochs
                if not self.select or (settled and history.val_acc[-1] > history.best_val_acc):
                    history.best_epoch, history.best_val_acc = epoch, history.val_acc[-1]
                    best = {k: v.detach().clone() for k, v in model.state_dict().items()}
                progress(epoch + 1, epochs)
        if best:
            model.load_state_dict(best)
        agree(model)  # each process selects by statistics of its own
        model.eval()
        history.test_acc = accuracy(model, task, task.test, held)
        return history

    def check(self, mark: Watermark) -> None:
        """Fail now rather than when the mark joins in: the model cannot be read, or the batch not mixed."""
        if mark.recipe.joint:
            held, task = self.held, self.task
            mark.mix(task.graphs[0] if held is None else held.batch(task.train[:2]), step=0)
        for reading in mark.readings:
            mark.read(self.model, reading.access)

    def scores(self) -> Tensor:
        """What the model says of every node or graph."""
        every = torch.arange(len(self.labels), device=self.labels.device)
        whole = self.task.graphs[0] if self.held is None else self.held.batch(every)
        with politely(unwrap(self.model)), torch.no_grad():
            return call(unwrap(self.model), whole)

    def leaning(self, channel: Channel) -> Tensor:
        """What the model said of the training inputs before, leaning along the mark's direction."""
        batch = self.task.graphs[0] if self.held is None else self.held.batch(self.task.train)
        place = batch.edge_index.device
        said = channel.lean(torch.tensor(channel.before, dtype=torch.float32).to(place), batch)
        if self.held is None:
            return said
        return said.new_zeros(len(self.labels), said.shape[1]).index_copy(0, self.task.train, said)


def _step(
    model: nn.Module,
    batch: Any,
    rows: Tensor | None,
    mark: Watermark | None,
    step: int,
    lr: float,
    lessons: _Lessons | None,
) -> tuple[Tensor, Tensor]:
    """Task loss and weighted mark loss of one batch."""
    wanted: Any = slice(None) if rows is None else rows

    def task_loss(scores: Tensor) -> Tensor:
        if lessons is not None:
            return lessons.loss(scores, batch, rows)
        return cross_entropy(scores[wanted], batch.y[wanted])

    if mark is None:
        return task_loss(call(model, batch)), batch.x.new_zeros(())
    if mark.recipe.joint:
        joint = mark.mix(batch, step=step)
        return task_loss(joint(model)), joint.loss()
    shift = _shift(model, mark, lambda net: task_loss(call(net, batch)), lr)
    return task_loss(call(model, batch)), mark.loss(model, step=step, beside=batch, at=shift)


def _mark_alone(
    model: nn.Module, mark: Watermark, optimiser: torch.optim.Optimizer, batch: Any, step: int
) -> None:
    for _ in range(mark.recipe.extra):
        optimiser.zero_grad()
        mark.loss(model, step=step, beside=batch).backward()
        optimiser.step()


def _sum(task_loss: Tensor, mark_loss: Tensor, model: nn.Module, mark: Watermark | None) -> Tensor:
    if mark is None or not mark.recipe.guard:
        return task_loss + mark_loss
    return guarded(task_loss, mark_loss, model.parameters(), mark.recipe.cap, peers(model))


def _shift(
    model: nn.Module, mark: Watermark, task_loss: Callable[[nn.Module], Tensor], lr: float
) -> dict[str, Tensor]:
    """Where the mark should hold as well: after simulated fine-tuning, under weight noise, or both."""
    shift: dict[str, Tensor] = {}
    if mark.recipe.simulate:
        shift = simulated_steps(model, task_loss, mark.recipe.simulate, lr)
    if mark.recipe.noise:
        noise = weight_noise(model, mark.recipe.noise)
        shift = {name: value + shift.get(name, 0) for name, value in noise.items()}
    return shift


def weight_noise(model: nn.Module, scale: float) -> dict[str, Tensor]:
    """Gaussian noise for every weight matrix, relative to its mean absolute weight."""
    return {
        name: scale * value.detach().abs().mean() * torch.randn_like(value)
        for name, value in unwrap(model).named_parameters()
        if value.dim() >= 2
    }


def simulated_steps(
    model: nn.Module, task_loss: Callable[[nn.Module], Tensor], steps: int, lr: float
) -> dict[str, Tensor]:
    """How the parameters would move in a few steps of fine-tuning on the task alone."""
    twin = copy.deepcopy(unwrap(model))
    optimiser = torch.optim.Adam(twin.parameters(), lr=lr)
    for _ in range(steps):
        optimiser.zero_grad()
        task_loss(twin).backward()
        optimiser.step()
    before = dict(unwrap(model).named_parameters())
    return {name: (p - before[name]).detach() for name, p in twin.named_parameters()}


def _project(model: nn.Module) -> None:
    head = getattr(model, "perception", None)
    if head is not None:
        head.project()
