"""A regression on MUTAG (rings per atom of a molecule): marked at its embedding and at its one output."""

import torch
from torch.nn import BatchNorm1d, Linear, ReLU, Sequential
from torch.nn.functional import l1_loss
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GINConv, global_add_pool

import invgnn


class Regression(torch.nn.Module):
    def __init__(self, features, width=48):
        super().__init__()
        self.first = GINConv(
            Sequential(Linear(features, width), BatchNorm1d(width), ReLU(), Linear(width, width))
        )
        self.second = GINConv(
            Sequential(Linear(width, width), BatchNorm1d(width), ReLU(), Linear(width, width))
        )
        self.hidden, self.out = Linear(width, width), Linear(width, 1)

    def forward(self, x, edge_index, batch):
        x = self.second(self.first(x, edge_index).relu(), edge_index).relu()
        return self.out(self.hidden(global_add_pool(x, batch)).relu()).view(-1)


def main(epochs=60):
    task = invgnn.load_task("MUTAG")
    for graph in task.graphs:
        rings = graph.num_edges / 2 - graph.num_nodes + 1
        graph.y = torch.tensor([10 * rings / graph.num_nodes])
    mark = invgnn.Watermark.draw(invgnn.Secret.generate(), task.data)  # y are real numbers: reads `values`
    model = Regression(task.num_features)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    falling = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.0, epochs)
    for _ in range(epochs):
        for batch in DataLoader(task.data, batch_size=32, shuffle=True):
            optimiser.zero_grad()
            mixed = mark.mix(batch)
            loss = mixed.joint_loss(l1_loss(mixed(model), batch.y))
            loss.backward()
            optimiser.step()
        falling.step()

    model.eval()
    test = next(iter(DataLoader([task.graphs[i] for i in task.test.tolist()], batch_size=1000)))
    print(
        "mean absolute error", float(l1_loss(model(test.x, test.edge_index, test.batch), test.y).detach())
    )
    served = lambda batch: model(batch.x, batch.edge_index, batch.batch).round(decimals=1)  # noqa: E731
    verdicts = invgnn.verify(model, mark), invgnn.verify(served, mark)  # weights, and an API that rounds
    print(*verdicts, sep="\n")
    return verdicts


if __name__ == "__main__":
    main()
