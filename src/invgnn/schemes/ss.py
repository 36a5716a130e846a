"""SS: the task alone. It bounds the accuracy from above, and shows what a mark reads by chance."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from invgnn.schemes.keyed import Keyed, KeyedMark
from invgnn.schemes.scheme import Scheme
from invgnn.secret import Secret
from invgnn.training.fitting import FitOptions, History, Progress, fit_task
from invgnn.training.tasks import Task


class Unmarked(KeyedMark):
    """A mark that is never embedded: its matches are those of chance."""

    def train(
        self, model: nn.Module, task: Task, options: FitOptions, progress: Progress | None = None
    ) -> History:
        """Train a model on the task alone, in place.

        Args:
            model: The model; left in evaluation mode.
            task: The task.
            options: Settings of the run.
            progress: Called after every epoch.
        """
        return fit_task(model, task, options, progress)


@dataclass(frozen=True, repr=False)
class SS(Scheme):
    """The task alone, without a mark.

    Attributes:
        keyed: The scheme that unmarked models are read with.
    """

    keyed: Keyed = Keyed()  # noqa: RUF009 - frozen
    name = "SS"
    source = "no mark"

    def prepare(self, secret: Secret, task: Task) -> Unmarked:
        """Draw a mark that is not embedded.

        Args:
            secret: The secret.
            task: The task.
        """
        return Unmarked(self.keyed.prepare(secret, task).mark)

    def suited(self, model: nn.Module, task: Task) -> SS:
        """Return the scheme that reads where this architecture can be read.

        Args:
            model: A model of this architecture.
            task: Its task.
        """
        return SS(self.keyed.suited(model, task))
