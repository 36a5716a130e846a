"""Data of the models of users: graphs with attributes, generated typed graphs, and the splits."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.datasets import TUDataset

from invgnn.nn.rng import seeded
from invgnn.training.tasks import load_task, scratch_root

Part = Literal["validation", "test"]
"""Where a metric is measured: inputs for choosing settings, or inputs that no choice has seen."""
HELD_OUT = 0.25
"""Share of the graphs that only the test part uses."""
WIDTHS = {"author": 4, "paper": 6, "venue": 3}
"""Number of features of every type of node in a generated library."""


def split(items: list[Any], seed: int, part: Part) -> tuple[list[Any], list[Any]]:
    """Return the inputs to train on and those to measure on.

    Args:
        items: All inputs.
        seed: Seed of the validation part.
        part: With `test`, the inputs that are held out whatever the seed; with `validation`, a third of the
            others.
    """
    order = np.random.default_rng(0).permutation(len(items))
    cut = int(HELD_OUT * len(items))
    held, rest = order[:cut], order[cut:]
    if part == "validation":
        rest = np.random.default_rng(seed).permutation(rest)
        cut = len(rest) // 3
        held, rest = rest[:cut], rest[cut:]
    return [items[i] for i in rest], [items[i] for i in held]


def enzymes() -> list[Data]:
    """Return ENZYMES with its 18 measured attributes of every node, standardised, and the 3 node types."""
    with scratch_root("ENZYMES") as root:
        graphs = list(TUDataset(root, "ENZYMES", use_node_attr=True))
    together = torch.cat([graph.x for graph in graphs])
    mean, spread = together.mean(0), together.std(0).clamp(min=1e-6)
    for graph in graphs:
        graph.x = (graph.x - mean) / spread
    return graphs


def _library(kind: int) -> HeteroData:
    """Return some authors and their papers; one kind of library has more authors per paper."""
    counts = {"author": int(torch.randint(5, 9, ())), "paper": int(torch.randint(8, 14, ())), "venue": 3}
    data = HeteroData(y=torch.tensor([kind]))
    for name, count in counts.items():
        data[name].x = torch.randn(count, WIDTHS[name]) + 0.2 * kind
    written = torch.rand(counts["author"], counts["paper"]) < 0.25 + 0.1 * kind
    places = torch.randint(3, (counts["paper"],))
    data["author", "writes", "paper"].edge_index = written.nonzero().t()
    data["paper", "in", "venue"].edge_index = torch.stack([torch.arange(len(places)), places])
    for one in list(data.edge_types):
        data[one[2], f"rev_{one[1]}", one[0]].edge_index = data[one].edge_index.flip(0)
    return data


def libraries(count: int) -> list[HeteroData]:
    """Return generated libraries, always the same, every second of the other kind."""
    with seeded(0):
        return [_library(number % 2) for number in range(count)]


def rings(name: str) -> list[Data]:
    """Return the graphs of a task with ten times the number of rings per node as target."""
    graphs: list[Data] = load_task(name).graphs
    for graph in graphs:
        found = graph.num_edges / 2 - graph.num_nodes + 1
        graph.y = torch.tensor([10 * found / graph.num_nodes])
    return graphs
