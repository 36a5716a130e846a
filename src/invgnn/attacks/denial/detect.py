"""A detector of carriers: a classifier that is trained on carriers that the thief draws."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from invgnn.attacks.own_marks import own_marks
from invgnn.graphs.disjoint_union import Graphs
from invgnn.nn.forward import call, evaluation_mode, to_batch
from invgnn.nn.observation import num_graphs
from invgnn.training.fitting import FitOptions, fit_task
from invgnn.training.tasks import Task, new_model
from invgnn.watermark.reference import Reference

SHARE = 0.01
"""Largest share of ordinary graphs that may be classified as carriers."""
MOST = 1000
"""Largest number of ordinary graphs to train on."""
ROUNDING = 1e-3
"""Largest change of log-odds when a graph is evaluated in another batch."""


@dataclass(frozen=True, eq=False)
class Detector:
    """A classifier that decides which graphs of a batch look like carriers.

    Attributes:
        net: Scores every graph as ordinary and as a carrier.
        threshold: Log-odds above which a graph is classified as a carrier.
        largest: Largest number of nodes of a carrier; no larger graph is classified as one.
    """

    net: nn.Module
    threshold: float
    largest: int

    @torch.no_grad()
    def __call__(self, batch: Any) -> Tensor:
        """Return for every graph whether it looks like a carrier."""
        return (log_odds(self.net, batch) > self.threshold) & (sizes(batch) <= self.largest)

    def rows(self, batch: Any, count: int) -> Tensor:
        """Return the same for every row of scores, of which there is one per graph or one per node.

        Args:
            batch: The batch.
            count: Number of rows.
        """
        found = self(batch)
        return found if count == len(found) else found[_owners(batch)]


def learn_carriers(model: nn.Module, task: Task, secrets: int, m: int, epochs: int, seed: int) -> Detector:
    """Train a small GIN to distinguish carriers that the thief draws from ordinary graphs of the task.

    Ordinary graphs are the task's training graphs, or random subgraphs of the one graph of a node task. A
    fifth of all graphs is held out to select the epoch.

    Args:
        model: The stolen model; it determines where marks are read.
        task: Its task.
        secrets: Number of secrets to draw carriers under.
        m: Carriers per secret.
        epochs: Epochs of the detector.
        seed: Seed of the secrets and of the training.

    Returns:
        A detector that classifies at most 1 % of the ordinary graphs as carriers.
    """
    carriers = Graphs.concat([mark.carriers for mark in own_marks(model, task, secrets, m, seed)])
    usual = Reference.of(task.data).graphs
    usual = usual.take(torch.randperm(len(usual))[:MOST].numpy())
    lesson = _lesson(usual, carriers)
    net = new_model(lesson, "GIN", seed, hidden_channels=32)
    fit_task(net, lesson, FitOptions(epochs, seed=seed))
    odds = log_odds(net, to_batch(usual)).sort().values
    most = float(odds[len(odds) - 1 - int(SHARE * len(odds))])
    return Detector(net.eval(), most + ROUNDING, int(carriers.sizes.max()))


@torch.no_grad()
def log_odds(net: nn.Module, batch: Any) -> Tensor:
    """Return for every graph the log-odds that it is a carrier.

    Args:
        net: The classifier.
        batch: The batch.
    """
    owners = _owners(batch)
    x = described(batch.x.cpu().float(), owners)
    with evaluation_mode(net):
        said = call(net, Data(x=x, edge_index=batch.edge_index.cpu(), batch=owners))
    return said[:, 1] - said[:, 0]


def described(x: Tensor, owners: Tensor) -> Tensor:
    """Append a feature: 1 over the number of nodes of the same graph that have the same features.

    Its mean is the share of distinct nodes. Carriers reuse the features of a few donors, and a network that
    averages over nodes cannot count them.

    Args:
        x: The features.
        owners: The graph of every node.
    """
    groups = torch.cat([owners.to(x)[:, None], x], dim=1)
    _, group, count = groups.unique(dim=0, return_inverse=True, return_counts=True)
    return torch.cat([x, 1 / count.to(x)[group][:, None]], dim=1)


def sizes(batch: Any) -> Tensor:
    """Return the number of nodes of every graph."""
    return torch.bincount(_owners(batch), minlength=num_graphs(batch))


def _owners(batch: Any) -> Tensor:
    """Return the graph of every node."""
    owners = getattr(batch, "batch", None)
    return torch.zeros(int(batch.num_nodes), dtype=torch.long) if owners is None else owners.cpu()


def _lesson(usual: Graphs, carriers: Graphs) -> Task:
    """Return a task with two classes: ordinary graphs and carriers."""
    graphs = [*_items(usual, 0), *_items(carriers, 1)]
    order = torch.randperm(len(graphs))
    later = order[: len(order) // 5]
    return Task("carriers", "graph", graphs, order[len(later) :], later, later, 2, "own")


def _items(graphs: Graphs, label: int) -> list[Data]:
    """Return graphs with a label as PyG data."""
    batch = to_batch(graphs)
    features = described(batch.x.float(), batch.batch).split(graphs.sizes.tolist())
    edges = [torch.from_numpy(graphs.take([number]).directed()) for number in range(len(graphs))]
    y = torch.tensor([label])
    return [
        Data(x=x, edge_index=pairs, y=y, num_nodes=len(x)) for x, pairs in zip(features, edges, strict=True)
    ]
