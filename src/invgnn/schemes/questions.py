"""Private questions of a scheme, and the replies of any suspect to them, with its columns aligned.

Labelled ordinary inputs are asked as well. They show which column of the replies belongs to which class, so
a copy that is served in another format is read like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from invgnn.graphs.disjoint_union import Graphs, Ints
from invgnn.readout.alignment import select
from invgnn.readout.query import Suspect, ask
from invgnn.readout.reading import Reading
from invgnn.schemes.scheme import Found
from invgnn.secret import Stream
from invgnn.stats.laws import log_p_times
from invgnn.training.tasks import Task
from invgnn.watermark.reference import Reference

ORDINARY = 64
"""Number of labelled ordinary inputs that are asked besides the private ones."""


@dataclass(frozen=True, eq=False)
class Heard:
    """The replies of a suspect to private questions, for one assignment of columns to classes.

    Attributes:
        logs: Log-probabilities of the task's classes, one row per private graph, or per private node of a
            node task. Refused rows have the mean of the answered rows.
        embeddings: The observed layer, one row per private graph; None if none was asked for.
    """

    logs: Tensor
    embeddings: Tensor | None


@dataclass(frozen=True, eq=False)
class Questions:
    """Private graphs, and labelled ordinary inputs of the task.

    Attributes:
        private: The private graphs.
        ordinary: Ordinary inputs: training graphs, or connected subgraphs of the one graph of a node task.
        labels: The class of every ordinary graph, or of its nodes in a node task; None if unknown.
        classes: Number of classes.
        by_node: Whether a suspect returns one row per node.
    """

    private: Graphs
    ordinary: Graphs
    labels: Ints | None
    classes: int
    by_node: bool

    @classmethod
    def of(
        cls, private: Graphs, task: Task, stream: Stream, reference: Reference | None = None
    ) -> Questions:
        """Return private questions with ordinary inputs of a task.

        Args:
            private: The private graphs.
            task: The task.
            stream: Chooses the ordinary inputs.
            reference: The population of ordinary inputs; by default that of the task.
        """
        reference = Reference.of(task.data, tensors=()) if reference is None else reference
        usual = np.sort(stream.permutation(len(reference.graphs))[:ORDINARY])
        labels = reference.labels_at(usual)
        by_node = task.level == "node"
        return cls(private, reference.graphs.take(usual), labels, task.num_classes, by_node)

    def ask(self, suspect: Suspect, reading: Reading | None = None) -> list[Heard]:
        """Ask a suspect, and return its replies for every plausible assignment of columns to classes.

        Args:
            suspect: A module, or a function from a PyG batch to scores.
            reading: Where to read besides the scores.

        Raises:
            SuspectError: If the suspect cannot be read there.
        """
        readings = [Reading("logits")] if reading is None else [reading]
        replies = ask(suspect, Graphs.concat([self.private, self.ordinary]), readings)
        if reading is not None and reading.access in replies.failures:
            raise replies.failures[reading.access]
        count = self.private.num_nodes if self.by_node else len(self.private)
        rest = len(replies.scores) - count
        unknown = np.full(count, -1, dtype=np.int64)
        fits = self.labels is not None and len(self.labels) == rest
        labels = np.concatenate([unknown, self.labels]) if fits and self.labels is not None else None
        replies = replies.labelled(labels, self.classes)
        inner = None if replies.embeddings is None else _filled(replies.embeddings)[: len(self.private)]
        return [
            Heard(_filled(select(replies.logs, columns))[:count], inner) for columns in replies.alignments
        ]


def _filled(rows: Tensor) -> Tensor:
    """Return rows in which refused ones are replaced by the mean of the others."""
    fine = torch.isfinite(rows).all(1)
    usual = rows[fine].mean(0) if bool(fine.any()) else rows.new_zeros(rows.shape[1])
    return torch.where(fine[:, None], rows, usual)


def best_of(heard: Sequence[Heard], judge: Callable[[Heard], Found]) -> Found:
    """Return the finding with the most evidence, corrected for the number of assignments that were tried.

    Guarantee: a p-value again, because the assignments do not depend on the key.

    Args:
        heard: Replies for every assignment of columns to classes.
        judge: Computes what one of them shows.
    """
    found = [judge(each) for each in heard]
    first = min(found, key=lambda one: (one.log_p if one.log_p is not None else 0.0, -one.score))
    return first if first.log_p is None else replace(first, log_p=log_p_times(first.log_p, len(found)))
