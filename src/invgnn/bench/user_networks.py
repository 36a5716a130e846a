"""Networks as users of PyG write them, for measurements of `mark.embed`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import BatchNorm1d, Linear, ReLU, Sequential
from torch_geometric.nn import (
    GCNConv,
    GINConv,
    GINEConv,
    GPSConv,
    HGTConv,
    global_add_pool,
    global_mean_pool,
)

WALKS = 8
"""Length of the random walks in the encoding of `Transformer`."""


class GraphModel(nn.Module):
    """Any body of PyG's zoo, pooling, and two linear layers."""

    def __init__(self, body: nn.Module, width: int, outputs: int, pool: Any = global_mean_pool) -> None:
        super().__init__()
        self.body, self.pool = body, pool
        self.hidden, self.out = Linear(width, width), Linear(width, outputs)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        """Return one row per graph."""
        scores: Tensor = self.out(self.hidden(self.pool(self.body(x, edge_index), batch)).relu())
        return scores


class Bonds(nn.Module):
    """GINE on edge attributes."""

    def __init__(self, atoms: int, bonds: int, classes: int, width: int = 64) -> None:
        super().__init__()
        self.first = GINEConv(_inner(atoms, width), edge_dim=bonds)
        self.second = GINEConv(_inner(width, width), edge_dim=bonds)
        self.norm, self.hidden = BatchNorm1d(width), Linear(width, width)
        self.out = Linear(width, classes)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, batch: Tensor) -> Tensor:
        """Return one row per graph."""
        x = self.first(x, edge_index, edge_attr).relu()
        x = self.norm(self.second(x, edge_index, edge_attr)).relu()
        scores: Tensor = self.out(self.hidden(global_add_pool(x, batch)).relu())
        return scores


class Transformer(nn.Module):
    """GPS: local convolutions, global attention and a positional encoding."""

    def __init__(self, features: int, classes: int, width: int = 48, layers: int = 2) -> None:
        super().__init__()
        self.x, self.pe = Linear(features, width - WALKS), Linear(WALKS, WALKS)
        local = [GINConv(_inner(width, width)) for _ in range(layers)]
        self.layers = nn.ModuleList(GPSConv(width, conv, heads=4) for conv in local)
        self.hidden, self.out = Linear(width, width), Linear(width, classes)

    def forward(self, x: Tensor, pe: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        """Return one row per graph."""
        x = torch.cat([self.x(x), self.pe(pe)], dim=1)
        for layer in self.layers:
            x = layer(x, edge_index, batch)
        scores: Tensor = self.out(self.hidden(global_add_pool(x, batch)).relu())
        return scores


class OneNumber(nn.Module):
    """GIN with batch norms for one real number per graph."""

    def __init__(self, features: int, width: int = 48) -> None:
        super().__init__()
        self.first, self.second = GINConv(_normed(features, width)), GINConv(_normed(width, width))
        self.hidden, self.out = Linear(width, width), Linear(width, 1)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        """Return one number per graph."""
        x = self.second(self.first(x, edge_index).relu(), edge_index).relu()
        number: Tensor = self.out(self.hidden(global_mean_pool(x, batch)).relu()).view(-1)
        return number


def _inner(features: int, width: int) -> Sequential:
    return Sequential(Linear(features, width), ReLU(), Linear(width, width))


def _normed(features: int, width: int) -> Sequential:
    return Sequential(Linear(features, width), BatchNorm1d(width), ReLU(), Linear(width, width))


class Library(nn.Module):
    """HGT on authors, papers and venues."""

    def __init__(self, widths: dict[str, int], metadata: Any, width: int = 32) -> None:
        super().__init__()
        self.first = nn.ModuleDict({name: Linear(size, width) for name, size in widths.items()})
        self.convs = nn.ModuleList(HGTConv(width, width, metadata, heads=2) for _ in range(2))
        self.hidden, self.out = Linear(width, width), Linear(width, 2)

    def forward(
        self, x_dict: dict[str, Tensor], edge_index_dict: dict[Any, Tensor], batch_dict: dict[str, Tensor]
    ) -> Tensor:
        """Return one row per graph."""
        x = {name: self.first[name](value).relu() for name, value in x_dict.items()}
        for conv in self.convs:
            x = conv(x, edge_index_dict)
        scores: Tensor = self.out(self.hidden(global_add_pool(x["paper"], batch_dict["paper"])).relu())
        return scores


class Encoder(nn.Module):
    """Two convolutions, the encoder of a graph autoencoder."""

    def __init__(self, features: int, width: int = 128, out: int = 64) -> None:
        super().__init__()
        self.first, self.second = GCNConv(features, width), GCNConv(width, out)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return one row per node."""
        z: Tensor = self.second(self.first(x, edge_index).relu(), edge_index)
        return z


def link_scores(model: Any, batch: Any) -> Tensor:
    """Return the mean score of the links of every graph: one real number per question."""
    z = model.encode(batch.x, batch.edge_index)
    scores = model.decode(z, batch.edge_index, sigmoid=False)
    owner = batch.batch[batch.edge_index[0]]
    total: Tensor = z.new_zeros(batch.num_graphs).index_add(0, owner, scores)
    links: Tensor = owner.bincount(minlength=batch.num_graphs)
    return total / links.clamp(min=1)
