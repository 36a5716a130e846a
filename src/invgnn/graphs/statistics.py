"""Counts on many graphs at once: degrees, triangles, four-node motifs, connected components."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from invgnn.graphs.adjacency import adjacent
from invgnn.graphs.disjoint_union import Bools, Floats, Graphs, Ints, offsets_of, ranges, sum_runs

HUBS = 8
"""With more wedges per edge than this, in the order of node numbers, nodes are ordered by degree."""


def degrees(g: Graphs) -> Ints:
    """Return the degree of every node [N]."""
    return np.bincount(g.edges.ravel(), minlength=g.num_nodes).astype(np.int64)


def triangles(g: Graphs) -> Ints:
    """Count the triangles through every node [N]."""
    ends = offsets_of(np.bincount(g.edges[:, 0], minlength=g.num_nodes))[g.edges[:, 0] + 1]
    place = np.arange(len(g.edges))
    later = ends - place - 1  # later edges with the same lower end: each forms a wedge with this edge
    if later.sum() > HUBS * len(g.edges):
        edge, _, v, w = _wedges(g)
        return _corner_sums(g, np.bincount(edge[adjacent(g, v, w)], minlength=len(g.edges)))
    u, v = g.edges.T
    one, other = np.repeat(place, later), ranges(place + 1, later)
    closed = np.flatnonzero(adjacent(g, v[one], v[other]))
    one, other = one[closed], other[closed]
    return np.bincount(np.concatenate([u[one], v[one], v[other]]), minlength=g.num_nodes).astype(np.int64)


def clustering(g: Graphs) -> Floats:
    """Compute the local clustering coefficient of every node [N]; 0 below degree 2.

    The value is one division of two exact integers, so it has the same bits on every machine.
    """
    degree = degrees(g)
    out = np.zeros(g.num_nodes)
    np.divide(2 * triangles(g), degree * (degree - 1), out=out, where=degree > 1)
    return out


def motifs(g: Graphs) -> Ints:
    """Count induced four-node motifs [G,6]: path, star, cycle, tailed triangle, diamond, clique."""
    edge, rank, v, w = _wedges(g)
    degree, closed = degrees(g), adjacent(g, v, w)
    on_edge = np.bincount(edge[closed], minlength=len(g.edges))
    on_node = _corner_sums(g, on_edge)
    a, b = degree[g.edges].T

    def by_node(values: Ints) -> Ints:
        """Sum node values over each graph."""
        return sum_runs(values, g.ptr)

    def by_edge(values: Ints) -> Ints:
        """Sum edge values over each graph."""
        return sum_runs(values, g.edge_ptr)

    # First count every copy, induced or not, ...
    clique = _cliques(g, edge, w, closed & (rank[v] < rank[w]))
    cycle = _cycles(g, v, w, rank[w] < rank[v])
    diamond = by_edge(on_edge * (on_edge - 1) // 2)
    tailed = by_node(on_node * (degree - 2))
    star = by_node(degree * (degree - 1) * (degree - 2) // 6)
    path = by_edge((a - 1) * (b - 1)) - by_node(on_node)
    # ... then subtract the copies inside denser motifs, densest first.
    diamond = diamond - 6 * clique
    cycle = cycle - diamond - 3 * clique
    tailed = tailed - 4 * diamond - 12 * clique
    star = star - tailed - 2 * diamond - 4 * clique
    path = path - 4 * cycle - 2 * tailed - 6 * diamond - 12 * clique
    return np.stack([path, star, cycle, tailed, diamond, clique], axis=1)


def components(g: Graphs) -> Ints:
    """Count the connected components of each graph [G]."""
    component = component_of_node(g)
    graph = np.zeros(component.max(initial=-1) + 1, dtype=np.int64)
    graph[component] = g.graph_of_node
    return np.bincount(graph, minlength=g.num_graphs).astype(np.int64)


def connected(g: Graphs) -> Bools:
    """Return whether each graph is connected [G]; a graph without nodes is not."""
    return np.equal(components(g), 1)


def component_of_node(g: Graphs) -> Ints:
    """Return the number of the component of every node [N], counted through the whole union."""
    if g.num_nodes == 0:
        return np.zeros(0, dtype=np.int64)
    u, v = g.edges.T.copy()  # scipy needs contiguous arrays
    offsets = offsets_of(np.bincount(u, minlength=g.num_nodes))  # one direction is enough
    matrix = csr_array((np.ones(len(v)), v, offsets), shape=(g.num_nodes, g.num_nodes))
    return np.asarray(connected_components(matrix, directed=False)[1], dtype=np.int64)


def _wedges(g: Graphs) -> tuple[Ints, Ints, Ints, Ints]:
    """Return paths v - u - w for every edge (v, u), where u is its end of lower rank: (edge, rank, v, w).

    Ranks order nodes by degree. Hubs are therefore never expanded, and the list stays short.
    """
    offsets, neighbours = g.csr
    rank = np.empty(g.num_nodes, dtype=np.int64)
    rank[np.argsort(degrees(g), kind="stable")] = np.arange(g.num_nodes)
    a, b = g.edges.T
    u, other = np.where(rank[a] < rank[b], (a, b), (b, a))
    count = offsets[u + 1] - offsets[u]
    edge = np.repeat(np.arange(len(u)), count)
    v, w = other[edge], neighbours[ranges(offsets[u], count)]
    real = v != w
    return edge[real], rank, v[real], w[real]


def _corner_sums(g: Graphs, on_edge: Ints) -> Ints:
    """Return triangles per node from triangles per edge: each is counted on two edges of each corner."""
    total = np.zeros(g.num_nodes, dtype=np.int64)
    np.add.at(total, g.edges, on_edge[:, None])
    return total // 2


def _cliques(g: Graphs, edge: Ints, tip: Ints, once: Bools) -> Ints:
    """Count 4-cliques: two triangles, each listed once at its lowest edge, whose tips are adjacent."""
    edge, tip = edge[once], tip[once]
    place = np.arange(len(edge))
    later = np.searchsorted(edge, edge, side="right") - place - 1
    first, second = np.repeat(place, later), ranges(place + 1, later)
    hit = adjacent(g, tip[first], tip[second])
    return np.bincount(g.graph_of_edge[edge[first[hit]]], minlength=g.num_graphs).astype(np.int64)


def _cycles(g: Graphs, v: Ints, w: Ints, lower: Bools) -> Ints:
    """Count 4-cycles: pairs of wedges from the highest node v to the same opposite node w."""
    nodes = max(g.num_nodes, 1)
    pair, wedges = np.unique(v[lower] * nodes + w[lower], return_counts=True)
    return sum_runs(wedges * (wedges - 1) // 2, np.searchsorted(pair, g.ptr * nodes))
