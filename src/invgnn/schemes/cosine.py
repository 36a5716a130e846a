"""COS: the cosine between graph embeddings and a secret vector (the paper's own baseline)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity

from invgnn.nn.observation import Observation
from invgnn.readout.query import Suspect
from invgnn.readout.reading import Reading
from invgnn.schemes.portions import Portions
from invgnn.schemes.questions import Heard, Questions, best_of
from invgnn.schemes.scheme import ANSWERS, Found, Mark, Scheme
from invgnn.schemes.settings import tuned
from invgnn.secret import Secret
from invgnn.stats.evidence import evidence_of
from invgnn.training.tasks import Task
from invgnn.watermark.carriers import Carriers
from invgnn.watermark.reference import Reference
from invgnn.watermark.sampler import Sampler


@dataclass(frozen=True, eq=False)
class CosineMark(Mark):
    """Carriers, a bit for each of them, and the secret vector.

    Attributes:
        secret: The owner's secret, from which a vector of any width is derived.
        questions: The carriers and ordinary inputs.
        bits: One bit per carrier.
        portions: The carriers of every step.
        weight: Weight of the loss.
    """

    secret: Secret
    questions: Questions
    bits: NDArray[np.int64]
    portions: Portions
    weight: float

    @property
    def layer(self) -> str:
        """The input of the last layer with weights."""
        return "auto"

    def vector(self, width: int) -> Tensor:
        """Return the secret unit vector.

        Args:
            width: Width of the embedding.
        """
        signs = self.secret.derive("schemes/cos/vector", width).signs(width)
        return torch.from_numpy(signs).float() / math.sqrt(width)

    def similarity(self, embeddings: Tensor) -> Tensor:
        """Return the cosine of every embedding with the secret vector.

        Args:
            embeddings: One row per graph.
        """
        vector = self.vector(embeddings.shape[1]).to(embeddings)
        return cosine_similarity(embeddings, vector[None], dim=1)

    def private_inputs(self, step: int) -> Any:
        """Return the carriers of a step.

        Args:
            step: Number of the optimiser step.
        """
        return self.portions.batch(step)

    def loss(self, model: nn.Module, task: Observation, extra: Observation | None) -> Tensor | None:
        """Return the mean squared error of (1 + cosine) / 2 to the bits.

        Args:
            model: The model.
            task: Outputs on the task batch.
            extra: Outputs on the carriers.
        """
        if extra is None:
            return None
        said = (1 + self.similarity(extra.embeddings)) / 2
        return self.weight * (said - self.portions.wanted(extra.batch).to(said)).square().mean()

    def read(self, suspect: Suspect) -> Found:
        """Decode (1 + cosine) / 2 at one half; the bits are balanced, random and bound to the carriers.

        Args:
            suspect: A module; a function shows no embedding.
        """
        return best_of(self.questions.ask(suspect, Reading("embedding"))[:1], self._judge)

    def _judge(self, heard: Heard) -> Found:
        """Return the evidence in the embeddings."""
        rows = torch.zeros(len(self.bits), 1) if heard.embeddings is None else heard.embeddings
        said = self.similarity(rows).double().numpy()
        found = evidence_of(said, self.bits, "combined", threshold=0.0)
        return Found(found.matches, found.m, float(found.matches), found.log_p, "exact, balanced key")


@dataclass(frozen=True, repr=False)
class COS(Scheme):
    """A cosine head whose vector is secret.

    Attributes:
        weight: Weight of the loss.
        per_step: Carriers in one optimiser step.
        m: Number of carriers.
    """

    weight: float = 1.0
    per_step: int = 128
    m: int = ANSWERS
    name = "COS"
    source = "Li and Shen (baseline of the paper, without public code)"

    def prepare(self, secret: Secret, task: Task) -> CosineMark:
        """Draw carriers as for our own marks, and bits that are bound to them.

        Args:
            secret: The owner's secret.
            task: The task.
        """
        reference = Reference.of(task.data, tensors=())
        drawn = Carriers.draw(reference, self.m, secret.derive("schemes/cos/carriers"), Sampler()).graphs
        questions = Questions.of(drawn, task, secret.derive("schemes/cos/ordinary"), reference)
        bits = secret.derive("schemes/cos/bits", drawn.digest()).balanced(self.m)
        portions = Portions(drawn, torch.from_numpy(bits).float(), self.per_step)
        return CosineMark(secret, questions, bits, portions, self.weight)

    def suited(self, model: nn.Module, task: Task) -> COS:
        """Return the scheme with the settings that were tuned for a task.

        Args:
            model: A model of this architecture.
            task: Its task.
        """
        return tuned(self, COS(), task)
