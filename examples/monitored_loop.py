"""A training loop of your own that shows how many bits are in, and ends with mark.finish."""

import torch
from torch.nn.functional import cross_entropy
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GCN, global_add_pool

import invgnn


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = GCN(4, 64, 3, norm="batch_norm")
        self.out = torch.nn.Linear(64, 2)

    def forward(self, x, edge_index, batch):
        return self.out(global_add_pool(self.body(x, edge_index), batch))


def main(epochs=40):
    graphs = invgnn.load_task("BA-2motif").data
    mark = invgnn.Watermark.draw(invgnn.Secret.generate(), graphs)
    model, loader = Net(), DataLoader(graphs, 64, shuffle=True)
    steps = epochs * len(loader)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    fall = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda s: min(1.0, 2 * (1 - s / steps)))
    step = 0
    for epoch in range(epochs):
        for batch in loader:
            optimiser.zero_grad()
            mixed = mark.mix(batch, step=step, steps=steps)
            mixed.joint_loss(cross_entropy(mixed(model), batch.y)).backward()
            optimiser.step()
            fall.step()  # the rate falls to zero over the second half: norms keep up with the weights
            step += 1
        if epoch % 5 == 4:
            print(epoch + 1, {name: round(value, 2) for name, value in mark.monitor(model).items()})

    print(mark.finish(model, loader))  # statistics of norms once more, on task data
    return invgnn.verify(model, mark)


if __name__ == "__main__":
    main()
