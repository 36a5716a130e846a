"""Task inputs bound to a mark: encoded once, and shown to a suspect only as decoded from those bytes."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from invgnn.errors import DataError
from invgnn.storage.encoding import decode, digest_encoded, encode

CHUNK = 1024
"""How many graphs features are computed of at once."""
_UNSHOWN = "_mask"
_AS_INTEGERS = {torch.bfloat16: (torch.int16, "bfloat16")}
"""Types that numpy lacks: their bits travel as integers."""


class Inputs:
    """The inputs of a task, without labels and masks, as canonical bytes.

    Nothing but the bytes is kept. Every suspect gets fresh tensors decoded from them, so nothing outside
    the bytes can reach a suspect, and what one suspect writes into its input does not reach the next.

    Args:
        data: A list of PyG `Data`, a data set, or the one `Data` of a node task. Every attribute except `y`
            and masks is bound: dense tensors, numbers, text and None.

    Raises:
        DataError: If an attribute cannot be bound, or the graphs differ in their attributes.
    """

    def __init__(self, data: Any) -> None:
        self.level = "node" if is_one_graph(data) else "graph"
        graphs = [_record(graph) for graph in ([data] if self.level == "node" else data)]
        _check(graphs)
        self._bytes = encode({"level": self.level, "graphs": graphs})

    @classmethod
    def of(cls, data: Any) -> Inputs:
        """Return the inputs of data, or inputs as they are."""
        return data if isinstance(data, Inputs) else cls(data)

    def digest(self, version: int = 2) -> str:
        """Return the digest of the bytes, as marks of a format are bound to it."""
        if version == 1:
            return _digest_1(self.graphs())
        return digest_encoded("invgnn/inputs/2", self._bytes)

    def graphs(self) -> list[Data]:
        """Return the graphs, decoded anew."""
        found = decode(self._bytes)["graphs"]
        return [Data(**{name: _tensor(value) for name, value in graph.items()}) for graph in found]

    def batches(self, chunk: int | None = CHUNK) -> Iterator[Any]:
        """Yield the one graph of a node task, or graphs in batches of at most `chunk` (None: one batch)."""
        graphs = self.graphs()
        if self.level == "node":
            yield from graphs
            return
        size = chunk or len(graphs)
        for start in range(0, len(graphs), size):
            yield Batch.from_data_list(graphs[start : start + size])


def is_one_graph(data: Any) -> bool:
    """Return whether this is the one graph of a node task, and not a PyG data set."""
    return hasattr(data, "edge_index") and not hasattr(data, "indices")


def _record(graph: Any) -> dict[str, Any]:
    shown = graph.to_dict().items()
    return {
        _named(name): _value(name, value)
        for name, value in shown
        if name != "y" and not str(name).endswith(_UNSHOWN)
    }


def _named(name: Any) -> str:
    plain = isinstance(name, str) and name.isidentifier() and name.isascii()
    if plain and not name.startswith("_") and name != "self":
        return str(name)
    raise DataError(
        "the inputs hold an attribute whose name is not an ASCII identifier, or is reserved",
        "rename it: names are letters, digits and underscores, and start with a letter",
    )


def _value(name: str, value: Any) -> Any:
    if name == "num_nodes" and type(value) is not int:
        raise DataError(f"num_nodes is a {type(value).__name__}", "set it to a whole number, or not at all")
    if isinstance(value, Tensor) and value.layout == torch.strided:
        dense = value.detach().as_subclass(Tensor).cpu().resolve_conj().resolve_neg().contiguous()
        other, kind = _AS_INTEGERS.get(dense.dtype, (dense.dtype, ""))
        with contextlib.suppress(TypeError):  # numpy has no such type
            return {"as": kind, "values": np.asarray(dense.view(other).numpy())}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise DataError(
        f"the inputs hold {name}, a {type(value).__name__}, which cannot be bound to a mark",
        "keep tensors and plain values in the data, and edges in edge_index",
    )


def _tensor(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    found = torch.from_numpy(value["values"])
    for dtype, (_, kind) in _AS_INTEGERS.items():
        found = found.view(dtype) if kind == value["as"] else found
    return found


def _check(graphs: list[dict[str, Any]]) -> None:
    """Refuse graphs that differ in their attributes: a batch of them would lose some."""
    if not graphs:
        raise DataError("the list of graphs is empty", "pass at least one graph")
    for number, graph in enumerate(graphs):
        if graph.keys() != graphs[0].keys():
            odd = ", ".join(sorted(graph.keys() ^ graphs[0].keys()))
            raise DataError(
                f"graph {number} differs from graph 0 in its attributes: {odd}",
                "give every graph the same attributes",
            )


def _digest_1(graphs: list[Data]) -> str:
    """Return the digest of format 1: names, types, shapes and bytes one after the other.

    By itself it does not tell all inputs apart, since a name could contain what looks like a tensor. Names
    are checked to be identifiers now, so each ends at its semicolon and type and shape give the length of
    the bytes: what is hashed can be decoded again.
    """
    held = hashlib.sha256()
    for graph in graphs:
        for name, value in sorted(graph.to_dict().items()):
            held.update(f"{name};".encode() + _bytes_1(value))
        held.update(b"|")
    return held.hexdigest()


def _bytes_1(value: Any) -> bytes:
    if not isinstance(value, Tensor):
        return f"{value!r};".encode()
    about = f"{value.dtype};{tuple(value.shape)};"
    return about.encode() + value.contiguous().view(-1).view(torch.uint8).numpy().tobytes()
