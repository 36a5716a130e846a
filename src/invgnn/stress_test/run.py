"""stress(model, mark, task): what every edit and attack leaves of a mark, and of the task, row by row."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator

from torch import nn

from invgnn.attacks.attack import Attack
from invgnn.attacks.denial import Endpoint
from invgnn.attacks.edits import Edit, find_edits
from invgnn.attacks.registry import find_attacks
from invgnn.audit.examine import examine, with_channel
from invgnn.errors import DataError, InvgnnError, SuspectError
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
    """All edits and attacks there are, plug-ins included; collusion if there are other licensed copies."""
    return [*find_edits(), *find_attacks(*licensed)]


def knowledge(change: Edit) -> str:
    """What somebody needs to have for a change, in words."""
    return ", ".join(change.knows) if isinstance(change, Attack) else "the weights, task data"


def is_quick(change: Edit) -> bool:
    """Whether a change needs no training."""
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
    """A row for the model as released, then one for every change, each made to the released model.

    Rows come as they are done; those named in `skip` are left out. Accuracy is that on test data.

    Guarantee: every evidence is exact for its reading alone. They say how a mark fares, not whose a model
    is: for a verdict on a suspect use `verify`, which counts what was tried.
    """
    laws.check_alpha(alpha)
    _check_task(mark, task)
    trial = _Trial(model, mark, task, alpha)
    if RELEASED not in skip:
        yield trial.read(RELEASED, "released", "", model, time.perf_counter())
    for change in every_change() if changes is None else changes:
        if repr(change) not in skip:
            yield trial.make(change)


class _Trial:
    """A released model with its answers, against which changed ones are held."""

    def __init__(self, model: nn.Module, mark: Watermark, task: Task, alpha: float) -> None:
        self.model, self.mark, self.task = model, mark, task
        self.threshold = null.EXACT.threshold(mark.m, alpha)
        self.before = [mark.read(model, reading.access) for reading in mark.readings]
        self.channel = None if mark.score_channel is None else mark.channel(task.data)

    def make(self, change: Edit) -> Row:
        """Make a change and read what came of it."""
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
        """Read a model wherever the mark may be read."""
        suspect = model.serve if isinstance(model, Endpoint) else model
        found: list[Found] = []
        notes: list[str] = []
        try:
            seen = examine(self.mark, suspect, channel=self.channel)
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
        right = accuracy(model, self.task, self.task.test)
        seconds = time.perf_counter() - start
        return Row(name, kind, knows, right, seconds, tuple(found), _one_line("; ".join(notes)))

    def find(
        self, before: Answers, after: Answers, evidence: Evidence, lean: ScoreShift | None, ways: int
    ) -> Found:
        """What one reading finds in a suspect, whose columns were read in so many ways."""
        s = squash(after)
        return Found(
            access=before.reading.access,
            matches=evidence.matches,
            m=self.mark.m,
            threshold=self.threshold,
            evidence=with_channel(evidence, lean).bits(ways),
            gamma=drift(squash(before), s),
            margin=kappa_signed(s, self.mark.bits),
            certain=certificate(self.mark, before, after).matches,
            score_channel=None if lean is None else lean.bits(ways),
        )


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _check_task(mark: Watermark, task: Task) -> None:
    width = 0 if mark.carriers.x is None else mark.carriers.x.shape[1]
    if (mark.context["level"], width) != (task.level, task.num_features):
        raise DataError(
            f"the mark was drawn from another task: its graphs have {width} features, those of {task.name} "
            f"{task.num_features}",
            "give the task that the mark was drawn from",
        )


# -- rows on disk ---------------------------------------------------------------------------------
