"""Tasks of models of one's own: further tensors, unusual calls, typed graphs."""

import pytest
import torch
from torch import nn
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.nn import GINEConv, global_add_pool

from invgnn.attacks.denial import Serve
from invgnn.attacks.edits import Distil, Prune
from invgnn.attacks.removal import Unlearn
from invgnn.errors import DataError
from invgnn.nn.rng import seeded
from invgnn.secret import Secret
from invgnn.stress_test.run import every_change, is_quick, stress
from invgnn.theory.calibration import calibrate
from invgnn.theory.outcome import Plan
from invgnn.training.batching import Collated, accuracy
from invgnn.training.tasks import new_model, own_task
from invgnn.training.trainer import train
from invgnn.watermark.mark import Watermark

SECRET = Secret(bytes(range(32)))
CLOSE = {"rtol": 1e-5, "atol": 1e-6}


def bonded(number):
    """A ring with chords, whose edges have attributes, whose nodes have positions, with one value."""
    size = 8 + number % 5
    ring = torch.stack([torch.arange(size), (torch.arange(size) + 1) % size])
    pairs = torch.cat([ring, torch.randint(size, (2, 3))], dim=1)
    kind = torch.rand(pairs.shape[1], 3) + number % 2
    return Data(
        x=torch.randn(size, 4),
        edge_index=torch.cat([pairs, pairs.flip(0)], dim=1),
        edge_attr=torch.cat([kind, kind]),
        pos=torch.randn(size, 2),
        u=torch.randn(1, 2),
        y=torch.tensor([number % 2]),
    )


@pytest.fixture(scope="module")
def graphs():
    with seeded(0):
        return [bonded(number) for number in range(60)]


@pytest.fixture(scope="module")
def task(graphs):
    return own_task(graphs, "bonds")


class Bonds(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        inner = nn.Sequential(nn.Linear(4, width), nn.BatchNorm1d(width), nn.ReLU())
        self.conv, self.hidden = GINEConv(inner, edge_dim=3), nn.Linear(width, width)
        self.out = nn.Linear(width, 2)

    def forward(self, x, edge_index, edge_attr, batch):
        x = self.conv(x, edge_index, edge_attr)
        return self.out(self.hidden(global_add_pool(x, batch)).relu())


class Wordy(Bonds):
    """Takes a batch and answers with a dictionary."""

    def forward(self, data):
        return {"scores": super().forward(data.x, data.edge_index, data.edge_attr, data.batch)}


def asked(model, batch):
    return model(batch)["scores"]


def test_batches_have_the_tensors_that_pyg_would_collate(graphs):
    held = Collated(graphs)
    chosen = [7, 3, 59]
    found, expected = (
        held.batch(torch.tensor(chosen)),
        Batch.from_data_list([graphs[i] for i in chosen]),
    )
    for name in ("x", "edge_index", "edge_attr", "pos", "u", "y", "batch", "ptr"):
        torch.testing.assert_close(found[name], expected[name], msg=name)
    assert "edge_attr" not in held.only(()).batch(torch.tensor(chosen))


def test_graphs_followed_by_others_keep_the_tensors_of_both(graphs):
    others = Batch.from_data_list([Data(**{**g.to_dict(), "pos": None}) for g in graphs[:2]])
    del others.pos
    found = Collated(graphs).followed_by(others).batch(torch.tensor([5, 61]))
    expected = Batch.from_data_list([graphs[5], graphs[1]])
    for name in ("x", "edge_index", "edge_attr", "u"):
        torch.testing.assert_close(found[name], expected[name], msg=name)
    assert "pos" not in found


def test_graphs_without_features_are_collated(graphs):
    bare = [Data(edge_index=g.edge_index, num_nodes=g.num_nodes, pos=g.pos, y=g.y) for g in graphs]
    found = Collated(bare).batch(torch.tensor([1, 0]))
    assert found.x is None
    assert found.pos.equal(torch.cat([bare[1].pos, bare[0].pos]))
    assert own_task(bare, "bare").num_features == 0


@pytest.mark.filterwarnings("ignore::invgnn.errors.WeakMarkWarning")
def test_the_training_loop_teaches_a_model_with_edge_attributes(task):
    mark = Watermark.draw(SECRET, task.data, m=16)
    with seeded(1):
        model = Bonds()
    train(model, task, mark, epochs=60)
    assert all(mark.evidence(mark.read(model, access)).bits() > 8 for access in ("embedding", "logits"))
    assert accuracy(model, task, task.test) > 0.6


@pytest.mark.filterwarnings("ignore::invgnn.errors.WeakMarkWarning")
def test_a_mark_without_the_tensors_of_the_data_still_fits_a_model_that_ignores_them(task):
    mark = Watermark.draw(SECRET, task.data, m=16, tensors=())
    history = train(new_model(task, "GIN", 0, hidden_channels=8), task, mark, epochs=2)
    assert history.mark_loss[-1] > 0


@pytest.mark.parametrize("forward", [None, asked])
def test_every_quick_change_and_one_of_every_kind_is_read(forward, graphs):
    task = own_task(graphs, "bonds", forward=forward)
    mark = Watermark.draw(SECRET, graphs, m=16, forward=forward)
    with seeded(2):
        model = Bonds() if forward is None else Wordy()
    changes = [change for change in every_change() if is_quick(change)]
    changes += [Distil("other", epochs=1), Unlearn(1, 16, epochs=1), Serve(digits=2)]
    rows = list(stress(model, mark, task, changes))
    assert len(rows) == 1 + len(changes)
    refused = {row.change: row.note for row in rows if row.accuracy is None}
    assert not [note for note in refused.values() if "forward()" in note], refused
    read = {row.change for row in rows if row.found}
    assert {repr(Prune(0.5)), repr(changes[-1]), repr(changes[-2]), repr(changes[-3])} <= read


def test_backbones_of_the_library_are_called_in_their_own_way(graphs):
    task = own_task(graphs, "bonds", forward=asked)
    net = new_model(task, "GIN", 0).eval()
    batch = Collated(graphs).batch(torch.arange(3))
    torch.testing.assert_close(task.scores(net, batch), net(batch.x, batch.edge_index, batch.batch))
    assert own_task(task, "bonds").forward is asked
    assert own_task(task, "bonds", forward=len).forward is len


@pytest.mark.parametrize("forward", [None, asked])
def test_a_model_of_edge_attributes_is_calibrated(forward, graphs):
    task = own_task(graphs, "bonds", forward=forward)
    plan = Plan(epochs=2, checkpoints=2, marked=1, graphs=4, grid=(1.0,), m=16)
    found = calibrate("bonds", plan, task=task, model=Bonds() if forward is None else Wordy())
    assert found.lipschitz.value > 0


def test_typed_graphs_become_a_task_and_one_typed_graph_does_not():
    with seeded(0):
        items = []
        for number in range(20):
            data = HeteroData(y=torch.tensor([number % 2]))
            data["author"].x, data["paper"].x = torch.randn(3, 2), torch.randn(4, 3)
            data["author", "writes", "paper"].edge_index = torch.tensor([[0, 1, 2, 0], [0, 1, 2, 3]])
            items.append(data)
    task = own_task(items, "typed")
    assert task.forward.types == ["author", "paper"]
    assert task.num_features == 2 + 3

    class Typed(nn.Module):
        def forward(self, x_dict, batch_dict):
            return global_add_pool(x_dict["paper"][:, :2], batch_dict["paper"])

    scores = task.scores(Typed(), Collated(task.graphs).batch(torch.arange(2)))
    expected = torch.stack([item["paper"].x[:, :2].sum(0) for item in items[:2]])
    torch.testing.assert_close(scores, expected, **CLOSE)
    with pytest.raises(DataError, match="list of HeteroData"):
        own_task(items[0], "typed")
