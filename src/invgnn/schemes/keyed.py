"""Keyed marks: the scheme of this library, behind the protocol of all schemes."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

from torch import nn

from invgnn.attacks.own_marks import accesses
from invgnn.audit.examine import examine
from invgnn.errors import WeakMarkWarning
from invgnn.readout.query import Suspect
from invgnn.readout.reading import Access
from invgnn.schemes.scheme import ANSWERS, Found, Mark, Scheme
from invgnn.secret import Secret
from invgnn.training.fitting import FitOptions, History, Progress
from invgnn.training.tasks import Task
from invgnn.training.trainer import train
from invgnn.watermark.mark import Watermark
from invgnn.watermark.recipe import Recipe


@dataclass(frozen=True)
class KeyedMark(Mark):
    """A `Watermark`, embedded and read as the library does.

    Attributes:
        mark: The mark.
    """

    mark: Watermark

    def train(
        self, model: nn.Module, task: Task, options: FitOptions, progress: Progress | None = None
    ) -> History:
        """Train a model with the mark, in place.

        Args:
            model: The model; left in evaluation mode.
            task: The task.
            options: Settings of the run.
            progress: Called after every epoch.
        """
        return train_with(self.mark, model, task, options, progress)

    def read(self, suspect: Suspect) -> Found:
        """Read every declared level, and correct for their number.

        Args:
            suspect: A module, or a function from a PyG batch to scores.
        """
        seen = examine(self.mark, suspect)
        evidence = seen.evidence
        return Found(
            evidence.matches, evidence.m, float(evidence.matches), seen.log_p, "exact, balanced key"
        )


def train_with(
    mark: Watermark, model: nn.Module, task: Task, options: FitOptions, progress: Progress | None
) -> History:
    """Train a model with a mark by `train`; that a mark is weak shows in what is read.

    Args:
        mark: The mark.
        model: The model.
        task: The task.
        options: Settings of the run.
        progress: Called after every epoch.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WeakMarkWarning)
        return train(
            model,
            task,
            mark,
            epochs=options.epochs,
            lr=options.lr,
            weight_decay=options.weight_decay,
            decoupled=options.decoupled,
            decay=options.decay,
            batch_size=options.batch_size,
            seed=options.seed,
            select=options.select,
            progress=progress,
        )


@dataclass(frozen=True, repr=False)
class Keyed(Scheme):
    """Secret bits on rewired task graphs, read from embeddings and scores.

    Attributes:
        m: Number of carriers.
        access: The levels to declare.
        recipe: Settings of the embedding.
    """

    m: int = ANSWERS
    access: tuple[Access, ...] = ("embedding", "logits")
    recipe: Recipe = Recipe()  # noqa: RUF009 - frozen
    name = "ours"
    source = "this library"

    def prepare(self, secret: Secret, task: Task) -> KeyedMark:
        """Draw the mark.

        Args:
            secret: The owner's secret.
            task: The task.
        """
        classes, access = task.num_classes, list(self.access)
        return KeyedMark(
            Watermark.draw(secret, task.data, m=self.m, access=access, classes=classes, recipe=self.recipe)
        )

    def suited(self, model: nn.Module, task: Task) -> Keyed:
        """Return the scheme that reads where this architecture can be read.

        Args:
            model: A model of this architecture.
            task: Its task.
        """
        return replace(self, access=tuple(accesses(model, task)))
