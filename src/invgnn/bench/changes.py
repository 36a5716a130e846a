"""Every change to a released model that the robustness benchmark makes, by name, and its measurement."""

from __future__ import annotations

import time
from typing import Any

from torch import nn
from torch_geometric.loader import DataLoader

from invgnn.attacks import edits, registry
from invgnn.attacks.attack import Attack
from invgnn.attacks.denial import Endpoint
from invgnn.attacks.edits import Edit
from invgnn.attacks.removal import Collude
from invgnn.audit.examine import examine
from invgnn.audit.provenance import digest_model
from invgnn.bench.recorded import Recorded
from invgnn.bench.released import Marked, released
from invgnn.bench.robustness_rows import COLLUDE, REFRESH
from invgnn.errors import ParameterError
from invgnn.nn.layers import fresh_twin
from invgnn.readout.reading import Access
from invgnn.stress_test.rows import Row
from invgnn.stress_test.run import RELEASED, knowledge, stress
from invgnn.theory.margins import signed_margins, squash
from invgnn.training.batching import accuracy
from invgnn.training.tasks import Task
from invgnn.watermark.mark import Watermark


class Refresh(Edit):
    """The owner's refresh: distil the released model and its mark into a fresh model of the same kind.

    It has the interface of an edit, but only the owner of the mark can make it.
    """

    def __init__(self, mark: Watermark, seed: int) -> None:
        self.mark, self.seed = mark, seed

    def apply(self, model: nn.Module, task: Task) -> nn.Module:
        """Return a fresh student, trained on graphs in batches of 64 or on the whole graph."""
        student, data = fresh_twin(model), task.data
        batches = [data] if task.level == "node" else DataLoader(data, 64, shuffle=True)
        self.mark.refresh(student, model, batches, seed=self.seed)
        return student

    def __repr__(self) -> str:
        return REFRESH


def change_names() -> list[str]:
    """Return the names of all changes in the order of the tables, the released model first."""
    return [RELEASED, *map(repr, edits.suite()), *map(repr, registry.suite()), COLLUDE, REFRESH]


def find_change(name: str, setting: str, seed: int) -> Edit:
    """Return the change of a name.

    Args:
        name: One of `change_names`, except the released model.
        setting: Task and backbone of the released model.
        seed: Seed of the released model.

    Returns:
        The change, ready to be made.

    Raises:
        ParameterError: If there is no such change.
    """
    if name == REFRESH:
        return Refresh(released(setting, seed).mark, seed)
    if name == COLLUDE:
        return Collude(released(setting, seed, "another licensee").model)
    for change in (*edits.suite(), *registry.suite()):
        if repr(change) == name:
            return change
    raise ParameterError(f"there is no change named {name!r}", "choose one of `change_names()`")


def measure_change(setting: str, seed: int, change: str) -> list[dict[str, Any]]:
    """Make one change to a released model and read the result at every declared level.

    Args:
        setting: Task and backbone of the released model.
        seed: Seed of the released model.
        change: One of `change_names`.

    Returns:
        One row per level, with blanks where the changed model cannot be read. `seconds` is processor time;
        it includes the training of the released model if this call trained it.
    """
    start, held = time.process_time(), released(setting, seed)
    about = {"kind": "released", "knows": ""}
    if change == RELEASED:
        made, found = held.model, next(stress(held.model, held.mark, held.task, []))
    else:
        recorded = Recorded(find_change(change, setting, seed))
        about = {"kind": _kind(recorded.change), "knows": _needs(recorded.change)}
        found = next(stress(held.model, held.mark, held.task, [recorded], skip=[RELEASED]))
        made = recorded.made
    about |= _accuracies(held, found)
    levels = [_level(held.mark, made, found, reading.access) for reading in held.mark.readings]
    last = {"seconds": round(time.process_time() - start, 1), "note": found.note}
    key = {"setting": setting, "seed": seed, "change": change}
    return [key | {"access": level.pop("access")} | about | level | last for level in levels]


def _kind(change: Edit) -> str:
    """Return who makes such a change: the owner, a thief, or any user."""
    if isinstance(change, Refresh):
        return "refresh"
    return "attack" if isinstance(change, Attack) else "edit"


def _needs(change: Edit) -> str:
    """Return what one needs to have to make a change."""
    return "the mark" if isinstance(change, Refresh) else knowledge(change)


def _accuracies(held: Marked, found: Row) -> dict[str, Any]:
    return {
        "model": digest_model(held.model)[:12],
        "accuracy_before": round(accuracy(held.model, held.task, held.task.test), 4),
        "accuracy": "" if found.accuracy is None else round(found.accuracy, 4),
    }


def _level(mark: Watermark, made: nn.Module, row: Row, access: Access) -> dict[str, Any]:
    names = ("evidence", "t", "m", "tau", "headroom", "wm_acc", "gamma", "margin_mean", "margin_least")
    found = row.at(access)
    if found is None:
        return dict.fromkeys(("access", *names, "certain"), "") | {"access": access}
    seen = examine(mark, made.serve if isinstance(made, Endpoint) else made)
    answers = next(level.answers for level in seen.levels if level.access == access)
    if answers is None:
        raise AssertionError(f"{access} was read before and cannot be read again")
    margins = signed_margins(squash(answers), mark.bits)
    values = (
        round(found.evidence, 2),
        *(found.matches, found.m, found.threshold, found.headroom),
        *(round(float(v), 4) for v in (found.wm_acc, found.gamma, margins.mean(), found.margin)),
    )
    return {"access": access} | dict(zip(names, values, strict=True)) | {"certain": found.certain}
