"""mark.monitor and mark.finish: what an owner sees in a loop of his own, and how he ends it."""

import copy

import pytest
import torch
from torch import nn
from torch_geometric.data import Batch
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GINConv, global_add_pool

from invgnn.errors import MonitorWarning, ParameterError, WeakMarkWarning
from invgnn.nn.running_statistics import reestimate
from invgnn.nn.weight_scaling import weight_scale
from invgnn.watermark import monitor as module


class Net(nn.Module):
    def __init__(self, features, norm=True, width=16):
        super().__init__()
        inner = [nn.Linear(features, width), *([nn.BatchNorm1d(width)] if norm else []), nn.ReLU()]
        self.conv, self.drop, self.out = (
            GINConv(nn.Sequential(*inner)),
            nn.Dropout(0.5),
            nn.Linear(width, 2),
        )

    def forward(self, x, edge_index, batch):
        return self.out(self.drop(global_add_pool(self.conv(x, edge_index), batch)))


@pytest.fixture
def graphs(motifs):
    return list(motifs.data)


@pytest.fixture
def features(graphs):
    return graphs[0].x.shape[1]


def test_it_returns_bits_and_losses_and_changes_nothing(features, draw, unchanged):
    model, mark = Net(features, norm=False), draw()
    with unchanged(model):
        found = mark.monitor(model)
    assert set(found) == {
        "mark/bits/embedding",
        "mark/bits/logits",
        "mark/loss/evaluation",
        "mark/loss/training",
    }
    assert found["mark/bits/embedding"] == mark.evidence(mark.read(model, "embedding")).bits()
    model.eval()
    assert found["mark/loss/evaluation"] == pytest.approx(mark.loss(model).item())


def test_what_is_no_model_is_refused(graphs, draw):
    for act in (draw().monitor, lambda model: draw().finish(model, graphs)):
        with pytest.raises(ParameterError, match="pass the model first"):
            act("model.pt")


def test_losses_that_differ_little_or_are_small_need_no_warning():
    assert module._lag(3.0, 1.0, 1.0, norms=False)["lag"].advice.startswith("check what the model")
    assert not module._lag(1.4, 1.0, 1.0, norms=True)
    assert not module._lag(0.09, 0.001, 1.0, norms=True)


def test_it_warns_once_if_running_statistics_lag(features, draw, monkeypatch):
    model, mark = Net(features), draw()
    monkeypatch.setattr(module, "LAG", 0.0)
    monkeypatch.setattr(module, "SMALL", 0.0)
    with pytest.warns(MonitorWarning, match="mark.finish"):
        mark.monitor(model)
    mark.monitor(model)  # a second warning would be an error


@pytest.mark.parametrize(
    ("past", "said"),
    [
        ([1.0] * 10, None),
        ([1.0] * 11, "not being learnt"),
        ([30.0] * 11, "has not grown"),
        ([30.0, *range(31, 41)], None),
        ([90.0] * 11, None),
    ],
)
def test_it_warns_if_bits_stall(past, said):
    found = [str(warning) for warning in module._stalled({"logits": past}).values()]
    assert (said is None and not found) or (said in found[0] and "logits" in found[0])


def test_finish_estimates_statistics_and_scales_weights(graphs, features, draw):
    model, mark, loader = Net(features), draw(), DataLoader(graphs, 40)
    model.conv.nn[1].running_mean += 100
    expected = copy.deepcopy(model)
    with pytest.warns(WeakMarkWarning, match="falls to zero"):
        levels = mark.finish(model, loader)
    assert set(levels) == {"embedding", "logits"}
    assert model.training
    assert model.conv.nn[1].momentum == 0.1
    whole = Batch.from_data_list(graphs)
    assert 100 < weight_scale(model, whole) <= mark.recipe.weight_scale  # as half precision allows
    entered = expected.conv.nn[0](expected.conv.propagate(whole.edge_index, x=(whole.x, whole.x)) + whole.x)
    assert reestimate(expected, [whole]) == 1
    torch.testing.assert_close(expected.conv.nn[1].running_mean, entered.mean(0))
    torch.testing.assert_close(expected.conv.nn[1].running_var, entered.var(0))


def test_statistics_are_restored_after_an_error(graphs, features, unchanged):
    model = Net(features)

    def batches():
        yield Batch.from_data_list(graphs[:20])
        raise KeyError

    with unchanged(model), pytest.raises(KeyError):
        reestimate(model, batches())
    with unchanged(model):
        assert reestimate(model, []) == 0
    assert reestimate(nn.Linear(2, 2), []) == 0
