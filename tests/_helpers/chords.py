"""Small graphs made by arithmetic alone, with tensors of every kind: golden marks are drawn from them."""

from __future__ import annotations

import torch
from torch_geometric.data import Data


def chords(number, directed=False):
    """A ring with chords; its tensors are formulas of node and edge numbers."""
    nodes = 9 + number % 5
    pairs = {(i, (i + 1) % nodes) for i in range(nodes)}
    pairs |= {(i, (i * (2 + number % 3) + 3 + number % 7) % nodes) for i in range(0, nodes, 2)}
    pairs = {pair for pair in pairs if pair[0] != pair[1] and pair[::-1] not in pairs}
    if not directed:
        pairs |= {pair[::-1] for pair in pairs}
    u, v = edge_index = torch.tensor(sorted(pairs)).T
    return Data(
        edge_index=edge_index,
        num_nodes=nodes,
        x=torch.eye(3)[torch.arange(nodes) * (1 + number) % 3],
        z=torch.arange(nodes) * (1 + number) % 3 + 10,
        edge_attr=torch.stack([(u * v + number) % 5, (u + v) % 2], 1) / 4,
        edge_type=(u * v + number) % 5,
        u=torch.tensor([[nodes / 8]]),
        y=torch.tensor([number % 3]),
    )
