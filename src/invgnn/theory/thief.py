"""An attack with full knowledge: change as few parameters as possible until the mark is not detected.

The paper's WM-Remove asks to flip every bit. A thief only needs to fall below the threshold and to keep the
task accuracy. The thief here has everything: the weights, the task data, and the key itself.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import chain, count
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize
from torch.nn.utils import vector_to_parameters

from invgnn.errors import ParameterError
from invgnn.nn.forward import call, unwrap
from invgnn.nn.rng import seeded
from invgnn.stats import null
from invgnn.theory.statement import Assumption, Statement
from invgnn.training.batching import Collated, accuracy, batches
from invgnn.training.tasks import Task
from invgnn.watermark.mark import Watermark

Goal = Literal["matches", "evidence"]
BATCH = 128
STEP = 0.05
"""Step size of a parameter, as a share of its largest allowed change."""

GREEDY = Assumption("no other choice of parameters and no longer search needs fewer: an upper bound")


@dataclass(frozen=True)
class Theft(Statement):
    """The result of an attack by a thief who has the key.

    Guarantee: `changed` is an upper bound on the smallest number of parameters, within `reach` per
    parameter. An optimal thief may need fewer.

    Attributes:
        goal: `matches`: T < tau at every declared reading; `evidence`: p > alpha at every declared reading.
        found: Whether the goal was reached. If not, `changed` is the number of all parameters, and the
            other fields describe the attempt with all of them.
        changed: Number of changed parameters.
        parameters: Number of all parameters.
        reach: Largest change of a parameter, in mean absolute weights of its tensor.
        threshold: The threshold tau.
        matches: The most matches over the declared readings, before and after.
        bits: The most evidence bits over the declared readings, before and after.
        acc: Test accuracy, before and after.
    """

    goal: Goal
    found: bool
    changed: int
    parameters: int
    reach: float
    threshold: int
    matches: tuple[int, int]
    bits: tuple[float, float]
    acc: tuple[float, float]

    @property
    def share(self) -> float:
        """Changed parameters as a share of all."""
        return self.changed / self.parameters

    def __str__(self) -> str:
        verb = "suffice" if self.found else "do not suffice"
        return (
            f"{self.changed} of {self.parameters} parameters ({self.share:.2%}) {verb}: "
            f"T {self.matches[0]} → {self.matches[1]} (tau {self.threshold}), "
            f"evidence {self.bits[0]:.1f} → {self.bits[1]:.1f} bits, "
            f"accuracy {self.acc[0]:.1%} → {self.acc[1]:.1%}"
        )


def steal(
    model: nn.Module,
    mark: Watermark,
    task: Task,
    *,
    goal: Goal = "matches",
    alpha: float = 1e-6,
    reach: float = 10.0,
    steps: int = 60,
    task_weight: float = 0.5,
    seed: int = 0,
) -> Theft:
    """Attack a model with knowledge of the key, and count the parameters that must change.

    Parameters are ranked by their influence on the mark's loss, |gradient| times allowed change. The first
    k are moved to increase the mark's loss and, with weight `task_weight`, to decrease the task loss. Both
    gradients are normalised, because the gradient of a well embedded mark is tiny. k is doubled until the
    goal is reached and then bisected.

    Args:
        model: The marked model; left unchanged.
        mark: Its mark.
        task: Its task.
        goal: "matches" or "evidence".
        alpha: Significance level of the goal.
        reach: Largest change of a parameter, in mean absolute weights of its tensor.
        steps: Optimiser steps per attempt.
        task_weight: Weight of the task's normalised gradient.
        seed: Fixes the order of the batches.

    Raises:
        ParameterError: If the goal is unknown, or `reach` or `steps` is not positive.
    """
    if goal not in get_args(Goal) or not reach > 0 or steps < 1:
        raise ParameterError(
            f"goal={goal!r}, reach={reach}, steps={steps}",
            f"choose a goal of {', '.join(get_args(Goal))}, reach > 0 and steps >= 1",
        )
    mark = mark.replace(recipe=replace(mark.recipe, beta=1.0))
    victim, tau = copy.deepcopy(unwrap(model)).eval(), null.EXACT.threshold(mark.m, alpha)
    allowed = reach * typical(victim)
    order = (gradient(victim, mark.loss(victim)).abs() * allowed).argsort(descending=True, stable=True)
    held = Collated(task.graphs) if task.level == "graph" else None

    def safe(net: nn.Module) -> bool:
        t, bits = strength(net, mark)
        return t < tau if goal == "matches" else bits < -math.log2(alpha)

    def attempt(k: int) -> tuple[bool, nn.Module]:
        endless = chain.from_iterable(batches(task, held, BATCH) for _ in count())

        def pull(net: nn.Module) -> Tensor:
            to_task, to_mark = _task_loss(net, *next(endless)), mark.loss(net)
            push = [(gradient(net, loss) * allowed)[order[:k]] for loss in (to_task, to_mark)]
            return task_weight * normalize(push[0], dim=0) - normalize(push[1], dim=0)

        with seeded(seed):
            return rob(victim, pull, safe, order[:k], allowed, steps)

    k, found, robbed = (0, True, victim) if safe(victim) else _fewest(attempt, len(order))
    (t, bits), (t_left, bits_left) = strength(model, mark), strength(robbed, mark)
    acc = accuracy(model, task, task.test, held), accuracy(robbed, task, task.test, held)
    return Theft(
        goal=goal,
        found=found,
        changed=k,
        parameters=len(order),
        reach=reach,
        threshold=tau,
        matches=(t, t_left),
        bits=(bits, bits_left),
        acc=acc,
        assumptions=(GREEDY,),
    )


def rob(
    model: nn.Module,
    pull: Callable[[nn.Module], Tensor],
    safe: Callable[[nn.Module], bool],
    chosen: Tensor,
    allowed: Tensor,
    steps: int,
) -> tuple[bool, nn.Module]:
    """Move the chosen parameters of a copy against `pull`, each within its allowed change.

    It stops as soon as `safe` is true.

    Args:
        model: The model; left unchanged.
        pull: Returns the gradient for the chosen parameters.
        safe: Whether the goal is reached.
        chosen: Indices of the parameters that may change.
        allowed: Largest change of every parameter.
        steps: Largest number of steps.

    Returns:
        Whether the goal was reached, and the changed copy.
    """
    twin, start = copy.deepcopy(model), flat(model.parameters())
    moved = torch.zeros_like(start[chosen], requires_grad=True)  # in units of the allowed change
    optimiser = torch.optim.Adam([moved], lr=STEP)
    for _ in range(steps):
        moved.grad = pull(twin)
        optimiser.step()
        with torch.no_grad():
            moved.clamp_(-1, 1)
            there = start.index_add(0, chosen, moved * allowed[chosen])
            vector_to_parameters(there, twin.parameters())
        if safe(twin):
            return True, twin
    return False, twin


def strength(model: nn.Module, mark: Watermark) -> tuple[int, float]:
    """Return the most matches and the most evidence bits over the declared readings.

    Args:
        model: The model.
        mark: The mark.
    """
    found = [mark.evidence(mark.read(model, reading.access)) for reading in mark.readings]
    return max(e.matches for e in found), max(e.bits() for e in found)


def typical(model: nn.Module) -> Tensor:
    """Return for every parameter the mean absolute weight of its tensor, or of the model if that is 0."""
    usual = flat(model.parameters()).abs().mean()
    sizes = [(p.detach().abs().mean(), p.numel()) for p in model.parameters()]
    return torch.cat([(size if size > 0 else usual).expand(count) for size, count in sizes])


def gradient(model: nn.Module, loss: Tensor) -> Tensor:
    """Return the gradient with respect to all parameters as one vector.

    Args:
        model: The model.
        loss: The loss.
    """
    weights = list(model.parameters())
    found = torch.autograd.grad(loss, weights, allow_unused=True)
    return flat(torch.zeros_like(p) if g is None else g for p, g in zip(weights, found, strict=True))


def flat(values: Iterable[Tensor]) -> Tensor:
    """Concatenate tensors into one vector."""
    return torch.cat([value.detach().reshape(-1) for value in values])


def _fewest(attempt: Callable[[int], tuple[bool, nn.Module]], most: int) -> tuple[int, bool, nn.Module]:
    """Find the smallest k for which the attempt succeeds, by doubling and bisection."""
    low, high = 0, 1
    done, robbed = attempt(high)
    while not done and high < most:
        low, high = high, min(2 * high, most)
        done, robbed = attempt(high)
    while done and high - low > 1:
        middle = (low + high) // 2
        fewer, other = attempt(middle)
        low, high, robbed = (low, middle, other) if fewer else (middle, high, robbed)
    return high, done, robbed


def _task_loss(model: nn.Module, batch: Any, rows: Tensor | None) -> Tensor:
    """Return the cross-entropy of a batch of graphs, or of some nodes of a graph."""
    scores = call(model, batch)
    return cross_entropy(scores, batch.y) if rows is None else cross_entropy(scores[rows], batch.y[rows])
