"""The constants of the paper's robustness theorem for a marked model, and measurements after every edit."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from torch import nn

from invgnn.attacks.edits import Edit, Prune
from invgnn.graphs.disjoint_union import Floats
from invgnn.nn.forward import evaluation_mode, observe, unwrap, weight_of
from invgnn.readout.answers import Answers
from invgnn.readout.reading import Access, answer, standardise
from invgnn.stats import null
from invgnn.stats.evidence import decode, matches
from invgnn.theory.budget import PRUNED, Budget, Sweep, c_distill, c_prune
from invgnn.theory.lipschitz import jacobian_norms
from invgnn.theory.margins import (
    Certificate,
    certify,
    certify_median,
    drift,
    drift_in_order,
    headroom,
    kappa_signed,
    kappa_unsigned,
    squash,
)
from invgnn.theory.statement import Assumption, Statement
from invgnn.training.batching import accuracy
from invgnn.training.tasks import Task
from invgnn.watermark.mark import Watermark

LOCAL = Assumption("the slope at the marked model bounds the slope on the whole path to the edited model")
FITTED = Assumption(
    "the drift per amount is at most the largest in the sweep that the constant was fitted to"
)


@dataclass(frozen=True)
class Slopes(Statement):
    """The constants of the composite budget.

    Attributes:
        l_s: L_s, the slope of the answers with respect to the parameters.
        c_prune: Largest drift per square root of the pruned share.
        c_distill: Largest drift per share of inputs without teacher scores.
    """

    l_s: float
    c_prune: float
    c_distill: float

    def of(self, edit: Edit, model: nn.Module, edited: nn.Module) -> Budget:
        """Return the budget of an edit: by share for pruning, by the distance of the parameters otherwise.

        Args:
            edit: The edit.
            model: The model before it.
            edited: The model after it.
        """
        if isinstance(edit, Prune):
            return Budget(prune_slope=self.c_prune, share=edit.share, assumptions=(FITTED,))
        return Budget(slope=self.l_s, shift=distance(model, edited), assumptions=(LOCAL,))

    def of_student(self, pi: float) -> Budget:
        """Return the budget of a student without teacher scores on a share pi of its inputs."""
        return Budget(distill_slope=self.c_distill, pi=pi, assumptions=(FITTED,))


@dataclass(frozen=True)
class Row:
    """One edited model, compared with the marked model.

    Attributes:
        edit: Name of the edit.
        gamma: The drift of the answers in [0, 1].
        certain: Matches that this drift must leave, decoded as the mark decodes (usually at the median).
        matches: Counted matches, decoded in the same way.
        certain_at_half: Matches that this drift must leave, decoded at 1/2 as in the paper's lemma.
        t_at_half: Counted matches, decoded at 1/2.
        headroom: Matches that may still be lost.
        evidence: Evidence bits.
        accuracy: Test accuracy.
        budget: The budget of the edit.
    """

    edit: str
    gamma: float
    certain: int
    matches: int
    certain_at_half: int
    t_at_half: int
    headroom: int
    evidence: float
    accuracy: float
    budget: Budget

    def record(self) -> dict[str, Any]:
        """Return plain values for a table, including the standing of the budget."""
        plain = asdict(self) | {"budget": self.budget.value, "shift": self.budget.shift}
        return plain | {"standing": self.budget.standing}


@dataclass(frozen=True)
class Robustness(Statement):
    """A marked model's margins and slopes, and one row per edit; see `margins` and `budget`.

    Guarantee: `certain` is a lower bound on `matches` for every model whose answers drift no further,
    however it was made. The budgets have no guarantee; their standing says whether they held.

    Attributes:
        access: The access level of the reading.
        m: Number of carriers.
        matches: Matches of the marked model.
        threshold: The threshold of the exact null.
        headroom: Matches that may be lost.
        kappa_unsigned: The paper's margin.
        kappa_signed: The smallest signed margin.
        slopes: The constants of the budgets.
        rows: One row per edit and student.
    """

    access: str
    m: int
    matches: int
    threshold: int
    headroom: int
    kappa_unsigned: float
    kappa_signed: float
    slopes: Slopes
    rows: tuple[Row, ...]

    @property
    def least_headroom(self) -> int:
        """T - tau, the smallest over the edits and the model itself."""
        return min([self.headroom, *(row.headroom for row in self.rows)])


def robustness_constants(
    model: nn.Module,
    mark: Watermark,
    task: Task,
    edits: Iterable[Edit],
    *,
    distilled: Sweep = (),
    access: Access | None = None,
    alpha: float = 1e-6,
) -> Robustness:
    """Return the table of the paper's robustness section for one marked model.

    Every edit starts from the model itself, so each budget has one term: the fitted slope for pruning and
    distillation, and L_s times the distance of the parameters for all other edits.

    Args:
        model: The marked model.
        mark: Its mark.
        task: Its task.
        edits: The edits to apply.
        distilled: Pairs of a share pi of inputs without teacher scores and a student, or a function that
            returns it. Without them c_distill is 0 and no row is about distillation.
        access: The reading; by default the first that the mark declares.
        alpha: Significance level of the threshold.
    """
    students = [(pi, net if isinstance(net, nn.Module) else net()) for pi, net in distilled]
    slopes = measure_slopes(model, mark, task, students, access)
    before = mark.read(model, access)
    row = partial(_row, mark=mark, task=task, before=before, alpha=alpha)
    rows = [row(repr(edit), net, slopes.of(edit, model, net)) for edit, net in _edited(edits, model, task)]
    rows += [row(f"distil, {pi:.0%} without teacher", net, slopes.of_student(pi)) for pi, net in students]
    t, s = mark.evidence(before).matches, squash(before)
    return Robustness(
        access=before.reading.access,
        m=mark.m,
        matches=t,
        threshold=null.EXACT.threshold(mark.m, alpha),
        headroom=headroom(t, mark.m, alpha),
        kappa_unsigned=kappa_unsigned(s),
        kappa_signed=kappa_signed(s, mark.bits),
        slopes=slopes,
        rows=tuple(rows),
        assumptions=slopes.assumptions,
    )


def measure_slopes(
    model: nn.Module,
    mark: Watermark,
    task: Task,
    students: Sweep = (),
    access: Access | None = None,
) -> Slopes:
    """Measure L_s at this model, c_prune over the paper's three shares, and c_distill over the students.

    Args:
        model: The marked model.
        mark: Its mark.
        task: Its task.
        students: Pairs of a share pi of inputs without teacher scores and the student.
        access: The reading; by default the first that the mark declares.
    """

    def read(net: nn.Module) -> Floats:
        return squash(mark.read(net, access))

    pruned = [(share, partial(Prune(share), model, task)) for share in PRUNED]
    return Slopes(
        steepest(model, mark, access),
        c_prune(read, model, pruned),
        c_distill(read, model, students),
        assumptions=(LOCAL, FITTED),
    )


def _edited(edits: Iterable[Edit], model: nn.Module, task: Task) -> Iterator[tuple[Edit, nn.Module]]:
    """Apply every edit to the model."""
    for edit in edits:
        yield edit, edit(model, task)


def _row(
    name: str,
    edited: nn.Module,
    budget: Budget,
    *,
    mark: Watermark,
    task: Task,
    before: Answers,
    alpha: float,
) -> Row:
    """Read one edited model and compare it with the answers before."""
    after = mark.read(edited, before.reading.access)
    found, old, new = mark.evidence(after), squash(before), squash(after)
    gamma = drift(old, new)
    return Row(
        edit=name,
        gamma=gamma,
        certain=certificate(mark, before, after).matches,
        matches=found.matches,
        certain_at_half=certify(old, mark.bits, gamma).matches,
        t_at_half=matches(decode(new, 0.5), mark.bits),
        headroom=headroom(found.matches, mark.m, alpha),
        evidence=found.bits(),
        accuracy=accuracy(edited, task, task.test),
        budget=replace(budget, gamma=gamma),
    )


def certificate(mark: Watermark, before: Answers, after: Answers) -> Certificate:
    """Return the certificate for the measured drift, decoded as the mark decodes.

    Args:
        mark: The mark.
        before: Answers of the marked model.
        after: Answers of the edited model.
    """
    old, new = squash(before), squash(after)
    if before.reading.binary:
        return certify(old, mark.bits, drift(old, new))
    return certify_median(old, mark.bits, drift_in_order(old, new))


def distance(one: nn.Module, other: nn.Module) -> float:
    """Return Δ, the l2 distance of two models' parameters, or infinity if their shapes differ.

    Args:
        one: A model.
        other: Another model.
    """
    theirs = dict(unwrap(other).named_parameters())
    mine = dict(unwrap(one).named_parameters())
    if {n: p.shape for n, p in mine.items()} != {n: p.shape for n, p in theirs.items()}:
        return math.inf
    return math.sqrt(sum(float((p - theirs[n]).detach().double().square().sum()) for n, p in mine.items()))


def steepest(model: nn.Module, mark: Watermark, access: Access | None = None) -> float:
    """Return the largest gradient norm of a carrier's answer in [0, 1]: the slope at this model.

    Guarantee: none; a slope at a point does not bound a change. Labels are not continuous, so their slope
    is infinite.

    Args:
        model: The model.
        mark: The mark.
        access: The reading; by default the first that the mark declares.
    """
    reading = mark.reading(access)
    if reading.access == "labels":
        return math.inf
    batch = mark.batches.with_ordinary(None, weight_of(model))
    with evaluation_mode(model):
        seen = observe(model, batch, reading.layer if reading.hidden else None, mark.forward)
        told = answer(seen, reading, mark.direction, unwrap(model))
        s = told[: mark.m]
        if not reading.binary:
            s = standardise(s, told[mark.m :]).sigmoid()
        return float(jacobian_norms(s, [p for p in model.parameters() if p.requires_grad]).max())
