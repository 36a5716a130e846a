"""A hand-written loop with all that makes it fast: compiled, mixed precision, accumulated gradients,
checkpointed activations, averaged weights. The mark is three lines."""

import torch
from torch.nn.functional import cross_entropy
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.checkpoint import checkpoint
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GIN, global_add_pool

import invgnn
from invgnn.integrations.loop import MarkLoop


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = GIN(4, 64, 3, norm="batch_norm")
        self.out = torch.nn.Linear(64, 2)

    def forward(self, x, edge_index, batch):
        x = checkpoint(self.body, x, edge_index, use_reentrant=False)
        return self.out(global_add_pool(x, batch))


def main(epochs=40):
    graphs = invgnn.load_task("BA-2motif").data
    mark = invgnn.Watermark.draw(invgnn.Secret.generate(), graphs)
    loader = DataLoader(graphs, 32, shuffle=True, drop_last=True)
    steps = epochs * (len(loader) // 2)
    model = Net()
    compiled = torch.compile(model, backend="aot_eager", dynamic=True)  # leave out backend= on a GPU
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    fall = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda s: min(1.0, 2 * (1 - s / steps)))

    loop = MarkLoop(mark, compiled, steps)  # the first new line
    for _ in range(epochs):
        for number, batch in enumerate(loader):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                scores = compiled(batch.x, batch.edge_index, batch.batch)
            (cross_entropy(scores.float(), batch.y) / 2).backward()
            if number % 2:
                loop.before_step()  # the second: between backward() and step()
                optimiser.step()
                optimiser.zero_grad()
                fall.step()
                average.update_parameters(model)
    print({name: round(value, 2) for name, value in loop.after_epoch().items()})
    print(mark.finish(average, loader))  # the third: statistics of norms, for the averaged weights
    return invgnn.verify(average, mark)


if __name__ == "__main__":
    print(main())
