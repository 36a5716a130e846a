"""The Lightning callback in a real Trainer, and the same loop written by hand."""

import copy
import warnings

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GINConv, global_add_pool

from invgnn.errors import WeakMarkWarning
from invgnn.integrations.loop import MarkLoop
from invgnn.nn.gradient_projection import projected_sum


class Net(nn.Module):
    def __init__(self, features, width=32):
        super().__init__()
        inner = nn.Sequential(nn.Linear(features, width), nn.BatchNorm1d(width), nn.ReLU())
        self.conv, self.hidden, self.out = GINConv(inner), nn.Linear(width, width), nn.Linear(width, 2)

    def forward(self, x, edge_index, batch):
        return self.out(self.hidden(global_add_pool(self.conv(x, edge_index), batch)).relu())


def loss_of(net, batch):
    return cross_entropy(net(batch.x, batch.edge_index, batch.batch), batch.y)


@pytest.fixture
def graphs(motifs):
    return list(motifs.data)


def test_lightning_embeds_the_mark_with_accumulated_gradients(graphs, draw, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Lightning's own imports
        lightning = pytest.importorskip("lightning.pytorch")
        from invgnn.integrations.lightning import MarkCallback

    class Task(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = Net(graphs[0].x.shape[1])

        def training_step(self, batch, index):
            return loss_of(self.net, batch)

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), lr=0.03)

    mark, task = draw(), Task()
    callback = MarkCallback(mark, lambda module: module.net)
    trainer = lightning.Trainer(
        max_epochs=20,
        accelerator="cpu",
        callbacks=[callback],
        accumulate_grad_batches=2,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer.fit(task, DataLoader(graphs, 32, shuffle=True))
    assert callback.loop.step == callback.loop.steps == 20 * 3  # five batches an epoch, two in a step
    assert mark.evidence(mark.read(task.net)).bits() > 6
    assert trainer.callback_metrics["mark/bits/embedding"] >= 0
    assert "mark/loss" in trainer.callback_metrics


def test_a_hand_written_loop_gets_the_gradient_of_the_joint_loss(graphs, draw):
    batch, mark = next(iter(DataLoader(graphs, 32))), draw()
    one = Net(graphs[0].x.shape[1])
    other = copy.deepcopy(one)
    loop = MarkLoop(mark, one)
    loss_of(one, batch).backward()
    loop.before_step()
    task = loss_of(other, batch)
    projected_sum(task, mark.loss(other, step=0), other.parameters()).backward()
    for p, q in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad)
    assert set(loop.after_epoch()) >= {"mark/bits/embedding"}
    with pytest.warns(WeakMarkWarning):
        assert set(loop.finish(graphs)) == {"embedding", "logits"}


def test_a_step_without_carriers_leaves_the_gradient_alone(graphs, draw):
    batch, model = next(iter(DataLoader(graphs, 32))), Net(graphs[0].x.shape[1])
    loop = MarkLoop(draw(), model, steps=1000)  # the first steps warm up
    loss_of(model, batch).backward()
    before = [p.grad.clone() for p in model.parameters()]
    assert loop.before_step() == 0
    assert all(p.grad.equal(g) for p, g in zip(model.parameters(), before, strict=True))
