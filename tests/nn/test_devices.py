"""Nothing assumes the CPU or full precision: another device, autocast, scaled losses, half weights."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.nn.functional import cross_entropy

from _helpers.elsewhere import PLACE, Elsewhere, Far
from invgnn.attacks.edits import Cast, Distil, FineTune, Prune, Quantise
from invgnn.audit.provenance import digest_model, trace
from invgnn.audit.verify import verify
from invgnn.errors import SuspectError
from invgnn.nn.gradient_projection import projected_sum
from invgnn.nn.perception import attach_head
from invgnn.training.batching import Collated, accuracy
from invgnn.training.tasks import new_model
from invgnn.training.trainer import train
from invgnn.watermark.recipe import Recipe
from invgnn.watermark.reference import Reference


@pytest.fixture
def model(motifs):
    return new_model(motifs, "GIN", 0, hidden_channels=24).eval()


@pytest.fixture
def batch(motifs):
    return Collated(motifs.graphs).batch(torch.arange(24))


def away(model):
    """A copy of a model in the other place."""
    return copy.deepcopy(model).to(PLACE)


def loss_of(way, mark, model, batch, step):
    if way == "loss":
        return mark.loss(model, step=step)
    if way == "guard":
        scores = model(batch.x, batch.edge_index, batch.batch)
        return mark.joint_loss(model, cross_entropy(scores, batch.y), step=step)
    joint = mark.mix(batch, step=step)
    task_loss = cross_entropy(joint(model), batch.y)
    return joint.joint_loss(task_loss) if way == "joint guard" else task_loss + joint.loss()


def gradients(loss, model):
    model.zero_grad()
    loss.backward()
    return [None if p.grad is None else p.grad for p in model.parameters()]


# -- another device ---------------------------------------------------------------------------------


def test_the_other_place_is_strict():
    with Elsewhere():
        here, there = torch.ones(3), torch.ones(3).to(PLACE)
        assert isinstance(there, Far)
        assert (there + 1).device == PLACE
        assert (there * 2).cpu().tolist() == [2, 2, 2]
        for wrong in (lambda: here + there, lambda: there.double(), lambda: there.numpy()):
            with pytest.raises((RuntimeError, TypeError)):
                wrong()


@pytest.mark.parametrize("step", [None, 1])
@pytest.mark.parametrize("way", ["loss", "guard", "joint", "joint guard"])
def test_a_mark_is_taught_where_the_model_is(draw, model, batch, way, step):
    recipe = Recipe(carriers=5, gradient_projection=True, cap=0.5)
    mark = draw(access=("embedding", "logits", "labels"), recipe=recipe)
    near = gradients(loss_of(way, mark, model, batch, step), model)
    with Elsewhere():
        far = away(model)
        found = gradients(loss_of(way, mark, far, copy.copy(batch).to(PLACE), step), far)
        assert {g.device for g in found} == {PLACE}
        for one, other in zip(found, near, strict=True):
            torch.testing.assert_close(one.cpu(), other)


@pytest.mark.parametrize("access", ["embedding", "logits", "labels", "perception"])
def test_a_suspect_is_read_where_it_is(draw, model, access):
    attach_head(model, 24)
    mark = draw(access=access)
    near = mark.read(model)
    with Elsewhere():
        far = away(model)
        assert mark.read(far).carriers == pytest.approx(near.carriers)
        assert verify(far, mark).evidence_bits == pytest.approx(verify(model, mark).evidence_bits)
        assert trace(far).tensors == trace(model).tensors  # the classes of the tensors differ


def test_a_function_may_answer_from_anywhere(draw, model):
    mark = draw(access="labels")
    with Elsewhere():
        far = away(model)

        def labels(batch):
            batch = batch.to(PLACE)
            return far(batch.x, batch.edge_index, batch.batch).argmax(-1)

        assert mark.read(labels).carriers.tolist() == mark.read(model).carriers.tolist()


@pytest.mark.parametrize("level", ["graph", "node"])
def test_training_goes_to_the_model(draw, motifs, web, level):
    task = {"graph": motifs, "node": web}[level]
    mark, model = draw(level), new_model(task, "GCN" if level == "node" else "GIN", 0, hidden_channels=16)
    with Elsewhere():
        far = away(model)
        seen = train(far, task, mark, epochs=2)
        kept = train(model, task, mark, epochs=2)
        assert {p.device for p in far.parameters()} == {PLACE}
        assert seen.loss == pytest.approx(kept.loss)
        assert accuracy(far, task, task.test) == accuracy(model, task, task.test)
    assert task.train.device.type == "cpu"  # moved copies, not the task


@pytest.mark.parametrize(
    "edit", [Prune(0.5), Quantise(4), Cast("bf16"), FineTune(1, 1e-3), Distil(epochs=1)], ids=repr
)
def test_edits_stay_where_the_model_is(motifs, model, edit):
    with Elsewhere():
        edited = edit(away(model), motifs)
        assert {p.device for p in edited.parameters()} == {PLACE}


def test_a_mark_is_drawn_from_data_anywhere(motifs):
    with Elsewhere():
        assert Reference.of(motifs.to(PLACE).data).digest == Reference.of(motifs.data).digest


def test_a_model_without_weights_is_no_suspect(draw, model):
    with pytest.raises(SuspectError, match="meta device"):
        draw().read(model.to("meta"))


# -- less than full precision -----------------------------------------------------------------------


def test_a_mark_is_learnt_under_autocast(draw, motifs):
    mark, model = draw(m=32, recipe=Recipe(beta=2.0)), new_model(motifs, "GIN", 1, hidden_channels=32)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    held, order = Collated(motifs.graphs), torch.Generator().manual_seed(0)
    for _ in range(60):
        batch = held.batch(torch.randperm(160, generator=order)[:32])
        with torch.autocast("cpu", torch.bfloat16):
            joint = mark.mix(batch)
            scores = joint(model)
            assert scores.dtype == torch.bfloat16
            loss = joint.joint_loss(cross_entropy(scores, batch.y))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert verify(model, mark).evidence_bits > 20  # of 29 at most
    with torch.autocast("cpu", torch.bfloat16):
        assert verify(model, mark).evidence_bits > 20
    assert verify(model.bfloat16(), mark).evidence_bits > 20


@pytest.mark.parametrize("way", ["sum", "guard"])
def test_scaled_losses_give_the_gradient(draw, model, batch, way):
    """A `GradScaler` with half-precision passes, against full precision without one."""
    mark = draw(recipe=Recipe(gradient_projection=True, cap=0.5))
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)

    def both(dtype, scale):
        with torch.autocast("cpu", dtype, enabled=dtype is not None):
            scores = model(batch.x, batch.edge_index, batch.batch)
            losses = scale(cross_entropy(scores, batch.y)), scale(mark.loss(model))
        return losses[0] + losses[1] if way == "sum" else projected_sum(*losses, model.parameters(), 0.5)

    wanted = [g.clone() for g in gradients(both(None, lambda loss: loss), model)]
    optimiser = torch.optim.SGD(model.parameters(), lr=0.0)
    gradients(both(torch.float16, scaler.scale), model)
    scaler.unscale_(optimiser)
    found = torch.cat([p.grad.view(-1) for p in model.parameters()])
    assert torch.cosine_similarity(found, torch.cat([g.view(-1) for g in wanted]), dim=0) > 0.999
    scaler.step(optimiser)
    scaler.update()
    assert scaler.get_scale() == 2.0**12  # nothing overflowed


def test_an_overflow_is_seen_by_the_scaler(draw, model, batch):
    mark, scaler = (
        draw(recipe=Recipe(gradient_projection=True, cap=1.0)),
        torch.amp.GradScaler("cpu", init_scale=2.0**12),
    )
    optimiser = torch.optim.SGD(model.parameters(), lr=1.0)
    before = digest_model(model)
    scores = model(batch.x, batch.edge_index, batch.batch)
    task_loss = scaler.scale(cross_entropy(scores, batch.y))
    projected_sum(task_loss, scaler.scale(mark.loss(model) * torch.inf), model.parameters(), 1.0).backward()
    scaler.step(optimiser)
    scaler.update()
    assert scaler.get_scale() == 2.0**11
    assert digest_model(model) == before
