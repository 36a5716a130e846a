"""NAT: a backdoor as a mark (Xu, Koffas, Ersoy and Picek 2023)."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from invgnn.errors import SchemeError
from invgnn.graphs.disjoint_union import Graphs, Ints
from invgnn.readout.query import Suspect
from invgnn.schemes.features import task_features
from invgnn.schemes.questions import Heard, Questions, best_of
from invgnn.schemes.random_graphs import random_edges
from invgnn.schemes.scheme import ANSWERS, BY_MODELS, Found, Mark, Scheme
from invgnn.secret import Secret, Stream
from invgnn.training.tasks import Task


@dataclass(frozen=True, eq=False)
class BackdoorMark(Mark):
    """A task with triggered training inputs, and triggered inputs that were held out.

    Attributes:
        poisoned: The task to train on.
        questions: Held-out inputs of other classes with the trigger, and ordinary inputs.
        rows: Which rows of the replies belong to triggered inputs.
        target: The class that they should get.
    """

    poisoned: Task
    questions: Questions
    rows: Tensor
    target: int

    def changed(self, task: Task) -> Task:
        """Return the task with triggered training inputs.

        Args:
            task: The task.
        """
        return self.poisoned

    def read(self, suspect: Suspect) -> Found:
        """Count the held-out triggered inputs that get the target class.

        Args:
            suspect: A module, or a function from a PyG batch to scores.
        """
        return best_of(self.questions.ask(suspect), self._judge)

    def _judge(self, heard: Heard) -> Found:
        """Return the number of target classes. Its law for an innocent model is not known."""
        right = int((heard.logs[self.rows].argmax(1) == self.target).sum())
        return Found(right, len(self.rows), float(right), None, BY_MODELS)


@dataclass(frozen=True, repr=False)
class NAT(Scheme):
    """A backdoor: inputs with a trigger get the target class.

    Attributes:
        nodes: Size of the trigger graph relative to the mean training graph; at least 3 nodes.
        edges: Probability of an edge in the trigger graph.
        graphs_share: Share of the training graphs of other classes that get the trigger.
        features: Number of features that a trigger sets; node tasks.
        nodes_share: Share of the training nodes that get the trigger.
        m: Largest number of held-out inputs.
    """

    nodes: float = 0.2
    edges: float = 0.8
    graphs_share: float = 0.1
    features: int = 300
    nodes_share: float = 0.05
    m: int = ANSWERS
    name = "NAT"
    source = (
        "Xu, Koffas, Ersoy and Picek, Watermarking Graph Neural Networks based on Backdoor Attacks, 2023"
    )

    def prepare(self, secret: Secret, task: Task) -> BackdoorMark:
        """Draw the trigger and the target class, and put the trigger into inputs.

        Args:
            secret: The owner's secret.
            task: The task.

        Raises:
            SchemeError: If no graph is larger than the trigger, or there are too few features.
        """
        target = int(secret.derive("schemes/nat/target").below(np.array([task.num_classes]))[0])
        draws = secret.derive("schemes/nat/trigger")
        make = self._on_nodes if task.level == "node" else self._on_graphs
        poisoned, private, rows = make(draws, task, target)
        questions = Questions.of(private, task, secret.derive("schemes/nat/ordinary"))
        return BackdoorMark(poisoned, questions, rows, target)

    def _on_graphs(self, draws: Stream, task: Task, target: int) -> tuple[Task, Graphs, Tensor]:
        """Return the task with triggered graphs, and held-out ones with the trigger."""
        mean = float(np.mean([int(graph.num_nodes) for graph in task.data]))
        trigger = Subgraph.draw(draws, max(3, int(self.nodes * mean)), self.edges)
        fits = [
            int(g.num_nodes) > trigger.nodes and int(g.y) != target for g in task.graphs
        ]  # eligible to get the trigger
        held_out = torch.cat([task.test, task.val]).tolist()
        learnt, asked = ([i for i in part if fits[i]] for part in (task.train.tolist(), held_out))
        if not learnt or not asked:
            raise SchemeError(
                f"no graph of another class has more than {trigger.nodes} nodes, the size of the trigger",
                "use a smaller trigger, NAT(nodes=...), or larger graphs",
            )
        share = max(1, round(self.graphs_share * len(learnt)))
        graphs = list(task.graphs)
        for place in draws.permutation(len(learnt))[:share].tolist():
            graphs[learnt[place]] = trigger.put(graphs[learnt[place]], draws, target)
        some = [asked[i] for i in draws.permutation(len(asked))[: self.m].tolist()]
        private = Graphs.from_data([trigger.put(task.graphs[i], draws, target) for i in some])
        return replace(task, graphs=graphs), private, torch.arange(len(some))

    def _on_nodes(self, draws: Stream, task: Task, target: int) -> tuple[Task, Graphs, Tensor]:
        """Return the task with triggered nodes, and the graph with held-out nodes triggered."""
        known, width = task_features(task), task.num_features
        if width < self.features:
            raise SchemeError(
                f"the nodes have {width} features, and the trigger sets {self.features}",
                "use a smaller trigger, NAT(features=...)",
            )
        which = torch.from_numpy(draws.permutation(width)[: self.features])
        value = torch.from_numpy(known.max(0))[which]
        graph = task.graphs[0]
        share = max(1, round(self.nodes_share * len(task.train)))
        learnt = task.train[torch.from_numpy(draws.permutation(len(task.train))[:share])]
        held_out = torch.cat([task.test, task.val])
        others = held_out[graph.y[held_out] != target]
        asked = others[torch.from_numpy(draws.permutation(len(others))[: self.m])]
        poisoned = _with_features(graph, learnt, which, value)
        poisoned.y = graph.y.index_fill(0, learnt, target)
        private = _with_features(graph, asked, which, value)
        return replace(task, graphs=[poisoned]), Graphs.from_data([private], keep_directions=True), asked


def _with_features(graph: Data, rows: Tensor, which: Tensor, value: Tensor) -> Data:
    """Return a copy of a graph in which some nodes have the trigger."""
    twin = copy.copy(graph)
    twin.x = graph.x.clone()
    twin.x[rows[:, None], which[None]] = value.to(graph.x)
    return twin


@dataclass(frozen=True, eq=False)
class Subgraph:
    """The trigger of graph tasks: a fixed small graph.

    Attributes:
        nodes: Number of nodes.
        edges: The edges, each once.
    """

    nodes: int
    edges: Ints

    @classmethod
    def draw(cls, draws: Stream, nodes: int, probability: float) -> Subgraph:
        """Draw an Erdős-Rényi graph.

        Args:
            draws: The stream.
            nodes: Number of nodes.
            probability: Probability of an edge.
        """
        return cls(nodes, random_edges(draws, nodes, probability))

    def put(self, graph: Any, draws: Stream, target: int) -> Data:
        """Return a graph in which random nodes induce exactly this subgraph, labelled as the target.

        Args:
            graph: A graph with more nodes than the trigger.
            draws: Chooses the nodes.
            target: The target class.
        """
        chosen = torch.from_numpy(draws.permutation(int(graph.num_nodes))[: self.nodes])
        inside = torch.zeros(int(graph.num_nodes), dtype=torch.bool)
        inside[chosen] = True
        outer = graph.edge_index[:, ~inside[graph.edge_index].all(0)]
        new = chosen[torch.from_numpy(self.edges).T]
        edges = torch.cat([outer, new, new.flip(0)], dim=1)
        y = torch.full_like(graph.y, target)
        return Data(x=graph.x, edge_index=edges, y=y, num_nodes=int(graph.num_nodes))
