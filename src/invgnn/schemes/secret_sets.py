"""Sets of training inputs that EXPL explains a model on: disjoint, and shown without the other data."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import subgraph

from invgnn.errors import SchemeError
from invgnn.graphs.disjoint_union import Graphs, Ints
from invgnn.training.tasks import Task


def require_disjoint(sets: Sequence[Sequence[int] | Ints]) -> None:
    """Refuse sets that have members in common.

    Overlapping sets agree on any model, because their explanations are almost the same.

    Args:
        sets: The sets.

    Raises:
        SchemeError: If a member is in two sets, or twice in one.
    """
    members = [int(member) for one in sets for member in one]
    twice = len(members) - len(set(members))
    if twice:
        raise SchemeError(
            f"the sets overlap: {twice} of {len(members)} members are not the first of their kind",
            "use pairwise disjoint sets; explanations of overlapping ones agree on any model",
        )


def shown_sets(task: Task, sets: Sequence[Ints]) -> tuple[Graphs, list[Tensor]]:
    """Return what a suspect is shown of sets of training inputs, and the feature rows of every set.

    Args:
        task: The task.
        sets: Numbers of nodes, or of graphs.
    """
    return _on_nodes(task, sets) if task.level == "node" else _on_graphs(task, sets)


def _on_nodes(task: Task, sets: Sequence[Ints]) -> tuple[Graphs, list[Tensor]]:
    """Return the induced subgraph of every set of nodes, and its feature rows."""
    whole = task.graphs[0].cpu()
    items = []
    for one in sets:
        nodes = torch.from_numpy(one)
        edges, _ = subgraph(nodes, whole.edge_index, relabel_nodes=True, num_nodes=int(whole.num_nodes))
        items.append(Data(x=whole.x[nodes], edge_index=edges, num_nodes=len(nodes)))
    return Graphs.from_data(items, keep_directions=True), [item.x for item in items]


def _on_graphs(task: Task, sets: Sequence[Ints]) -> tuple[Graphs, list[Tensor]]:
    """Return the graphs of all sets one after the other, and their mean feature rows."""
    items = [[task.graphs[i].cpu() for i in one.tolist()] for one in sets]
    rows = [torch.stack([graph.x.mean(0) for graph in one]) for one in items]
    return Graphs.from_data([graph for one in items for graph in one], keep_directions=True), rows
