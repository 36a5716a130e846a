"""GINE on MUTAG: bond types reach the model as `edge_attr`, and carriers have them too."""

import torch
from torch.nn import BatchNorm1d, Linear, ReLU, Sequential
from torch.nn.functional import cross_entropy
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GINEConv, global_add_pool

import invgnn


class Bonds(torch.nn.Module):
    def __init__(self, atoms, bonds, classes, width=48):
        super().__init__()
        self.first = GINEConv(
            Sequential(Linear(atoms, width), ReLU(), Linear(width, width)), edge_dim=bonds
        )
        self.second = GINEConv(
            Sequential(Linear(width, width), ReLU(), Linear(width, width)), edge_dim=bonds
        )
        self.norm, self.hidden = BatchNorm1d(width), Linear(width, width)
        self.out = Linear(width, classes)

    def forward(self, x, edge_index, edge_attr, batch):
        x = self.first(x, edge_index, edge_attr).relu()
        x = self.norm(self.second(x, edge_index, edge_attr)).relu()
        return self.out(self.hidden(global_add_pool(x, batch)).relu())


def main(epochs=60):
    task = invgnn.load_task("MUTAG")
    mark = invgnn.Watermark.draw(invgnn.Secret.generate(), task.data)  # takes edge_attr along
    model = Bonds(task.num_features, task.data[0].edge_attr.shape[1], task.num_classes)
    optimiser = torch.optim.Adam(model.parameters(), lr=5e-3)
    falling = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.0, epochs)  # statistics of norms catch up
    for _ in range(epochs):
        for batch in DataLoader(task.data, batch_size=32, shuffle=True):
            optimiser.zero_grad()
            mixed = mark.mix(batch)  # appends carriers, edge attributes included
            loss = mixed.joint_loss(cross_entropy(mixed(model), batch.y))
            loss.backward()
            optimiser.step()
        falling.step()

    verdict = invgnn.verify(model, mark)
    print(verdict)
    return verdict


if __name__ == "__main__":
    main()
