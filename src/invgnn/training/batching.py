"""A task in batches, where a model computes, and how much of it the model gets right."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data

from invgnn.errors import EditError
from invgnn.nn.forward import as_batch, call, evaluation_mode, executed, unwrap, weight_of
from invgnn.nn.layers import weighted
from invgnn.training.tasks import Task


class Collated:
    """Graphs laid out end to end once, so that any batch of them is a few gathers."""

    def __init__(self, graphs: list[Data]) -> None:
        self.x = torch.cat([g.x for g in graphs]).contiguous()
        self.y = torch.cat([g.y.view(-1) for g in graphs])
        self.edges = torch.cat([g.edge_index for g in graphs], dim=1)
        place = self.edges.device
        self.nodes = torch.tensor([int(g.num_nodes) for g in graphs], device=place)
        self.links = torch.tensor([g.edge_index.shape[1] for g in graphs], device=place)
        self.first_node = self.nodes.cumsum(0) - self.nodes
        self.first_link = self.links.cumsum(0) - self.links

    def numbered(self) -> Collated:
        """The same graphs with their numbers in place of their classes."""
        twin = copy.copy(self)
        twin.y = torch.arange(len(self.nodes), device=self.nodes.device)
        return twin

    def batch(self, index: Tensor) -> Any:
        """The chosen graphs as one PyG batch."""
        nodes, links = self.nodes[index], self.links[index]
        graph = torch.repeat_interleave(nodes)
        ptr = torch.cat([nodes.new_zeros(1), nodes.cumsum(0)])
        chosen = torch.arange(int(ptr[-1]), device=ptr.device) + (self.first_node[index] - ptr[:-1])[graph]
        which = torch.repeat_interleave(links)
        start = self.first_link[index] - (links.cumsum(0) - links)
        linked = torch.arange(len(which), device=ptr.device) + start[which]
        edges = self.edges[:, linked] + ptr[:-1][which]
        batch = as_batch(x=self.x[chosen], edge_index=edges, y=self.y[index], batch=graph, ptr=ptr)
        batch.num_nodes = int(ptr[-1])
        return batch


def placed(task: Task, model: nn.Module) -> Task:
    """The task where a model computes."""
    like = weight_of(model)
    return task if like is None else task.to(like.device)


def batches(task: Task, held: Collated | None, batch_size: int) -> Iterator[tuple[Any, Tensor | None]]:
    """Shuffled batches of training graphs, or the one graph with its training nodes."""
    if held is None:
        yield task.graphs[0], task.train
        return
    order = task.train[torch.randperm(len(task.train))]
    for index in order.split(batch_size):
        yield held.batch(index), None


@torch.no_grad()
def accuracy(model: nn.Module, task: Task, rows: Tensor, held: Collated | None = None) -> float:
    """Share of the chosen graphs or nodes whose top class is right."""
    model, task = unwrap(model), placed(task, model)  # the wrapper would wait for other processes
    with evaluation_mode(model):
        if task.level == "node":
            data = task.graphs[0]
            return float((call(model, data)[rows].argmax(-1) == data.y[rows]).float().mean())
        batch = (held or Collated(task.graphs)).batch(rows)
        return float((call(model, batch).argmax(-1) == batch.y).float().mean())


def some_inputs(task: Task, count: int = 64) -> Any:
    """A few training graphs as one batch, or the one graph of a node task."""
    if task.level == "node":
        return task.graphs[0]
    return Batch.from_data_list([task.graphs[i] for i in task.train[:count].tolist()])


@torch.no_grad()
def scores(model: nn.Module, task: Task) -> Tensor:
    """What a model says on some inputs of the task, in evaluation mode; the model stays as it was."""
    with evaluation_mode(model):
        return call(model, some_inputs(task))


def last_layer(model: nn.Module, task: Task) -> nn.Module:
    """The convolution or linear map that runs last: the head of a graph model, a node model's last hop."""
    called = executed(model, weighted(model), some_inputs(task))
    if not called or called[-1] is model:
        raise EditError(
            "the model has no layer of its own that could be called its last",
            "put its weights into submodules and call them in forward()",
        )
    return called[-1]
