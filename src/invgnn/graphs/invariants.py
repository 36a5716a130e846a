"""Numbers of a graph that no renumbering changes, and the targets made from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array, diags_array
from scipy.sparse.linalg import ArpackError, eigsh

from invgnn.errors import DataError, ParameterError
from invgnn.graphs.disjoint_union import Floats, Graphs, Ints, sum_runs
from invgnn.graphs.statistics import connected, degrees, triangles

Invariant: TypeAlias = Callable[[Graphs], Floats]

EPSILON = 1e-6  # the paper solves for L + 1e-6 I; it is taken off again
DENSE_UP_TO = 500  # nodes; above, a sparse solver is faster
BLOCK = 1 << 24  # matrix entries solved at once: 128 MB
DECIMALS = 9  # coarser than any solver's error, finer than any threshold needs

INVARIANTS: dict[str, Invariant] = {}


def invariant(function: Invariant) -> Invariant:
    """The function itself, now found under its name in `INVARIANTS`."""
    name = function.__name__
    if name in INVARIANTS:
        raise ParameterError(f"there is already an invariant {name!r}", "choose another name")
    INVARIANTS[name] = function
    return function


def find_invariant(name: str) -> Invariant:
    """The invariant of this name."""
    if name not in INVARIANTS:
        raise ParameterError(f"no invariant {name!r}", f"use one of {', '.join(sorted(INVARIANTS))}")
    return INVARIANTS[name]


@invariant
def lambda2(g: Graphs) -> Floats:
    """The algebraic connectivity of each graph [G]: exactly 0 if disconnected or a single node."""
    out = np.zeros(g.num_graphs)
    chosen = np.flatnonzero(connected(g) & (g.sizes > 1))
    values = _eigenvalues(g, chosen, _dense_laplacian, _sparse_lambda2, place=1)
    out[chosen] = np.maximum(values - EPSILON, 0.0)
    return out


@invariant
def spectral_radius(g: Graphs) -> Floats:
    """The largest adjacency eigenvalue of each graph [G], 0 without edges."""
    out = np.zeros(g.num_graphs)
    chosen = np.flatnonzero(np.diff(g.edge_ptr))
    out[chosen] = _eigenvalues(g, chosen, _dense_adjacency, _sparse_radius, place=-1)
    return out


@invariant
def triangle_count(g: Graphs) -> Floats:
    """The number of triangles of each graph [G]."""
    return np.asarray(sum_runs(triangles(g), g.ptr) // 3, dtype=np.float64)


@dataclass(frozen=True)
class Scale:
    """A frozen map of invariant values to [0,1]: `low` and below go to 0, `high` and above to 1."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not (np.isfinite(self.low) and np.isfinite(self.high) and self.low < self.high):
            raise ParameterError(f"low={self.low}, high={self.high}", "use finite low < high")

    @classmethod
    def fit(cls, values: ArrayLike) -> Scale:
        """The scale from the 5th to the 95th percentile, or least to greatest where these meet."""
        known = np.asarray(values, dtype=np.float64)
        if known.size == 0 or not np.isfinite(known).all():
            raise DataError("no values, or some not finite", "give one finite number per graph")
        negligible = 1e-9 * float(np.abs(known).max())
        for low, high in (np.percentile(known, [5, 95]), (known.min(), known.max())):
            if high - low > negligible:
                return cls(float(low), float(high))
        raise DataError(
            f"the invariant is {known.flat[0]:.6g} on all {known.size} graphs: it tells none apart",
            f"choose another invariant ({', '.join(sorted(INVARIANTS))}) or more varied graphs",
        )

    def __call__(self, values: ArrayLike) -> Floats:
        """The values on [0,1], rounded so that comparisons agree across machines."""
        known = np.asarray(values, dtype=np.float64)
        share = np.clip((known - self.low) / (self.high - self.low), 0.0, 1.0)
        return np.asarray(np.round(share, DECIMALS), dtype=np.float64)


def plain_bits(t: ArrayLike) -> Ints:
    """The paper's bits: 1 where the target is at least 1/2, else 0."""
    return (np.asarray(t, dtype=np.float64) >= 0.5).astype(np.int64)


def keyed_targets(t: ArrayLike, bits: ArrayLike, gap: float) -> Floats:
    """Targets whose side of 1/2 is the bit and whose distance from it is the invariant's, or `gap`.

    1/2 + (2w - 1) max(|t - 1/2|, gap): size from the invariant, sign from the secret.
    """
    if not 0.0 <= gap <= 0.5:
        raise ParameterError(f"gap is {gap}", "use a gap from 0 to 1/2")
    size, side = np.asarray(t, dtype=np.float64), np.asarray(bits, dtype=np.float64)
    if size.shape != side.shape or not np.isin(side, (0.0, 1.0)).all():
        raise ParameterError(
            f"targets of shape {size.shape} with bits of shape {side.shape}",
            "give one bit, 0 or 1, per target",
        )
    if not ((size >= 0.0) & (size <= 1.0)).all():
        raise ParameterError("a target lies outside [0,1]", "normalise with Scale first")
    return np.asarray(0.5 + (2.0 * side - 1.0) * np.maximum(np.abs(size - 0.5), gap))


# ------------------------------------------------------------------------------ eigenvalues


def _eigenvalues(
    g: Graphs,
    chosen: Ints,
    dense: Callable[[Ints, int, int], Floats],
    sparse: Callable[[Graphs], float],
    place: int,
) -> Floats:
    """One eigenvalue of each chosen graph: graphs of equal size together, large ones one by one."""
    order = np.argsort(g.sizes[chosen], kind="stable")
    g = Graphs.unchecked(g.ptr, g.edges).take(chosen[order])  # no features; equal sizes side by side
    out = np.zeros(g.num_graphs)
    for size, start, stop in _equal_sizes(g.sizes):
        if size > DENSE_UP_TO:
            out[order[start:stop]] = [sparse(g.take(one)) for one in range(start, stop)]
            continue
        edges = g.edges[g.edge_ptr[start] : g.edge_ptr[stop]] - g.ptr[start]
        out[order[start:stop]] = np.linalg.eigvalsh(dense(edges, size, stop - start))[:, place]
    return out


def _equal_sizes(sizes: Ints) -> Iterator[tuple[int, int, int]]:
    """Runs of equal numbers (the number, from, to), none of more matrix entries than a block."""
    values, starts = np.unique(sizes, return_index=True)
    stops = np.append(starts, len(sizes))[1:]
    for size, start, stop in np.stack([values, starts, stops], axis=1).tolist():
        step = max(1, BLOCK // size**2)
        for at in range(start, stop, step):
            yield size, at, min(at + step, stop)


def _dense_adjacency(edges: Ints, size: int, graphs: int, entry: float = 1.0) -> Floats:
    """The adjacency matrices [G,n,n] of graphs of n nodes each, numbered one after the other."""
    matrix = np.zeros((graphs * size, size))
    u, v = edges.T
    matrix[u, v % size] = matrix[v, u % size] = entry
    return matrix.reshape(graphs, size, size)


def _dense_laplacian(edges: Ints, size: int, graphs: int) -> Floats:
    matrix = _dense_adjacency(edges, size, graphs, -1.0)
    degree = np.bincount(edges.ravel(), minlength=graphs * size)
    place = np.arange(size)
    matrix[:, place, place] = degree.reshape(graphs, size) + EPSILON
    return matrix


def _sparse_adjacency(g: Graphs) -> Any:
    offsets, neighbours = g.csr
    shape = (g.num_nodes, g.num_nodes)
    return csr_array((np.ones(len(neighbours)), neighbours, offsets), shape=shape)


def _sparse_lambda2(g: Graphs) -> float:
    laplacian = (diags_array(degrees(g) + EPSILON) - _sparse_adjacency(g)).tocsc()
    # Inverting about 0 turns the crowded small end of the spectrum into the well separated large.
    try:
        found = eigsh(laplacian, k=2, sigma=0.0, v0=_start(g), return_eigenvectors=False)
    except ArpackError:
        found = np.linalg.eigvalsh(_dense_laplacian(g.edges, g.num_nodes, 1)[0])[:2]
    return float(np.max(found))


def _sparse_radius(g: Graphs) -> float:
    try:
        found = eigsh(_sparse_adjacency(g), k=1, which="LA", v0=_start(g), return_eigenvectors=False)
    except ArpackError:
        found = np.linalg.eigvalsh(_dense_adjacency(g.edges, g.num_nodes, 1)[0])[-1:]
    return float(found[0])


def _start(g: Graphs) -> Floats:
    # A fixed start leaves global random state alone; an uneven one is no eigenvector itself.
    golden = np.arange(g.num_nodes, dtype=np.float64) * 0.6180339887498949
    return 1.0 + golden % 1.0
