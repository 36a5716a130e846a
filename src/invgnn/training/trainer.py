"""train(model, task, mark): the training loop of the library, with or without a mark."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

from torch import nn

from invgnn.errors import WeakMarkWarning
from invgnn.nn.forward import to_batch, unwrap, weight_of
from invgnn.nn.optimise import WEIGHT_DECAY
from invgnn.nn.rng import without_dropout
from invgnn.nn.weight_scaling import scale_weights, unscale_weights
from invgnn.stats.evidence import GRINDING_BITS, evidence_of
from invgnn.training.batching import placed
from invgnn.training.embedding import Embedding, Targets
from invgnn.training.fitting import BATCH_SIZE, FitOptions, History, Progress, fit_task
from invgnn.training.planning import embedded_apart, planned
from invgnn.training.tasks import Task
from invgnn.watermark.mark import Watermark

WITH_TASK_WEIGHT = 0.5
"""Weight of the mark's loss in a run that has enough steps, relative to `recipe.beta`."""


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
    embedding = Embedding(model, placed(task, model), options, report)
    embedding.check(mark)
    carriers = to_batch(mark.batches.carriers, weight_of(unwrap(model)))  # as `mark.forward` takes them
    unscale_weights(model, carriers, mark.forward)
    mark = _changed(mark, warmup_steps=0) if trained else mark
    if mark.score_channel is not None:
        with without_dropout():
            targets = Targets(embedding.shifted(mark.channel(task.data)))
            history = embedding.run(mark, embedding.plan(mark), targets)
    elif not embedded_apart(task, mark, batch_size):
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


def _lighter(mark: Watermark) -> Watermark:
    """Return a mark whose loss has the weight of a training that is long enough."""
    return _changed(mark, beta=WITH_TASK_WEIGHT * mark.recipe.beta)


def _changed(mark: Watermark, **changes: Any) -> Watermark:
    """Return a mark with changes to its recipe."""
    return mark.replace(recipe=replace(mark.recipe, **changes))
