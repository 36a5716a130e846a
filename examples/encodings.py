"""Graphs without node features: a random-walk encoding is the model's input, and `transform=` adds it."""

import torch
from torch.nn import BatchNorm1d, Linear, ReLU, Sequential
from torch.nn.functional import cross_entropy
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GINConv, global_add_pool
from torch_geometric.transforms import AddRandomWalkPE

import invgnn

WALKS = 8


class Walks(torch.nn.Module):
    def __init__(self, classes, width=48):
        super().__init__()
        inner = Linear(WALKS, width), BatchNorm1d(width), ReLU(), Linear(width, width)
        self.first = GINConv(Sequential(*inner))
        self.second = GINConv(
            Sequential(Linear(width, width), BatchNorm1d(width), ReLU(), Linear(width, width))
        )
        self.hidden, self.out = Linear(width, width), Linear(width, classes)

    def forward(self, pe, edge_index, batch):  # called by the names of its arguments
        pe = self.first(pe, edge_index).relu()
        pooled = global_add_pool(self.second(pe, edge_index).relu(), batch)
        return self.out(self.hidden(pooled).relu())


def main(epochs=30):
    task = invgnn.load_task("BA-2motif")
    graphs = [Data(edge_index=g.edge_index, num_nodes=g.num_nodes, y=g.y) for g in task.data]
    transform = AddRandomWalkPE(WALKS, attr_name="pe")
    mark = invgnn.Watermark.draw(invgnn.Secret.generate(), graphs, transform=transform)  # graphs without it
    loader = DataLoader([transform(graph) for graph in graphs], batch_size=64, shuffle=True)
    model = Walks(task.num_classes)
    optimiser = torch.optim.Adam(model.parameters(), lr=5e-3)
    falling = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.0, epochs)
    for _ in range(epochs):
        for batch in loader:
            optimiser.zero_grad()
            mixed = mark.mix(batch)
            loss = mixed.joint_loss(cross_entropy(mixed(model), batch.y))
            loss.backward()
            optimiser.step()
        falling.step()

    verdict = invgnn.verify(model, mark)
    print(verdict)
    return verdict


if __name__ == "__main__":
    main()
