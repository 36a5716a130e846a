"""How many epochs `train` takes, and which of its steps use carriers."""

from __future__ import annotations

import math

from invgnn.training.fitting import BATCH_SIZE
from invgnn.training.tasks import Task
from invgnn.watermark.mark import Watermark
from invgnn.watermark.plan import Plan
from invgnn.watermark.recipe import CARRIERS_WITHOUT_PLAN


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
    if mark is None or not embedded_apart(task, mark, batch_size):
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
    if not embedded_apart(task, mark, batch_size):
        return recipe.plan(mark.m, epochs * _steps(task, batch_size), apart=not recipe.joint)
    steps, count = recipe.after_task, _fair_share(task, mark)
    shown = math.ceil(steps * count / mark.m)
    return Plan.spread(mark.m, steps, presentations=shown, carriers=count, warmup_steps=0)


def _fair_share(task: Task, mark: Watermark) -> int:
    """Return how many carriers have about a quarter of the nodes of a node task, at least 32."""
    nodes = sum(int(graph.num_nodes) for graph in task.graphs) if task.level == "node" else 0
    least = mark.recipe.carriers or CARRIERS_WITHOUT_PLAN
    return min(mark.m, max(least, nodes * mark.m // (4 * mark.carriers.num_nodes)))


def embedded_apart(task: Task, mark: Watermark, batch_size: int) -> bool:
    """Return whether a mark is embedded after the task."""
    one_step = _steps(task, batch_size) == 1
    return one_step and mark.recipe.after_task > 0 and mark.score_channel is None


def _steps(task: Task, batch_size: int) -> int:
    """Return the number of optimiser steps in an epoch."""
    return 1 if task.level == "node" else -(-len(task.train) // batch_size)
