"""Many small undirected graphs as one disjoint union."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from invgnn.errors import DataError
from invgnn.storage import encoding

Ints: TypeAlias = NDArray[np.int64]
Words: TypeAlias = NDArray[np.uint64]
Floats: TypeAlias = NDArray[np.float64]
Bools: TypeAlias = NDArray[np.bool_]
Features: TypeAlias = NDArray[np.float32] | Ints


class Draws(Protocol):
    """A stream of uniform integers; the only randomness graphs know."""

    def below(self, bounds: Ints, /) -> Ints:
        """One integer in [0, bound) for every bound (all at least 1)."""

    def permutation(self, n: int, /) -> Ints:
        """0..n-1 in random order."""


@dataclass(frozen=True, eq=False, repr=False)
class Graphs:
    """Simple undirected graphs in one union: node offsets, edges and (if any) node features.

    `ptr` holds the node offsets [G+1]; `edges` each undirected edge once as u < v in global node
    numbers, sorted [E,2] (hence also by graph); `x` the features [N,F], whole numbers as int64 (a model
    may look them up in a table) and others as float32, or None.
    """

    ptr: Ints
    edges: Ints
    x: Features | None = None

    def __post_init__(self) -> None:
        for name, kinds in (("ptr", "iu"), ("edges", "iu"), ("x", "fiub")):
            value = np.asarray(getattr(self, name))
            if value.size and value.dtype.kind not in kinds and getattr(self, name) is not None:
                raise DataError(f"{name} is of type {value.dtype}", "use whole numbers, and floats for x")
        ptr = np.ascontiguousarray(self.ptr, dtype=np.int64)
        edges = np.ascontiguousarray(self.edges, dtype=np.int64)
        _check_structure(ptr, edges)
        object.__setattr__(self, "ptr", ptr)
        object.__setattr__(self, "edges", edges)
        if self.x is not None:
            x = _as_features(np.asarray(self.x))
            _check_features(ptr, x)
            object.__setattr__(self, "x", x)

    @classmethod
    def from_data(cls, items: Iterable[Any]) -> Graphs:
        """The graphs of a list of PyG `Data`: no self-loops, no directions, no duplicate edges.

        Warns if edges lose their direction; a self-loop says nothing that a model could not add itself.
        """
        if hasattr(items, "edge_index"):
            raise DataError("one graph was given where a list of graphs is expected", _LIST)
        sizes, pairs, features = _read_items(items)
        ptr = offsets_of(sizes)
        count = np.array([pair.shape[1] for pair in pairs], dtype=np.int64)
        local = np.concatenate(pairs, axis=1)
        wrong = ((local < 0) | (local >= np.repeat(sizes, count))).any(axis=0)
        if wrong.any():
            graph = int(np.repeat(np.arange(len(sizes)), count)[wrong][0])
            raise DataError(
                f"graph {graph} has an edge to a node it does not have (num_nodes={sizes[graph]})",
                "set data.num_nodes, and number each graph's nodes from 0",
            )
        u, v = local + np.repeat(ptr[:-1], count)
        proper = u != v
        keys = np.sort(key_edges(u[proper], v[proper], int(ptr[-1])))
        keys = keys[np.diff(keys, prepend=-1) > 0]  # numpy's unique takes 40 times as long
        arrows = np.sort(u[proper] * int(ptr[-1]) + v[proper])
        if np.count_nonzero(np.diff(arrows, prepend=-1)) != 2 * len(keys):
            warnings.warn(_DIRECTED, stacklevel=2)
        x = np.concatenate(features) if features else None
        return cls(ptr, unkey_edges(keys, int(ptr[-1])), x)

    @classmethod
    def concat(cls, parts: Sequence[Graphs]) -> Graphs:
        """The graphs of all parts, in order, as one union."""
        if not parts:
            raise DataError("there are no graphs to join", "pass at least one Graphs object")
        _check_widths([None if part.x is None else part.x.shape[1] for part in parts], "part")
        shift = offsets_of(np.array([part.num_nodes for part in parts], dtype=np.int64))
        x: list[NDArray[Any]] = [part.x for part in parts if part.x is not None]
        return cls.unchecked(
            offsets_of(np.concatenate([part.sizes for part in parts])),
            np.concatenate([part.edges + by for part, by in zip(parts, shift, strict=False)]),
            _as_features(np.concatenate(x)) if x else None,
        )

    @classmethod
    def unchecked(cls, ptr: Ints, edges: Ints, x: Features | None = None) -> Graphs:
        """Graphs made of graphs, which were checked when they came in."""
        made = object.__new__(cls)
        for name, value in (("ptr", ptr), ("edges", edges), ("x", x)):
            object.__setattr__(made, name, value)
        return made

    def take(self, index: ArrayLike) -> Graphs:
        """The graphs at `index` (numbers or a mask), in that order, repeats allowed."""
        wanted = np.asarray(index)
        if wanted.size == 0:
            wanted = wanted.astype(np.int64)
        chosen = np.atleast_1d(np.arange(self.num_graphs)[wanted])
        sizes, counts = self.sizes[chosen], np.diff(self.edge_ptr)[chosen]
        ptr = offsets_of(sizes)
        # `take` has rows ten times as fast as square brackets.
        edges = self.edges.take(ranges(self.edge_ptr[chosen], counts), axis=0)
        shift = np.repeat(ptr[:-1] - self.ptr[chosen], counts)
        x = None if self.x is None else self.x.take(ranges(self.ptr[chosen], sizes), axis=0)
        return Graphs.unchecked(ptr, edges + shift[:, None], x)

    def __len__(self) -> int:
        return self.num_graphs

    def __repr__(self) -> str:
        width = "no" if self.x is None else self.x.shape[1]
        return (
            f"Graphs({self.num_graphs} graphs, {self.num_nodes} nodes, "
            f"{len(self.edges)} edges, {width} features)"
        )

    @property
    def num_graphs(self) -> int:
        return len(self.ptr) - 1

    @property
    def num_nodes(self) -> int:
        return int(self.ptr[-1])

    @cached_property
    def sizes(self) -> Ints:
        """The number of nodes of each graph."""
        return np.diff(self.ptr)

    @cached_property
    def graph_of_node(self) -> Ints:
        return np.repeat(np.arange(self.num_graphs), self.sizes)

    @cached_property
    def graph_of_edge(self) -> Ints:
        return self.graph_of_node[self.edges[:, 0]]

    @cached_property
    def edge_ptr(self) -> Ints:
        """The edge offsets of each graph [G+1]."""
        return np.searchsorted(self.edges[:, 0], self.ptr).astype(np.int64)

    @cached_property
    def edge_keys(self) -> Ints:
        """One ascending number u * N + v per edge, to search in."""
        return key_edges(self.edges[:, 0], self.edges[:, 1], self.num_nodes)

    @cached_property
    def csr(self) -> tuple[Ints, Ints]:
        """Offsets [N+1] and neighbours [2E], each node's neighbours ascending."""
        source, target = self._arrows
        return offsets_of(np.bincount(source, minlength=self.num_nodes)), target

    def directed(self) -> Ints:
        """Both directions of every edge [2,2E], sorted by source, then target, as PyG has it."""
        return self._arrows.copy()  # models may write into it

    @cached_property
    def _arrows(self) -> Ints:
        nodes = max(self.num_nodes, 1)
        u, v = self.edges.T
        keys = np.sort(np.concatenate([u * nodes + v, v * nodes + u]))
        source = keys // nodes  # numpy's divmod takes seven times as long
        return np.stack([source, keys - source * nodes])

    def record(self) -> dict[str, Any]:
        """Return the union as plain arrays: what is encoded, hashed and decoded again."""
        return {"ptr": self.ptr, "edges": self.edges, "x": self.x}

    @classmethod
    def recall(cls, record: dict[str, Any]) -> Graphs:
        """Return the graphs of a record, checked."""
        return cls(record["ptr"], record["edges"], record["x"])

    def digest(self) -> str:
        """Return the digest of the canonical bytes: same graphs, same order, same digest."""
        return encoding.digest("invgnn/graphs/2", self.record())

    def digest_1(self) -> str:
        """Return the digest that marks of format 1 are bound to.

        One string of numbers whose first four give the lengths of the rest, so it can be decoded; of one
        shape, whole numbers take more bytes than floats. It wrote -0.0 as 0.0, which `Graphs` does now.
        """
        width = -1 if self.x is None else self.x.shape[1]
        shape = np.array([self.num_graphs, self.num_nodes, len(self.edges), width])
        state = hashlib.sha256(b"invgnn.graphs/1\0")
        for numbers in (shape, self.ptr, self.edges):
            state.update(numbers.astype("<i8").tobytes())
        if self.x is not None:
            state.update(self.x.astype("<i8" if self.x.dtype == np.int64 else "<f4").tobytes())
        return state.hexdigest()


_DIRECTED = (
    "some edges have one direction only; carriers are undirected simple graphs, so to a model that "
    "heeds directions they are inputs of another kind: make the task's edges undirected if you can"
)
_LIST = "pass a list of Data: [data], list(dataset) or batch.to_data_list()"


def _array(value: Any) -> NDArray[Any]:
    return np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)


def _read_items(items: Iterable[Any]) -> tuple[Ints, list[Ints], list[NDArray[Any]]]:
    sizes, pairs, features = [], [], []
    widths: list[int | None] = []
    for number, item in enumerate(items):
        if hasattr(item, "num_graphs"):
            raise DataError(f"item {number} is a batch of graphs, not a graph", _LIST)
        edge_index, nodes = getattr(item, "edge_index", None), getattr(item, "num_nodes", None)
        if edge_index is None or nodes is None:
            raise DataError(
                f"item {number} has no edge_index or no num_nodes",
                "pass PyG Data with edge_index [2,E]; adj_t and HeteroData are not read",
            )
        pair = _array(edge_index)
        if pair.size == 0:
            pair = np.zeros((2, 0), dtype=np.int64)
        if pair.ndim != 2 or pair.shape[0] != 2 or pair.dtype.kind not in "iu":
            raise DataError(
                f"graph {number} has an edge_index of shape {pair.shape} and type {pair.dtype}",
                "edge_index is [2,E] of integers",
            )
        x = getattr(item, "x", None)
        x = None if x is None else _array(x)
        if x is not None and (x.ndim != 2 or len(x) != nodes):
            raise DataError(
                f"graph {number} has features of shape {x.shape} for {nodes} nodes",
                "x is [num_nodes, features]",
            )
        sizes.append(int(nodes))
        pairs.append(pair.astype(np.int64, copy=False))
        widths.append(None if x is None else x.shape[1])
        if x is not None:
            features.append(x)
    if not sizes:
        raise DataError("the list of graphs is empty", "pass at least one graph")
    _check_widths(widths, "graph")
    return np.array(sizes, dtype=np.int64), pairs, features


def _check_widths(widths: Sequence[int | None], what: str) -> None:
    for number, width in enumerate(widths):
        if width != widths[0]:
            raise DataError(
                f"{what} {number} has {_say(width)}, {what} 0 has {_say(widths[0])}",
                "give all graphs the same features, or none any",
            )


def _say(width: int | None) -> str:
    return "no features" if width is None else f"{width} features per node"


def _check_structure(ptr: Ints, edges: Ints) -> None:
    advice = "build Graphs with Graphs.from_data, take or concat"
    if ptr.ndim != 1 or len(ptr) == 0 or ptr[0] != 0 or (np.diff(ptr) < 0).any():
        raise DataError("node offsets must start at 0 and not decrease", advice)
    if edges.ndim != 2 or edges.shape[1] != 2:
        raise DataError(f"edges must be [E,2], not {list(edges.shape)}", advice)
    u, v = edges.T
    if len(edges) and (u.min() < 0 or v.max() >= ptr[-1] or (u >= v).any()):
        raise DataError("every edge must join two nodes u < v of the union", advice)
    if (v >= ptr[np.searchsorted(ptr, u, side="right")]).any():
        raise DataError("an edge joins two different graphs", advice)
    if (np.diff(key_edges(u, v, int(ptr[-1]))) <= 0).any():
        raise DataError("edges must be sorted, each once", advice)


def _as_features(x: NDArray[Any]) -> Features:
    """Whole numbers as int64, others as float32, in one piece and with one zero.

    A model could tell -0.0 from 0.0, so there is only one of them: what is shown is what is hashed.
    """
    with np.errstate(over="ignore"):  # an overflow becomes inf, which is refused later
        if x.dtype.kind in "iu":
            return np.ascontiguousarray(x, np.int64)
        return np.ascontiguousarray(x, np.float32) + np.float32(0)


def _check_features(ptr: Ints, x: NDArray[Any]) -> None:
    if x.ndim != 2 or len(x) != ptr[-1]:
        raise DataError(f"features of shape {x.shape} for {ptr[-1]} nodes", "x is [num_nodes, features]")
    bad = ~np.isfinite(x).all(axis=1)
    if bad.any():
        graph = int(np.searchsorted(ptr, int(bad.argmax()), side="right")) - 1
        raise DataError(
            f"graph {graph} has NaN or infinite node features (as float32)",
            "drop or impute these nodes' features first",
        )


def offsets_of(counts: Ints) -> Ints:
    """Where each of consecutive runs of these lengths starts, and where the last one ends."""
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts, dtype=np.int64)])


def ranges(starts: Ints, counts: Ints) -> Ints:
    """The runs start, ..., start + count - 1, one after the other."""
    ptr = offsets_of(counts)
    return np.arange(ptr[-1]) + np.repeat(starts - ptr[:-1], counts)


def key_edges(u: Ints, v: Ints, nodes: int) -> Ints:
    """One number per edge of a union of `nodes` nodes, in either direction; orders as edges do."""
    return np.minimum(u, v) * max(nodes, 1) + np.maximum(u, v)


def unkey_edges(keys: Ints, nodes: int) -> Ints:
    """The edges [E,2] that `key_edges` made these keys of."""
    u = keys // max(nodes, 1)
    return np.stack([u, keys - u * max(nodes, 1)], axis=1)


def sum_runs(values: NDArray[Any], ptr: Ints) -> NDArray[Any]:
    """The sum over each run ptr[i]:ptr[i+1], zero where empty; integers wrap, so stay exact."""
    total = np.zeros((len(values) + 1, *values.shape[1:]), dtype=values.dtype)
    np.cumsum(values, axis=0, out=total[1:])
    return np.asarray(total.take(ptr[1:], axis=0) - total.take(ptr[:-1], axis=0))
