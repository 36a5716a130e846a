"""Many small undirected graphs as one disjoint union, and what can be counted on them at once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from invgnn.errors import DataError, ParameterError

Ints: TypeAlias = NDArray[np.int64]
Words: TypeAlias = NDArray[np.uint64]
Floats: TypeAlias = NDArray[np.float64]
Bools: TypeAlias = NDArray[np.bool_]


class Draws(Protocol):
    """A stream of uniform integers; the only randomness this module knows."""

    def below(self, bounds: Ints, /) -> Ints:
        """One integer in [0, bound) for every bound (all at least 1)."""


@dataclass(frozen=True, eq=False, repr=False)
class Graphs:
    """Simple undirected graphs in one union: node offsets, edges and (if any) node features.

    `ptr` holds the node offsets [G+1]; `edges` each undirected edge once as u < v in global node
    numbers, sorted [E,2] (hence also by graph); `x` the features [N,F] as float32, or None.
    """

    ptr: Ints
    edges: Ints
    x: NDArray[np.float32] | None = None

    def __post_init__(self) -> None:
        ptr = np.ascontiguousarray(self.ptr, dtype=np.int64)
        edges = np.ascontiguousarray(self.edges, dtype=np.int64)
        _check_structure(ptr, edges)
        object.__setattr__(self, "ptr", ptr)
        object.__setattr__(self, "edges", edges)
        if self.x is not None:
            with np.errstate(over="ignore"):  # an overflow becomes inf, which is refused below
                x = np.ascontiguousarray(self.x, dtype=np.float32)
            _check_features(ptr, x)
            object.__setattr__(self, "x", x)

    @classmethod
    def from_data(cls, items: Iterable[Any]) -> Graphs:
        """The graphs of a list of PyG `Data`: no self-loops, no directions, no duplicate edges."""
        if hasattr(items, "edge_index"):
            raise DataError("one graph was given where a list of graphs is expected", _LIST)
        sizes, pairs, features = _read_items(items)
        ptr = _offsets(sizes)
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
        keys = np.sort(_key(u[proper], v[proper], int(ptr[-1])))
        keys = keys[np.diff(keys, prepend=-1) > 0]  # numpy's unique takes 40 times as long
        return cls(ptr, _unkey(keys, int(ptr[-1])), np.concatenate(features) if features else None)

    @classmethod
    def concat(cls, parts: Sequence[Graphs]) -> Graphs:
        """The graphs of all parts, in order, as one union."""
        if not parts:
            raise DataError("there are no graphs to join", "pass at least one Graphs object")
        _check_widths([None if part.x is None else part.x.shape[1] for part in parts], "part")
        shift = _offsets(np.array([part.num_nodes for part in parts], dtype=np.int64))
        x = [part.x for part in parts if part.x is not None]
        return cls(
            _offsets(np.concatenate([part.sizes for part in parts])),
            np.concatenate([part.edges + by for part, by in zip(parts, shift, strict=False)]),
            np.concatenate(x) if x else None,
        )

    def take(self, index: ArrayLike) -> Graphs:
        """The graphs at `index` (numbers or a mask), in that order, repeats allowed."""
        wanted = np.asarray(index)
        if wanted.size == 0:
            wanted = wanted.astype(np.int64)
        chosen = np.atleast_1d(np.arange(self.num_graphs)[wanted])
        sizes, counts = self.sizes[chosen], np.diff(self.edge_ptr)[chosen]
        ptr = _offsets(sizes)
        edges = self.edges[_ranges(self.edge_ptr[chosen], counts)]
        shift = np.repeat(ptr[:-1] - self.ptr[chosen], counts)
        x = None if self.x is None else self.x[_ranges(self.ptr[chosen], sizes)]
        return Graphs(ptr, edges + shift[:, None], x)

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
        return _key(self.edges[:, 0], self.edges[:, 1], self.num_nodes)

    @cached_property
    def csr(self) -> tuple[Ints, Ints]:
        """Offsets [N+1] and neighbours [2E], each node's neighbours ascending."""
        return _offsets(degrees(self)), self.directed()[1]

    def directed(self) -> Ints:
        """Both directions of every edge [2,2E], sorted by source, then target, as PyG has it."""
        nodes = max(self.num_nodes, 1)
        u, v = self.edges.T
        keys = np.sort(np.concatenate([u * nodes + v, v * nodes + u]))
        return np.stack(np.divmod(keys, nodes))

    def digest(self) -> str:
        """The SHA-256 of the union in canonical bytes: same graphs, same order, same digest."""
        width = -1 if self.x is None else self.x.shape[1]
        shape = np.array([self.num_graphs, self.num_nodes, len(self.edges), width])
        state = hashlib.sha256(b"invgnn.graphs/1\0")
        for numbers in (shape, self.ptr, self.edges):
            state.update(numbers.astype("<i8").tobytes())
        if self.x is not None:
            state.update((self.x + np.float32(0)).astype("<f4").tobytes())  # -0.0 is 0.0
        return state.hexdigest()


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
    if (np.diff(_key(u, v, int(ptr[-1]))) <= 0).any():
        raise DataError("edges must be sorted, each once", advice)


def _check_features(ptr: Ints, x: NDArray[np.float32]) -> None:
    if x.ndim != 2 or len(x) != ptr[-1]:
        raise DataError(
            f"features of shape {x.shape} for {ptr[-1]} nodes", "x is [num_nodes, features]"
        )
    bad = ~np.isfinite(x).all(axis=1)
    if bad.any():
        graph = int(np.searchsorted(ptr, int(bad.argmax()), side="right")) - 1
        raise DataError(
            f"graph {graph} has NaN or infinite node features (as float32)",
            "drop or impute these nodes' features first",
        )


def _offsets(counts: Ints) -> Ints:
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts, dtype=np.int64)])


def _ranges(starts: Ints, counts: Ints) -> Ints:
    """The runs start, ..., start + count - 1, one after the other."""
    offsets = _offsets(counts)
    return np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], counts)


def _key(u: Ints, v: Ints, nodes: int) -> Ints:
    return np.minimum(u, v) * max(nodes, 1) + np.maximum(u, v)


def _unkey(keys: Ints, nodes: int) -> Ints:
    return np.stack(np.divmod(keys, max(nodes, 1)), axis=1)


def sum_runs(values: NDArray[Any], ptr: Ints) -> NDArray[Any]:
    """The sum over each run ptr[i]:ptr[i+1], zero where empty; integers wrap, so stay exact."""
    total = np.zeros((len(values) + 1, *values.shape[1:]), dtype=values.dtype)
    np.cumsum(values, axis=0, out=total[1:])
    return np.asarray(total[ptr[1:]] - total[ptr[:-1]])


# ---------------------------------------------------------------------------------- counting


def degrees(g: Graphs) -> Ints:
    """The degree of every node [N]."""
    return np.bincount(g.edges.ravel(), minlength=g.num_nodes).astype(np.int64)


def triangles(g: Graphs) -> Ints:
    """The number of triangles through every node [N]."""
    edge, _, v, w = _wedges(g)
    return _corner_sums(g, np.bincount(edge[_adjacent(g, v, w)], minlength=len(g.edges)))


def clustering(g: Graphs) -> Floats:
    """The local clustering coefficient of every node [N], 0 below degree 2.

    One division of two exact integers, so the same bits everywhere.
    """
    degree = degrees(g)
    out = np.zeros(g.num_nodes)
    np.divide(2 * triangles(g), degree * (degree - 1), out=out, where=degree > 1)
    return out


def motifs(g: Graphs) -> Ints:
    """Induced counts [G,6]: path, star, cycle, tailed triangle, diamond, clique on 4 nodes."""
    edge, rank, v, w = _wedges(g)
    degree, closed = degrees(g), _adjacent(g, v, w)
    on_edge = np.bincount(edge[closed], minlength=len(g.edges))
    on_node = _corner_sums(g, on_edge)
    a, b = degree[g.edges].T

    def by_node(values: Ints) -> Ints:
        return sum_runs(values, g.ptr)

    def by_edge(values: Ints) -> Ints:
        return sum_runs(values, g.edge_ptr)

    # First every copy, induced or not ...
    clique = _cliques(g, edge, w, closed & (rank[v] < rank[w]))
    cycle = _cycles(g, v, w, rank[w] < rank[v])
    diamond = by_edge(on_edge * (on_edge - 1) // 2)
    tailed = by_node(on_node * (degree - 2))
    star = by_node(degree * (degree - 1) * (degree - 2) // 6)
    path = by_edge((a - 1) * (b - 1)) - by_node(on_node)
    # ... then less the copies inside denser motifs, densest first.
    diamond = diamond - 6 * clique
    cycle = cycle - diamond - 3 * clique
    tailed = tailed - 4 * diamond - 12 * clique
    star = star - tailed - 2 * diamond - 4 * clique
    path = path - 4 * cycle - 2 * tailed - 6 * diamond - 12 * clique
    return np.stack([path, star, cycle, tailed, diamond, clique], axis=1)


def components(g: Graphs) -> Ints:
    """The number of connected components of each graph [G]."""
    _, first = np.unique(_component_of_node(g), return_index=True)
    return np.bincount(g.graph_of_node[first], minlength=g.num_graphs).astype(np.int64)


def connected(g: Graphs) -> Bools:
    """Whether each graph is connected [G]; a graph without nodes is not."""
    return np.equal(components(g), 1)


def _component_of_node(g: Graphs) -> Ints:
    offsets, neighbours = g.csr
    if g.num_nodes == 0:
        return np.zeros(0, dtype=np.int64)
    ones = np.ones(len(neighbours), dtype=np.int8)
    matrix = csr_array((ones, neighbours, offsets), shape=(g.num_nodes, g.num_nodes))
    return np.asarray(connected_components(matrix, directed=False)[1], dtype=np.int64)


def _adjacent(g: Graphs, u: Ints, v: Ints) -> Bools:
    if len(g.edges) == 0:
        return np.zeros(len(u), dtype=np.bool_)
    wanted = _key(u, v, g.num_nodes)
    found = np.searchsorted(g.edge_keys, wanted)
    return np.equal(g.edge_keys[np.minimum(found, len(g.edges) - 1)], wanted)


def _wedges(g: Graphs) -> tuple[Ints, Ints, Ints, Ints]:
    """Paths v - u - w for every edge (v, u), u its end of lower rank: (edge, rank, v, w).

    Rank orders nodes by degree, so hubs are never expanded and the list stays short.
    """
    offsets, neighbours = g.csr
    rank = np.empty(g.num_nodes, dtype=np.int64)
    rank[np.argsort(degrees(g), kind="stable")] = np.arange(g.num_nodes)
    a, b = g.edges.T
    u, other = np.where(rank[a] < rank[b], (a, b), (b, a))
    count = offsets[u + 1] - offsets[u]
    edge = np.repeat(np.arange(len(u)), count)
    v, w = other[edge], neighbours[_ranges(offsets[u], count)]
    real = v != w
    return edge[real], rank, v[real], w[real]


def _corner_sums(g: Graphs, on_edge: Ints) -> Ints:
    """Triangles per node from triangles per edge: each counts on two edges of each corner."""
    total = np.zeros(g.num_nodes, dtype=np.int64)
    np.add.at(total, g.edges, on_edge[:, None])
    return total // 2


def _cliques(g: Graphs, edge: Ints, tip: Ints, once: Bools) -> Ints:
    """4-cliques: two triangles, each listed once at its lowest edge, whose tips are adjacent."""
    edge, tip = edge[once], tip[once]
    place = np.arange(len(edge))
    later = np.searchsorted(edge, edge, side="right") - place - 1
    first, second = np.repeat(place, later), _ranges(place + 1, later)
    hit = _adjacent(g, tip[first], tip[second])
    return np.bincount(g.graph_of_edge[edge[first[hit]]], minlength=g.num_graphs).astype(np.int64)


def _cycles(g: Graphs, v: Ints, w: Ints, lower: Bools) -> Ints:
    """4-cycles: pairs of wedges from the highest node v to the same opposite node w."""
    nodes = max(g.num_nodes, 1)
    pair, wedges = np.unique(v[lower] * nodes + w[lower], return_counts=True)
    return sum_runs(wedges * (wedges - 1) // 2, np.searchsorted(pair, g.ptr * nodes))


# ------------------------------------------------------------------------------------ hashing

# Two lanes, each its own 64-bit mixer (splitmix64 and MurmurHash3's finaliser): a column a lane.
_ADD = np.array([0x9E3779B97F4A7C15, 0xD1B54A32D192ED03], dtype=np.uint64)
_TIMES = np.array(
    [[0xBF58476D1CE4E5B9, 0xFF51AFD7ED558CCD], [0x94D049BB133111EB, 0xC4CEB9FE1A85EC53]],
    dtype=np.uint64,
)
_SHIFT = np.array([[30, 33], [27, 33], [31, 33]], dtype=np.uint64)
_OWN = np.array([0xD6E8FEB86659FD93, 0xA0761D6478BD642F], dtype=np.uint64)


def _mix(words: Words, lanes: slice = slice(None)) -> Words:
    z = words + _ADD[lanes]
    z = (z ^ (z >> _SHIFT[0, lanes])) * _TIMES[0, lanes]
    z = (z ^ (z >> _SHIFT[1, lanes])) * _TIMES[1, lanes]
    return z ^ (z >> _SHIFT[2, lanes])


def wl_hash(g: Graphs, labels: ArrayLike | None = None, rounds: int = 3) -> Words:
    """A 128-bit Weisfeiler-Lehman hash of each graph as two words [G,2].

    Isomorphic graphs hash alike; so do those that `rounds` rounds of colour refinement cannot
    tell apart. Integers only: the value is the same on every machine and may be stored.
    """
    if rounds < 0:
        raise ParameterError(f"rounds is {rounds}", "use 0 or more")
    own = np.zeros(g.num_nodes, dtype=np.int64) if labels is None else np.asarray(labels)
    if own.shape != (g.num_nodes,) or own.dtype.kind not in "iub":
        raise ParameterError(
            f"labels of shape {own.shape} and type {own.dtype} for {g.num_nodes} nodes",
            "give one integer per node; label_nodes(x) makes them from features",
        )
    offsets, neighbours = g.csr
    colour = _mix(np.repeat(own.astype(np.uint64)[:, None], 2, axis=1))
    for _ in range(rounds):
        colour = _mix(colour * _OWN + sum_runs(colour[neighbours], offsets))
    return _mix(sum_runs(_mix(colour), g.ptr) + g.sizes.astype(np.uint64)[:, None] * _OWN)


def label_nodes(x: ArrayLike, decimals: int = 4) -> Words:
    """One stable label per feature row [N]: rows equal after rounding get equal labels."""
    rows = np.asarray(x, dtype=np.float64)
    # Beyond 2**53 a float is no exact integer, and its cast differs between machines.
    whole = np.clip(np.rint(rows * 10.0**decimals), -(2.0**53), 2.0**53).astype(np.int64)
    row, column = np.nonzero(whole)  # zeros add nothing: one-hot rows and word counts stay cheap
    lane = slice(0, 1)
    place = _mix(np.arange(rows.shape[1], dtype=np.uint64), lane)
    cells = _mix(whole[row, column].astype(np.uint64) + place[column], lane)
    return _mix(sum_runs(cells, np.searchsorted(row, np.arange(len(rows) + 1))), lane)


# ------------------------------------------------------------------------- rewiring, sampling


def rewire(g: Graphs, swaps: int, draws: Draws, tries: int = 20) -> tuple[Graphs, Ints]:
    """The graphs after `swaps` degree-preserving double-edge swaps each, and how many succeeded.

    A graph gets at most `tries * swaps` attempts. Every attempt draws for all graphs of the batch
    in one call (edge, other edge, flip: 3 G numbers), until all graphs are done; so the result
    hangs on the batch and the stream alone. Features stay on their nodes.
    """
    if swaps < 0 or tries < 1:
        raise ParameterError(f"swaps={swaps}, tries={tries}", "use swaps >= 0 and tries >= 1")
    nodes, owner, start, count = g.num_nodes, g.graph_of_edge, g.edge_ptr[:-1], np.diff(g.edge_ptr)
    edges, keys = g.edges.copy(), g.edge_keys.copy()
    done = np.zeros(g.num_graphs, dtype=np.int64)
    bounds = np.concatenate([np.maximum(count, 1), np.maximum(count - 1, 1), 0 * count + 2])
    for _ in range(swaps * tries):
        live = np.flatnonzero((count >= 2) & (done < swaps))
        if len(live) == 0:
            break
        drawn = draws.below(bounds).reshape(3, -1)[:, live]
        one = start[live] + drawn[0]
        other = start[live] + drawn[1] + (drawn[1] >= drawn[0])
        (a, b), (c, d) = edges[one].T, np.where(drawn[2], edges[other, ::-1].T, edges[other].T)
        new = np.stack([_key(a, d, nodes), _key(c, b, nodes)])
        # No loops, no doubles; where a = c or b = d the "new" edges are the old ones, so present.
        good = (a != d) & (b != c) & ~_present(keys, owner, live, new, len(g))
        one, other = one[good], other[good]
        keys[one], keys[other] = new[:, good]
        edges[one], edges[other] = _unkey(keys[one], nodes), _unkey(keys[other], nodes)
        done[live[good]] += 1
    return Graphs(g.ptr, _unkey(np.sort(keys), nodes), g.x), done


def _present(keys: Ints, owner: Ints, live: Ints, new: Ints, graphs: int) -> Bools:
    """Whether either new edge of each live graph exists already."""
    # Comparing with all edges of the graph costs O(E) and needs neither a dense matrix nor a sort.
    wanted = np.full((2, graphs), -1, dtype=np.int64)
    wanted[:, live] = new
    found = np.zeros(graphs, dtype=np.bool_)
    found[owner[(keys == wanted[:, owner]).any(axis=0)]] = True
    return found[live]


def sample_subgraphs(g: Graphs, count: int, draws: Draws, low: int = 12, high: int = 32) -> Graphs:
    """Connected random induced subgraphs of one big graph, with features, of low..high nodes.

    Each starts at a uniform node and grows by a random neighbour of a random member. Starts in
    components smaller than `low` are dropped, so there may be fewer than `count`.
    """
    if len(g) != 1:
        raise ParameterError(f"subgraphs are drawn from one graph, not {len(g)}", "use g.take([i])")
    if not (1 <= low <= high and count >= 1):
        raise ParameterError(
            f"count={count}, low={low}, high={high}", "use count >= 1 and 1 <= low <= high"
        )
    members, size = _grow(g, count, draws, low, high) if g.num_nodes else (g.edges, g.ptr[1:1])
    if len(size) == 0:
        raise DataError(
            f"no sampled node lies in a component of {low} nodes or more",
            "lower `low`, or give a graph with larger components",
        )
    place = np.arange(high)
    members = np.sort(np.where(place < size[:, None], members, g.num_nodes), axis=1)
    ptr = _offsets(size)
    i, j = np.triu_indices(high, k=1)
    sample, pair = np.nonzero(j < size[:, None])
    hit = _adjacent(g, members[sample, i[pair]], members[sample, j[pair]])
    ends = np.stack([i, j], axis=1)[pair[hit]] + ptr[sample[hit], None]
    x = None if g.x is None else g.x[members[place < size[:, None]]]
    return Graphs(ptr, ends, x)


def _grow(g: Graphs, count: int, draws: Draws, low: int, high: int) -> tuple[Ints, Ints]:
    """Member nodes [count', high] in the order of growth, and how many of them count."""
    offsets, neighbours = g.csr
    start = draws.below(np.full(count, g.num_nodes, dtype=np.int64))
    target = low + draws.below(np.full(count, high - low + 1, dtype=np.int64))
    component = _component_of_node(g)
    room = np.bincount(component)[component[start]]
    start, target = start[room >= low], np.minimum(target, room)[room >= low]
    members = np.full((len(start), high), -1, dtype=np.int64)
    members[:, 0] = start
    size = np.ones(len(start), dtype=np.int64)
    # A path of n nodes needs about n**2 / 2 steps; what is stuck after 16 n**2 is let go.
    for _ in range(16 * high * high):
        live = np.flatnonzero(size < target)
        if len(live) == 0:
            break
        node = members[live, draws.below(size[live])]
        new = neighbours[offsets[node] + draws.below(offsets[node + 1] - offsets[node])]
        fresh = (members[live] != new[:, None]).all(axis=1)
        live, new = live[fresh], new[fresh]
        members[live, size[live]] = new
        size[live] += 1
    return members[size >= low], size[size >= low]
