"""Marked models of a benchmark, each trained once, and what one change leaves of them."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from robustness_tables import REFRESH
from strength import begin
from torch import nn
from torch_geometric.loader import DataLoader

from invgnn.attacks import edits, registry
from invgnn.attacks.attack import Attack
from invgnn.attacks.denial import Endpoint
from invgnn.attacks.edits import Edit
from invgnn.attacks.removal import Collude
from invgnn.audit.examine import examine
from invgnn.audit.provenance import digest_model
from invgnn.nn.layers import fresh_twin
from invgnn.nn.model_file import load_model, save_model
from invgnn.stress_test.rows import Row
from invgnn.stress_test.run import RELEASED, knowledge, stress
from invgnn.theory.margins import signed_margins, squash
from invgnn.training.batching import accuracy
from invgnn.training.tasks import Task, load_task, parse_setting
from invgnn.training.trainer import train
from invgnn.version import __version__
from invgnn.watermark.carriers import Sampler
from invgnn.watermark.context import FORMAT
from invgnn.watermark.mark import Watermark
from invgnn.watermark.recipe import Recipe

COLLUDE = "average of 2 copies"


@dataclass(frozen=True)
class Owned:
    """A task, its owner's mark and the marked model as released."""

    task: Task
    mark: Watermark
    model: nn.Module


@lru_cache(maxsize=4)
def owned(setting: str, seed: int, owner: str = "owner") -> Owned:
    """What an owner released, trained if nobody has trained it yet.

    Two owners of one setting and seed start from the same weights and see the same batches: licensees.
    """
    place = folder() / f"{setting}-{seed}-{owner}".replace("/", "-").replace(" ", "-")
    with _alone(place):
        if not place.with_suffix(".model").exists():
            task, mark, model = begin(setting, seed, "marked", owner)
            train(model, task, mark, seed=seed)
            mark.save(place.with_suffix(".mark"), insecure_no_passphrase=True, overwrite=True)
            save_model(place.with_suffix(".model"), model)
    task = load_task(parse_setting(setting)[0], seed)
    return Owned(task, Watermark.load(place.with_suffix(".mark")), load_model(place.with_suffix(".model")))


def folder() -> Path:
    """Where models are kept: `INVGNN_CACHE`, or the machine's scratch; other defaults, other folders."""
    base = Path(os.environ.get("INVGNN_CACHE") or Path(tempfile.gettempdir()) / "invgnn-models")
    made_by = json.dumps([__version__, FORMAT, torch.__version__, Recipe().record(), Sampler().record()])
    place = base / hashlib.sha256(made_by.encode()).hexdigest()[:12]
    place.mkdir(parents=True, exist_ok=True)
    return place


@contextmanager
def _alone(place: Path) -> Iterator[None]:
    """One process at a time."""
    import fcntl

    with place.with_suffix(".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


# -- changes by name -------------------------------------------------------------------------------


class Refresh(Edit):
    """The owner's refresh as a change to the released model: a fresh student of the same kind.

    It is no edit: nobody without the mark can do it.
    """

    def __init__(self, mark: Watermark, seed: int) -> None:
        self.mark, self.seed = mark, seed

    def apply(self, model: nn.Module, task: Task) -> nn.Module:
        """Training graphs in batches of 64, or the one graph with all its nodes."""
        student, data = fresh_twin(model), task.data
        batches = [data] if task.level == "node" else DataLoader(data, 64, shuffle=True)
        self.mark.refresh(student, model, batches, seed=self.seed)
        return student

    def __repr__(self) -> str:
        return REFRESH


class Watched(Edit):
    """A change whose outcome is kept, to be looked at once more."""

    def __init__(self, change: Edit) -> None:
        self.change, self.made = change, nn.Module()

    def apply(self, model: nn.Module, task: Task) -> nn.Module:
        """The change itself."""
        self.made = self.change(model, task)
        return self.made

    def __repr__(self) -> str:
        return repr(self.change)


def names() -> list[str]:
    """Every row of the benchmark, in the order of the tables."""
    return [RELEASED, *map(repr, edits.suite()), *map(repr, registry.suite()), COLLUDE, REFRESH]


def find(name: str, setting: str, seed: int) -> Edit:
    """The change of that name."""
    if name == REFRESH:
        return Refresh(owned(setting, seed).mark, seed)
    if name == COLLUDE:
        return Collude(owned(setting, seed, "another licensee").model)
    return next(change for change in (*edits.suite(), *registry.suite()) if repr(change) == name)


def kind_of(change: Edit) -> str:
    """Who makes such a change: an owner who refreshes, a thief who attacks, or anybody."""
    if isinstance(change, Refresh):
        return "refresh"
    return "attack" if isinstance(change, Attack) else "edit"


def needs(change: Edit) -> str:
    """What somebody needs to have to make it."""
    return "the mark" if isinstance(change, Refresh) else knowledge(change)


# -- rows ------------------------------------------------------------------------------------------


def measure(setting: str, seed: int, change: str) -> list[dict[str, Any]]:
    """A row for every reading of the model after a change, blank where it cannot be read.

    `seconds` are the processor's, and those of training the model where this trial was the first.
    """
    start, held = time.process_time(), owned(setting, seed)
    about = {"kind": "released", "knows": ""}
    if change == RELEASED:
        made, found = held.model, next(stress(held.model, held.mark, held.task, []))
    else:
        watched = Watched(find(change, setting, seed))
        about = {"kind": kind_of(watched.change), "knows": needs(watched.change)}
        found = next(stress(held.model, held.mark, held.task, [watched], skip=[RELEASED]))
        made = watched.made
    about |= {
        "model": digest_model(held.model)[:12],
        "accuracy_before": round(accuracy(held.model, held.task, held.task.test), 4),
        "accuracy": "" if found.accuracy is None else round(found.accuracy, 4),
    }
    read = [_reading(held.mark, made, found, reading.access) for reading in held.mark.readings]
    last = {"seconds": round(time.process_time() - start, 1), "note": found.note}
    key = {"setting": setting, "seed": seed, "change": change}
    return [key | {"access": numbers.pop("access")} | about | numbers | last for numbers in read]


def _reading(mark: Watermark, made: nn.Module, row: Row, access: Any) -> dict[str, Any]:
    names = ("evidence", "t", "m", "tau", "headroom", "wm_acc", "gamma", "margin_mean", "margin_least")
    found = row.at(access)
    if found is None:
        return dict.fromkeys(("access", *names, "certain"), "") | {"access": access}
    seen = examine(mark, made.serve if isinstance(made, Endpoint) else made)
    answers = next(level.answers for level in seen.levels if level.access == access)
    assert answers is not None  # it was read before
    margins = signed_margins(squash(answers), mark.bits)
    values = (
        round(found.evidence, 2),
        *(found.matches, found.m, found.threshold, found.headroom),
        *(round(float(v), 4) for v in (found.wm_acc, found.gamma, margins.mean(), found.margin)),
    )
    return {"access": access} | dict(zip(names, values, strict=True)) | {"certain": found.certain}
