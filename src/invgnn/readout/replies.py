"""What a suspect returned on every question, and how its columns are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from invgnn.errors import SuspectError
from invgnn.graphs.disjoint_union import Graphs, Ints
from invgnn.nn.forward import to_batch
from invgnn.nn.observation import Observation, log_scores, pool
from invgnn.readout.alignment import Columns, assign, in_order, select
from invgnn.readout.reading import Direction, Reading, answer, label_answer


@dataclass(frozen=True, eq=False)
class Replies:
    """What a suspect returned on every question, before any reading.

    Attributes:
        graphs: The questions, in the order in which they were asked.
        scores: Scores in double precision on the CPU, a row per graph or per node, NaN where refused.
        embeddings: The watched layer, a row per graph.
        perceived: Answers of the paper's head, one per graph.
        failures: Access levels that cannot be read, and why.
        labels: The class of every row of the scores, -1 where it is unknown; None without labels.
        classes: How many classes the task has, if known.
    """

    graphs: Graphs
    scores: Tensor
    embeddings: Tensor | None
    perceived: Tensor | None
    failures: dict[str, SuspectError] = field(default_factory=dict)
    labels: Ints | None = None
    classes: int | None = None

    def labelled(self, labels: Ints | None, classes: int | None) -> Replies:
        """Return the replies with the classes of the questions, where these fit the rows of the scores."""
        if labels is None or classes is None:
            return replace(self, classes=classes)
        if len(labels) == len(self.graphs) < len(self.scores):  # a class per graph, scores per node
            labels = np.repeat(labels, self.graphs.sizes)
        return replace(self, labels=labels if len(labels) == len(self.scores) else None, classes=classes)

    @cached_property
    def logs(self) -> Tensor:
        """The scores as log-probabilities, whatever they came as."""
        return log_scores(self.scores).log_softmax(-1)

    @cached_property
    def alignments(self) -> tuple[Columns, ...]:
        """The ways to read the columns: as they come and, where that differs, as the labels assign them."""
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
        """Return one answer per question, NaN where the suspect refused it.

        Args:
            reading: Where to read.
            direction: The secret's vectors.
            columns: Which column is which class; by default as they come.

        Raises:
            SuspectError: If the suspect cannot be read there.
        """
        if reading.access in self.failures:
            raise self.failures[reading.access]
        if reading.access == "perception" and self.perceived is not None:
            return np.asarray(self.perceived.numpy(), dtype=np.float64)
        batch = to_batch(self.graphs)
        logs = select(self.logs, self.alignments[0] if columns is None else columns)
        seen = Observation(logs, self.embeddings, batch)
        said = (
            label_answer(seen, direction)
            if reading.access == "labels"
            else answer(seen, reading, direction)
        )
        if not reading.hidden:
            void = ~torch.isfinite(self.scores).all(-1)
            said = said.masked_fill(pool(void.to(said), batch).view(-1) > 0, torch.nan)
        return np.asarray(said.double().numpy(), dtype=np.float64)
