"""A mark: its loss and gradient, its turns, its file, and what it refuses."""

from __future__ import annotations

import hashlib
import math
import stat
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import nn
from torch_geometric.nn import BatchNorm, GCNConv, global_mean_pool
from torch_geometric.utils import scatter

import invgnn.watermark.derived
from invgnn.audit.verify import verify
from invgnn.errors import FileError, ParameterError, PassphraseError, SuspectError
from invgnn.graphs.disjoint_union import Graphs
from invgnn.graphs.invariants import Scale
from invgnn.nn.backbones import GIN
from invgnn.nn.forward import observe, to_batch
from invgnn.nn.perception import attach_head
from invgnn.nn.rng import seeded
from invgnn.readout.answers import Answers
from invgnn.readout.reading import Reading, natural_spread, standardise
from invgnn.secret import Secret
from invgnn.storage import container
from invgnn.training.tasks import new_model
from invgnn.training.trainer import train
from invgnn.watermark.embedding_loss import _answers_loss, _head_loss, _OrdinaryStatistics
from invgnn.watermark.mark import Watermark
from invgnn.watermark.recipe import Recipe
from invgnn.watermark.schedule import CarrierSchedule

ACCESSES = ("perception", "embedding", "logits", "labels")


@pytest.fixture
def tiny(motifs):
    """A few dozen weights in double precision, none of them zero (where a ReLU has no derivative)."""
    model = new_model(motifs, "GCN", 1, hidden_channels=3).double()
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(6)  # no ReLU close to its kink
        attach_head(model, 3)
        for weight in model.parameters():
            weight += 0.1 * torch.randn_like(weight)
    return model.eval()


@pytest.fixture(scope="module")
def small(draw):
    return draw()


# --- the loss


@pytest.mark.parametrize("loss", ["logistic", "mse"])
@pytest.mark.parametrize("access", ACCESSES)
def test_gradient_equals_finite_differences(draw, tiny, access, loss, monkeypatch):
    monkeypatch.setattr("invgnn.readout.reading.NATURAL_SHARE", 0)  # a floor without gradient, by design
    mark = draw(access=access, recipe=Recipe(loss=loss, beta=0.7))
    weights = [p for p in tiny.parameters() if p.requires_grad]
    gradient = torch.autograd.grad(mark.loss(tiny), weights, allow_unused=True)
    assert any(g is not None and g.abs().max() > 1e-6 for g in gradient)
    for weight, slope in zip(weights, gradient, strict=True):
        for place in range(min(weight.numel(), 4)):
            up, down = (shifted_loss(mark, tiny, weight, place, by) for by in (1e-6, -1e-6))
            expected = 0.0 if slope is None else float(slope.view(-1)[place])
            assert (up - down) / 2e-6 == pytest.approx(expected, abs=1e-7, rel=1e-4)


@torch.no_grad()
def shifted_loss(mark, model, weight, place, by):
    weight.view(-1)[place] += by
    value = mark.loss(model).item()
    weight.view(-1)[place] -= by
    return value


@pytest.mark.parametrize("loss", ["logistic", "mse"])
@pytest.mark.parametrize("access", [*[(one,) for one in ACCESSES], ACCESSES], ids="+".join)
def test_loss_against_numpy(draw, tiny, access, loss):
    mark = draw(access=access, recipe=Recipe(loss=loss, beta=0.7))
    weights = {"logits": 0.5}
    expected = np.mean([weights.get(one, 1) * loss_by_hand(mark, tiny, one) for one in access])
    assert mark.loss(tiny).item() == pytest.approx(0.7 * expected, rel=1e-6)


def loss_by_hand(mark, model, access):
    answers, w = mark.read(model, access), mark.bits
    r = answers.standard
    if access == "logits":  # in quarters of a nat from the usual scores
        r = 4 * (answers.carriers - answers.ordinary.mean())
    if access == "labels":  # trained on the odds behind the label, in their own units
        batch = to_batch(mark.carriers, torch.zeros((), dtype=torch.float64))
        logs = model(batch.x, batch.edge_index, batch.batch).log_softmax(-1).detach().numpy()
        r = logs @ mark.direction("labels", 2).numpy()
    if access == "perception":
        return np.mean((r - mark.targets) ** 2)
    if mark.recipe.loss == "mse":
        return np.mean((1 / (1 + np.exp(-r)) - mark.targets) ** 2)
    return np.mean(np.log1p(np.exp(2 * (1 - (2 * w - 1) * r))) / 2)


@given(st.lists(st.floats(-50, 50), min_size=2, max_size=9), st.floats(0.1, 9), st.floats(-9, 9))
def test_standard_answers_do_not_know_units(usual, scale, shift):
    """So no loss on them is lowered by moving or stretching all answers together."""
    usual = torch.tensor(usual, dtype=torch.float64)
    answers = torch.linspace(-3, 3, 5, dtype=torch.float64)
    standard = standardise(answers, usual)
    assert torch.isfinite(standard).all()
    assume(usual.std(unbiased=False) > 0.01 * (usual.abs().mean() + abs(shift) + 1))
    unit = torch.tensor([scale, shift], dtype=torch.float64, requires_grad=True)
    moved = standardise(unit[0] * answers + unit[1], unit[0] * usual + unit[1])
    torch.testing.assert_close(moved, standard, rtol=1e-6, atol=1e-6)
    (slope,) = torch.autograd.grad((moved**2).sum(), unit)
    assert slope.abs().max() < 1e-6 * (1 + (standard**2).sum())


def test_answers_are_not_measured_by_a_shrunken_spread():
    answers, usual = torch.tensor([-1.0, 1.0]), torch.tensor([-1e-3, 1e-3])
    assert standardise(answers, usual, 4.0).tolist() == [-1.0, 1.0]  # a quarter of the natural spread
    assert standardise(answers, 2000 * usual, 4.0).tolist() == [-0.5, 0.5]


def test_the_floor_carries_no_gradient(draw, tiny):
    answers, usual = torch.tensor([-1.0, 1.0]), torch.tensor([-1e-3, 1e-3], requires_grad=True)
    natural = torch.tensor(4.0, requires_grad=True)
    standard = standardise(answers, usual, natural.detach())
    (slope,) = torch.autograd.grad(standard.square().sum(), usual)
    assert slope.tolist() == [0.0, 0.0]  # below the floor only the mean of the usual answers counts
    batch = to_batch(draw().ordinary, next(tiny.parameters()))
    seen = observe(tiny, batch, "head:in")
    assert not natural_spread(seen, Reading(), slice(None)).requires_grad


@given(st.floats(0.1, 9), st.floats(-9, 9), st.floats(0, 40))
def test_moving_and_stretching_all_together_is_invisible(scale, shift, natural):
    """Also above and below the floor: the natural spread is stretched like all the rest."""
    answers = torch.linspace(-3, 3, 5, dtype=torch.float64)
    usual = torch.tensor([-1.0, 0.5, 2.0], dtype=torch.float64)
    moved = standardise(scale * answers + shift, scale * usual + shift, scale * natural)
    torch.testing.assert_close(moved, standardise(answers, usual, natural))


@pytest.mark.parametrize(
    ("level", "access"), [("graph", "embedding"), ("graph", "labels"), ("node", "logits")]
)
def test_training_on_the_loss_alone_embeds_the_mark(draw, motifs, web, level, access):
    task = {"graph": motifs, "node": web}[level]
    mark, model = draw(level, access=access), new_model(task, "GraphSAGE", 0, hidden_channels=32)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    for _ in range(120):
        optimiser.zero_grad()
        loss = mark.loss(model.eval())
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.6 * losses[0]
    assert mark.evidence(mark.read(model)).matches >= 14


def test_a_trained_model_is_marked_by_fine_tuning(draw, motifs):
    model = new_model(motifs, "GraphSAGE", 0, hidden_channels=32)
    train(model, motifs, epochs=5)
    mark, looks = draw(m=32), look(model)
    before = verify(model, mark)
    train(model, motifs, mark, epochs=30, batch_size=32, trained=True)
    after = verify(model, mark)
    assert before.evidence_bits < 10
    assert after.evidence_bits > 15
    assert look(model) == looks


def look(model):
    """What a stranger sees of a model: class, keys, shapes and types."""
    return type(model), {name: (value.shape, value.dtype) for name, value in model.state_dict().items()}


# --- turns


@given(st.integers(1, 20), st.integers(0, 50))
def test_every_carrier_gets_its_turn(small, count, turn):
    mark, rota = (
        small,
        CarrierSchedule(small.m, "graph", lambda number: small.secret.derive("steps", number)),
    )
    turns = -(-mark.m // min(count, mark.m))
    round_of = [rota.portion(turn * turns + step, count).carriers for step in range(turns)]
    assert all(len(part) == len(set(part.tolist())) == min(count, mark.m) for part in round_of)
    assert set(np.concatenate(round_of).tolist()) == set(range(mark.m))
    assert rota.portion(turn, count).carriers.tolist() == rota.portion(turn, count).carriers.tolist()
    assert (rota.portion(turn, count) is rota.all) == (count >= mark.m)


def test_a_step_alone_uses_some_carriers_in_turn(draw, motifs):
    mark = draw(m=64, recipe=Recipe(carriers=12))
    batch = to_batch(mark.ordinary)
    turns = [mark.mix(batch, step=step).carriers for step in range(9)]
    assert {len(some) for some in turns} == {12}
    assert set(np.concatenate(turns[:6]).tolist()) == set(range(64))
    model = new_model(motifs, "GIN", 0, hidden_channels=8).eval()
    first, second, again = (mark.loss(model, step=step).item() for step in (0, 1, 0))
    assert first == again != second
    assert len(mark.mix(batch).carriers) == 64  # without a step
    for wrong in ({"steps": 10}, {"step": -1}):
        for act in (
            lambda wrong=wrong: mark.mix(batch, **wrong),
            lambda wrong=wrong: mark.loss(model, **wrong),
            lambda wrong=wrong: mark.joint_loss(model, torch.zeros((), requires_grad=True), **wrong),
        ):
            with pytest.raises(ParameterError, match="step") as caught:
                act()
            assert "step" in caught.value.advice


@pytest.mark.parametrize(("carriers", "count"), [(16, 16), (64, 64)])
def test_presentations_are_made_at_the_end_of_a_run_and_other_steps_cost_nothing(
    draw, motifs, carriers, count
):
    """Twenty presentations of 64 carriers in a run four times as long as it need be."""
    steps = 4 * 20 * 64 // count
    mark = draw(m=64, recipe=Recipe(carriers=carriers, presentations=20, warmup_steps=0))
    batch, model = to_batch(mark.ordinary), new_model(motifs, "GIN", 0, hidden_channels=8).train()
    riders = [mark.mix(batch, step=step, steps=steps).carriers for step in range(steps)]
    assert [len(some) for some in riders] == [0] * (steps * 3 // 4) + [count] * (steps // 4)
    assert np.bincount(np.concatenate(riders)).tolist() == [20] * 64
    for step in (0, steps * 3 // 4 - 1, steps * 3 // 4, steps - 1):
        some = riders[step]
        joint = mark.mix(batch, step=step, steps=steps)
        scores = joint(model)
        task_loss = scores.square().mean()
        assert len(scores) == 64
        own = mark.loss(model, step=step, steps=steps)
        for loss in (joint.loss(), own):
            assert bool(loss > 0) == loss.requires_grad == (len(some) > 0)
        for guarded in (
            joint.joint_loss(task_loss),
            mark.joint_loss(model, task_loss, step=step, steps=steps),
        ):
            assert (guarded is task_loss) == (not len(some))


def test_carriers_weigh_as_much_in_a_run_as_without_one(draw, tiny):
    """In both kinds of pass."""
    mark = draw(m=16, recipe=Recipe(carriers=16, presentations=10, warmup_steps=0))
    when = {"step": 37, "steps": 40}
    batch = to_batch(mark.ordinary, next(tiny.parameters()))
    assert mark.loss(tiny, **when).item() == pytest.approx(mark.loss(tiny).item())
    alone, planned = mark.mix(batch), mark.mix(batch, **when)
    for joint in (alone, planned):
        joint(tiny.eval())
    assert planned.loss().item() == pytest.approx(alone.loss().item())


def test_all_carriers_are_laid_out_once_however_they_are_asked_for(draw, tiny, monkeypatch):
    mark, made = draw(m=16, recipe=Recipe(carriers=16)), []
    whole = invgnn.watermark.carrier_batches.to_batch
    monkeypatch.setattr(
        "invgnn.watermark.carrier_batches.to_batch", lambda *parts: made.append(parts) or whole(*parts)
    )
    for when in ({}, {"step": 0}, {"step": 30, "steps": 40}, {"step": 31, "steps": 40}):
        mark.loss(tiny, **when)
    assert len(made) == 1


class Rectified(nn.BatchNorm1d):
    def forward(self, input):
        return super().forward(input).relu()


NORMS = {
    "plain": nn.BatchNorm1d,
    "no weights": lambda width: nn.BatchNorm1d(width, affine=False),
    "no bias": lambda width: nn.BatchNorm1d(width, bias=False),
    "PyG's": lambda width: BatchNorm(width),
    "a subclass": Rectified,
}


class Normed(nn.Module):
    """BatchNorm over nodes, edges and graphs, called by position and by name."""

    def __init__(self, make):
        super().__init__()
        self.conv, self.head = GCNConv(4, 8), nn.Linear(8, 2)
        self.norms = nn.ModuleList(make(width) for width in (4, 8, 8, 8))

    def forward(self, x, edge_index, batch):
        nodes = self.norms[1](self.conv(self.norms[0](x), edge_index).tanh())
        links = self.norms[2](nodes[edge_index[0]] * nodes[edge_index[1]])
        nodes = nodes + scatter(links, edge_index[0], dim_size=len(nodes))
        last = self.norms[3]
        graphs = global_mean_pool(nodes, batch)
        return self.head(last(graphs) if isinstance(last, BatchNorm) else last(input=graphs))


@pytest.mark.parametrize("kind", NORMS)
def test_batch_norm_measures_ordinary_inputs_alone(draw, unchanged, kind):
    """As it will when a suspect is read: carriers among the measured would be read by other numbers."""
    mark = draw(access=("embedding", "logits"))
    with seeded(3):
        net = Normed(NORMS[kind]).double().train()
        with torch.no_grad():
            for p in net.parameters():
                p.add_(torch.rand_like(p))
    with unchanged(net):
        taught = mark.loss(net)
        torch.autograd.grad(taught, [*net.parameters()])
    measured, usual = {}, to_batch(mark.ordinary, torch.zeros((), dtype=torch.float64))
    norms = [part for part in net.modules() if isinstance(part, nn.BatchNorm1d)]
    assert len(norms) == 4

    def measure(module, args, kwargs):
        measured[module] = next(iter([*args, *kwargs.values()]))

    handles = [norm.register_forward_pre_hook(measure, with_kwargs=True) for norm in norms]
    net(usual.x, usual.edge_index, usual.batch)
    for handle in handles:
        handle.remove()
    for norm in norms:
        norm.running_mean = measured[norm].mean(0).detach()
        norm.running_var = measured[norm].var(0, correction=0).detach()
    torch.testing.assert_close(mark.loss(net.eval()), taught)
    together = to_batch(mark.carriers, torch.zeros((), dtype=torch.float64))
    net.train()(together.x, together.edge_index, together.batch)
    assert not torch.isclose(mark.loss(net.eval()), taught)


def test_batch_norm_that_keeps_no_statistics_is_taught_as_it_is_read(draw):
    mark = draw(access="logits")
    with seeded(3):
        net = Normed(lambda width: nn.BatchNorm1d(width, track_running_stats=False))
    torch.testing.assert_close(mark.loss(net.train()), mark.loss(net.eval()))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_batch_norm_in_half_precision_gives_what_it_was_given(draw, dtype):
    """And is measured in single precision: squares of large numbers leave the range of half."""
    mark = draw(access="logits")
    with seeded(3):
        net = Normed(nn.BatchNorm1d).train()
    whole = mark.loss(net).item()
    halved = net.to(dtype)
    for norm in halved.norms:
        norm.float()
    assert mark.loss(halved).item() == pytest.approx(whole, abs=0.05)
    batch = to_batch(mark.ordinary)
    x = (500 * torch.randn(len(batch.x), 4, generator=torch.Generator().manual_seed(0))).to(dtype)
    with _OrdinaryStatistics(mark.ordinary.take([]), batch):
        seen = net.norms[0](x)
    assert seen.dtype == dtype
    torch.testing.assert_close(seen.float().std(0), torch.ones(4), atol=0.02, rtol=0)


# --- what is fixed stays fixed


def test_replacing_keeps_what_the_secret_binds(draw):
    mark = draw()
    weaker = mark.replace(recipe=Recipe(beta=0.1))
    assert weaker.digest == mark.digest
    assert weaker.bits.tolist() == mark.bits.tolist()
    for bound in ("context", "carriers", "secret", "scale"):
        with pytest.raises(ParameterError, match=bound):
            mark.replace(**{bound: None})


def test_a_suspect_is_asked_for_all_declared_levels_unless_readings_are_given(draw):
    mark = draw(access=("embedding", "logits"))

    def scores(batch):
        return torch.ones(batch.num_graphs, 2)

    assert mark.ask(scores).failures.keys() == {"embedding"}  # a function has no hidden layer
    assert not mark.ask(scores, [mark.reading("logits")]).failures


def test_only_declared_readings_are_read(draw, motifs):
    mark, model = draw(access=("logits", "labels")), new_model(motifs, "GIN", 0)
    assert mark.reading().access == "logits"
    assert mark.reading("labels").access == "labels"
    for act in (lambda: mark.read(model, "embedding"), lambda: verify(model, mark, access="embedding")):
        with pytest.raises(ParameterError, match="not declared") as caught:
            act()
        assert "logits, labels" in caught.value.advice


# --- files


@pytest.mark.parametrize("passphrase", ["correct horse", None])
@pytest.mark.parametrize("key", ["keyed", "plain"])
def test_a_mark_comes_back_whole(draw, motifs, tmp_path, key, passphrase):
    recipe = Recipe(loss="mse", beta=0.5, joint=False, presentations=40, carriers=8, after_task=7)
    mark = draw(access=("embedding", "labels"), classes=2, layer="head:in", key=key, recipe=recipe)
    path = tmp_path / "a.mark"
    mark.save(path, passphrase, insecure_no_passphrase=passphrase is None)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    back = Watermark.load(path, passphrase)
    for name in ("digest", "bound", "context", "recipe", "readings", "rejected", "scale", "secret"):
        assert getattr(back, name) == getattr(mark, name), name
    for name in ("bits", "targets", "perceived"):
        assert getattr(back, name).tolist() == getattr(mark, name).tolist()
    assert back.ordinary.digest() == mark.ordinary.digest()
    model = new_model(motifs, "GIN", 0, hidden_channels=8)
    for access in ("embedding", "labels"):
        assert back.read(model, access).carriers.tolist() == mark.read(model, access).carriers.tolist()
    if passphrase:
        assert bytes(mark.secret) not in path.read_bytes()
        for wrong in ("wrong horse", None):
            with pytest.raises(PassphraseError):
                Watermark.load(path, wrong)
    with pytest.raises(PassphraseError):
        mark.save(tmp_path / "b.mark")
    assert not (tmp_path / "b.mark").exists()


def spoilt(body, tensors):
    return {
        "empty": ({}, {}),
        "no secret": (body, {k: v for k, v in tensors.items() if k != "secret"}),
        "short secret": (body, tensors | {"secret": tensors["secret"][:31]}),
        "no context": ({k: v for k, v in body.items() if k != "context"}, tensors),
        "unknown recipe": (body | {"recipe": {"strength": 3}}, tensors),
        "upside down": (body | {"scale": [1.0, 0.0]}, tensors),
        "edge outside": (body, tensors | {"carriers.edges": tensors["carriers.edges"] + 10**6}),
        "wrong digest": (body | {"digest": "0" * 64}, tensors),
        "no digest": ({k: v for k, v in body.items() if k != "digest"}, tensors),
        "other ordinary": (body, tensors | {"ordinary.x": tensors.get("ordinary.x", 0) + 1}),
        "other context": (body | {"context": body["context"] | {"statistic": "rank"}}, tensors),
        "unknown entry": (body | {"context": body["context"] | {"note": 1}}, tensors),
    }


@pytest.mark.parametrize("defect", spoilt({"context": {}}, {"secret": b"", "carriers.edges": 0}))
def test_a_malformed_mark_is_a_file_error(draw, tmp_path, defect):
    draw().save(tmp_path / "good.mark", insecure_no_passphrase=True)
    held = container.read(tmp_path / "good.mark", "mark")
    body, tensors = spoilt(held.body, held.tensors)[defect]
    container.write(tmp_path / "bad.mark", "mark", body, tensors)
    with pytest.raises(FileError, match="bad") as caught:
        Watermark.load(tmp_path / "bad.mark")
    assert caught.value.advice


def smuggled(mark):
    """Two carriers under m=128, the others smuggled in among the ordinary inputs."""
    few, rest = mark.carriers.take([0, 1]), mark.carriers.take(np.arange(2, mark.m))
    return {"carriers": few, "ordinary": Graphs.concat([rest, mark.ordinary])}


def test_a_forged_mark_is_refused(draw, tmp_path):
    mark = draw(m=128)
    forged = smuggled(mark)
    with pytest.raises(ParameterError, match="2 carriers for m=128"):
        replace(mark, **forged)
    mark.save(tmp_path / "good.mark", insecure_no_passphrase=True)
    held = container.read(tmp_path / "good.mark", "mark")
    fields = ("ptr", "edges", "x")
    parts = {f"{name}.{part}": getattr(g, part) for name, g in forged.items() for part in fields}
    digests = (mark.bound, forged["carriers"].digest(), forged["ordinary"].digest())
    digest = hashlib.sha256("".join(digests).encode()).hexdigest()  # even with the digest put right
    container.write(tmp_path / "bad.mark", "mark", held.body | {"digest": digest}, held.tensors | parts)
    with pytest.raises(FileError, match="2 carriers for m=128"):
        Watermark.load(tmp_path / "bad.mark")


def test_an_unsound_mark_cannot_be_made(draw):
    mark, plain = draw(), draw(key="plain")
    for changes, message in (
        ({"carriers": mark.carriers.take([0, *range(15)])}, "the same graph"),
        ({"context": mark.context | {"note": "mine"}}, "context"),
        ({"context": {k: v for k, v in mark.context.items() if k != "ordinary"}}, "context"),
        ({"context": mark.context | {"m": 17}}, "m"),
        ({"context": mark.context | {"readings": []}}, "readings"),
    ):
        with pytest.raises(ParameterError, match=message):
            replace(mark, **changes)
    low = Scale(plain.scale.low + 100, plain.scale.high + 100)  # now every invariant is below one half
    with pytest.raises(ParameterError, match="not balanced"):
        replace(plain, scale=low)


def test_whole_features_come_back_whole(rings, tmp_path):
    coloured = Graphs(rings.ptr, rings.edges, rings.x.argmax(1)[:, None])
    mark = Watermark.draw(Secret(bytes(32)), coloured, m=8)
    mark.save(tmp_path / "a.mark", insecure_no_passphrase=True)
    back = Watermark.load(tmp_path / "a.mark")
    assert back.digest == mark.digest
    assert back.carriers.x.dtype == back.ordinary.x.dtype == np.int64
    assert back.bits.tolist() == mark.bits.tolist()


def test_a_mark_says_what_it_is_and_not_its_secret(draw):
    mark = draw(access=("embedding", "logits"))
    assert repr(mark) == f"Watermark(m=16, keyed lambda2, embedding+logits, {mark.digest[:12]})"
    assert replace(mark, secret=Secret(bytes(32))).digest == mark.digest


def test_carriers_without_features_need_a_model_without(rings):
    mark = Watermark.draw(Secret(bytes(32)), Graphs(rings.ptr, rings.edges), m=8, access="logits")
    with pytest.raises(SuspectError):
        mark.read(GIN(3, 4, 2, 2))
    assert mark.read(lambda batch: torch.bincount(batch.batch)[:, None] - 11.5).carriers.shape == (8,)


def test_a_mark_changed_in_memory_is_judged_anew(draw, motifs):
    """Whoever judges derives everything from what the mark holds now, not from what it once derived."""
    mark, model = draw(m=128, key="plain", access="logits"), new_model(motifs, "GIN", 0, hidden_channels=8)
    plain = mark.bits.tolist()
    answers = mark.read(model).carriers
    mark.context["key"] = "keyed"
    verdict = verify(model, mark, with_answers=True)
    assert list(verdict.bits) != plain
    assert verdict.digests["mark"] != mark.digest  # which was derived before
    assert list(verdict.answers) != answers.tolist() or verdict.evidence_bits < 40


def test_format_1_keeps_no_labels(draw):
    old = draw(m=16).context | {"format": 1}
    del old["classes"]
    mark = draw(m=16)
    with pytest.raises(ParameterError, match="binds no labels"):
        replace(mark, context=old)
    assert replace(mark, context=old, labels=None).format == 1


# --- limits of a mark


def test_labels_are_classes_of_the_task_one_for_every_ordinary_input(draw):
    mark = draw()
    labels = np.zeros(len(mark.ordinary), dtype=np.int64)
    labels[:3] = [-1, 1, 0]
    assert replace(mark, labels=labels).labels is labels
    for wrong, message in (
        (np.where(labels == -1, -2, labels), "no class of the task"),
        (np.where(labels == 1, 2, labels), "no class of the task"),
        (labels[1:], "labels of shape"),
        (labels[:, None], "labels of shape"),
        (labels.astype(np.int32), "labels of shape"),
    ):
        with pytest.raises(ParameterError, match=message):
            replace(mark, labels=wrong)
    nodes = draw("node")
    assert len(nodes.labels) == nodes.ordinary.num_nodes
    with pytest.raises(ParameterError, match="labels of shape"):
        replace(nodes, labels=nodes.labels[: len(nodes.ordinary)])
    unknown = {**mark.context, "classes": None}
    with pytest.raises(ParameterError, match="no class of the task"):
        replace(mark, context=unknown, labels=labels)
    assert replace(mark, context=unknown, labels=None).classes is None


def test_ordinary_inputs_are_at_least_one_and_no_more_than_declared(draw):
    mark = draw()
    assert len(mark.ordinary) == 64
    for count in (1, 64):
        labels = mark.labels[:count]
        assert (
            len(replace(mark, ordinary=mark.ordinary.take(range(count)), labels=labels).ordinary) == count
        )
    for count, declared in ((0, 64), (64, 63)):
        changes = {"ordinary": mark.ordinary.take(range(count)), "labels": None}
        with pytest.raises(ParameterError, match="ordinary inputs for"):
            replace(mark, context=mark.context | {"ordinary": declared}, **changes)


def test_a_mark_has_no_more_nodes_than_can_be_asked_about(draw, monkeypatch):
    mark = draw()
    most = max(mark.carriers.num_nodes, mark.ordinary.num_nodes)
    assert invgnn.watermark.derived.MOST_NODES == 2_000_000
    monkeypatch.setattr("invgnn.watermark.derived.MOST_NODES", most)
    replace(mark)
    monkeypatch.setattr("invgnn.watermark.derived.MOST_NODES", most - 1)
    with pytest.raises(ParameterError, match="nodes"):
        replace(mark)


@pytest.mark.parametrize(("given", "expected"), [(None, 2), (2, 2), (3, 3)])
def test_classes_are_those_of_the_labels_or_more(references, given, expected):
    assert Watermark.draw(Secret(bytes(32)), references["graph"], m=8, classes=given).classes == expected
    with pytest.raises(ParameterError, match="labels up to 1"):
        Watermark.draw(Secret(bytes(32)), references["graph"], m=8, classes=1)


def test_the_usual_mark(rings):
    """What is drawn if nothing is asked for; only the reference depends on the data."""
    mark = Watermark.draw(Secret(bytes(32)), rings)
    context = {**mark.context}
    assert context.pop("reference") == rings.digest()
    assert context.pop("sampler") == {
        **{"delta": 0.1, "swap_step": 5, "swap_cap": 50, "size_quantile": 0.25, "wl": "structure"},
        **{"rounds": 3, "lenders": 3, "wave": 256, "patience": 64},
    }
    assert context == {
        **{"format": 2, "m": 128, "key": "keyed", "invariant": "lambda2", "gap": 0.25, "level": "graph"},
        "readings": [
            {"access": "embedding", "layer": "auto"},
            {"access": "logits", "feature": "projection"},
        ],
        **{"statistic": "combined", "ordinary": 64, "classes": None},
    }
    assert mark.labels is None
    assert mark.layer == "auto"
    plain = Watermark.draw(Secret(bytes(32)), rings, m=8, key="plain", access="logits")
    assert (plain.context["gap"], plain.layer) == (0.0, None)
    assert mark.recipe == Recipe()


@pytest.mark.parametrize(("classes", "width"), [(2, 2), (3, 3), (4, 4), (3, 5), (5, 3)])
def test_directions_over_classes_by_hand(draw, classes, width):
    """Half the classes against the others, in a secret order, about their mean for scores."""
    mark = draw(access="logits", classes=classes)
    for access in ("logits", "labels"):
        order = mark.secret.derive("projection", mark.bound, access, classes).permutation(classes)
        signs = np.array([1.0 if place < classes // 2 else -1.0 for place in order])[:width]
        signs = signs - signs.mean() if access == "logits" else signs
        expected = [*signs, *[0.0] * (width - classes)]
        assert mark.direction(access, width).tolist() == pytest.approx(expected)


def test_carriers_have_no_class_when_they_are_asked_about(draw):
    """Questions come in a secret order; the label goes with its question."""
    for level in ("graph", "node"):
        mark = draw(level)
        questions, labels = mark.asked
        together = Graphs.concat([mark.carriers, mark.ordinary])
        sizes = np.ones(len(together), dtype=int) if level == "graph" else together.sizes
        known = [-1] * int(sizes[: mark.m].sum()) + mark.labels.tolist()
        starts = np.cumsum([0, *sizes])
        expected = [known[starts[i] + k] for i in mark._order for k in range(sizes[i])]
        assert labels.tolist() == expected
        assert questions.digest() == together.take(mark._order).digest()


def test_perceived_answers_and_labels_are_decoded_at_one_half(draw):
    mark = draw(access=ACCESSES)
    ordinary = np.zeros(64)
    for access in ACCESSES:
        reading = mark.reading(access)
        answers = Answers(reading, 0.1 + 0.1 * mark.bits, ordinary)  # all below one half
        assert mark.evidence(answers).ones == (0 if reading.binary else mark.m // 2)
    plain = draw(key="plain")
    found = plain.evidence(Answers(plain.reading(), plain.bits.astype(float), ordinary))
    assert (found.matches, found.log_p, found.exact) == (plain.m, 0.0, False)


@pytest.mark.parametrize("width", [2, 5, 8])
def test_directions_of_format_1_were_tied_to_the_width(draw, width):
    """Half of as many signs as there are columns, in a secret order; of an embedding each by itself."""
    mark = draw()
    old = {name: value for name, value in mark.context.items() if name != "classes"} | {"format": 1}
    mark = replace(mark, context=old, labels=None)
    for access in ("logits", "labels"):
        order = mark.secret.derive("projection", mark.bound, access, width).permutation(width)
        expected = [1.0 if place < width // 2 else -1.0 for place in order]
        assert mark.direction(access, width).tolist() == expected
    signs = mark.secret.derive("projection", mark.bound, "embedding", width).signs(width)
    assert mark.direction("embedding", width).tolist() == signs.tolist()


def test_batch_norm_called_as_a_function_keeps_its_defaults(draw):
    """It neither measures nor learns unless told; where it measures all rows, it learns by a tenth."""
    mark = draw(access="logits")
    batch = mark.batches.with_ordinary(None, None)
    nodes, graphs = int(batch.num_nodes), int(batch.num_graphs)
    rng = torch.Generator().manual_seed(1)
    with _OrdinaryStatistics(mark.carriers, batch):
        x, mean, var = torch.randn(nodes, 3, generator=rng), torch.ones(3), torch.full((3,), 4.0)
        seen = nn.functional.batch_norm(x, mean, var)
        torch.testing.assert_close(seen, (x - 1) / math.sqrt(4 + 1e-5))
        other = torch.randn(7, 3, generator=rng)  # rows of neither nodes, graphs nor edges
        nn.functional.batch_norm(other, mean, var, training=True)
        torch.testing.assert_close(mean, 0.9 * torch.ones(3) + 0.1 * other.mean(0))
        deep = torch.randn(graphs, 3, 5, generator=rng)
        weight, bias = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([-1.0, 0.5, 4.0])
        known = mean.clone()
        seen = nn.functional.batch_norm(deep, mean, var, weight, bias, training=True)
    usual = deep[len(mark.carriers) :].transpose(0, 1).reshape(3, -1)
    scaled = (deep - usual.mean(1)[:, None]) / (usual.var(1, correction=0) + 1e-5).sqrt()[:, None]
    torch.testing.assert_close(seen, scaled * weight[:, None] + bias[:, None])
    assert mean.equal(known)


def test_the_papers_head_counts_as_one_reading_among_others(draw, motifs):
    mark = draw(access=("logits", "perception", "embedding"), recipe=Recipe(beta=0.6))
    model = new_model(motifs, "GIN", 0, hidden_channels=8).eval()
    attach_head(model, 8)
    batch = mark.batches.with_ordinary(None, None)
    seen, carriers, ordinary = observe(model, batch, mark.layer), slice(mark.m), slice(mark.m, None)
    wanted = mark.batches.wanted(None, seen.scores)
    expected = _head_loss(mark, seen, model, carriers, wanted)
    for access in ("logits", "embedding"):
        readings = [mark.reading(access)]
        expected = expected + _answers_loss(mark, seen, model, readings, carriers, ordinary, wanted)
    torch.testing.assert_close(mark.loss(model), 0.6 / 3 * expected)


def test_m_is_checked_before_the_data_are_read():
    with pytest.raises(ParameterError, match="m is 7, which is odd"):
        Watermark.draw(Secret(bytes(32)), [], m=7)


def test_carriers_of_a_plain_mark_keep_the_gap(draw):
    """Those nearer to one half have no bit; those at the gap exactly have one."""
    wide = draw(key="plain", gap=0.4)
    assert (np.abs(wide.perceived - 0.5) >= 0.4).all()
    ends = draw(key="plain", gap=0.5)
    assert set(ends.perceived.tolist()) == {0.0, 1.0}


def test_how_a_student_is_taught_if_nothing_else_is_said(draw, monkeypatch):
    said = {}
    monkeypatch.setattr(
        "invgnn.watermark.trainable.refresh", lambda *parts, **options: said.update(options)
    )
    draw().refresh(None, None, [])
    assert said == {"epochs": 100, "lr": 0.01, "temperature": 2.0, "seed": 41, "progress": None}


def test_a_step_without_carriers_has_a_zero_of_the_models_kind(draw, tiny):
    mark = draw(recipe=Recipe(presentations=2))
    assert mark.schedule.at(mark.recipe, 0, 40) is mark.schedule.none
    assert mark.loss(tiny, step=0, steps=40).dtype == torch.float64
    assert mark.loss(nn.Identity(), step=0, steps=40).item() == 0.0


def test_a_mark_is_read_through_its_own_forward_or_the_one_given(draw, motifs):
    model = new_model(motifs, "GIN", 0, hidden_channels=8)

    def through(net, batch):
        return 2 * net(batch.x, batch.edge_index, batch.batch)

    mark = draw(access="logits")
    usual, own = mark.read(model).carriers, mark.replace(forward=through).read(model).carriers
    assert mark.read(model, forward=through).carriers.tolist() == own.tolist() != usual.tolist()
