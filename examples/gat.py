"""A graph attention network from PyG's own model zoo, marked and read without touching its code."""

import torch
from torch.nn.functional import cross_entropy
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GAT, global_mean_pool

import invgnn


class GraphGAT(torch.nn.Module):
    def __init__(self, features, classes, width=32):
        super().__init__()
        self.body = GAT(features, width, num_layers=2, heads=4, norm="batch_norm")
        self.out = torch.nn.Linear(width, classes)

    def forward(self, data):  # one argument: the batch itself
        return self.out(global_mean_pool(self.body(data.x, data.edge_index), data.batch))


def main(epochs=15):
    task = invgnn.load_task("BA-2motif")
    mark = invgnn.Watermark.draw(invgnn.Secret.generate(), task.data, layer="out:in")
    model = GraphGAT(task.num_features, task.num_classes)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(epochs):
        for batch in DataLoader(task.data, batch_size=64, shuffle=True):
            optimiser.zero_grad()
            mixed = mark.mix(batch)
            loss = mixed.joint_loss(cross_entropy(mixed(model), batch.y))
            loss.backward()
            optimiser.step()

    verdict = invgnn.verify(model, mark)
    print(verdict)
    return verdict


if __name__ == "__main__":
    main()
