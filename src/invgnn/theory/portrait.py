"""128 statistics per graph, the bank over which carriers are compared."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from invgnn.errors import ParameterError
from invgnn.graphs.disjoint_union import Floats, Graphs, Ints, sum_runs
from invgnn.graphs.statistics import clustering, degrees, motifs, triangles

ORDERS = range(1, 9)
QUANTILES = np.linspace(0, 1, 11)
MOTIFS = ("path", "star", "cycle", "tailed triangle", "diamond", "clique")
PER_NODE = ("degree", "clustering", "triangles", "neighbour degree")


def names() -> list[str]:
    """Return the names of the 128 columns of `portrait`.

    The paper names families (degree moments, clustering, assortativity, 4-node motifs, the perception)
    and a total. Four numbers per node, each with 8 moments, 7 central moments and 11 quantiles, make 104;
    four of the whole graph 108; assortativity 109; the six connected motifs as counts, logarithms and
    shares 127; the perception 128.
    """
    summaries = [f"moment {k}" for k in ORDERS] + [f"central moment {k}" for k in ORDERS[1:]]
    summaries += [f"quantile {q:.1f}" for q in QUANTILES]
    listed = [f"{what}: {summary}" for what in PER_NODE for summary in summaries]
    listed += ["nodes", "edges", "density", "transitivity", "assortativity"]
    listed += [f"{kind}: {motif}" for kind in ("count", "log count", "share") for motif in MOTIFS]
    return [*listed, "perception"]


def portrait(graphs: Graphs, perceived: ArrayLike) -> Floats:
    """Return the statistics [G,128] of every graph.

    Args:
        graphs: The graphs.
        perceived: The perception of a model, one number per graph.

    Raises:
        ParameterError: If there is not one perception per graph, or a graph has no nodes.
    """
    said = np.asarray(perceived, dtype=np.float64)
    if said.shape != (len(graphs),) or (len(graphs) and graphs.sizes.min() < 1):
        raise ParameterError(
            f"perceptions of shape {said.shape} for {len(graphs)} graphs, or a graph without nodes",
            "pass one per graph, and only graphs with nodes",
        )
    degree, closed = degrees(graphs), triangles(graphs)
    per_node = (degree, clustering(graphs), closed, neighbour_degree(graphs, degree))
    parts = [summaries(np.asarray(values, dtype=np.float64), graphs.ptr) for values in per_node]
    return np.column_stack(
        [*parts, _whole(graphs, degree, closed), assortativity(graphs), _motifs(graphs), said]
    )


def summaries(values: Floats, ptr: Ints) -> Floats:
    """Return moments, central moments and quantiles [G,26] of the values in each run.

    Moments are given as k-th roots with their sign, in the unit of the values. Otherwise the eighth power
    of the largest degree would dominate everything else.

    Args:
        values: The values.
        ptr: Boundaries of the runs.
    """
    sizes = np.diff(ptr)
    mean = sum_runs(values, ptr) / sizes
    apart = values - np.repeat(mean, sizes)
    raw = [_root(sum_runs(values**k, ptr) / sizes, k) for k in ORDERS]
    central = [_root(sum_runs(apart**k, ptr) / sizes, k) for k in ORDERS[1:]]
    return np.column_stack([*raw, *central, quantiles(values, ptr)])


def _root(moment: Floats, order: int) -> Floats:
    """Return the k-th root of a moment, with its sign."""
    return np.asarray(np.sign(moment) * np.abs(moment) ** (1 / order))


def quantiles(values: Floats, ptr: Ints) -> Floats:
    """Return the deciles [G,11] of the values in each run, interpolated as in numpy.

    Args:
        values: The values.
        ptr: Boundaries of the runs.
    """
    sizes = np.diff(ptr)
    ordered = values[np.lexsort((values, np.repeat(np.arange(len(sizes)), sizes)))]
    place = QUANTILES * (sizes[:, None] - 1)
    below = np.floor(place).astype(np.int64)
    above = np.minimum(below + 1, sizes[:, None] - 1)
    low, high = (ordered[ptr[:-1, None] + at] for at in (below, above))
    return np.asarray(low + (place - below) * (high - low))


def neighbour_degree(graphs: Graphs, degree: Ints) -> Floats:
    """Return the mean degree of every node's neighbours [N], 0 for a node without neighbours.

    Args:
        graphs: The graphs.
        degree: The degree of every node.
    """
    source, target = graphs.directed()
    total = np.bincount(source, weights=degree[target], minlength=graphs.num_nodes)
    return np.asarray(total / np.maximum(degree, 1))


def assortativity(graphs: Graphs) -> Floats:
    """Return the correlation of degrees across the edges of each graph [G], 0 if all degrees are equal."""
    ends = degrees(graphs)[graphs.edges].astype(np.float64)
    count = np.maximum(np.diff(graphs.edge_ptr), 1)
    # Each edge counts in both directions, so both ends have the same mean and variance.
    mean = sum_runs(ends.sum(axis=1), graphs.edge_ptr) / (2 * count)
    apart = ends - mean[graphs.graph_of_edge, None]
    both = sum_runs(apart.prod(axis=1), graphs.edge_ptr) / count
    spread = sum_runs((apart**2).sum(axis=1), graphs.edge_ptr) / (2 * count)
    return np.asarray(np.divide(both, spread, out=np.zeros_like(both), where=spread > 1e-12))


def _whole(graphs: Graphs, degree: Ints, closed: Ints) -> Floats:
    """Return number of nodes, number of edges, density and transitivity of every graph."""
    nodes, edges = graphs.sizes, np.diff(graphs.edge_ptr)
    wedges = sum_runs(degree * (degree - 1) // 2, graphs.ptr)
    density = edges / np.maximum(nodes * (nodes - 1) / 2, 1)
    return np.column_stack([nodes, edges, density, sum_runs(closed, graphs.ptr) / np.maximum(wedges, 1)])


def _motifs(graphs: Graphs) -> Floats:
    """Return counts, log counts and shares of the connected 4-node motifs of every graph."""
    counts = motifs(graphs).astype(np.float64)
    share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    return np.concatenate([counts, np.log1p(counts), share], axis=1)
