"""Losses of a mark with compiled, checkpointed, averaged and half-precision models, and accumulated."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim.swa_utils import AveragedModel
from torch.utils.checkpoint import checkpoint
from torch_geometric.data import Batch
from torch_geometric.nn import global_add_pool

from invgnn.nn.forward import unwrap


class Net(nn.Module):
    """A model with a batch norm whose middle may be checkpointed."""

    def __init__(self, features, reentrant=None, width=16):
        super().__init__()
        self.reentrant, self.enter, self.out = reentrant, nn.Linear(features, width), nn.Linear(width, 2)
        self.middle = nn.Sequential(
            nn.Linear(width, width), nn.BatchNorm1d(width), nn.Dropout(0.2), nn.ReLU()
        )

    def forward(self, x, edge_index, batch):
        hidden = self.enter(x).index_add(0, edge_index[1], self.enter(x)[edge_index[0]])
        if self.reentrant is None:
            hidden = self.middle(hidden)
        else:
            hidden = checkpoint(self.middle, hidden, use_reentrant=self.reentrant)
        return self.out(global_add_pool(hidden, batch))


@pytest.fixture
def batch(motifs):
    return Batch.from_data_list(list(motifs.data)[:32])


@pytest.fixture
def net(batch):
    return Net(batch.x.shape[1])


def task_loss(model, batch):
    return cross_entropy(model(batch.x, batch.edge_index, batch.batch), batch.y)


def gradients(model, loss):
    model.zero_grad()
    torch.manual_seed(0)
    loss().backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def close(one, other):
    assert one.keys() == other.keys()
    for name, value in one.items():
        torch.testing.assert_close(value, other[name], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_give_the_same_gradient_and_leave_statistics_alone(reentrant, net, batch, draw):
    mark, twin = draw(), copy.deepcopy(net)
    twin.reentrant = reentrant
    before = copy.deepcopy(dict(twin.named_buffers()))
    close(gradients(net, lambda: mark.loss(net)), gradients(twin, lambda: mark.loss(twin)))
    assert all(value.equal(before[name]) for name, value in twin.named_buffers())
    plain = gradients(net, lambda: mark.joint_loss(net, task_loss(net, batch)))
    close(plain, gradients(twin, lambda: mark.joint_loss(twin, task_loss(twin, batch))))


@pytest.mark.filterwarnings("ignore")  # of the compiler itself
def test_a_compiled_model_gives_the_same_gradient(net, batch, draw):
    mark, compiled = draw(), torch.compile(net, backend="aot_eager")
    assert unwrap(compiled) is net
    plain = gradients(net, lambda: mark.loss(net))
    close(plain, gradients(net, lambda: mark.loss(compiled)))
    net.middle[2].p = 0.0
    plain = gradients(net, lambda: mark.joint_loss(net, task_loss(net, batch)))
    close(plain, gradients(net, lambda: mark.joint_loss(compiled, task_loss(compiled, batch))))
    mixed = mark.mix(batch)
    scores = mixed(compiled)
    assert scores.shape == (32, 2)
    mixed.joint_loss(cross_entropy(scores, batch.y)).backward()
    assert (
        mark.read(compiled, "embedding").carriers.tolist() == mark.read(net, "embedding").carriers.tolist()
    )


def test_a_graph_that_cannot_be_kept_is_sent_backward_once(net, batch, draw, monkeypatch):
    """As with the default backend of torch.compile, which needs a C++ compiler."""
    real, calls = torch.autograd.grad, []

    def grad(*args, retain_graph=False, **more):
        calls.append(retain_graph)
        if retain_graph and len(calls) == 1:
            raise RuntimeError("compiled with non-empty donated buffers which requires retain_graph=False")
        return real(*args, retain_graph=retain_graph, **more)

    monkeypatch.setattr(torch.autograd, "grad", grad)
    draw().joint_loss(net, task_loss(net, batch)).backward()
    assert calls[:2] == [True, False]


def test_an_averaged_model_is_read_as_the_module_inside(net, draw):
    mark, averaged = draw(), AveragedModel(net)
    assert mark.read(averaged).carriers.tolist() == mark.read(net).carriers.tolist()
    assert unwrap(AveragedModel(nn.DataParallel(net))).out.weight.equal(net.out.weight)


def test_accumulated_steps_add_up(net, batch, draw):
    mark, half = draw(), 0.5
    whole = gradients(net, lambda: mark.loss(net) + mark.loss(net, step=0))
    net.zero_grad()
    for one in (None, 0):
        torch.manual_seed(0)
        (half * mark.loss(net, step=one)).backward()
    close(whole, {name: p.grad / half for name, p in net.named_parameters() if p.grad is not None})


def test_half_precision_and_scaled_losses(net, batch, draw):
    mark = draw()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        own = mark.loss(net)
        joint = mark.joint_loss(net, task_loss(net, batch))
    assert own.isfinite()
    joint.backward()
    plain = gradients(net, lambda: mark.loss(net))
    scaled = gradients(net, lambda: 1024 * mark.loss(net))
    close(plain, {name: value / 1024 for name, value in scaled.items()})
