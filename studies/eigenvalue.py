"""Measure what one eigenvalue costs at n = 32: batched, as in the library, and one at a time.

make eigenvalue
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import networkx as nx
import numpy as np
from torch_geometric.utils import from_networkx

from invgnn.graphs.disjoint_union import Graphs
from invgnn.graphs.invariants import lambda2

NODES, GRAPHS, REPEATS = 32, 256, 25
CLAIM = 0.1  # milliseconds per graph, the paper's figure for n <= 32 and m <= 256


def milliseconds(run: Callable[[], Any]) -> float:
    """Return the processor time of one run, per graph."""
    start = time.process_time()
    run()
    return 1000 * (time.process_time() - start) / GRAPHS


def main() -> None:
    """Run the two ways in alternation and print milliseconds per graph beside the paper's figure."""
    drawn = [nx.connected_watts_strogatz_graph(NODES, 4, 0.3, seed=i) for i in range(GRAPHS)]
    graphs = Graphs.from_data([from_networkx(graph) for graph in drawn])
    laplacians = [nx.laplacian_matrix(graph).toarray().astype(float) for graph in drawn]
    ways: dict[str, Callable[[], Any]] = {
        "lambda2, batched": lambda: lambda2(graphs),
        "eigvalsh, one at a time": lambda: [np.linalg.eigvalsh(matrix)[1] for matrix in laplacians],
    }
    together, alone = (np.asarray(run()) for run in ways.values())  # also warms up
    np.testing.assert_allclose(together, alone, atol=1e-8)
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(REPEATS):
        for name, run in ways.items():
            times[name].append(milliseconds(run))
    for name, took in times.items():
        low, middle, high = min(took), statistics.median(took), max(took)
        print(
            f"{name}: {middle:.3f} ms per graph ({low:.3f} to {high:.3f}, {REPEATS} runs of {GRAPHS} "
            f"graphs, n = {NODES}), {middle / CLAIM:.1f} times the {CLAIM} ms claimed"
        )


if __name__ == "__main__":
    main()
