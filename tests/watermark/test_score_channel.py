"""The score channel: its law, its features, and marks that pass to a student."""

import copy
import hashlib
import math
import struct
from dataclasses import replace
from functools import partial

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import ndtri
from scipy.stats import beta, chi2, kstest
from torch import nn
from torch_geometric.data import Batch

from invgnn.attacks.edits import Distil
from invgnn.audit.verify import verify
from invgnn.errors import DataError, FileError, ParameterError, SuspectError
from invgnn.readout.query import scores_on
from invgnn.secret import Secret, public_stream
from invgnn.stats import laws
from invgnn.storage import container
from invgnn.training.batching import accuracy
from invgnn.training.tasks import new_model
from invgnn.training.trainer import train
from invgnn.watermark.baseline import Baseline, log_probabilities_of
from invgnn.watermark.drawing import _suitable_features
from invgnn.watermark.gaussians import ERROR, UNSURE_1, _gaussians_1, _slack, gaussians
from invgnn.watermark.inputs import Inputs
from invgnn.watermark.mark import Watermark
from invgnn.watermark.public_features import Features
from invgnn.watermark.recipe import Recipe
from invgnn.watermark.score_channel import ScoreChannel
from invgnn.watermark.score_shift import ScoreShift, _means, beyond, standing

SECRET = Secret(b"s" * 32)
EPOCHS = 80


def drawn(task, secret=SECRET, **options):
    options = {"m": 32, "access": "logits", "score_channel": 32, **options}
    return Watermark.draw(secret, task.data, **options)


@pytest.fixture(scope="module")
def plain(motifs):
    """A model that knows the task and no mark."""
    model = new_model(motifs, "GIN", 5)
    train(model, motifs, epochs=EPOCHS)
    return model


@pytest.fixture(scope="module")
def mark(motifs, plain):
    return drawn(motifs).with_baseline(plain, motifs.data)


@pytest.fixture(scope="module")
def channel(mark, motifs):
    return mark.channel(motifs.data)


# -- the law --------------------------------------------------------------------------------------


def chord(cosine):
    """The distance of two unit vectors with this cosine."""
    return math.sqrt(2 - 2 * cosine)


@given(st.floats(-0.9, 0.9), st.integers(16, 300))
def test_the_law_is_a_shifted_beta(cosine, dimension):
    half = (dimension - 1) / 2
    expected = beta.sf((1 + cosine) / 2, half, half) + 2.0**-112
    assert math.exp(laws.log_p_chord(chord(cosine), dimension)) == pytest.approx(expected, rel=1e-6)


@given(st.integers(0, 2**32))
def test_normal_numbers_are_right_to_the_error_that_is_paid(seed):
    """Against mpmath: how far out the bits say a number lies."""
    mp = mpmath.mp.clone()
    mp.dps = 60
    words = [int(w) for w in public_stream("normal", seed).words(3)]
    found = float(gaussians(public_stream("normal", seed), 1)[0])
    k = ((words[0] >> 1) << 128) + (words[1] << 64) + words[2]
    outside = (mp.mpf(k) + mp.mpf(1) / 2) / mp.mpf(2) ** 192
    assert (found > 0) == bool(words[0] & 1)
    truth = mp.sqrt(2) * mp.erfinv(1 - 2 * outside) if outside > 1e-30 else None
    assert truth is None or abs(abs(found) - truth) <= ERROR * max(1, abs(found)) / 2


def test_normal_numbers_far_out_are_right_too():
    """Bits that the generator would take longer than the world to give."""
    mp = mpmath.mp.clone()
    mp.dps = 80

    class Fixed:
        def __init__(self, k):
            self.k = k

        def words(self, n):
            low = [self.k >> 128 << 1, self.k >> 64 & (2**64 - 1), self.k & (2**64 - 1)]
            return np.array(low, dtype=np.uint64)

    for power in range(40, 191, 5):
        found = -float(gaussians(Fixed(2**power), 1)[0])
        outside = (mp.mpf(2) ** power + mp.mpf(1) / 2) / mp.mpf(2) ** 192
        assert abs(mp.erfc(found / mp.sqrt(2)) / 2 / outside - 1) < 1e-10 * max(1, found**2)


def test_the_slack_covers_axes_that_are_not_orthonormal(channel):
    axes = channel.features.axes.numpy()
    drawn = gaussians(public_stream("slack"), len(axes))
    for skew in (0.0, 1e-9, 1e-6):
        bent = axes.copy()
        bent[:, 0] += skew * bent[:, 1]
        exact = axes.T @ drawn
        moved = bent.T @ drawn
        turned = np.linalg.norm(exact / np.linalg.norm(exact) - moved / np.linalg.norm(moved))
        assert turned <= _slack(bent, drawn, moved, ERROR) <= 1e-9 + 10 * skew


def test_a_direction_that_rounds_to_the_answers_is_worth_no_more_than_the_ceiling(channel):
    lean = channel.compare(channel.direction * 7, -channel.direction, 160)
    assert 1 - 1e-14 < lean.cosine <= 1
    assert 110 < lean.bits() < laws.CHANNEL_BITS


@pytest.mark.parametrize("count", [1, 2, 5])
def test_channels_count_together_as_fisher_says(count):
    log_ps = list(np.log(np.linspace(0.01, 0.4, count)))
    expected = chi2.logsf(-2 * sum(log_ps), 2 * count)
    assert laws.log_p_channels(log_ps) == pytest.approx(expected)


def test_a_channel_that_says_nothing_does_not_help():
    assert laws.log_p_channels([math.log(1e-9), 0.0]) > math.log(1e-9)


@pytest.mark.parametrize("kin", ["an unmarked copy, trained on", "a stranger"])
def test_p_of_innocent_models_is_uniform_over_secrets(channel, plain, motifs, kin):
    """One unmarked model, five hundred owners."""
    model = new_model(motifs, "GIN", 7) if kin == "a stranger" else copy.deepcopy(plain)
    train(model, motifs, epochs=3)
    rng = np.random.default_rng(3)
    directions = rng.standard_normal((500, 32))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    followed = channel.followed(log_probabilities_of(model, motifs.data))  # the same for every owner
    found = [replace(channel, direction=d).compare(*followed, 160) for d in directions]
    for look in ("chord", "chord_within"):
        p = [math.exp(laws.log_p_chord(getattr(lean, look), 32)) for lean in found]
        assert kstest(p, "uniform").pvalue > 1e-3
    assert sum(lean.log_p <= math.log(0.05) for lean in found) <= 40  # of 500; 0.1 % of the time more


def test_directions_of_secrets_are_uniform(channel, motifs, monkeypatch):
    """Five hundred owners: a coordinate follows the law that the p-value assumes."""
    monkeypatch.setattr(Features, "fit", lambda *_: channel.features)
    streams = [Secret(i.to_bytes(32)).derive("function", "here") for i in range(500)]
    draw = partial(ScoreChannel.draw, signs=channel.signs, data=motifs.data[:1], dimension=32, strength=1.0)
    drawn = [draw(s, before=channel.before).direction for s in streams]
    for coordinate in (0, 31):
        placed = (np.array(drawn)[:, coordinate] + 1) / 2
        assert kstest(placed, beta(15.5, 15.5).cdf).pvalue > 1e-3


# -- features -------------------------------------------------------------------------------------


def test_features_are_white_on_what_they_were_fitted_to(channel, motifs):
    values = channel.features(Batch.from_data_list(motifs.data)).numpy()
    centred = values - values.mean(0)
    np.testing.assert_allclose(centred.T @ centred / len(centred), np.eye(32), atol=1e-6)


def test_features_do_not_see_the_order_of_nodes_or_of_graphs(channel, motifs):
    graph = motifs.data[3]
    turn = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(1))
    place = torch.argsort(turn)
    twin = graph.clone()
    twin.x, twin.edge_index = graph.x[turn], place[graph.edge_index]
    both = channel.features(Batch.from_data_list([motifs.data[0], twin, graph]))
    torch.testing.assert_close(both[1], both[2], atol=1e-4, rtol=1e-4)
    alone = channel.features(Batch.from_data_list([graph]))
    torch.testing.assert_close(alone[0], both[2], atol=1e-4, rtol=1e-4)


def test_turned_axes_leave_the_secret_function_as_it_is(mark, motifs, monkeypatch):
    """Linear algebra elsewhere may sign the axes otherwise."""
    batch = Batch.from_data_list(motifs.data)
    before = mark.channel(motifs.data)
    fit = Features.fit

    def flipped(*args):
        found = fit(*args)
        signs = torch.where(torch.arange(found.dimension) % 2 == 0, 1.0, -1.0).double()
        return replace(found, axes=found.axes * signs)

    monkeypatch.setattr(Features, "fit", flipped)
    after = mark.channel(motifs.data)
    torch.testing.assert_close(before.along(batch), after.along(batch))
    model = new_model(motifs, "GIN", 7)
    assert before.read(model).cosine == pytest.approx(after.read(model).cosine)


def test_too_many_directions_are_refused_with_the_number_that_fits(motifs):
    with pytest.raises(ParameterError, match="choose a dimension from 16 to 80"):
        drawn(motifs, score_channel=100).with_baseline(new_model(motifs, "GIN", 5), motifs.data).channel(
            motifs.data
        )


# -- reading --------------------------------------------------------------------------------------


class Says(nn.Module):
    """Scores given per input, in the order of the data."""

    def __init__(self, scores):
        super().__init__()
        self.scores = scores

    def forward(self, data):
        return self.scores


def test_a_model_at_full_lean_is_read_as_such_and_its_mirror_is_not(channel, motifs):
    batch = Batch.from_data_list(motifs.data)
    flat = torch.zeros(len(motifs.data), 2, dtype=torch.float64)
    full = channel.read(Says(channel.shift(flat, batch)))
    mirrored = channel.read(Says(-channel.shift(flat, batch)))
    assert full.bits() > 20
    assert mirrored.log_p == 0
    assert (full.dimension, full.inputs) == (32, len(motifs.data))


def test_a_constant_suspect_proves_nothing(channel, motifs):
    assert channel.read(Says(torch.zeros(160, 2))).cosine == 0
    assert ScoreShift(0.0, 0.0, 2.0, 2.0, 32, 160).bits() == 0


def test_a_faint_lean_shows_against_what_was_said_before(channel, plain, motifs):
    """A fifth of a nat drowns in a model's own opinions, unless those are known."""
    batch = Batch.from_data_list(motifs.data)
    faint = replace(channel, strength=0.2).shift(scores_on(plain, motifs.data), batch)
    blind = replace(channel, before=np.zeros_like(channel.before))
    against, alone = (one.read(Says(faint)).bits() for one in (channel, blind))
    assert against > 20 > alone


@given(arrays(np.float64, (40, 3), elements=st.floats(-5, 5)), st.integers(0, 100))
def test_nothing_is_left_of_what_was_said_before(before, seed):
    """Against the normal equations: what is left is orthogonal to every column, and the rest is a mix."""
    rng = np.random.default_rng(seed)
    answers = rng.standard_normal(40)
    left = beyond(answers, before)
    columns = np.column_stack([np.ones(40), *map(standing, before.T)])
    np.testing.assert_allclose(columns.T @ left, 0, atol=1e-6)
    for top in range(3):
        assert abs(left[before.argmax(1) == top].sum()) < 1e-6
    np.testing.assert_allclose(beyond(columns @ [1.0, 2.0, -1.0, 0.5], before), 0, atol=1e-6)


def test_inputs_that_nothing_was_said_about_are_refused(channel, plain, motifs):
    with pytest.raises(DataError, match="pass the data"):
        replace(channel, before=channel.before[:50]).read(plain)
    with pytest.raises(SuspectError, match="not 160 rows"):
        channel.read(lambda batch: torch.zeros(50, 2))


def test_what_a_model_said_itself_leaves_no_rounding_to_read(channel, plain, motifs):
    lean = channel.read(plain)
    assert (lean.cosine, lean.within, lean.bits()) == (0, 0, 0)


@pytest.mark.parametrize(
    "change", ["an edge twice", "another feature", "a tensor more", "a number more", "other order"]
)
def test_inputs_that_only_look_alike_are_refused(mark, motifs, change):
    """The reference digest sees graphs, a model tensors: whoever knows the direction could choose them."""
    data = [copy.copy(graph) for graph in motifs.data]
    if change == "an edge twice":
        data[3].edge_index = torch.cat([data[3].edge_index, data[3].edge_index[:, :2]], dim=1)
    if change == "another feature":
        data[3].x = data[3].x + 1e-7 * (data[3].x == data[3].x[0, 0])
    if change == "a tensor more":
        data[3].pos = torch.zeros(data[3].num_nodes, 2)
    if change == "a number more":
        data[3].scale = 1.5
    if change == "other order":
        data[0], data[1] = data[1], data[0]
    with pytest.raises(DataError, match=r"not the|differs from graph 0"):
        mark.channel(data)


def test_labels_and_masks_are_neither_bound_nor_shown(mark, motifs):
    data, seen = [copy.copy(graph) for graph in motifs.data], []
    for graph in data:
        graph.y, graph.some_mask = graph.y + 1, torch.ones(graph.num_nodes)

    def suspect(batch):
        seen.append(batch.to_dict().keys())
        return torch.zeros(batch.num_graphs, 2)

    mark.channel(data).read(suspect)
    assert seen
    assert not any(names & {"y", "some_mask"} for names in seen)
    assert "y" in data[0]  # the owner's own are left alone


def test_what_cannot_be_bound_is_refused(mark, motifs):
    data = [copy.copy(graph) for graph in motifs.data]
    data[3].notes = {"scale": 2}
    with pytest.raises(DataError, match="notes, a dict"):
        mark.channel(data)


def test_inputs_of_any_precision_have_a_digest(motifs):
    half = [copy.copy(graph) for graph in motifs.data[:3]]
    for graph in half:
        graph.x = graph.x.bfloat16()
    assert Inputs(half).digest() != Inputs(motifs.data[:3]).digest()
    assert [graph.x.dtype for graph in Inputs(half).graphs()] == [torch.bfloat16] * 3
    assert all(torch.equal(a.x, b.x) for a, b in zip(Inputs(half).graphs(), half, strict=True))


def test_the_second_look_costs_a_bit():
    one, both = (
        laws.log_p_chord(chord(0.6), 32),
        ScoreShift(0.6, -0.2, chord(0.6), chord(-0.2), 32, 160).log_p,
    )
    assert both == pytest.approx(one + math.log(2))


def test_the_lean_moves_log_odds_by_its_strength(channel, motifs):
    batch = Batch.from_data_list(motifs.data)
    scores = channel.shift(torch.zeros(160, 2, dtype=torch.float64), batch)
    odds = scores @ channel.signs("logits", 2).to(scores)
    torch.testing.assert_close(odds, channel.along(batch) * channel.strength)
    assert float(odds.std()) == pytest.approx(Recipe().score_shift, rel=0.05)


def test_other_data_are_refused(mark, motifs):
    with pytest.raises(DataError, match="not the inputs"):
        mark.channel(motifs.data[:-1])


def test_a_mark_without_the_channel_says_how_to_get_one(motifs, plain):
    for use in (lambda m: m.channel(motifs.data), lambda m: m.with_baseline(plain, motifs.data)):
        with pytest.raises(ParameterError, match="score_channel=128"):
            use(drawn(motifs, score_channel=None))


def test_a_mark_that_remembers_nothing_says_what_to_do(motifs, plain):
    with pytest.raises(ParameterError, match=r"mark\.with_baseline"):
        train(new_model(motifs, "GIN", 5), motifs, drawn(motifs), epochs=1)
    with pytest.raises(ParameterError, match=r"mark\.with_baseline"):
        verify(plain, drawn(motifs), data=motifs.data)


def test_a_mark_remembers_one_model_and_derives_its_direction_from_it(mark, motifs, plain):
    with pytest.raises(ParameterError, match="already"):
        mark.with_baseline(plain, motifs.data)
    other = drawn(motifs).with_baseline(new_model(motifs, "GIN", 6), motifs.data)
    assert other.digest != mark.digest != drawn(motifs).digest
    cosine = other.channel(motifs.data).direction @ mark.channel(motifs.data).direction
    assert abs(cosine) < 0.7  # as for strangers
    assert (mark.bits != other.bits).any()  # nor can either channel be searched for by itself
    with pytest.raises(ParameterError, match="no key yet"):
        _ = drawn(motifs).bits
    with pytest.raises(ParameterError, match="belong to a score channel"):
        replace(drawn(motifs, score_channel=None), baseline=mark.baseline)
    with pytest.raises(ParameterError, match="NaN"):
        drawn(motifs).with_baseline(Says(torch.full((160, 2), torch.nan)), motifs.data)


@pytest.mark.parametrize("shape", [(0, 2), (160, 0), (160, 1), (160,)])
def test_remembered_scores_have_a_row_per_input(shape):
    with pytest.raises(ParameterError, match="a row per input"):
        Baseline(np.zeros(shape), "0" * 64)


def test_remembered_scores_stay_as_they_were(mark):
    with pytest.raises(ValueError, match="read-only"):
        mark.baseline.scores[0] = 1


def test_key_and_direction_of_remembered_scores_are_pinned(motifs):
    """Whoever changes how they derive breaks every mark that was ever taught."""
    scores = np.linspace(-3, -0.1, 320).reshape(160, 2)
    mark = replace(drawn(motifs), baseline=Baseline(scores, "ab" * 32))
    stream = mark.secret.derive("function", mark.bound, *mark._asked_about)
    assert (mark.baseline.digest()[:16], mark.digest[:16]) == ("bd68ea683856477b", "81aeff49cf14521c")
    assert "".join(map(str, mark.bits)) == "00111100000111000110110110010110"
    assert int(stream.words(1)[0]) == 14938494644760206420


@pytest.mark.parametrize("size", [0, 2.5, "many", True, 5000])
def test_a_channel_needs_a_number_of_features(motifs, size):
    with pytest.raises(ParameterError, match=r"score_channel is .*expected a whole number from"):
        drawn(motifs, score_channel=size)


@pytest.mark.parametrize("size", [1, 2, 15])
def test_few_features_are_refused(motifs, size):
    with pytest.raises(ParameterError, match="rounding can pass for evidence") as caught:
        drawn(motifs, score_channel=size)
    assert "from 16" in caught.value.advice


def test_a_plain_mark_has_no_score_channel(motifs):
    with pytest.raises(ParameterError, match="keyed"):
        drawn(motifs, key="plain")


def test_reading_leaves_model_and_data_as_they_were(channel, motifs, unchanged):
    model = new_model(motifs, "GIN", 7).train()
    with unchanged(model):
        channel.read(model)


def test_the_channel_outlives_a_file(mark, motifs, tmp_path):
    mark.save(tmp_path / "a.mark", insecure_no_passphrase=True)
    again = Watermark.load(tmp_path / "a.mark")
    assert again.score_channel == 32
    np.testing.assert_allclose(again.channel(motifs.data).direction, mark.channel(motifs.data).direction)
    np.testing.assert_array_equal(again.baseline.scores, mark.baseline.scores)
    assert (again.digest, again.baseline.inputs) == (mark.digest, mark.baseline.inputs)


def test_a_file_with_other_remembered_scores_is_refused(mark, tmp_path):
    path = tmp_path / "a.mark"
    mark.save(path, insecure_no_passphrase=True)
    held = container.read(path, "mark")
    for other in (held.tensors["before"] + 1e-9, held.tensors["before"][:1], np.zeros((160, 0))):
        tensors = {**held.tensors, "before": other}
        container.write(path, "mark", held.body, tensors, passphrase=None, private=True, overwrite=True)
        with pytest.raises(FileError, match="no sound mark"):
            Watermark.load(path)


# -- embedding ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def marked(mark, motifs, plain):
    model = copy.deepcopy(plain)
    train(model, motifs, mark.replace(recipe=Recipe(score_shift=3.0)), epochs=EPOCHS)
    return model


def test_a_marked_model_leans_and_an_unmarked_one_does_not(marked, plain, channel, motifs):
    assert channel.read(marked).bits() > 12
    assert channel.read(plain).bits() < 8
    assert accuracy(marked, motifs, motifs.train) > 0.6


def test_a_student_who_never_saw_a_carrier_leans_too(marked, mark, channel, motifs):
    student = Distil(epochs=2 * EPOCHS, seed=2)(marked, motifs)
    assert channel.read(student).bits() > 8


def test_a_verdict_counts_both_channels_and_says_what_each_gave(marked, mark, motifs):
    verdict = verify(marked, mark, data=motifs.data)
    parts = verdict.channels
    both = laws.log_p_channels(
        [-parts[c]["evidence_bits"] * math.log(2) for c in ("carriers", "score_channel")]
    )
    assert verdict.tests == 1
    assert verdict.evidence_bits == pytest.approx(-both / math.log(2))
    assert verdict.statistic == "combined and score shift"
    assert "score channel" in str(verdict)
    assert verdict.queries == 32 + len(mark.ordinary) + len(motifs.data)


def test_a_declared_channel_cannot_be_left_out(marked, mark):
    with pytest.raises(ParameterError, match="data="):
        verify(marked, mark)


def test_the_mark_of_another_owner_is_not_read(marked, motifs):
    other = drawn(motifs, Secret(b"o" * 32)).with_baseline(marked, motifs.data)
    assert verify(marked, other, data=motifs.data).status == "not shown"


def test_node_tasks_lean_on_every_node(web):
    model = new_model(web, "GCN", 3)
    train(model, web, epochs=20)
    mark = drawn(web, m=16, score_channel=16).with_baseline(model, web.data)
    train(model, web, mark, epochs=20)
    lean = mark.channel(web.data).read(model)
    assert lean.inputs == web.graphs[0].num_nodes


def test_a_leaning_teacher_can_be_distilled_by_the_owner(channel, mark, plain, motifs):
    """At a strength that a small model learns in a few epochs, whatever the direction."""
    strong, student = replace(channel, strength=3.0), new_model(motifs, "GIN", 6)
    batches = [Batch.from_data_list(motifs.data[i : i + 32]) for i in range(0, 160, 32)]
    mark.refresh(student, strong.shifted_teacher(plain), batches, epochs=EPOCHS)
    leaning = channel.read(strong.shifted_teacher(plain)).bits()
    assert leaning > channel.read(student).bits() > 4
    assert channel.read(plain).bits() == 0


# -- limits and errors ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "scores",
    [np.zeros(3), np.zeros((0, 2)), np.zeros((3, 0)), np.zeros((3, 1)), np.zeros((3, 2), np.float32)],
)
def test_memories_have_a_row_per_input_and_two_classes(scores):
    with pytest.raises(ParameterError, match="a row per input"):
        Baseline(scores, "0" * 64)
    kept = np.zeros((1, 2))
    memory = Baseline(kept, "0" * 64)
    kept[0, 0] = 1.0  # the caller's own
    assert memory.scores.tolist() == [[0.0, 0.0]]
    assert not memory.scores.flags.writeable


def test_memories_are_finite_and_name_their_inputs():
    for value in (np.nan, np.inf):
        with pytest.raises(ParameterError, match="NaN or infinite"):
            Baseline(np.array([[0.0, value]]), "0" * 64)
    for inputs in ("0" * 63, "0" * 65, "g" * 64, None, b"0" * 64):
        with pytest.raises(ParameterError, match="not SHA-256 in hex"):
            Baseline(np.zeros((1, 2)), inputs)


def test_the_slack_by_hand():
    """Exact axes: what numbers and sums may err by, against the length of the direction."""
    axes, drawn = np.eye(32)[:, :16], np.full(32, 3.0)
    shadow = drawn[:16]
    skew = 32 * 16 * 2.0**-53
    size = 3 * math.sqrt(32)
    moved = (1 + skew) * 1e-3 * (size + math.sqrt(32)) + 32 * 2.0**-53 * math.sqrt(32) * size
    assert _slack(axes, drawn, shadow, 1e-3) == pytest.approx(1e-12 + 2 * moved / 12 + 2 * skew, rel=1e-12)
    moved = (1 + skew) * 0 + 32 * 2.0**-53 * math.sqrt(32) * size
    exact = 1e-12 + 2 * moved / 12 + 2 * skew
    assert _slack(axes, drawn, shadow, 0.0) == pytest.approx(exact, rel=1e-9)


def test_a_direction_that_says_next_to_nothing_is_no_evidence(channel):
    for size, known in ((0.9e-9, False), (1.1e-9, True)):
        lean = channel.compare(size * channel.direction, -channel.direction, 160)
        assert (lean.cosine > 0.99) is known
        assert (lean.chord < 1) is known
    assert lean.chord_within == 2.0


def test_rows_for_other_inputs_are_refused(channel):
    with pytest.raises(SuspectError, match="159 rows of scores for 160 inputs"):
        channel.followed(channel.before[:-1])
    with pytest.raises(DataError, match="160 inputs, but 159 have baseline scores"):
        replace(channel, before=channel.before[:-1]).followed(channel.before)


class Words:
    """A stream of given words."""

    def __init__(self, *words):
        self.held = np.array(words, dtype=np.uint64)

    def words(self, n):
        assert n == len(self.held)
        return self.held


@pytest.mark.parametrize("k", [0, 1, 2, 5])
def test_the_farthest_normal_numbers_stand_in_the_middle_of_their_cells(k):
    """Half a unit of 2^-192 is all that keeps the first of them from infinity."""
    mp = mpmath.mp.clone()
    mp.dps = 80
    for sign in (0, 1):
        found = float(gaussians(Words(sign, 0, k), 1)[0])
        assert (found > 0) is bool(sign)
        outside = (mp.mpf(k) + mp.mpf(1) / 2) / mp.mpf(2) ** 192
        assert abs(mp.erfc(abs(found) / mp.sqrt(2)) / 2 / outside - 1) < 1e-10


def test_normal_numbers_take_three_words_each():
    half, quarter = 0, 2**62
    found = gaussians(Words(2**63 + 1, 0, 0, quarter, 5, 6, half + 3, 1, 2), 3)
    assert found[:2].tolist() == pytest.approx([ndtri(0.75), ndtri(0.125)])
    assert found[2] == pytest.approx(-ndtri(2.0**-64), rel=1e-12)


def test_normal_numbers_of_format_1_have_53_bits():
    mp = mpmath.mp.clone()
    mp.dps = 40
    words = [0, 2**11 - 1, 2**11, 2**63 - 1, 3 * 2**62 + 2**11 + 7, 2**64 - 2**13]
    found = _gaussians_1(Words(*words), len(words))
    for word, value in zip(words, found.tolist(), strict=True):
        below = (mp.mpf(word // 2**11) + mp.mpf(1) / 2) / 2**53
        assert abs(mp.ncdf(value) / below - 1) < 1e-12
    assert UNSURE_1 == 1 / 2**30
    sure = ScoreShift(1.0, 1.0, 0.0, 0.0, 64, 100, UNSURE_1)
    assert 29.99 < sure.bits() < 30  # whatever its cosine
    assert 28.99 < sure.bits(2) < 29
    assert ScoreShift(1.0, 1.0, 0.0, 0.0, 64, 100).bits() > 110


def test_the_slack_of_skew_axes_by_hand():
    """Axes of length two: the measured distance from orthonormal counts twice, and with the numbers."""
    axes, drawn = 2 * np.eye(32)[:, :16], np.full(32, 3.0)
    skew, size = 12 + 32 * 16 * 2.0**-53, 3 * math.sqrt(32)  # 16 entries that are off by three
    moved = (1 + skew) * 0.25 * (size + math.sqrt(32)) + 32 * 2.0**-53 * math.sqrt(32) * size
    expected = 1e-12 + 2 * moved / 24 + 2 * skew
    assert _slack(axes, drawn, 2 * drawn[:16], 0.25) == pytest.approx(expected, rel=1e-12)


def test_means_of_groups_also_where_a_number_is_not_used():
    values, groups = np.array([1.0, 2.0, 6.0, 5.0]), np.array([3, 0, 3, 1])
    assert _means(values, groups).tolist() == [3.5, 2.0, 3.5, 5.0]


def test_digests_of_baselines_by_hand():
    scores = np.array([[-0.25, -1.5], [-0.5, -3.0], [-7.0, 0.0]])
    kept = Baseline(np.asfortranarray(scores), "0123456789abcdef" * 4)
    numbers = struct.pack("<6d", *scores.ravel().tolist())
    old = hashlib.sha256(b"0123456789abcdef" * 4 + b";3,2;" + numbers)
    assert kept.digest(1) == old.hexdigest()
    assert kept.digest() == kept.digest(2) != kept.digest(1)
    assert kept.digest() == "bc47cd97f52903281186dcb409a7fbe4112b0ba46e1a9ab9d9978dcbbb95a602"


def test_a_baseline_is_of_format_2_unless_asked(motifs, plain):
    usual = Baseline.of(plain, motifs.data)
    assert usual.inputs == Inputs.of(motifs.data).digest(2) != Inputs.of(motifs.data).digest(1)
    assert Baseline.of(plain, motifs.data, version=1).inputs == Inputs.of(motifs.data).digest(1)
    np.testing.assert_allclose(np.exp(usual.scores).sum(1), 1)
    wrapped = Baseline.of(plain, motifs.data, forward=lambda net, batch: upside(net, batch))
    np.testing.assert_allclose(wrapped.scores, usual.scores[:, ::-1], rtol=1e-5, atol=1e-6)


def upside(net, batch):
    return net(batch.x, batch.edge_index, batch.batch).flip(1)


@pytest.mark.parametrize(("graphs", "features"), [(320, 16), (900, 45), (5000, 128)])
def test_auto_takes_one_feature_for_every_twenty_inputs(graphs, features):
    class Population:
        level, graphs = "graph", range(0)

    Population.graphs = range(graphs)
    assert _suitable_features(None, Population) == features


def test_auto_counts_the_nodes_of_a_node_task_and_refuses_too_few():
    class Population:
        level, graphs = "node", range(1000)

    class Task:
        num_nodes = 2708

    assert _suitable_features(Task, Population) == 128
    Task.num_nodes = 319
    with pytest.raises(ParameterError, match="319 inputs are too few for a score channel"):
        _suitable_features(Task, Population)
    with pytest.raises(ParameterError, match="does not say"):
        _suitable_features(range(3), Population)
