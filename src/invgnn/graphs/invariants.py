"""Graph invariants (values that do not depend on the node numbering) and the targets made from them.

Targets are part of every mark. Changing this breaks every mark in the field; golden vectors in the tests
guard it.
"""

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

EPSILON = 1e-6  # the paper solves for L + 1e-6 I; the shift is subtracted again
DENSE_UP_TO = 500  # nodes; above, a sparse solver is faster
BLOCK = 1 << 24  # matrix entries per batch of the dense solver: 128 MB
DECIMALS = 9  # coarser than the error of any solver, finer than any threshold needs

INVARIANTS: dict[str, Invariant] = {}


def invariant(function: Invariant) -> Invariant:
    """Register a function under its name in `INVARIANTS` and return it unchanged; for use as a decorator.

    Raises:
        ParameterError: If the name is taken.
    """
    name = function.__name__
    if name in INVARIANTS:
        raise ParameterError(f"an invariant named {name!r} is already registered", "choose another name")
    INVARIANTS[name] = function
    return function


def find_invariant(name: str) -> Invariant:
    """Return the invariant registered under a name.

    Raises:
        ParameterError: If there is none.
    """
    if name not in INVARIANTS:
        raise ParameterError(f"unknown invariant {name!r}", f"use one of {', '.join(sorted(INVARIANTS))}")
    return INVARIANTS[name]


@invariant
def lambda2(g: Graphs) -> Floats:
    """Compute the algebraic connectivity of each graph [G].

    It is exactly 0 for a disconnected graph and for a single node.
    """
    out = np.zeros(g.num_graphs)
    chosen = np.flatnonzero(connected(g) & (g.sizes > 1))
    values = _eigenvalues(g, chosen, _dense_laplacian, _sparse_lambda2, place=1)
    out[chosen] = np.maximum(values - EPSILON, 0.0)
    return out


@invariant
def spectral_radius(g: Graphs) -> Floats:
    """Compute the largest adjacency eigenvalue of each graph [G]; 0 for a graph without edges."""
    out = np.zeros(g.num_graphs)
    chosen = np.flatnonzero(np.diff(g.edge_ptr))
    out[chosen] = _eigenvalues(g, chosen, _dense_adjacency, _sparse_radius, place=-1)
    return out


@invariant
def triangle_count(g: Graphs) -> Floats:
    """Count the triangles of each graph [G]."""
    return np.asarray(sum_runs(triangles(g), g.ptr) // 3, dtype=np.float64)


@dataclass(frozen=True)
class Scale:
    """A fixed linear map from invariant values to [0,1], clipped at both ends.

    Attributes:
        low: Values up to this one map to 0.
        high: Values from this one on map to 1.

    Raises:
        ParameterError: If the limits are not finite, or `low` is not below `high`.
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        if not (np.isfinite(self.low) and np.isfinite(self.high) and self.low < self.high):
            raise ParameterError(
                f"low={self.low} and high={self.high} are not an interval",
                "use finite numbers with low < high",
            )

    @classmethod
    def fit(cls, values: ArrayLike) -> Scale:
        """Return the scale from the 5th to the 95th percentile of the values.

        If the two percentiles coincide, the smallest and the largest value are used.

        Args:
            values: The invariant of every graph of a reference.

        Raises:
            DataError: If there are no values, some are not finite, or all are equal.
        """
        known = np.asarray(values, dtype=np.float64)
        if known.size == 0 or not np.isfinite(known).all():
            raise DataError(
                "there are no values, or some are not finite", "pass one finite number per graph"
            )
        negligible = 1e-9 * float(np.abs(known).max())
        for low, high in (np.percentile(known, [5, 95]), (known.min(), known.max())):
            if high - low > negligible:
                return cls(float(low), float(high))
        raise DataError(
            f"the invariant is {known.flat[0]:.6g} on all {known.size} graphs: it tells none apart",
            f"choose another invariant ({', '.join(sorted(INVARIANTS))}) or more varied graphs",
        )

    def __call__(self, values: ArrayLike) -> Floats:
        """Map values to [0,1], rounded to `DECIMALS` digits so that all machines agree on comparisons."""
        known = np.asarray(values, dtype=np.float64)
        share = np.clip((known - self.low) / (self.high - self.low), 0.0, 1.0)
        return np.asarray(np.round(share, DECIMALS), dtype=np.float64)


def plain_bits(t: ArrayLike) -> Ints:
    """Return the paper's bits: 1 where the target is at least 1/2, else 0."""
    return (np.asarray(t, dtype=np.float64) >= 0.5).astype(np.int64)


def keyed_targets(t: ArrayLike, bits: ArrayLike, gap: float) -> Floats:
    """Compute targets on the side of 1/2 that the bit selects, at a distance that the invariant sets.

    The target is 1/2 + (2w - 1) max(|t - 1/2|, gap): its distance from 1/2 comes from the invariant, its
    side from the secret.

    Args:
        t: Normalised invariants, in [0,1].
        bits: One secret bit, 0 or 1, per target.
        gap: Smallest distance of a target from 1/2, from 0 to 1/2.

    Returns:
        The targets, in [0,1].

    Raises:
        ParameterError: If a value is out of range or the shapes differ.
    """
    if not 0.0 <= gap <= 0.5:
        raise ParameterError(f"gap is {gap}, expected a number from 0 to 1/2", "use a gap in that range")
    size, side = np.asarray(t, dtype=np.float64), np.asarray(bits, dtype=np.float64)
    if size.shape != side.shape or not np.isin(side, (0.0, 1.0)).all():
        raise ParameterError(
            f"targets of shape {size.shape} with bits of shape {side.shape}",
            "pass one bit, 0 or 1, per target",
        )
    if not ((size >= 0.0) & (size <= 1.0)).all():
        raise ParameterError("a target lies outside [0,1]", "normalise the invariants with Scale first")
    return np.asarray(0.5 + (2.0 * side - 1.0) * np.maximum(np.abs(size - 0.5), gap))


# ------------------------------------------------------------------------------ eigenvalues


def _eigenvalues(
    g: Graphs,
    chosen: Ints,
    dense: Callable[[Ints, int, int], Floats],
    sparse: Callable[[Graphs], float],
    place: int,
) -> Floats:
    """Compute one eigenvalue per chosen graph: small graphs in batches of equal size, large ones singly."""
    order = np.argsort(g.sizes[chosen], kind="stable")
    g = Graphs.unchecked(g.ptr, g.edges).take(chosen[order])  # without features, sorted by size
    out = np.zeros(g.num_graphs)
    for size, start, stop in _equal_sizes(g.sizes):
        if size > DENSE_UP_TO:
            out[order[start:stop]] = [sparse(g.take(one)) for one in range(start, stop)]
            continue
        edges = g.edges[g.edge_ptr[start] : g.edge_ptr[stop]] - g.ptr[start]
        out[order[start:stop]] = np.linalg.eigvalsh(dense(edges, size, stop - start))[:, place]
    return out


def _equal_sizes(sizes: Ints) -> Iterator[tuple[int, int, int]]:
    """Yield runs of equal sizes as (size, start, stop), each with at most `BLOCK` matrix entries."""
    values, starts = np.unique(sizes, return_index=True)
    stops = np.append(starts, len(sizes))[1:]
    for size, start, stop in np.stack([values, starts, stops], axis=1).tolist():
        step = max(1, BLOCK // size**2)
        for at in range(start, stop, step):
            yield size, at, min(at + step, stop)


def _dense_adjacency(edges: Ints, size: int, graphs: int, entry: float = 1.0) -> Floats:
    """Return the adjacency matrices [G,n,n] of graphs with n nodes each, numbered consecutively."""
    matrix = np.zeros((graphs * size, size))
    u, v = edges.T
    matrix[u, v % size] = matrix[v, u % size] = entry
    return matrix.reshape(graphs, size, size)


def _dense_laplacian(edges: Ints, size: int, graphs: int) -> Floats:
    """Return the Laplacians [G,n,n], shifted by `EPSILON`, of graphs with n nodes each."""
    matrix = _dense_adjacency(edges, size, graphs, -1.0)
    degree = np.bincount(edges.ravel(), minlength=graphs * size)
    place = np.arange(size)
    matrix[:, place, place] = degree.reshape(graphs, size) + EPSILON
    return matrix


def _sparse_adjacency(g: Graphs) -> Any:
    """Return the sparse adjacency matrix of a union."""
    offsets, neighbours = g.csr
    shape = (g.num_nodes, g.num_nodes)
    return csr_array((np.ones(len(neighbours)), neighbours, offsets), shape=shape)


def _sparse_lambda2(g: Graphs) -> float:
    """Compute the second smallest Laplacian eigenvalue of one large graph, shifted by `EPSILON`."""
    laplacian = (diags_array(degrees(g) + EPSILON) - _sparse_adjacency(g)).tocsc()
    # Shift-invert about 0: the small eigenvalues, close to each other, become large and well separated.
    try:
        found = eigsh(laplacian, k=2, sigma=0.0, v0=_start(g), return_eigenvectors=False)
    except ArpackError:
        found = np.linalg.eigvalsh(_dense_laplacian(g.edges, g.num_nodes, 1)[0])[:2]
    return float(np.max(found))


def _sparse_radius(g: Graphs) -> float:
    """Compute the largest adjacency eigenvalue of one large graph."""
    try:
        found = eigsh(_sparse_adjacency(g), k=1, which="LA", v0=_start(g), return_eigenvectors=False)
    except ArpackError:
        found = np.linalg.eigvalsh(_dense_adjacency(g.edges, g.num_nodes, 1)[0])[-1:]
    return float(found[0])


def _start(g: Graphs) -> Floats:
    # The entries differ, so that the vector is not an eigenvector itself.
    """Return a fixed start vector, so that the solver does not draw one from the global random state."""
    golden = np.arange(g.num_nodes, dtype=np.float64) * 0.6180339887498949
    return 1.0 + golden % 1.0
