"""Embed a mark in a model that is already trained, in a few steps and without labels."""

from __future__ import annotations

import copy
import logging
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from invgnn.checks import check_whole
from invgnn.errors import DataError, EmbeddingError, ParameterError
from invgnn.nn.distributed import peers
from invgnn.nn.forward import Forward, evaluation_mode, observe, to_batch, unwrap, weight_of
from invgnn.nn.gradient_projection import projected_sum
from invgnn.nn.layers import has_batch_norm, parts_of
from invgnn.nn.optimise import LearningRate, optimise
from invgnn.nn.rng import seeded
from invgnn.nn.running_statistics import reestimate
from invgnn.nn.weight_scaling import scale_weights, unscale_weights
from invgnn.watermark.embedded import Embedded
from invgnn.watermark.levels import levels_of, warn_if_weak
from invgnn.watermark.own_scores import OwnScores, agreement, kept_loss, scores_of
from invgnn.watermark.plan import Plan
from invgnn.watermark.protocol import Refreshable
from invgnn.watermark.task_batches import TaskBatches

Metric = Callable[[nn.Module], float]
"""Measures a model on its task."""
Progress = Callable[[int, int], None]
"""Called with the number of finished steps and the total."""

BACK_OFF = (1.0, 0.25, 0.05)
"""Learning rates of the attempts, relative to the first: the next if one diverges."""
DIVERGED = 3.0
"""A run has diverged once its loss on the task is this many times that of its first step."""
FAR = 2.0
"""A loss on the task below this is no divergence, in nats: many models start from a loss of zero."""
RECENT = 10
"""Over how many steps the median loss on the task tells a divergence from batches with an odd input."""
SETTLED = 0.15
"""A mark may be embedded once its mean loss, relative to beta, is below this over a round of carriers.

If the evidence is enough as well, the rate falls from then on, over as many steps again.
"""
ENOUGH = 100.0
"""Evidence in bits that every declared level must have in evaluation mode before an early end."""
CHECK_EVERY = 20
"""Evidence is read after every so-many-th step, once the loss is low."""
CARRIERS = 128
"""Most carriers in a step: few large steps embed a mark sooner than many small ones."""
_LOG = logging.getLogger("invgnn")


@dataclass(frozen=True)
class Balance:
    """How much the scores to keep count beside the mark.

    Attributes:
        learn: Their weight relative to the mark until the mark is learnt.
        keep: The same weight at the end, reached while the learning rate falls.
        patient: Whether the rate falls over all steps that are left, and not over as many as were made.
    """

    learn: float = 1.0
    keep: float = 5.0
    patient: bool = False


CLASSES = Balance()
"""The balance for class scores, and for what a function of the user returns."""
REAL = Balance(learn=5.0, keep=50.0, patient=True)
"""The balance for real-valued outputs.

Their distance, in units of their variance, is small long before the error on the task is as before.
"""


@dataclass(frozen=True)
class Settings:
    """How a mark is embedded in a trained model. `make embedding` measures the choice.

    Attributes:
        steps: Most optimiser steps.
        lr: Learning rate of the first attempt.
        balance: How much the scores to keep count; None chooses by the kind of outputs.
    """

    steps: int = 800
    lr: float = 0.01
    balance: Balance | None = None


DEFAULT = Settings()


def embed(
    mark: Refreshable,
    model: nn.Module,
    data: Any,
    *,
    settings: Settings = DEFAULT,
    batch_size: int = 64,
    metric: Metric | None = None,
    keep: Forward | None = None,
    seed: int = 41,
    progress: Progress | None = None,
) -> Embedded:
    """Embed a mark in a trained model; see `Watermark.embed`."""
    start = time.perf_counter()
    _check(mark, model, settings)
    core = unwrap(model)
    inputs = TaskBatches(data, mark.level, batch_size, weight_of(core), mark.forward)
    for reading in mark.readings:  # a model that cannot be read fails now
        mark.read(core, reading.access)
    before = _measured(metric, core)
    own = OwnScores(core, keep or mark.forward, remember=inputs.fixed)
    run = _Run(mark, core, inputs, settings, own, keep, progress)
    _LOG.info("embedding a mark: %s", run.plan)
    with seeded(seed), _restored(core):
        carriers = to_batch(mark.batches.carriers, weight_of(core))
        unscale_weights(core, carriers, mark.forward)
        made, used = run.attempts()
        reestimate(core, inputs, mark.forward)
        if mark.recipe.weight_scale is not None:
            scale_weights(core, carriers, mark.recipe.weight_scale, mark.forward)
    found = Embedded(
        levels=levels_of(mark, core),
        before=before,
        after=_measured(metric, core),
        agreement=run.agreement(),
        seconds=time.perf_counter() - start,
        steps=made,
        plan=run.plan,
        lr=used,
    )
    warn_if_weak(found.levels, _remedy(found), stacklevel=3)
    return found


@dataclass(frozen=True)
class _Run:
    """A model, its task inputs and a mark; attempts to embed it at falling learning rates."""

    mark: Refreshable
    model: nn.Module
    inputs: TaskBatches
    settings: Settings
    own: OwnScores
    keep: Forward | None
    progress: Progress | None

    @property
    def steps(self) -> int:
        """Most optimiser steps."""
        return self.settings.steps

    @property
    def plan(self) -> Plan:
        """Which carriers every step uses."""
        count = min(self.mark.m, self.mark.recipe.carriers or CARRIERS)
        wanted = -(-self.steps * count // self.mark.m)
        return Plan.spread(self.mark.m, self.steps, presentations=wanted, carriers=count, warmup_steps=0)

    @cached_property
    def joint(self) -> bool:
        """Whether carriers are mixed into the task batches.

        Not so with batch norms: in training mode, statistics would be those of task inputs and carriers
        together, and the scores that the model keeps would not be those of evaluation mode.
        """
        if self.keep is not None or not self.mark.recipe.joint or has_batch_norm(self.model):
            return False
        try:
            self.mark.mix(self.inputs.first, step=0)
        except DataError:
            return False
        return True

    def attempts(self) -> tuple[int, float]:
        """Embed the mark, with lower learning rates if the model does not stand one.

        Returns:
            The number of steps, and the learning rate.
        """
        before, lr = copy.deepcopy(self.model.state_dict()), self.settings.lr
        for share in BACK_OFF:
            try:
                return self._attempt(share * lr), share * lr
            except _Diverged:
                self.model.load_state_dict(before)
                _LOG.info("the model diverged at learning rate %g", share * lr)
        raise EmbeddingError(
            f"the model diverged at learning rates from {lr:g} to {BACK_OFF[-1] * lr:g}; its weights are "
            "as before",
            "pass a smaller lr, and check that the model returns finite scores on its own data",
        )

    def _enough(self) -> bool:
        """Return whether every declared level has enough evidence in evaluation mode."""
        return all(level.bits >= ENOUGH for level in levels_of(self.mark, self.model).values())

    def _attempt(self, lr: float) -> int:
        mark, plan = self._paced(), self.plan
        rate = LearningRate(lr, self.steps, decay=True, warmup=self.steps // 10)
        stream, kept, marked = self.inputs.endless(), list[float](), list[float]()
        portions = math.ceil(plan.m / plan.count)

        def loss(batch: Any, step: int) -> Tensor:
            task, own = self._losses(mark, batch, step)
            kept.append(float(task.detach()))
            if not (math.isfinite(kept[-1]) and median(kept[-RECENT:]) <= max(FAR, DIVERGED * kept[0])):
                raise _Diverged
            marked.append(float(own.detach()))
            own = own * self._share(rate, step)
            return projected_sum(self._balance.learn * task, own, self.model.parameters(), mark.recipe.cap)

        def after(step: int) -> None:
            last = marked[-portions:]
            low = len(last) == portions and sum(last) < portions * SETTLED * mark.recipe.beta
            if low and step % CHECK_EVERY == 0 and self._enough():
                rate.finish_after(step, self.steps if self._balance.patient else step + 1)
            if self.progress:
                self.progress(step + 1, rate.epochs)

        optimise(self.model, lambda: [next(stream)], loss, rate, weight_decay=0.0, after_epoch=after)
        return len(marked)

    @property
    def _balance(self) -> Balance:
        """How much the scores to keep count."""
        real = self.keep is None and self.mark.classes is None
        return self.settings.balance or (REAL if real else CLASSES)

    def _share(self, rate: LearningRate, step: int) -> float:
        """Return the weight of the mark: 1, and falling with the learning rate until `keep` is reached.

        The weight of the scores to keep does not rise instead: larger gradients than those that Adam has
        seen would make large steps.
        """
        last = self._balance.learn / self._balance.keep
        return last + (1 - last) * rate.at(step) / rate.lr if rate.falls(step) else 1.0

    def _paced(self) -> Refreshable:
        """Return the mark with a recipe that follows the plan."""
        plan = self.plan
        recipe = replace(self.mark.recipe, warmup_steps=0, carriers=plan.count, presentations=plan.wanted)
        return self.mark.replace(recipe=recipe)

    def _losses(self, mark: Refreshable, batch: Any, step: int) -> tuple[Tensor, Tensor]:
        """Return the loss on the scores to keep, and that of the mark."""
        kept, when = self.own(batch), {"step": step, "steps": self.steps}
        if self.joint:
            mixed = mark.mix(batch, **when)
            scores = mixed(self.model)
            return kept_loss(scores, kept, mark.classes), mixed.loss()
        scores = observe(self.model, batch, None, self.keep or mark.forward).scores
        return kept_loss(scores, kept, mark.classes), mark.loss(self.model, **when)

    def agreement(self) -> float:
        """Return the share of the answers on one pass over the task inputs that are as before."""
        with seeded(0):
            pairs = [
                (scores_of(self.model, batch, self.keep or self.mark.forward), self.own(batch))
                for batch in self.inputs
            ]
        found, kept = (torch.cat(side) for side in zip(*pairs, strict=True))
        return agreement(found, kept, self.mark.classes)


class _Diverged(Exception):
    """The scores of a model went far from those that it should keep."""


def _check(mark: Refreshable, model: nn.Module, settings: Settings) -> None:
    """Refuse what cannot be embedded."""
    if not isinstance(model, nn.Module):
        raise ParameterError(
            f"the model is a {type(model).__name__}", "mark.embed(model, data): an nn.Module"
        )
    lr = settings.lr
    check_whole("steps", settings.steps, 1, 2**31)
    if not (isinstance(lr, int | float) and 0 < lr < math.inf):
        raise ParameterError(f"lr={lr} is not a positive number", f"leave it out for {DEFAULT.lr:g}")
    if mark.score_channel is not None:
        raise ParameterError(
            "this mark has a score channel, which needs whole epochs over the task",
            "use invgnn.train(model, task, mark, trained=True)",
        )
    if peers(model) is not None:
        raise ParameterError(
            "the model is wrapped in DistributedDataParallel",
            "embed the mark in one process: mark.embed(model.module, data), then share the weights",
        )
    if not any(p.requires_grad for p in model.parameters()):
        raise ParameterError(
            "no parameter of the model can be trained", "call model.requires_grad_(True) first"
        )


def _measured(metric: Metric | None, model: nn.Module) -> float | None:
    """Return the metric of a model in evaluation mode."""
    if metric is None:
        return None
    with evaluation_mode(model):
        found = metric(model)
    try:
        return float(found)
    except (TypeError, ValueError) as error:
        raise ParameterError(
            f"the metric returned a {type(found).__name__}, not a number",
            "pass a function of the model that returns one number, such as its accuracy",
        ) from error


def _remedy(found: Embedded) -> str:
    """Return what to do about a mark that is too weak."""
    if found.steps >= found.plan.steps:
        return f"embed it in more steps: mark.embed(..., steps={4 * found.plan.steps})"
    return (
        "the model learnt its carriers in training mode but reads otherwise in evaluation mode: check "
        "norms, or draw the mark with access levels that the model supports"
    )


@contextmanager
def _restored(model: nn.Module) -> Iterator[None]:
    """Restore the modes of a model and its gradients after a block; after an error its weights, too."""
    before = copy.deepcopy(model.state_dict())
    modes = [(part, part.training) for part in parts_of(model)]
    gradients = [(p, p.grad) for p in model.parameters()]
    for p, _ in gradients:
        p.grad = None
    try:
        yield
    except BaseException:
        model.load_state_dict(before)
        raise
    finally:
        for part, training in modes:
            part.training = training
        for p, grad in gradients:
            p.grad = grad
