"""All that reaches a suspect was bound, every declared level is read, and refusing does not hide a copy."""

from __future__ import annotations

import copy
import math
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.stats import fisher_exact
from torch import nn
from torch_geometric.data import Batch, Data

from invgnn.audit.examine import Finding, Level, Refusal, _shift, examine, refusal_of, with_channel
from invgnn.audit.verify import verify
from invgnn.errors import DataError, ParameterError, SuspectError
from invgnn.readout.query import PATIENCE, ask
from invgnn.stats.evidence import Evidence
from invgnn.storage.encoding import decode
from invgnn.training.tasks import new_model
from invgnn.training.trainer import train
from invgnn.watermark.inputs import Inputs
from invgnn.watermark.mark import Watermark

ACCESSES = ("embedding", "logits", "labels")


class Spy(nn.Module):
    """Writes down every tensor that reaches it, wherever it is kept in what it is given."""

    def __init__(self, classes=2):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.classes, self.seen = classes, []

    def forward(self, data):
        self.seen.append(dict(data.to_dict()))
        for value in data.to_dict().values():
            if isinstance(value, torch.Tensor) and value.dtype != torch.bool:
                value.add_(1)  # and spoils it
        graphs = (
            data.num_graphs if hasattr(data, "num_graphs") and data.batch is not None else data.num_nodes
        )
        return torch.arange(graphs * self.classes, dtype=torch.float32).view(graphs, -1) % 7


@pytest.mark.parametrize("level", ["graph", "node"])
def test_every_tensor_that_reaches_a_suspect_is_in_the_bound_bytes(draw, level):
    mark, seen, parts = draw(level, access="logits"), [], []

    def suspect(batch):
        seen.append({name: copy.deepcopy(value) for name, value in batch.to_dict().items()})
        parts.extend(batch.to_data_list())
        return torch.rand(batch.num_graphs, 2)

    mark.read(suspect)
    held = decode(mark.questions.bytes)
    graphs = [held["carriers"], held["ordinary"]]
    (shown,) = seen
    assert set(shown) == {"x", "edge_index", "batch", "ptr", "num_nodes"}
    order = mark._order
    rows, edges, sizes = [], [], []
    for graph in graphs:
        ptr = graph["ptr"]
        for first, last in pairwise(ptr):
            inside = (graph["edges"][:, 0] >= first) & (graph["edges"][:, 0] < last)
            rows.append(graph["x"][first:last])
            edges.append(graph["edges"][inside] - first)
            sizes.append(int(last - first))
    assert torch.equal(shown["x"], torch.from_numpy(np.concatenate([rows[i] for i in order])))
    starts = np.cumsum([0, *(sizes[i] for i in order)])
    assert shown["ptr"].tolist() == starts.tolist()
    assert shown["batch"].tolist() == np.repeat(np.arange(len(order)), [sizes[i] for i in order]).tolist()
    pairs = {tuple(e) for start, i in zip(starts, order, strict=False) for e in (edges[i] + start).tolist()}
    assert sorted(map(tuple, shown["edge_index"].T.tolist())) == sorted(pairs | {(v, u) for u, v in pairs})
    assert shown["num_nodes"] == starts[-1]
    assert [part.num_nodes for part in parts] == [sizes[i] for i in order]
    assert all(set(part.to_dict()) == {"x", "edge_index"} for part in parts)  # nothing else is in a part


def test_inputs_of_the_score_channel_are_decoded_from_the_bound_bytes(motifs):
    """Subclasses, extra methods, labels and masks stay outside; every value is as it was hashed."""

    class Tricky(Data):
        def __inc__(self, key, value, *args, **kwargs):
            return 0

        @property
        def secret(self):
            return 1

    data = [Tricky(**graph.to_dict()) for graph in motifs.data[:5]]
    data[1].x = torch.where(data[1].x == 0, -data[1].x, data[1].x)
    inputs = Inputs(data)
    assert inputs.digest() != Inputs(motifs.data[:5]).digest()  # the sign of zero is bound and shown
    shown = inputs.graphs()
    assert {type(graph) for graph in shown} == {Data}
    for ours, theirs in zip(shown, data, strict=True):
        assert "y" not in ours
        assert set(ours.to_dict()) == set(theirs.to_dict()) - {"y"}
        for name, value in ours.to_dict().items():
            if isinstance(value, torch.Tensor):
                assert value.dtype == theirs[name].dtype
                assert value.numpy().tobytes() == theirs[name].numpy().tobytes()
                assert value.data_ptr() != theirs[name].data_ptr()
    (batch,) = inputs.batches()
    usual = Batch.from_data_list(motifs.data[:5])
    assert torch.equal(batch.edge_index, usual.edge_index)


@pytest.mark.parametrize("name", ["x;torch.float32;", "a b", "", "é", "1x"])
def test_names_that_are_no_identifiers_are_refused(motifs, name):
    data = [copy.copy(graph) for graph in motifs.data[:2]]
    for graph in data:
        graph[name] = 1
    with pytest.raises(DataError, match="not an ASCII identifier"):
        Inputs(data)


def test_graphs_that_differ_in_their_attributes_are_refused(motifs):
    data = [copy.copy(graph) for graph in motifs.data[:3]]
    data[2].more = torch.ones(1)
    with pytest.raises(DataError, match="graph 2 differs from graph 0 in its attributes: more"):
        Inputs(data)


def test_a_suspect_that_writes_into_its_input_changes_nothing_for_the_next(draw, motifs, web):
    mark = draw(access="logits")
    first, second = Spy(), Spy()
    examine(mark, first)
    examine(mark, second)
    assert not torch.equal(first.seen[0]["x"], torch.from_numpy(mark.carriers.x[:1]))
    for key, value in second.seen[0].items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(value, first.seen[0][key]), key
    for task in (motifs, web):
        model = new_model(task, "GCN", 0, hidden_channels=8)
        channelled = Watermark.draw(mark.secret, task.data, m=16, access="logits", score_channel=16)
        channelled = channelled.with_baseline(model, task.data)
        before = Inputs(task.data).digest()
        results = [verify(suspect, channelled, data=task.data) for suspect in (model, Spy(), model)]
        assert Inputs(task.data).digest() == before
        assert results[0].log10_p == results[2].log10_p


# --- every declared level


@pytest.fixture(scope="module")
def marked(motifs):
    from invgnn.secret import Secret

    mark = Watermark.draw(Secret(b"e" * 32), motifs.data, m=64, access=("embedding", "logits"))
    model = new_model(motifs, "GIN", 2)
    train(model, motifs, mark, epochs=40, seed=2)
    return mark, model


def test_a_permuted_copy_is_read_by_its_scores(marked, motifs):
    from invgnn.attacks.edits import PermuteUnits

    mark, model = marked
    plain, permuted = verify(model, mark), verify(PermuteUnits()(model, motifs), mark)
    assert plain.evidence_bits > 40
    assert permuted.access == "logits"
    assert permuted.evidence_bits > 40
    levels = {level["access"]: level["evidence_bits"] for level in permuted.levels}
    assert levels["embedding"] < 20 < levels["logits"]
    assert "embedding" in str(permuted)


def test_a_model_without_a_hidden_layer_is_read_by_its_scores(web):
    from invgnn.secret import Secret

    mark = Watermark.draw(Secret(b"s" * 32), web.data, m=16, access=ACCESSES)
    verdict = verify(new_model(web, "SGC", 0), mark)
    assert [level["read"] for level in verdict.levels] == [False, True, True]
    assert "no hidden representation" in verdict.levels[0]["note"]
    assert verdict.tests in {3, 6}
    with pytest.raises(SuspectError, match="no hidden representation"):
        verify(new_model(web, "SGC", 0), mark, access="embedding")


def test_one_pass_serves_all_levels(draw, motifs):
    mark, model, calls = draw(access=ACCESSES), new_model(motifs, "GIN", 0, hidden_channels=8), []
    model.head.register_forward_hook(lambda *_: calls.append(1))
    found = examine(mark, model)
    assert len(calls) == 1
    assert [level.access for level in found.levels] == list(ACCESSES)
    for level in found.levels:
        assert level.answers.carriers.tolist() == mark.read(model, level.access).carriers.tolist()


def test_a_score_channel_is_read_at_every_level(motifs):
    from invgnn.secret import Secret

    model = new_model(motifs, "GIN", 0, hidden_channels=8)
    mark = Watermark.draw(Secret(b"c" * 32), motifs.data, m=16, access=ACCESSES, score_channel=16)
    for access in (None, *ACCESSES):
        with pytest.raises(ParameterError, match="data="):
            verify(model, mark.with_baseline(model, motifs.data), access=access)
        with pytest.raises(ParameterError, match="no baseline scores"):
            verify(model, mark, access=access, data=motifs.data)
    bound = mark.with_baseline(model, motifs.data)
    verdict = verify(lambda b: model(b.x, b.edge_index, b.batch).argmax(1), bound, data=motifs.data)
    assert set(verdict.channels) == {"carriers", "score_channel"}


def test_the_score_channel_is_read_through_reordered_columns(motifs):
    """Columns rolled, and a class in front: the same scores along the same features."""
    from invgnn.secret import Secret

    model = new_model(motifs, "GIN", 0, hidden_channels=8)
    train(model, motifs, epochs=10)
    mark = Watermark.draw(Secret(b"d" * 32), motifs.data, m=16, access="logits", score_channel=16)
    mark = mark.with_baseline(new_model(motifs, "GIN", 1, hidden_channels=8), motifs.data)
    channel = mark.channel(motifs.data)

    def served(batch):
        with torch.no_grad():
            scores = model.eval()(batch.x, batch.edge_index, batch.batch).double().softmax(-1)
        return torch.cat([torch.zeros(len(scores), 1, dtype=torch.float64), scores.roll(1, 1)], 1)

    plain, other = (examine(mark, suspect, channel=channel) for suspect in (model, served))
    if other.aligned:  # the way that shows most may be the columns as they come
        assert other.columns == (2, 1)
        assert other.score_shift.cosine == pytest.approx(plain.score_shift.cosine, abs=1e-3)
    assert other.tests == 2
    replies = mark.ask(served)
    assert replies.alignments == ((0, 1), (2, 1))
    said = channel.measure(_selected(served, channel, (2, 1)))
    assert said.cosine == pytest.approx(channel.read(model).cosine, abs=1e-3)


def _selected(suspect, channel, columns):
    from invgnn.readout.alignment import select
    from invgnn.watermark.baseline import log_probabilities_of

    return select(torch.from_numpy(log_probabilities_of(suspect, channel.inputs)), columns).numpy()


# --- refusing


def spotted(mark):
    """Whether a graph of a batch is a carrier: a detector that is never wrong."""
    known = {mark.carriers.take([i]).x.tobytes() for i in range(mark.m)}

    def carriers(batch):
        ptr = batch.ptr.tolist()
        rows = [batch.x[a:b].numpy().tobytes() for a, b in pairwise(ptr)]
        return torch.tensor([row in known for row in rows])

    return carriers


def refusing(model, carriers, how):
    def serve(batch):
        odd = carriers(batch)
        if how == "an error on any" and bool(odd.any()):
            raise RuntimeError("HTTP 400")
        if how == "an error on most" and float(odd.float().mean()) > 0.3:
            raise RuntimeError("HTTP 400")
        scores = model(batch.x, batch.edge_index, batch.batch).softmax(-1)
        if how == "one row" and bool(odd.any()):
            return scores[:1].expand(batch.num_graphs + 3, -1)
        if how in {"nan", "inf"}:
            scores[odd] = float(how)
        if how == "constant":
            scores[odd] = 0.5
        if how == "other width" and bool(odd.all()):
            return scores[:, :1].repeat(1, 5)
        return scores

    return serve


@pytest.mark.parametrize("how", ["nan", "inf", "an error on any", "one row", "other width"])
def test_refusing_carriers_gives_a_verdict_that_says_so(marked, how):
    mark, model = marked
    model.eval()
    verdict = verify(refusing(model, spotted(mark), how), mark)
    if how == "other width":  # only where a call holds nothing but carriers
        assert verdict.evidence_bits > 30
        return
    assert verdict.status == "inconclusive"
    assert f"refused 64 of 64 carriers and 0 of {len(mark.ordinary)} ordinary" in verdict.reasons[0]
    assert verdict.refused["carriers"] == 64
    _, p = fisher_exact([[64, 0], [0, len(mark.ordinary)]], alternative="greater")
    assert verdict.refused["log10_p"] == pytest.approx(math.log10(p), rel=1e-5)
    assert "refused" in str(verdict)


def test_an_error_where_most_are_carriers_hides_nothing(marked):
    mark, model = marked
    verdict = verify(refusing(model.eval(), spotted(mark), "an error on most"), mark)
    assert verdict.refused["carriers"] > 0
    assert verdict.status == "inconclusive"


def test_a_few_refusals_leave_the_rest_to_be_read(marked):
    mark, model = marked
    carriers = spotted(mark)

    def some(batch):
        scores = model.eval()(batch.x, batch.edge_index, batch.batch).softmax(-1)
        scores[carriers(batch).nonzero().view(-1)[:10]] = torch.nan
        return scores

    verdict = verify(some, mark)
    assert verdict.refused["carriers"] == 10
    assert verdict.evidence_bits > 20


@pytest.mark.parametrize("how", ["an error object", "a typed error"])
def test_replies_that_are_no_scores_count_as_refused(marked, how):
    mark, model = marked
    carriers = spotted(mark)

    def serve(batch):
        if bool(carriers(batch).any()):
            if how == "a typed error":
                raise SuspectError("no", "no")
            return {"error": "bad request"}
        return model.eval()(batch.x, batch.edge_index, batch.batch)

    verdict = verify(serve, mark)
    assert (verdict.status, verdict.refused["carriers"]) == ("inconclusive", 64)


def test_a_constant_on_most_carriers_is_noticed(marked):
    mark, model = marked
    carriers = spotted(mark)

    def serve(batch):
        scores = model.eval()(batch.x, batch.edge_index, batch.batch).softmax(-1)
        scores[carriers(batch).nonzero().view(-1)[:56]] = 0.5
        return scores

    verdict = verify(serve, mark)
    assert verdict.refused["carriers"] == 56
    assert "refused 56 of 64 carriers and 0 of" in verdict.reasons[-1]


def test_constants_are_noticed_among_refusals(marked):
    """Half NaN and half a constant: neither hides the other."""
    mark, model = marked
    carriers = spotted(mark)

    def serve(batch):
        scores = model.eval()(batch.x, batch.edge_index, batch.batch).softmax(-1)
        odd = carriers(batch).nonzero().view(-1)
        scores[odd[::2]], scores[odd[1::2]] = torch.nan, 0.5
        return scores

    assert verify(serve, mark).refused["carriers"] == 64


def test_one_reply_of_another_form_spoils_no_other(marked):
    mark, model = marked
    carriers, first = spotted(mark), []

    def serve(batch):
        if batch.num_graphs > 1:
            raise RuntimeError("one graph at a time")
        scores = model.eval()(batch.x, batch.edge_index, batch.batch)
        if bool(carriers(batch).any()) and not first:
            first.append(1)
            return scores.expand(batch.num_nodes, -1)
        return scores

    usual = verify(model.eval(), mark, access="logits").evidence_bits
    assert verify(serve, mark, access="logits").evidence_bits > usual - 6


def test_a_head_that_does_not_fit_leaves_the_scores(draw, motifs):
    from invgnn.nn.perception import attach_head

    model = new_model(motifs, "GIN", 0, hidden_channels=8)
    attach_head(model, 5)
    verdict = verify(model, draw(access=("perception", "logits")))
    assert [level["read"] for level in verdict.levels] == [False, True]
    assert "head failed" in verdict.levels[0]["note"]


def test_the_score_channel_is_read_around_refused_inputs(motifs):
    from invgnn.secret import Secret

    model = new_model(motifs, "GIN", 0, hidden_channels=8).eval()
    mark = Watermark.draw(Secret(b"c" * 32), motifs.data, m=16, access="logits", score_channel=16)
    mark = mark.with_baseline(new_model(motifs, "GIN", 1, hidden_channels=8), motifs.data)
    bad = motifs.data[7].x

    def serve(batch):
        if "ptr" in batch and any(torch.equal(batch.x[a:b], bad) for a, b in pairwise(batch.ptr.tolist())):
            raise RuntimeError("HTTP 400")
        return model(batch.x, batch.edge_index, batch.batch)

    whole, part = (verify(suspect, mark, data=motifs.data) for suspect in (model, serve))
    assert part.channels["score_channel"]["cosine"] == pytest.approx(
        whole.channels["score_channel"]["cosine"], abs=0.2
    )


def test_a_constant_on_carriers_is_inconclusive(marked):
    mark, model = marked
    verdict = verify(refusing(model.eval(), spotted(mark), "constant"), mark)
    assert verdict.status == "inconclusive"
    assert "refused 64 of 64 carriers" in verdict.reasons[0]


@pytest.mark.parametrize(
    ("carriers", "ordinary"), [(0, 0), (1, 0), (0, 1), (5, 2), (64, 0), (64, 64), (0, 9)]
)
def test_the_test_of_refusal_is_fishers(carriers, ordinary):
    refusal = Refusal(carriers, ordinary, 64, 64)
    _, p = fisher_exact([[carriers, ordinary], [64 - carriers, 64 - ordinary]], alternative="greater")
    assert math.exp(refusal.log_p) >= p * (1 - 1e-12)
    assert refusal.log_p == pytest.approx(math.log(p), abs=1e-4)


def test_a_suspect_that_is_broken_says_so_soon(draw):
    calls = []

    def broken(batch):
        calls.append(batch.num_graphs)
        raise ValueError("no such file")

    with pytest.raises(SuspectError, match="no such file"):
        verify(broken, draw(m=128))
    assert len(calls) <= PATIENCE


def test_questions_are_halved_until_the_refused_ones_stand_alone(draw):
    mark, sizes = draw(m=32, access="logits"), []

    def picky(batch):
        sizes.append(batch.num_graphs)
        if (
            batch.num_nodes
            and bool((batch.x[:, 0] == mark.carriers.x[0, 0]).any())
            and batch.num_graphs > 1
        ):
            raise MemoryError
        return torch.rand(batch.num_graphs, 2)

    replies = ask(picky, mark.carriers, mark.readings)
    assert len(replies.scores) == 32
    assert min(sizes) == 1
    assert torch.isfinite(replies.scores).all()


# --- what is read where


def test_the_one_level_asked_for_says_itself_why_it_cannot_be_read(draw):
    def scores(batch):
        return torch.rand(batch.num_graphs, 2)

    with pytest.raises(SuspectError, match=r"^a function gives scores only"):
        examine(draw(access=("embedding", "logits")), scores, access="embedding")
    with pytest.raises(SuspectError, match=r"at any declared level: perception: .*; embedding: ") as caught:
        examine(draw(access=("perception", "embedding")), scores)
    assert caught.value.advice


def test_the_best_level_is_the_one_with_the_most_evidence(marked):
    mark, model = marked
    found = examine(mark, model)
    logs = {level.access: level.evidence.log_p for level in found.levels}
    assert found.evidence.log_p == logs[found.best.access] == min(logs.values())
    assert found.tests == len(mark.readings) * (2 if found.aligned else 1)
    assert found.queries == mark.m + len(mark.ordinary)


@pytest.mark.parametrize(
    ("classes", "columns", "taken"),
    [(2, (1, 0), True), (2, (0, 2), True), (2, (0, 3), False), (None, (1, 0), False)],
)
def test_the_score_channel_takes_the_columns_of_classes_that_it_has(classes, columns, taken):
    """Three columns; where one is asked for that there is not, or classes are unknown, all are taken."""
    scores = np.array([[1.0, 0.0, 2.0], [2.0, 0.0, 0.0]])
    channel = SimpleNamespace(measure=lambda rows: rows)
    rows = _shift(SimpleNamespace(classes=classes), channel, scores, columns)
    if not taken:
        assert rows is scores
        return
    chosen = scores[:, list(columns)]
    np.testing.assert_allclose(rows, chosen - np.log(np.exp(chosen).sum(1, keepdims=True)))


def test_where_nothing_was_read_there_is_no_evidence():
    silent = Level("logits", None, None, "it answers nothing")
    assert silent.constant
    none = Finding((silent,), silent, None, (0, 1), False, 1, 0.0, Refusal(0, 0, 8, 8), 16)
    with pytest.raises(SuspectError, match="no level could be read") as caught:
        _ = none.evidence
    assert caught.value.advice == "it answers nothing"


@pytest.mark.parametrize(
    ("hidden", "counted"), [((True, True), 0), ((True, False), 1), ((False, False), 0), ((False, True), 0)]
)
def test_refusals_are_counted_once_at_the_first_level_of_scores(hidden, counted):
    """Else at the first level of all; what is refused and what is answered alike count together."""
    counts = [(3, 4, 5, 6), (30, 40, 50, 60)]
    names = ("refused_carriers", "refused_ordinary", "alike_carriers", "alike_ordinary")
    levels = [
        SimpleNamespace(
            answers=SimpleNamespace(
                reading=SimpleNamespace(hidden=one), **dict(zip(names, four, strict=True))
            )
        )
        for one, four in zip(hidden, counts, strict=True)
    ]
    mark = SimpleNamespace(m=128, ordinary=range(64))
    assert (
        refusal_of(levels, mark.m, len(mark.ordinary))
        == [Refusal(8, 10, 128, 64), Refusal(80, 100, 128, 64)][counted]
    )


def test_two_channels_are_combined_by_fishers_method():
    carriers = Evidence("combined", math.log(0.01), 8, 8, 4, 0.0, True)
    assert with_channel(carriers, None) is carriers
    both = with_channel(carriers, SimpleNamespace(log_p=math.log(0.02)))
    product = 0.01 * 0.02
    assert math.exp(both.log_p) == pytest.approx(product * (1 - math.log(product)), rel=1e-6)
    assert both.statistic == "combined and score shift"


def test_all_inputs_are_counted_and_called_as_told(motifs):
    """Carriers, ordinary inputs and those of the score channel, through the same forward."""
    from invgnn.secret import Secret

    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = new_model(motifs, "GIN", 0, hidden_channels=8)

        def forward(self, adjacency, features, owners):
            return self.inner(features, adjacency, owners)

    def through(model, batch):
        return model(batch.edge_index, batch.x, batch.batch)

    odd = Odd().eval()
    mark = Watermark.draw(Secret(b"c" * 32), motifs.data, m=16, access="logits", score_channel=16)
    mark = mark.with_baseline(odd.inner, motifs.data)
    channel = mark.channel(motifs.data)
    found = examine(mark, odd, channel=channel, forward=through)
    assert found.queries == 16 + len(mark.ordinary) + len(motifs.data)
    assert found.log_p == examine(mark, odd.inner, channel=channel).log_p
    with pytest.raises(SuspectError, match=r"no finite answer on any of"):
        examine(mark, lambda batch: torch.full((batch.num_graphs, 2), torch.nan))
