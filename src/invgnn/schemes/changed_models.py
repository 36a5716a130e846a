"""What edits, removal attacks and denials leave of the mark of any scheme."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from torch import nn

from invgnn.attacks.denial import Endpoint
from invgnn.attacks.edits import Edit
from invgnn.errors import InvgnnError
from invgnn.schemes.scheme import Found, Mark
from invgnn.training.batching import accuracy
from invgnn.training.tasks import Task


@dataclass(frozen=True)
class Left:
    """What one change leaves of a mark.

    Attributes:
        change: Name of the change.
        accuracy: Test accuracy of the changed model; None if the change does not apply to this model.
        found: What the mark finds in it; None if it cannot be read.
        note: Why the change does not apply, or why the model cannot be read.
    """

    change: str
    accuracy: float | None
    found: Found | None
    note: str = ""


def read_changed(mark: Mark, model: nn.Module, task: Task, changes: Iterable[Edit]) -> Iterator[Left]:
    """Apply changes to a model, each separately, and read every result.

    A served model is read through its endpoint, which shows replies and nothing else. No change and no
    scheme is treated in a way of its own.

    Args:
        mark: The owner's mark.
        model: The marked model; left unchanged.
        task: Its task.
        changes: Edits, attacks and denials.

    Yields:
        One result per change.
    """
    for change in changes:
        yield _read(mark, model, task, change)


def _read(mark: Mark, model: nn.Module, task: Task, change: Edit) -> Left:
    """Apply one change and read the result."""
    try:
        changed = change(model, task)
    except InvgnnError as error:
        return Left(repr(change), None, None, error.message)
    right = accuracy(changed, task, task.test)
    try:
        found = mark.read(changed.serve if isinstance(changed, Endpoint) else changed)
    except InvgnnError as error:
        return Left(repr(change), right, None, error.message)
    return Left(repr(change), right, found)
