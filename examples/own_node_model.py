"""A node classifier on one large graph: carriers are rewired subgraphs; one new line in the loop."""

import torch
from torch.nn.functional import cross_entropy
from torch_geometric.nn import GCNConv
from torch_geometric.utils import stochastic_blockmodel_graph

import invgnn
from invgnn.nn.rng import seeded


class MyNodeNet(torch.nn.Module):
    def __init__(self, features, classes, width=64):
        super().__init__()
        self.first = GCNConv(features, width)
        self.second = GCNConv(width, classes)

    def forward(self, x, edge_index):
        hidden = self.first(x, edge_index).relu()
        return self.second(torch.nn.functional.dropout(hidden, 0.3, self.training), edge_index)


def blocks():
    """Three communities of 300 nodes with noisy features: stands for your own graph."""
    from torch_geometric.data import Data

    with seeded(0):
        inside, across = 0.02, 0.002
        chances = torch.full((3, 3), across).fill_diagonal_(inside)
        edges = stochastic_blockmodel_graph([300] * 3, chances)
        y = torch.arange(3).repeat_interleave(300)
        x = torch.nn.functional.one_hot(y, 3).float() @ torch.randn(3, 16) + 2 * torch.randn(900, 16)
        return Data(x=x, edge_index=edges, y=y)


def main(epochs=200):
    data = blocks()
    train = torch.randperm(900)[:600]
    mark = invgnn.Watermark.draw(invgnn.Secret.generate(), data)  # one graph: a node task
    model = MyNodeNet(16, 3)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(epochs):
        optimiser.zero_grad()
        loss = cross_entropy(model(data.x, data.edge_index)[train], data.y[train])
        loss = mark.joint_loss(model, loss)  # the new line
        loss.backward()
        optimiser.step()

    verdict = invgnn.verify(model, mark)
    print(verdict)
    return verdict


if __name__ == "__main__":
    main()
