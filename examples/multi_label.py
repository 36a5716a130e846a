"""Several independent labels per graph: the mark is read at the outputs as they are (`values`)."""

import torch
from torch.nn.functional import binary_cross_entropy_with_logits
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GIN, global_add_pool

import invgnn


def labelled(graph):
    """Has a motif; many edges; a node of high degree."""
    most = int(graph.edge_index[1].bincount().max())
    graph.y = torch.tensor([[float(graph.y), float(graph.num_edges > 100), float(most > 14)]])
    return graph


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = GIN(4, 64, 3, norm="batch_norm")
        self.out = torch.nn.Linear(64, 3)

    def forward(self, x, edge_index, batch):
        return self.out(global_add_pool(self.body(x, edge_index), batch))


def main(epochs=40):
    graphs = [labelled(graph) for graph in invgnn.load_task("BA-2motif").data]
    mark = invgnn.Watermark.draw(invgnn.Secret.generate(), graphs)
    print("read at", mark.context["readings"])  # embedding and values: y holds several zeros and ones
    model, loader = Net(), DataLoader(graphs, 64, shuffle=True)
    steps = epochs * len(loader)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    fall = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda s: min(1.0, 2 * (1 - s / steps)))
    for step, batch in enumerate(batch for _ in range(epochs) for batch in loader):
        optimiser.zero_grad()
        mixed = mark.mix(batch, step=step, steps=steps)
        loss = binary_cross_entropy_with_logits(mixed(model), batch.y)
        (loss + mixed.loss()).backward()
        optimiser.step()
        fall.step()
    print(mark.finish(model, loader))
    return invgnn.verify(model, mark)


if __name__ == "__main__":
    print(main())
