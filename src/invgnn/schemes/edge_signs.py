"""WGLE: signs of prediction distance minus feature distance on secret edges (Li et al. 2025)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity

from invgnn.errors import SchemeError
from invgnn.graphs.disjoint_union import Graphs
from invgnn.nn.observation import Observation
from invgnn.readout.query import Suspect
from invgnn.schemes.embedding import noiseless
from invgnn.schemes.features import task_features
from invgnn.schemes.questions import Heard, Questions, best_of
from invgnn.schemes.scheme import ANSWERS, Found, Mark, Scheme
from invgnn.secret import Secret
from invgnn.stats.evidence import evidence_of
from invgnn.training.tasks import Task


def edge_distances(rows: Tensor, edges: Tensor) -> Tensor:
    """Return 1 - cosine similarity of the ends of every edge, relative to the mean over all edges.

    Args:
        rows: One row per node.
        edges: The edges [2, E].
    """
    found = 1 - cosine_similarity(rows[edges[0]], rows[edges[1]], dim=1)
    return found / found.mean().clamp(min=1e-9)


def spread(scores: Tensor) -> Tensor:
    """Return log-probabilities, standardised by their mean and deviation over all nodes and classes.

    Args:
        scores: Class scores or log-probabilities, one row per node.
    """
    logs = scores.log_softmax(1)
    deviation, mean = torch.std_mean(logs, correction=0)
    return (logs - mean) / deviation.clamp(min=1e-9)


@dataclass(frozen=True, eq=False)
class EdgeMark(Mark):
    """Secret edges of the training graph, and a sign for each of them.

    Attributes:
        questions: The training graph and ordinary inputs.
        edges: All edges of the training graph [2, E].
        features: Distance of the features at every edge.
        chosen: Numbers of the secret edges.
        bits: 1 where predictions should be further apart than features.
        weight: Weight of the loss.
        margin: How large the signed difference should be.
    """

    questions: Questions
    edges: Tensor
    features: Tensor
    chosen: Tensor
    bits: NDArray[np.int64]
    weight: float
    margin: float

    def differences(self, scores: Tensor) -> Tensor:
        """Return prediction distance minus feature distance on the secret edges.

        Args:
            scores: Scores of all nodes of the training graph.
        """
        edges = self.edges.to(scores.device)
        return (edge_distances(spread(scores), edges) - self.features.to(scores))[self.chosen]

    def loss(self, model: nn.Module, task: Observation, extra: Observation | None) -> Tensor:
        """Return the mean hinge loss of the signed differences.

        The training graph has a second forward pass, without dropout, because noise hides the signs.

        Args:
            model: The model.
            task: The training graph, which holds the secret edges.
            extra: Not used.
        """
        scores = noiseless(model, task.batch)
        signs = torch.from_numpy(2 * self.bits - 1).to(scores)
        return self.weight * (self.margin - signs * self.differences(scores)).clamp(min=0).mean()

    def read(self, suspect: Suspect) -> Found:
        """Compare the signs on the secret edges with the bits, which are balanced and random.

        Args:
            suspect: A module, or a function from a PyG batch to scores.
        """
        return best_of(self.questions.ask(suspect), self._judge)

    def _judge(self, heard: Heard) -> Found:
        """Return the evidence in the differences."""
        said = self.differences(heard.logs).double().numpy()
        found = evidence_of(said, self.bits, "combined", threshold=0.0)
        return Found(found.matches, found.m, float(found.matches), found.log_p, "exact, balanced key")


@dataclass(frozen=True, repr=False)
class WGLE(Scheme):
    """Signs on secret edges of the training graph.

    Attributes:
        weight: Weight of the loss.
        margin: How large the signed difference should be.
        m: Number of secret edges.
    """

    weight: float = 3.0
    margin: float = 0.2
    m: int = ANSWERS
    name = "WGLE"
    source = "Li, Liu, Lei and Zhang, WGLE: Backdoor-free and Multi-bit Black-box Watermarking, 2025"

    def prepare(self, secret: Secret, task: Task) -> EdgeMark:
        """Choose edges without common ends, and balanced signs that are bound to them.

        Args:
            secret: The owner's secret.
            task: The task.

        Raises:
            SchemeError: If this is a graph task, or the graph has too few edges without common ends.
        """
        if task.level != "node":
            raise SchemeError(
                "its authors define WGLE for node tasks only", "choose a node task, such as Cora"
            )
        graph = Graphs.from_data([task.graphs[0]], keep_directions=True)
        edges = torch.from_numpy(np.ascontiguousarray(graph.edges.T))
        chosen = self._matching(secret, graph)
        x = torch.from_numpy(task_features(task))
        bits = secret.derive("schemes/wgle/bits", graph.digest(), chosen.tobytes()).balanced(self.m)
        questions = Questions.of(graph, task, secret.derive("schemes/wgle/ordinary"))
        features, places = edge_distances(x, edges), torch.from_numpy(chosen)
        return EdgeMark(questions, edges, features, places, bits, self.weight, self.margin)

    def _matching(self, secret: Secret, graph: Graphs) -> NDArray[np.int64]:
        """Return the first edges, in a secret order, that have no end in common."""
        used: set[int] = set()
        found: list[int] = []
        for number in secret.derive("schemes/wgle/edges").permutation(len(graph.edges)).tolist():
            ends = set(graph.edges[number].tolist())
            if not used & ends:
                used |= ends
                found.append(number)
            if len(found) == self.m:
                return np.array(found, dtype=np.int64)
        raise SchemeError(
            f"the graph has {len(found)} edges without common ends, and {self.m} are needed",
            "use a larger graph, or WGLE(m=...)",
        )
