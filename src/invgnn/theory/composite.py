"""The paper's composite edit (fine-tune, prune, distil): its budget and the measured drift of each step."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from torch import nn

from invgnn.attacks.edits import Distil, Edit, FineTune, Prune
from invgnn.errors import ParameterError
from invgnn.graphs.disjoint_union import Floats
from invgnn.readout.reading import Access
from invgnn.theory.budget import DISTILLED, PRUNED, Budget, c_distill, c_prune
from invgnn.theory.margins import drift, squash
from invgnn.theory.robustness import FITTED, LOCAL, distance, steepest
from invgnn.theory.statement import Statement
from invgnn.training.tasks import Task
from invgnn.watermark.mark import Watermark

PRUNED_FIRST = 0.5
"""Share of weights that is pruned before the paper's sweep of students."""


@dataclass(frozen=True)
class Composite(Statement):
    """A model after three edits in a row: its budget, and the measured drift of each edit.

    Guarantee: the total drift is at most the sum of the legs, for any edits (triangle inequality). The
    budget has no guarantee; its standing says whether it held.

    Attributes:
        budget: The composite bound and the measured total drift.
        legs: The drift caused by fine-tuning, by pruning and by distillation.
    """

    budget: Budget
    legs: tuple[float, float, float]


def composite(
    model: nn.Module,
    mark: Watermark,
    task: Task,
    *,
    pi: float = 0.5,
    epochs: int = 20,
    lr: float = 1e-3,
    access: Access | None = None,
) -> Composite:
    """Return the budget L_s·Δ + c_prune·√p + c_distill·π of a model fine-tuned, half pruned and distilled.

    The constants come from the paper's own sweeps (B.5): c_prune from several shares pruned from the
    fine-tuned model, c_distill from several students of the half pruned model.

    Args:
        model: The marked model.
        mark: Its mark.
        task: Its task.
        pi: Share of inputs without teacher scores; one of the shares in the sweep.
        epochs: Epochs of fine-tuning and of distillation.
        lr: Learning rate of both.
        access: The reading; by default the first that the mark declares.

    Raises:
        ParameterError: If `pi` is not in the sweep.
    """
    if pi not in DISTILLED:
        raise ParameterError(f"pi={pi}", f"choose one of the sweep, {', '.join(map(str, DISTILLED))}")

    def read(net: nn.Module) -> Floats:
        return squash(mark.read(net, access))

    tuned = FineTune(epochs, lr)(model, task)
    pruned = {share: Prune(share)(tuned, task) for share in PRUNED}
    half = pruned[PRUNED_FIRST]
    students = {share: student(share, epochs, lr)(half, task) for share in DISTILLED}
    stages = [read(net) for net in (model, tuned, half, students[pi])]
    tuning, pruning, distilling = (drift(before, after) for before, after in pairwise(stages))
    budget = Budget(
        slope=steepest(model, mark, access),
        shift=distance(model, tuned),
        prune_slope=c_prune(read, tuned, pruned.items()),
        share=PRUNED_FIRST,
        distill_slope=c_distill(read, half, students.items()),
        pi=pi,
        gamma=drift(stages[0], stages[-1]),
        assumptions=(LOCAL, FITTED),
    )
    return Composite(budget, (tuning, pruning, distilling), assumptions=budget.assumptions)


def student(pi: float, epochs: int, lr: float) -> Edit:
    """Return the edit that trains a student without teacher scores on a share pi of the inputs.

    pi = 1 is part of the paper's sweep although its definition excludes it; it is plain fine-tuning.

    Args:
        pi: Share of inputs without teacher scores, in (0, 1].
        epochs: Number of epochs.
        lr: Learning rate.
    """
    if pi == 1:
        return FineTune(epochs, lr)
    return Distil(start="teacher", rho_kd=1 - pi, epochs=epochs, lr=lr)
