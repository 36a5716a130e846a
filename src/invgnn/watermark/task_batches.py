"""Task inputs of any usual form as PyG batches, on the device of a model."""

from __future__ import annotations

from collections.abc import Iterator, Sized
from typing import Any

import torch
from torch import Tensor
from torch_geometric.loader import DataLoader

from invgnn.errors import DataError
from invgnn.nn.forward import Forward, placed
from invgnn.nn.rng import preserved_rng
from invgnn.nn.typed_graphs import flattened, is_typed
from invgnn.watermark.inputs import is_one_graph

_ADVICE = (
    "pass a list of PyG graphs, a data set or a DataLoader; for a node task the graph itself, a list of "
    "its parts, or a loader such as RandomNodeLoader, ClusterLoader or NeighborLoader"
)


class TaskBatches:
    """Batches of task inputs that can be iterated again and again.

    Args:
        data: A list of graphs, a data set or a loader of batches; for a node task the one graph, a list of
            parts of it, or a loader of parts.
        level: `graph` or `node`.
        batch_size: Graphs per batch, where `data` are single graphs.
        like: A tensor that sets the device and the precision of the features.
        forward: How the model is called; the schema of typed graphs.

    Raises:
        DataError: If `data` are none of these, or hold nothing.
    """

    def __init__(
        self,
        data: Any,
        level: str,
        batch_size: int,
        like: Tensor | None = None,
        forward: Forward | None = None,
    ) -> None:
        self._like, self._forward = like, forward
        data = flattened(data, forward)
        self.fixed = not isinstance(data, torch.utils.data.DataLoader) and _is_fixed(data, level)
        """Whether every pass yields the same objects, so that what is known of them can be kept."""
        self._source = data
        if self.fixed:
            self._source = [self._placed(item) for item in ([data] if is_one_graph(data) else data)]
        elif _is_collection(data):
            self._source = DataLoader(list(data), batch_size=batch_size, shuffle=True)
        with preserved_rng():  # loaders may shuffle
            self.first = next(iter(self), None)
        if is_typed(self.first):
            raise DataError(
                "typed graphs in this form cannot be used here",
                "pass a list or a DataLoader of HeteroData, to a mark with forward=Schema.of(graphs)",
            )
        if getattr(self.first, "edge_index", None) is None:
            raise DataError(f"this {type(data).__name__} holds no batch of PyG graphs", _ADVICE)

    def _placed(self, batch: Any) -> Any:
        batch = flattened(batch, self._forward)
        if self._like is None or getattr(batch, "edge_index", None) is None:
            return batch
        return placed(batch, self._like)

    def __len__(self) -> int:
        return len(self._source)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._source) if self.fixed else map(self._placed, self._source)

    def endless(self) -> Iterator[Any]:
        """Yield batches without end, pass after pass."""
        while True:
            yield from self


def _is_fixed(data: Any, level: str) -> bool:
    """Return whether data are one graph, or a list of batches or of parts of a graph."""
    if is_one_graph(data):
        return True
    if not isinstance(data, Sized) or isinstance(data, Iterator):
        raise DataError(f"a {type(data).__name__} is no collection, or can be iterated only once", _ADVICE)
    if not len(data):
        raise DataError("there are no task inputs", _ADVICE)
    items: Any = data
    first = next(iter(items)) if _is_collection(items) else None
    return first is not None and (level == "node" or getattr(first, "ptr", None) is not None)


def _is_collection(data: Any) -> bool:
    """Return whether data can be indexed, as lists and data sets can and loaders cannot."""
    return hasattr(data, "__getitem__") and not isinstance(data, torch.utils.data.DataLoader)
