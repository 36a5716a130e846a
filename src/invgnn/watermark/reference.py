"""Reference: the public population of task graphs that carriers are drawn from and compared with."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from invgnn.errors import DataError
from invgnn.graphs.adjacency import adjacent
from invgnn.graphs.attributed import Attributed, array_of
from invgnn.graphs.disjoint_union import Draws, Graphs, Ints, ranges, unkey_edges
from invgnn.graphs.invariants import Scale, find_invariant
from invgnn.graphs.rewiring import sample_subgraphs
from invgnn.graphs.statistics import clustering, degrees
from invgnn.secret import public_stream
from invgnn.storage import encoding
from invgnn.watermark.sampler import Sampler, hashes_of

Targets: TypeAlias = Literal["class", "real", "labels", "unknown"]
"""What a task predicts: one class, real numbers, or several independent labels."""
SUBGRAPHS = 1000
"""How many connected subgraphs stand for the population of a node task."""


class Reference:
    """The public population a mark is drawn from, and the statistics carriers are compared with.

    Make one of these first to draw many marks from the same data: its statistics are computed once.
    """

    def __init__(
        self,
        graphs: Graphs,
        level: Literal["graph", "node"] = "graph",
        labels: Ints | None = None,
        digest: str | None = None,
        tensors: Attributed | None = None,
        targets: Targets = "unknown",
    ) -> None:
        """Store the graphs and, if known, the class of every graph or node.

        Args:
            graphs: The population.
            level: Whether whole graphs or nodes are classified.
            labels: One class per graph or node, -1 where it is unknown; None if there are no classes.
            digest: The digest a mark is bound to; that of the graphs and their tensors if not given.
            tensors: Further tensors of the graphs, such as edge attributes, with edges in the order of
                `graphs.directed()`; None if there are none.
            targets: What the task predicts: one class, real numbers, several independent labels, or
                unknown.
        """
        if len(graphs) < 2:
            raise DataError(
                f"{len(graphs)} reference graph is not enough to draw carriers from",
                "pass all training graphs; for a node task pass the one graph itself, not a list",
            )
        if not len(graphs.edges):
            raise DataError(
                "the reference graphs have no edges, so nothing can be rewired",
                "check edge_index; carriers need graphs with at least two edges",
            )
        self.graphs, self.level, self.labels, self.tensors = graphs, level, labels, tensors
        self.targets: Targets = targets
        self.digest = _digest(graphs, 2, tensors) if digest is None else digest
        self._scales: dict[str, Scale] = {}
        self._hashes: dict[tuple[str, int], frozenset[bytes]] = {}

    @classmethod
    def of(
        cls,
        data: Any,
        version: int = 2,
        *,
        tensors: Collection[str] | None = None,
        keep_directions: bool = True,
    ) -> Reference:
        """Return the reference of a task: its training graphs, or the one graph of a node task.

        A single graph (a PyG `Data`) is replaced by connected random subgraphs of 12 to 32 nodes, drawn
        with a public seed so that everybody gets the same. Labels (`y`) are taken along where they are
        classes; of a graph with a `train_mask`, those of training nodes only.

        Args:
            data: A list of PyG `Data`, a data set, one `Data`, `Graphs`, or a `Reference`.
            version: Format of the mark that asks; marks of format 1 are bound to another digest.
            tensors: Names of the tensors to keep beside `x`; by default all with one row per node, edge or
                graph.
            keep_directions: Keep the directions of edges if some exist in one direction only.
        """
        if isinstance(data, Reference):
            return data
        if isinstance(data, Graphs):
            return cls(data, digest=_digest(data, version))
        check_kind(data)
        names, keep = (() if version == 1 else tensors), keep_directions and version > 1
        # A PyG data set shows the edges of all its graphs together: it is many graphs all the same.
        if hasattr(data, "indices") or getattr(data, "edge_index", None) is None:
            items = list(data)
            for item in items:
                check_kind(item)
            graphs = Graphs.from_data(items, keep_directions=keep)
            held = _tensors(items, graphs, names)
            labels = labels_of_graphs(items)
            kind = targets_of(items, len(items))
            return cls(graphs, "graph", labels, _digest(graphs, version, held), held, kind)
        whole = Graphs.from_data([data], keep_directions=keep)
        found, nodes = _subgraphs(whole, public_stream("reference", _digest(whole, version)))
        if len(found) < SUBGRAPHS // 10:
            raise DataError(
                f"only {len(found)} of {SUBGRAPHS} random subgraphs reach 12 nodes",
                "the graph falls into small pieces; mark it as a task over whole graphs",
            )
        known, held = labels_of_nodes(data), _tensors([data], whole, names)
        if held is not None:
            held = held.along(found, nodes, np.zeros(len(found), dtype=np.int64))
        labels = None if known is None else known[nodes]
        kind = targets_of([data], int(data.num_nodes))
        return cls(found, "node", labels, _digest(found, version, held), held, kind)

    def labels_at(self, chosen: Ints) -> Ints | None:
        """Return the labels of some of the graphs, one after the other."""
        if self.labels is None or self.level == "graph":
            return None if self.labels is None else self.labels[chosen]
        return self.labels[ranges(self.graphs.ptr[chosen], self.graphs.sizes[chosen])]

    @property
    def num_classes(self) -> int | None:
        """Number of classes among the labels; None without labels or with fewer than two classes."""
        if self.labels is None or not (self.labels > 0).any():
            return None
        return int(self.labels.max()) + 1

    @cached_property
    def clustering(self) -> NDArray[np.float64]:
        """Sorted clustering coefficients of all nodes."""
        return np.sort(clustering(self.graphs.skeleton))

    @cached_property
    def degrees(self) -> NDArray[np.float64]:
        """Sorted degrees of all nodes."""
        return np.sort(degrees(self.graphs.skeleton).astype(np.float64))

    def scale(self, invariant: str) -> Scale:
        """Return the normalisation of an invariant, fitted to the reference."""
        if invariant not in self._scales:
            self._scales[invariant] = Scale.fit(find_invariant(invariant)(self.graphs.skeleton))
        return self._scales[invariant]

    def hashes(self, sampler: Sampler) -> frozenset[bytes]:
        """Return the Weisfeiler-Lehman hashes of all graphs."""
        key = (sampler.wl, sampler.rounds)
        if key not in self._hashes:
            self._hashes[key] = frozenset(hashes_of(self.graphs, sampler))
        return self._hashes[key]


def check_kind(data: Any) -> None:
    """Refuse graphs with types of nodes or with times, which have no carriers.

    Raises:
        DataError: If the data are a `HeteroData` or a `TemporalData`.
    """
    kind = type(data).__name__
    if hasattr(data, "node_types") and hasattr(data, "edge_types"):
        raise DataError(
            f"a single {kind} cannot be marked: typed carriers are drawn for graph tasks only",
            "pass a list of HeteroData, one for each graph; for a node task convert it with "
            "data.to_homogeneous(), and see the page on typed and temporal graphs",
        )
    if {"src", "dst", "t"} <= set(data.keys() if hasattr(data, "num_events") else ()):
        raise DataError(
            f"a {kind} is a sequence of events, and carriers are graphs",
            "mark a model of snapshots instead: a list of Data, one for each window of time",
        )


def _digest(graphs: Graphs, version: int, tensors: Attributed | None = None) -> str:
    if tensors is not None:
        held = {"graphs": graphs.record(), "tensors": tensors.record()}
        return encoding.digest("invgnn/reference/2", held)
    return graphs.digest_1() if version == 1 else graphs.digest()


def _tensors(items: Sequence[Any], graphs: Graphs, names: Collection[str] | None) -> Attributed | None:
    """Return the further tensors of graphs, with edges as in `graphs.directed()`; None without any."""
    if names is not None and not names:
        return None
    raw = Attributed.from_data(items, names)
    if not raw.more:
        return None
    return raw.along(graphs, np.arange(graphs.num_nodes), np.arange(len(graphs)))


def _subgraphs(whole: Graphs, draws: Draws) -> tuple[Graphs, Ints]:
    """Return random connected subgraphs of one graph, and the numbers of their nodes in it."""
    plain = whole.skeleton
    numbered = Graphs.unchecked(plain.ptr, plain.edges, np.arange(plain.num_nodes)[:, None])
    found = sample_subgraphs(numbered, SUBGRAPHS, draws)
    nodes = np.asarray(found.x).astype(np.int64).ravel()
    x = None if whole.x is None else whole.x.take(nodes, axis=0)
    edges = _directions(whole, found, nodes) if whole.is_directed else found.edges
    return Graphs.unchecked(found.ptr, edges, x, whole.is_directed), nodes


def _directions(whole: Graphs, found: Graphs, nodes: Ints) -> Ints:
    """Return the directed edges of one graph between the nodes of its subgraphs."""
    source, target = found.directed()  # both directions of every edge
    there = adjacent(whole, nodes[source], nodes[target])
    return unkey_edges(np.sort((source * found.num_nodes + target)[there]), found.num_nodes)


def targets_of(items: Sequence[Any], count: int) -> Targets:
    """Return what a task predicts, from the targets (`y`) of its graphs or nodes.

    Args:
        items: The graphs of the task, or the one graph of a node task.
        count: Number of graphs, or of nodes.
    """
    held = [getattr(item, "y", None) for item in items]
    found = [array_of(y) for y in held if y is not None]
    if len(found) < len(held) or len({(y.size, y.dtype.kind) for y in found}) != 1:
        return "unknown"
    values, real = np.concatenate([y.ravel() for y in found]), found[0].dtype.kind == "f"
    several = len(values) > count
    if len(values) % count or found[0].dtype.kind not in "fiub" or not np.isfinite(values).any():
        return "unknown"
    if bool(np.isin(values[np.isfinite(values)], (0, 1)).all()):
        return "labels" if several else "class"
    return "real" if real else ("unknown" if several else "class")


def labels_of_graphs(items: Sequence[Any]) -> Ints | None:
    """Return the class of every graph, or None if some has none."""
    found = [_whole(getattr(item, "y", None)) for item in items]
    if not all(y is not None and y.size == 1 and y.min() >= 0 for y in found):
        return None
    return np.array([y.item() for y in found if y is not None], dtype=np.int64)


def labels_of_nodes(data: Any) -> Ints | None:
    """Return the class of every node, -1 outside the training mask, or None if there are no classes."""
    y, mask = _whole(getattr(data, "y", None)), getattr(data, "train_mask", None)
    if y is None or y.shape != (int(data.num_nodes),):
        return None
    known = y >= 0 if mask is None else np.asarray(mask.cpu()).reshape(len(y), -1).any(1) & (y >= 0)
    return np.where(known, y, -1)


def _whole(y: Any) -> Ints | None:
    """Return labels as whole numbers, or None if they are not whole numbers."""
    if y is None:
        return None
    found = np.asarray(y.detach().cpu() if hasattr(y, "detach") else y)
    return found.astype(np.int64) if found.dtype.kind in "iu" else None
