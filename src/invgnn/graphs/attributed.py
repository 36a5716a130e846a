"""Graphs with everything that a model is given: edges in any form, and tensors of nodes, edges and graphs.

The record defines bytes that marks are bound to. Changing it breaks every mark in the field; golden vectors
in the tests guard it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from invgnn.errors import DataError
from invgnn.graphs.disjoint_union import Graphs, Ints, offsets_of, ranges
from invgnn.graphs.offsets import Offsets

KINDS = ("node", "edge", "graph")
"""What a tensor has one row of."""
MOST_TENSORS = 64
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
_RESERVED = {"edge_index", "batch", "ptr", "num_nodes", "num_edges", "num_graphs", "num_features", "self"}
_TASK = {"y", "n_id", "e_id", "input_id", "batch_size", "smiles", "name", "idx"}
"""Labels, and numbers that loaders and data sets add for their own use."""

Tensors: TypeAlias = dict[str, NDArray[Any]]


@dataclass(frozen=True, eq=False, repr=False)
class Attributed(Offsets):
    """Graphs in one disjoint union, exactly as a model is given them.

    Unlike `Graphs`, edges may be in any order and may be self-loops or duplicates. Whole numbers are stored
    as int64, booleans as bool, and other numbers as float32 without negative zeros.

    Attributes:
        ptr: Node offsets of the graphs [G+1].
        arrow_ptr: Edge offsets of the graphs [G+1].
        edge_index: Source and target of every edge, numbered through the union [2,A].
        node: Tensors with one row per node, `x` among them if there are features.
        edge: Tensors with one row per edge.
        graph: Tensors with one row per graph.

    Raises:
        DataError: If the arrays do not fit together, or a value is not finite.
    """

    arrow_ptr: Ints
    edge_index: Ints
    node: Tensors
    edge: Tensors
    graph: Tensors

    def __post_init__(self) -> None:
        for name in ("ptr", "arrow_ptr", "edge_index"):
            value = np.asarray(getattr(self, name))
            if value.size and value.dtype.kind not in "iu":
                raise DataError(f"{name} is of type {value.dtype}", "use whole numbers")
            object.__setattr__(self, name, np.ascontiguousarray(value, dtype=np.int64))
        _check_edges(self.ptr, self.arrow_ptr, self.edge_index)
        rows = {"node": self.num_nodes, "edge": self.edge_index.shape[1], "graph": len(self)}
        for kind, count in rows.items():
            held = {name: _values(name, value, count) for name, value in getattr(self, kind).items()}
            object.__setattr__(self, kind, held)
        _check_names([name for kind in KINDS for name in getattr(self, kind)])

    @classmethod
    def from_data(cls, items: Sequence[Any], names: Collection[str] | None = None) -> Attributed:
        """Build the union of a list of PyG `Data` objects, with edges as they are.

        Args:
            items: The graphs, each with `edge_index` and `num_nodes`.
            names: The tensors to keep beside `x`; by default all that have a row per node, edge or graph.

        Raises:
            DataError: If a tensor of that name does not have a row per node, edge or graph.
        """
        kinds = kinds_of(items)
        for name in names or ():
            if name not in kinds:
                raise DataError(
                    f"the graphs have no {name!r} with one row per node, edge or graph",
                    f"leave it out; tensors that carriers can have: {', '.join(kinds) or 'none'}",
                )
        kept = {name: kind for name, kind in kinds.items() if names is None or name in {"x", *names}}
        ptr = offsets_of(np.array([int(item.num_nodes) for item in items], dtype=np.int64))
        pairs = [array_of(item.edge_index).reshape(2, -1) for item in items]
        arrow_ptr = offsets_of(np.array([pair.shape[1] for pair in pairs], dtype=np.int64))
        shift = np.repeat(ptr[:-1], np.diff(arrow_ptr))
        edge_index = np.concatenate(pairs, axis=1).astype(np.int64) + shift
        _check_edges(ptr, arrow_ptr, edge_index)
        tables: dict[str, Tensors] = {kind: {} for kind in KINDS}
        for name, kind in kept.items():
            rows = [array_of(item[name] if hasattr(item, "keys") else vars(item)[name]) for item in items]
            tables[kind][name] = np.concatenate([np.atleast_1d(row) for row in rows])
        return cls(ptr, arrow_ptr, edge_index, **tables)

    @classmethod
    def concat(cls, parts: Sequence[Attributed]) -> Attributed:
        """Return the graphs of all parts, in order, as one union; all parts have the same tensors."""
        if len({tuple(sorted(part.names)) for part in parts}) != 1:
            raise DataError("some graphs have tensors that others lack", "give all graphs the same tensors")
        nodes = offsets_of(np.array([part.num_nodes for part in parts], dtype=np.int64))
        return cls(
            offsets_of(np.concatenate([part.sizes for part in parts])),
            offsets_of(np.concatenate([np.diff(part.arrow_ptr) for part in parts])),
            np.concatenate([part.edge_index + by for part, by in zip(parts, nodes, strict=False)], axis=1),
            **{
                kind: {
                    name: np.concatenate([getattr(part, kind)[name] for part in parts])
                    for name in getattr(parts[0], kind)
                }
                for kind in KINDS
            },
        )

    def take(self, index: ArrayLike) -> Attributed:
        """Return the graphs at `index`, in that order."""
        chosen = np.atleast_1d(np.arange(len(self))[np.asarray(index, dtype=np.int64)])
        sizes, counts = self.sizes[chosen], np.diff(self.arrow_ptr)[chosen]
        ptr = offsets_of(sizes)
        nodes, edges = ranges(self.ptr[chosen], sizes), ranges(self.arrow_ptr[chosen], counts)
        shift = np.repeat(ptr[:-1] - self.ptr[chosen], counts)
        places = {"node": nodes, "edge": edges, "graph": chosen}
        tables = {
            kind: {name: value.take(place, axis=0) for name, value in getattr(self, kind).items()}
            for kind, place in places.items()
        }
        return Attributed(ptr, offsets_of(counts), self.edge_index[:, edges] + shift, **tables)

    def __repr__(self) -> str:
        return f"Attributed({len(self)} graphs, {self.num_nodes} nodes, {', '.join(self.names)})"

    @property
    def names(self) -> list[str]:
        """The names of all tensors."""
        return [name for kind in KINDS for name in getattr(self, kind)]

    @property
    def x(self) -> NDArray[Any] | None:
        """The node features, if there are any."""
        return self.node.get("x")

    @property
    def more(self) -> dict[str, tuple[str, NDArray[Any]]]:
        """All tensors other than `x`: what they have one row of, and their values."""
        return {n: (kind, v) for kind in KINDS for n, v in getattr(self, kind).items() if n != "x"}

    def directed(self) -> Ints:
        """Return a copy of the `edge_index` [2,A]."""
        return self.edge_index.copy()  # models may modify it in place

    def along(self, graphs: Graphs, nodes: Ints, owners: Ints) -> Attributed:
        """Return other graphs with the tensors that their nodes, edges and graphs have here.

        Args:
            graphs: The graphs. Every edge must exist here; of duplicate edges the first one counts.
            nodes: For every node of the graphs, its number here.
            owners: For every graph, the graph here that it belongs to.
        """
        keys = self.edge_index[0] * self.num_nodes + self.edge_index[1]
        order = np.argsort(keys, kind="stable")
        arrows = graphs.directed()
        source, target = nodes[arrows]
        rows = order[np.searchsorted(keys[order], source * self.num_nodes + target)]
        node = {name: value[nodes] for name, value in self.node.items() if name != "x"}
        return Attributed(
            graphs.ptr,
            graphs.arrow_ptr,
            arrows,
            node | ({} if graphs.x is None else {"x": graphs.x}),
            {name: value[rows] for name, value in self.edge.items()},
            {name: value[owners] for name, value in self.graph.items()},
        )

    def record(self) -> dict[str, Any]:
        """Return the union as plain arrays, ready to be encoded."""
        return {
            "ptr": self.ptr,
            "arrow_ptr": self.arrow_ptr,
            "edge_index": self.edge_index,
            **{kind: dict(getattr(self, kind)) for kind in KINDS},
        }

    @classmethod
    def recall(cls, record: Mapping[str, Any]) -> Attributed:
        """Return the graphs of a record that `record` returned.

        Raises:
            DataError: If the record does not describe valid graphs.
        """
        return cls(*(record[name] for name in ("ptr", "arrow_ptr", "edge_index", *KINDS)))


Shown: TypeAlias = Graphs | Attributed
"""Graphs as a model is given them: plain, or with further tensors."""


def joined(parts: Sequence[Shown]) -> Shown:
    """Return the graphs of all parts, in order, as one union.

    Raises:
        DataError: If some parts have further tensors and others have not.
    """
    plain = [part for part in parts if isinstance(part, Graphs)]
    rich = [part for part in parts if isinstance(part, Attributed)]
    if plain and rich:
        raise DataError("some graphs have tensors that others lack", "give all graphs the same tensors")
    return Attributed.concat(rich) if rich else Graphs.concat(plain)


def array_of(value: Any) -> NDArray[Any]:
    """Return a tensor or an array as a numpy array on the CPU."""
    return np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)


def kinds_of(items: Sequence[Any]) -> dict[str, str]:
    """Return the tensors that all graphs have, `x` included, and what each has one row of.

    Labels, masks, numbers of nodes (`*index*`) and values of another form are left out. A tensor that fits
    nodes and edges alike has a row per edge if `edge` is in its name, and a row per node otherwise.
    """
    held = [_dense(item) for item in items]
    names = [name for name in held[0] if all(name in one for one in held)]
    nodes = [int(item.num_nodes) for item in items]
    edges = [array_of(item.edge_index).reshape(2, -1).shape[1] for item in items]
    found = {name: _kind(name, [one[name] for one in held], nodes, edges) for name in names}
    return {name: kind for name, kind in found.items() if kind}


def uncarried(name: str) -> bool:
    """Return whether a name is one of a label, a mask or a number of nodes, which carriers never have."""
    odd = name in _TASK | _RESERVED or not _NAME.fullmatch(name) or name.startswith("num_")
    return odd or name.endswith("_mask") or "index" in name or "label" in name


def _dense(item: Any) -> dict[str, NDArray[Any]]:
    """Return the dense tensors of a graph, by name."""
    held = item.to_dict() if hasattr(item, "to_dict") else vars(item)
    dense = {
        name: value
        for name, value in held.items()
        if hasattr(value, "shape") and not uncarried(name) and not getattr(value, "is_sparse", False)
        if not getattr(value, "is_sparse_csr", False)
    }
    arrays = {name: array_of(value) for name, value in dense.items() if hasattr(value, "dtype")}
    return {name: value for name, value in arrays.items() if value.dtype.kind in "fiub"}


def _kind(name: str, values: list[NDArray[Any]], nodes: list[int], edges: list[int]) -> str:
    """Return what a tensor has one row of, or an empty text."""
    if len({(value.ndim, value.shape[1:], value.dtype.kind) for value in values}) != 1:
        return ""
    if values[0].ndim == 0:
        return "graph"
    rows = [len(value) for value in values]
    if name == "x":
        return "node" if rows == nodes else ""
    if rows == edges and ("edge" in name or rows != nodes):
        return "edge"
    if rows == nodes and "edge" not in name:
        return "node"
    return "graph" if set(rows) == {1} else ""


def _check_edges(ptr: Ints, arrow_ptr: Ints, edge_index: Ints) -> None:
    """Raise `DataError` unless every edge joins nodes of its own graph."""
    advice = "number each graph's nodes from 0, and use another copy of the data if this is a file"
    if any(p.ndim != 1 or not len(p) or p[0] != 0 or (np.diff(p) < 0).any() for p in (ptr, arrow_ptr)):
        raise DataError("offsets must start at 0 and not decrease", advice)
    if len(ptr) != len(arrow_ptr) or edge_index.shape != (2, arrow_ptr[-1]):
        raise DataError(f"edges of shape {edge_index.shape} for {len(ptr) - 1} graphs", advice)
    counts = np.diff(arrow_ptr)
    low, high = np.repeat(ptr[:-1], counts), np.repeat(ptr[1:], counts)
    if ((edge_index < low) | (edge_index >= high)).any():
        raise DataError("a graph has an edge to a node that it does not have", advice)


def _check_names(names: list[str]) -> None:
    """Raise `DataError` if a tensor cannot have its name."""
    bad = [name for name in names if not _NAME.fullmatch(name) or name in _RESERVED | {"y"}]
    if bad or len(set(names)) != len(names) or len(names) > MOST_TENSORS:
        raise DataError(
            f"tensors have reserved or repeated names, or are more than {MOST_TENSORS}",
            "rename them, or keep fewer with tensors=(...)",
        )


def _values(name: str, value: Any, rows: int) -> NDArray[Any]:
    """Return a tensor in the type that it is stored in, with a finite row for every node, edge or graph."""
    found = np.asarray(value)
    if found.dtype.kind not in "fiub" or found.ndim == 0 or len(found) != rows:
        raise DataError(
            f"{name} has the type {found.dtype} and the shape {found.shape}, expected {rows} rows",
            "use numbers with one row per node, edge or graph",
        )
    if found.dtype.kind == "b":
        return np.ascontiguousarray(found)
    if found.dtype.kind in "iu":
        return np.ascontiguousarray(found, np.int64)
    with np.errstate(over="ignore"):  # an overflow becomes inf, which is rejected here
        single = np.ascontiguousarray(found, np.float32) + np.float32(0)
    if not np.isfinite(single).all():
        raise DataError(
            f"{name} has NaN or infinite values (as float32)",
            "remove or impute these values, or leave the tensor out with tensors=(...)",
        )
    return np.asarray(single)
