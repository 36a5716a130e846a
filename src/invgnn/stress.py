"""stress(model, mark, task): what every edit and attack leaves of a mark, and of the task, row by row."""

from __future__ import annotations

import csv
import io
import os
import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from torch import nn

from invgnn import null
from invgnn.attacks import Attack, Endpoint, find_attacks
from invgnn.batches import accuracy
from invgnn.channel import Lean
from invgnn.disk import write_text
from invgnn.edits import Edit, find_edits
from invgnn.errors import DataError, FileError, InvgnnError, SuspectError
from invgnn.examine import examine, with_channel
from invgnn.provenance import digest_model
from invgnn.query import Answers
from invgnn.tasks import Task
from invgnn.theory.margins import drift, kappa_signed, squash
from invgnn.theory.robustness import certificate
from invgnn.watermark import Watermark

RELEASED = "as released"
Kind = Literal["released", "edit", "attack"]


@dataclass(frozen=True)
class Found:
    """What one reading finds in a model.

    evidence  in bits, as if this reading alone had been declared, with the second channel if there is one;
              0 for a plain key, which has no exact law
    gamma     largest drift of an answer, in [0, 1], from the released model's
    margin    least signed margin of the answers: negative as soon as one bit is read wrong
    certain   matches that so large a drift must leave, by the certificate of `theory.margins`
    function  evidence of the second channel by itself; None without one
    """

    access: str
    t: int
    m: int
    tau: int
    evidence: float
    gamma: float
    margin: float
    certain: int
    function: float | None = None

    @property
    def wm_acc(self) -> float:
        """Share of the bits read right."""
        return self.t / self.m

    @property
    def headroom(self) -> int:
        """T - tau: matches that may still be lost."""
        return self.t - self.tau


@dataclass(frozen=True)
class Row:
    """What one change leaves: task accuracy, and what each reading finds.

    `note` says why a change does not apply to this model (then there is no accuracy), or why a reading is
    missing.
    """

    change: str
    kind: Kind
    knows: str
    accuracy: float | None
    seconds: float
    found: tuple[Found, ...] = ()
    note: str = ""

    def at(self, access: str) -> Found | None:
        """What the reading at an access level found, if the model could be read there."""
        return next((found for found in self.found if found.access == access), None)

    def record(self) -> dict[str, Any]:
        """One flat line of plain values: numbers of a reading under `access.name`."""
        plain = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "found"}
        for found in self.found:
            held = {name: getattr(found, name) for name in (*NUMBERS, "function")}
            plain |= {f"{found.access}.{name}": value for name, value in held.items() if value is not None}
        return plain


NUMBERS = ("t", "m", "tau", "headroom", "wm_acc", "evidence", "gamma", "margin", "certain")


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
    null.check_alpha(alpha)
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
        self.tau = null.EXACT.tau(mark.m, alpha)
        self.before = [mark.read(model, reading.access) for reading in mark.readings]
        self.channel = None if mark.function is None else mark.channel(task.data)

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
                    found.append(self.find(before, level.answers, level.evidence, seen.lean, ways))
            if seen.refusal.carriers:
                notes.append(f"refused {seen.refusal.carriers} carriers, {seen.refusal.ordinary} others")
        right = accuracy(model, self.task, self.task.test)
        seconds = time.perf_counter() - start
        return Row(name, kind, knows, right, seconds, tuple(found), _one_line("; ".join(notes)))

    def find(
        self, before: Answers, after: Answers, evidence: null.Evidence, lean: Lean | None, ways: int
    ) -> Found:
        """What one reading finds in a suspect, whose columns were read in so many ways."""
        s = squash(after)
        return Found(
            access=before.reading.access,
            t=evidence.t,
            m=self.mark.m,
            tau=self.tau,
            evidence=with_channel(evidence, lean).bits(ways),
            gamma=drift(squash(before), s),
            margin=kappa_signed(s, self.mark.bits),
            certain=certificate(self.mark, before, after).t,
            function=None if lean is None else lean.bits(ways),
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


def _private(name: str, flags: int) -> int:
    return os.open(name, flags, 0o600)


# -- rows on disk ---------------------------------------------------------------------------------


class Ledger:
    """Rows in a CSV file for your eyes, appended as they are done, so that a stress test can go on later.

    Every line carries the digests of mark and models, task and level: a file of another test is refused. A
    line that was cut off is done again.
    """

    def __init__(
        self,
        path: str | Path,
        model: nn.Module,
        mark: Watermark,
        task: Task,
        *licensed: nn.Module,
        alpha: float = 1e-6,
    ) -> None:
        self.path = Path(path)
        seed = "" if task.seed is None else f"/{task.seed}"
        models = "/".join(digest_model(each)[:12] for each in (model, *licensed))
        self.run = f"{mark.digest[:12]}/{models}/{task.name}{seed}/{alpha:g}"
        self.accesses = [reading.access for reading in mark.readings]
        plain = [f.name for f in fields(Row) if f.name != "found"]
        numbers = NUMBERS if mark.function is None else (*NUMBERS, "function")
        self.header = ["run", *plain, *(f"{a}.{n}" for a in self.accesses for n in numbers)]

    def read(self) -> list[Row]:
        """The rows that are done; the file is left with these alone."""
        if not self.path.exists():
            return []
        text = self.path.read_text(encoding="utf-8")
        whole = text[: text.rfind("\n") + 1].splitlines(keepends=True)
        lines = list(csv.DictReader(whole))
        if whole and (whole[0] != _line(self.header) or any(line["run"] != self.run for line in lines)):
            raise FileError(
                f"{self.path} holds rows of another stress test", "choose another name, or move it away"
            )
        write_text(self.path, "".join(whole), overwrite=True, private=True)
        return [self._row(line) for line in lines]

    def add(self, row: Row) -> None:
        """One more line, on its way to disk before this returns."""
        record = {"run": self.run} | row.record()
        line = _line([record.get(name) for name in self.header])
        fresh = not self.path.exists() or not self.path.stat().st_size
        with open(self.path, "a", encoding="utf-8", newline="", opener=_private) as file:
            file.write((_line(self.header) if fresh else "") + line)

    def _row(self, line: dict[str, str]) -> Row:
        found = [self._found(line, access) for access in self.accesses if line[f"{access}.t"]]
        return Row(
            change=line["change"],
            kind=line["kind"],  # type: ignore[arg-type]  # as it was written
            knows=line["knows"],
            accuracy=float(line["accuracy"]) if line["accuracy"] else None,
            seconds=float(line["seconds"]),
            found=tuple(found),
            note=line["note"],
        )

    def _found(self, line: dict[str, str], access: str) -> Found:
        t, m, tau, certain = (int(line[f"{access}.{name}"]) for name in ("t", "m", "tau", "certain"))
        evidence, gamma, margin = (float(line[f"{access}.{n}"]) for n in ("evidence", "gamma", "margin"))
        function = line.get(f"{access}.function")
        return Found(
            access, t, m, tau, evidence, gamma, margin, certain, float(function) if function else None
        )


def _line(values: Iterable[Any]) -> str:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerow(values)
    return text.getvalue()
