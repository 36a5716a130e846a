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
from torch_geometric.data import Batch

from invgnn.audit.verify import verify
from invgnn.errors import SuspectError
from invgnn.nn.perception import attach_head
from invgnn.training.batching import Collated, accuracy
from invgnn.training.fitting import History
from invgnn.training.tasks import new_model
from invgnn.training.trainer import planned, train
from invgnn.watermark.recipe import Recipe


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

    mark = draw(level, m=16, recipe=Recipe(weight_scale=None))
    history = train(model, task, mark, epochs=6, progress=tell, **size)
    assert told == [(done, 18) for done in range(1, 19)]
    assert (history.loss[:6], history.val_acc[:6]) == (alone.loss, alone.val_acc)
    assert [loss > 0 for loss in history.mark_loss] == [False] * 6 + [True] * 12
    known.load_state_dict(twin.state_dict())
    second = train(known, task, mark, epochs=12, trained=True, **size)
    assert len(second.loss) == 12
    assert second.loss == history.loss[6:]
    assert history.best_epoch == 6 + second.best_epoch >= 6 + 9  # the last quarter of the mark's own
    assert (history.best_val_acc, history.test_acc) == (second.best_val_acc, second.test_acc)
    assert all(value.equal(states[history.best_epoch][name]) for name, value in model.state_dict().items())
    last = train(known, task, mark, epochs=2, select=False, **size)
    assert (last.best_epoch, last.best_val_acc) == (5, last.val_acc[5])
    assert accuracy(known, task, task.val) == last.val_acc[5]


def test_how_many_epochs_are_planned(motifs, web, draw):
    """A mark after the task takes three times as many epochs, unless the model is trained already."""
    whole, mark = len(motifs.train), draw()
    assert planned(motifs, mark, 4) == planned(motifs, mark, 4, whole - 1) == 4
    assert planned(motifs, mark, 4, whole) == planned(web, draw("node"), 4) == 12
    assert planned(motifs, mark, 4, whole, trained=True) == 4
    assert planned(motifs, None, 4, whole) == 4
    assert planned(motifs, draw(recipe=Recipe(after_task=False)), 4, whole) == 4
    assert planned(motifs, draw(score_channel=16), 4, whole) == 4


@pytest.mark.parametrize("level", ["graph", "node"])
def test_after_the_task_a_model_keeps_to_labels_and_to_its_scores(motifs, web, draw, level):
    """The loss of a step is half the cross-entropy plus T² KL to the model's own scores."""
    task = {"graph": motifs, "node": web}[level]
    model = new_model(task, "SGC", 0).eval()  # no dropout
    held = task.graphs[0] if level == "node" else Batch.from_data_list([task.graphs[i] for i in task.train])
    scores = model(held.x, held.edge_index, held.batch).detach()
    rows = task.train if level == "node" else slice(None)
    mark, states = draw(level, access="logits", recipe=Recipe(joint=False)), []
    seen = train(
        model,
        task,
        mark,
        epochs=4,
        batch_size=len(task.train),
        trained=True,
        progress=lambda *_: states.append(copy.deepcopy(model.state_dict())),
    )
    model.load_state_dict(states[2])  # as it was in the last epoch's only step
    said = model(held.x, held.edge_index, held.batch).detach()
    before, now = ((s.double() / 2).softmax(-1) for s in (scores, said))
    apart = 4 * (before * (before / now).log()).sum(-1).mean()
    wanted = apart - 0.5 * said.log_softmax(-1)[torch.arange(len(said)), held.y][rows].mean()
    assert apart > 1e-4
    assert seen.loss[3] == pytest.approx(float(wanted), rel=1e-4)


@pytest.mark.parametrize("unfinished", [True, False])
def test_a_model_that_still_learns_is_trained_on_labels_alone(web, draw, monkeypatch, unfinished):
    """The loss of the first step after the task equals an independent computation."""
    monkeypatch.setattr(History, "unfinished", property(lambda self: bool(self.loss) and unfinished))
    twin, model = (new_model(web, "SGC", 0) for _ in range(2))  # no dropout
    train(twin, web, epochs=5)
    seen = train(model, web, draw("node", access="logits"), epochs=5)
    data = web.graphs[0]
    said = twin.eval()(data.x, data.edge_index).detach()
    wanted = cross_entropy(said[web.train], data.y[web.train])
    assert seen.loss[5] == pytest.approx(float(wanted) * (1 if unfinished else 0.5), rel=1e-4)


def test_unfinished_is_who_was_best_in_the_last_tenth():
    assert not History().unfinished
    for best in range(20):
        history = History(val_acc=[0.9 if epoch == best else 0.5 for epoch in range(20)])
        assert history.unfinished == (best >= 18)
    assert not History(val_acc=[0.9] * 20).unfinished  # as good from the first epoch on


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

    mark = draw(recipe=Recipe(after_task=False, weight_scale=None)) if marked else None
    history = train(model, motifs, mark, epochs=epochs, progress=remember)
    assert (history.best_epoch, history.best_val_acc, history.test_acc) == (best, scores[best], 0.123)
    assert history.val_acc == scores
    assert all(value.equal(states[best][name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize(("wait", "first"), [(0, 0), (3, 1), (100, 3)])
def test_the_mark_joins_after_its_first_steps(motifs, draw, wait, first):
    """With two steps per epoch and fifteen epochs, at most a fifth of the steps have no mark."""
    mark = draw(recipe=Recipe(warmup_steps=wait, after_task=False))
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
    "joint, a share": Recipe(ratio=0.16),
    "joint, every third step": Recipe(every=3),
    "own pass": Recipe(joint=False),
    "own pass, a share": Recipe(joint=False, ratio=0.16),
    "unguarded": Recipe(gradient_projection=False),
    "own pass, mse": Recipe(joint=False, loss="mse"),
}


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("level", ["graph", "node", "node, after"])
def test_the_same_seed_gives_the_same_weights(motifs, web, draw, level, name):
    level, _, after = level.partition(", ")
    task, recipe = {"graph": motifs, "node": web}[level], RECIPES[name]
    mark = recipe and draw(level, recipe=replace(recipe, after_task=bool(after)))
    states, weights = [], []
    for seed in (5, 5, 6):
        random.seed(seed + 1)
        torch.manual_seed(seed + 2)
        model = new_model(task, "GIN", 0, hidden_channels=8)
        before = random.getstate(), str(np.random.get_state()), torch.get_rng_state().tolist()  # noqa: NPY002
        history = train(model, task, mark, epochs=2, seed=seed)
        after = random.getstate(), str(np.random.get_state()), torch.get_rng_state().tolist()  # noqa: NPY002
        assert before == after
        states.append((history.loss, history.mark_loss, history.val_acc))
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
