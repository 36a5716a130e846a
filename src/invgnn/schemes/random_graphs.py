"""TRIG: random graphs with random labels (Zhao, Wu and Zhang 2021)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from invgnn.graphs.disjoint_union import Graphs, Ints
from invgnn.nn.observation import Observation
from invgnn.readout.query import Suspect
from invgnn.schemes.chance import log_p_labels
from invgnn.schemes.features import dense_features, task_features
from invgnn.schemes.portions import Portions
from invgnn.schemes.questions import Heard, Questions, best_of
from invgnn.schemes.scheme import ANSWERS, Found, Mark, Scheme
from invgnn.secret import Secret, Stream
from invgnn.training.tasks import Task


@dataclass(frozen=True, eq=False)
class TriggerMark(Mark):
    """Trigger graphs and the labels they should get: one per node of a node task, else one per graph.

    Attributes:
        questions: The trigger graphs and ordinary inputs.
        labels: The labels.
        portions: The trigger graphs of every step.
        weight: Weight of the loss on trigger graphs.
    """

    questions: Questions
    labels: NDArray[np.int64]
    portions: Portions
    weight: float

    def private_inputs(self, step: int) -> Any:
        """Return the trigger graphs of a step.

        Args:
            step: Number of the optimiser step.
        """
        return self.portions.batch(step)

    def loss(self, model: nn.Module, task: Observation, extra: Observation | None) -> Tensor | None:
        """Return the cross-entropy of the trigger labels.

        Args:
            model: The model.
            task: Outputs on the task batch.
            extra: Outputs on the trigger graphs.
        """
        if extra is None:
            return None
        wanted = self.portions.wanted(extra.batch).to(extra.scores.device).view(-1)
        return self.weight * cross_entropy(extra.scores, wanted)

    def read(self, suspect: Suspect) -> Found:
        """Count the trigger labels that a suspect returns.

        Args:
            suspect: A module, or a function from a PyG batch to scores.
        """
        return best_of(self.questions.ask(suspect), self._judge)

    def _judge(self, heard: Heard) -> Found:
        """Return the number of right labels and its exact tail."""
        right = int((heard.logs.argmax(1).numpy() == self.labels).sum())
        classes = self.questions.classes
        log_p = log_p_labels(right, len(self.labels), classes)
        null = f"exact, labels uniform over {classes} classes"
        return Found(right, len(self.labels), float(right), log_p, null)


@dataclass(frozen=True, repr=False)
class TRIG(Scheme):
    """Random graphs with random labels.

    Attributes:
        weight: Weight of the trigger loss (the authors' alpha).
        edges: Probability of an edge; node tasks only. Trigger graphs of a graph task have the mean degree
            of its graphs.
        ones: Share of the features of a trigger node that are set; node tasks only.
        per_step: Trigger graphs in one optimiser step; graph tasks only.
        m: Number of trigger nodes, or of trigger graphs of a graph task.
    """

    weight: float = 1.0
    edges: float = 0.02
    ones: float = 0.1
    per_step: int = 32
    m: int = ANSWERS
    name = "TRIG"
    source = "Zhao, Wu and Zhang, Watermarking Graph Neural Networks by Random Graphs, 2021"

    def prepare(self, secret: Secret, task: Task) -> TriggerMark:
        """Draw the trigger and its labels; the labels are bound to the trigger.

        Args:
            secret: The owner's secret.
            task: The task.
        """
        draws = secret.derive("schemes/trig/graphs")
        trigger = self._graph(draws, task) if task.level == "node" else self._graphs(draws, task)
        classes = np.full(self.m, task.num_classes, dtype=np.int64)
        labels = secret.derive("schemes/trig/labels", trigger.digest()).below(classes)
        questions = Questions.of(trigger, task, secret.derive("schemes/trig/ordinary"))
        shaped = torch.from_numpy(labels).view(len(trigger), -1)
        return TriggerMark(questions, labels, Portions(trigger, shaped, self.per_step), self.weight)

    def _graph(self, draws: Stream, task: Task) -> Graphs:
        """Return one graph with as many nodes as there are answers."""
        x = dense_features(draws, self.m, self.ones, task_features(task))
        return Graphs(np.array([0, self.m]), random_edges(draws, self.m, self.edges), x)

    def _graphs(self, draws: Stream, task: Task) -> Graphs:
        """Return graphs with sizes, mean degree and feature rows of the training graphs."""
        rows = task_features(task)
        known = np.array([int(graph.num_nodes) for graph in task.data], dtype=np.int64)
        degree = sum(int(graph.num_edges) for graph in task.data) / len(rows)
        sizes = known[draws.below(np.full(self.m, len(known)))]
        ptr = np.concatenate([[0], sizes.cumsum()])
        share = [min(1.0, degree / max(1, int(n) - 1)) for n in sizes]
        drawn = zip(sizes.tolist(), share, ptr, strict=False)
        edges = [random_edges(draws, n, p) + at for n, p, at in drawn]
        chosen = draws.below(np.full(int(ptr[-1]), len(rows)))
        return Graphs(ptr, np.concatenate(edges), rows[chosen])


def random_edges(draws: Stream, nodes: int, probability: float) -> Ints:
    """Return the edges (u < v, sorted) of an Erdős-Rényi graph.

    Args:
        draws: The stream.
        nodes: Number of nodes.
        probability: Probability of an edge.
    """
    pairs = np.stack(np.triu_indices(nodes, 1), axis=1).astype(np.int64)
    scale = 2**32
    drawn = draws.below(np.full(len(pairs), scale, dtype=np.int64))
    return pairs[drawn < round(probability * scale)]
