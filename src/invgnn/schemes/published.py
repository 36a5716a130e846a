"""InvGNN-WM as published: plain bits of an invariant, perceived by a head inside the model."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

import numpy as np
from torch import nn

from invgnn.errors import SchemeError, SuspectError
from invgnn.nn.perception import PerceptionHead, attach_head
from invgnn.nn.rng import seeded
from invgnn.readout.query import Suspect
from invgnn.readout.reading import Reading
from invgnn.schemes.keyed import train_with
from invgnn.schemes.scheme import ANSWERS, BY_MODELS, Found, Mark, Scheme
from invgnn.schemes.settings import tuned
from invgnn.secret import Secret
from invgnn.stats.evidence import decode, matches
from invgnn.training.fitting import FitOptions, History, Progress
from invgnn.training.tasks import Task
from invgnn.watermark.mark import Watermark
from invgnn.watermark.recipe import Recipe
from invgnn.watermark.sampler import Sampler

LITERAL_BETA = 1e-4
"""The weight of the mark's loss in the paper."""


@dataclass(frozen=True)
class Perceived(Mark):
    """A plain mark that a head inside the model perceives.

    Attributes:
        mark: The mark.
        nu: Operator norm of the head; None for no normalisation.
        non_negative: Whether the head's weights are kept at or above zero.
    """

    mark: Watermark
    nu: float | None = 1.0
    non_negative: bool = False

    def train(
        self, model: nn.Module, task: Task, options: FitOptions, progress: Progress | None = None
    ) -> History:
        """Attach the head and train a model with the mark, in place.

        Args:
            model: The model; left in evaluation mode.
            task: The task.
            options: Settings of the run.
            progress: Called after every epoch.
        """
        self.attach(model, options.seed)
        return train_with(self.mark, model, task, options, progress)

    def attach(self, model: nn.Module, seed: int) -> None:
        """Attach a new head to a model that has none.

        Args:
            model: The model.
            seed: Seed of the head's weights.

        Raises:
            SchemeError: If the model has no hidden layer.
        """
        if isinstance(getattr(model, "perception", None), PerceptionHead):
            return
        with seeded(seed):
            attach_head(model, self._width(model), nu=self.nu, non_negative=self.non_negative)

    def _width(self, model: nn.Module) -> int:
        """Return the width of a model's embedding."""
        embedding = self.mark.ask(model, [Reading("embedding")]).embeddings
        if embedding is None:
            raise SchemeError(
                "the model has a single layer with weights, and the head perceives a hidden one",
                "choose a backbone with a hidden layer",
            )
        return int(embedding.shape[1])

    def read(self, suspect: Suspect) -> Found:
        """Decode what the head perceives at one half.

        An unmarked model has no head. It gets a new one, so that unmarked models can be compared with.

        Args:
            suspect: A module with a head, or a backbone without one.

        Raises:
            SuspectError: If the suspect is a function, which shows no head.
        """
        if not isinstance(suspect, nn.Module):
            raise SuspectError("a function gives scores only, and no head", "pass the model itself")
        if not hasattr(suspect, "perception"):
            suspect = copy.deepcopy(suspect)
            self.attach(suspect, seed=0)
        said = self.mark.read(suspect, "perception").carriers
        right = matches(decode(said, 0.5), self.mark.bits)
        shift = float(np.mean(said[self.mark.bits == 1]) - np.mean(said[self.mark.bits == 0]))
        return Found(right, self.mark.m, float(right), None, BY_MODELS, {"shift of the answers": shift})


@dataclass(frozen=True, repr=False)
class Published(Scheme):
    """The paper's scheme.

    Attributes:
        name: Name of the row.
        beta: Weight of the mark's loss.
        nu: Operator norm of the head; None for no normalisation.
        non_negative: Whether the head's weights are kept at or above zero.
        gap: Distance of the carriers' normalised invariants from one half.
        recipe: Further settings of the embedding.
        m: Number of carriers.
    """

    name: str = "InvGNN-WM"
    beta: float = 1.0
    nu: float | None = None
    non_negative: bool = False
    gap: float = 0.25
    recipe: Recipe = field(default_factory=Recipe)
    m: int = ANSWERS
    source = "Li and Shen, Robust GNN Watermarking via Implicit Perception of Topological Invariants"

    def prepare(self, secret: Secret, task: Task) -> Perceived:
        """Draw carriers until the plain key is balanced.

        Args:
            secret: The owner's secret.
            task: The task.
        """
        record = self.recipe.record() | {"beta": self.beta}
        mark = Watermark.draw(
            secret,
            task.data,
            m=self.m,
            access="perception",
            classes=task.num_classes,
            key="plain",
            gap=self.gap,
            sampler=Sampler(donors=None),
            recipe=Recipe(**record),
        )
        return Perceived(mark, self.nu, self.non_negative)

    def suited(self, model: nn.Module, task: Task) -> Published:
        """Return the scheme with the settings that were tuned for a task.

        Args:
            model: A model of this architecture.
            task: Its task.
        """
        return tuned(self, Published(self.name), task)


def literal() -> Published:
    """Return the scheme with the paper's weight, a spectrally normalised head and joint training."""
    recipe = Recipe(gradient_projection=False, warmup_steps=0, after_task=0, weight_scale=None)
    return Published("InvGNN-WM (beta 1e-4)", LITERAL_BETA, 1.0, gap=0.0, recipe=recipe)
