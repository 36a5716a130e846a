"""Graphs made from graphs at random: degree-preserving rewiring and connected subgraphs."""

from __future__ import annotations

import numpy as np

from invgnn.errors import DataError, ParameterError
from invgnn.graphs.adjacency import Matrices, adjacent
from invgnn.graphs.disjoint_union import Bools, Draws, Graphs, Ints, offsets_of, ranges, unkey_edges
from invgnn.graphs.statistics import component_of_node


def rewire(g: Graphs, swaps: int, draws: Draws, tries: int = 20) -> tuple[Graphs, Ints]:
    """The graphs after `swaps` degree-preserving double-edge swaps each, and how many succeeded.

    A graph gets at most `tries * swaps` attempts. Every attempt takes 3 G numbers (edge, other edge and
    flip, for all graphs of the batch), until all graphs are done; so the result hangs on the batch and
    the stream alone. Attempts that are certain to come are drawn together. Features stay on their nodes.
    """
    if swaps < 0 or tries < 1:
        raise ParameterError(f"swaps={swaps}, tries={tries}", "use swaps >= 0 and tries >= 1")
    count = np.diff(g.edge_ptr)
    bounds = np.concatenate([np.maximum(count, 1), np.maximum(count - 1, 1), 0 * count + 2])
    state, left = _Rewiring(g, swaps), swaps * tries
    while attempts := min(state.certain, left):
        state.attempt(draws.below(np.tile(bounds, attempts)).reshape(attempts, 3, -1))
        left -= attempts
        if not state.looked_through:
            state.let_go()
    return Graphs.unchecked(g.ptr, unkey_edges(np.sort(state.keys), g.num_nodes), g.x), state.done


LOOKED_THROUGH = 64
"""The most edges of a graph that is looked through for any possible swap once several have failed."""
AHEAD = 1 << 9
"""How many attempts, of all graphs together, are looked at for the next that succeeds."""
TOGETHER = 1 << 15
"""How many attempts, of all graphs together, are drawn in one call at most."""


class _Rewiring:
    """The edges of many graphs while they are swapped, and which graphs still want swaps."""

    def __init__(self, g: Graphs, swaps: int) -> None:
        self.swaps, self.nodes = swaps, g.num_nodes
        self.start, self.count = g.edge_ptr[:-1], np.diff(g.edge_ptr)
        (self.u, self.v), self.keys = g.edges.T.copy(), g.edge_keys.copy()
        self.matrices = Matrices.of(g)
        self.done = np.zeros(g.num_graphs, dtype=np.int64)
        self.live = np.flatnonzero(self.count >= 2)
        self.stuck = self.looked_through = False

    @property
    def certain(self) -> int:
        """How many attempts are sure to come, whatever becomes of them; beside a stuck graph, all."""
        if self.stuck:
            return max(1, TOGETHER // len(self.done))
        return int((self.swaps - self.done[self.live]).max(initial=0))

    def attempt(self, drawn: Ints) -> None:
        """Some attempts [A,3,G] in every live graph: edge, other edge, flip."""
        # An attempt that fails changes nothing, so every graph looks ahead to its next that succeeds.
        end, live = len(drawn), self.live
        at = np.zeros(len(live), dtype=np.int64)
        while len(live):
            ahead = at + np.arange(min(end, 1 + AHEAD // len(live)))[:, None]
            first, second, flip = drawn.swapaxes(0, 1)[:, np.minimum(ahead, end - 1), live]
            both = np.array([first, second + (second >= first)]) + self.start[live]
            ends, good = self._swapped(both, flip > 0, live)
            good &= ahead < end
            found = good.argmax(axis=0), np.arange(len(live))
            hit = good[found]
            self._swap(both[:, *found][:, hit], ends[:, :, *found][:, :, hit])
            self.done[live[hit]] += 1
            at = np.where(hit, ahead[found], ahead[-1]) + 1
            more = (at < end) & (self.done[live] < self.swaps)
            live, at = live[more], at[more]
        self.live = self.live[self.done[self.live] < self.swaps]

    def _swapped(self, both: Ints, turned: Bools | bool, graphs: Ints) -> tuple[Ints, Bools]:
        """The ends (lower, higher) of two edges each after a swap, and whether it is allowed."""
        (a, c), (b, d) = self.u[both], self.v[both]
        one, other = np.array([a, np.where(turned, d, c)]), np.array([np.where(turned, c, d), b])
        low, high = np.minimum(one, other), np.maximum(one, other)
        # No loops, no doubles; where a = c or b = d the "new" edges are the old ones, so present.
        return np.array([low, high]), ((low < high) & ~self._present(low, high, graphs)).all(axis=0)

    def _present(self, low: Ints, high: Ints, graphs: Ints) -> Bools:
        if self.matrices is not None:
            return self.matrices.joined(low, high)
        known = np.sort(self.keys[ranges(self.start[graphs], self.count[graphs])])
        new = low * self.nodes + high
        return np.asarray(known.take(np.searchsorted(known, new), mode="clip") == new)

    def _swap(self, edges: Ints, ends: Ints) -> None:
        if self.matrices is not None:
            self.matrices.put(self.u[edges], self.v[edges], False)
            self.matrices.put(ends[0], ends[1], True)
        self.u[edges], self.v[edges] = ends
        self.keys[edges] = ends[0] * self.nodes + ends[1]

    def let_go(self) -> None:
        """Stop trying graphs without a single possible swap.

        What was swapped can be swapped back, so only graphs never swapped can be such, and they stay so.
        """
        idle = (self.done[self.live] == 0) & (self.count[self.live] <= LOOKED_THROUGH)
        hopeless = np.zeros(len(idle), dtype=np.bool_)
        hopeless[idle] = ~self._swappable(self.live[idle])
        self.stuck, self.looked_through = bool(hopeless.any()), True
        self.live = self.live[~hopeless]

    def _swappable(self, graphs: Ints) -> Bools:
        """Whether any two edges of each graph can be swapped."""
        sizes = self.count[graphs]
        place = ranges(self.start[graphs], sizes)
        later = np.repeat(self.start[graphs] + sizes, sizes) - place - 1
        both = np.array([np.repeat(place, later), ranges(place + 1, later)])
        good = self._swapped(both, False, graphs)[1] | self._swapped(both, True, graphs)[1]
        able = np.zeros(len(graphs), dtype=np.bool_)
        able[np.repeat(np.repeat(np.arange(len(graphs)), sizes), later)[good]] = True
        return able


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
