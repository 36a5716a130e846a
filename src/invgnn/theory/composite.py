"""The paper's composite edit, leg by leg: fine-tuned, pruned, distilled; its budget beside its drift."""

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
"""The share pruned before the paper's sweep of students."""


@dataclass(frozen=True)
class Composite(Statement):
    """One model after three edits in a row: its budget, and the drift of each leg as measured.

    Guarantee: the whole drift is at most the sum of the legs, whatever the edits (triangle inequality). The
    budget has none; its standing says how it fared.
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
    """You get the budget L_s·Δ + c_prune·√p + c_distill·π of a model fine-tuned, half pruned and distilled.

    The constants come from the paper's own sweeps (B.5): c_prune over shares pruned from the fine-tuned
    model, c_distill over students of the half pruned one, `pi` being one of its shares.
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
    """You get the edit that goes without the teacher on a share pi of the inputs.

    Without a teacher on any, which the paper's sweep has and its definition excludes, it is fine-tuning.
    """
    if pi == 1:
        return FineTune(epochs, lr)
    return Distil(start="teacher", rho_kd=1 - pi, epochs=epochs, lr=lr)
