"""Mixed batches of node tasks are kept while nothing changes; ordinary inputs take turns."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch_geometric.data import Batch
from torch_geometric.nn import GraphConv

from invgnn.training.tasks import new_model
from invgnn.watermark.carrier_batches import ENOUGH, MANY, MIXED, CarrierBatches
from invgnn.watermark.recipe import Recipe
from invgnn.watermark.schedule import CarrierSchedule

SOME = Recipe(carriers=4)
"""Four of sixteen carriers in a step: a round of four steps."""


@pytest.fixture
def mark(draw):
    return draw("node", recipe=SOME)


@pytest.fixture
def graph(web):
    """A graph of a node task whose tensors a test may write to."""
    own = copy.copy(web.graphs[0])
    own.x, own.edge_index = own.x.clone(), own.edge_index.clone()
    return own


def same(one, other):
    """Whether two mixed batches consist of the very same tensors."""
    return all(one[name] is other[name] for name in ("x", "edge_index", "batch", "ptr"))


def equal(one, other):
    return all(one[name].equal(other[name]) for name in ("x", "edge_index", "batch", "ptr"))


# --- kept batches


def test_a_mixed_batch_is_made_once_while_nothing_changes(mark, graph):
    first = [mark.mix(graph, step=step).batch for step in range(4)]
    second = [mark.mix(graph, step=step).batch for step in range(4, 8)]
    assert all(map(same, first, second))
    assert not any(same(first[0], other) for other in first[1:])
    assert first[0] is not second[0]  # a model may set attributes of its batch
    for step, batch in enumerate(second):
        fresh = mark.replace(recipe=SOME).mix(graph, step=step)
        assert equal(batch, fresh.batch)
        assert not same(batch, fresh.batch)


def test_a_copy_of_the_graph_with_the_same_tensors_is_the_same(mark, graph):
    assert same(mark.mix(graph, step=0).batch, mark.mix(copy.copy(graph), step=0).batch)


CHANGES = {
    "features replaced": lambda graph: setattr(graph, "x", graph.x + 1),
    "edges replaced": lambda graph: setattr(graph, "edge_index", graph.edge_index[:, :-2]),
    "features written to": lambda graph: graph.x.mul_(2),
    "one row written to": lambda graph: graph.x[3].zero_(),
    "edges written to": lambda graph: graph.edge_index[:, 0].fill_(5),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_graph_is_mixed_anew(mark, graph, change):
    before = [mark.mix(graph, step=step).batch for step in range(4)]
    CHANGES[change](graph)
    for step in range(4):
        after = mark.mix(graph, step=step)
        assert not equal(after.batch, before[step])
        assert equal(after.batch, mark.replace(recipe=SOME).mix(graph, step=step).batch)
        assert same(after.batch, mark.mix(graph, step=step).batch)  # kept again


@pytest.mark.parametrize("carriers", [1, 2, 3])
def test_no_more_mixed_batches_are_kept_than_allowed(draw, graph, carriers):
    mark = draw("node", recipe=Recipe(carriers=carriers))
    portions = -(-16 // carriers)
    made = [mark.mix(graph, step=step).batch for step in range(portions)]
    assert len(mark.batches._mixed) == min(portions, MIXED)
    assert same(made[-1], mark.mix(graph, step=portions - 1).batch)


def test_batches_of_another_graph_are_not_kept(mark, graph):
    for _ in range(3):
        graph.x = graph.x.clone()
        for step in range(4):
            mark.mix(graph, step=step)
        assert len(mark.batches._mixed) == 4
        assert all(one.x is graph.x for one in mark.batches._mixed)


class Writing(nn.Module):
    """A model that scales its input in place."""

    def __init__(self, features=5):
        super().__init__()
        self.one, self.two = GraphConv(features, 8), GraphConv(8, 2)

    def forward(self, x, edge_index):
        x.mul_(1.5)
        return self.two(self.one(x, edge_index).relu(), edge_index)


@pytest.mark.parametrize("joint", [True, False])
def test_a_model_that_writes_into_its_input_does_not_change_later_steps(mark, graph, joint):
    """Two rounds with one mark equal two rounds in which every step has a fresh one."""
    model, before = Writing(), graph.x.clone()
    for step in range(8):
        found = []
        for one in (mark, mark.replace(recipe=SOME)):
            if joint:
                mixed = one.mix(graph, step=step)
                found.append((mixed(model), mixed.loss()))
            else:
                found.append((torch.zeros(()), one.loss(model, step=step)))
        (scores, loss), (wanted, wanted_loss) = found
        assert scores.equal(wanted)
        assert loss.equal(wanted_loss)
        assert graph.x.equal(before)


def test_losses_of_kept_batches_are_those_of_fresh_ones_with_gradients(mark, web, graph):
    """A kept batch holds no graph of an earlier backward pass."""
    model = new_model(web, "GIN", 0, hidden_channels=8).eval()
    for step in (*range(4), *range(4)):
        gradients = []
        for one in (mark, mark.replace(recipe=SOME)):
            mixed = one.mix(graph, step=step)
            mixed(model)
            model.zero_grad()
            mixed.loss().backward()
            gradients.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
        assert len(gradients[0]) > 4
        assert all(map(torch.equal, *gradients))


def test_features_that_learn_get_their_gradient_in_every_step(mark, web, graph):
    """Also after a look without gradients."""
    model = new_model(web, "GIN", 0, hidden_channels=8).eval()
    graph.x.requires_grad_()
    with torch.no_grad():
        mark.mix(graph, step=0)(model)
    for _ in range(2):
        mixed = mark.mix(graph, step=0)
        (gradient,) = torch.autograd.grad(mixed(model).square().sum(), graph.x)
        assert gradient.abs().sum() > 0


def test_tensors_of_inference_mode_are_mixed_anew(mark, web, graph):
    """PyTorch counts no changes of such tensors."""
    with torch.inference_mode():
        graph.x = graph.x.clone()
        inside = mark.mix(graph, step=0).batch
    outside = mark.mix(graph, step=0).batch
    assert equal(inside, outside)
    with torch.inference_mode():
        graph.x.zero_()
    assert not mark.mix(graph, step=0).batch.x[: len(graph.x)].any()
    assert mark.batches._mixed == []


def test_batches_of_graph_tasks_are_not_kept(draw, motifs):
    """They are new in every step."""
    mark, batch = draw(recipe=SOME), Batch.from_data_list(motifs.graphs[:4])
    assert equal(mark.mix(batch, step=0).batch, mark.mix(batch, step=0).batch)
    assert mark.batches._mixed == []


# --- ordinary inputs


class _Many:
    """So many graphs, of which only the number matters."""

    def __init__(self, number):
        self.number = number

    def __len__(self):
        return self.number


@given(st.integers(2, 300), st.integers(1, 300), st.integers(1, 64))
def test_every_ordinary_input_takes_its_turn(m, carriers, ordinary):
    """As many as carriers, at least 16 and at most 32; all of them with all carriers."""
    batches = CarrierBatches(_Many(m), _Many(ordinary), np.zeros(m), np.zeros(m))
    portions = -(-m // min(carriers, m))
    schedule = CarrierSchedule(m, "node", np.random.default_rng)
    found = [batches.beside(schedule.portion(number, carriers)) for number in range(portions)]
    wanted = min(max(carriers, ENOUGH), MANY)
    if wanted >= ordinary or carriers >= m:
        assert found == [None] * portions
        return
    assert {len(some) for some in found} == {wanted}
    assert all(len(set(some.tolist())) == wanted for some in found)
    covered = set(np.concatenate(found).tolist())
    assert covered <= set(range(ordinary))
    assert len(covered) == min(ordinary, wanted * portions)


@pytest.mark.parametrize(
    ("carriers", "beside"), [(4, 16), (12, 16), (20, 20), (63, 32), (80, 32), (128, 64)]
)
def test_standardisation_has_enough_ordinary_inputs(draw, graph, carriers, beside):
    """A mixed batch: the graph of the task, the carriers of the step, the ordinary inputs of its turn."""
    mark = draw("node", m=128, recipe=Recipe(carriers=carriers))
    assert len(mark.ordinary) == 64
    for step in range(4):
        batch = mark.mix(graph, step=step).batch
        assert batch.num_graphs == 1 + carriers + beside
        chosen = mark.batches.beside(mark.schedule.portion(step, carriers))
        usual = mark.ordinary if chosen is None else mark.ordinary.take(chosen)
        assert batch.x[-usual.num_nodes :].equal(torch.from_numpy(usual.x).to(batch.x.dtype))


def test_numbers_of_carriers_that_change_do_not_mix_up_ordinary_inputs(draw, graph):
    """Two numbers of carriers with one mark: the ordinary inputs of each are those of a fresh mark."""
    mark = draw("node", m=64, recipe=Recipe(carriers=8, presentations=20, warmup_steps=0))
    for when in ({"step": 0}, {"step": 0, "steps": 20 * 64 // 32}, {"step": 0}):
        fresh = mark.replace(recipe=mark.recipe)
        assert equal(mark.mix(graph, **when).batch, fresh.mix(graph, **when).batch)
    assert len(mark.schedule.at(mark.recipe, 0, 40).carriers) == 32
