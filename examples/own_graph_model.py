"""Your own graph classifier and your own loop: one changed line, then read at the embedding and by API."""

import torch
from torch.nn.functional import cross_entropy
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GINConv, global_add_pool

import invgnn


class MyNet(torch.nn.Module):
    def __init__(self, features, classes, width=48):
        super().__init__()
        self.first = GINConv(torch.nn.Linear(features, width))
        self.second = GINConv(torch.nn.Linear(width, width))
        self.norm = torch.nn.BatchNorm1d(width)
        self.out = torch.nn.Linear(width, classes)

    def forward(self, x, edge_index, batch):
        x = self.first(x, edge_index).relu()
        x = self.second(x, edge_index).relu()
        return self.out(self.norm(global_add_pool(x, batch)))


def main(epochs=20):
    task = invgnn.load_task("BA-2motif")  # any list of PyG Data does
    mark = invgnn.Watermark.draw(invgnn.Secret.generate(), task.data, access=("embedding", "logits"))
    model = MyNet(task.num_features, task.num_classes)
    optimiser = torch.optim.AdamW(model.parameters(), lr=5e-3)
    falling = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.0, epochs)  # statistics of norms catch up
    for _ in range(epochs):
        for batch in DataLoader(task.data, batch_size=64, shuffle=True):
            optimiser.zero_grad()
            joint = mark.mix(batch)  # the carriers ride along ...
            scores = joint(model)
            loss = cross_entropy(scores, batch.y) + joint.loss()  # ... and this is the mark
            loss.backward()
            optimiser.step()
        falling.step()
    invgnn.scale_weights(model, batch)  # the same function with larger weights: fine-tuning turns them less

    print(invgnn.verify(model, mark))
    served = lambda batch: model(batch.x, batch.edge_index, batch.batch).softmax(-1).round(decimals=2)  # noqa: E731
    print(invgnn.verify(served, mark, access="logits"))  # an API that rounds its probabilities
    return invgnn.verify(model, mark), invgnn.verify(served, mark, access="logits")


if __name__ == "__main__":
    main()
