"""Formats: the stolen model answers in full, in a form that its owner does not expect."""

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
    """Put the stolen model behind an endpoint that writes its answers in another form.

    Customers are told the form, so it costs them nothing; whoever reads answers with a projection of class
    scores, each at its place, reads another projection.

    Args:
        form: One of `FORMS`, e.g. "classes rolled by one".
        seed: Decides the order of shuffled classes.
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
        return Endpoint(model, FORMS[self.form](task.num_classes))

    def __repr__(self) -> str:
        return f"serve {self.form}"


# -- class scores in other columns -----------------------------------------------------------------


def in_columns(places: Tensor, width: int) -> Wire:
    """Return the wire that sends the probability of class c in column places[c], and 0 in all others."""

    def encode(logs: Tensor) -> Tensor:
        sent = logs.new_zeros(len(logs), width)
        sent[:, places] = logs.exp()
        return sent

    return Wire(encode, lambda sent: sent[:, places])


def _rolled(classes: int) -> Wire:
    return in_columns(torch.arange(classes).roll(-1), classes)


def _shuffled(classes: int) -> Wire:
    """One random cycle through all classes: none stays in its place, and two are swapped."""
    cycle, places = torch.randperm(classes), torch.empty(classes, dtype=torch.long)
    places[cycle] = cycle.roll(1)
    return in_columns(places, classes)


def _one_more(classes: int, *, first: int) -> Wire:
    """Classes from column `first` on, and one column that is always 0."""
    return in_columns(torch.arange(classes) + first, classes + 1)


# -- other numbers ---------------------------------------------------------------------------------


def _log_odds(classes: int, *, of: int) -> Wire:
    """One column: the log-odds of one of two classes."""
    if classes != 2:
        raise EditError(
            f"one column of log-odds cannot tell {classes} classes apart",
            "it is for tasks with two",
        )
    columns = [1, 0] if of == 0 else [0, 1]
    return Wire(
        lambda logs: logs[:, of] - logs[:, 1 - of],
        lambda sent: torch.stack([-sent / 2, sent / 2], dim=-1)[:, columns],
    )


def _percentages(classes: int) -> Wire:
    return Wire(lambda logs: 100 * logs.exp())


def _log_probabilities(classes: int) -> Wire:
    return Wire(lambda logs: logs)


# -- labels alone ----------------------------------------------------------------------------------


def labelled(names: NDArray[np.str_] | NDArray[np.int64]) -> Wire:
    """Return the wire that sends the name of the top class and nothing else."""

    def decode(sent: NDArray[np.str_] | NDArray[np.int64]) -> Tensor:
        top = torch.from_numpy((sent[:, None] == names).argmax(1))
        return one_hot(top, len(names)).double()

    return Wire(lambda logs: names[logs.argmax(-1).numpy()], decode)


def _names(classes: int) -> Wire:
    """Names that do not sort as the classes do."""
    return labelled(np.array([f"kind {classes - number:04d}" for number in range(classes)]))


def _numbers(classes: int) -> Wire:
    """Numbers with gaps, and in another order than the classes."""
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
"""What an endpoint may write in place of class scores, by name, for a number of classes."""
