"""Every edit leaves the original unchanged and makes exactly the change that it declares."""

from __future__ import annotations

import copy
import inspect
import math
import pkgutil
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch_geometric.nn import GATConv, GCNConv, Linear, SAGEConv, global_add_pool

import invgnn.attacks.edits
from invgnn.attacks.edits import (
    Cast,
    Chain,
    Distil,
    Edit,
    FineTune,
    IdleUnit,
    PermuteUnits,
    Prune,
    PruneChannels,
    Quantise,
    ReestimateNorm,
    RescaleUnits,
    WeightNoise,
    find_edits,
    suite,
    weight_matrices,
)
from invgnn.attacks.edits.quantise import quantised
from invgnn.errors import EditError, ParameterError
from invgnn.nn.model_file import load_model, save_model
from invgnn.nn.perception import attach_head
from invgnn.nn.rng import seeded
from invgnn.testing import check_edit
from invgnn.training.batching import last_layer, scores
from invgnn.training.distillation import ask_teacher
from invgnn.training.tasks import new_model
from invgnn.training.trainer import train

EDITS = [
    *(Prune(0.2), Prune(0.5), PruneChannels(0.3), Quantise(8), Quantise(4), Cast("bf16"), Cast("fp16")),
    *(WeightNoise(0.1), PermuteUnits(), RescaleUnits(), IdleUnit(), ReestimateNorm()),
    *(FineTune(1, part=part, fresh=fresh) for part in ("all", "last") for fresh in (False, True)),
    *(FineTune(2, lr=1e-2), Distil(epochs=1), Distil(epochs=1, start="teacher", rho_kd=0.5)),
    *(Distil("half", epochs=1), Distil("other", epochs=1), Distil(lambda task: OwnModel(), epochs=1)),
    *(Chain(FineTune(1), Prune(0.4), Distil(epochs=1)), Chain(PermuteUnits(), RescaleUnits())),
]
BACKBONES = ["GCN", "GraphSAGE", "SGC", "GIN"]
PRESERVING = [PermuteUnits(), RescaleUnits(), RescaleUnits(100), Chain(RescaleUnits(), PermuteUnits())]


class OwnModel(nn.Module):
    """A user's model: a convolution, an activation, a pool over everything or none, a head."""

    def __init__(self, width=5, conv=GCNConv, act=torch.relu):
        super().__init__()
        self.conv, self.act = conv(-1, width), act
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, 2)

    def forward(self, x, edge_index, batch=None):
        hidden = self.act(self.norm(self.conv(x, edge_index)))
        return self.out(hidden if batch is None else global_add_pool(hidden, batch))


@pytest.fixture(params=["graph", "node"])
def both(request, motifs, web):
    """Run each test on a few graphs and on the nodes of one graph."""
    part = torch.arange(40)
    few = replace(motifs, graphs=motifs.graphs[:40], train=part[:24], val=part[24:32], test=part[32:])
    return {"graph": few, "node": web}[request.param]


def small(task, backbone="GIN", seed=0, lively=True):
    """Return a small model whose norms have statistics and weights as after training."""
    model = new_model(task, backbone, seed, hidden_channels=8)
    rng = np.random.default_rng(seed)
    with torch.no_grad():
        for name, value in model.state_dict().items():
            if lively and value.dim() == 1:
                drawn = torch.from_numpy(rng.uniform(0.5, 1.5, len(value)))
                value.copy_(drawn * (1 if "var" in name else rng.choice([-1, 1])))
    return model


def changed(before, after):
    """Return the names of the parameters and buffers that differ."""
    return {
        name for name, value in before.state_dict().items() if not value.equal(after.state_dict()[name])
    }


# --- the contract ---------------------------------------------------------------------------------


@pytest.mark.parametrize("edit", EDITS, ids=repr)
def test_every_edit_keeps_its_contract(edit, both, unchanged):
    model = small(both).train()
    with unchanged(model):
        edited = edit(model, both)
    assert not any(module.training for module in edited.modules())
    if edit.same_architecture:
        assert list(edited.state_dict()) == list(model.state_dict())
    assert torch.allclose(scores(model, both), scores(edited, both), atol=1e-5) == edit.same_function
    check_edit(edit, model, both)


def test_names_tell_edits_apart():
    for edits in (EDITS, suite()):
        assert len({repr(edit) for edit in edits}) == len(edits)


def test_every_edit_there_is_runs_through_the_contract():
    for module in pkgutil.iter_modules(invgnn.attacks.edits.__path__):
        __import__(f"invgnn.attacks.edits.{module.name}")
    kinds = {
        kind
        for name in list(sys.modules)
        if name.startswith("invgnn.attacks.edits")
        for kind in _edits_in(name)
    }
    tried = {type(edit) for edit in EDITS}
    assert kinds == tried == {*map(type, suite())}
    assert {kind.__name__ for kind in kinds} < {*invgnn.attacks.edits.__all__}


def _edits_in(name):
    classes = (kind for _, kind in inspect.getmembers(sys.modules[name], inspect.isclass))
    return {kind for kind in classes if issubclass(kind, Edit) and not inspect.isabstract(kind)}


def test_the_suite_has_the_rows_of_the_paper():
    rows = [repr(edit) for edit in suite()]
    for row in (
        "prune 20%",
        "prune 40%",
        "prune 50%",
        "8-bit",
        "4-bit",
        "fine-tune 20 epochs at 0.001",
        "distil",
    ):
        assert row in rows
    assert {edit.rho_kd for edit in suite() if isinstance(edit, Distil)} == {1, 0.75, 0.5, 0.25}
    assert rows[-1] == "fine-tune 20 epochs at 0.001 > prune 40% > distil from teacher, 50% soft targets"


def test_an_edit_must_give_a_model(motifs):
    class Forgetful(Edit):
        def apply(self, model, task):
            pass

        def __repr__(self):
            return "forgetful"

    with pytest.raises(EditError, match="forgetful"):
        Forgetful()(small(motifs), motifs)


def test_a_seed_decides_what_is_drawn(web):
    model = small(web)
    for kind in (WeightNoise, PermuteUnits, RescaleUnits):
        same, other = (kind(seed=seed)(model, web) for seed in (0, 1))
        assert changed(same, other)


# --- weights --------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.2, 0.4, 0.5, 0.99])
def test_pruning_takes_exactly_its_share_and_the_smallest(motifs, share):
    model = new_model(motifs, "GIN", 0, hidden_channels=16)
    pruned = Prune(share)(model, motifs)
    before, after = (torch.cat([w.detach().view(-1) for w in weight_matrices(m)]) for m in (model, pruned))
    gone = after == 0
    assert int(gone.sum()) == int(share * len(before))
    assert before[gone].abs().max() < before[~gone].abs().min()
    assert after[~gone].equal(before[~gone])
    for name, value in model.state_dict().items():
        assert value.dim() >= 2 or value.equal(pruned.state_dict()[name])


@given(st.integers(2, 8), st.integers(1, 5), st.integers(1, 9), st.integers(0, 99))
def test_quantisation_per_channel(bits, rows, columns, seed):
    weight = torch.from_numpy(np.random.default_rng(seed).normal(size=(rows, columns)))
    found = quantised(weight, bits).numpy()
    for row, got in zip(weight.numpy(), found, strict=True):
        levels = (
            np.abs(row).max() * np.arange(-(2 ** (bits - 1)) + 1, 2 ** (bits - 1)) / (2 ** (bits - 1) - 1)
        )
        nearest = np.abs(row[:, None] - levels).min(1)
        np.testing.assert_allclose(np.abs(row - got), nearest, atol=1e-12)
        assert np.isin(np.round(got, 9), np.round(levels, 9)).all()


def test_quantisation_reaches_pygs_own_linear(motifs):
    model = new_model(motifs, "GCN", 0, hidden_channels=16)
    edited = dict(Quantise(4)(model, motifs).named_modules())
    linears = [name for name, module in model.named_modules() if isinstance(module, Linear)]
    assert len(linears) == 4
    assert not any(isinstance(module, nn.Linear) for module in model.modules())
    for name in linears:
        before, after = (m.weight.detach() for m in (dict(model.named_modules())[name], edited[name]))
        assert not before.equal(after)
        assert max(len(row.unique()) for row in after) <= 15


def test_zero_weights_stay_finite(motifs):
    model = new_model(motifs, "GCN", 0, hidden_channels=4)
    with torch.no_grad():
        model.convs[0].lin.weight.zero_()
    assert all(torch.isfinite(p).all() for p in Quantise(4)(model, motifs).parameters())
    empty = copy.deepcopy(model)
    with torch.no_grad():
        for weight in weight_matrices(empty):
            weight.zero_()
    with pytest.raises(EditError):
        Quantise(4)(empty, motifs)


def test_noise_is_relative_to_each_matrix(motifs):
    model = new_model(motifs, "GCN", 0, hidden_channels=200)
    with torch.no_grad():
        model.convs[1].lin.weight.mul_(1000)
    noisy = WeightNoise(0.1)(model, motifs)
    assert changed(model, noisy) == {n for n, p in model.named_parameters() if p.dim() == 2}
    for before, after in zip(weight_matrices(model), weight_matrices(noisy), strict=True):
        found = float(((after - before).std() / before.abs().mean()).detach())
        assert found == pytest.approx(
            0.1, abs=4 * 0.1 / math.sqrt(2 * before.numel())
        )  # four standard errors


# --- hidden units ---------------------------------------------------------------------------------


@pytest.mark.parametrize("backbone", BACKBONES)
@pytest.mark.parametrize("edit", PRESERVING, ids=repr)
def test_units_in_another_order_or_scale_give_the_same_scores(edit, backbone, both):
    model = small(both, backbone).eval()
    if (backbone, both.level) == ("SGC", "node"):
        with pytest.raises(EditError, match="no hidden units"):
            edit(model, both)
        return
    edited = edit(model, both)
    before, after = (
        net.double() for net in (model, edited)
    )  # what is left is no rounding of the comparison
    graph = both.graphs[0]
    said = [net(graph.x.double(), graph.edge_index).detach().numpy() for net in (before, after)]
    np.testing.assert_allclose(said[0], said[1], rtol=0, atol=1e-5 * max(1, np.abs(said[0]).max()))
    pairs = list(zip(weight_matrices(before), weight_matrices(after), strict=True))
    moved = sum(not torch.allclose(ours, theirs) for ours, theirs in pairs)
    assert moved >= len(pairs) - 1  # GIN's first matrix is rescaled at the norm behind it


@pytest.mark.parametrize("backbone", BACKBONES)
def test_an_idle_unit_more_is_the_same_function_and_fits_into_a_file(backbone, both, tmp_path):
    model = small(both, backbone).eval()
    if (backbone, both.level) == ("SGC", "node"):
        with pytest.raises(EditError, match="no hidden units"):
            IdleUnit()(model, both)
        return
    attach_head(model, 8)
    wide = IdleUnit()(model, both)
    assert wide.architecture == {**model.architecture, "hidden_channels": 9}
    graph = both.graphs[0]
    one, other = (net.double()(graph.x.double(), graph.edge_index) for net in (model, wide))
    torch.testing.assert_close(one, other)
    save_model(tmp_path / "wide.model", wide.float())
    kept = load_model(tmp_path / "wide.model").state_dict()
    assert all(kept[name].equal(value) for name, value in wide.state_dict().items())


class Stack(nn.Module):
    """A user's stack of layers in which one layer is called twice."""

    def __init__(self, features, norm=nn.BatchNorm1d):
        super().__init__()
        self.first, self.middle = SAGEConv(features, 6), nn.Linear(6, 6)
        self.norm, self.last = norm(6), GCNConv(6, 2)

    def forward(self, x, edge_index, batch=None):
        hidden = self.norm(self.first(x, edge_index)).relu()
        for _ in range(2):
            hidden = self.middle(hidden).tanh()
        hidden = self.last(hidden, edge_index)
        return hidden if batch is None else global_add_pool(hidden, batch)


def test_an_idle_unit_more_in_anybodys_model(both):
    model = Stack(both.num_features)
    with torch.no_grad():
        model.norm.running_var.fill_(3)
    wide = IdleUnit()(model, both)
    torch.testing.assert_close(scores(wide, both), scores(model, both))
    assert [str(part) for part in (wide.first, wide.middle, wide.last)] == [
        f"SAGEConv({both.num_features}, 7, aggr=mean)",
        "Linear(in_features=7, out_features=7, bias=True)",
        "GCNConv(7, 2)",
    ]
    graph = both.graphs[0]
    inside = wide.norm(wide.first(graph.x, graph.edge_index))
    assert not inside[:, -1].any()
    assert wide.norm.running_var.tolist() == [3] * 6 + [1]
    check_edit(IdleUnit(), model, both)


def test_idle_units_that_would_change_something(both):
    with pytest.raises(EditError):  # it takes the mean over all units
        IdleUnit()(Stack(both.num_features, nn.LayerNorm), both)
    tied = Stack(both.num_features)
    tied.other = nn.Linear(6, 6)
    tied.other.weight = tied.middle.weight
    with pytest.raises(EditError, match="two places"):
        IdleUnit()(tied, both)


def test_a_permutation_permutes(web):
    model = small(web, "GCN")
    edited = PermuteUnits()(model, web)
    rows, moved = (net.convs[0].lin.weight.detach() for net in (model, edited))
    order = torch.cdist(moved, rows).argmin(1)
    assert order.sort().values.tolist() == list(range(8)) != order.tolist()
    assert moved.equal(rows[order])
    assert edited.convs[0].bias.equal(model.convs[0].bias[order])
    assert edited.convs[1].lin.weight.equal(model.convs[1].lin.weight[:, order])


def test_units_of_a_users_own_stack(both):
    with seeded(0):
        model = OwnModel()
    scores(model, both)  # lazy widths
    edited = PermuteUnits()(model, both)
    assert changed(model, edited) >= {"conv.lin.weight", "out.weight"}
    check_edit(RescaleUnits(), model, both)


class Skip(OwnModel):
    """A model with a skip connection."""

    def __init__(self):
        super().__init__()
        self.middle = nn.Linear(5, 5)

    def forward(self, x, edge_index, batch=None):
        hidden = self.conv(x, edge_index).relu()
        return self.out(hidden + self.middle(hidden).relu())


@pytest.mark.parametrize(
    ("edit", "make", "reason"),
    [
        (PermuteUnits(), lambda: OwnModel(conv=GATConv), "GATConv"),
        (PruneChannels(0.5), lambda: OwnModel(conv=GATConv), "GATConv"),
        (PermuteUnits(), Skip, "no stack"),
        (RescaleUnits(), lambda: OwnModel(act=torch.tanh), "no stack"),
        (PermuteUnits(), lambda: OwnModel(act=lambda h: h.repeat(1, 1).cumsum(1)), "no stack"),
        (ReestimateNorm(), OwnModel, "no batch norm"),
        (Distil("half"), OwnModel, "unknown"),
        (Prune(0.5), nn.ReLU, "no weight matrix"),
    ],
)
def test_a_model_that_an_edit_does_not_understand_is_refused(edit, make, reason, web):
    with seeded(0):
        model = make()
        if list(model.parameters()):
            scores(model, web)  # lazy widths
    with pytest.raises(EditError, match=reason) as caught:
        edit(model, web)
    assert caught.value.advice


FIRST = {"GCN": (["lin"], ""), "GraphSAGE": (["lin_l", "lin_r"], ""), "GIN": (["nn.lins.0"], "nn.norms.0")}


@pytest.mark.parametrize("backbone", FIRST)
def test_channel_pruning_silences_whole_channels_and_the_weakest(backbone, both):
    model = small(both, backbone)
    edited = PruneChannels(0.3)(model, both)
    maps, end = FIRST[backbone]
    rows, left = (
        torch.cat([net.convs[0].get_submodule(name).weight.detach() for name in maps], dim=1)
        for net in (model, edited)
    )
    gone = (left == 0).all(1)
    assert int(gone.sum()) == 2  # of 8
    assert rows.norm(dim=1)[gone].max() < rows.norm(dim=1)[~gone].min()
    assert left[~gone].equal(rows[~gone])
    seen = []
    edited.convs[0].get_submodule(end).register_forward_hook(lambda *args: seen.append(args[-1]))
    scores(edited, both)
    assert (seen[0] == 0).all(0).equal(gone)
    assert all(p.any() for p in last_layer(edited, both).parameters() if p.dim() == 2)


def test_norms_are_estimated_from_the_training_data(both):
    model = small(both)
    edited = ReestimateNorm(batch_size=10**6)(model, both)
    names = changed(model, edited)
    assert names
    assert all("running" in name or "num_batches" in name for name in names)
    # One batch with all there is: the first norm must hold the mean and variance of what enters it.
    around = []
    for graph in both.graphs if both.level == "node" else [both.graphs[i] for i in both.train.tolist()]:
        x, (source, sink) = graph.x, graph.edge_index
        around.append((1 + model.convs[0].eps) * x + torch.zeros_like(x).index_add_(0, sink, x[source]))
    entering = model.convs[0].nn.lins[0](torch.cat(around)).detach().double().numpy()
    norm = edited.convs[0].nn.norms[0].module
    np.testing.assert_allclose(norm.running_mean.numpy(), entering.mean(0), atol=1e-4)
    np.testing.assert_allclose(norm.running_var.numpy(), entering.var(0, ddof=1), rtol=1e-3)
    assert norm.momentum == 0.1


# --- fine-tuning ----------------------------------------------------------------------------------


@pytest.mark.parametrize("backbone", ["GCN", "GIN", "SGC"])
def test_the_last_layer_is_the_head_or_the_last_convolution(backbone, both):
    model = small(both, backbone)
    attach_head(model, 8)  # never called by forward: not the last layer
    assert last_layer(model, both) is (model.head if both.level == "graph" else model.convs[-1])


@pytest.mark.parametrize("fresh", [False, True])
def test_tuning_the_last_layer_changes_nothing_else(fresh, both):
    model = small(both)
    edited = FineTune(2, 1e-2, part="last", fresh=fresh)(model, both)
    start = "head." if both.level == "graph" else "convs.1."
    inside = {name for name, _ in model.named_parameters() if name.startswith(start)}
    assert inside <= changed(model, edited)
    assert all(name.startswith(start) for name in changed(model, edited))
    assert all(p.requires_grad for p in edited.parameters())
    assert changed(model, FineTune(1, 1e-2, fresh=fresh)(model, both)) > inside


def test_a_fresh_last_layer_forgets_the_old_one(motifs):
    model = small(motifs)
    with torch.no_grad():
        model.head.weight.fill_(1e6)
    for part in ("all", "last"):
        assert (FineTune(1, part=part, fresh=True)(model, motifs).head.weight.abs() < 10).all()
    assert (FineTune(1)(model, motifs).head.weight.abs() > 1e5).all()


def test_frozen_models_can_be_tuned(web):
    model = small(web).requires_grad_(False)
    assert changed(model, FineTune(1)(model, web))
    assert not any(p.requires_grad for p in model.parameters())


def test_weights_outside_any_layer_have_no_last_one(web):
    class Bare(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(5, 2))

        def forward(self, x, edge_index):
            return x @ self.weight

    with pytest.raises(EditError, match="last"):
        FineTune(1, part="last")(Bare(), web)
    with pytest.raises(EditError, match="renews weight"):
        Distil(epochs=1)(Bare(), web)
    check_edit(Distil(epochs=1, start="teacher"), Bare(), web)


# --- distillation ---------------------------------------------------------------------------------


def probabilities(model, task):
    return scores(model, task).double().softmax(-1).numpy()


def test_a_student_agrees_with_its_teacher_more_than_strangers_do(web):
    """Compared on unseen nodes; independent models have the same data, architecture and training."""
    teacher = new_model(web, "GCN", 0, hidden_channels=16)
    train(teacher, web, epochs=40)
    taught, unseen = probabilities(teacher, web), web.test.numpy()

    def distance(model):
        theirs = probabilities(model, web)
        return float((taught * np.log(taught / theirs)).sum(1)[unseen].mean())

    strangers = []
    for seed in (1, 2):
        strangers.append(new_model(web, "GCN", seed, hidden_channels=16))
        train(strangers[-1], web, epochs=40, seed=seed)
    students = [Distil(epochs=40, seed=seed)(teacher, web) for seed in (1, 2)]
    assert max(map(distance, students)) < min(map(distance, strangers))
    assert distance(Distil(start="teacher", epochs=40)(teacher, web)) < min(map(distance, strangers))


def test_a_warm_start_begins_at_the_teacher(both):
    model = small(both)
    crawling = Distil(start="teacher", epochs=1, lr=1e-12)(model, both)
    for name, value in model.named_parameters():
        assert torch.allclose(value, crawling.get_parameter(name), atol=1e-9)
    fresh = Distil(epochs=1, lr=1e-12)(model, both)
    for ours, theirs in zip(weight_matrices(model), weight_matrices(fresh), strict=True):
        assert not torch.isclose(ours, theirs, atol=1e-9).any()


@pytest.mark.parametrize("rho", [0.25, 0.5, 0.75, 1.0])
def test_the_teacher_is_asked_about_exactly_its_share(rho, both):
    model, asked = small(both), []
    model.register_forward_hook(lambda module, args, output: asked.append(len(output)))
    lessons = ask_teacher(model, both, rho)
    chosen = lessons.asked.nonzero().view(-1)
    assert len(chosen) == round(rho * len(both.train))
    assert {*chosen.tolist()} <= {*both.train.tolist()}
    assert sum(asked) == (len(chosen) if both.level == "graph" else both.graphs[0].num_nodes)
    assert not lessons.scores[~lessons.asked].any()
    whole = scores(model, both)
    if both.level == "node":
        assert torch.allclose(lessons.scores[chosen], whole[chosen])


@given(st.integers(0, 99), st.sampled_from([1.0, 2.0, 5.0]))
def test_the_loss_is_the_divergence_where_asked_and_the_task_elsewhere(seed, temperature):
    from scipy.special import log_softmax, rel_entr, softmax

    from invgnn.training.distillation import SoftTargets

    rng = np.random.default_rng(seed)
    taught, said = rng.normal(size=(2, 6, 3))
    classes, asked = rng.integers(3, size=6), rng.random(6) < 0.5
    which = rng.permutation(6)[:4]
    targets = SoftTargets(*map(torch.from_numpy, (classes, taught, asked)), temperature)
    found = targets.loss(torch.from_numpy(said[which]), torch.from_numpy(which))
    expected = [
        temperature**2 * rel_entr(softmax(taught[i] / temperature), softmax(said[i] / temperature)).sum()
        if asked[i]
        else -log_softmax(said[i])[classes[i]]
        for i in which
    ]
    assert float(found) == pytest.approx(np.mean(expected), rel=1e-9)


@pytest.mark.parametrize("backbone", BACKBONES)
def test_students_of_other_shapes(backbone, both):
    model = small(both, backbone)
    other = Distil("other", epochs=1)(model, both)
    assert type(other).__name__ == ("GCN" if backbone == "GraphSAGE" else "GraphSAGE")
    assert other.architecture["hidden_channels"] == 8
    if (backbone, both.level) == ("SGC", "node"):
        with pytest.raises(EditError, match="none"):
            Distil("half")(model, both)
    else:
        half = Distil("half", epochs=1)(model, both)
        assert half.architecture == {**model.architecture, "hidden_channels": 4}


def test_a_student_of_ones_own_is_not_trained_twice(web):
    mine = small(web, "GCN")
    edit = Distil(lambda task: mine, epochs=1)
    before = copy.deepcopy(mine)
    check_edit(edit, small(web), web)
    assert not changed(before, mine)


def test_the_best_epoch_on_validation_data_is_kept(web, monkeypatch):
    from invgnn.training import fitting

    seen = []

    def graded(student, *_):
        seen.append(copy.deepcopy(student))
        return [0.5, 0.9, 0.9, 0.7, 0.0][len(seen) - 1]

    monkeypatch.setattr(fitting, "accuracy", graded)
    student = Distil(epochs=4)(small(web), web)
    assert not changed(seen[2], student)
    assert changed(seen[3], student)


# --- chains, plug-ins, senseless arguments --------------------------------------------------------


def test_a_chain_is_its_links_in_order(web):
    model = small(web)
    links = (FineTune(1), Prune(0.4), Quantise(4))
    step = model
    for link in links:
        step = link(step, web)
    chain = Chain(*links)
    assert not changed(step, chain(model, web))
    assert changed(step, Chain(*links[::-1])(model, web))
    assert repr(chain) == "fine-tune 1 epochs at 0.001 > prune 40% > 4-bit"
    assert not Chain(Prune(0.4), Distil("half")).same_architecture


PLUGIN = """
from invgnn.attacks.edits import Edit, Prune
class Mine(Edit):
    def apply(self, model, task):
        return model
    def __repr__(self):
        return "mine"
several = lambda: [Prune(0.1), Prune(0.9)]
ready, number, twice = Prune(0.3), 3, Prune(0.5)
strange = lambda: [Prune(0.6), "prune"]
def fails():
    raise KeyError("oh")
"""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Install a package with entry points, as pip would."""

    def installed(**points):
        (tmp_path / "offering.py").write_text(PLUGIN)
        about = tmp_path / "offering-1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: offering\nVersion: 1.0\n")
        lines = [f"{name} = {value}" for name, value in points.items()]
        (about / "entry_points.txt").write_text("\n".join(["[invgnn.edits]", *lines]))
        monkeypatch.syspath_prepend(tmp_path)

    yield installed
    sys.modules.pop("offering", None)


def test_plugins_come_after_the_suite(install):
    usual = [repr(edit) for edit in find_edits()]
    assert usual[: len(suite())] == [repr(edit) for edit in suite()]
    install(c="offering:Mine", a="offering:ready", b="offering:several")
    assert [repr(e) for e in find_edits()] == [*usual, "prune 30%", "prune 10%", "prune 90%", "mine"]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("nowhere:Mine", "ModuleNotFoundError"),
        ("offering:absent", "AttributeError"),
        ("offering:number", "not callable"),
        ("offering:strange", "a str, not an Edit"),
        ("offering:fails", "oh"),
        ("offering:twice", "name of another"),
    ],
)
def test_broken_plugins_are_named(install, value, reason):
    install(culprit=value)
    with pytest.raises(EditError, match=reason) as caught:
        find_edits()
    assert f"culprit = {value}" in caught.value.message
    assert "check_edit" in caught.value.advice


@pytest.mark.parametrize(
    "make",
    [
        lambda: Prune(0),
        lambda: Prune(1),
        lambda: Prune(float("nan")),
        lambda: PruneChannels(1),
        lambda: Quantise(1),
        lambda: Cast("int8"),
        lambda: WeightNoise(0),
        lambda: WeightNoise(float("nan")),
        lambda: RescaleUnits(1),
        lambda: FineTune(0),
        lambda: FineTune(lr=-1),
        lambda: FineTune(part="first"),
        lambda: Distil("double"),
        lambda: Distil(nn.Linear(1, 1)),
        lambda: Distil(start="middle"),
        lambda: Distil("half", start="teacher"),
        lambda: Distil(rho_kd=0),
        lambda: Distil(rho_kd=1.1),
        lambda: Distil(temperature=0),
        lambda: Distil(epochs=0),
        Chain,
    ],
)
def test_senseless_edits(make):
    with pytest.raises(ParameterError) as caught:
        make()
    assert caught.value.advice
