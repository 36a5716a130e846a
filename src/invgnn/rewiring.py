"""Graphs made from graphs at random: degree-preserving rewiring and connected subgraphs."""

from __future__ import annotations

import numpy as np

from invgnn.counts import component_of_node
from invgnn.errors import DataError, ParameterError
from invgnn.graphs import Bools, Draws, Graphs, Ints, adjacent, key_edges, offsets_of, ranges, unkey_edges


def rewire(g: Graphs, swaps: int, draws: Draws, tries: int = 20) -> tuple[Graphs, Ints]:
    """The graphs after `swaps` degree-preserving double-edge swaps each, and how many succeeded.

    A graph gets at most `tries * swaps` attempts. Every attempt draws for all graphs of the batch
    in one call (edge, other edge, flip: 3 G numbers), until all graphs are done; so the result
    hangs on the batch and the stream alone. Features stay on their nodes.
    """
    if swaps < 0 or tries < 1:
        raise ParameterError(f"swaps={swaps}, tries={tries}", "use swaps >= 0 and tries >= 1")
    count = np.diff(g.edge_ptr)
    bounds = np.concatenate([np.maximum(count, 1), np.maximum(count - 1, 1), 0 * count + 2])
    state = _Rewiring(g, swaps)
    for number in range(swaps * tries):
        if not state.wanting:
            break
        drawn = draws.below(bounds).reshape(3, -1)
        if number == 2 * swaps:
            state.let_go()
        if len(state.live):
            state.attempt(drawn)
    return Graphs(g.ptr, unkey_edges(np.sort(state.keys), g.num_nodes), g.x), state.done


LOOKED_THROUGH = 64
"""The most edges of a graph that is looked through for any possible swap once several have failed."""


class _Rewiring:
    """The edges of many graphs while they are swapped, and which graphs still want swaps."""

    def __init__(self, g: Graphs, swaps: int) -> None:
        self.swaps, self.nodes = swaps, g.num_nodes
        self.start, self.count = g.edge_ptr[:-1], np.diff(g.edge_ptr)
        (self.u, self.v), self.keys = g.edges.T.copy(), g.edge_keys.copy()
        self.done = np.zeros(g.num_graphs, dtype=np.int64)
        self.stuck = False
        self._watch(np.flatnonzero(self.count >= 2))

    def _watch(self, live: Ints) -> None:
        self.live, self.base, sizes = live, self.start[live], self.count[live]
        self.edge = ranges(self.base, sizes)
        self.owner = np.repeat(np.arange(len(live)), sizes)

    @property
    def wanting(self) -> bool:
        """Whether some graph has fewer swaps than it should, be it past help."""
        return len(self.live) > 0 or self.stuck

    def attempt(self, drawn: Ints) -> None:
        """One attempt in every live graph: edge, other edge, flip."""
        first, second, flip = drawn.take(self.live, axis=1)
        both = np.array([first, second + (second >= first)]) + self.base  # numpy's stack takes far longer
        (a, c), (b, d) = self.u[both], self.v[both]
        turned = flip > 0
        tail, head = np.array([a, np.where(turned, d, c)]), np.array([np.where(turned, c, d), b])
        low, high = np.minimum(tail, head), np.maximum(tail, head)
        new = low * self.nodes + high
        # No loops, no doubles; where a = c or b = d the "new" edges are the old ones, so present.
        good = (low < high).all(axis=0) & ~_present(self.keys[self.edge], self.owner, *new)
        if not good.any():
            return
        old = both[:, good]
        self.u[old], self.v[old], self.keys[old] = low[:, good], high[:, good], new[:, good]
        self.done[self.live[good]] += 1
        left = self.done[self.live] < self.swaps
        if not left.all():
            self._watch(self.live[left])

    def let_go(self) -> None:
        """Stop trying graphs without a single possible swap.

        What was swapped can be swapped back, so only graphs never swapped can be such, and they stay so.
        """
        idle = (self.done[self.live] == 0) & (self.count[self.live] <= LOOKED_THROUGH)
        hopeless = np.zeros(len(idle), dtype=np.bool_)
        hopeless[idle] = ~self._swappable(self.live[idle])
        self.stuck = bool(hopeless.any())
        self._watch(self.live[~hopeless])

    def _swappable(self, graphs: Ints) -> Bools:
        """Whether any two edges of each graph can be swapped."""
        sizes = self.count[graphs]
        place = ranges(self.start[graphs], sizes)
        later = np.repeat(self.start[graphs] + sizes, sizes) - place - 1
        one, other = np.repeat(place, later), ranges(place + 1, later)
        known = np.sort(self.keys[place])

        def free(x: Ints, y: Ints) -> Bools:
            key = key_edges(x, y, self.nodes)
            found = np.minimum(np.searchsorted(known, key), max(len(known) - 1, 0))
            return np.not_equal(x, y) & np.not_equal(known[found], key)

        a, b, c, d = self.u[one], self.v[one], self.u[other], self.v[other]
        good = (free(a, d) & free(c, b)) | (free(a, c) & free(d, b))
        able = np.zeros(len(graphs), dtype=np.bool_)
        able[np.repeat(np.repeat(np.arange(len(graphs)), sizes), later)[good]] = True
        return able


def _present(keys: Ints, owner: Ints, one: Ints, other: Ints) -> Bools:
    """Whether either new edge of each graph is among its keys, given whose each key is."""
    # Comparing with all edges of the graph costs O(E) and needs neither a dense matrix nor a sort.
    found = np.zeros(len(one), dtype=np.bool_)
    found[owner[(keys == one[owner]) | (keys == other[owner])]] = True
    return found


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
    ptr = offsets_of(size)
    i, j = np.triu_indices(high, k=1)
    sample, pair = np.nonzero(j < size[:, None])
    hit = adjacent(g, members[sample, i[pair]], members[sample, j[pair]])
    ends = np.stack([i, j], axis=1)[pair[hit]] + ptr[sample[hit], None]
    x = None if g.x is None else g.x[members[place < size[:, None]]]
    return Graphs(ptr, ends, x)


def _grow(g: Graphs, count: int, draws: Draws, low: int, high: int) -> tuple[Ints, Ints]:
    """Member nodes [count', high] in the order of growth, and how many of them count."""
    offsets, neighbours = g.csr
    start = draws.below(np.full(count, g.num_nodes, dtype=np.int64))
    target = low + draws.below(np.full(count, high - low + 1, dtype=np.int64))
    component = component_of_node(g)
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
