"""Calibration of the weight of a mark: certified by Theorem 1, limited by accuracy, sufficient to embed."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from torch import nn

from invgnn.errors import ParameterError
from invgnn.graphs.attributed import Shown, joined
from invgnn.nn.forward import Forward
from invgnn.nn.perception import attach_head
from invgnn.nn.rng import seeded
from invgnn.secret import Secret, public_stream
from invgnn.theory.imperceptibility import Imperceptibility, beta_max, check_theorem
from invgnn.theory.lipschitz import BUFFER, Lipschitz, perception_norms
from invgnn.theory.neighbourhood import State, TaskLoss, place_of, squared, survey
from invgnn.theory.outcome import Calibration, Plan, Trial
from invgnn.training.tasks import Task, load_task, new_model, parse_setting
from invgnn.training.trainer import train
from invgnn.watermark.mark import Watermark
from invgnn.watermark.recipe import Recipe
from invgnn.watermark.reference import Reference

Tick = Callable[[int], None]
Stage = Callable[[str, int], AbstractContextManager[Tick]]
"""Opens a stage of the work, given its name and its size; yields a function that counts progress."""


@contextmanager
def quiet(label: str, total: int) -> Iterator[Tick]:
    """Open a stage that reports no progress.

    Args:
        label: Name of the stage; ignored.
        total: Size of the stage; ignored.
    """
    yield lambda done: None


def calibrate(
    setting: str,
    plan: Plan | None = None,
    *,
    task: Task | None = None,
    model: nn.Module | None = None,
    stage: Stage = quiet,
) -> Calibration:
    """Return the certified and the useful weight of a mark for a setting such as `PROTEINS/GIN`.

    The mark is drawn from a public stream, because the constants do not depend on a secret, and is
    discarded.

    Args:
        setting: Task and backbone, separated by a slash; with `model`, a name for the result.
        plan: Settings of the calibration; the defaults of `Plan` if omitted.
        task: The task, if it is loaded already.
        model: A model of your own with fresh weights, for `task`; it is trained in place.
        stage: Opens a stage of the work, to report progress.

    Returns:
        The constants, one trial per weight, and the chosen weight.

    Raises:
        ParameterError: If `model` is given without `task`, or with a plan for the perception head.
    """
    plan = plan or Plan()
    if model is not None:
        task = _own(task, plan)
    else:
        name, backbone = parse_setting(setting)
        task = task or load_task(name, plan.seed)
        model = new_model(task, backbone, plan.seed)
    work = _Work(setting, plan, task, model, stage)
    with stage(f"trying {len(plan.grid)} weights and none", (len(plan.grid) + 1) * plan.marked) as tick:
        control = work.trial(0.0, tick)
        trials = tuple(work.trial(beta, tick) for beta in sorted(plan.grid))
    found = Calibration(
        setting=setting,
        plan=plan,
        curvature=work.curvature,
        lipschitz=work.lipschitz,
        radius=work.around.radius,
        control=control,
        trials=trials,
        chosen=control,
    )
    limit = min(found.certified, found.accurate.beta if found.accurate else math.inf)
    return replace(found, chosen=work.reduced(limit, control))


class _Work:
    """The unmarked model, the measurements around it, and trials that start from it."""

    def __init__(self, setting: str, plan: Plan, task: Task, model: nn.Module, stage: Stage) -> None:
        self.plan, self.task, self.stage = plan, task, stage
        reference = Reference.of(task.data)
        self.mark = _draw(setting, plan, reference, task.forward)
        self.model = model
        if plan.access == "perception":
            with seeded(plan.seed):
                attach_head(self.model, _width(self.model))
        states = self._train()
        self.loss = TaskLoss(task)
        with stage("recording checkpoints", len(states)) as tick:
            self.around = survey(self.model, self.loss, states, lr=plan.lr / 10, tick=tick)
        self.curvature = self.around.curvature()
        self.lipschitz = self._steepness(_some(reference.tensors or reference.graphs, plan.graphs), states)

    def _train(self) -> list[State]:
        """Train without the mark and return the last checkpoints."""
        plan, states = self.plan, list[State]()
        with self.stage("training without the mark", plan.epochs) as tick:

            def keep(done: int, total: int) -> None:
                if done > total - plan.checkpoints:
                    states.append(copy.deepcopy(self.model.state_dict()))
                tick(1)

            options: dict[str, Any] = {"epochs": plan.epochs, "lr": plan.lr, "seed": plan.seed}
            train(self.model, self.task, decay=False, progress=keep, **options)
        return states

    def _steepness(self, graphs: Shown, states: list[State]) -> Lipschitz:
        """Return L_s at the kept checkpoint, and on the carriers at the first and the last recorded one."""
        carriers = self.mark.presented[0]
        with self.stage("measuring the perception's gradients", len(graphs) + 3 * len(carriers)) as tick:
            here = perception_norms(self.model, self.mark, joined([graphs, carriers]), progress=tick)
            twin, nearby = copy.deepcopy(self.model), []
            for state in (states[0], states[-1]):
                twin.load_state_dict(state)
                nearby.append(perception_norms(twin, self.mark, carriers, progress=tick).max())
        return Lipschitz(float(here.max()), BUFFER, float(max(nearby)))

    @cached_property
    def certified(self) -> float:
        """The largest weight that Theorem 1 certifies, by the corrected bound."""
        return beta_max(self.curvature.envelope, self.plan.eps, self.lipschitz.value)

    def trial(self, beta: float, tick: Tick) -> Trial:
        """Train further from the unmarked model with the plain sum of both losses, as in the theorem."""
        plan, twin = self.plan, copy.deepcopy(self.model)
        mark = self.mark.replace(recipe=replace(self.mark.recipe, beta=beta))
        options: dict[str, Any] = {"epochs": plan.marked, "lr": plan.lr, "seed": plan.seed + 1}
        history = train(twin, self.task, mark, decay=False, progress=lambda done, total: tick(1), **options)
        found = mark.evidence(mark.read(twin))
        return Trial(
            val_acc=history.best_val_acc,
            test_acc=history.test_acc,
            matches=found.matches,
            m=mark.m,
            bits=found.bits() if mark.context["key"] == "keyed" else None,
            alpha=plan.alpha,
            theorem=self._theorem(twin, beta),
        )

    def _theorem(self, model: nn.Module, beta: float) -> Imperceptibility:
        """Check Theorem 1 on a trained model."""
        value, gradient = self.loss(model)
        return check_theorem(
            beta=beta,
            beta_max=self.certified,
            eps=self.plan.eps,
            gap=value - self.around.least,
            gradient=math.sqrt(squared(gradient)),
            lipschitz=self.lipschitz.value,
            distance=self.around.distance(place_of(model, gradient)),
            radius=self.around.radius,
            covered=self.lipschitz.covers,
            fixed_buffers=not any(True for _ in model.buffers()),
        )

    def reduced(self, beta: float, control: Trial) -> Trial:
        """Return a trial at this weight, halved while the mark makes training leave the neighbourhood.

        If training without the mark leaves it too, no smaller weight can help, and none is tested.
        """
        with self.stage("training at the certified weight", self.plan.marked) as tick:
            trial = self.trial(beta, tick)
        for _ in range(self.plan.retries if control.theorem.inside else 0):
            if trial.theorem.inside:
                break
            with self.stage("outside the neighbourhood: half the weight", self.plan.marked) as tick:
                trial = self.trial(trial.beta / 2, tick)
        return trial


def _own(task: Task | None, plan: Plan) -> Task:
    """Return the task of a model of one's own, if it can be calibrated."""
    if task is None:
        raise ParameterError("a model of your own needs its task", "pass task=own_task(graphs, name)")
    if plan.access == "perception":
        raise ParameterError(
            "the perception head is attached to built-in backbones only",
            "calibrate access='embedding' or 'logits'",
        )
    return task


def _draw(setting: str, plan: Plan, reference: Reference, forward: Forward | None) -> Watermark:
    """Draw the mark of the calibration from a public stream."""
    key: Any = "plain" if plan.access == "perception" else "keyed"
    recipe = Recipe(loss="mse", gradient_projection=False, warmup_steps=0, after_task=0, weight_scale=None)
    secret = Secret(public_stream("calibration", setting, plan.seed).bytes(32))
    options: dict[str, Any] = {"access": plan.access, "key": key, "recipe": recipe, "forward": forward}
    return Watermark.draw(secret, reference, m=plan.m, **options)


def _width(model: Any) -> int:
    """Return the number of hidden channels of a model."""
    return int(model.architecture["hidden_channels"])


def _some(graphs: Shown, count: int) -> Shown:
    """Return `count` of the graphs, chosen by a public stream."""
    order = public_stream("calibration graphs", len(graphs)).permutation(len(graphs))
    return graphs.take(np.sort(order[:count]))
