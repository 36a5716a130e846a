"""Public features and what the score channel makes of them: golden numbers, and numpy as a second opinion.

A change here loses every mark with a score channel, or its evidence. Features are defined up to the sign
of each axis, so absolute values are compared, or what does not depend on signs.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from statistics import NormalDist, median

import numpy as np
import pytest
import torch
from torch_geometric.data import Batch, Data

import invgnn.watermark.public_features
from _helpers.drawn import Lcg
from invgnn.errors import DataError, ParameterError
from invgnn.secret import public_stream
from invgnn.watermark.inputs import Inputs
from invgnn.watermark.public_features import Features, _weights
from invgnn.watermark.score_channel import ScoreChannel
from invgnn.watermark.score_shift import beyond, follow, standing

SINGLE = np.float32
UNITS = 128
SIZE = 16


@pytest.fixture(scope="module")
def data(rings):
    """Eighty small graphs."""
    graphs = [rings.take([number]) for number in range(len(rings))]
    return [
        Data(x=torch.from_numpy(g.x), edge_index=torch.from_numpy(g.directed()), num_nodes=g.num_nodes)
        for g in graphs
    ]


def plain(graph):
    return Data(edge_index=graph.edge_index, num_nodes=graph.num_nodes)


def lonely(graph):
    """The graph and a node that knows nobody and has no features to speak of."""
    x = torch.cat([graph.x, torch.zeros(1, graph.x.shape[1])])
    return Data(x=x, edge_index=graph.edge_index, num_nodes=graph.num_nodes + 1)


def union(graphs):
    """One graph, for a node task."""
    whole = Batch.from_data_list(graphs)
    return Data(x=whole.x, edge_index=whole.edge_index, num_nodes=whole.num_nodes)


def numbers(seed, *shape):
    """Numbers in [-1, 1) from Knuth's generator."""
    draws = Lcg(seed).below(np.full(int(np.prod(shape)), 2**31))
    return (draws / 2.0**30 - 1).reshape(shape)


# --- features, in numpy


def published(net, layer, width):
    """Signs of unit length per unit, and biases in [-1, 1]."""
    stream = public_stream("features", net, layer, width)
    signs = stream.signs(width * UNITS).astype(SINGLE).reshape(width, UNITS)
    return signs / SINGLE(np.sqrt(width)), (stream.words(UNITS) / 2.0**63 - 1).astype(SINGLE)


def summed(rows, groups, count):
    """One after the other, as torch does it: saturated units differ in nothing but their rounding."""
    total = np.zeros((count, rows.shape[1]), SINGLE)
    np.add.at(total, groups, rows)
    return total


def activations(batch, level, known=None):
    """Two networks of three layers, a mean over neighbours in one and a sum over roots in the other."""
    nodes, (here, there) = batch.num_nodes, batch.edge_index.numpy()
    degree = np.bincount(here, minlength=nodes).astype(SINGLE)
    start = [np.log(degree + 1)[:, None], np.ones((nodes, 1), SINGLE)]
    if batch.x is not None:
        lengths = np.linalg.norm(batch.x.numpy(), axis=1, keepdims=True)
        start.append(batch.x.numpy() / np.maximum(lengths, SINGLE(1e-6)))
    found, scales = [], []
    for net, share in enumerate((degree, np.sqrt(degree))):
        x = np.concatenate(start, axis=1)
        for layer in range(3):
            weight, bias = published(net, layer, x.shape[1])
            mapped = x @ weight
            mixed = mapped + summed(mapped[there], here, nodes) / np.maximum(share, 1)[:, None]
            scale = mixed.std(0, dtype=np.float64) if known is None else known[len(scales)]
            scales.append(scale.astype(SINGLE))
            x = np.tanh((SINGLE(1.5) * mixed / scales[-1] + bias).astype(np.float64)).astype(SINGLE)
            if level == "node":
                found.append(x)
                continue
            sizes = np.bincount(batch.batch).astype(SINGLE)[:, None]
            mean = summed(x, batch.batch.numpy(), len(sizes)) / sizes
            found += [mean, mean * sizes]
    return np.concatenate(found, axis=1).astype(np.float64), scales


def fitted(batch, level, dimension):
    """What gives the features of other inputs: the largest singular values of what stays within 3 sigma."""
    raw, scales = activations(batch, level)
    mean, spread = raw.mean(0), np.where(raw.std(0) < 1e-3, np.inf, raw.std(0))
    clipped = np.clip((raw - mean) / spread, -3, 3)
    _, sizes, axes = np.linalg.svd((clipped - clipped.mean(0)) / np.sqrt(len(raw)), full_matrices=False)

    def features(other):
        values = (activations(other, level, scales)[0] - mean) / spread
        return np.clip(values, -3, 3) @ axes[:dimension].T / sizes[:dimension]

    return features, sizes[:dimension]


FORMS = {"graphs": lambda graph: graph, "without features": plain, "with lonely nodes": lonely}


@pytest.mark.parametrize("form", [*FORMS, "nodes"])
def test_features_are_what_numpy_says(data, form):
    """Fitted to some inputs, and called on those and on others."""
    items = [FORMS.get(form, FORMS["graphs"])(graph) for graph in data]
    gather, level = (union, "node") if form == "nodes" else (Batch.from_data_list, "graph")
    first, rest = gather(items[:60]), gather(items[60:])
    ours = Features.fit(first, level, SIZE)
    theirs, sizes = fitted(first, level, SIZE)
    np.testing.assert_allclose(ours.sizes, sizes, rtol=1e-3)
    for batch in (first, rest):
        left, right = ours(batch).numpy(), theirs(batch)
        np.testing.assert_allclose(np.abs(left), np.abs(right), atol=1e-2)
        np.testing.assert_allclose(left @ left.T, right @ right.T, rtol=1e-3, atol=5e-2)


def test_golden_weights():
    weight, bias = _weights(1, 2, 5)
    np.testing.assert_allclose(weight.square().sum(0), 1, rtol=1e-6)
    assert hashlib.sha256((weight > 0).numpy().tobytes()).hexdigest()[:16] == GOLDEN["signs"]
    assert bias[:3].tolist() == pytest.approx(GOLDEN["biases"], rel=1e-6)


@pytest.mark.parametrize("level", ["graph", "node"])
def test_golden_features(data, level):
    batch = union(data) if level == "node" else Batch.from_data_list(data)
    features, golden = Features.fit(batch, level, SIZE), GOLDEN[level]
    found = features(batch)
    assert (features.level, features.dimension, found.dtype) == (level, SIZE, torch.float64)
    assert features.sizes[[0, 1, 2, 15]].tolist() == pytest.approx(golden["sizes"], rel=1e-5)
    assert found[:2, :3].abs().flatten().tolist() == pytest.approx(golden["first"], rel=1e-5, abs=1e-5)
    inner = (found @ found.T)[0, :3].tolist()
    assert inner == pytest.approx(golden["inner"], rel=1e-5, abs=1e-4)


def test_features_are_as_many_as_half_the_inputs_and_no_more(data):
    batch = Batch.from_data_list(data)
    assert Features.fit(batch, "graph", 40).dimension == 40
    with pytest.raises(
        ParameterError, match="80 inputs with features of rank 79 do not carry 41"
    ) as caught:
        Features.fit(batch, "graph", 41)
    assert "to 40" in caught.value.advice


def test_inputs_that_are_no_graphs_are_refused():
    empty = Data(x=torch.zeros(0, 3), edge_index=torch.zeros(2, 0).long(), num_nodes=0)
    for batch in (empty, Data(x=torch.ones(4, 3), num_nodes=4)):
        with pytest.raises(DataError, match="no nodes or no edges"):
            Features.fit(batch, "node", SIZE)


# --- what is read along them


@pytest.mark.parametrize("answers", [[3.0, 1, 2, 5, 4], [1.0, 1, 2], [7.0, 7, 7, 7], [-1e9, 0, 0, 1e-9]])
def test_standing_is_normal_scores_of_ranks(answers):
    places = [sum(b < a for b in answers) + (sum(b == a for b in answers) + 1) / 2 for a in answers]
    scores = np.array([NormalDist().inv_cdf((place - 0.5) / len(answers)) for place in places])
    np.testing.assert_allclose(standing(np.array(answers)), scores - scores.mean(), atol=1e-9)


def test_golden_standing():
    found = standing(np.array([3.0, 1, 2, 5, 4]))
    np.testing.assert_allclose(found, [0, -1.2815516, -0.5244005, 1.2815516, 0.5244005], atol=1e-6)


def test_beyond_is_what_a_projection_leaves():
    before, answers = numbers(1, 40, 3), numbers(2, 40)
    top = np.eye(3)[before.argmax(1)]
    known = np.column_stack([np.ones(40), top, *(standing(column) for column in before.T)])
    left = answers - known @ (np.linalg.pinv(known) @ answers)
    np.testing.assert_allclose(beyond(answers, before), left, atol=1e-9)
    np.testing.assert_allclose(beyond(answers, before)[:4], GOLDEN["beyond"], rtol=1e-5)


def test_what_follows_from_before_leaves_nothing_at_all():
    """Not even rounding: it would be read along every direction."""
    before = numbers(1, 40, 3)
    said = 2 * standing(before[:, 0]) - standing(before[:, 2]) + (before.argmax(1) == 1)
    assert beyond(said, before).tolist() == [0.0] * 40
    assert np.abs(beyond(said + 1e-6 * numbers(2, 40), before)).min() > 0


@pytest.mark.parametrize("size", [1e-6, 1e6])
def test_what_is_beyond_grows_with_the_answers(size):
    before, answers = numbers(1, 40, 3), numbers(2, 40)
    np.testing.assert_allclose(beyond(size * answers, before), size * beyond(answers, before), rtol=1e-6)
    said = size * (2 * standing(before[:, 0]) - standing(before[:, 2]))
    assert beyond(said, before).tolist() == [0.0] * 40


def usual(sizes, place, half):
    """The median of neighbours on both sides, beyond the ends mirrored."""
    wide = [*sizes[half - 1 :: -1], *sizes, *sizes[: -half - 1 : -1]]
    return median(wide[place : place + 2 * half + 1])


@pytest.mark.parametrize(("dimension", "half"), [(16, 8), (71, 8), (72, 9), (200, 25)])
def test_follow_counts_every_stretch_of_features_alike(dimension, half):
    """Covariances by the usual size around them, no more than 3 times that."""
    features, answers = numbers(3, 50, dimension) + 5, numbers(4, 50) + 1
    features *= np.linspace(9, 1, dimension)
    features[:, 4] *= 30
    along = [np.mean((column - column.mean()) * answers) for column in features.T]
    sizes = [abs(value) for value in along]
    expected = [min(3, max(-3, v / usual(sizes, i, half))) for i, v in enumerate(along)]
    np.testing.assert_allclose(follow(features, answers), expected, atol=1e-9)
    assert {abs(value) == 3 for value in expected} == {True, False}


def test_golden_follow():
    found = follow(numbers(3, 50, 16) + 5, numbers(4, 50))
    np.testing.assert_allclose(found[:4], GOLDEN["follow"], rtol=1e-5)
    assert follow(numbers(3, 50, 16), np.zeros(50)).tolist() == [0.0] * 16


def test_answers_of_next_to_nothing_follow_next_to_nothing():
    """Against 1e-12 at least, so that rounding is not blown up."""
    features, answers = numbers(3, 50, 16), 1e-13 * numbers(4, 50)
    along = [np.mean((column - column.mean()) * answers) for column in features.T]
    np.testing.assert_allclose(follow(features, answers), np.array(along) / 1e-12, rtol=1e-6)


def test_neither_side_is_followed_more_than_three_times_the_usual():
    """One feature far along, one as far against, beside many with a covariance of one."""
    answers = np.array([1.0, -1.0])
    found = follow(np.array([[9.0, -9.0, *[1.0] * 30], [-9.0, 9.0, *[-1.0] * 30]]), answers)
    assert found.tolist() == pytest.approx([3.0, -3.0, *[1.0] * 30])


SIGNS = {2: [-1.0, 1.0], 3: [1.0, -1.0, -1.0]}


def signs(access, width, like=None):
    assert access == "logits"
    return torch.tensor(SIGNS[width], dtype=torch.float64)


@pytest.fixture(scope="module")
def channel(data):
    """A direction that does not depend on how axes are signed."""
    features = Features.fit(Batch.from_data_list(data), "graph", SIZE)
    shadow = features.axes.numpy().T @ numbers(5, len(features.axes))
    direction, before = shadow / np.linalg.norm(shadow), numbers(6, 80, 3)
    return ScoreChannel(features, direction, signs, strength=0.6, before=before, inputs=Inputs.of(data))


class Words:
    """A stream of 64-bit words from Knuth's generator."""

    def __init__(self, seed):
        self.draws = Lcg(seed)

    def words(self, n):
        high, middle, low = self.draws.below(np.full(3 * n, 2**31)).reshape(n, 3).astype(np.uint64).T
        return high << np.uint64(33) | middle << np.uint64(2) | low & np.uint64(3)


def normal_numbers(version, n):
    """Of format 1 from the upper 53 bits of a word; since, a sign and how far out, from three."""
    words = [int(word) for word in Words(9).words(n if version == 1 else 3 * n)]
    if version == 1:
        return [NormalDist().inv_cdf(((word >> 11) + 0.5) / 2**53) for word in words]
    triples = zip(*[iter(words)] * 3, strict=True)
    outside = [(a % 2, (((a >> 1) << 128) + (b << 64) + c + 0.5) / 2**192) for a, b, c in triples]
    return [(-1 if positive else 1) * NormalDist().inv_cdf(p) for positive, p in outside]


@pytest.mark.parametrize("version", [1, 2])
def test_a_direction_is_the_shadow_of_normal_numbers(data, version):
    drawn = ScoreChannel.draw(Words(9), signs, data, SIZE, 0.6, numbers(6, 80, 3), version)
    shadow = drawn.features.axes.numpy().T @ normal_numbers(version, len(drawn.features.axes))
    np.testing.assert_allclose(drawn.direction, shadow / np.linalg.norm(shadow), atol=1e-9)
    golden = GOLDEN[f"format {version}"]
    along = drawn.along(Batch.from_data_list(data))
    assert along[:3].tolist() == pytest.approx(golden["along"], rel=1e-5, abs=1e-5)
    assert drawn.slack == pytest.approx(golden["slack"], rel=0.02)  # mostly bounds, a little measured
    assert (drawn.strength, drawn.unsure) == (0.6, golden["unsure"])


def test_nothing_said_is_as_far_from_the_direction_as_can_be(channel):
    lean = channel.compare(np.zeros(SIZE), -3 * channel.direction, 80)
    assert (lean.cosine, lean.chord) == (0.0, 2.0)
    assert (lean.within, lean.chord_within) == (pytest.approx(-1), 2.0)


def test_a_direction_is_of_format_2_unless_asked(channel, data, monkeypatch):
    before = numbers(6, 80, 3)
    monkeypatch.setattr(Features, "fit", lambda *_: channel.features)
    usual, new = (ScoreChannel.draw(Words(9), signs, data, SIZE, 0.6, before, *v) for v in ((), (2,)))
    assert usual.direction.tolist() == new.direction.tolist()
    assert (usual.slack, usual.unsure) == (new.slack, new.unsure)


def test_no_rounding_makes_a_cosine_larger_than_one(channel):
    long = replace(channel, direction=1.5 * channel.direction)
    lean = long.compare(channel.direction, -channel.direction, 80)
    assert (lean.cosine, lean.within) == (1.0, -1.0)


def test_the_slack_is_added_to_the_distance(channel):
    lean = replace(channel, slack=0.25, unsure=0.125).compare(*[channel.direction] * 2, 80)
    assert (lean.chord, lean.chord_within) == (pytest.approx(0.25), pytest.approx(0.25))
    assert lean.unsure == 0.125
    assert channel.compare(channel.direction, channel.direction, 80).unsure == 0


def test_of_a_row_with_gaps_the_largest_known_score_is_its_class(channel, data):
    """Its answer counts as the lower median all the same."""
    scores = numbers(8, 80, 3)
    gaps = scores.copy()
    gaps[::7, 0] = np.nan
    features = channel.features(Batch.from_data_list(data)).numpy()
    answers = gaps @ (np.array(SIGNS[3]) - np.mean(SIGNS[3]))
    known = sorted(answers[~np.isnan(answers)])
    answers = standing(np.where(np.isnan(answers), known[(len(known) - 1) // 2], answers))
    answers = beyond(answers, channel.before)
    top = np.array(
        [max(range(3), key=lambda i, r=row: -np.inf if np.isnan(r[i]) else r[i]) for row in gaps]
    )
    means = np.array([answers[top == label].mean() for label in range(3)])
    found, within = channel.followed(gaps)
    np.testing.assert_allclose(found, follow(features, answers), atol=1e-9)
    np.testing.assert_allclose(within, follow(features, answers - means[top]), atol=1e-9)


def test_a_shifted_teacher_is_called_as_asked(channel, data):
    batch, scores = Batch.from_data_list(data), torch.from_numpy(numbers(7, 80, 3))
    teacher = channel.shifted_teacher(torch.nn.Identity(), lambda model, given: model(scores))
    assert teacher(batch).equal(channel.shift(scores, batch))


@pytest.mark.parametrize("classes", [2, 3])
def test_leaning_scores_move_by_half_the_strength_either_way(channel, data, classes):
    batch, scores = Batch.from_data_list(data), numbers(7, 80, classes)
    along = channel.features(batch).numpy() @ channel.direction
    np.testing.assert_allclose(along[:3], GOLDEN["along"], rtol=1e-5, atol=1e-5)
    expected = scores + 0.3 * along[:, None] * SIGNS[classes]
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-6)):
        leaning = channel.shift(torch.from_numpy(scores).to(dtype), batch)
        assert leaning.dtype == dtype
        np.testing.assert_allclose(leaning, expected, atol=tolerance)


def reread(channel, data, scores):
    """Two cosines, from the functions above: of the answers, and of how they differ within a class."""
    features = channel.features(Batch.from_data_list(data)).numpy()
    logs = scores - np.log(np.exp(scores).sum(1, keepdims=True))
    answers = standing(logs @ (np.array(SIGNS[3]) - np.mean(SIGNS[3])))
    answers = beyond(answers, channel.before)
    within = answers.copy()
    for label in range(3):
        chosen = scores.argmax(1) == label
        within[chosen] -= answers[chosen].mean()
    found = (follow(features, values) for values in (answers, within))
    return [float(one @ channel.direction / np.linalg.norm(one)) for one in found]


def test_golden_reading(channel, data):
    leaning = channel.shift(torch.from_numpy(2 * numbers(8, 80, 3)), Batch.from_data_list(data))
    lean = channel.read(lambda batch: leaning)
    found = [lean.cosine, lean.within]
    assert found == pytest.approx(reread(channel, data, leaning.numpy()), abs=1e-9)
    assert found == pytest.approx(GOLDEN["cosines"], abs=1e-4)
    chords = [lean.chord, lean.chord_within]
    assert chords == pytest.approx(np.sqrt(2 - 2 * np.array(found)).tolist(), abs=1e-9)
    assert (lean.dimension, lean.inputs) == (SIZE, 80)


GOLDEN = {
    "signs": "34028e48f196b139",
    "biases": [0.82075125, -0.51830977, 0.46314728],
    "graph": {
        "sizes": [21.034615, 17.291871, 15.497573, 1.8164282],
        "first": [1.6905509, 0.0806027, 0.7897280, 0.2855995, 0.3252670, 1.3755489],
        "inner": [12.033403, -0.1518796, -2.1214055],
    },
    "node": {
        "sizes": [11.85471, 11.300999, 6.8869067, 1.6137226],
        "first": [1.1819694, 0.3933209, 0.4327585, 2.1114053, 0.7179029, 1.6614862],
        "inner": [10.571832, -2.5518073, 0.7369676],
    },
    "beyond": [0.5190396, 0.83287473, 0.60428993, -0.27847182],
    "follow": [-2.9328388, 1.5999071, 0.0018385478, -0.57373505],
    "along": [-0.5408290, 0.3661192, 1.6779789],
    "format 1": {"along": [-0.5764458, 0.5019452, 0.9335953], "slack": 9.7785e-3, "unsure": 2.0**-30},
    "format 2": {"along": [0.3120001, 0.9415124, 0.8137080], "slack": 5.6475e-11, "unsure": 0.0},
    "cosines": [0.8503835, 0.6954974],
}


def test_inputs_that_are_all_alike_carry_no_direction(data):
    with pytest.raises(ParameterError, match="features of rank 0") as caught:
        Features.fit(Batch.from_data_list([data[0]] * 40), "graph", 16)
    assert "too few" in caught.value.advice


def columns(monkeypatch, *held):
    """Inputs whose networks would answer just this, one column per unit."""
    raw = torch.from_numpy(np.column_stack(held))
    name = "invgnn.watermark.public_features._activations"
    monkeypatch.setattr(name, lambda batch, level, known: (raw, ()))


def waves(number):
    """Of 64 inputs, columns of +1 and -1 that are uncorrelated."""
    found = np.ones((1, 1))
    for _ in range(6):
        found = np.block([[found, found], [found, -found]])
    return found[:, 1 : number + 1].T


@pytest.mark.parametrize(("bent", "rank"), [(7e-4, 3), (4e-3, 4)])
def test_directions_of_a_ten_thousandth_of_the_widest_are_rounding(monkeypatch, bent, rank):
    """One hundred units alike spread by ten, two that differ a little by seven tenths of that little."""
    first, second, third, other = waves(4)
    columns(monkeypatch, *[first] * 100, second, third, third + bent * other)
    with pytest.raises(ParameterError, match=f"64 inputs with features of rank {rank} do not carry 16"):
        Features.fit(None, "graph", 16)


@pytest.mark.parametrize(("version", "kept"), [(1, [True, True]), (2, [False, True])])
def test_units_that_hardly_vary_are_left_out_since_format_2(monkeypatch, version, kept):
    first, second, *others = waves(20)
    columns(monkeypatch, 0.0009 * first, 0.0015 * second, *others)
    found = Features.fit(None, "node", 18, version)
    assert torch.isfinite(found.spread)[:2].tolist() == kept
    assert torch.isfinite(found.spread)[2:].all()


def test_degrees_count_the_edges_that_leave_a_node():
    one_way = Data(edge_index=torch.tensor([[0, 0, 1], [1, 2, 2]]), num_nodes=3)
    own, _, degree = invgnn.watermark.public_features._start(one_way)
    assert degree.tolist() == [[2.0], [1.0], [1.0]]
    assert own[:, 0].exp().tolist() == pytest.approx([3, 2, 1])
