"""PyG's model zoo: every model is marked, by one call and in a training loop, or a warning says why."""

import warnings

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import (
    GAT,
    GCN,
    GIN,
    PNA,
    ARMAConv,
    ChebConv,
    ClusterGCNConv,
    GCNConv,
    GENConv,
    GraphConv,
    GraphSAGE,
    LEConv,
    ResGatedGraphConv,
    SAGPooling,
    TAGConv,
    TopKPooling,
    TransformerConv,
    global_add_pool,
    global_mean_pool,
)
from torch_geometric.utils import barabasi_albert_graph, degree

from invgnn.errors import MonitorWarning, WeakMarkWarning
from invgnn.nn.rng import seeded
from invgnn.nn.running_statistics import reestimate, tracking_norms
from invgnn.secret import Secret
from invgnn.stats.evidence import GRINDING_BITS
from invgnn.watermark.levels import levels_of
from invgnn.watermark.mark import Watermark

FEATURES, WIDTH, EPOCHS = 8, 64, 60


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


class Net(nn.Module):
    """A body of the zoo, pooling and a linear layer."""

    def __init__(self, body, pool=global_mean_pool):
        super().__init__()
        self.body, self.pool, self.out = body, pool, nn.Linear(WIDTH, 2)

    def forward(self, x, edge_index, batch):
        return self.out(self.pool(self.body(x, edge_index, batch=batch), batch))


class Stack(nn.Module):
    """Two convolutions of one kind."""

    def __init__(self, conv):
        super().__init__()
        self.one, self.two = conv(FEATURES, WIDTH), conv(WIDTH, WIDTH)

    def forward(self, x, edge_index, batch):
        return self.two(self.one(x, edge_index).relu(), edge_index).relu()


class Hierarchy(nn.Module):
    """Convolution, hierarchical pooling, convolution."""

    def __init__(self, pooling):
        super().__init__()
        self.one, self.two, self.pooling = GCNConv(FEATURES, WIDTH), GCNConv(WIDTH, WIDTH), pooling(WIDTH)
        self.out = nn.Linear(WIDTH, 2)

    def forward(self, x, edge_index, batch):
        x = self.one(x, edge_index).relu()
        x, edge_index, _, batch, *_ = self.pooling(x, edge_index, batch=batch)
        return self.out(global_mean_pool(self.two(x, edge_index).relu(), batch))


NORMS = [None, "batch_norm", "layer_norm", "graph_norm", "instance_norm", "pair_norm"]
CONVS = {
    "ARMAConv": ARMAConv,
    "ChebConv": lambda i, o: ChebConv(i, o, 3),
    "ClusterGCNConv": ClusterGCNConv,
    "GENConv": GENConv,
    "GraphConv": GraphConv,
    "LEConv": LEConv,
    "ResGatedGraphConv": ResGatedGraphConv,
    "TAGConv": TAGConv,
    "TransformerConv": TransformerConv,
}
ZOO = {
    **{f"GCN {norm}": lambda g, norm=norm: Net(GCN(FEATURES, WIDTH, 3, norm=norm)) for norm in NORMS},
    **{
        f"GraphSAGE {jk}": lambda g, jk=jk: Net(GraphSAGE(FEATURES, WIDTH, 3, WIDTH, jk=jk))
        for jk in ("last", "cat", "max", "lstm")
    },
    "GAT": lambda g: Net(GAT(FEATURES, WIDTH, 3, heads=4)),
    "GATv2 cat dropout": lambda g: Net(
        GAT(FEATURES, WIDTH, 3, WIDTH, heads=4, v2=True, jk="cat", dropout=0.5)
    ),
    "GIN": lambda g: Net(GIN(FEATURES, WIDTH, 3), global_add_pool),
    "GIN batch_norm": lambda g: Net(GIN(FEATURES, WIDTH, 3, norm="batch_norm")),
    "PNA": lambda g: Net(
        PNA(
            FEATURES,
            WIDTH,
            3,
            aggregators=["mean", "max"],
            scalers=["identity", "amplification"],
            deg=degrees(g),
        )
    ),
    "TopKPooling": lambda g: Hierarchy(TopKPooling),
    "SAGPooling": lambda g: Hierarchy(SAGPooling),
    **{name: lambda g, conv=conv: Net(Stack(conv)) for name, conv in CONVS.items()},
}


def fitted(model, graphs, mark=None, epochs=12):
    """Train as in the README: with a mark, carriers in the batch and a rate that falls to zero."""
    loader, step = DataLoader(graphs, 60, shuffle=True), 0
    steps = epochs * len(loader)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    falling = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: min(1, 2 * (1 - step / steps)))
    for _ in range(epochs):
        model.train()
        for batch in loader:
            optimiser.zero_grad()
            if mark is None:
                loss = cross_entropy(model(batch.x, batch.edge_index, batch.batch), batch.y)
            else:
                mixed = mark.mix(batch, step=step, steps=steps)
                loss = cross_entropy(mixed(model), batch.y) + mixed.loss()
            loss.backward()
            optimiser.step()
            falling.step()
            step += 1
    return model.eval()


@pytest.mark.slow
@pytest.mark.parametrize("way", ["embed", "loop"])
@pytest.mark.parametrize("name", ZOO)
def test_every_model_is_marked_or_a_warning_says_why(name, way, graphs, mark):
    train, test = graphs[:240], next(iter(DataLoader(graphs[240:], 240)))
    with seeded(5):
        model = ZOO[name](graphs)
        if way == "embed":
            fitted(model, train)
    before = accuracy(model, test)
    with warnings.catch_warnings(record=True) as said, seeded(6):
        warnings.simplefilter("always", WeakMarkWarning)
        if way == "embed":
            bits, cost = (found := mark.embed(model, train)).bits, f"{found.steps} steps"
        else:
            fitted(model, train, mark, EPOCHS)
            levels = mark.finish(model, DataLoader(train, 60))
            bits, cost = {level: found.bits for level, found in levels.items()}, f"{EPOCHS} epochs"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MonitorWarning)
        losses = mark.monitor(model)
    after = accuracy(model, test)
    kept = dict.fromkeys(bits, 1.0)
    if tracking_norms(model):
        reestimate(model, DataLoader(train, 60), mark.forward)
        kept = {level: found.bits for level, found in levels_of(mark, model).items()}
    found = f"{before:.3f} {after:.3f} {cost} " + " ".join(f"{level} {b:.0f}" for level, b in bits.items())
    print(f"zoo {name}, {way}: {found}, losses {[round(loss, 3) for loss in list(losses.values())[-2:]]}")
    assert min(bits.values()) >= GRINDING_BITS or [w.category for w in said] == [WeakMarkWarning]
    assert max(bits.values()) > 20
    if "dropout" not in name:  # dropout is meant to make a difference
        assert losses["mark/loss/evaluation"] <= 1.1 * losses["mark/loss/training"] + 0.05
    assert not tracking_norms(model) or all(kept[level] >= 0.8 * bits[level] for level in bits)


def accuracy(model, test):
    with torch.no_grad():
        model.eval()
        found = model(test.x, test.edge_index, test.batch).argmax(1) == test.y
    return float(found.double().mean())
