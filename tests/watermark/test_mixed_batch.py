"""Carriers in the task batch: the same mathematics as a pass of their own."""

from __future__ import annotations

import copy
from dataclasses import replace
from itertools import chain

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Batch, Data
from torch_geometric.nn import global_add_pool

from _helpers.drawn import Lcg
from invgnn.errors import DataError, ParameterError, SuspectError
from invgnn.graphs.disjoint_union import Graphs
from invgnn.nn.forward import to_batch
from invgnn.secret import Secret
from invgnn.training.tasks import new_model
from invgnn.watermark.embedding_loss import own_loss
from invgnn.watermark.mark import Watermark
from invgnn.watermark.recipe import Recipe
from invgnn.watermark.schedule import CarrierSchedule, Portion

ACCESSES = ("embedding", "logits", "labels")


@pytest.fixture
def tasks(motifs, web):
    return {"graph": motifs, "node": web}


SOME = Recipe(carriers=4, presentations=4, warmup_steps=0)
"""Four of sixteen carriers in a step: sixteen steps that use carriers, however long a run is."""

WHEN = {"all carriers": {}, "in turn": {"step": 3}, "in a run": {"step": 29, "steps": 40}}


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("loss", ["logistic", "mse"])
@pytest.mark.parametrize("level", ["graph", "node"])
def test_joint_loss_is_the_loss_of_its_own_pass(draw, tasks, level, loss, when):
    """Where nothing but the batch differs: no dropout, no batch statistics, the same ordinary inputs."""
    mark = draw(level, access=ACCESSES, recipe=replace(SOME, loss=loss, beta=0.3))
    model = new_model(tasks[level], "GIN", 0, hidden_channels=8).double().eval()
    portion = mark.schedule.at(mark.recipe, WHEN[when].get("step"), WHEN[when].get("steps"))
    assert len(portion.carriers) == (4 if WHEN[when] else 16)
    beside = mark.batches.beside(portion)
    usual = mark.ordinary if beside is None else mark.ordinary.take(beside)
    batch = to_batch(usual) if level == "graph" else copy.copy(tasks[level].graphs[0])
    batch.x = batch.x.double()
    joint = mark.mix(batch, **WHEN[when])
    scores = joint(model)
    torch.testing.assert_close(scores, model(batch.x, batch.edge_index, batch.batch))
    weights = list(model.parameters())
    ours, own = joint.loss(), mark.loss(model, **WHEN[when])
    torch.testing.assert_close(ours, own)
    for left, right in zip(*(torch.autograd.grad(value, weights) for value in (ours, own)), strict=True):
        torch.testing.assert_close(left, right)


@pytest.mark.parametrize("level", ["graph", "node"])
def test_the_task_rides_first_and_unchanged(draw, tasks, level):
    mark, task = draw(level), tasks[level]
    batch = Batch.from_data_list(task.graphs[:16]) if level == "graph" else task.graphs[0]
    joined = mark.mix(batch).batch
    nodes, edges = batch.num_nodes, batch.edge_index.shape[1]
    assert joined.x[:nodes].equal(batch.x)
    assert joined.edge_index[:, :edges].equal(batch.edge_index)
    assert (joined.edge_index[:, edges:] >= nodes).all()
    extra = mark.carriers.num_nodes + (mark.ordinary.num_nodes if level == "node" else 0)
    assert joined.num_nodes == nodes + extra
    assert joined.ptr.tolist()[-1] == joined.num_nodes
    assert joined.batch.bincount().tolist() == joined.ptr.diff().tolist()
    carriers = to_batch(mark.carriers)
    assert joined.x[nodes : nodes + len(carriers.x)].equal(carriers.x)


def test_the_carriers_of_a_step_do_not_depend_on_the_size_of_the_batch(draw, motifs):
    """Batches of 42 and of 21 graphs, and the same four carriers in turn."""
    mark, turns = draw(recipe=SOME), []
    for step, size in enumerate((42, 21, 42, 21, 42)):
        batch = Batch.from_data_list(motifs.graphs[:size])
        joint = mark.mix(batch, step=step)
        riders = to_batch(mark.carriers.take(joint.carriers))
        turns.append(joint.carriers.tolist())
        assert turns[-1] == mark.schedule.portion(step, 4).carriers.tolist()
        assert joint.batch.x[batch.num_nodes :].equal(riders.x)
        links = joint.batch.edge_index[:, batch.num_edges :] - batch.num_nodes
        assert links.equal(riders.edge_index)
        assert joint.batch.ptr.tolist()[: size + 1] == batch.ptr.tolist()
        assert (joint.batch.ptr[size:] - batch.num_nodes).tolist() == riders.ptr.tolist()
        assert joint.wanted.bits.tolist() == mark.bits[joint.carriers].tolist()
        assert joint.wanted.targets.tolist() == mark.targets[joint.carriers].astype("float32").tolist()
    assert sorted(chain(*turns[:4])) == list(range(16))


def test_graphs_without_offsets_are_told_apart_by_their_nodes(draw, motifs):
    """A plain `Data` with a batch vector, as some loaders and many hand-written loops make."""
    mark, whole = draw(), Batch.from_data_list(motifs.graphs[:20])
    bare = Data(x=whole.x, edge_index=whole.edge_index, batch=whole.batch)
    ours, theirs = (mark.mix(batch).batch for batch in (bare, whole))
    for name in ("x", "edge_index", "batch", "ptr"):
        assert ours[name].equal(theirs[name])


@pytest.mark.parametrize("level", ["graph", "node"])
def test_a_look_in_inference_mode_does_not_stop_training(draw, tasks, level):
    """What is kept between passes may first be made where no gradient will ever pass."""
    task, mark = tasks[level], draw(level, recipe=SOME)
    batch = Batch.from_data_list(task.graphs[:16]) if level == "graph" else task.graphs[0]
    model = new_model(task, "GIN", 0, hidden_channels=8)
    with torch.inference_mode():
        mark.read(model)
        mark.mix(batch, step=0)(model)
        mark.loss(model, step=0)
    joint = mark.mix(batch, step=0)
    joint(model)
    (joint.loss() + mark.loss(model, step=0)).backward()
    assert model.convs[0].nn.lins[0].weight.grad.abs().sum() > 0


def test_a_model_that_writes_into_its_batch_gives_scores_of_the_task_alone(draw, motifs):
    class Writing(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.out = torch.nn.Linear(4, 8), torch.nn.Linear(8, 2)

        def forward(self, data):
            data.x = global_add_pool(self.one(data.x), data.batch)
            return self.out(data.x)

    joint = draw().mix(Batch.from_data_list(motifs.graphs[:20]))
    assert len(joint(Writing())) == 20
    assert joint.loss().requires_grad


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.int64])
def test_targets_are_not_rounded_to_half_precision(draw, dtype):
    mark = draw()
    told = mark.batches.wanted(None, torch.ones(1).to(dtype))
    assert told.targets.tolist() == mark.targets.astype("float32").tolist()
    assert told.bits.tolist() == mark.bits.tolist()


def test_a_mark_that_only_hinders_the_task_teaches_nothing(draw, motifs):
    """A task that wants the opposite, three times as much: its own gradient is all that is left."""
    mark, model = draw(), new_model(motifs, "GIN", 0, hidden_channels=8).double().eval()
    batch, weight = Batch.from_data_list(motifs.graphs[:16]), model.convs[0].nn.lins[0].weight
    batch.x = batch.x.double()
    joint = mark.mix(batch)
    joint(model)
    task = -3 * joint.loss()
    (wanted,) = torch.autograd.grad(task, weight, retain_graph=True)
    both = joint.joint_loss(task)
    torch.testing.assert_close(both, task * 2 / 3)
    torch.testing.assert_close(torch.autograd.grad(both, weight)[0], wanted)


def test_few_task_graphs_do_not_tell_the_usual_answers(draw, motifs):
    """Below 16 of them the mark's own ordinary inputs ride along and are what answers are measured by."""
    mark, model = draw(), new_model(motifs, "GIN", 0, hidden_channels=8).double().eval()
    for count in (1, 2, 15):
        batch = Batch.from_data_list(motifs.graphs[:count])
        batch.x = batch.x.double()
        joint = mark.mix(batch)
        torch.testing.assert_close(joint(model), model(batch.x, batch.edge_index, batch.batch))
        assert joint.batch.num_graphs == count + mark.m + len(mark.ordinary)
        torch.testing.assert_close(joint.loss(), mark.loss(model))
    assert mark.mix(Batch.from_data_list(motifs.graphs[:16])).batch.num_graphs == 16 + mark.m


def test_a_joint_pass_in_training_keeps_modes_and_hooks(draw, motifs):
    mark, model = draw(), new_model(motifs, "GIN", 0, hidden_channels=8).train()
    model.convs[1].eval()
    keys, modes = list(model.state_dict()), [m.training for m in model.modules()]
    joint = mark.mix(to_batch(mark.ordinary))
    joint(model)
    joint.loss().backward()
    assert [m.training for m in model.modules()] == modes
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    assert list(model.state_dict()) == keys


def pair(**parts):
    return Batch.from_data_list([Data(edge_index=torch.tensor([[0, 1], [1, 0]]), num_nodes=2, **parts)])


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (pair(x=torch.ones(2, 4), edge_attr=torch.ones(2, 1)), "has edge_attr and carriers have none"),
        (pair(x=torch.ones(2, 4), edge_weight=torch.ones(2)), "has edge_weight and carriers have none"),
        (pair(x=torch.ones(2, 4), pos=torch.ones(2, 3)), "has pos and carriers have none"),
        (pair(x=torch.ones(2, 4), edge_label_index=torch.zeros(2, 2).long()), "has edge_label_index and"),
        (
            pair(x=torch.ones(2, 4), a=torch.ones(2), b=torch.ones(2)),
            "has (a, b|b, a) and carriers have none",
        ),
        (pair(x=torch.ones(2, 4).long()), "int64, the carriers of torch.float32"),
        (pair(x=torch.ones(2, 3)), "the batch has 3 features, the carriers 4"),
        (pair(), "the task batch has no node features"),
    ],
)
def test_batches_that_cannot_be_mixed(draw, batch, message):
    with pytest.raises(DataError, match=message) as caught:
        draw().mix(batch)
    assert caught.value.advice


def test_carriers_without_features_cannot_be_mixed(motifs):
    bare = [Data(edge_index=graph.edge_index, num_nodes=graph.num_nodes) for graph in motifs.graphs[:40]]
    mark = Watermark.draw(Secret(bytes(32)), bare, m=8, access="embedding")
    with pytest.raises(DataError, match="the carriers have no node features"):
        mark.mix(pair(x=torch.ones(2, 4)))


def test_what_models_do_not_see_is_no_hindrance(draw, motifs):
    first = Data(**motifs.graphs[0].to_dict())
    first.train_mask, first.n_id = torch.ones(first.num_nodes).bool(), torch.arange(first.num_nodes)
    first.e_id, first.name, first.weight = torch.arange(first.num_edges), "one", torch.tensor(0.5)
    first.fingerprint = torch.ones(1, first.num_edges)  # of the graph, however wide
    for batch in (Batch.from_data_list([first]), Batch.from_data_list([first] * 20)):
        assert draw().mix(batch).batch.x[: first.num_nodes].equal(first.x)


def test_the_loss_comes_after_the_pass(draw):
    with pytest.raises(SuspectError, match="no forward pass"):
        draw().mix(pair(x=torch.ones(2, 4))).loss()


@pytest.mark.parametrize("level", ["graph", "node"])
def test_a_step_that_is_nobodys_turn_is_the_tasks_own(draw, tasks, level):
    """The very batch, one plain call of the model, no hook, and a loss that teaches nothing."""
    mark, task = draw(level, recipe=SOME), tasks[level]
    batch = Batch.from_data_list(task.graphs[:16]) if level == "graph" else task.graphs[0]
    model = new_model(task, "GIN", 0, hidden_channels=8).eval()
    joint = mark.mix(batch, step=31, steps=48)  # the last sixteen steps use carriers
    assert joint.batch is batch
    with pytest.raises(SuspectError, match="no forward pass"):
        joint.loss()
    said = joint(model)
    assert said.equal(model(batch.x, batch.edge_index, batch.batch))
    assert joint.loss().item() == 0
    loss = said.sum()
    assert joint.joint_loss(loss) is loss
    assert mark.mix(batch, step=32, steps=48).batch.num_nodes > batch.num_nodes


# --- turns


def rota(level, m=16):
    """A schedule whose rounds are each drawn from a stream of its own."""
    return CarrierSchedule(m, level, lambda number: Lcg(100 + number))


@pytest.mark.parametrize("level", ["graph", "node"])
def test_a_round_is_over_when_every_carrier_was_used(level):
    """Sixteen carriers, five at a time: the first four of a round are used once more to fill the last.

    Rounds of graph tasks have their own orders; those of node tasks have one, so that batches can be kept.
    """
    schedule, recipe = rota(level), Recipe(carriers=5)
    rides = [schedule.at(recipe, step, None).carriers.tolist() for step in range(12)]
    orders = [Lcg(100 + (n if level == "graph" else 0)).permutation(16).tolist() for n in range(3)]
    found = [list(chain(*rides[at : at + 4])) for at in (0, 4, 8)]
    assert found == [order + order[:4] for order in orders]
    assert (len({*map(tuple, found)}) == 1) == (level == "node")


@given(st.integers(1, 60), st.integers(1, 70), st.integers(1, 40), st.sampled_from(["graph", "node"]))
def test_every_round_covers_every_carrier(m, carriers, presentations, level):
    """Over a whole run, the uses of a plan are the portions of the schedule in order."""
    schedule = rota(level, m)
    recipe = Recipe(carriers=carriers, presentations=presentations, warmup_steps=7)
    plan = recipe.plan(m, 50)
    turns = [schedule.at(recipe, step, 50) for step in range(50)]
    rides = [turn for turn in turns if turn is not schedule.none]
    portions = -(-m // plan.count)
    assert [len(turn.carriers) > 0 for turn in turns] == [plan.use(step) is not None for step in range(50)]
    assert {len(turn.carriers) for turn in rides} == {plan.count}
    for first in range(0, len(rides) - portions + 1, portions):
        used = np.concatenate([turn.carriers for turn in rides[first : first + portions]])
        assert set(used.tolist()) == set(range(m))


def test_without_a_step_all_carriers_are_used():
    schedule = rota("node")
    assert schedule.at(Recipe(), None, None) is schedule.all
    assert schedule.all.carriers.tolist() == list(range(16))


@pytest.mark.parametrize(("step", "steps"), [(None, 10), (-1, None), (-1, 10), (0, 0)])
def test_a_step_is_a_number_of_a_run(step, steps):
    with pytest.raises(ParameterError) as caught:
        rota("node").at(Recipe(), step, steps)
    assert caught.value.advice


def test_the_last_two_rounds_are_kept(draw, motifs):
    mark = draw(recipe=SOME)
    batch = Batch.from_data_list(motifs.graphs[:42])
    for step in range(12):
        mark.mix(batch, step=step)
    orders = [order for order, _, _ in mark.batches._rounds]
    assert len(orders) == 2
    assert orders[0].tolist() != orders[1].tolist()


@pytest.mark.parametrize(("count", "alone"), [(15, False), (16, True)])
def test_sixteen_task_graphs_say_enough_about_usual_answers(draw, motifs, count, alone):
    mark = draw()
    batch = Batch.from_data_list(motifs.graphs[:count])
    riders = mark.carriers.num_nodes + (0 if alone else mark.ordinary.num_nodes)
    assert mark.mix(batch).batch.num_nodes == batch.num_nodes + riders


def test_a_share_of_the_carriers_takes_its_turns():
    rota = CarrierSchedule(10, "graph", lambda number: Secret(bytes(32)).derive("test", number))
    turns = [rota.portion(number, 4) for number in range(6)]
    assert [len(turn.carriers) for turn in turns] == [4] * 6
    for first in (0, 3):  # three turns of four: all ten, and the first two again
        order = Secret(bytes(32)).derive("test", first // 3).permutation(10).tolist()
        assert [c for turn in turns[first : first + 3] for c in turn.carriers] == [*order, *order[:2]]
    assert rota.portion(0, 10) is rota.all
    assert rota.portion(0, 9) is not rota.all
    assert len(rota.portion(7, 9).carriers) == 9
    assert rota.all.carriers.tolist() == [*range(10)]
    assert rota.none.carriers.tolist() == []


def test_the_orders_of_two_portion_lengths_are_drawn_once_each():
    """The last batch of an epoch is smaller: its rounds must not push out those of the others."""
    drawn = []

    def stream(number):
        drawn.append(number)
        return Lcg(number + 1)

    schedule = CarrierSchedule(10, "graph", stream)
    for _ in range(3):
        whole, last = schedule.portion(0, 4), schedule.portion(0, 7)
        assert (len(whole.order), len(last.order)) == (12, 14)
        assert (len(whole.carriers), len(last.carriers)) == (4, 7)
    assert drawn == [0, 0]
    schedule.portion(0, 8)
    schedule.portion(0, 4)
    assert drawn == [0] * 4  # of a third length, the first is drawn again: no more are kept


def test_carriers_are_laid_out_once_and_some_of_them_anew(draw):
    batches, like = draw().batches, torch.zeros(1)
    some = Portion(np.array([5, 3, 1, 4]), 2, 1)
    chosen, whole, again, other = (batches.with_ordinary(c, like) for c in (some, None, None, some))
    assert [one.num_graphs for one in (chosen, whole, again, other)] == [2 + 16, 16 + 64, 16 + 64, 2 + 16]
    laid = [batches.carriers.take(np.array([1, 4])), batches.ordinary.take(np.arange(16, 32))]
    assert chosen.x.equal(to_batch(Graphs.concat(laid)).x)
    assert again.edge_index is whole.edge_index
    assert again.x is not whole.x  # some models write into their input
    assert again.x.equal(whole.x)
    half = batches.with_ordinary(None, torch.zeros(1, dtype=torch.bfloat16))
    assert (half.x.dtype, batches.with_ordinary(None, None).x.dtype) == (torch.bfloat16, torch.float32)


def path(**parts):
    """Three nodes in a row: as many nodes, arrows and ends of an arrow are of no other number."""
    arrows = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    return Batch.from_data_list([Data(x=torch.ones(3, 4), edge_index=arrows, num_nodes=3, **parts)])


@pytest.mark.parametrize(
    ("name", "shape", "lost"),
    [
        ("edge_label_index", (2, 4), True),
        ("edge_label_index", (2, 5), False),
        ("node_index", (3,), True),
        ("pos", (3, 2), True),
        ("edge_attr", (4, 1), True),
        ("table", (2, 3), False),
    ],
)
def test_what_is_held_for_every_node_or_edge_would_be_lost(draw, name, shape, lost):
    batch = path(**{name: torch.zeros(shape).long()})
    if lost:
        with pytest.raises(DataError, match=f"the task batch has {name} and carriers have none"):
            draw().mix(batch)
    else:
        assert draw().mix(batch).batch.num_graphs > 1


# --- the last steps of models with batch norms -----------------------------------------------------


def normed(motifs):
    """A model with batch norms and no dropout, in training mode."""
    model = new_model(motifs, "GIN", 0, hidden_channels=8)
    model.dropout = 0.0
    return model.train()


def buffers(model):
    return {name: value.clone() for name, value in model.named_buffers()}


@pytest.mark.parametrize("way", ["loss", "joint_loss"])
def test_at_the_end_batch_norms_see_carriers_as_those_of_a_suspect_do(draw, motifs, way):
    mark, batch = draw(recipe=SOME), Batch.from_data_list(motifs.graphs[:24])
    model = normed(motifs)
    twin = copy.deepcopy(model)
    mixed, when = mark.mix(batch, step=39, steps=40), {"step": 39, "steps": 40}
    scores = mixed(model)
    torch.testing.assert_close(scores, twin(batch.x, batch.edge_index, batch.batch))
    assert all(value.equal(buffers(twin)[name]) for name, value in buffers(model).items())
    task = torch.nn.functional.cross_entropy(scores, batch.y)
    own = torch.nn.functional.cross_entropy(
        copy.deepcopy(twin)(batch.x, batch.edge_index, batch.batch), batch.y
    )
    if way == "loss":
        mark_loss = mark.schedule.at(mark.recipe, 39, 40)
        torch.testing.assert_close(mixed.loss(), own_loss(mark, twin, mark_loss))
        assert mark.loss(twin, **when).requires_grad
    else:
        mixed.joint_loss(task).backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    assert own.item() == pytest.approx(task.item(), rel=1e-4)


@pytest.mark.parametrize(("step", "steps", "norms"), [(38, 40, True), (39, 40, False), (3, None, True)])
def test_elsewhere_carriers_ride_in_the_batch(draw, motifs, step, steps, norms):
    mark, batch = draw(recipe=SOME), Batch.from_data_list(motifs.graphs[:24])
    model = normed(motifs) if norms else new_model(motifs, "GCN", 0, hidden_channels=8)
    mixed = mark.mix(batch, step=step, steps=steps)
    mixed(model)
    assert mixed.apart is None
    assert mixed.seen[0].batch.num_graphs == 24 + 4
