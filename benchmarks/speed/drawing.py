"""Time carriers against the same protocol on networkx, and λ₂ against bare LAPACK."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, cycle
from typing import Any

import networkx as nx
import numpy as np

from invgnn.bench.clock import race
from invgnn.bench.measurements import Measurement
from invgnn.graphs.disjoint_union import Graphs
from invgnn.graphs.invariants import EPSILON, lambda2
from invgnn.secret import public_stream
from invgnn.training.tasks import load_task
from invgnn.watermark.carriers import Carriers, _Drawing
from invgnn.watermark.reference import Reference
from invgnn.watermark.sampler import Sampler

from .protocol import Protocol, draw, networks

M, TASKS = 128, ("PROTEINS", "NCI1")


def bare(graphs: Graphs) -> Graphs:
    """Return the same graphs without cached statistics."""
    return Graphs(graphs.ptr, graphs.edges, graphs.x)


def carriers() -> Iterator[Measurement]:
    """Time statistics, candidates, hashes, tests and the carriers' eigenvalues, from graphs in memory."""
    for name in TASKS:
        graphs = Graphs.from_data(load_task(name).data)
        nets, number, fresh = networks(graphs), count(), [bare(graphs) for _ in range(8)]

        def ours(fresh: list[Graphs] = fresh, number: Any = number) -> None:
            drawn = Carriers.draw(Reference(fresh.pop()), M, public_stream("speed", next(number)))
            lambda2(drawn.graphs)

        def theirs(nets: list[nx.Graph] = nets, number: Any = number) -> None:
            draw(nets, M, Sampler(), next(number))

        alike, judged = decisions(graphs, nets)
        yield race(ours, theirs, 5).faster(
            "carriers",
            f"{M} carriers on {name}",
            "the same protocol on networkx, `ks_2samp` and per-graph `eigvalsh`",
            ">= 50",
            note=f"{alike} of {judged} decisions on the same candidates are the same",
        )


def decisions(graphs: Graphs, nets: list[nx.Graph], m: int = M) -> tuple[int, int]:
    """Return how many candidates of one drawing networkx judges as we do, and their number."""
    judged: list[tuple[str, str]] = []
    protocol = Protocol(nets, Sampler())

    class Watched(_Drawing):
        def _judge(self, graphs: Graphs, done: Any, keys: Any) -> Any:
            ours = super()._judge(graphs, done, keys)
            swapped = (done >= self.sampler.swap_step).tolist()
            theirs = [protocol.judge(g, s)[0] for g, s in zip(networks(graphs), swapped, strict=True)]
            judged.extend(zip(ours.tolist(), theirs, strict=True))
            return ours

    Watched(Reference(bare(graphs)), m, Sampler(), None).run(public_stream("speed", "decisions"), None)
    return sum(a == b for a, b in judged), len(judged)


def connectivity() -> Iterator[Measurement]:
    """Time the second Laplacian eigenvalue of every NCI1 graph."""
    graphs = Graphs.from_data(load_task("NCI1").graphs)
    nets = networks(graphs)
    chosen = [g for g in nets if len(g) > 1 and nx.is_connected(g)]
    sizes = sorted({len(g) for g in chosen})
    ready = [np.stack([_laplacian(g) for g in chosen if len(g) == size]) for size in sizes]

    def ours() -> None:
        lambda2(bare(graphs))

    yield race(ours, lambda: [np.linalg.eigvalsh(matrices) for matrices in ready], 15).slower(
        "connectivity",
        f"λ₂ of all {len(graphs)} NCI1 graphs",
        "bare batched LAPACK on prepared matrices, connected graphs only",
        "<= 1.3",
    )
    parts = cycle([[g for g in nets[start::10] if len(g) > 1] for start in range(10)])
    yield race(ours, lambda: [nx.algebraic_connectivity(g) for g in next(parts)], 5).faster(
        "connectivity",
        f"λ₂ of all {len(graphs)} NCI1 graphs",
        "`networkx.algebraic_connectivity`",
        ">= 20",
        scale=10.0,
        note="in each round networkx gets another tenth of the graphs, counted ten times",
    )


def _laplacian(g: nx.Graph) -> np.ndarray:
    return nx.laplacian_matrix(g).toarray() + EPSILON * np.eye(len(g))
