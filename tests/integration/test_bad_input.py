"""Whatever is wrong with the input: a typed error with advice, and nothing of yours overwritten."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch_geometric.data import Batch, Data

from invgnn.audit.verify import verify
from invgnn.errors import (
    DataError,
    ExistingFileError,
    FileError,
    InvgnnError,
    ParameterError,
    SuspectError,
)
from invgnn.graphs.disjoint_union import Graphs
from invgnn.nn.backbones import GIN
from invgnn.nn.model_file import load_model, save_model
from invgnn.secret import Secret
from invgnn.training.tasks import new_model
from invgnn.training.trainer import train
from invgnn.watermark.mark import Watermark
from invgnn.watermark.recipe import Recipe
from invgnn.watermark.reference import Reference
from invgnn.watermark.sampler import Sampler

SECRET = Secret(bytes(32))


def refused(kind, act, message=None):
    with pytest.raises(kind, match=message) as caught:
        act()
    assert isinstance(caught.value, InvgnnError)
    assert caught.value.message
    assert caught.value.advice
    assert caught.value.advice in str(caught.value)


# --- graphs


def ring(size=9, width=4, value=1.0, edges=True, **more):
    pairs = [(v, (v + 1) % size) for v in range(size)] if edges else []
    pairs += [(v, u) for u, v in pairs]
    edge_index = torch.tensor(pairs, dtype=torch.long).view(-1, 2).T
    return Data(x=torch.full((size, width), value), edge_index=edge_index, num_nodes=size, **more)


def pieces(nodes):
    pairs = torch.arange(nodes).view(2, -1)
    return torch.cat([pairs, pairs.flip(0)], dim=1)


GRAPHS = {
    "none": lambda: [],
    "one": lambda: [ring()],
    "without edges": lambda: [ring(edges=False), ring(8, edges=False)],
    "one edge each": lambda: [ring(2), ring(2)],
    "NaN": lambda: [ring(), ring(value=float("nan"))],
    "infinite": lambda: [ring(), ring(value=float("inf"))],
    "mixed widths": lambda: [ring(), ring(width=3)],
    "some without features": lambda: [ring(), Data(edge_index=ring().edge_index, num_nodes=9)],
    "no edge_index": lambda: [Data(x=torch.ones(3, 4)), Data(x=torch.ones(3, 4))],
    "a batch": lambda: Batch.from_data_list([ring(), ring()]),
    "batches": lambda: [Batch.from_data_list([ring(), ring()])] * 2,
    "all alike": lambda: [ring(), ring(), ring()],
    "a tiny graph": lambda: ring(5),
    "a graph in pieces": lambda: Data(x=torch.ones(300, 1), edge_index=pieces(300)),
    "empty graphs": lambda: [Data(x=torch.ones(0, 2), edge_index=torch.zeros(2, 0).long())] * 2,
}


@pytest.mark.parametrize("name", GRAPHS)
def test_graphs_that_are_no_population(name):
    refused(InvgnnError, lambda: Watermark.draw(SECRET, GRAPHS[name](), m=8))
    if name in {"none", "one", "without edges", "NaN", "infinite", "mixed widths", "a batch"}:
        refused(DataError, lambda: Watermark.draw(SECRET, GRAPHS[name](), m=8))


# --- suspects


@pytest.fixture(scope="module")
def mark(draw):
    return draw(access=("logits", "labels"), classes=3)


def scores(batch, *shape):
    return torch.zeros(batch.num_graphs, *shape)


def out_of_range(batch):
    return torch.full((batch.num_graphs,), 3)


def failing(error):
    def suspect(batch):
        raise error

    return suspect


SUSPECTS = {
    "NaN": lambda b: scores(b, 2) * np.nan,
    "infinite": lambda b: scores(b, 2) + np.inf,
    "too few rows": lambda b: scores(b, 2)[1:],
    "too many rows": lambda b: torch.zeros(b.num_nodes + 1, 2),
    "three axes": lambda b: scores(b, 2, 2),
    "one number": lambda b: torch.tensor(1.0),
    "no columns": lambda b: scores(b, 0),
    "nothing": lambda b: None,
    "text": lambda b: "cat",
    "ragged": lambda b: [[1.0], [1.0, 2.0]],
    "a dictionary": lambda b: {"scores": scores(b, 2)},
    "complex": lambda b: scores(b, 2).to(torch.complex64),
    "raises ValueError": failing(ValueError("out of order")),
    "raises KeyError": failing(KeyError("scores")),
    "raises OSError": failing(ConnectionError("no route to host")),
    "raises AssertionError": failing(AssertionError()),
    "another width": GIN(7, 4, 2, 2),
    "no features wanted": lambda b: GIN(7, 4, 2, 2)(None, b.edge_index),
    "two outputs": type("Two", (GIN,), {"forward": lambda self, x, edge_index: (x, x)})(4, 4, 2, 2),
    "two scores": lambda b: (scores(b), scores(b)),
}


@pytest.mark.parametrize("access", ["logits", "labels"])
@pytest.mark.parametrize("name", SUSPECTS)
def test_suspects_that_give_no_answers(mark, name, access):
    refused(SuspectError, lambda: verify(SUSPECTS[name], mark, access=access))


@pytest.mark.parametrize("access", ["logits", "labels"])
@pytest.mark.parametrize(
    "suspect",
    [
        lambda b: scores(b, 2).index_fill(0, torch.arange(-(-b.num_graphs // 2)), np.nan),
        lambda b: ["cat"] * b.num_graphs,
        lambda b: scores(b, 2).long(),
        out_of_range,
        lambda b: out_of_range(b) - 4,
    ],
    ids=["half NaN", "texts", "whole scores", "unknown labels", "negative labels"],
)
def test_suspects_that_answer_all_alike_are_inconclusive(mark, suspect, access):
    assert verify(suspect, mark, access=access).status == "inconclusive"


@pytest.mark.parametrize("access", ["logits", "labels"])
@pytest.mark.parametrize("value", [0.0, 0.25, -3.0, 1e30])
def test_a_constant_suspect_is_inconclusive(mark, value, access):
    verdict = verify(lambda b: torch.full((b.num_graphs, 3), value), mark, 0.5, access=access)
    assert (verdict.status, verdict.p) == ("inconclusive", 1.0)


def test_a_model_of_nan_weights(draw, motifs):
    model = new_model(motifs, "GIN", 0, hidden_channels=4)
    with torch.no_grad():
        next(model.parameters()).fill_(float("nan"))
    for access in ("embedding", "logits", "labels"):
        refused(SuspectError, lambda access=access: verify(model, draw(access=access)), "no finite answer")


# --- numbers and names

PARAMETERS = {
    **{f"m={m}": {"m": m} for m in (-2, 0, 2, 6, 7, 127)},
    "key": {"key": "open"},
    "gap": {"gap": 0.6},
    "gap below": {"gap": -0.1},
    "gap NaN": {"gap": float("nan")},
    "statistic": {"statistic": "best"},
    "invariant": {"invariant": "beauty"},
    "access": {"access": "weights"},
    "no access": {"access": ()},
    "feature": {"access": "logits", "feature": "entropy"},
    "side of a layer": {"layer": "out:input"},
    "fewer classes than labels": {"classes": 1},
    "one class": {"access": "labels", "classes": 1},
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_marks_that_cannot_be_drawn(references, name):
    options = {"m": 8, **PARAMETERS[name]}
    refused(ParameterError, lambda: Watermark.draw(SECRET, references["graph"], **options))


@pytest.mark.parametrize("alpha", [0, 1, -1, 2, float("nan")])
def test_levels_outside_the_open_interval(mark, alpha):
    refused(ParameterError, lambda: verify(lambda b: scores(b, 2), mark, alpha), "alpha")


@pytest.mark.parametrize("tried", [0, -1])
def test_at_least_one_was_tried(mark, tried):
    refused(ParameterError, lambda: verify(lambda b: scores(b, 2), mark, suspects=tried))


SETTINGS = [
    (Sampler, {"delta": 1.0}),
    (Sampler, {"delta": -0.1}),
    (Sampler, {"delta": float("nan")}),
    (Sampler, {"size_quantile": 0.0}),
    (Sampler, {"size_quantile": 1.5}),
    (Sampler, {"swap_step": 0}),
    (Sampler, {"swap_step": 60}),
    (Sampler, {"wl": "colours"}),
    (Sampler, {"rounds": 0}),
    (Sampler, {"wave": 0}),
    (Sampler, {"patience": 0}),
    (Recipe, {"loss": "hinge"}),
    (Recipe, {"beta": -1.0}),
    (Recipe, {"beta": float("nan")}),
    (Recipe, {"warmup_steps": -1}),
    (Recipe, {"presentations": 0}),
    (Recipe, {"presentations": 1.5}),
    (Recipe, {"presentations": True}),
    (Recipe, {"warmup_steps": 0.5}),
    (Recipe, {"cap": 0.0}),
    (Recipe, {"cap": 1.0, "gradient_projection": False}),
    (Recipe, {"score_shift": -1.0}),
    (Recipe, {"carriers": 0}),
    (Recipe, {"carriers": 1.5}),
    (Recipe, {"carriers": True}),
    (Recipe, {"after_task": -1}),
    (Recipe, {"after_task": True}),
    (Recipe, {"gradient_projection": 1}),
    (Sampler, {"donors": 2.5}),
    (Sampler, {"donors": True}),
    (Recipe, {"weight_scale": 0.0}),
]


@pytest.mark.parametrize(("kind", "options"), SETTINGS, ids=str)
def test_senseless_settings(kind, options):
    refused(ParameterError, lambda: kind(**options))


# --- files


def test_what_is_there_stays(draw, motifs, tmp_path):
    path, kept = tmp_path / "precious", b"the only copy"
    path.write_bytes(kept)
    mark, model = draw(), new_model(motifs, "GIN", 0, hidden_channels=4)
    for act in (
        lambda: mark.save(path, "a passphrase"),
        lambda: mark.save(path, insecure_no_passphrase=True),
        lambda: save_model(path, model),
        lambda: SECRET.save(path, "a passphrase"),
    ):
        refused(ExistingFileError, act, "exists already")
        assert path.read_bytes() == kept
    assert [one.name for one in tmp_path.iterdir()] == ["precious"]
    save_model(path, model, overwrite=True)
    assert type(load_model(path)) is GIN


@pytest.mark.parametrize("reader", [Watermark.load, load_model, Secret.load])
def test_files_that_are_not_what_is_asked_for(motifs, tmp_path, reader):
    path = tmp_path / "a.model"
    refused(FileError, lambda: reader(path), "no file")
    refused(FileError, lambda: reader(tmp_path), "folder")
    path.write_bytes(b"")
    refused(FileError, lambda: reader(path), "empty")
    path.unlink()
    save_model(path, new_model(motifs, "GIN", 0, hidden_channels=4))
    if reader is not load_model:
        refused(FileError, lambda: reader(path), "is a model file")
    path.write_bytes(path.read_bytes()[:-7])
    refused(FileError, lambda: reader(path), "damaged|model file")


def test_nothing_is_left_behind_when_writing_fails(draw, tmp_path):
    refused(FileError, lambda: draw().save(tmp_path / "nowhere" / "a.mark", "a passphrase"))
    assert not list(tmp_path.iterdir())


# --- training


def test_a_mark_of_other_data_is_not_mixed_in(draw, web):
    model = new_model(web, "GCN", 0, hidden_channels=4)
    before = [p.detach().clone() for p in model.parameters()]
    refused(DataError, lambda: train(model, web, draw(), epochs=1), "features")
    assert all(p.equal(old) for p, old in zip(model.parameters(), before, strict=True))


def test_references_are_checked_once(rings):
    refused(DataError, lambda: Reference(rings.take([0])), "not enough to draw carriers")
    refused(DataError, lambda: Reference(Graphs(rings.ptr, rings.edges[:0], rings.x)), "no edges")
