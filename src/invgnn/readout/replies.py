"""The replies of a suspect to all questions, and the columns from which they are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from invgnn.errors import SuspectError
from invgnn.graphs.attributed import Shown
from invgnn.graphs.disjoint_union import Ints
from invgnn.nn.forward import to_batch
from invgnn.nn.observation import Observation, log_scores, pool
from invgnn.readout.alignment import Columns, assign, in_order, select
from invgnn.readout.reading import Direction, Reading, answer, label_answer


@dataclass(frozen=True, eq=False)
class Replies:
    """The replies of a suspect to all questions, before any reading.

    Attributes:
        graphs: The questions, in the order in which they were asked.
        scores: Scores in double precision on the CPU, one row per graph or per node, NaN if refused.
        embeddings: The observed layer, one row per graph.
        perceived: Answers of the paper's head, one per graph.
        failures: Access levels that cannot be read, and why.
        labels: The class of every row of the scores, -1 if unknown; None without labels.
        classes: Number of classes of the task, if known.
        values: The same replies as real numbers, without any change, NaN if refused; None unless they are
            read at `values`.
    """

    graphs: Shown
    scores: Tensor
    embeddings: Tensor | None
    perceived: Tensor | None
    failures: dict[str, SuspectError] = field(default_factory=dict)
    labels: Ints | None = None
    classes: int | None = None
    values: Tensor | None = None

    def labelled(self, labels: Ints | None, classes: int | None) -> Replies:
        """Return the replies with the classes of the questions, if these fit the rows of the scores.

        Args:
            labels: The class of every graph or node, -1 if unknown; None without labels.
            classes: Number of classes of the task, if known.
        """
        if labels is None or classes is None:
            return replace(self, classes=classes)
        if (
            len(labels) == len(self.graphs) < len(self.scores)
        ):  # one class per graph, one row of scores per node
            labels = np.repeat(labels, self.graphs.sizes)
        return replace(self, labels=labels if len(labels) == len(self.scores) else None, classes=classes)

    @cached_property
    def logs(self) -> Tensor:
        """The scores as log-probabilities, whatever their original form."""
        return log_scores(self.scores).log_softmax(-1)

    @cached_property
    def alignments(self) -> tuple[Columns, ...]:
        """The ways to read the columns: in their given order and, if different, as labels assign them."""
        width = self.logs.shape[1]
        if self.classes is None:
            return (tuple(range(width)),)
        first = in_order(self.classes, width)
        if self.labels is None:
            return (first,)
        best = assign(self.logs, self.labels, self.classes)
        return (first,) if best == first else (first, best)

    def answers(
        self, reading: Reading, direction: Direction, columns: Sequence[int] | None = None
    ) -> NDArray[np.float64]:
        """Return one answer per question, NaN if the suspect refused it.

        Args:
            reading: Where to read.
            direction: The secret's vectors.
            columns: The column of every class; by default in their given order.

        Raises:
            SuspectError: If the suspect cannot be read there.
        """
        if reading.access in self.failures:
            raise self.failures[reading.access]
        if reading.access == "perception" and self.perceived is not None:
            return np.asarray(self.perceived.numpy(), dtype=np.float64)
        batch = to_batch(self.graphs)
        if reading.access == "values":
            return self._real_answers(reading, direction, batch)
        logs = select(self.logs, self.alignments[0] if columns is None else columns)
        seen = Observation(logs, self.embeddings, batch)
        found = (
            label_answer(seen, direction)
            if reading.access == "labels"
            else answer(seen, reading, direction)
        )
        if not reading.hidden:
            void = ~torch.isfinite(self.scores).all(1)
            found = found.masked_fill(pool(void.to(found), batch).view(-1) > 0, torch.nan)
        return np.asarray(found.double().numpy(), dtype=np.float64)

    def _real_answers(self, reading: Reading, direction: Direction, batch: Any) -> NDArray[np.float64]:
        """Return one answer per question from real-valued outputs."""
        if self.values is None:
            raise SuspectError(
                "the suspect was not asked for real-valued outputs", "ask it for all declared readings"
            )
        found = answer(Observation(self.values, None, batch), reading, direction)
        return np.asarray(found.double().numpy(), dtype=np.float64)
