"""Refresh: distil a marked model into a student and embed the mark in it again."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterator, Sized
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from invgnn.errors import DataError, ParameterError
from invgnn.nn.distillation import distillation_loss
from invgnn.nn.forward import evaluation_mode, observe, to_batch, weight_of
from invgnn.nn.optimise import LearningRate, optimise
from invgnn.nn.rng import seeded
from invgnn.nn.weight_scaling import scale_weights
from invgnn.watermark.protocol import Refreshable


def refresh(
    mark: Refreshable,
    student: nn.Module,
    teacher: nn.Module,
    batches: Collection[Any],
    *,
    epochs: int,
    lr: float,
    temperature: float,
    seed: int,
    progress: Callable[[int, int], None] | None,
) -> None:
    """Distil a teacher into a student and embed the mark in the student; see `Watermark.refresh`."""
    if student is teacher:
        raise ParameterError("the student is the teacher", "pass a fresh model, or copy.deepcopy(teacher)")
    if epochs < 1 or not all(0 < value < float("inf") for value in (lr, temperature)):
        raise ParameterError("epochs, lr and temperature must be positive", "usual are 100, 0.01 and 2")
    for reading in mark.readings:  # a student that cannot be read fails now, not after the warm-up
        mark.read(student, reading.access)
    with seeded(seed), _restored_after_errors(student):
        steps = epochs * _count(batches)
        plan = mark.recipe.plan(mark.m, steps, apart=not mark.recipe.joint)
        mark = mark.replace(recipe=mark.recipe.following(plan))

        def loss(batch: Any, step: int) -> Tensor:
            targets = _scores(mark, teacher, batch)
            if plan.use(step) is None:
                return _divergence(_own(mark, student, batch), targets, temperature)
            return _loss(mark, student, batch, targets, temperature, {"step": step, "steps": steps})

        def report(epoch: int) -> None:
            if progress:
                progress(epoch + 1, epochs)

        rate = LearningRate(lr, epochs, decay=True)
        optimise(student, lambda: batches, loss, rate, after_epoch=report)
        student.eval()
        if mark.recipe.weight_scale is not None:
            carriers = to_batch(mark.batches.carriers, weight_of(student))
            scale_weights(student, carriers, mark.recipe.weight_scale, mark.forward)


def _count(batches: Collection[Any]) -> int:
    """Return the number of batches."""
    advice = "pass a list or a DataLoader of PyG batches; for a node task [data]"
    if isinstance(batches, Iterator) or not isinstance(batches, Sized):
        raise ParameterError("batches are iterated once per epoch, and these only once", advice)
    batch = next(iter(batches), None)
    if not hasattr(batch, "edge_index"):
        raise ParameterError("there are no batches of graphs to learn from", advice)
    return len(batches)


def _loss(
    mark: Refreshable,
    student: nn.Module,
    batch: Any,
    targets: Tensor,
    temperature: float,
    when: dict[str, int],
) -> Tensor:
    """Return the loss of one batch: distillation from the teacher, and the mark."""
    if mark.recipe.joint:
        mixed = mark.mix(batch, **when)
        soft = _divergence(mixed(student), targets, temperature)
        return mixed.joint_loss(soft) if mark.recipe.gradient_projection else soft + mixed.loss()
    soft = _divergence(_own(mark, student, batch), targets, temperature)
    if mark.recipe.gradient_projection:
        return mark.joint_loss(student, soft, **when)
    return soft + mark.loss(student, **when)


def _own(mark: Refreshable, student: nn.Module, batch: Any) -> Tensor:
    """Return the student's scores of a task batch."""
    return observe(student, batch, None, mark.forward).scores


def _divergence(predicted: Tensor, targets: Tensor, temperature: float) -> Tensor:
    if predicted.shape != targets.shape:
        message = f"the teacher's scores are {tuple(targets.shape)}, the student's {tuple(predicted.shape)}"
        raise DataError(message, "give the student as many classes, and both the same inputs")
    return distillation_loss(predicted, targets, temperature).mean()


@torch.no_grad()
def _scores(mark: Refreshable, teacher: nn.Module, batch: Any) -> Tensor:
    with evaluation_mode(teacher):
        return observe(teacher, batch, None, mark.forward).scores


@contextmanager
def _restored_after_errors(model: nn.Module) -> Iterator[None]:
    """Restore the weights and modes of a model if the block raises."""
    before = copy.deepcopy(model.state_dict())
    modes = [(module, module.training) for module in model.modules()]
    try:
        yield
    except BaseException:
        model.load_state_dict(before)
        for module, training in modes:
            module.training = training
        raise
    finally:
        model.zero_grad()
