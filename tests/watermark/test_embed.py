"""mark.embed: a trained model of any usual kind, on data of any usual form, is marked in one call."""

import copy
import logging
import math
from itertools import count

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel
from torch_geometric.data import Batch, Data
from torch_geometric.loader import ClusterData, ClusterLoader, DataLoader, RandomNodeLoader
from torch_geometric.nn import GCNConv, GINConv, global_add_pool
from torch_geometric.utils import subgraph

from invgnn.errors import DataError, EmbeddingError, ParameterError, WeakMarkWarning
from invgnn.nn.forward import call
from invgnn.watermark import embed as module
from invgnn.watermark.own_scores import agreement, kept_loss
from invgnn.watermark.task_batches import TaskBatches


class GraphNet(nn.Module):
    """A GIN with a batch norm and dropout."""

    def __init__(self, features=10, classes=2, width=32):
        super().__init__()
        self.conv = GINConv(nn.Sequential(nn.Linear(features, width), nn.BatchNorm1d(width), nn.ReLU()))
        self.hidden, self.out = nn.Linear(width, width), nn.Linear(width, classes)

    def forward(self, x, edge_index, batch):
        pooled = global_add_pool(self.conv(x, edge_index), batch)
        return self.out(nn.functional.dropout(self.hidden(pooled).relu(), 0.2, self.training))


class NodeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = GCNConv(5, 32), GCNConv(32, 2)

    def forward(self, x, edge_index):
        return self.two(self.one(x, edge_index).relu(), edge_index)


@pytest.fixture
def graphs(motifs):
    return list(motifs.data)


def parts(data):
    """Two halves of a graph."""
    halves = torch.arange(data.num_nodes).chunk(2)
    cut = [
        subgraph(half, data.edge_index, relabel_nodes=True, num_nodes=data.num_nodes)[0] for half in halves
    ]
    return [Data(x=data.x[half], edge_index=edges) for half, edges in zip(halves, cut, strict=True)]


def quietly(mark, *args, **options):
    with pytest.warns(WeakMarkWarning):  # sixteen carriers cannot show 80 bits
        return mark.embed(*args, **options)


def test_a_graph_model_learns_the_mark_and_keeps_its_answers(graphs, draw):
    model, seen = GraphNet(graphs[0].x.shape[1]), []
    found = quietly(
        draw(),
        model,
        graphs,
        steps=150,
        metric=lambda m: float(not m.training),
        progress=lambda *at: seen.append(at),
    )
    assert found.bits["embedding"] > 8
    assert (found.before, found.after) == (1.0, 1.0)  # the metric runs in evaluation mode
    assert found.agreement > 0.8
    assert model.training  # as it was
    assert 0 < found.steps <= 150
    assert seen[-1] == (found.steps, found.steps)
    assert found.presentations == found.steps * found.plan.count / 16


def test_something_else_than_scores_can_be_kept(web, draw):
    asked = []

    def doubled(model, batch):
        asked.append(model.training)
        return 2 * model(batch.x, batch.edge_index)

    found = quietly(draw("node"), NodeNet(), web.data, steps=40, keep=doubled)
    assert set(asked) == {True, False}  # the model in training, and as it was before
    assert found.agreement <= 1
    assert found.bits["embedding"] > 8


def test_the_result_reads_well(graphs, draw):
    found = quietly(draw(), GraphNet(graphs[0].x.shape[1]), graphs, steps=2, metric=lambda m: 0.912)
    text = str(found)
    assert "metric 0.912 before, 0.912 after" in text
    assert "2 of at most 2 optimiser steps, each with 16 of 16 carriers: 2 presentations" in text
    assert f"embedding {found.bits['embedding']:.1f} bits" in text
    assert found.record()["bits"] == found.bits


@pytest.mark.parametrize("form", ["one graph", "parts", "random nodes", "neighbours", "clusters"])
def test_a_node_model_is_marked_on_data_of_every_form(form, web, draw):
    data = copy.copy(web.data)
    if form == "parts":
        data = parts(data)
    if form == "random nodes":
        data = RandomNodeLoader(data, num_parts=2, shuffle=True)
    if form == "neighbours":  # as NeighborLoader makes them, which needs pyg-lib
        count = data.num_nodes
        known = {"batch_size": 8, "input_id": torch.arange(8), "n_id": torch.arange(count)}
        data = [Data(x=data.x, edge_index=data.edge_index, e_id=torch.arange(data.num_edges), **known)]
    if form == "clusters":
        pytest.importorskip("pyg_lib")
        data = ClusterLoader(ClusterData(data, 2), batch_size=1)
    assert quietly(draw("node"), NodeNet(), data, steps=40).bits["embedding"] > 8


def test_a_loader_and_a_list_of_batches_are_accepted(graphs, draw):
    mark, features = draw(), graphs[0].x.shape[1]
    for data in (DataLoader(graphs, 64), [Batch.from_data_list(graphs[:50])]):
        assert quietly(mark, GraphNet(features), data, steps=2).steps == 2


def test_carriers_get_a_pass_of_their_own_where_they_cannot_be_mixed_in(graphs, draw):
    rich = [Data(x=g.x, edge_index=g.edge_index, edge_attr=torch.ones(g.num_edges, 1)) for g in graphs[:40]]
    assert quietly(draw(), GraphNet(graphs[0].x.shape[1]), rich, steps=2).steps == 2


def test_labels_are_not_needed(graphs, draw):
    bare = [Data(x=g.x, edge_index=g.edge_index) for g in graphs[:40]]
    assert quietly(draw(), GraphNet(graphs[0].x.shape[1]), bare, steps=2).steps == 2


def test_wrapped_models_are_unwrapped(graphs, draw):
    inner = GraphNet(graphs[0].x.shape[1])
    averaged = AveragedModel(inner)
    before = copy.deepcopy(averaged.module.state_dict())
    quietly(draw(), averaged, graphs, steps=2)
    assert any(not value.equal(before[name]) for name, value in averaged.module.state_dict().items())


def test_random_states_hooks_and_gradients_are_left_alone(graphs, draw, unchanged):
    model, mark = GraphNet(graphs[0].x.shape[1]).eval(), draw()
    model.out.weight.grad = torch.ones_like(model.out.weight)
    twin = copy.deepcopy(model)
    with unchanged(twin):
        quietly(mark, model, graphs, steps=2)
    assert model.out.weight.grad.eq(1).all()
    assert not any(part.training for part in model.modules())


def test_an_interrupted_embedding_loses_nothing(graphs, draw, unchanged):
    model = GraphNet(graphs[0].x.shape[1])

    def stop(done, total):
        if done == 3:
            raise KeyboardInterrupt

    with unchanged(model), pytest.raises(KeyboardInterrupt):
        draw().embed(model, graphs, steps=20, progress=stop)


def test_a_model_that_diverges_is_restored_and_a_lower_rate_is_tried(graphs, draw, unchanged, monkeypatch):
    model, mark = GraphNet(graphs[0].x.shape[1]).eval(), draw()
    with monkeypatch.context() as patch:
        patch.setattr(module, "BACK_OFF", (1e6, 1.0))
        assert quietly(mark, copy.deepcopy(model), graphs, steps=20, lr=0.01).lr == 0.01
    with unchanged(model), pytest.raises(EmbeddingError, match="diverged at learning rates from 1e"):
        mark.embed(model, graphs, steps=30, lr=1e30)


@pytest.mark.parametrize(("odd", "diverges"), [(1, False), (4, False), (6, True), (None, True)])
def test_a_batch_with_an_odd_input_is_no_divergence(graphs, draw, monkeypatch, odd, diverges):
    """A loss that is huge in some of ten steps is that of odd inputs; NaN, or most steps, is not."""
    true, calls = module.kept_loss, count()

    def loss(*scores):
        step, found = next(calls), true(*scores)
        if odd is None:
            return found * math.nan
        return found + (1e6 if 10 <= step < 10 + odd else 0.0)

    monkeypatch.setattr(module, "kept_loss", loss)
    monkeypatch.setattr(module, "BACK_OFF", (1.0,))
    model = GraphNet(graphs[0].x.shape[1]).eval()
    with pytest.raises(EmbeddingError) if diverges else pytest.warns(WeakMarkWarning):
        draw().embed(model, graphs, steps=25, lr=0.01)


def test_the_plan_is_stated_before_the_first_step(graphs, draw, caplog):
    caplog.set_level(logging.INFO, "invgnn")
    quietly(draw(), GraphNet(graphs[0].x.shape[1]), graphs, steps=2)
    assert "16 of 16 carriers in 2 of 2 optimiser steps" in caplog.text


def test_it_stops_once_every_carrier_is_learnt(graphs, draw, monkeypatch):
    monkeypatch.setattr(module, "SETTLED", math.inf)
    monkeypatch.setattr(module, "ENOUGH", 0.0)
    with pytest.warns(WeakMarkWarning, match="in evaluation mode"):
        found = draw().embed(GraphNet(graphs[0].x.shape[1]), graphs, steps=50)
    assert found.steps == 2  # one settled round, and as many steps to let the rate fall


def test_what_cannot_be_embedded_is_refused(graphs, draw):
    model, mark = GraphNet(graphs[0].x.shape[1]), draw()
    with pytest.raises(ParameterError, match="score channel"):
        draw(score_channel=16).embed(model, graphs)
    with pytest.raises(ParameterError, match=r"nn\.Module"):
        mark.embed(graphs, model)
    with pytest.raises(ParameterError, match="positive"):
        mark.embed(model, graphs, lr=-1)
    with pytest.raises(ParameterError, match="steps"):
        mark.embed(model, graphs, steps=0)
    with pytest.raises(ParameterError, match="requires_grad_"):
        mark.embed(copy.deepcopy(model).requires_grad_(False), graphs)
    with pytest.raises(ParameterError, match="metric returned a NoneType"):
        mark.embed(model, graphs, steps=1, metric=lambda model: None)
    for data in ([], iter(graphs), [1, 2], 7):
        with pytest.raises(DataError, match="RandomNodeLoader"):
            mark.embed(model, data)


def test_outputs_that_are_no_classes_are_kept_by_their_distance():
    kept = torch.tensor([[0.0], [2.0]])
    assert kept_loss(kept, kept, None) == 0
    assert kept_loss(kept + 1, kept, None) == pytest.approx(1.0)  # one standard deviation
    assert kept_loss(kept + 1, kept, 3) == pytest.approx(1.0)  # one column is no score of three classes
    assert agreement(kept + 1, kept, None) == pytest.approx(0.0)
    assert agreement(kept, kept, None) == 1


def test_class_scores_are_kept_up_to_a_shift():
    kept = torch.tensor([[0.0, 2.0], [1.0, 0.0]])
    assert kept_loss(kept + 5, kept, 2) == pytest.approx(0.0, abs=1e-6)
    assert agreement(kept.flip(1), kept, 2) == 0
    with pytest.raises(DataError, match="same rows"):
        kept_loss(kept[:1], kept, 2)


def test_single_graphs_are_shuffled_and_batches_are_kept(graphs):
    loose, fixed = TaskBatches(graphs, "graph", 32), TaskBatches(DataLoader(graphs, 32), "graph", 1)
    assert len(loose) == len(fixed) == 5
    assert not loose.fixed
    assert not fixed.fixed
    listed = TaskBatches([loose.first], "graph", 1)
    assert listed.fixed
    assert next(iter(listed)) is loose.first


def test_the_mark_loses_weight_only_while_the_rate_falls(graphs, draw, monkeypatch):
    """The weight of the scores never jumps: Adam would take large steps."""
    weights = []

    def summed(task, own, *rest):
        weights.append((task, own))
        return task + own

    monkeypatch.setattr(module, "projected_sum", summed)
    model = GraphNet(graphs[0].x.shape[1])

    def ones(*_):
        value = sum(p.sum() * 0 for p in model.parameters()) + 1.0
        return value, value

    monkeypatch.setattr(module._Run, "_losses", ones)
    quietly(draw(), model, graphs, steps=10)
    tasks, marks = ([round(side.item(), 6) for side in sides] for sides in zip(*weights, strict=True))
    assert set(tasks) == {module.CLASSES.learn}
    assert marks[:5] == [1.0] * 5
    assert marks[5:] == sorted(marks[5:], reverse=True)
    assert module.CLASSES.learn / module.CLASSES.keep < marks[-1] < 0.4


def test_real_outputs_settle_over_all_steps_that_are_left(graphs, draw, monkeypatch):
    monkeypatch.setattr(module, "SETTLED", math.inf)
    monkeypatch.setattr(module, "ENOUGH", 0.0)
    mark, features = draw(access=("embedding", "values")), graphs[0].x.shape[1]
    assert quietly(mark, GraphNet(features, 1), graphs, steps=12).steps == 12
    assert quietly(mark, GraphNet(features, 1), graphs, steps=12, keep=call).steps == 2
