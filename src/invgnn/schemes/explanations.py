"""EXPL: signs of the features that explain a model's outputs (Downer, Wang and Wang 2025)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from invgnn.errors import SchemeError
from invgnn.graphs.disjoint_union import Ints
from invgnn.nn.forward import to_batch
from invgnn.nn.observation import Observation
from invgnn.readout.query import Suspect
from invgnn.schemes.explanation import mark_size, match_index, output_kernel, solver
from invgnn.schemes.features import task_features
from invgnn.schemes.questions import Heard, Questions, best_of
from invgnn.schemes.scheme import Found, Mark, Scheme
from invgnn.schemes.secret_sets import require_disjoint, shown_sets
from invgnn.schemes.settings import tuned
from invgnn.schemes.without_dropout import scores_without_dropout
from invgnn.secret import Secret, Stream
from invgnn.stats.evidence import empirical_p, evidence_of
from invgnn.training.fitting import FitOptions, History, Progress
from invgnn.training.tasks import Task

SETS = 4
"""Number T of secret sets."""
OTHERS = 28
"""Number of further disjoint sets, with which the secret ones are exchangeable for an innocent model."""
SIGNS = 20
"""Least number of marked features with a sign in every set: n give about n bits, and 1e-6 needs 20."""
TUPLES = 2000
"""Number of random T-tuples of sets in the empirical null of the match index."""


@dataclass(frozen=True, eq=False)
class ExplanationMark(Mark):
    """Secret sets of training inputs, marked features and their signs.

    Attributes:
        questions: The secret sets, the other sets, and ordinary inputs.
        rows: Feature rows of every set, the secret ones first.
        marked: Numbers of the marked features.
        bits: 1 where the coefficient should be positive.
        tuples: Random T-tuples of sets for the empirical null.
        weight: Weight of the loss (the authors' r).
        margin: How large signed coefficients should be (their epsilon).
        longer: How many times as many epochs it trains for.
        rate: Factor of the learning rate.
    """

    questions: Questions
    rows: list[Tensor]
    marked: Tensor
    bits: NDArray[np.int64]
    tuples: Ints
    weight: float
    margin: float
    longer: int = 1
    rate: float = 1.0
    projected = True

    def train(
        self, model: nn.Module, task: Task, options: FitOptions, progress: Progress | None = None
    ) -> History:
        """Train a model with the mark, in place, with epochs and learning rate of its own.

        Args:
            model: The model; left in evaluation mode.
            task: The task.
            options: Settings of the run.
            progress: Called after every epoch.
        """
        own = replace(options, epochs=self.longer * options.epochs, lr=self.rate * options.lr)
        return super().train(model, task, own, progress)

    @cached_property
    def _inputs(self) -> Any:
        """The secret sets as a PyG batch."""
        private = self.questions.private
        graphs = SETS if self.questions.by_node else sum(len(x) for x in self.rows[:SETS])
        return to_batch(private.take(np.arange(graphs)))

    @cached_property
    def _solvers(self) -> list[Tensor]:
        """For every set the map from its output kernel to the coefficients of all features."""
        return [solver(x.double()).float() for x in self.rows]

    @cached_property
    def _wanted(self) -> list[Tensor]:
        """For every secret set the map from its output kernel to the marked coefficients."""
        return [solver(x.double())[self.marked].float() for x in self.rows[:SETS]]

    def loss(self, model: nn.Module, task: Observation, extra: Observation | None) -> Tensor:
        """Return the mean hinge loss of the signed coefficients.

        The secret sets have a forward pass of their own, without dropout, as in the authors' code: noise in
        the outputs hides the signs.

        Args:
            model: The model.
            task: Outputs on the task batch.
            extra: Not used.
        """
        scores = scores_without_dropout(model, self._inputs)
        signs = torch.from_numpy(2 * self.bits - 1).to(scores)
        parts = scores.softmax(1).split([len(x) for x in self.rows[:SETS]])
        pairs = zip(self._wanted, parts, strict=True)
        found = [(self.margin - signs * (map_ @ output_kernel(p))).clamp(min=0).mean() for map_, p in pairs]
        return self.weight * torch.stack(found).mean()

    def read(self, suspect: Suspect) -> Found:
        """Explain a suspect's outputs on every set and compare signs.

        Args:
            suspect: A module, or a function from a PyG batch to scores.
        """
        return best_of(self.questions.ask(suspect), self._judge)

    def coefficients(self, logs: Tensor) -> NDArray[np.float64]:
        """Return the coefficients of all features in every set [sets, F].

        Args:
            logs: Log-probabilities of the members of all sets.
        """
        parts = logs.double().exp().split([len(x) for x in self.rows])
        pairs = zip(self._solvers, parts, strict=True)
        found = [map_.double() @ output_kernel(p) for map_, p in pairs]
        return np.asarray(torch.stack(found).numpy(), dtype=np.float64)

    def _judge(self, heard: Heard) -> Found:
        """Return the exact evidence of the secret signs, and the match index with its empirical null."""
        found = self.coefficients(heard.logs)
        own = found[:SETS][:, self.marked.numpy()]
        right = int((np.sign(own) == 2 * self.bits - 1).sum())
        exact = evidence_of(own.sum(0), self.bits, "combined", threshold=0.0)
        signs = np.sign(found).astype(np.int8)
        index = int(match_index(signs[:SETS]))
        p = empirical_p(index, match_index(signs[self.tuples]))
        more = {"match index": float(index), "p of the match index": p}
        null = "exact, balanced signs"
        return Found(right, own.size, float(exact.matches), exact.log_p, null, more)


@dataclass(frozen=True, repr=False)
class EXPL(Scheme):
    """Signs of the features that explain outputs on secret sets.

    Attributes:
        weight: Weight of the loss (the authors' r).
        margin: How large signed coefficients should be (their epsilon).
        share: Size of a set relative to the training inputs.
        least: Smallest size of a set.
        longer: How many times as many epochs it trains for.
        rate: Factor of the learning rate.
    """

    weight: float = 100.0
    margin: float = 0.01
    share: float = 0.005
    least: int = 48
    longer: int = 1
    rate: float = 1.0
    name = "EXPL"
    source = "Downer, Wang and Wang, Watermarking Graph Neural Networks via Explanations, 2025"

    def prepare(self, secret: Secret, task: Task) -> ExplanationMark:
        """Draw disjoint sets, take the features that are most often not 0, and draw balanced signs.

        Args:
            secret: The owner's secret.
            task: The task.

        Raises:
            SchemeError: If there are too few features or training inputs.
        """
        task_features(task)  # raises an error without features
        size = mark_size(task.num_features, SETS)
        if size is None:
            raise SchemeError(
                f"{task.num_features} features are too few: no match index would be high enough",
                "choose a task with more features; 34 or more can do",
            )
        sets = self.draw_sets(secret.derive("schemes/expl/sets"), task)
        return self.on_sets(secret, task, sets, size.marked + size.marked % 2)

    def suited(self, model: nn.Module, task: Task) -> EXPL:
        """Return the scheme with the settings that were tuned for a task.

        Args:
            model: A model of this architecture.
            task: Its task.
        """
        return tuned(self, EXPL(), task)

    def draw_sets(self, draws: Stream, task: Task) -> list[Ints]:
        """Draw the secret sets, and then as many of the other sets as there are inputs for.

        Args:
            draws: The stream.
            task: The task.

        Raises:
            SchemeError: If the training data have too few inputs for the null.
        """
        each = max(self.least, round(self.share * len(task.train)))
        count = min(SETS + OTHERS, len(task.train) // each)
        if count < 2 * SETS:
            raise SchemeError(
                f"{len(task.train)} training inputs make {count} sets of {each}; {2 * SETS} are needed",
                "use more training data, or smaller sets, EXPL(least=...)",
            )
        order = task.train.numpy()[draws.permutation(len(task.train))]
        return [np.sort(order[i * each : (i + 1) * each]) for i in range(count)]

    def on_sets(self, secret: Secret, task: Task, sets: Sequence[Ints], marked: int) -> ExplanationMark:
        """Return the mark on given sets, the secret ones first.

        Args:
            secret: The owner's secret.
            task: The task.
            sets: Numbers of training inputs.
            marked: Number of marked features.

        Raises:
            SchemeError: If the sets overlap, or too few features differ within them.
        """
        require_disjoint(sets)
        private, rows = shown_sets(task, sets)
        often = torch.stack([(x != 0).sum(0) for x in rows[:SETS]]).sum(0)
        chosen = often.sort(descending=True, stable=True).indices[:marked].sort().values
        differ = torch.stack([x[:, chosen].amax(0) > x[:, chosen].amin(0) for x in rows[:SETS]]).all(0)
        signed = int(differ.sum())
        if signed < min(SIGNS, marked):
            raise SchemeError(
                f"only {signed} of {marked} marked features differ within every set, which a sign needs",
                "choose a task whose features differ more, or larger sets, EXPL(least=...)",
            )
        bits = secret.derive("schemes/expl/bits", private.digest()).balanced(marked)
        questions = Questions.of(private, task, secret.derive("schemes/expl/ordinary"))
        tuples = _tuples(secret.derive("schemes/expl/tuples"), len(sets))
        return ExplanationMark(
            questions, rows, chosen, bits, tuples, self.weight, self.margin, self.longer, self.rate
        )


def _tuples(draws: Stream, count: int) -> Ints:
    """Return random T-tuples of sets, each other than the secret one."""
    found: list[NDArray[np.int64]] = []
    while len(found) < TUPLES:
        chosen = np.sort(draws.permutation(count)[:SETS])
        if chosen[-1] >= SETS:
            found.append(chosen)
    return np.stack(found)
