"""What every watermarking scheme has: a mark from secret and data, a way to embed it, and a reading."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor, nn

from invgnn.nn.observation import Observation
from invgnn.readout.query import Suspect
from invgnn.schemes.embedding import fit_marked
from invgnn.secret import Secret
from invgnn.stats.evidence import empirical_p
from invgnn.stats.laws import evidence_bits
from invgnn.stats.rank_sum import ROUNDING, up
from invgnn.training.fitting import FitOptions, History, Progress
from invgnn.training.tasks import Task

ANSWERS = 128
"""Number of answers that every scheme may ask for: the same budget for all."""
BY_MODELS = "empirical over unmarked models"
"""The null of a statistic whose law is not known: it needs the scores of unmarked models."""


@dataclass(frozen=True)
class Found:
    """What a mark finds in a suspect.

    Guarantee: if `log_p` is not None, Pr[p <= u] <= u for every suspect that is independent of the secret.
    After `against`, the same holds if the suspect is exchangeable with the unmarked models.

    Attributes:
        matches: Number of answers that are as the owner wants them.
        asked: Number of answers.
        score: The statistic; larger values look more like the owner's model.
        log_p: Natural logarithm of the p-value; None if it needs unmarked models (see `against`).
        null: The null distribution, in words.
        more: Further figures by name.
    """

    matches: int
    asked: int
    score: float
    log_p: float | None
    null: str
    more: Mapping[str, float] = field(default_factory=dict)

    @property
    def accuracy(self) -> float:
        """The share of right answers (WM-ACC)."""
        return self.matches / self.asked

    @property
    def bits(self) -> float:
        """Evidence in bits; 0 as long as the null is missing."""
        return 0.0 if self.log_p is None else evidence_bits(self.log_p)

    def against(self, scores: Sequence[float]) -> Found:
        """Return the finding with the p-value that scores of unmarked models give, if it has none.

        Args:
            scores: What the same mark found in independently trained unmarked models.
        """
        if self.log_p is not None or not scores:
            return self
        log_p = math.log(empirical_p(self.score, scores))
        return replace(self, log_p=up(log_p, -ROUNDING * log_p), null=f"{self.null} (n = {len(scores)})")

    def shows(self, alpha: float) -> bool:
        """Return whether the p-value is at most alpha.

        Args:
            alpha: Significance level.
        """
        return self.log_p is not None and self.log_p <= math.log(alpha)


class Mark(ABC):
    """The mark of one owner: what `Scheme.prepare` derives from a secret and a task.

    A mark is embedded by changed data (`changed`), by a loss (`private_inputs` and `loss`), or by a
    training loop of its own (`train`). Implement one of them, and `read`.

    Attributes:
        projected: Whether the part of the mark's gradient that conflicts with the task's is projected out.
    """

    projected: bool = False

    def changed(self, task: Task) -> Task:
        """Return the task to train on; by default the task itself.

        Args:
            task: The task. Its validation and test part must stay as they are.
        """
        return task

    def private_inputs(self, step: int) -> Any:
        """Return private inputs to append to the batch of a step, as a PyG batch; None for none.

        Args:
            step: Number of the optimiser step.
        """
        return None

    def loss(self, model: nn.Module, task: Observation, extra: Observation | None) -> Tensor | None:
        """Return the weighted loss of the mark in one step; None for a step without one.

        Args:
            model: The model.
            task: Outputs on the task batch.
            extra: Outputs on the private inputs, if there are any.
        """
        return None

    @property
    def layer(self) -> str | None:
        """The hidden layer that the loss needs, as in `invgnn.nn.forward.observe`; None for none."""
        return None

    def train(
        self, model: nn.Module, task: Task, options: FitOptions, progress: Progress | None = None
    ) -> History:
        """Train a model on a task with this mark, in place.

        Args:
            model: The model; left in evaluation mode.
            task: The task.
            options: Settings of the run, the same for every scheme.
            progress: Called after every epoch.
        """
        return fit_marked(self, model, task, options, progress)

    @abstractmethod
    def read(self, suspect: Suspect) -> Found:
        """Ask a suspect and return what the mark finds.

        Args:
            suspect: A module, or a function from a PyG batch to scores. Modules are left as they were.

        Raises:
            SuspectError: If the suspect does not give what this scheme reads.
        """


class Scheme(ABC):
    """A watermarking scheme.

    Attributes:
        name: Short name, used on the command line and in tables.
        source: Where the scheme was published.
    """

    name: str
    source: str

    @abstractmethod
    def prepare(self, secret: Secret, task: Task) -> Mark:
        """Derive the mark of an owner. The same secret and task give the same mark.

        Args:
            secret: The owner's secret. It is the only source of randomness.
            task: The task.

        Raises:
            SchemeError: If the scheme cannot serve this task.
        """

    def suited(self, model: nn.Module, task: Task) -> Scheme:
        """Return the scheme with settings that fit an architecture; by default the scheme itself.

        Args:
            model: A model of this architecture.
            task: Its task.
        """
        return self

    def __repr__(self) -> str:
        """Return the name in tables and test ids."""
        return self.name
