"""The sampling protocol of the carriers as one would write it with networkx, graph by graph."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import networkx as nx
import numpy as np
from scipy.stats import ks_2samp

from invgnn.graphs.disjoint_union import Graphs
from invgnn.watermark.sampler import Sampler


def networks(graphs: Graphs) -> list[nx.Graph]:
    """Convert graphs to networkx."""
    ends = (graphs.edges - graphs.ptr[graphs.graph_of_edge, None]).tolist()
    found = []
    for number, size in enumerate(graphs.sizes.tolist()):
        found.append(nx.empty_graph(size))
        found[-1].add_edges_from(ends[graphs.edge_ptr[number] : graphs.edge_ptr[number + 1]])
    return found


class Protocol:
    """Reference statistics, and the checks of a candidate against them."""

    def __init__(self, graphs: Sequence[nx.Graph], sampler: Sampler) -> None:
        self.graphs, self.sampler = graphs, sampler
        self.degrees = np.sort([float(d) for g in graphs for _, d in g.degree])
        self.clustering = np.sort([c for g in graphs for c in nx.clustering(g).values()])
        self.hashes = {self.look(g) for g in graphs}

    def look(self, g: nx.Graph) -> str:
        """Return the Weisfeiler-Lehman hash; networkx (from 3.5 on) uses degrees in the first round."""
        return str(nx.weisfeiler_lehman_graph_hash(g, iterations=self.sampler.rounds))

    def usual(self, values: Sequence[float], pool: np.ndarray) -> bool:
        """Return whether values pass the Kolmogorov-Smirnov test against a sorted pool."""
        return bool(ks_2samp(values, pool, method="asymp").pvalue >= self.sampler.delta)

    def seeds(self) -> list[nx.Graph]:
        """Return the reference graphs that are small enough, have enough edges, and ordinary degrees."""
        cap = np.quantile([len(g) for g in self.graphs], self.sampler.size_quantile, method="lower")
        small = [g for g in self.graphs if len(g) <= cap and g.number_of_edges() >= 2]
        return [g for g in small if self.usual([d for _, d in g.degree], self.degrees)]

    def swap(self, g: nx.Graph, random: Random) -> bool:
        """Rewire in place, up to twenty attempts a swap; False if there were too few."""
        swaps = self.sampler.swap_step
        try:
            nx.double_edge_swap(g, swaps, 20 * swaps, seed=random)
        except nx.NetworkXException:
            return False
        return True

    def judge(self, g: nx.Graph, swapped: bool) -> tuple[str, str]:
        """Return the first check that rejects a candidate, or an empty string, and its hash."""
        if not swapped:
            return "no swap possible", ""
        look = self.look(g)
        if look in self.hashes:
            return "same as a task graph", look
        alike = self.usual(list(nx.clustering(g).values()), self.clustering)
        return "" if alike else "unusual clustering", look


def draw(
    graphs: Sequence[nx.Graph], m: int, sampler: Sampler, seed: int
) -> tuple[list[nx.Graph], np.ndarray]:
    """Draw m carriers and compute the second Laplacian eigenvalue of each.

    As the protocol requires, candidates are rewired and judged in waves, also those beyond the m-th.
    """
    protocol, random = Protocol(graphs, sampler), Random(seed)  # noqa: S311 - nothing here is a secret
    seeds, seen, accepted, deck = protocol.seeds(), set(), [], []
    while len(accepted) < m:
        while len(deck) < sampler.wave:
            deck += random.sample(seeds, len(seeds))
        wave, deck = [g.copy() for g in deck[: sampler.wave]], deck[sampler.wave :]
        for _ in range(sampler.swap_step, sampler.swap_cap + 1, sampler.swap_step):
            refused = []
            for g in wave:
                reason, look = protocol.judge(g, protocol.swap(g, random))
                if reason or look in seen:
                    refused.append(g)
                elif len(accepted) < m:
                    seen.add(look)
                    accepted.append(g)
            if len(accepted) == m or not refused:
                break
            wave = refused
    return accepted, np.array([_lambda2(g) for g in accepted])


def _lambda2(g: nx.Graph) -> float:
    return float(np.linalg.eigvalsh(nx.laplacian_matrix(g).toarray().astype(float))[1])
