"""Querying a suspect: the right numbers at every access level, in every form, and no change of state."""

from __future__ import annotations

import copy
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch_geometric.data import Batch
from torch_geometric.nn import GATConv, GCNConv, SGConv, global_mean_pool

from invgnn.audit.provenance import digest_model
from invgnn.audit.verify import verify
from invgnn.errors import SuspectError
from invgnn.graphs.disjoint_union import Graphs
from invgnn.nn.forward import to_batch
from invgnn.nn.layers import parts_of, weighted
from invgnn.nn.perception import attach_head
from invgnn.readout.answers import Answers, _alike, rounded, without_gaps
from invgnn.readout.query import _stacked, answers_on, ask, scores_on
from invgnn.readout.reading import Reading
from invgnn.readout.replies import Replies
from invgnn.readout.scores import _are_labels, _array, _filled, _one_hot, tidy
from invgnn.secret import Secret
from invgnn.training.tasks import new_model
from invgnn.watermark.mark import Watermark

ACCESSES = ("perception", "embedding", "logits", "labels")


@pytest.fixture(scope="module")
def tasks(motifs, web):
    return {"graph": motifs, "node": web}


@pytest.fixture(scope="module")
def marks(draw):
    return {level: draw(level, access=ACCESSES, classes=2) for level in ("graph", "node")}


def fresh(task, backbone="GIN"):
    model = new_model(task, backbone, 3, hidden_channels=8)
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(3)
        attach_head(model, 8)
        for value in model.buffers():  # statistics as after training, not the 0 and 1 of the start
            value.copy_(value + torch.rand(value.shape) if value.is_floating_point() else value + 7)
    return model.eval()


def by_hand(model, mark, access):
    """Answers on carriers computed from the model's parts, without hooks."""
    batch = to_batch(mark.carriers)
    x = batch.x
    for conv in model.convs if model.head else model.convs[:-1]:
        x = conv(x, batch.edge_index).relu()
    embedding = global_mean_pool(x, batch.batch)
    scores = model.head(embedding) if model.head else model.convs[-1](x, batch.edge_index)
    if access == "perception":
        return model.perception(embedding)
    if access == "embedding":
        return embedding @ mark.direction("embedding", 8).float() / 8**0.5
    if access == "logits":
        logs = scores.log_softmax(-1)
        logs = logs if model.head else global_mean_pool(logs, batch.batch)
        signs = mark.direction("logits", 2).float()
        return logs @ signs / 2**0.5
    votes = nn.functional.one_hot(scores.argmax(-1), 2).float()
    votes = votes if model.head else global_mean_pool(votes, batch.batch)
    return (mark.direction("labels", 2) > 0)[votes.argmax(-1)]


@pytest.mark.parametrize("access", ACCESSES)
@pytest.mark.parametrize("level", ["graph", "node"])
@pytest.mark.parametrize("backbone", ["GIN", "GCN", "GraphSAGE"])
@torch.no_grad()
def test_every_access_level_reads_the_documented_value(tasks, marks, backbone, level, access):
    model, mark = fresh(tasks[level], backbone), marks[level]
    answers = mark.read(model, access)
    np.testing.assert_allclose(answers.carriers, by_hand(model, mark, access), rtol=1e-4, atol=1e-5)
    assert answers.queries == mark.m + len(mark.ordinary)
    assert len(answers.ordinary) == len(mark.ordinary) > 1


@pytest.mark.parametrize(
    ("layer", "width"), [("head:in", 8), ("head", 2), ("convs.1", 8), ("convs.2:in", 8)]
)
@torch.no_grad()
def test_named_layers(draw, motifs, layer, width):
    model, mark = fresh(motifs), draw(layer=layer)
    batch, layers = to_batch(mark.carriers), {}
    x = batch.x
    for number, conv in enumerate(model.convs):
        layers[f"convs.{number}:in"] = global_mean_pool(x, batch.batch)
        out = conv(x, batch.edge_index)
        layers[f"convs.{number}"] = global_mean_pool(out, batch.batch)
        x = out.relu()
    layers["head:in"] = global_mean_pool(x, batch.batch)
    layers["head"] = model.head(layers["head:in"])
    width = layers[layer].shape[1]
    expected = layers[layer] @ mark.direction("embedding", width).float() / width**0.5
    np.testing.assert_allclose(mark.read(model).carriers, expected, rtol=1e-4, atol=1e-5)


class Layers(nn.Module):
    """A node model of given convolutions, which may keep their graph (`cached=True`)."""

    def __init__(self, *convs):
        super().__init__()
        self.convs = nn.ModuleList(convs)

    def forward(self, x, edge_index):
        for conv in self.convs:
            x = conv(x, edge_index)
        return x


def test_a_model_of_one_layer_has_no_hidden_layer(web, marks):
    for model in (new_model(web, "SGC", 0), Layers(GCNConv(5, 2))):
        with pytest.raises(SuspectError, match="has a single layer with weights") as caught:
            marks["node"].read(model, "embedding")
        assert "logits" in caught.value.advice
        assert np.ptp(marks["node"].read(model, "logits").carriers) > 0


@pytest.mark.parametrize("layer", ["nowhere", "nowhere:in"])
def test_a_missing_layer_is_named(draw, motifs, layer):
    with pytest.raises(SuspectError, match="the model has no layer named 'nowhere'") as caught:
        draw(layer=layer).read(new_model(motifs, "GIN", 0))
    assert "convs.0" in caught.value.advice


def test_an_unused_layer_is_reported(draw, motifs):
    model = new_model(motifs, "GIN", 0)
    model.add_module("spare", nn.Linear(3, 3))
    with pytest.raises(SuspectError, match="the layer 'spare' was never called"):
        draw(layer="spare").read(model)


# --- forms of suspects


@pytest.mark.parametrize(
    "form", [lambda t: t, lambda t: t.numpy(), lambda t: t.tolist(), lambda t: t.double(), None]
)
@torch.no_grad()
def test_functions_may_return_any_form_of_scores(motifs, marks, form):
    model, mark = fresh(motifs), marks["graph"]

    def read_only(tensor):  # as from an endpoint's bytes
        return np.frombuffer(tensor.numpy().tobytes(), np.float32).reshape(tensor.shape)

    def suspect(batch):
        return (form or read_only)(model(batch.x, batch.edge_index, batch.batch).softmax(-1))

    for access in ("logits", "labels"):
        inside, outside = mark.read(model, access).carriers, mark.read(suspect, access).carriers
        np.testing.assert_allclose(outside, inside, rtol=1e-3, atol=1e-4)
    assert verify(suspect, mark).access == "logits"  # the first a function can answer
    with pytest.raises(SuspectError, match="a function gives scores only"):
        mark.read(suspect, "embedding")


@pytest.mark.parametrize("inside", [True, False], ids=["module", "function"])
@torch.no_grad()
def test_bare_label_numbers(draw, motifs, inside):
    model = new_model(motifs, "GIN", 3, hidden_channels=8)
    model.head = nn.Linear(8, 5)
    mark = draw(access=("labels", "logits"), classes=5)

    class Labels(nn.Module):
        def forward(self, x, edge_index, batch):
            return model(x, edge_index, batch).argmax(-1)

    labels = Labels()
    suspect = labels if inside else lambda b: labels(b.x, b.edge_index, b.batch).tolist()
    model.eval()
    answers = mark.read(suspect, "labels").carriers
    assert answers.tolist() == mark.read(model, "labels").carriers.tolist()
    assert set(answers.tolist()) <= {0.0, 1.0}
    assert len(set(mark.read(suspect, "logits").carriers.tolist())) <= 2  # as if the top class had it all


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_precision_of_the_suspect_is_met(motifs, marks, dtype):
    model = fresh(motifs, "GCN")
    other = copy.deepcopy(model).to(dtype)
    for access in ("perception", "embedding", "logits"):
        full, rough = marks["graph"].read(model, access), marks["graph"].read(other, access)
        np.testing.assert_allclose(rough.carriers, full.carriers, atol=0.05)
        assert np.corrcoef(rough.carriers, full.carriers)[0, 1] > 0.9


# --- manners


class Raising(nn.Module):
    """Runs a model, hooks, statistics, dropout and all, and then fails."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x, edge_index, batch):
        self.inner(x, edge_index, batch)
        torch.rand(3)
        raise KeyError("no such luck")


def lived_in(task):
    """A model amid somebody's training: mixed modes, a frozen weight, gradients, hooks, a counter."""
    model = fresh(task).train()
    model.convs[1].eval()
    weights = list(model.parameters())
    weights[1].requires_grad_(False)
    weights[0].grad = torch.full_like(weights[0], 3.0)
    model.register_buffer("calls", torch.zeros(()))  # moves in evaluation mode too
    model.convs[0].register_forward_hook(lambda *_: model.calls.add_(1) and None)
    return model


def step_backward(mark, model):
    for weight, gradient in zip(model.parameters(), gradients(mark, model), strict=True):
        assert gradient is None or gradient.shape == weight.shape


def gradients(mark, model):
    wanted = [p for p in model.parameters() if p.requires_grad]
    found = iter(torch.autograd.grad(mark.loss(model), wanted, allow_unused=True))
    return [next(found) if p.requires_grad else None for p in model.parameters()]


ACTS = {
    "read": lambda mark, model: [mark.read(model, access) for access in ACCESSES],
    "verify": lambda mark, model: verify(model, mark, controls=[model], with_answers=True),
    "loss": lambda mark, model: mark.loss(model),
    "gradient": step_backward,
    "digest": lambda mark, model: digest_model(model),
}


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("level", ["graph", "node"])
def test_nothing_of_a_model_changes(tasks, marks, unchanged, level, act):
    model = lived_in(tasks[level])
    with unchanged(model):
        ACTS[act](marks[level], model)


@pytest.mark.parametrize("act", ["read", "verify", "loss", "mix"])
def test_nothing_changes_when_forward_fails(draw, motifs, unchanged, act):
    mark = draw(access=("embedding", "logits"), layer="inner.head:in")
    # A joint pass is the user's own forward: in training it moves statistics, as it should.
    model = Raising(fresh(motifs).eval() if act == "mix" else lived_in(motifs))
    acts = {**ACTS, "read": lambda mark, model: mark.read(model), "mix": mixed}
    with unchanged(model), pytest.raises((KeyError, SuspectError), match="no such luck"):
        acts[act](mark, model)


def mixed(mark, model):
    state = torch.get_rng_state()
    try:
        mark.mix(to_batch(mark.ordinary))(model)
    finally:
        torch.set_rng_state(state)  # a joint pass draws, being the user's own


@pytest.mark.parametrize("conv", [GCNConv, SGConv])
@torch.no_grad()
def test_cached_graphs_of_convolutions_are_kept(web, marks, unchanged, conv):
    mark, graph = marks["node"], web.graphs[0]
    model = Layers(conv(5, 4, cached=True), GCNConv(4, 2, cached=True)).eval()
    twin = Layers(conv(5, 4), GCNConv(4, 2)).eval()
    twin.load_state_dict(model.state_dict())
    for _ in range(2):  # before and after it first sees the task
        for access in ("embedding", "logits"):
            with unchanged(model):
                answers = mark.read(model, access).carriers
            np.testing.assert_allclose(answers, mark.read(twin, access).carriers, rtol=1e-5, atol=1e-6)
        with unchanged(model):
            assert float(mark.replace(forward=None).evidence(mark.read(model, "logits")).log_p) <= 0
        torch.testing.assert_close(model(graph.x, graph.edge_index), twin(graph.x, graph.edge_index))


# --- how models are called


class OneArgument(nn.Module):
    """Takes the batch object and writes into it."""

    def __init__(self):
        super().__init__()
        self.conv, self.head = GATConv(4, 3, heads=2), nn.Linear(6, 2)

    def forward(self, data):
        data.x = self.conv(data.x, data.edge_index).relu()
        return self.head(global_mean_pool(data.x, data.batch))


class Named(OneArgument):
    def forward(self, feat, edge_index, weight=None, batch=None):
        assert weight is None
        return self.head(global_mean_pool(self.conv(feat, edge_index).relu(), batch))


class EdgeFeatures(Named):
    def forward(self, x, edge_index, edge_attr, batch):
        assert len(edge_attr) == edge_index.shape[1]
        return super().forward(x, edge_index, None, batch)


def with_edges(model, batch):
    return model(batch.x, batch.edge_index, torch.ones(batch.edge_index.shape[1], 1), batch.batch)


@pytest.mark.parametrize(
    ("model", "forward"), [(OneArgument, None), (Named, None), (EdgeFeatures, with_edges)]
)
def test_models_of_other_signatures(draw, motifs, model, forward):
    torch.manual_seed(0)
    suspect, usual = model(), Named()
    usual.load_state_dict(suspect.state_dict())
    mark = draw(access=("embedding", "logits"), forward=forward)
    plain = mark.replace(forward=None)
    for access in ("embedding", "logits"):
        expected = plain.read(usual, access).carriers
        np.testing.assert_allclose(mark.read(suspect, access).carriers, expected, atol=1e-5)
        assert verify(suspect, plain, access=access, forward=forward).access == access
    for _ in range(2):  # the second pass would see what the first wrote
        torch.testing.assert_close(mark.loss(suspect), plain.loss(usual))
    if forward:
        for ask in (plain.read, plain.loss):
            with pytest.raises(
                SuspectError, match=r"forward\(\) requires edge_attr, which carriers lack"
            ) as caught:
                ask(suspect)
            assert "forward=" in caught.value.advice


def test_an_unknown_signature_asks_for_help(draw):
    class Odd(nn.Module):
        def forward(self, adjacency, features):
            return features

    with pytest.raises(SuspectError, match=r"how to call forward\(adjacency, features\)") as caught:
        draw(access="logits").read(Odd())
    assert "forward=" in caught.value.advice


# --- models that cannot be called as they are


class Several(OneArgument):
    """Returns scores amid other things."""

    def __init__(self, form):
        super().__init__()
        self.form = form

    def forward(self, x, edge_index, batch):
        pooled = global_mean_pool(self.conv(x, edge_index).relu(), batch)
        return self.form(self.head(pooled), pooled)


PASSES = {
    "read": lambda mark, model: mark.read(model),
    "loss": lambda mark, model: mark.loss(model),
    "mix": lambda mark, model: mark.mix(to_batch(mark.ordinary))(model),
}


@pytest.mark.parametrize("act", PASSES)
@pytest.mark.parametrize("own", [True, False], ids=["forward=", "call"])
@pytest.mark.parametrize(
    ("form", "kind", "pick"),
    [
        (lambda scores, pooled: (scores, pooled), "tuple", "model(...)[0]"),
        (lambda scores, pooled: {"logits": scores}, "dict", 'model(...)["logits"]'),
        (lambda scores, pooled: None, "NoneType", "forward="),
    ],
)
def test_several_outputs_are_rejected(draw, act, own, form, kind, pick):
    through = (lambda model, b: model(b.x, b.edge_index, b.batch)) if own else None
    with pytest.raises(SuspectError, match=rf"forward\(\) returned a {kind}") as caught:
        PASSES[act](draw(forward=through), Several(form))
    assert pick in caught.value.advice
    if kind == "tuple":
        picked = draw(forward=lambda model, b: model(b.x, b.edge_index, b.batch)[0])
        PASSES[act](picked, Several(form))


@pytest.mark.parametrize("act", ["loss", "mix"])
def test_an_error_of_the_model_keeps_its_traceback(draw, motifs, act):
    mark = draw(layer="inner.head:in")
    with pytest.raises(KeyError, match="no such luck") as caught:
        PASSES[act](mark, Raising(fresh(motifs)))
    assert any("forward=" in note for note in caught.value.__notes__)
    assert caught.traceback[-1].name == "forward"


@pytest.mark.parametrize("act", PASSES)
@pytest.mark.parametrize("conv", [lambda: GCNConv(-1, 6), lambda: nn.LazyBatchNorm1d()])
def test_lazy_layers_need_a_batch_first(draw, act, conv):
    class Lazy(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm, self.head = GCNConv(4, 6), conv(), nn.Linear(6, 2)

        def forward(self, x, edge_index, batch):
            x = self.conv(x, edge_index)
            x = self.norm(x, edge_index) if isinstance(self.norm, GCNConv) else self.norm(x)
            return self.head(global_mean_pool(x, batch))

    mark, model = draw(), Lazy()
    with pytest.raises(SuspectError, match="lazy layers whose width is not set yet") as caught:
        PASSES[act](mark, model)
    assert caught.value.advice == "run one batch through the model first"
    batch = to_batch(mark.ordinary)
    model(batch.x, batch.edge_index, batch.batch)
    PASSES[act](mark, model)


class Table(nn.Module):
    """Looks whole features up, then convolves: `convs` of them."""

    def __init__(self, convs=2):
        super().__init__()
        self.table = nn.Embedding(4, 6)
        self.convs = nn.ModuleList(GCNConv(6, 6) for _ in range(convs))
        self.out = GCNConv(6, 2)

    def forward(self, x, edge_index, batch):
        x = self.table(x.view(-1))
        for conv in self.convs:
            x = conv(x, edge_index).relu()
        return global_mean_pool(self.out(x, edge_index), batch)


@pytest.mark.parametrize("convs", [0, 2])
def test_whole_features_are_looked_up(motifs, convs):
    items = [copy.copy(g) for g in motifs.graphs[:40]]
    for g in items:
        g.x = g.x.argmax(1, keepdim=True)
    mark = Watermark.draw(Secret(bytes(32)), items, m=8, access=("embedding", "logits"))
    for dtype in (torch.float32, torch.float64):
        model = Table(convs).to(dtype)
        assert to_batch(mark.carriers, model.table.weight).x.dtype == torch.int64
        for access in ("embedding", "logits"):
            assert np.ptp(mark.read(model, access).carriers) > 0
        batch = Batch.from_data_list(items[:20])
        joint = mark.mix(batch)
        assert joint(model).equal(model(joint.batch.x, joint.batch.edge_index, joint.batch.batch)[:20])
        (joint.loss() + mark.loss(model)).backward()
        assert model.table.weight.grad.abs().sum() > 0


def test_an_embedding_table_alone_has_no_hidden_layer(draw):
    class Alone(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(5, 2)

        def forward(self, x, edge_index, batch):
            return global_mean_pool(self.table(x.argmax(1)), batch) + global_mean_pool(
                self.table(x.argmin(1)), batch
            )

    for layer in ("auto", "table:in"):
        with pytest.raises(SuspectError, match="the observed layer has no floating-point tensor") as caught:
            draw(layer=layer).read(Alone())
        assert caught.value.advice


# --- gaps


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("access", ["logits", "labels"])
@pytest.mark.parametrize("level", ["graph", "node"])
@torch.no_grad()
def test_a_few_gaps_do_not_stop_a_reading(tasks, marks, level, access, bad):
    """A thief who answers NaN here and there spoils those answers, and no others."""
    model, mark = fresh(tasks[level]), marks[level]
    lost = []

    def dodging(batch):
        scores = model(batch.x, batch.edge_index, batch.batch).softmax(-1)
        rows = torch.arange(0, batch.num_graphs, 3)
        scores[rows if level == "graph" else batch.ptr[rows]] = bad
        lost.append((rows, batch.num_graphs))
        return scores

    clean, answers = mark.read(model, access), mark.read(dodging, access)
    order = mark.secret.derive("order", mark.bound).permutation(lost[0][1])
    gaps = np.zeros(lost[0][1], dtype=bool)
    gaps[order[lost[0][0].numpy()]] = True
    before, after = (np.concatenate([one.carriers, one.ordinary]) for one in (clean, answers))
    np.testing.assert_allclose(after[~gaps], before[~gaps], rtol=1e-3, atol=1e-4)
    assert np.isfinite(after).all()
    assert set(after[gaps]) == {np.sort(after[~gaps])[((~gaps).sum() - 1) // 2]}


def test_gaps_are_replaced_by_the_median():
    answers = np.array([np.nan, np.inf, 1.0, 2.0, 5.0])
    assert without_gaps(answers).tolist() == [2.0, 2.0, 1.0, 2.0, 5.0]
    assert answers[:1].tolist() != [2.0]  # the caller's own stay
    assert without_gaps(np.array([np.nan, 1.0])).tolist() == [1.0, 1.0]
    assert without_gaps(np.array([np.nan, -np.inf])).tolist() == [0.0, 0.0]
    with pytest.raises(SuspectError, match="no finite answer on any of 2 ordinary") as caught:
        Answers.of(Reading("logits"), np.array([1.0, 2.0, np.nan, np.inf]), 2)
    assert caught.value.advice
    held = Answers.of(Reading("logits"), np.array([np.nan, np.nan, np.nan, 3.0]), 2)
    assert (held.refused_carriers, held.refused_ordinary) == (2, 1)


def test_many_graphs_are_queried_in_chunks(motifs, marks):
    mark, model = marks["graph"], fresh(motifs)
    graphs = Graphs.concat([mark.carriers] * 5)
    whole, parts = (
        answers_on(model, graphs, mark.reading("embedding"), mark.direction, chunk=size)
        for size in (1024, 7)
    )
    np.testing.assert_allclose(parts, whole, rtol=1e-4, atol=1e-5)


def test_parts_are_torchs_modules(motifs):
    shared, loop = nn.Linear(2, 2), nn.Sequential(nn.ReLU(), nn.Identity())
    loop.register_module("back", nn.Sequential(shared, None, nn.Sequential(shared, nn.Tanh())))
    loop.back.again = loop
    for model in (fresh(motifs), loop, nn.Sequential(nn.Sequential(nn.Tanh(), shared), shared)):
        assert parts_of(model) == list(model.modules())


def test_digest_sees_every_parameter_and_buffer(motifs):
    model = fresh(motifs)
    known = {digest_model(model), digest_model(copy.deepcopy(model))}
    assert len(known) == 1
    assert digest_model(nn.DataParallel(model)) in known
    for value in (next(model.parameters()), next(model.buffers())):
        with torch.no_grad():
            value.view(-1)[0] += 1
        known.add(digest_model(model))
    assert len(known) == 3


def test_layers_with_weights_are_the_outermost_each_once():
    """A map inside a convolution is the convolution's, unless the model had it before."""
    conv, shared, own = GATConv(4, 4), nn.Linear(4, 4), nn.Linear(4, 2)
    norm = nn.BatchNorm1d(4)  # weights, but no matrix
    plain = nn.Sequential(nn.Sequential(own, norm), conv)
    assert weighted(plain) == [own, conv]
    conv.extra = shared
    assert weighted(nn.Sequential(conv, norm, shared)) == [conv]
    assert weighted(nn.Sequential(shared, conv, shared)) == [shared, conv]
    assert weighted(nn.ModuleList([norm, nn.ModuleDict({"none": nn.Identity()})])) == []
    assert weighted(own) == [own]


# --- scores of any size


def tidied(rows):
    return tidy(np.array(rows, dtype=np.float64)).tolist()


def test_ordinary_scores_stay_as_they_are():
    for rows in (
        [[0.0, 1e6], [3.0, -1e6]],
        [[1.0, 1.00021], [2.0, 2.0]],
        [[1.0, 1.0], [2.0, 2.0]],
        [[1e6, 1e6 - 50], [0.0, 0.0]],  # as large, and as close together, as scores may be
        [[1e-4, -1e-4], [0.0, 0.0]],
    ):
        assert tidied(rows) == rows
    column = [[1e-5], [2e-5]]
    assert tidied(column) == column  # one score has no differences to lose


def test_infinite_scores_stand_fourteen_nats_beyond_the_others():
    inf, nan = np.inf, np.nan
    assert tidied([[1.0, -inf], [-2.0, inf]]) == [[1.0, -16.0], [-2.0, 15.0]]
    assert tidied([[1.0, -inf], [2.0, 3.0]]) == [[1.0, 0.0], [2.0, 3.0]]  # as a probability may be
    assert tidied([[0.0, -inf], [2.0, 3.0]]) == [[0.0, 0.0], [2.0, 3.0]]
    assert tidied([[0.5, -inf], [2.0, 3.0]]) == [[0.5, 0.0], [2.0, 3.0]]
    assert tidied([[0.0, -inf], [-1.0, nan]])[0] == [0.0, -15.0]
    assert tidied([[1.0, nan], [-2.0, nan]]) == [[1.0, -16.0], [-2.0, -16.0]]  # a class nobody has


def test_rows_without_scores_and_with_gaps_are_refused():
    inf, nan = np.inf, np.nan
    for bad in ([nan, 1.0], [nan, nan], [inf, -inf], [-inf, -inf]):
        found = tidy(np.array([[1.0, 2.0], bad]))
        assert found[0].tolist() == [1.0, 2.0]
        assert np.isnan(found[1]).all()
    for rows in ([[nan, nan]], [[nan, 1.0], [2.0, nan]], [[inf, inf]]):
        assert np.isnan(tidied(rows)).all()


@pytest.mark.parametrize(
    "rows", [[[2e6, 0, 1], [0, 3e6, 0]], [[5, 5 + 9e-5], [5, 5]], [[1e300, 0], [1e299, 2e299]]]
)
def test_differences_that_doubles_would_lose_are_scaled_by_one_factor(rows):
    """The rows about their means, the largest at ten nats."""
    exact = [[Fraction(each) - sum(map(Fraction, row)) / len(row) for each in row] for row in rows]
    factor = 10 / max(abs(each) for row in exact for each in row)
    expected = [[float(factor * each) for each in row] for row in exact]
    np.testing.assert_allclose(tidied(rows), expected, rtol=1e-9, atol=1e-9)


def test_one_column_of_huge_scores_does_not_overflow():
    assert tidied([[1e7], [3e7]]) == [[0.0], [0.0]]


@pytest.mark.parametrize(
    ("usual", "absurd", "most"),
    [(1e6, 3e6, 1e6), (2e6, 9e7, 2e7), (5e306, 1e308, 1e307)],
    ids=["no more than a million", "ten times a usual row", "what doubles can hold"],
)
def test_absurd_rows_are_clipped(usual, absurd, most):
    """The two usual rows keep their share of the clipped one, which spans ten nats each way if scaled."""
    found = tidied([[usual, 0.0], [usual, 0.0], [absurd, 0.0]])
    if most == 1e6:
        assert found == [[1e6, 0.0]] * 3
        return
    near = 10 * usual / most
    np.testing.assert_allclose(found, [[near, -near], [near, -near], [10, -10]], rtol=1e-9)


# --- calls


def asked(suspect, graphs, **options):
    sizes = []

    def counted(batch):
        sizes.append(batch.num_graphs)
        return suspect(batch)

    try:
        return sizes, ask(counted, graphs, [Reading("logits")], **options)
    except SuspectError as error:
        return sizes, error


def ones(batch):
    return torch.ones(batch.num_graphs, 2)


def test_1024_questions_go_into_one_call(rings):
    assert asked(ones, rings.take(np.arange(1025) % len(rings)))[0] == [1024, 1]
    assert asked(ones, rings.take(np.arange(7)), chunk=3)[0] == [3, 3, 1]


def test_a_suspect_is_broken_after_64_failures_or_once_nothing_is_left(rings):
    def broken(batch):
        raise ValueError("out of order")

    sizes, error = asked(broken, rings)
    assert len(sizes) == 64
    assert "out of order" in error.message
    sizes, error = asked(broken, rings.take([0, 1, 2]))
    assert sizes == [3, 2, 1, 1, 1]  # halves, the first of them first
    assert "out of order" in error.message


def test_what_is_refused_alone_is_refused_and_nothing_else(rings):
    """The third of five is never answered."""

    def picky(batch):
        if (batch.ptr.diff() == int(rings.sizes[2])).any():
            raise ValueError
        return torch.full((batch.num_graphs, 2), float(batch.num_graphs))

    others = np.flatnonzero(rings.sizes != rings.sizes[2])[:4]
    sizes, replies = asked(picky, rings.take([*others[:2], 2, *others[2:]]))
    assert sizes == [5, 3, 2, 1, 2]
    assert replies.scores[:, 0].nan_to_num(-1).tolist() == [2, 2, -1, 2, 2]


# --- one answer for all


@pytest.mark.parametrize(
    ("answers", "alike"),
    [
        ([1, 2, 3, 4], []),
        ([1] * 7 + [2, 3, 4], []),  # graphs of a task may occur several times
        ([1] * 8 + [2, 3, 4], [*range(8)]),
        ([5, 1, *[5] * 7, np.nan, np.inf], [0, *range(2, 9)]),
        ([1] * 9 + [2, 2, 3], []),  # others repeat too
        ([0] * 8 + [*range(1, 11), 9], [*range(8)]),  # one of ten repeats
        ([0] * 8 + [*range(1, 11), 9, 8], []),
        ([0] * 8 + [*range(1, 21), 9, 8], [*range(8)]),  # a tenth of twenty, exactly
        ([1] * 8, [*range(8)]),
        ([np.nan, np.nan], []),
    ],
)
def test_the_commonest_answer_counts_as_a_refusal_where_others_hardly_repeat(answers, alike):
    assert np.flatnonzero(_alike(np.array(answers, dtype=float))).tolist() == alike
    if np.isfinite(answers[2:]).any():
        held = Answers.of(Reading("logits"), np.array(answers, dtype=float), 2)
        assert held.alike_carriers == sum(number < 2 for number in alike)
        assert held.alike_ordinary == sum(number >= 2 for number in alike)


@given(st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=20), st.integers(0, 2**32))
def test_rounding_of_answers_merges_what_a_processor_may_tell_apart(values, seed):
    """Equal answers summed in another order differ in their last digits; their ranks must not."""
    exact = np.array(values)
    moved = exact * (1 + np.random.default_rng(seed).choice([-1, 0, 1], len(exact)) * 2.0**-52)
    found, again = rounded(exact), rounded(moved)
    sizes = np.sort(np.abs(exact[exact != 0]))
    unit = 2.0**-39 * sizes[(len(sizes) - 1) // 2] + 2.0**-1021 if len(sizes) else 0.0
    assert (np.abs(found - exact) <= unit + np.abs(exact) * 2.0**-50).all()
    assert (np.abs(found - again) <= 2 * unit + np.abs(exact) * 2.0**-50).all()
    order = np.argsort(exact, kind="stable")
    assert (np.diff(found[order]) >= 0).all()  # never the other way round


def test_one_huge_answer_does_not_blur_the_others():
    """A server could otherwise hide a mark behind a single ordinary input."""
    answers = np.random.default_rng(0).normal(size=192)
    blurred = answers.copy()
    blurred[150] = 1e300
    assert np.abs(rounded(blurred)[:128] - answers[:128]).max() < 1e-11
    tiny = np.array([1e-300, 1e-300, 1e-300, 1e308, np.inf])
    assert rounded(tiny)[3:].tolist() == [1e308, np.inf]


def test_answers_that_differ_by_rounding_alone_are_ties():
    sums = np.array([0.1 + 0.2 + 0.3, 0.3 + 0.2 + 0.1, 0.6, 1.0, np.nan])
    assert len(np.unique(sums[:3])) == 2
    assert len(np.unique(rounded(sums)[:3])) == 1
    assert np.isnan(rounded(sums)[4])
    assert rounded(np.zeros(3)).tolist() == [0, 0, 0]
    assert rounded(np.array([np.nan, np.inf])).tolist()[1] == np.inf


@pytest.mark.parametrize(("typical", "unit"), [(1.0, 2.0**-39), (3.0, 2.0**-38), (2.0**-1000, 2.0**-1022)])
def test_answers_keep_forty_binary_digits_and_no_subnormal_ones(typical, unit):
    """The ranks of answers, and so every p-value, depend on it. Halves go to even numbers of units."""
    answers = np.array([typical, typical, typical, typical + unit, typical + unit / 2])
    assert rounded(answers).tolist() == [*[typical] * 3, typical + unit, typical]


def test_answers_of_zero_are_not_typical():
    """A labelling suspect may answer 0 mostly; what is small is then still told apart."""
    answers = np.array([0.0] * 5 + [2.0**-60, 3 * 2.0**-60])
    assert rounded(answers).tolist() == answers.tolist()


def test_a_suspect_may_take_the_questions_one_by_one(draw, motifs):
    """As a client of an API does that takes one graph per request."""
    mark, model = draw(), new_model(motifs, "GIN", 0).eval()

    def one_by_one(batch):
        assert batch.num_graphs == len(batch.to_data_list())
        rows = [model(one.x, one.edge_index, None) for one in batch.to_data_list()]
        return torch.cat(rows).detach()

    together, apart = (mark.read(suspect, "logits").carriers for suspect in (model, one_by_one))
    np.testing.assert_allclose(apart, together, atol=1e-4)
    first = to_batch(mark.carriers).get_example(0)
    assert first.edge_index.tolist() == mark.carriers.take([0]).directed().tolist()
    assert first.num_nodes == mark.carriers.sizes[0]


@pytest.mark.parametrize("classes", [2, 3, 6])
def test_a_function_for_single_graphs_is_asked_about_single_graphs(draw, classes):
    """It returns one row of scores, whatever it gets: that is no answer to a batch of so many graphs."""
    mark = draw(classes=classes)
    table = torch.randn(mark.carriers.x.shape[1], classes, generator=torch.Generator().manual_seed(0))

    def batched(batch):
        return torch.stack([one.x.mean(0) @ table for one in batch.to_data_list()])

    wanted, found = (
        mark.ask(f).scores for f in (batched, lambda batch: (batch.x.mean(0) @ table).tolist())
    )
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("absurd", [1e7, 1e20, 1e300, -1e300, np.inf])
@pytest.mark.parametrize("size", [1.0, 1e9])
def test_one_absurd_reply_does_not_hide_the_others(absurd, size):
    """A server could otherwise hide a mark behind a single ordinary input."""
    scores = size * np.random.default_rng(0).normal(size=(192, 3))
    spoilt = scores.copy()
    spoilt[150, 1] = absurd
    honest, found = (torch.from_numpy(tidy(one)).log_softmax(-1)[:128].numpy() for one in (scores, spoilt))
    for ours, theirs in zip(honest.T, found.T, strict=True):
        assert np.corrcoef(np.argsort(np.argsort(ours)), np.argsort(np.argsort(theirs)))[0, 1] > 0.9


# --- what a reply may look like


@pytest.mark.parametrize(
    ("value", "rows", "expected"),
    [
        ([0.5, 0.25], {2}, [[0.5], [0.25]]),
        ([[0.5, 0.25]], {1}, [[0.5, 0.25]]),
        ([0.5, 0.25], {1, 9}, [[0.5, 0.25]]),  # a single graph without its batch dimension
        ([[[0.5, 0.25]]], {1}, [[0.5, 0.25]]),
        ([[[1.0]], [[2.0]]], {2}, [[1.0], [2.0]]),
        ([[3, 1], [0, 4]], {2}, [[3.0, 1.0], [0.0, 4.0]]),
        ([3, 1], {2}, [[3], [1]]),
        (["a", "b"], {2}, [["a"], ["b"]]),
    ],
)
def test_replies_of_many_shapes_are_rows(value, rows, expected):
    found = _array(value, rows, 1 in rows)
    assert found.tolist() == expected
    assert found.dtype.kind == np.array(expected).dtype.kind


@pytest.mark.parametrize(
    ("value", "rows"),
    [
        ([0.5, 0.25], {3}),
        ([3, 1], {1}),  # labels of two graphs are no scores of one
        ([[[0.5], [0.25]]], {1}),
        (0.5, {1}),
        (np.zeros((2, 0)), {2}),
        (np.zeros((2, 8193)), {2}),
        ([None, None], {2}),
        ([1j, 2j], {2}),
        ([[1.0], [1.0, 2.0]], {2}),
    ],
)
def test_replies_that_are_no_rows_are_refused(value, rows):
    with pytest.raises(SuspectError):
        _array(value, rows, 1 in rows)
    assert _array(np.zeros((2, 8192)), {2}, False).shape == (2, 8192)


@pytest.mark.parametrize(
    ("reply", "kind", "pick"),
    [(([[1.0]], [[2.0]]), "tuple", "result[0]"), ({"scores": [[1.0]]}, "dict", 'result["scores"]')],
)
def test_a_function_that_returns_several_things_is_told_which_to_return(reply, kind, pick):
    with pytest.raises(SuspectError, match=f"returned a {kind}") as caught:
        _array(reply, {1}, True)
    assert caught.value.advice == f"return the scores only: {pick}"


def filled(rows, *parts):
    found = _filled(rows, [(np.array(chosen), np.array(scores)) for chosen, scores in parts])
    return found.nan_to_num(-1).tolist()


def test_parts_come_together_in_the_order_of_the_questions():
    assert filled(3, ([2, 0], [[3.0, 4.0], [1.0, 2.0]])) == [[1, 2], [-1, -1], [3, 4]]
    assert filled(2, ([0], [[1.0, 2.0, -3.0]]), ([1], [[4.0, 5.0]])) == [[1, 2, -3], [4, 5, -17]]
    assert filled(3, ([0, 1], [[1.0], [2.5]]), ([2], [[7]])) == [[1], [2.5], [-1]]  # most are floats
    assert filled(2, ([0], [[0.5]]), ([1], [[1]])) == [[0.5], [-1]]  # half of them will do
    assert filled(3, ([0], [[0.5]]), ([1, 2], [[1], [0]])) == [[-1, -1], [0, 1], [1, 0]]


@pytest.mark.parametrize(
    ("column", "labels"),
    [
        ([0.0, 1.0, 2.0], True),
        ([0.0, 1.0, np.nan, 2.0], True),
        ([0.0, 1.0], False),  # probabilities of one of two classes, as likely
        ([0.0, 1.0, 2.5], False),
        ([*map(float, range(1024))], True),
        ([*map(float, range(1025))], False),
    ],
)
def test_whole_numbers_are_labels_if_there_are_at_least_three(column, labels):
    assert _are_labels(np.array(column)[:, None]) is labels


def test_floats_that_are_labels_are_read_as_labels():
    assert filled(4, ([0, 1, 2, 3], [[2.0], [0.0], [np.nan], [1.0]])) == [
        [0, 0, 1],
        [1, 0, 0],
        [-1, -1, -1],
        [0, 1, 0],
    ]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([2, 0, None], [[0, 0, 1], [1, 0, 0], [-1, -1, -1]]),
        ([0, 0], [[1, 0], [1, 0]]),
        (["b", "a", "b"], [[0, 1], [1, 0], [0, 1]]),
        (["a", "a"], [[1, 0], [1, 0]]),
        ([-1, 1, 5], [[1, 0, 0], [0, 1, 0], [0, 0, 1]]),
        ([1024, 3], [[0, 1], [1, 0]]),
        ([True, False], [[0, 1], [1, 0]]),
    ],
)
def test_numbers_of_labels_keep_their_places_and_names_are_sorted(names, expected):
    column = np.empty(len(names), dtype=object)
    column[:] = names
    assert np.nan_to_num(_one_hot(column), nan=-1).tolist() == expected


def test_the_largest_number_of_a_label():
    assert _one_hot(np.array([1023, 0], dtype=object)).shape == (2, 1024)


# --- classes of the questions


def test_labels_fit_graphs_nodes_or_nothing(rings):
    graphs = rings.take([0, 1])
    nodes = int(graphs.num_nodes)
    by_graph, by_node = (Replies(graphs, torch.zeros(n, 3), None, None) for n in (2, nodes))
    each = np.array([1, 0])
    assert by_graph.labelled(each, 3).labels.tolist() == [1, 0]
    assert by_node.labelled(each, 3).labels.tolist() == np.repeat(each, graphs.sizes).tolist()
    assert by_node.labelled(np.arange(nodes), 3).labels.tolist() == [*range(nodes)]
    assert by_graph.labelled(np.arange(nodes), 3).labels is None
    assert by_graph.labelled(None, 3).classes == 3
    without = by_graph.labelled(each, None)
    assert without.labels is None
    assert without.classes is None


def test_columns_are_read_in_their_order_and_as_labels_assign(rings):
    """Three columns that say: the second class is in front."""
    scores = torch.tensor([[0.0, 4.0, 0.0], [4.0, 0.0, 0.0], [0.0, 0.0, 4.0]])
    replies = Replies(rings.take([0, 1, 2]), scores.double(), None, None)
    labels = np.array([0, 1, 2])
    assert replies.alignments == ((0, 1, 2),)
    assert replies.labelled(None, 4).alignments == ((0, 1, 2, -1),)
    assert replies.labelled(labels, 3).alignments == ((0, 1, 2), (1, 0, 2))
    assert replies.labelled(np.array([1, 0, 2]), 3).alignments == ((0, 1, 2),)


def test_as_many_columns_as_there_are_whatever_the_number_of_questions(rings):
    assert Replies(rings.take([0, 1]), torch.zeros(2, 3), None, None).alignments == ((0, 1, 2),)
    assert Replies(rings.take([0, 1]), torch.zeros(2, 3), None, None, classes=4).alignments == (
        (0, 1, 2, -1),
    )


def test_every_reading_has_its_own_answers_from_columns_in_their_order(rings):
    """The labels tell another order, which has to be asked for; the head's answers are the head's."""
    scores = torch.tensor([[0.0, 4.0, 0.0], [4.0, 0.0, 0.0], [0.0, 0.0, 4.0]]).double()
    head = torch.tensor([0.25, 0.5, 0.75]).double()
    replies = Replies(rings.take([0, 1, 2]), scores, None, head).labelled(np.array([0, 1, 2]), 3)
    assert len(replies.alignments) == 2

    def signs(access, width, like=None, /):
        return torch.tensor([1.0, -1.0, 0.0], dtype=torch.float64)

    logits = replies.answers(Reading("logits"), signs)
    np.testing.assert_allclose(logits, np.array([-4.0, 4.0, 0.0]) / 3**0.5, atol=1e-12)
    assert replies.answers(Reading("logits"), signs, (1, 0, 2)).tolist() == pytest.approx(
        (-logits).tolist()
    )
    assert replies.answers(Reading("labels", classes=3), signs).tolist() == [0.0, 1.0, 0.0]
    assert replies.answers(Reading("perception"), signs).tolist() == [0.25, 0.5, 0.75]


def test_answers_are_standardised_by_the_ordinary_ones():
    carriers, ordinary = np.array([3.0, 8.0]), np.array([1.0, 5.0])
    found = Answers(Reading("logits"), carriers, ordinary).standard
    assert found.tolist() == pytest.approx([0.0, 2.5])
    assert Answers(Reading("labels", classes=2), carriers, ordinary).standard is carriers
    fresh = Answers(Reading("logits"), carriers, ordinary)
    counts = (fresh.refused_carriers, fresh.refused_ordinary, fresh.alike_carriers, fresh.alike_ordinary)
    assert counts == (0, 0, 0, 0)
    assert Answers(Reading("logits"), carriers, ordinary[:1]).queries == 3


# --- task inputs


def test_scores_on_task_inputs_are_those_of_the_model(motifs, web):
    model, items = fresh(motifs), motifs.graphs[:7]
    whole = Batch.from_data_list(items)
    with torch.no_grad():
        expected = model(whole.x, whole.edge_index, whole.batch).double()
    for chunk in (1024, 3):
        found = scores_on(model, items, chunk=chunk)
        assert found.dtype == torch.float64
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)

    def shy(batch):
        if batch.num_graphs > 1 or batch.num_nodes == items[2].num_nodes:
            raise ValueError
        return torch.ones(1, 2)

    sizes = np.array([int(g.num_nodes) for g in items])
    assert torch.isfinite(scores_on(shy, items)).all(1).tolist() == (sizes != sizes[2]).tolist()
    node = fresh(web)
    graph = web.graphs[0]
    with torch.no_grad():
        by_node = node(graph.x, graph.edge_index, torch.zeros(150, dtype=torch.long)).double()
    torch.testing.assert_close(scores_on(node, [graph]), by_node, rtol=1e-4, atol=1e-5)
    assert scores_on(lambda batch: torch.zeros(150, 3), [graph]).shape == (150, 3)


def test_one_ordinary_answer_is_enough_and_carriers_do_not_count():
    held = Answers.of(Reading("logits"), np.array([1.0, 2.0, 3.0, np.nan, np.inf]), 2)
    assert (held.refused_carriers, held.refused_ordinary) == (0, 2)
    with pytest.raises(SuspectError, match="any of 3 ordinary inputs"):
        Answers.of(Reading("logits"), np.array([1.0, 2.0, np.nan, np.nan, np.inf]), 2)


def test_what_some_calls_lack_is_not_read_at_all(rings):
    """Two calls for three graphs; a third was refused."""
    graphs, first, second = rings.take([0, 1, 2]), np.array([2]), np.array([0])
    one, other, wide = (torch.tensor([row]).double() for row in ([1.0, 2.0], [3.0, 4.0], [5.0] * 3))

    def stacked(*parts):
        found = _stacked(graphs, list(parts), lambda part: part)
        return None if found is None else found.nan_to_num(-1).tolist()

    assert stacked((first, one), (second, other)) == [[3.0, 4.0], [-1.0, -1.0], [1.0, 2.0]]
    assert stacked((first, one), (second, None)) is None
    assert stacked((first, None), (second, other)) is None
    assert stacked((first, None)) is None
    assert stacked() is None
    assert stacked((first, one), (second, wide)) == [[-1.0, -1.0], [-1.0, -1.0], [1.0, 2.0]]


def test_an_endpoint_may_drop_the_batch_dimension_of_a_single_input(motifs):
    found = scores_on(lambda batch: np.array([0.25, 0.75]), motifs.graphs[:2], chunk=1)
    assert found.tolist() == [[0.25, 0.75], [0.25, 0.75]]


# --- no more calls than needed, and no more trust


def test_one_score_per_graph_is_an_answer(rings):
    """Calls for several graphs and for one give one column alike: nothing is asked again."""
    assert asked(lambda batch: torch.rand(batch.num_graphs, 1), rings.take(np.arange(7)), chunk=3)[0] == [
        3,
        3,
        1,
    ]
    assert asked(lambda batch: torch.rand(batch.num_graphs), rings.take([0, 1]))[0] == [2]


def test_the_one_graph_of_a_node_task_is_asked_about_once(web):
    calls = []

    def serve(batch):
        calls.append(batch.num_nodes)
        return torch.zeros(150, 2)

    def refuse(batch):
        calls.append(batch.num_nodes)
        raise ValueError("closed")

    assert scores_on(serve, web.graphs).shape == (150, 2)
    assert calls == [150]
    with pytest.raises(SuspectError, match="closed"):
        scores_on(refuse, web.graphs)
    assert calls == [150, 150]


def test_task_inputs_take_the_precision_of_the_model(motifs):
    model, items = fresh(motifs), motifs.graphs[:3]
    expected = scores_on(model, items)
    torch.testing.assert_close(
        scores_on(copy.deepcopy(model).double(), items), expected, atol=1e-4, rtol=1e-4
    )


def test_one_row_per_node_counts_only_if_most_replies_have_it(rings):
    """Two graphs, one call each: where both forms are as frequent, rows are graphs."""
    graphs = rings.take([0, 1])

    def mixed_forms(batch):
        each = batch.num_nodes if batch.num_nodes == int(graphs.sizes[1]) else 1
        return torch.full((each, 2), float(batch.num_nodes))

    assert graphs.sizes[0] != graphs.sizes[1]
    scores = ask(mixed_forms, graphs, [Reading("logits")], chunk=1).scores
    assert scores.nan_to_num(-1).tolist() == [[float(graphs.sizes[0])] * 2, [-1.0, -1.0]]


def test_the_module_inside_a_parallel_wrapper_is_queried(draw, motifs):
    """Names of layers are those of the model, not of its wrapper."""
    mark, model = draw(layer="head:in"), fresh(motifs)
    wrapper = nn.DataParallel(model)
    wrapper.forward = lambda *inputs: pytest.fail("the wrapper would wait for the other processes")
    assert mark.read(wrapper).carriers.tolist() == mark.read(model).carriers.tolist()


def test_a_missing_head_is_named_and_the_other_levels_are_read(draw, motifs, web):
    mark, model = draw(access=("perception", "logits")), new_model(motifs, "GIN", 0, hidden_channels=8)
    assert mark.ask(model).failures["perception"].message == "this model has no perception head"
    assert np.ptp(mark.read(model, "logits").carriers) > 0
    with pytest.raises(SuspectError, match=r"^this model has no perception head"):  # nor a hidden layer
        draw("node", access="perception").read(Layers(GCNConv(5, 2)))


def test_a_layer_with_rows_of_its_own_leaves_the_scores(draw):
    """One row for all graphs together is neither a row per graph nor one per node."""

    class Summed(OneArgument):
        def __init__(self):
            super().__init__()
            self.whole = nn.Linear(4, 3)

        def forward(self, x, edge_index, batch):
            self.whole(x.mean(0, keepdim=True))
            return self.head(global_mean_pool(self.conv(x, edge_index).relu(), batch))

    mark = draw(access=("embedding", "logits"), layer="whole")
    replies = mark.ask(Summed())
    assert replies.failures["embedding"].message.startswith("got an array of shape (1, 3)")
    assert torch.isfinite(replies.scores).all()


def test_a_model_that_cannot_be_read_runs_once_per_question(rings):
    calls = []
    model = Several(lambda scores, pooled: (calls.append(1), scores))
    model.conv = GATConv(3, 3, heads=2)
    with pytest.raises(SuspectError, match="returned a tuple"):
        ask(model, rings.take([0]), [Reading("logits")])
    assert len(calls) == 1
