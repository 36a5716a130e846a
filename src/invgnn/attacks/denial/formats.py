"""Formats: the stolen model returns complete answers in a form that the owner does not expect."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import one_hot

from invgnn.attacks.denial.serve import Endpoint, Serving, Wire
from invgnn.errors import EditError, ParameterError
from invgnn.training.tasks import Task


class Format(Serving):
    """Put the stolen model behind an endpoint that returns its answers in another form.

    Customers know the form, so it costs them nothing. A reader that projects class scores by position gets
    another projection.

    Args:
        form: One of `FORMS`, e.g. "classes rolled by one".
        seed: Seed of the order of shuffled classes.
    """

    def __init__(self, form: str, seed: int = 0) -> None:
        if form not in FORMS:
            raise ParameterError(f"unknown form {form!r}", f"choose one of: {', '.join(FORMS)}")
        self.form, self.seed = form, seed

    def apply(self, model: nn.Module, task: Task) -> Endpoint:
        """Return an endpoint in front of the copy.

        Raises:
            EditError: If the task has too many classes for the form.
        """
        return Endpoint(model, FORMS[self.form](task.num_classes), task.forward)

    def __repr__(self) -> str:
        """Return the name in tables and test ids."""
        return f"serve {self.form}"


# -- class scores in other columns -----------------------------------------------------------------


def in_columns(places: Tensor, width: int) -> Wire:
    """Return the wire that sends the probability of class c in column places[c], and 0 in all others.

    Args:
        places: The column of every class.
        width: Number of columns.
    """

    def encode(logs: Tensor) -> Tensor:
        sent = logs.new_zeros(len(logs), width)
        sent[:, places] = logs.exp()
        return sent

    return Wire(encode, lambda sent: sent[:, places])


def _rolled(classes: int) -> Wire:
    """Move every class to the next column."""
    return in_columns(torch.arange(classes).roll(-1), classes)


def _shuffled(classes: int) -> Wire:
    """Permute the classes by one random cycle, so that no class keeps its column."""
    cycle, places = torch.randperm(classes), torch.empty(classes, dtype=torch.long)
    places[cycle] = cycle.roll(1)
    return in_columns(places, classes)


def _one_more(classes: int, *, first: int) -> Wire:
    """Put the classes into the columns from `first` on, with one further column that is always 0."""
    return in_columns(torch.arange(classes) + first, classes + 1)


# -- other numbers ---------------------------------------------------------------------------------


def _log_odds(classes: int, *, of: int) -> Wire:
    """Send one column: the log-odds of one of two classes."""
    if classes != 2:
        raise EditError(
            f"one column of log-odds cannot tell {classes} classes apart",
            "use this form only for tasks with two classes",
        )
    columns = [1, 0] if of == 0 else [0, 1]
    return Wire(
        lambda logs: logs[:, of] - logs[:, 1 - of],
        lambda sent: torch.stack([-sent / 2, sent / 2], dim=-1)[:, columns],
    )


def _percentages(classes: int) -> Wire:
    """Send probabilities times 100."""
    return Wire(lambda logs: 100 * logs.exp())


def _log_probabilities(classes: int) -> Wire:
    """Send log-probabilities."""
    return Wire(lambda logs: logs)


# -- labels alone ----------------------------------------------------------------------------------


def labelled(names: NDArray[np.str_] | NDArray[np.int64]) -> Wire:
    """Return the wire that sends the name of the top class and nothing else."""

    def decode(sent: NDArray[np.str_] | NDArray[np.int64]) -> Tensor:
        top = torch.from_numpy((sent[:, None] == names).argmax(1))
        return one_hot(top, len(names)).double()

    return Wire(lambda logs: names[logs.argmax(-1).numpy()], decode)


def _names(classes: int) -> Wire:
    """Send names whose order differs from that of the classes."""
    return labelled(np.array([f"kind {classes - number:04d}" for number in range(classes)]))


def _numbers(classes: int) -> Wire:
    """Send numbers with gaps, in another order than the classes."""
    return labelled(10 * np.arange(classes, 0, -1, dtype=np.int64))


FORMS: dict[str, Callable[[int], Wire]] = {
    "classes rolled by one": _rolled,
    "classes shuffled": _shuffled,
    "with an empty class in front": partial(_one_more, first=1),
    "with an empty class behind": partial(_one_more, first=0),
    "log-odds of class 0": partial(_log_odds, of=0),
    "log-odds of class 1": partial(_log_odds, of=1),
    "percentages": _percentages,
    "log-probabilities": _log_probabilities,
    "label names": _names,
    "label numbers": _numbers,
}
"""Forms of the answers of an endpoint, by name; each is a function of the number of classes."""
