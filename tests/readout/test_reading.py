"""Readings: the secret directions and the answers, which never depend on the bits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch_geometric.data import Batch
from torch_geometric.nn import global_mean_pool

from invgnn.errors import ParameterError, SuspectError
from invgnn.graphs.disjoint_union import Graphs
from invgnn.nn.observation import Observation, log_scores, pool
from invgnn.readout.reading import Reading, answer, label_answer, natural_spread, standardise
from invgnn.secret import Secret
from invgnn.storage import container
from invgnn.training.tasks import new_model
from invgnn.watermark.carriers import Carriers
from invgnn.watermark.reference import Reference
from invgnn.watermark.sampler import Sampler

LABELS = Reading("labels", classes=3)


@pytest.fixture(scope="module")
def mark(draw):
    return draw(access=("embedding", "logits", "labels"), m=32)


def shown(scores, hidden=None, sizes=None):
    """An observation of graphs of these sizes (one node each by default)."""
    sizes = torch.as_tensor(sizes if sizes is not None else [1] * len(scores))
    batch = Batch(
        batch=torch.repeat_interleave(sizes), ptr=torch.nn.functional.pad(sizes.cumsum(0), (1, 0))
    )
    batch.num_nodes, batch._num_graphs = int(sizes.sum()), len(sizes)
    return Observation(torch.as_tensor(scores), hidden, batch)


# --- directions


@given(st.integers(2, 40))
def test_directions_are_signs_and_balanced_for_classes(mark, width):
    assert set(mark.direction("embedding", width).tolist()) <= {-1.0, 1.0}
    loose = replace(mark, context=mark.context | {"classes": None}, labels=None)
    signs = loose.direction("labels", width)
    assert sorted(signs.tolist()) == [-1.0] * (width - width // 2) + [1.0] * (width // 2)
    centred = loose.direction("logits", width)
    assert abs(float(centred.sum())) < 1e-9
    assert len(set(centred.tolist())) == 2


@given(st.integers(2, 40))
def test_what_is_added_behind_changes_no_direction(mark, width):
    """A copy with idle units or empty classes at the end is read as before."""
    units = mark.direction("embedding", width).tolist()
    assert mark.direction("embedding", width + 9).tolist()[:width] == units
    for access in ("logits", "labels"):
        classes = mark.direction(access, 2).tolist()
        assert sorted(classes) == [-1.0, 1.0]
        assert mark.direction(access, width).tolist() == classes + [0.0] * (width - 2)


def test_directions_differ_by_purpose_and_owner(draw):
    """But for levels that share the halves of the classes (`test_directions`)."""
    levels = ("embedding", "logits", "labels")
    both = [draw(access=levels, m=32, seed=seed, shared_halves=False) for seed in (0, 9)]
    loose = [replace(one, context=one.context | {"classes": None}, labels=None) for one in both]
    known = [
        tuple(owner.direction(access, 64).sign().tolist())
        for owner in loose
        for access in ("embedding", "logits", "labels")
    ]
    assert len(set(known)) == 6


# --- answers

scores = arrays(np.float64, (6, 3), elements=st.floats(-13, -5))  # below 0: no row looks like probabilities


@given(scores, st.floats(-9, 4), st.sampled_from(["projection", "confidence"]))
def test_logits_log_probabilities_and_probabilities_read_alike(mark, rows, shift, feature):
    logits = torch.from_numpy(rows)
    forms = [logits, logits + shift, logits.log_softmax(-1), logits.softmax(-1), logits.softmax(-1).float()]
    for reading in (Reading("logits", feature=feature), LABELS):
        read = [answer(shown(form), reading, mark.direction) for form in forms]
        for other in read[1:]:
            torch.testing.assert_close(other.double(), read[0].double(), rtol=1e-4, atol=1e-4)


@given(arrays(np.float64, 8, elements=st.floats(-4, 4).filter(lambda v: abs(v) > 1e-3)))
def test_a_single_logit_is_two_classes(mark, logit):
    logit = torch.from_numpy(logit)
    two = torch.stack([torch.zeros_like(logit), logit], -1) - 9  # no row looks like probabilities
    forms = [two, logit, logit[:, None], two.softmax(-1), torch.sigmoid(logit)]
    if ((logit >= 0) & (logit <= 1)).all():  # such logits cannot be distinguished from probabilities
        forms = [two, two.softmax(-1), torch.sigmoid(logit)]
    for reading in (Reading("logits"), Reading("logits", feature="confidence"), LABELS):
        read = [answer(shown(form), reading, mark.direction) for form in forms]
        for other in read[1:]:
            torch.testing.assert_close(other, read[0], rtol=1e-6, atol=1e-6)
    labels = [label_answer(shown(form), mark.direction).tolist() for form in forms]
    assert labels == labels[:1] * len(forms)


@given(scores)
def test_projection_confidence_and_odds_against_numpy(mark, rows):
    seen, p = shown(rows), np.exp(rows) / np.exp(rows).sum(-1, keepdims=True)
    signs = mark.direction("logits", 3).numpy()
    expected = rows @ (signs - signs.mean()) / np.sqrt(3)
    np.testing.assert_allclose(answer(seen, Reading("logits"), mark.direction), expected, atol=1e-9)
    top = p.max(-1)
    found = answer(seen, Reading("logits", feature="confidence"), mark.direction)
    np.testing.assert_allclose(found, np.log(top / (1 - top)), atol=1e-6)
    half = mark.direction("labels", 3).numpy() > 0
    odds = np.log(p[:, half].sum(-1) / p[:, ~half].sum(-1))
    np.testing.assert_allclose(answer(seen, LABELS, mark.direction), odds, atol=1e-9)


@given(st.lists(st.integers(1, 6), min_size=2, max_size=8), st.integers(0, 99))
def test_nodes_are_pooled_and_vote(mark, sizes, seed):
    rng = np.random.default_rng(seed)
    rows = torch.from_numpy(rng.normal(size=(sum(sizes), 5)))
    seen = shown(rows, rows, sizes)
    torch.testing.assert_close(pool(rows, seen.batch), global_mean_pool(rows, seen.batch.batch))
    signs = mark.direction("embedding", 5)
    expected = global_mean_pool(rows, seen.batch.batch) @ signs / 5**0.5
    torch.testing.assert_close(answer(seen, Reading(), mark.direction), expected)
    half, start = mark.direction("labels", 5) > 0, np.cumsum([0, *sizes])
    for number, found in enumerate(label_answer(seen, mark.direction).tolist()):
        votes = np.bincount(rows[start[number] : start[number + 1]].argmax(-1), minlength=5)
        assert found in {float(half[label]) for label in np.flatnonzero(votes == votes.max())}


@pytest.mark.parametrize("classes", [2, 3, 50, 400])
def test_probabilities_are_recognised_by_their_sum(classes):
    """However many classes: a row of small logits is no distribution."""
    rows = torch.rand(6, classes, generator=torch.Generator().manual_seed(0))
    exact = rows / rows.sum(-1, keepdim=True)
    assert log_scores(exact).equal(exact.clamp(min=1e-6).log())
    small = 0.9 * exact
    assert log_scores(small).equal(small)
    near = exact * 1.01
    if near.max() <= 1:
        assert log_scores(near).equal(near.clamp(min=1e-6).log())


@pytest.mark.parametrize("whole", [1, 100])
@pytest.mark.parametrize(
    ("classes", "total", "probable"),
    [
        (2, 1.035, True),  # 2 % for every class
        (2, 0.965, True),
        (2, 1.045, False),
        (2, 0.955, False),
        (3, 1.045, True),  # and 5 % at most
        (9, 0.955, True),
        (3, 1.055, False),
        (9, 0.945, False),
    ],
)
def test_probabilities_may_be_rounded_that_far_and_no_further(classes, total, probable, whole):
    rows = torch.full((4, classes), whole * total / classes, dtype=torch.float64)
    torch.testing.assert_close(log_scores(rows), (rows / whole).log() if probable else rows)


def test_certainty_is_a_probability():
    """Both ends of the scale belong to it, for two columns and for one."""
    sure = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]], dtype=torch.float64)
    logs = sure.clamp(min=1e-6).log()
    for form in (sure, sure[:, 1], sure[:, 1:]):
        torch.testing.assert_close(log_scores(form), logs)
    torch.testing.assert_close(log_scores(100 * sure), logs)
    beyond = torch.tensor([0.0, 1.01], dtype=torch.float64)
    torch.testing.assert_close(log_scores(beyond), torch.stack([-beyond / 2, beyond / 2], dim=-1))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_row_of_nan_changes_no_other(mark, bad):
    rows = torch.rand(6, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64).softmax(-1)
    for clean in (rows, rows[:, 0]):
        spoilt = clean.clone()
        spoilt[2] = bad
        for reading in (Reading("logits"), Reading("logits", feature="confidence"), LABELS):
            whole, part = (answer(shown(form), reading, mark.direction) for form in (clean, spoilt))
            assert [i for i in range(6) if whole[i] != part[i]] in ([2], [])


def test_a_hidden_reading_needs_the_model():
    with pytest.raises(SuspectError, match="this reading needs a hidden layer"):
        answer(shown(np.zeros((3, 2))), Reading(), lambda access, width: torch.ones(width))


UNKNOWN = [
    ({"access": "weights"}, "unknown access 'weights'"),
    ({"feature": "entropy"}, "unknown feature 'entropy'"),
    ({"layer": "out:input"}, "unknown side of the layer 'out:input'"),
    ({"layer": "out:"}, "unknown side of the layer 'out:'"),
    ({"layer": "auto:out"}, "unknown side of the layer 'auto:out'"),
    ({"access": "labels"}, "labels need at least 2 classes, but classes is None"),
    ({"access": "labels", "classes": 1}, "labels need at least 2 classes, but classes is 1"),
]


@pytest.mark.parametrize(("options", "message"), UNKNOWN)
def test_unknown_readings_are_refused(options, message):
    with pytest.raises(ParameterError, match=message) as caught:
        Reading(**options)
    assert caught.value.advice


def test_two_classes_are_enough_for_labels():
    assert Reading("labels", classes=2).record() == {"access": "labels", "classes": 2}


# --- bits


@given(st.integers(0, 999))
def test_bits_are_balanced(mark, seed):
    mark = replace(mark, secret=Secret(seed.to_bytes(32, "big")))
    assert mark.bits.sum() == 16
    assert set(mark.bits.tolist()) == {0, 1}
    assert ((mark.targets > 0.5) == mark.bits).all()
    assert (np.abs(mark.targets - 0.5) >= 0.25).all()


@pytest.mark.parametrize("gap", [0, 0.0, 0.3, 0.5])
def test_targets_keep_the_gap_from_one_half(draw, gap):
    """From none, where the invariant alone says how far, to all there is."""
    mark = draw(gap=gap)
    distance = np.maximum(np.abs(mark.perceived - 0.5), gap)
    np.testing.assert_allclose(mark.targets, 0.5 + np.where(mark.bits, 1, -1) * distance, atol=1e-12)
    assert (distance.max() > distance.min()) == (gap < 0.5)


@pytest.mark.parametrize("gap", [-1e-9, 0.5 + 1e-9])
def test_a_gap_beyond_the_ends_is_refused(draw, gap):
    with pytest.raises(ParameterError, match=r"gap=.* is not in \[0, 0\.5\]"):
        draw(gap=gap)


def test_a_sampler_at_its_limits_rejects_no_graph_by_similarity(rings):
    """No p-value is below 0, and no graph is larger than the largest."""
    loose = Sampler(delta=0.0, size_quantile=1.0)
    drawn = Carriers.draw(Reference(rings), 16, Secret(bytes(32)).derive("test"), loose)
    looks = {"seed larger than the size cap", "seed with unusual degrees", "unusual clustering"}
    assert not looks & drawn.rejected.keys()
    for beyond in ({"delta": -1e-9}, {"delta": 1.0}, {"size_quantile": 0.0}, {"size_quantile": 1 + 1e-9}):
        with pytest.raises(ParameterError, match=f"{next(iter(beyond))}=.* is not in"):
            Sampler(**beyond)


def test_bits_are_bound_to_every_edge_of_the_carriers(mark):
    carriers = mark.carriers
    for dropped in (0, len(carriers.edges) - 1):
        fewer = Graphs(carriers.ptr, np.delete(carriers.edges, dropped, axis=0), carriers.x)
        assert replace(mark, carriers=fewer).bits.tolist() != mark.bits.tolist()
    assert replace(mark, context=mark.context | {"statistic": "rank"}).bits.tolist() != mark.bits.tolist()


def test_nothing_but_the_verdict_depends_on_the_bits(draw, mark, motifs, monkeypatch):
    """The reading rule: with other bits the same graphs are asked, in the same order, and say the same."""
    derive, asked = Secret.derive, []

    def other_bits(secret, label, *parts):
        return derive(secret, label, *parts, *(["other"] if label == "bits" else []))

    def suspect(batch):
        asked.append(batch.x.numpy().tobytes() + batch.edge_index.numpy().tobytes())
        return torch.from_numpy(np.random.default_rng(0).normal(size=(batch.num_graphs, 2)))

    model = new_model(motifs, "GIN", 0, hidden_channels=8)
    answers = [[mark.read(model, r.access).carriers.tolist() for r in mark.readings]]
    mark.read(suspect, "logits")
    monkeypatch.setattr(Secret, "derive", other_bits)
    twin = draw(access=("embedding", "logits", "labels"), m=32)
    answers.append([twin.read(model, r.access).carriers.tolist() for r in twin.readings])
    twin.read(suspect, "logits")
    assert twin.bits.tolist() != mark.bits.tolist()
    assert twin.digest == mark.digest
    assert answers[0] == answers[1]
    assert asked[0] == asked[1]


def test_bits_are_bound_to_every_ordinary_input(mark):
    usual = mark.ordinary
    swapped = usual.take([1, 0, *range(2, len(usual))])
    other = Graphs(usual.ptr, usual.edges, usual.x + np.eye(*usual.x.shape, dtype=np.float32))
    fewer, labels = usual.take(np.arange(len(usual) - 1)), mark.labels
    relabelled = np.where(np.arange(len(labels)) == 5, 1 - labels, labels)
    for changed in (
        {"ordinary": swapped},
        {"ordinary": other},
        {"ordinary": fewer, "labels": labels[:-1]},
        {"labels": relabelled},
        {"labels": None},
    ):
        twin = replace(mark, **changed)
        assert twin.bits.tolist() != mark.bits.tolist()
        assert twin.digest != mark.digest


def test_bits_are_never_stored(mark, tmp_path):
    mark.save(tmp_path / "a.mark", insecure_no_passphrase=True)
    held = container.read(tmp_path / "a.mark", "mark")
    parts = {f"{name}.{part}" for name in ("carriers", "ordinary") for part in ("ptr", "edges", "x")}
    assert set(held.tensors) == {"secret", "labels", *parts}
    assert set(held.body) == {"context", "recipe", "rejected", "scale", "digest"}
    assert "bits" not in held.body["context"]


@pytest.mark.parametrize("layer", [None, 3, "", "a b", "a:b:c", "<b>", "x" * 201, "out:" + "i" * 9])
def test_what_cannot_name_a_module_is_no_layer(layer):
    with pytest.raises(ParameterError, match="not the name of a module"):
        Reading(layer=layer)
    assert Reading(layer="x" * 200).layer == "x" * 200


@pytest.mark.parametrize("classes", [0, 65_537, 2.0, True])
def test_impossible_numbers_of_classes_are_refused(classes):
    for access in ("labels", "logits"):
        with pytest.raises(
            ParameterError, match=r"^classes is .*, expected a whole number from 1 to 65536"
        ):
            Reading(access, classes=classes)
    assert Reading("labels", classes=65_536).classes == 65_536
    assert Reading("logits", classes=1).classes == 1  # only labels need two


def test_a_record_holds_what_its_access_level_needs_and_nothing_else():
    """Files keep records of readings, and every key is bound to them."""
    records = [
        {"access": "perception", "layer": "auto"},
        {"access": "embedding", "layer": "convs.1:in"},
        {"access": "logits", "feature": "confidence"},
        {"access": "labels", "classes": 7},
    ]
    assert [Reading.recall(record).record() for record in records] == records
    assert Reading().record() == {"access": "embedding", "layer": "auto"}
    assert Reading("logits").record() == {"access": "logits", "feature": "projection"}
    whole = {"access": "labels", "layer": "auto", "feature": "projection", "classes": 7}
    for record, message in (
        (whole, "fields that its access level lacks"),
        ({"access": "logits"}, "fields that its access level lacks"),
        ({"access": "logits", "feature": "projection", "note": 1}, "unknown fields"),
    ):
        with pytest.raises(ParameterError, match=message):
            Reading.recall(record)


def test_what_each_access_level_is():
    kinds = {access: (Reading(access, classes=2).hidden, Reading(access, classes=2).binary)
             for access in ("perception", "embedding", "logits", "labels")}  # fmt: skip
    assert kinds == {
        "perception": (True, True),
        "embedding": (True, False),
        "logits": (False, False),
        "labels": (False, True),
    }


def test_certainty_is_as_confident_as_the_least_probability_allows():
    scores = np.array([[1.0, 0.0], [0.5, 0.5]])
    found = answer(shown(scores), Reading("logits", feature="confidence"), lambda access, width: None)
    assert found.tolist() == pytest.approx([np.log(1e6), 0.0], rel=1e-3)
    far = answer(shown(np.array([[900.0, -900.0]])), Reading("logits", feature="confidence"), None)
    assert found.isfinite().all()
    assert far.item() == pytest.approx(np.log(1e6), rel=1e-3)


@pytest.mark.parametrize(
    ("signs", "used"),
    [([1.0, 1.0, -1.0], [2 / 3, 2 / 3, -4 / 3]), ([1.0, 1.0], [1.0, 1.0]), ([1.0] * 3 + [-1.0], None)],
)
def test_an_odd_number_of_signs_is_centred_for_scores_alone(signs, used):
    """Marks of format 1 have as many signs as columns, which cannot be balanced if they are odd."""
    rows = torch.from_numpy(np.random.default_rng(0).normal(size=(4, len(signs))) - 9)

    def direction(access, width, like=None, /):
        return torch.tensor(signs, dtype=torch.float64)

    expected = rows.log_softmax(1).numpy() @ np.array(used or signs) / len(signs) ** 0.5
    found = answer(shown(rows), Reading("logits"), direction)
    np.testing.assert_allclose(found, expected, atol=1e-9)
    hidden = answer(shown(rows, rows), Reading(), direction)
    np.testing.assert_allclose(hidden, rows.numpy() @ np.array(signs) / len(signs) ** 0.5, atol=1e-9)


def test_answers_keep_their_precision_where_others_are_halved():
    """Under autocast a training step reads the same numbers as a verdict does."""
    rows = torch.rand(5, 64, generator=torch.Generator().manual_seed(0))
    model = torch.nn.Module()
    model.perception = torch.nn.Linear(64, 1)
    plain = answer(shown(rows, rows), Reading("perception"), None, model)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert model.perception(rows).dtype == torch.bfloat16
        halved = answer(shown(rows, rows), Reading("perception"), None, model)
    assert halved.dtype == torch.float32
    assert halved.tolist() == plain.tolist()


def test_the_natural_spread_is_that_of_all_units_about_their_means():
    rows = torch.tensor([[1.0, 10.0, 0.0], [3.0, 14.0, 0.0], [99.0, 99.0, 99.0]])
    found = natural_spread(shown(rows, rows), Reading(), slice(0, 2))
    assert found.item() == pytest.approx(((1 + 1 + 4 + 4) / 6) ** 0.5)


@pytest.mark.parametrize(
    ("usual", "natural", "unit"),
    [
        ([1.0, 5.0], 0.0, 2.0),
        ([2.0, 2.0], 0.0, 0.002001),  # a thousandth of their size, and a millionth
        ([0.0, 0.0], 0.0, 1e-6),
        ([1.0, 1.02], 0.0, 0.01),
        ([1.0, 1.02], 2.0, 0.5),
        ([5.0], 0.0, 1.0),  # one answer has no spread
    ],
)
def test_the_unit_of_answers(usual, natural, unit):
    usual = torch.tensor(usual, dtype=torch.float64)
    answers = usual.mean() + torch.tensor([0.0, unit, -2 * unit], dtype=torch.float64)
    options = (natural,) if natural else ()
    assert standardise(answers, usual, *options).tolist() == pytest.approx([0.0, 1.0, -2.0], rel=1e-9)
