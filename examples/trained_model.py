"""A model that is already trained: one call marks it, and a checkpoint of it verifies."""

import tempfile
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GIN, global_add_pool

import invgnn


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = GIN(4, 32, 2, norm="batch_norm")
        self.out = torch.nn.Linear(32, 2)

    def forward(self, x, edge_index, batch):
        return self.out(global_add_pool(self.body(x, edge_index), batch))


def train(model, graphs, epochs):
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(epochs):
        for batch in DataLoader(graphs, 64, shuffle=True):
            optimiser.zero_grad()
            cross_entropy(model(batch.x, batch.edge_index, batch.batch), batch.y).backward()
            optimiser.step()


def main(epochs=20):
    task = invgnn.load_task("BA-2motif")
    graphs, test = task.data, next(iter(DataLoader([task.graphs[i] for i in task.test], 500)))
    model = Net()
    train(model, graphs, epochs)  # somebody did this a year ago

    def accuracy(model):
        scores = model(test.x, test.edge_index, test.batch)
        return (scores.argmax(1) == test.y).float().mean()

    mark = invgnn.Watermark.draw(invgnn.Secret.generate(), graphs)
    print(mark.embed(model, graphs, metric=accuracy))  # no labels, no loop

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "released.ckpt"
        torch.save({"state_dict": model.state_dict(), "epoch": epochs}, path)
        verdict = invgnn.verify(path, mark, architecture=Net)
    print(verdict)
    return verdict


if __name__ == "__main__":
    main()
