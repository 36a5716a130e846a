"""The constants of the paper's robustness theorem for a marked model, and what each edit made of them."""

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

LOCAL = Assumption("the slope at the marked model bounds the slope all the way to the edited one")
FITTED = Assumption("an edit drifts no further than the worst of the sweep the constant was fitted to")


@dataclass(frozen=True)
class Slopes(Statement):
    """The constants of the composite budget: L_s, c_prune and c_distill."""

    l_s: float
    c_prune: float
    c_distill: float

    def of(self, edit: Edit, model: nn.Module, edited: nn.Module) -> Budget:
        """The budget of an edit: by its share if it prunes, by how far the parameters moved otherwise."""
        if isinstance(edit, Prune):
            return Budget(prune_slope=self.c_prune, share=edit.share, assumptions=(FITTED,))
        return Budget(slope=self.l_s, shift=distance(model, edited), assumptions=(LOCAL,))

    def of_student(self, pi: float) -> Budget:
        """The budget of a student that went without the teacher on a share pi of its inputs."""
        return Budget(distill_slope=self.c_distill, pi=pi, assumptions=(FITTED,))


@dataclass(frozen=True)
class Row:
    """One edited model beside the marked one.

    gamma      the drift of the answers in [0, 1]
    certain    matches that drift must leave, as the mark decodes (for most readings at the median)
    t          matches counted, decoded so
    certain_at_half, t_at_half  the same decoded at 1/2, the threshold the paper's lemma is about
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
        """Plain values for a table, the budget with its standing."""
        plain = asdict(self) | {"budget": self.budget.value, "shift": self.budget.shift}
        return plain | {"standing": self.budget.standing}


@dataclass(frozen=True)
class Robustness(Statement):
    """A marked model's margins and slopes, and a row per edit; see `margins` and `budget` for each.

    Guarantee: `certain` is a lower bound on `t` for every model whose answers drift no further, however it
    came about. The budgets have none; their standing says how they fared.
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
        """T - tau, the least over the edits and the model itself."""
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
    """You get the table of the paper's robustness section for one marked model.

    `distilled` pairs shares pi of inputs without the teacher with students, or functions that make them;
    without them c_distill is 0 and no row is about distillation. Every edit starts from the model itself,
    so each budget has one leg: pruning and distillation their slopes, everything else L_s times the shift.
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
    """You get L_s at this model, c_prune over the paper's three shares, c_distill over the students."""

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
    """You get what the measured drift must leave of a mark, decoded as the mark decodes."""
    old, new = squash(before), squash(after)
    if before.reading.binary:
        return certify(old, mark.bits, drift(old, new))
    return certify_median(old, mark.bits, drift_in_order(old, new))


def distance(one: nn.Module, other: nn.Module) -> float:
    """You get Δ, the l2 distance of two models' parameters; infinite if they are of different shapes."""
    theirs = dict(unwrap(other).named_parameters())
    mine = dict(unwrap(one).named_parameters())
    if {n: p.shape for n, p in mine.items()} != {n: p.shape for n, p in theirs.items()}:
        return math.inf
    return math.sqrt(sum(float((p - theirs[n]).detach().double().square().sum()) for n, p in mine.items()))


def steepest(model: nn.Module, mark: Watermark, access: Access | None = None) -> float:
    """You get the largest gradient norm of a squashed carrier answer: the slope at this very model.

    Guarantee: none; a slope at a point bounds no change. Labels jump, so theirs is infinite.
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
