"""From the tensors of a request to a PyG batch, with every value checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from invgnn.errors import DataError
from invgnn.nn.forward import as_batch
from invgnn.serve.messages import InputTensor
from invgnn.serve.settings import Limits

TYPES = {
    **{
        f"{kind}{size}": np.dtype(f"{kind.lower()}{size}")
        for kind in ("UINT", "INT")
        for size in (8, 16, 32, 64)
    },
    **{"BOOL": np.dtype(bool), "FP16": np.dtype("f2"), "FP32": np.dtype("f4"), "FP64": np.dtype("f8")},
}
"""The numpy type of every type of tensor."""


def to_array(tensor: InputTensor) -> NDArray[Any]:
    """Return a tensor of a request as an array.

    Raises:
        DataError: If the values do not fit type and shape, or are not finite.
    """
    wanted, name = TYPES[tensor.datatype], tensor.name
    try:
        raw = np.array(tensor.data)
        if raw.size == 0:
            raw = raw.astype(wanted)
        plain = raw.dtype.kind in ("b" if wanted.kind == "b" else "iu" if wanted.kind in "iu" else "iuf")
        with np.errstate(over="ignore"):
            found = raw.astype(wanted) if plain else None
    except (ValueError, OverflowError, TypeError):
        found = None
    if found is None:
        raise DataError(f"the data of {name!r} are no {tensor.datatype} array", "send numbers of that type")
    if wanted.kind in "iu" and not (found == raw).all():
        raise DataError(f"a number of {name!r} does not fit {tensor.datatype}", "use a larger type")
    if wanted.kind == "f" and not np.isfinite(found).all():
        raise DataError(f"a number of {name!r} is not finite", "send finite numbers")
    if found.size != int(np.prod(tensor.shape, dtype=object)):
        raise DataError(
            f"{name!r} has {found.size} numbers, and its shape {tensor.shape} has another number",
            "send all",
        )
    return found.reshape(tensor.shape)


def to_graphs(tensors: Sequence[InputTensor], limits: Limits) -> Any:
    """Return the graphs of a request as one PyG batch.

    Raises:
        DataError: If tensors are missing, do not fit together, or exceed the limits.
    """
    named = {tensor.name: to_array(tensor) for tensor in tensors}
    if len(named) < len(tensors):
        raise DataError("a tensor occurs twice", "send every tensor once")
    edges = named.pop("edge_index", None)
    if edges is None or edges.ndim != 2 or len(edges) != 2 or edges.dtype.kind not in "iu":
        raise DataError(
            "edge_index is missing or not of shape [2, edges]", "send source and target of every edge"
        )
    x, owners = named.pop("x", None), named.pop("batch", None)
    nodes = _nodes(x, owners, limits)
    owners = np.zeros(nodes, dtype=np.int64) if owners is None else _owners(owners, nodes)
    graphs = int(owners[-1]) + 1
    _check(edges, nodes, graphs, limits)
    rows = {nodes, edges.shape[1], graphs}
    for name, value in named.items():
        if name == "ptr" or len(value) not in rows:
            raise DataError(f"{name!r} has no row per node, edge or graph", "leave it out")
    return _batch(x, edges, owners, graphs, named)


def _nodes(x: NDArray[Any] | None, owners: NDArray[Any] | None, limits: Limits) -> int:
    """Return the number of nodes."""
    if x is None and owners is None:
        raise DataError("x is missing", "send the features of all nodes, [nodes, features]")
    if x is not None and (x.ndim > 2 or not len(x)):
        raise DataError("x is not of shape [nodes, features]", "send one row per node")
    nodes = len(x) if x is not None else len(owners) if owners is not None else 0
    if not 0 < nodes <= limits.nodes:
        raise DataError(f"{nodes} nodes, expected 1 to {limits.nodes}", "send fewer graphs per request")
    return nodes


def _owners(owners: NDArray[Any], nodes: int) -> NDArray[np.int64]:
    """Return the graph of every node, numbered from 0 in order."""
    if owners.shape != (nodes,) or owners.dtype.kind not in "iu":
        raise DataError("batch is not of shape [nodes]", "send the number of the graph of every node")
    steps = np.diff(owners.astype(np.int64), prepend=0)
    if owners[0] != 0 or not ((steps == 0) | (steps == 1)).all():
        raise DataError("batch does not number the graphs 0, 1, ... in order", "sort the nodes by graph")
    return owners.astype(np.int64)


def _check(edges: NDArray[Any], nodes: int, graphs: int, limits: Limits) -> None:
    """Check edges and limits."""
    if graphs > limits.graphs or edges.shape[1] > limits.edges:
        raise DataError(
            f"{graphs} graphs, {edges.shape[1]} edges; allowed are {limits.graphs} and {limits.edges}",
            "send fewer graphs per request",
        )
    if edges.size and not (int(edges.min()) >= 0 and int(edges.max()) < nodes):
        raise DataError("an edge leads to a node that does not exist", f"number the nodes 0 to {nodes - 1}")


def _batch(
    x: NDArray[Any] | None,
    edges: NDArray[Any],
    owners: NDArray[np.int64],
    graphs: int,
    more: dict[str, Any],
) -> Any:
    """Return a PyG batch."""
    ptr = np.searchsorted(owners, np.arange(graphs + 1))
    batch = as_batch(
        x=None if x is None else _tensor(x),
        edge_index=torch.from_numpy(edges.astype(np.int64)),
        batch=torch.from_numpy(owners),
        ptr=torch.from_numpy(ptr),
        **{name: _tensor(value) for name, value in more.items()},
    )
    batch.num_nodes = len(owners)
    return batch


def _tensor(value: NDArray[Any]) -> torch.Tensor:
    """Return an array as a tensor: floats in single precision, whole numbers as int64."""
    kind = {"f": np.float32, "b": np.bool_}.get(value.dtype.kind, np.int64)
    return torch.from_numpy(np.ascontiguousarray(value, dtype=kind))
