"""Fit a model to a task: training on the labels alone, and selection of the best epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from invgnn.nn.distributed import agree
from invgnn.nn.optimise import WEIGHT_DECAY, LearningRate, optimise
from invgnn.nn.rng import seeded
from invgnn.training.batching import Collated, accuracy, batches, placed
from invgnn.training.tasks import Task

BATCH_SIZE = 64
Progress: TypeAlias = Callable[[int, int], None]
"""Called with the number of finished epochs and the total."""
Item: TypeAlias = tuple[Any, Tensor | None]
"""A batch of graphs (or their indices) and None, or the one graph of a node task and its training nodes."""


@dataclass
class History:
    """Metrics of every epoch of a training run, and which epoch was kept.

    Attributes:
        val_acc: Validation accuracy after every epoch; NaN where it was not measured.
        loss: Sum of the task losses of every epoch.
        mark_loss: Sum of the weighted losses of the mark of every epoch.
        best_epoch: The epoch that was kept, counted from 0.
        best_val_acc: Its validation accuracy.
        test_acc: Its test accuracy.
    """

    val_acc: list[float] = field(default_factory=list)
    loss: list[float] = field(default_factory=list)
    mark_loss: list[float] = field(default_factory=list)
    best_epoch: int = -1
    best_val_acc: float = -1.0
    test_acc: float = float("nan")

    def then(self, after: History) -> History:
        """Return this history followed by another; the kept epoch is that of the second."""
        return History(
            val_acc=self.val_acc + after.val_acc,
            loss=self.loss + after.loss,
            mark_loss=self.mark_loss + after.mark_loss,
            best_epoch=after.best_epoch + (len(self.loss) if after.best_epoch >= 0 else 0),
            best_val_acc=after.best_val_acc,
            test_acc=after.test_acc,
        )


@dataclass
class Losses:
    """The losses of one batch.

    Attributes:
        task: The task loss.
        mark: The loss of the mark, if any.
        total: The loss that is minimised.
    """

    task: Tensor
    mark: Tensor | None
    total: Tensor


@dataclass(frozen=True)
class FitOptions:
    """Settings of a training run, as passed to `train`.

    Attributes:
        epochs: Number of epochs.
        lr: Learning rate of Adam.
        weight_decay: Weight decay of Adam.
        batch_size: Graphs per batch.
        seed: Fixes the order of batches and dropout.
        select: Whether to keep the epoch with the best validation accuracy; otherwise the last is kept.
        decay: Whether the learning rate falls to zero over the second half of the epochs.
        warmup: Over how many epochs the learning rate rises to `lr`.
        decoupled: Whether weights decay on their own (AdamW) instead of by a penalty in the loss.
    """

    epochs: int = 100
    lr: float = 0.01
    weight_decay: float = WEIGHT_DECAY
    batch_size: int = BATCH_SIZE
    seed: int = 41
    select: bool = True
    decay: bool = False
    warmup: int = 0
    decoupled: bool = False

    def rate(self) -> LearningRate:
        """Return the learning rate of every epoch of a run."""
        return LearningRate(self.lr, self.epochs, decay=self.decay, warmup=self.warmup)


def fit(
    model: nn.Module,
    task: Task,
    source: Callable[[], Iterable[Item]],
    losses: Callable[[Item, int], Losses],
    options: FitOptions,
    *,
    eligible: float = 1.0,
    prefer_later: bool = False,
    settled: Callable[[History], int] | None = None,
    held: Collated | None = None,
    progress: Progress | None = None,
) -> History:
    """Train in place, keep the best eligible epoch by validation accuracy, and measure test accuracy.

    Args:
        model: The model; left in evaluation mode.
        task: The task, on the device of the model.
        source: Returns the batches of one epoch.
        losses: Maps a batch and the number of the optimiser step to its losses.
        options: Settings of the run. The batches and the random state are the caller's.
        eligible: Share of the epochs, counted from the end, that may be kept.
        prefer_later: Which of two equally good epochs to keep.
        settled: Returns in how many further epochs a run may finish, 0 if it may not yet; asked after every
            epoch. Validation accuracy is then measured only after epochs that may be kept.
        held: The collated graphs of a graph task, to evaluate on.
        progress: Called after every epoch.

    Returns:
        The history.
    """
    history, best, rate = History(), dict[str, Tensor](), options.rate()
    total, marked = 0.0, 0.0

    def loss(item: Item, step: int) -> Tensor:
        nonlocal total, marked
        found = losses(item, step)
        total += float(found.task.detach())
        marked += 0.0 if found.mark is None else float(found.mark.detach())
        return found.total

    def finish(epoch: int) -> None:
        nonlocal total, marked, best
        history.loss.append(total)
        history.mark_loss.append(marked)
        total, marked = 0.0, 0.0
        if settled is not None and (further := settled(history)):
            rate.finish_after(epoch, further)
        late = epoch + 1 > (1 - eligible) * rate.epochs
        found = accuracy(model, task, task.val, held) if late or settled is None else float("nan")
        history.val_acc.append(found)
        better = found > history.best_val_acc or (prefer_later and found == history.best_val_acc)
        if not options.select or (late and better):
            history.best_epoch, history.best_val_acc = epoch, found
            best = {k: v.detach().clone() for k, v in model.state_dict().items()}
        if progress is not None:
            progress(epoch + 1, rate.epochs)

    optimise(
        model,
        source,
        loss,
        rate,
        weight_decay=options.weight_decay,
        decoupled=options.decoupled,
        after_epoch=finish,
    )
    if best:
        model.load_state_dict(best)
    agree(model)  # each process selects by its own statistics
    model.eval()
    history.test_acc = accuracy(model, task, task.test, held)
    return history


def fit_task(
    model: nn.Module,
    task: Task,
    options: FitOptions,
    progress: Progress | None = None,
) -> History:
    """Train a model on a task in place, without a mark.

    Args:
        model: The model; left in evaluation mode.
        task: The task.
        options: Settings of the run.
        progress: Called after every epoch.

    Returns:
        The history.
    """
    task = placed(task, model)
    held = Collated(task.graphs) if task.level == "graph" else None

    def losses(item: Item, step: int) -> Losses:
        batch, rows = item
        found = label_loss(task.scores(model, batch), batch, rows)
        return Losses(found, None, found)

    def source() -> Iterable[Item]:
        return batches(task, held, options.batch_size)

    with seeded(options.seed):
        return fit(model, task, source, losses, options, held=held, progress=progress)


def label_loss(scores: Tensor, batch: Any, rows: Tensor | None) -> Tensor:
    """Return the cross-entropy of the graphs of a batch, or of some nodes of a graph.

    Args:
        scores: The scores, one row per graph or node.
        batch: The batch, with the classes in `y`.
        rows: The nodes to include, or None for all graphs of a batch.
    """
    if rows is None:
        return cross_entropy(scores, batch.y)
    return cross_entropy(scores[rows], batch.y[rows])
