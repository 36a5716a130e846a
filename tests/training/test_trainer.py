"""The training loop learns, keeps the right epoch, embeds, is reproducible, and has no side effects."""

from __future__ import annotations

import copy
import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch_geometric.data import Batch
from torch_geometric.nn import GraphConv

from invgnn.audit.verify import verify
from invgnn.errors import SuspectError
from invgnn.nn import gradient_projection
from invgnn.nn.optimise import LearningRate
from invgnn.nn.perception import attach_head
from invgnn.nn.rng import seeded
from invgnn.training.batching import Collated, accuracy
from invgnn.training.embedding import AFTER_TASK_RATES, WARMUP
from invgnn.training.planning import planned
from invgnn.training.tasks import new_model
from invgnn.training.trainer import train
from invgnn.watermark.mark import Watermark
from invgnn.watermark.mixed_batch import MixedBatch
from invgnn.watermark.recipe import Recipe
from invgnn.watermark.schedule import CarrierSchedule


@pytest.fixture(scope="module")
def trained(task, draw):
    """Return two models of the whole BA-2motif task, one of them marked."""
    whole, mark = task("BA-2motif"), draw(m=32)
    plain, marked = (new_model(whole, "GIN", 0, hidden_channels=32) for _ in range(2))
    return whole, mark, plain, train(plain, whole, epochs=8), marked, train(marked, whole, mark, epochs=12)


def test_few_epochs_solve_the_motifs(trained):
    whole, _, plain, history, *_ = trained
    assert history.test_acc > 0.9
    assert history.test_acc == accuracy(plain, whole, whole.test)
    assert history.loss[-1] < 0.7 * history.loss[0]
    assert history.mark_loss == [0.0] * 8
    assert not plain.training


def test_marking_embeds_and_keeps_the_accuracy(trained):
    _, mark, plain, before, marked, after = trained
    assert after.test_acc > before.test_acc - 0.1
    assert verify(marked, mark).evidence_bits > 15
    assert verify(plain, mark).evidence_bits < 10
    assert mark.evidence(mark.read(marked)).matches >= 26
    assert after.best_epoch >= 9  # of twelve: the last quarter
    assert after.mark_loss[0] == 0.0 < after.mark_loss[-1]  # the task came first
    assert 0 < after.mark_loss[-1] < after.mark_loss[2]


@pytest.mark.parametrize("level", ["graph", "node"])
def test_where_an_epoch_is_a_step_the_mark_comes_after_the_task(motifs, web, draw, level):
    """Training equals that of the unmarked model bit for bit, followed by the embedding of the mark."""
    task, told, states = {"graph": motifs, "node": web}[level], [], []
    twin, model, known = (new_model(task, "GIN", 0, hidden_channels=8) for _ in range(3))
    size = {"batch_size": len(task.train)}
    alone = train(twin, task, epochs=6, **size)

    def tell(done, total):
        told.append((done, total))
        states.append(copy.deepcopy(model.state_dict()))

    mark = draw(level, m=16, recipe=Recipe(weight_scale=None, after_task=12))
    history = train(model, task, mark, epochs=6, progress=tell, **size)
    assert told == [(done, 18) for done in range(1, 19)]
    assert (history.loss[:6], history.val_acc[:6]) == (alone.loss, alone.val_acc)
    assert [loss > 0 for loss in history.mark_loss] == [False] * 6 + [True] * 12
    known.load_state_dict(twin.state_dict())
    second = train(known, task, mark, epochs=6, trained=True, **size)
    assert len(second.loss) == 12
    assert second.loss == history.loss[6:]
    assert history.best_epoch == 6 + second.best_epoch >= 6 + 9  # the last quarter of the mark's own
    assert (history.best_val_acc, history.test_acc) == (second.best_val_acc, second.test_acc)
    assert all(value.equal(states[history.best_epoch][name]) for name, value in model.state_dict().items())
    last = train(known, task, mark, epochs=2, select=False, **size)
    assert (last.best_epoch, last.best_val_acc) == (13, last.val_acc[13])
    assert accuracy(known, task, task.val) == last.val_acc[13]


def test_how_many_epochs_are_planned(motifs, web, draw):
    """A mark after the task takes `after_task` more epochs, and these alone if the model is trained."""
    whole, mark, few = len(motifs.train), draw(), draw(recipe=Recipe(after_task=7))
    assert planned(motifs, mark, 4) == planned(motifs, mark, 4, whole - 1) == 4
    assert planned(motifs, mark, 4, whole) == planned(web, draw("node"), 4) == 74
    assert planned(motifs, few, 4, whole) == 11
    assert planned(motifs, few, 4, whole, trained=True) == 7
    assert planned(motifs, few, 4, trained=True) == 4
    assert planned(motifs, None, 4, whole) == 4
    assert planned(motifs, draw(recipe=Recipe(after_task=0)), 4, whole) == 4
    assert planned(motifs, draw(score_channel=16), 4, whole) == 4


@pytest.mark.parametrize("level", ["graph", "node"])
def test_after_the_task_a_model_keeps_to_labels_and_to_its_scores(motifs, web, draw, level):
    """The loss of a step is the cross-entropy plus twice T² KL to the model's own scores."""
    task = {"graph": motifs, "node": web}[level]
    model = new_model(task, "SGC", 0).eval()  # no dropout
    held = task.graphs[0] if level == "node" else Batch.from_data_list([task.graphs[i] for i in task.train])
    scores = model(held.x, held.edge_index, held.batch).detach()
    rows = task.train if level == "node" else slice(None)
    mark, states = draw(level, access="logits", recipe=Recipe(joint=False, after_task=4)), []
    seen = train(
        model,
        task,
        mark,
        batch_size=len(task.train),
        trained=True,
        progress=lambda *_: states.append(copy.deepcopy(model.state_dict())),
    )
    assert len(states) == 4
    model.load_state_dict(states[2])  # as it was in the last epoch's only step
    said = model(held.x, held.edge_index, held.batch).detach()
    before, now = ((s.double() / 2).softmax(-1) for s in (scores, said))
    apart = 4 * (before * (before / now).log()).sum(-1).mean()
    wanted = 2 * apart - said.log_softmax(-1)[torch.arange(len(said)), held.y][rows].mean()
    assert apart > 1e-4
    assert seen.loss[3] == pytest.approx(float(wanted), rel=1e-4)


def test_the_first_step_after_the_task_starts_from_the_models_own_scores(web, draw):
    """They are matched exactly, so its loss is that of the labels alone."""
    twin, model = (new_model(web, "SGC", 0) for _ in range(2))  # no dropout
    train(twin, web, epochs=5)
    seen = train(model, web, draw("node", access="logits", recipe=Recipe(after_task=3)), epochs=5)
    data = web.graphs[0]
    said = twin.eval()(data.x, data.edge_index).detach()
    wanted = cross_entropy(said[web.train], data.y[web.train])
    assert seen.loss[5] == pytest.approx(float(wanted), rel=1e-4)


# --- the learning rate


@pytest.fixture
def rates():
    """The learning rates of all steps that any optimiser makes from now on."""
    seen = []
    hook = register_optimizer_step_pre_hook(lambda made, *_: seen.append(made.param_groups[0]["lr"]))
    yield seen
    hook.remove()


def expected(lr, epochs, **options):
    rate = LearningRate(lr, epochs, **options)
    return [rate.at(epoch) for epoch in range(epochs)]


@pytest.mark.parametrize("marked", [False, True])
@pytest.mark.parametrize("decay", [False, True, None])
def test_the_rate_falls_with_a_mark_and_without(motifs, draw, rates, marked, decay):
    """With two steps per epoch; by default it falls."""
    options = {} if decay is None else {"decay": decay}
    mark = draw() if marked else None
    train(new_model(motifs, "GIN", 0, hidden_channels=8), motifs, mark, epochs=6, batch_size=80, **options)
    wanted = expected(0.01, 6, decay=decay is not False)
    assert rates == [rate for rate in wanted for _ in range(2)]
    assert (rates[-1] < rates[0]) == (decay is not False)


def test_after_the_task_the_rate_rises_higher_and_falls(web, draw, rates):
    model = new_model(web, "GIN", 0, hidden_channels=8)
    train(model, web, draw("node", recipe=Recipe(after_task=20)), epochs=10, lr=0.002)
    assert rates[:10] == expected(0.002, 10, decay=True)
    assert rates[10:] == expected(AFTER_TASK_RATES[0] * 0.002, 20, decay=True, warmup=WARMUP)
    assert max(rates[10:]) > max(rates[:10])


def same(one, other):
    """Whether two histories are equal, with NaN equal to NaN."""
    return repr(one) == repr(other)


@pytest.mark.parametrize("huge", [1e4, 1e30])
def test_a_run_that_diverges_is_undone_and_the_next_rate_is_taken(web, draw, rates, monkeypatch, huge):
    """The outcome is bit for bit that of the lower rate alone."""
    mark, outcomes = draw("node", recipe=Recipe(after_task=12)), []
    for tried in ((huge, 1.0), (1.0,)):
        monkeypatch.setattr("invgnn.training.embedding.AFTER_TASK_RATES", tried)
        rates.clear()
        model, state = _Normed(), torch.get_rng_state()
        model.load_state_dict(_Normed.fresh)
        history = train(model, web, mark, epochs=6)
        assert torch.equal(torch.get_rng_state(), state)
        assert not model.training
        outcomes.append((history, model.state_dict(), list(rates)))
    (ours, weights, high), (theirs, wanted, low) = outcomes
    assert same(ours, theirs)
    assert all(value.equal(wanted[name]) for name, value in weights.items())
    assert np.isfinite(ours.loss).all()
    assert high[:6] == low[:6]
    assert high[-12:] == low[-12:]
    lost = high[6:-12]  # the steps of the run that diverged, before it was noticed
    assert 1 <= len(lost) < 12
    assert min(lost) > 10


class _Normed(torch.nn.Module):
    """A model with the buffers of a norm, which a diverged run spoils too."""

    def __init__(self):
        super().__init__()
        self.one, self.norm, self.two = GraphConv(5, 8), torch.nn.BatchNorm1d(8), GraphConv(8, 2)

    def forward(self, x, edge_index):
        return self.two(self.norm(self.one(x, edge_index)).relu(), edge_index)


with seeded(3):
    _Normed.fresh = _Normed().state_dict()


def test_a_rate_that_the_model_can_take_is_not_lowered(web, draw, rates):
    model = new_model(web, "GIN", 0, hidden_channels=8)
    train(model, web, draw("node", recipe=Recipe(after_task=12)), epochs=6)
    assert len(rates) == 6 + 12


def test_the_last_rate_is_taken_whatever_the_loss(web, draw, monkeypatch):
    """Even a task loss that is three times as high as the first ends no run that has no other rate."""
    monkeypatch.setattr("invgnn.training.embedding.AFTER_TASK_RATES", (1.0,))
    monkeypatch.setattr("invgnn.training.embedding.DIVERGED", 0.0)
    model = new_model(web, "GIN", 0, hidden_channels=8)
    assert len(train(model, web, draw("node", recipe=Recipe(after_task=5)), epochs=2).loss) == 7


# --- how the mark is embedded after the task


def first_settled(losses, portions, limit):
    """Return after how many steps the mean loss of the last round is below a limit; all if never."""
    for done in range(1, len(losses) + 1):
        used = [loss for loss in losses[:done] if loss > 0][-portions:]
        if len(used) == portions and np.mean(used) < limit:
            return done
    return len(losses)


@pytest.mark.parametrize(("carriers", "beta"), [(6, 1.0), (16, 1.0), (16, 3.0)])
def test_a_mark_that_is_embedded_ends_the_run(web, draw, monkeypatch, carriers, beta):
    """The run lasts twice as long as the mark took, and its last quarter is eligible."""
    monkeypatch.setattr("invgnn.training.embedding.EARLIEST", 0)
    mark = draw("node", recipe=Recipe(after_task=60, carriers=carriers, beta=beta))
    portions = -(-16 // carriers)

    def run(settled):
        monkeypatch.setattr("invgnn.training.embedding.SETTLED", settled)
        told, model = [], new_model(web, "GIN", 0, hidden_channels=16)
        history = train(model, web, mark, trained=True, progress=lambda *at: told.append(at))
        assert [done for done, _ in told] == list(range(1, len(history.loss) + 1))
        return history

    whole = run(0.0)
    assert len(whole.loss) == 60
    limit = 0.5 * np.mean([loss for loss in whole.mark_loss if loss > 0][:portions]) / beta
    took = first_settled(whole.mark_loss, portions, limit * beta)
    assert portions < took < 30
    short = run(limit)
    assert short.mark_loss[:took] == whole.mark_loss[:took]
    assert len(short.loss) == 2 * took
    assert short.best_epoch + 1 > 1.5 * took


def test_a_step_without_carriers_does_not_end_the_run(web, draw):
    """Fifteen of sixteen carriers in a step leave some steps over, and these have no loss of the mark."""
    mark = draw("node", recipe=Recipe(after_task=60, carriers=15))
    history = train(new_model(web, "GIN", 0, hidden_channels=16), web, mark, trained=True)
    assert 0.0 in history.mark_loss
    assert len(history.loss) == 60


def fair_share(mark, task):
    """Return how many carriers have a quarter of the nodes of the task, but not fewer than the recipe's."""
    quarter = task.graphs[0].num_nodes * mark.m // (4 * mark.carriers.num_nodes)
    return min(mark.m, max(mark.recipe.carriers, quarter))


@pytest.mark.parametrize(("m", "carriers"), [(16, 16), (16, 1), (64, 1), (64, 40)])
def test_every_step_after_the_task_uses_a_fair_share_of_the_carriers(web, draw, monkeypatch, m, carriers):
    """All carriers in turn, each about as often as any other."""
    mark, seen, mix = draw("node", m=m, recipe=Recipe(after_task=12, carriers=carriers)), [], Watermark.mix

    def watched(self, batch, *, step=None, steps=None):
        mixed = mix(self, batch, step=step, steps=steps)
        if steps is not None:
            assert steps == 12
            seen.append((step, mixed.carriers))
        return mixed

    monkeypatch.setattr(Watermark, "mix", watched)
    train(new_model(web, "GIN", 0, hidden_channels=8), web, mark, epochs=2)
    share = fair_share(mark, web)
    counts = {len(some) for _, some in seen}
    assert len(counts) == 1
    assert share <= min(counts) <= min(m, share + -(-m // 12))  # up to one presentation more
    assert 12 * share <= sum(len(some) for _, some in seen) < 12 * share + m + max(counts)
    round_of = -(-m // len(seen[0][1]))
    assert set(np.concatenate([some for _, some in seen[:round_of]]).tolist()) == set(range(m))


@pytest.mark.parametrize("select", [True, False])
def test_after_the_task_accuracy_is_measured_where_an_epoch_can_be_kept(web, draw, monkeypatch, select):
    asked, measure = [], accuracy

    def counted(model, task, index, held=None):
        asked.append(index is task.val)
        return measure(model, task, index, held)

    monkeypatch.setattr("invgnn.training.fitting.accuracy", counted)
    model = new_model(web, "GIN", 0, hidden_channels=8)
    mark = draw("node", recipe=Recipe(after_task=12))
    history = train(model, web, mark, epochs=5, select=select)
    assert np.isnan(history.val_acc).tolist() == [False] * 5 + [True] * 9 + [False] * 3
    assert asked.count(True) == 5 + 3
    assert history.best_epoch >= 5 + 9
    assert history.best_val_acc == history.val_acc[history.best_epoch] == accuracy(model, web, web.val)
    if select:
        assert history.best_val_acc == max(history.val_acc[-3:])
    else:
        assert history.best_epoch == 16


PROJECTED = {  # in how many steps gradients are measured: during the task, and in 9 steps after it
    None: (0, 3),
    True: (6, 3),
    False: (0, 0),
}


@pytest.mark.parametrize("choice", PROJECTED)
def test_gradients_are_projected_after_the_task_unless_told_otherwise(web, draw, monkeypatch, choice):
    made = []
    whole = gradient_projection._projected
    monkeypatch.setattr(
        "invgnn.nn.gradient_projection._projected", lambda *parts: made.append(1) or whole(*parts)
    )
    for steps, wanted in zip((0, 9), PROJECTED[choice], strict=True):
        made.clear()
        recipe = Recipe(gradient_projection=choice, after_task=steps, warmup_steps=0)
        train(new_model(web, "GIN", 0, hidden_channels=8), web, draw("node", recipe=recipe), epochs=6)
        assert len(made) == wanted


def test_during_the_task_presentations_are_made_in_the_last_steps(motifs, draw, monkeypatch):
    """Steps that use no carriers call the model on the task batch alone."""
    recipe, seen, at = Recipe(presentations=3, carriers=8, warmup_steps=2), [], CarrierSchedule.at

    def watched(self, recipe, step, steps):
        if steps is not None:
            seen.append((step, steps))
        return at(self, recipe, step, steps)

    monkeypatch.setattr(CarrierSchedule, "at", watched)
    history = train(
        new_model(motifs, "GIN", 0, hidden_channels=8),
        motifs,
        draw(recipe=recipe),
        epochs=10,
        batch_size=80,
    )
    plan = recipe.plan(16, 20)
    assert seen == [(step, 20) for step in range(20) if plan.use(step) is not None]
    assert len(seen) == 6
    used = {step // 2 for step, _ in seen}
    assert [loss > 0 for loss in history.mark_loss] == [epoch in used for epoch in range(10)]


# --- which epoch is kept


def test_the_best_validation_epoch_is_kept(motifs):
    model = new_model(motifs, "GIN", 0, hidden_channels=8)
    seen = []
    history = train(model, motifs, epochs=10, progress=lambda done, total: seen.append((done, total)))
    assert accuracy(model, motifs, motifs.val) == max(history.val_acc) == history.best_val_acc
    assert history.best_epoch == int(np.argmax(history.val_acc))
    assert seen == [(epoch, 10) for epoch in range(1, 11)]
    last = new_model(motifs, "GIN", 0, hidden_channels=8)
    kept = train(last, motifs, epochs=10, select=False)
    assert kept.val_acc == history.val_acc
    assert kept.best_epoch == 9
    assert accuracy(last, motifs, motifs.val) == kept.val_acc[-1]


@pytest.mark.parametrize(
    ("marked", "scores", "best"),
    [
        (False, [0.5, 0.99, 0.9, 0.6, 0.8, 0.99], 1),
        (True, [0.5, 0.99, 0.9, 0.6, 0.8, 0.8], 4),  # the last quarter alone, and of equals the first
        (True, [0.5, 0.99, 0.9, 0.6, 0.5], 3),  # of five, the fourth lies in part in the last quarter
        (True, [0.5], 0),
    ],
)
def test_with_a_mark_the_last_quarter_is_eligible(motifs, draw, monkeypatch, marked, scores, best):
    model, epochs, states = new_model(motifs, "GIN", 0, hidden_channels=8), len(scores), []
    told = iter([*scores, 0.123])
    monkeypatch.setattr("invgnn.training.fitting.accuracy", lambda *_: next(told))

    def remember(*_):
        states.append(copy.deepcopy(model.state_dict()))

    mark = draw(recipe=Recipe(after_task=0, weight_scale=None)) if marked else None
    history = train(model, motifs, mark, epochs=epochs, progress=remember)
    assert (history.best_epoch, history.best_val_acc, history.test_acc) == (best, scores[best], 0.123)
    assert history.val_acc == scores
    assert all(value.equal(states[best][name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize(("wait", "first"), [(0, 0), (3, 1), (100, 3)])
def test_the_mark_joins_after_its_first_steps(motifs, draw, wait, first):
    """With two steps per epoch and fifteen epochs, at most a fifth of the steps have no mark."""
    mark = draw(recipe=Recipe(warmup_steps=wait, after_task=0))
    model = new_model(motifs, "GIN", 0, hidden_channels=8)
    history = train(model, motifs, mark, epochs=15, batch_size=-(-len(motifs.train) // 2))
    assert [loss > 0 for loss in history.mark_loss] == [False] * first + [True] * (15 - first)
    again = train(model, motifs, mark, epochs=15, batch_size=-(-len(motifs.train) // 2), trained=True)
    assert min(again.mark_loss) > 0  # nothing to wait for


def test_a_mark_that_does_not_fit_fails_before_training(web, draw):
    sgc = new_model(web, "SGC", 0)
    told = []
    with pytest.raises(SuspectError, match="no hidden representation"):
        train(sgc, web, draw("node"), epochs=10, progress=lambda *step: told.append(step))
    assert told == []


@given(st.lists(st.integers(0, 199), min_size=1, max_size=12))
def test_batches_are_pygs(motifs, index):
    held = Collated(motifs.graphs)
    ours, theirs = held.batch(torch.tensor(index)), Batch.from_data_list([motifs.graphs[i] for i in index])
    for name in ("x", "edge_index", "y", "batch", "ptr"):
        assert ours[name].equal(theirs[name]), name
        assert ours[name].dtype == theirs[name].dtype
    assert (ours.num_nodes, ours.num_graphs) == (theirs.num_nodes, theirs.num_graphs)


RECIPES = {
    "no mark": None,
    "joint": Recipe(),
    "joint, a share": Recipe(presentations=1, carriers=4),
    "joint, some steps": Recipe(presentations=1, carriers=8),
    "own pass": Recipe(joint=False),
    "own pass, a share": Recipe(joint=False, presentations=1, carriers=4),
    "guarded": Recipe(gradient_projection=True),
    "own pass, mse": Recipe(joint=False, loss="mse"),
}


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("level", ["graph", "node", "node, after"])
def test_the_same_seed_gives_the_same_weights(motifs, web, draw, level, name):
    level, _, after = level.partition(", ")
    task, recipe = {"graph": motifs, "node": web}[level], RECIPES[name]
    mark = recipe and draw(level, recipe=replace(recipe, after_task=4 if after else 0))
    states, weights = [], []
    for seed in (5, 5, 6):
        random.seed(seed + 1)
        torch.manual_seed(seed + 2)
        model = new_model(task, "GIN", 0, hidden_channels=8)
        before = random.getstate(), str(np.random.get_state()), torch.get_rng_state().tolist()  # noqa: NPY002
        history = train(model, task, mark, epochs=2, seed=seed)
        after = random.getstate(), str(np.random.get_state()), torch.get_rng_state().tolist()  # noqa: NPY002
        assert before == after
        states.append((history.loss, history.mark_loss, str(history.val_acc)))
        weights.append(torch.cat([value.view(-1).double() for value in model.state_dict().values()]))
        assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
        assert np.isfinite(history.loss + history.mark_loss).all()
    assert states[0] == states[1]
    assert weights[0].equal(weights[1])
    assert not weights[0].equal(weights[2])
    assert (sum(states[0][1]) > 0) == (mark is not None)


def test_training_keeps_a_head_in_its_set(motifs, draw):
    model = new_model(motifs, "GIN", 0, hidden_channels=8)
    head = attach_head(model, 8, non_negative=True, clip=0.2)
    train(model, motifs, draw(access="perception"), epochs=2)
    assert float(head.weight.detach().min()) >= 0
    assert float(head.weight.detach().max()) <= 0.2 + 1e-6


@pytest.mark.parametrize(("level", "decoupled"), [("graph", True), ("node", False)])
def test_weights_decay_on_their_own_on_graph_tasks(motifs, web, monkeypatch, level, decoupled):
    """And as the caller wishes."""
    task, kinds = {"graph": motifs, "node": web}[level], []

    def watch(kind):
        def made(*args, **kwargs):
            kinds.append((kind, kwargs["weight_decay"]))
            return kind(*args, **kwargs)

        return made

    adam, adamw = torch.optim.Adam, torch.optim.AdamW
    for kind in (adam, adamw):
        monkeypatch.setattr(torch.optim, kind.__name__, watch(kind))
    for option in ({}, {"decoupled": True, "weight_decay": 0.1}, {"decoupled": False}):
        train(new_model(task, "GIN", 0, hidden_channels=8), task, epochs=1, **option)
    assert kinds == [(adamw if decoupled else adam, 5e-4), (adamw, 0.1), (adam, 5e-4)]


@pytest.mark.parametrize(("presentations", "weight"), [(2, 0.5), (200, 1.0)])
def test_a_mark_has_half_its_weight_where_its_presentations_fit_in(
    motifs, draw, monkeypatch, presentations, weight
):
    seen, loss = [], MixedBatch.loss

    def watched(self):
        seen.append(self.mark.recipe.beta)
        return loss(self)

    monkeypatch.setattr(MixedBatch, "loss", watched)
    mark = draw(recipe=Recipe(beta=3.0, presentations=presentations, warmup_steps=0))
    train(new_model(motifs, "GIN", 0, hidden_channels=8), motifs, mark, epochs=3)
    assert set(seen) == {3.0 * weight}
