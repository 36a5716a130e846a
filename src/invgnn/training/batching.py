"""Batches of a task, the device of a model, and accuracy."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data

from invgnn.errors import EditError
from invgnn.graphs.attributed import kinds_of, uncarried
from invgnn.nn.forward import as_batch, evaluation_mode, executed, make_separable, unwrap, weight_of
from invgnn.nn.layers import weighted
from invgnn.training.tasks import Task


class Collated:
    """Graphs concatenated once, so that any batch of them is a few gather operations.

    Args:
        graphs: The graphs.
    """

    def __init__(self, graphs: list[Data]) -> None:
        self.x = None if graphs[0].x is None else torch.cat([g.x for g in graphs]).contiguous()
        self.y = torch.cat([g.y.view(-1) for g in graphs])
        self.edges = torch.cat([g.edge_index for g in graphs], dim=1)
        place = self.edges.device
        self.nodes = torch.tensor([int(g.num_nodes) for g in graphs], device=place)
        self.links = torch.tensor([g.edge_index.shape[1] for g in graphs], device=place)
        self.first_node = self.nodes.cumsum(0) - self.nodes
        self.first_link = self.links.cumsum(0) - self.links
        self.more = _further(graphs)

    def numbered(self) -> Collated:
        """Return the same graphs with their indices in place of their classes."""
        twin = copy.copy(self)
        twin.y = torch.arange(len(self.nodes), device=self.nodes.device)
        return twin

    def only(self, names: Collection[str]) -> Collated:
        """Return the same graphs with those of their further tensors that are named."""
        twin = copy.copy(self)
        twin.more = {name: held for name, held in self.more.items() if name in names}
        return twin

    def followed_by(self, batch: Any) -> Collated:
        """Return these graphs followed by those of a PyG batch, whose class is 0.

        Args:
            batch: The PyG batch. Tensors that it lacks are left out.
        """
        twin, graphs = copy.copy(self), len(batch.ptr) - 1
        owner = batch.batch[batch.edge_index[0]]
        twin.x = None if self.x is None else torch.cat([self.x, batch.x])
        twin.more = {
            name: (kind, torch.cat([rows, batch[name].to(rows.dtype)]))
            for name, (kind, rows) in self.more.items()
            if name in batch
        }
        twin.y = torch.cat([self.y, self.y.new_zeros(graphs)])
        twin.edges = torch.cat([self.edges, batch.edge_index - batch.ptr[owner]], dim=1)
        twin.nodes = torch.cat([self.nodes, batch.ptr.diff()])
        twin.links = torch.cat([self.links, torch.bincount(owner, minlength=graphs)])
        twin.first_node = twin.nodes.cumsum(0) - twin.nodes
        twin.first_link = twin.links.cumsum(0) - twin.links
        return twin

    def batch(self, index: Tensor) -> Any:
        """Return the chosen graphs as one PyG batch."""
        nodes, links = self.nodes[index], self.links[index]
        graph = torch.repeat_interleave(nodes)
        ptr = torch.cat([nodes.new_zeros(1), nodes.cumsum(0)])
        chosen = torch.arange(int(ptr[-1]), device=ptr.device) + (self.first_node[index] - ptr[:-1])[graph]
        which = torch.repeat_interleave(links)
        start = self.first_link[index] - (links.cumsum(0) - links)
        linked = torch.arange(len(which), device=ptr.device) + start[which]
        edges = self.edges[:, linked] + ptr[:-1][which]
        x = None if self.x is None else self.x[chosen]
        places = {"node": chosen, "edge": linked, "graph": index}
        more = {name: rows[places[kind]] for name, (kind, rows) in self.more.items()}
        batch = as_batch(x=x, edge_index=edges, y=self.y[index], batch=graph, ptr=ptr, **more)
        batch.num_nodes = int(ptr[-1])
        arrow_ptr = torch.cat([links.new_zeros(1), links.cumsum(0)])
        kinds = {"y": "graph"} | {name: kind for name, (kind, _) in self.more.items()}
        make_separable(batch, ptr, arrow_ptr, kinds)
        return batch


def _further(graphs: list[Data]) -> dict[str, tuple[str, Tensor]]:
    """Return the tensors that all graphs have beside the usual ones: what they have a row of, and the rows.

    They are those that carriers can have: edge attributes, encodings, values of whole graphs.
    """
    known = {"x", "edge_index", "y"}
    if all(name in known or uncarried(name) for name in graphs[0].keys()):  # noqa: SIM118 a PyG graph is no dict
        return {}
    kinds = {name: kind for name, kind in kinds_of(graphs).items() if name not in known}
    rows = {name: [torch.atleast_1d(graph[name]) for graph in graphs] for name in kinds}
    return {name: (kind, torch.cat(rows[name])) for name, kind in kinds.items()}


def placed(task: Task, model: nn.Module) -> Task:
    """Return the task on the device of a model.

    Args:
        task: The task.
        model: The model.
    """
    like = weight_of(model)
    return task if like is None else task.to(like.device)


def batches(task: Task, held: Collated | None, batch_size: int) -> Iterator[tuple[Any, Tensor | None]]:
    """Yield shuffled batches of training graphs, or the one graph of a node task with its training nodes.

    Args:
        task: The task.
        held: The collated graphs, or None for a node task.
        batch_size: Graphs per batch.
    """
    if held is None:
        yield task.graphs[0], task.train
        return
    for index in shuffled(task, batch_size):
        yield held.batch(index), None


def shuffled(task: Task, batch_size: int) -> Iterable[Tensor]:
    """Return the indices of shuffled batches of training graphs.

    Args:
        task: A graph task.
        batch_size: Graphs per batch.
    """
    order = task.train[torch.randperm(len(task.train))]
    parts: tuple[Tensor, ...] = order.split(batch_size)
    return parts


@torch.no_grad()
def accuracy(model: nn.Module, task: Task, rows: Tensor, held: Collated | None = None) -> float:
    """Return the share of the chosen graphs or nodes whose top class is right.

    Args:
        model: The model; evaluated in evaluation mode, and its state restored.
        task: The task.
        rows: Indices of the graphs or nodes.
        held: The collated graphs of a graph task, if there are any already.
    """
    model, task = unwrap(model), placed(task, model)  # a distributed wrapper waits for other processes
    with evaluation_mode(model):
        if task.level == "node":
            data = task.graphs[0]
            return float((task.scores(model, data)[rows].argmax(-1) == data.y[rows]).float().mean())
        batch = (held or Collated(task.graphs)).batch(rows)
        return float((task.scores(model, batch).argmax(-1) == batch.y).float().mean())


def some_inputs(task: Task, count: int = 64) -> Any:
    """Return a few training graphs as one batch, or the one graph of a node task.

    Args:
        task: The task.
        count: Largest number of graphs.
    """
    if task.level == "node":
        return task.graphs[0]
    return Batch.from_data_list([task.graphs[i] for i in task.train[:count].tolist()])


@torch.no_grad()
def scores(model: nn.Module, task: Task) -> Tensor:
    """Return the scores of a model on some inputs of the task, in evaluation mode, with its state restored.

    Args:
        model: The model.
        task: The task.
    """
    with evaluation_mode(model):
        return task.scores(model, some_inputs(task))


def last_layer(model: nn.Module, task: Task) -> nn.Module:
    """Return the layer that runs last: the head of a graph model, or the last convolution of a node model.

    Args:
        model: The model.
        task: Its task.

    Raises:
        EditError: If no submodule with weights is called in the forward pass.
    """
    called = executed(model, weighted(model), some_inputs(task), task.forward)
    if not called or called[-1] is model:
        raise EditError(
            "the last layer is not known: the model calls no submodule with weights",
            "put the weights into submodules and call them in forward()",
        )
    return called[-1]
