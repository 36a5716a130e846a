"""A node classifier trained on random parts of a large graph, marked on the same loader."""

import torch
from torch.nn.functional import cross_entropy
from torch_geometric.data import Data
from torch_geometric.loader import RandomNodeLoader
from torch_geometric.nn import GraphSAGE
from torch_geometric.utils import stochastic_blockmodel_graph

import invgnn
from invgnn.nn.rng import seeded


def blocks():
    """Three communities of 300 nodes with noisy features: stands for your own graph."""
    with seeded(0):
        chances = torch.full((3, 3), 0.002).fill_diagonal_(0.02)
        y = torch.arange(3).repeat_interleave(300)
        x = torch.nn.functional.one_hot(y, 3).float() @ torch.randn(3, 16) + 2 * torch.randn(900, 16)
        return Data(x=x, edge_index=stochastic_blockmodel_graph([300] * 3, chances), y=y)


def main(epochs=30):
    data = blocks()
    loader = RandomNodeLoader(data, num_parts=3, shuffle=True)
    model = GraphSAGE(16, 64, 2, 3, norm="layer_norm")
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(epochs):
        for part in loader:
            optimiser.zero_grad()
            cross_entropy(model(part.x, part.edge_index), part.y).backward()
            optimiser.step()

    def accuracy(model):
        return (model(data.x, data.edge_index).argmax(1) == data.y).float().mean()

    mark = invgnn.Watermark.draw(invgnn.Secret.generate(), data)
    print(mark.embed(model, loader, metric=accuracy))
    return invgnn.verify(model, mark)


if __name__ == "__main__":
    main()
