"""Tensor donors: nodes, edges and graphs of the task that give carriers their further tensors.

The order of the draws is part of the format: changing it breaks every mark in the field.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from invgnn.graphs.attributed import Attributed
from invgnn.graphs.disjoint_union import Draws, Graphs, Ints, offsets_of


def with_tensors(carriers: Graphs, task: Graphs, tensors: Attributed, draws: Draws) -> Attributed:
    """Return carriers with further tensors, such as edge attributes, donated by the task's graphs.

    Every edge of a carrier gets all edge tensors of one random task edge. Those of an undirected edge go
    with their direction, so tensors that are the same for both directions of the task's edges are the same
    for both directions of a carrier's. Every node gets the node tensors of a random task node with the same
    features, and every carrier the graph tensors of a random task graph.

    Args:
        carriers: The carriers.
        task: The task's graphs.
        tensors: The tensors of the task's graphs, with edges in the order of `task.directed()`.
        draws: The secret stream. Takes a number for every node, edge and graph, each kind only if there are
            such tensors.
    """
    node = {name: value for name, value in tensors.node.items() if name != "x"}
    nodes = _same_features(carriers.x, task.x, carriers.num_nodes, task.num_nodes, draws) if node else None
    edges = _arrows(carriers, task, draws) if tensors.edge else None
    graphs = draws.below(np.full(len(carriers), len(task))) if tensors.graph else None
    return Attributed(
        carriers.ptr,
        carriers.arrow_ptr,
        carriers.directed(),
        _rows(node, nodes) | ({} if carriers.x is None else {"x": carriers.x}),
        _rows(tensors.edge, edges),
        _rows(tensors.graph, graphs),
    )


def _rows(table: dict[str, NDArray[Any]], place: Ints | None) -> dict[str, NDArray[Any]]:
    """Return some rows of every tensor of a table."""
    return {} if place is None else {name: value.take(place, axis=0) for name, value in table.items()}


def _same_features(
    x: NDArray[Any] | None, task: NDArray[Any] | None, nodes: int, donors: int, draws: Draws
) -> Ints:
    """Return for every node a random node of the task with the same features; any node without features."""
    if x is None or task is None or not x.shape[1]:
        return draws.below(np.full(nodes, donors))
    both = np.ascontiguousarray(np.concatenate([task, x]))
    look = np.unique(both.view(f"V{both.strides[0]}").ravel(), return_inverse=True)[1]
    order = np.argsort(look[:donors], kind="stable")  # by look, and then by number
    counts = np.bincount(look[:donors], minlength=int(look.max()) + 1)
    wanted = look[donors:]
    return order.take(offsets_of(counts)[wanted] + draws.below(counts[wanted]))


def _arrows(carriers: Graphs, task: Graphs, draws: Draws) -> Ints:
    """Return for every direction of every edge the place of its donor among `task.directed()`."""
    chosen = draws.below(np.full(len(carriers.edges), len(task.edges)))
    if task.is_directed:
        return chosen
    there, here = _both_ways(task)[:, chosen], _both_ways(carriers)
    found = np.empty(2 * len(carriers.edges), dtype=np.int64)
    found[here] = there
    return found


def _both_ways(graphs: Graphs) -> Ints:
    """Return the places of both directions of every undirected edge in `directed()` [2,E]."""
    source, target = graphs.directed()
    keys, (u, v), nodes = source * graphs.num_nodes + target, graphs.edges.T, graphs.num_nodes
    return np.searchsorted(keys, np.array([u * nodes + v, v * nodes + u]))
