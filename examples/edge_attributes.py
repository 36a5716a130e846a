"""A model with an odd signature and edge attributes: `forward=` says how to call it on carriers."""

import torch
from torch.nn.functional import cross_entropy
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GINEConv, global_mean_pool

import invgnn


def lengths(x, edge_index):
    """Edge attributes computed from the nodes, so carriers can have them too."""
    return (x[edge_index[0]] - x[edge_index[1]]).abs()


class Bonded(torch.nn.Module):
    def __init__(self, features, classes, width=48):
        super().__init__()
        self.enter = torch.nn.Linear(features, width)
        self.conv = GINEConv(torch.nn.Linear(width, width), edge_dim=features)
        self.encoder = torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.ReLU())
        self.out = torch.nn.Linear(width, classes)

    def forward(self, nodes, links, link_attributes, graph_of_node, *, scale):
        hidden = self.conv(self.enter(nodes) * scale, links, link_attributes).relu()
        return {"scores": self.out(self.encoder(global_mean_pool(hidden, graph_of_node)))}


def call(model, batch):
    attributes = lengths(batch.x, batch.edge_index)
    return model(batch.x, batch.edge_index, attributes, batch.batch, scale=1.0)["scores"]


def main(epochs=20):
    task = invgnn.load_task("BA-2motif")
    mark = invgnn.Watermark.draw(
        invgnn.Secret.generate(),
        task.data,
        layer="encoder",
        forward=call,  # where, and how
    )
    model = Bonded(task.num_features, task.num_classes)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(epochs):
        for batch in DataLoader(task.data, batch_size=64, shuffle=True):
            optimiser.zero_grad()
            loss = cross_entropy(call(model, batch), batch.y) + mark.loss(model)
            loss.backward()
            optimiser.step()

    verdict = invgnn.verify(model, mark)
    print(verdict)
    return verdict


if __name__ == "__main__":
    main()
