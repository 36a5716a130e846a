"""PyG's model zoo: every model is marked by one call within the default budget, or a warning says why."""

import warnings

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GAT, GCN, GIN, PNA, GraphSAGE, global_add_pool, global_mean_pool
from torch_geometric.utils import barabasi_albert_graph, degree

from invgnn.errors import WeakMarkWarning
from invgnn.nn.rng import seeded
from invgnn.secret import Secret
from invgnn.stats.evidence import GRINDING_BITS
from invgnn.watermark.mark import Watermark

FEATURES, WIDTH = 8, 64


def generated(count):
    """Rings against scale-free graphs, with noisy features."""
    items = []
    for number in range(count):
        y, size = number % 2, int(torch.randint(10, 20, (1,)))
        ring = torch.stack([torch.arange(size), (torch.arange(size) + 1) % size])
        edges = barabasi_albert_graph(size, 2) if y else torch.cat([ring, ring.flip(0)], dim=1)
        items.append(Data(x=torch.randn(size, FEATURES) + 0.5 * y, edge_index=edges, y=torch.tensor([y])))
    return items


@pytest.fixture(scope="module")
def graphs():
    with seeded(3):
        return generated(480)


@pytest.fixture(scope="module")
def mark(graphs):
    return Watermark.draw(Secret(bytes(range(32))), graphs[:240])


def degrees(graphs):
    found = [degree(graph.edge_index[1], graph.num_nodes).long() for graph in graphs]
    return torch.bincount(torch.cat(found))


NORMS = [None, "batch_norm", "layer_norm", "graph_norm", "instance_norm"]
ZOO = {
    **{f"GCN {norm}": lambda g, norm=norm: GCN(FEATURES, WIDTH, 3, norm=norm) for norm in NORMS},
    **{
        f"GraphSAGE {jk}": lambda g, jk=jk: GraphSAGE(FEATURES, WIDTH, 3, WIDTH, jk=jk)
        for jk in ("last", "cat", "max", "lstm")
    },
    "GAT": lambda g: GAT(FEATURES, WIDTH, 3, heads=4),
    "GATv2 cat dropout": lambda g: GAT(FEATURES, WIDTH, 3, WIDTH, heads=4, v2=True, jk="cat", dropout=0.5),
    "GIN": lambda g: GIN(FEATURES, WIDTH, 3),
    "GIN batch_norm": lambda g: GIN(FEATURES, WIDTH, 3, norm="batch_norm"),
    "PNA": lambda g: PNA(
        FEATURES,
        WIDTH,
        3,
        aggregators=["mean", "max"],
        scalers=["identity", "amplification"],
        deg=degrees(g),
    ),
}


class Net(nn.Module):
    def __init__(self, body, pool):
        super().__init__()
        self.body, self.pool, self.out = body, pool, nn.Linear(WIDTH, 2)

    def forward(self, x, edge_index, batch):
        return self.out(self.pool(self.body(x, edge_index), batch))


def trained(model, graphs, epochs=12):
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(epochs):
        model.train()
        for batch in DataLoader(graphs, 60, shuffle=True):
            optimiser.zero_grad()
            cross_entropy(model(batch.x, batch.edge_index, batch.batch), batch.y).backward()
            optimiser.step()
    return model.eval()


@pytest.mark.slow
@pytest.mark.parametrize("name", ZOO)
def test_every_model_is_marked_or_a_warning_says_why(name, graphs, mark):
    pool = global_add_pool if name == "GIN" else global_mean_pool
    model = trained(Net(ZOO[name](graphs), pool), graphs[:240])
    test = next(iter(DataLoader(graphs[240:], 240)))

    def accuracy(net):
        return (net(test.x, test.edge_index, test.batch).argmax(1) == test.y).float().mean()

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", WeakMarkWarning)
        found = mark.embed(model, graphs[:240], metric=accuracy)
    print(f"{name}: {found}")
    assert min(found.bits.values()) >= GRINDING_BITS or [w.category for w in said] == [WeakMarkWarning]
    assert max(found.bits.values()) > 20
    reading = mark.monitor(model)
    assert reading["mark/loss/evaluation"] <= 1.1 * reading["mark/loss/training"] + 0.05
