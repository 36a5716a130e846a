"""Random graphs derived from given graphs: degree-preserving rewiring and connected subgraphs.

The order of the draws defines the carriers. Changing this breaks every mark in the field; golden vectors in
the tests guard it.
"""

from __future__ import annotations

import numpy as np

from invgnn.errors import DataError, ParameterError
from invgnn.graphs.adjacency import Matrices, adjacent
from invgnn.graphs.disjoint_union import Bools, Draws, Graphs, Ints, offsets_of, ranges, unkey_edges
from invgnn.graphs.statistics import component_of_node


def rewire(g: Graphs, swaps: int, draws: Draws, tries: int = 20) -> tuple[Graphs, Ints]:
    """Apply `swaps` degree-preserving double-edge swaps to every graph.

    Swaps of directed graphs exchange the targets of two edges, which keeps in- and out-degrees.

    A graph gets at most `tries * swaps` attempts. Every attempt draws 3 G numbers (an edge, another edge
    and a flip for all G graphs of the batch) until all graphs are finished, so the result depends only on
    the batch and the stream. Attempts that are certain to be made are drawn together. Features stay on
    their nodes.

    Args:
        g: The graphs.
        swaps: Number of swaps per graph.
        draws: The stream of random integers.
        tries: Number of attempts per swap.

    Returns:
        The rewired graphs, and the number of successful swaps of each.

    Raises:
        ParameterError: If `swaps` is negative or `tries` is less than 1.
    """
    if swaps < 0 or tries < 1:
        raise ParameterError(
            f"swaps={swaps} and tries={tries} are out of range", "use swaps >= 0 and tries >= 1"
        )
    count = np.diff(g.edge_ptr)
    bounds = np.concatenate([np.maximum(count, 1), np.maximum(count - 1, 1), 0 * count + 2])
    state, left = _Rewiring(g, swaps), swaps * tries
    while attempts := min(state.certain, left):
        state.attempt(draws.below(np.tile(bounds, attempts)).reshape(attempts, 3, -1))
        left -= attempts
        if not state.searched:
            state.drop_hopeless()
    edges = unkey_edges(np.sort(state.keys), g.num_nodes)
    return Graphs.unchecked(g.ptr, edges, g.x, g.is_directed), state.done


def rewire_within(g: Graphs, kind: Ints, swaps: int, draws: Draws) -> tuple[Graphs, Ints]:
    """Apply swaps to the edges between every two kinds of nodes separately.

    One pair of kinds comes after another. So every node keeps its degree towards every kind of node.

    Args:
        g: The graphs, directed if an edge joins nodes of two kinds.
        kind: The kind of every node, counted from 0 [N].
        swaps: Number of swaps per graph and pair of kinds.
        draws: The stream of random integers.

    Returns:
        The rewired graphs, and the number of successful swaps of each.
    """
    ends = kind[g.edges]
    pair = ends[:, 0] * (int(kind.max(initial=0)) + 1) + ends[:, 1]
    parts, total = [], np.zeros(len(g), dtype=np.int64)
    for one in np.unique(pair):
        found, done = rewire(
            Graphs.unchecked(g.ptr, g.edges[pair == one], None, g.is_directed), swaps, draws
        )
        parts.append(found.edges)
        total += done
    edges = np.concatenate(parts) if parts else g.edges
    edges = edges.take(np.lexsort((edges[:, 1], edges[:, 0])), axis=0)
    return Graphs.unchecked(g.ptr, edges, g.x, g.is_directed), total


EXHAUSTIVE_UP_TO = 64
"""Graphs up to this many edges are searched exhaustively for a possible swap after failed attempts."""
LOOKAHEAD = 1 << 9
"""Number of attempts, over all graphs, that are evaluated at once to find the next success."""
DRAW_LIMIT = 1 << 15
"""Largest number of attempts, over all graphs, that are drawn in one call."""


class _Rewiring:
    """The edges of many graphs during rewiring, and the graphs that still need swaps."""

    def __init__(self, g: Graphs, swaps: int) -> None:
        self.swaps, self.nodes, self.directed = swaps, g.num_nodes, g.is_directed
        self.start, self.count = g.edge_ptr[:-1], np.diff(g.edge_ptr)
        (self.u, self.v), self.keys = g.edges.T.copy(), g.edge_keys.copy()
        self.matrices = Matrices.of(g)
        self.done = np.zeros(g.num_graphs, dtype=np.int64)
        self.live = np.flatnonzero(self.count >= 2)
        self.stuck = self.searched = False

    @property
    def certain(self) -> int:
        """The number of attempts that are certain to be made, whatever their outcome.

        If some graph is stuck, all its attempts are certain to be made; they are drawn in blocks of
        `DRAW_LIMIT`.
        """
        if self.stuck:
            return max(1, DRAW_LIMIT // len(self.done))
        return int((self.swaps - self.done[self.live]).max(initial=0))

    def attempt(self, drawn: Ints) -> None:
        """Make attempts [A,3,G] (edge, other edge, flip) in every unfinished graph."""
        # A failed attempt changes nothing, so every graph can jump ahead to its next successful attempt.
        end, live = len(drawn), self.live
        at = np.zeros(len(live), dtype=np.int64)
        while len(live):
            ahead = at + np.arange(min(end, 1 + LOOKAHEAD // len(live)))[:, None]
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
        """Return the ends of both edges after a swap (lower and higher, or source and target), and whether
        the swap is allowed.
        """
        (a, c), (b, d) = self.u[both], self.v[both]
        if self.directed:  # a -> b and c -> d become a -> d and c -> b
            source, target = np.array([a, c]), np.array([d, b])
            allowed = (source != target) & ~self._present(source, target, graphs)
            return np.array([source, target]), allowed.all(axis=0)
        one, other = np.array([a, np.where(turned, d, c)]), np.array([np.where(turned, c, d), b])
        low, high = np.minimum(one, other), np.maximum(one, other)
        # No self-loops, no duplicates. With a = c or b = d the new edges are the old ones and are present.
        return np.array([low, high]), ((low < high) & ~self._present(low, high, graphs)).all(axis=0)

    def _present(self, low: Ints, high: Ints, graphs: Ints) -> Bools:
        """Return whether the edges (low, high) exist."""
        if self.matrices is not None:
            return self.matrices.joined(low, high)
        known = np.sort(self.keys[ranges(self.start[graphs], self.count[graphs])])
        new = low * self.nodes + high
        return np.asarray(known.take(np.searchsorted(known, new), mode="clip") == new)

    def _swap(self, edges: Ints, ends: Ints) -> None:
        """Replace edges by others, given by their lower and higher ends."""
        if self.matrices is not None:
            self.matrices.put(self.u[edges], self.v[edges], False)
            self.matrices.put(ends[0], ends[1], True)
        self.u[edges], self.v[edges] = ends
        self.keys[edges] = ends[0] * self.nodes + ends[1]

    def drop_hopeless(self) -> None:
        """Stop attempts on graphs in which no swap is possible.

        Every swap can be reversed. So only a graph without a single successful swap can be hopeless, and it
        stays so.
        """
        idle = (self.done[self.live] == 0) & (self.count[self.live] <= EXHAUSTIVE_UP_TO)
        hopeless = np.zeros(len(idle), dtype=np.bool_)
        hopeless[idle] = ~self._swappable(self.live[idle])
        self.stuck, self.searched = bool(hopeless.any()), True
        self.live = self.live[~hopeless]

    def _swappable(self, graphs: Ints) -> Bools:
        """Return whether some pair of edges of each graph can be swapped."""
        sizes = self.count[graphs]
        place = ranges(self.start[graphs], sizes)
        later = np.repeat(self.start[graphs] + sizes, sizes) - place - 1
        both = np.array([np.repeat(place, later), ranges(place + 1, later)])
        good = self._swapped(both, False, graphs)[1] | self._swapped(both, True, graphs)[1]
        able = np.zeros(len(graphs), dtype=np.bool_)
        able[np.repeat(np.repeat(np.arange(len(graphs)), sizes), later)[good]] = True
        return able


def sample_subgraphs(g: Graphs, count: int, draws: Draws, low: int = 12, high: int = 32) -> Graphs:
    """Draw connected random induced subgraphs of one large graph, with features.

    Each subgraph starts at a uniform node and grows by a random neighbour of a random member. Starts in
    components with fewer than `low` nodes are dropped, so there may be fewer than `count` subgraphs.

    Args:
        g: One graph.
        count: Number of subgraphs to start.
        draws: The stream of random integers.
        low: Smallest number of nodes.
        high: Largest number of nodes.

    Returns:
        The subgraphs.

    Raises:
        ParameterError: If there is not exactly one graph, or a number is out of range.
        DataError: If every start lies in a component that is too small.
    """
    if len(g) != 1:
        raise ParameterError(
            f"subgraphs are drawn from one graph, but {len(g)} were given", "use g.take([i])"
        )
    if not (1 <= low <= high and count >= 1):
        raise ParameterError(
            f"count={count}, low={low} and high={high} are out of range",
            "use count >= 1 and 1 <= low <= high",
        )
    members, size = _grow(g, count, draws, low, high) if g.num_nodes else (g.edges, g.ptr[1:1])
    if len(size) == 0:
        raise DataError(
            f"no sampled node lies in a component of {low} nodes or more",
            "lower `low`, or use a graph with larger components",
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
    """Return the member nodes [count', high] in the order of growth, and the size of every subgraph."""
    offsets, neighbours = g.csr
    start = draws.below(np.full(count, g.num_nodes, dtype=np.int64))
    target = low + draws.below(np.full(count, high - low + 1, dtype=np.int64))
    component = component_of_node(g)
    room = np.bincount(component)[component[start]]
    start, target = start[room >= low], np.minimum(target, room)[room >= low]
    members = np.full((len(start), high), -1, dtype=np.int64)
    members[:, 0] = start
    size = np.ones(len(start), dtype=np.int64)
    # A path of n nodes needs about n**2 / 2 steps. Subgraphs unfinished after 16 n**2 steps are dropped.
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
