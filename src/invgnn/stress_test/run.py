"""The stress test: apply every edit and attack to a marked model and measure mark and task, row by row."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from torch import nn

from invgnn.attacks.attack import Attack
from invgnn.attacks.denial import Endpoint
from invgnn.attacks.edits import Edit, find_edits
from invgnn.attacks.registry import find_attacks
from invgnn.audit.examine import examine, with_channel
from invgnn.errors import DataError, InvgnnError, ParameterError, SuspectError
from invgnn.nn.backbones import Backbone
from invgnn.readout.answers import Answers
from invgnn.stats import laws, null
from invgnn.stats.evidence import Evidence
from invgnn.stress_test.rows import Found, Kind, Row
from invgnn.theory.margins import drift, kappa_signed, squash
from invgnn.theory.robustness import certificate
from invgnn.training.batching import accuracy
from invgnn.training.tasks import Task
from invgnn.watermark.mark import Watermark
from invgnn.watermark.score_shift import ScoreShift

RELEASED = "as released"


def every_change(*licensed: nn.Module) -> list[Edit]:
    """Return all edits and attacks, including plug-ins.

    Args:
        licensed: Other licensed copies of the model; with them, collusion is included.
    """
    return [*find_edits(), *find_attacks(*licensed)]


def knowledge(change: Edit) -> str:
    """Return in words what a change requires."""
    return ", ".join(change.knows) if isinstance(change, Attack) else "the weights, task data"


def is_quick(change: Edit) -> bool:
    """Return whether a change needs no training."""
    return not hasattr(change, "epochs") and all(map(is_quick, getattr(change, "edits", ())))


def stress(
    model: nn.Module,
    mark: Watermark,
    task: Task,
    changes: Iterable[Edit] | None = None,
    *,
    alpha: float = 1e-6,
    skip: Collection[str] = (),
) -> Iterator[Row]:
    """Yield a row for the released model, then one for every change, each applied to the released model.

    Rows are yielded as soon as they are computed.

    Guarantee: every evidence value is exact for its reading alone. The rows measure the robustness of a
    mark; they do not decide who owns a model. For a verdict on a suspect use `verify`, which corrects for
    the number of tests.

    Args:
        model: The released model; left unchanged.
        mark: Its mark.
        task: Its task; accuracy is measured on its test part.
        changes: The edits and attacks to apply; by default `every_change()`.
        alpha: Significance level of the threshold.
        skip: Names of rows to leave out.

    Raises:
        DataError: If the mark was drawn from another task.
    """
    laws.check_alpha(alpha)
    if not isinstance(task, Task):
        raise ParameterError(
            f"the task is a {type(task).__name__}", "pass invgnn.own_task(graphs, name), with classes in y"
        )
    _check_task(mark, task)
    trial = _Trial(model, mark, task, alpha)
    if RELEASED not in skip:
        yield trial.read(RELEASED, "released", "", model, time.perf_counter())
    for change in every_change() if changes is None else changes:
        if repr(change) not in skip:
            yield trial.make(change)


class _Trial:
    """A released model with its answers, to which changed models are compared."""

    def __init__(self, model: nn.Module, mark: Watermark, task: Task, alpha: float) -> None:
        self.model, self.mark, self.task = model, mark, task
        self.threshold = null.EXACT.threshold(mark.m, alpha)
        self.before = [mark.read(model, reading.access) for reading in mark.readings]
        self.channel = None if mark.score_channel is None else mark.channel(task.data)

    def make(self, change: Edit) -> Row:
        """Apply a change and read the result."""
        kind: Kind = "attack" if isinstance(change, Attack) else "edit"
        knows = knowledge(change)
        start = time.perf_counter()
        try:
            changed = change(self.model, self.task)
        except InvgnnError as error:
            seconds = time.perf_counter() - start
            return Row(repr(change), kind, knows, None, seconds, note=_one_line(error.message))
        return self.read(repr(change), kind, knows, changed, start)

    def read(self, name: str, kind: Kind, knows: str, model: nn.Module, start: float) -> Row:
        """Read a model at every access level that the mark declares."""
        suspect = model.serve if isinstance(model, Endpoint) else model
        found: list[Found] = []
        notes: list[str] = []
        try:
            seen = examine(self._asking(model), suspect, channel=self.channel)
        except SuspectError as error:
            notes.append(error.message)
        else:
            ways = seen.tests // len(self.mark.readings)
            for before, level in zip(self.before, seen.levels, strict=True):
                if level.answers is None or level.evidence is None:
                    notes.append(f"{level.access}: {level.note}")
                else:
                    found.append(self.find(before, level.answers, level.evidence, seen.score_shift, ways))
            if seen.refusal.carriers:
                notes.append(f"refused {seen.refusal.carriers} carriers, {seen.refusal.ordinary} others")
        task = replace(self.task, forward=None) if isinstance(model, Endpoint) else self.task
        right = accuracy(model, task, task.test)
        seconds = time.perf_counter() - start
        return Row(name, kind, knows, right, seconds, tuple(found), _one_line("; ".join(notes)))

    def _asking(self, model: nn.Module) -> Watermark:
        """Return the mark as a model is asked for it: the library's own backbones in the usual way."""
        foreign = isinstance(model, Backbone) and not isinstance(self.model, Backbone)
        return self.mark.replace(forward=None) if foreign else self.mark

    def find(
        self, before: Answers, after: Answers, evidence: Evidence, shift: ScoreShift | None, ways: int
    ) -> Found:
        """Return the result of one reading of a suspect whose columns were read in `ways` ways."""
        s = squash(after)
        return Found(
            access=before.reading.access,
            matches=evidence.matches,
            m=self.mark.m,
            threshold=self.threshold,
            evidence=with_channel(evidence, shift).bits(ways),
            gamma=drift(squash(before), s),
            margin=kappa_signed(s, self.mark.bits),
            certain=certificate(self.mark, before, after).matches,
            score_channel=None if shift is None else shift.bits(ways),
        )


def _one_line(text: str) -> str:
    """Collapse white space into single spaces."""
    return " ".join(text.split())


def _check_task(mark: Watermark, task: Task) -> None:
    """Raise an error if a mark was drawn from another task."""
    width = 0 if mark.carriers.x is None else mark.carriers.x.shape[1]
    if (mark.context["level"], width) != (task.level, task.num_features):
        raise DataError(
            f"the mark was drawn from another task: it is for {mark.context['level']} tasks with {width} "
            f"features, and {task.name} is a {task.level} task with {task.num_features}",
            "pass the task that the mark was drawn from",
        )
