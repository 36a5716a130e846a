"""Columns matched to classes by labelled inputs: right where possible, and never a false accusation."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from invgnn.audit.examine import examine
from invgnn.audit.verify import verify
from invgnn.readout.alignment import assign, in_order, select
from invgnn.secret import Secret
from invgnn.stats import laws
from invgnn.stats.evidence import evidence_of
from invgnn.training.tasks import new_model
from invgnn.training.trainer import train
from invgnn.watermark.mark import Watermark
from invgnn.watermark.reference import Reference


def scores(labels, classes, rng, noise=1.0):
    """Log-probabilities that mostly favour the right class."""
    raw = noise * rng.normal(size=(len(labels), classes))
    raw[np.arange(len(labels)), labels] += 1.5
    return torch.from_numpy(raw).log_softmax(-1)


@given(st.integers(2, 6), st.integers(0, 10**6))
def test_any_order_is_found(classes, seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, 40 * classes)
    order = rng.permutation(classes)
    found = assign(scores(labels, classes, rng)[:, order], labels, classes)
    assert [order[column] for column in found] == list(range(classes))


@given(st.integers(2, 5), st.integers(0, 4), st.integers(0, 10**6), st.sampled_from([-50.0, 0.0, 50.0]))
def test_uninformative_columns_are_skipped(classes, front, seed, level):
    """Empty classes in front and behind, whether their scores are tiny or huge."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, 60 * classes)
    logs = scores(labels, classes, rng)
    empty = torch.full((len(labels), front), level, dtype=torch.float64)
    served = torch.cat([empty, logs, empty], 1).log_softmax(-1)
    assert assign(served, labels, classes) == tuple(range(front, front + classes))
    torch.testing.assert_close(select(served, assign(served, labels, classes)), logs)


def test_classes_without_a_column_or_a_label():
    logs = torch.log(torch.tensor([[0.9, 0.1], [0.1, 0.9]], dtype=torch.float64))
    assert assign(logs, np.array([0, 2]), 3) == (0, -1, 1)
    assert assign(logs, np.array([-1, -1]), 3) == in_order(3, 2) == (0, 1, -1)
    assert assign(logs[:, [1, 0]], np.array([0, -1]), 2) == (0, 1)  # one label says nothing
    assert assign(torch.full((2, 2), torch.nan, dtype=torch.float64), np.array([1, 0]), 2) == (0, 1)
    lacking = select(logs, (0, -1, 1))
    assert torch.allclose(lacking.exp().sum(-1), torch.ones(2, dtype=torch.float64))
    assert lacking[:, 1].max() < -13


def test_rare_classes_count_as_much_as_common_ones():
    """Means, not sums: thirty inputs of one class do not outvote one input of another."""
    logs = torch.log(
        torch.tensor([[0.5, 0.5]] * 30 + [[0.05, 0.95]] + [[0.6, 0.4]] * 30, dtype=torch.float64)
    )
    labels = np.array([0] * 30 + [0] + [1] * 30)
    rows = (logs - logs.mean(0)).numpy()
    means = np.stack([rows[labels == c].mean(0) for c in (0, 1)])
    straight, crossed = means[0, 0] + means[1, 1], means[0, 1] + means[1, 0]
    assert assign(logs, labels, 2) == ((0, 1) if straight >= crossed else (1, 0))
    few = torch.log(
        torch.tensor([[0.9, 0.1]] + [[0.45, 0.55]] * 30 + [[0.5, 0.5]] * 2, dtype=torch.float64)
    )
    assert assign(few, np.array([0] + [1] * 30 + [-1] * 2), 3)[:2] == (0, 1)


def test_equal_fits_keep_the_order_in_which_columns_come():
    flat = torch.full((8, 3), -math.log(3), dtype=torch.float64)
    assert assign(flat, np.arange(8) % 3, 3) == (0, 1, 2)


def test_the_assignment_has_the_largest_sum_of_mean_log_probabilities():
    """By trying all six orders; a class that occurs once counts as much as one that occurs three times."""
    labels = np.array([0, 1, 1, 2, 2, 2, -1])
    for seed in range(50):
        logs = np.random.default_rng(seed).normal(size=(7, 3))
        rows = logs[:6] - logs[:6].mean(0)  # the last has no label
        means = [rows[labels[:6] == c].mean(0) for c in range(3)]
        orders = itertools.permutations(range(3))
        best = max(orders, key=lambda order: sum(means[c][order[c]] for c in range(3)))
        assert assign(torch.from_numpy(logs), labels, 3) == best


@pytest.mark.parametrize(("better", "found"), [(5e-10, (0, 1)), (2e-9, (1, 0))])
def test_another_order_must_fit_better_by_more_than_rounding(better, found):
    logs = torch.tensor([[0.0, better], [better, 0.0]], dtype=torch.float64)
    assert assign(logs, np.array([0, 1]), 2) == found


# --- the null stays exact


@settings(max_examples=4)
@given(st.integers(0, 10**6))
def test_two_ways_and_two_levels_count_as_tests_by_enumeration(seed):
    """All 924 keys of 12 carriers: the best of four sets of answers, times four, is a p-value."""
    rng, m = np.random.default_rng(seed), 12
    answers = [rng.normal(size=m), rng.integers(0, 2, m).astype(float), rng.normal(size=m).round(), None]
    answers[3] = -answers[0]  # the other way to read two columns
    keys = np.array([[i in ones for i in range(m)] for ones in itertools.combinations(range(m), m // 2)])
    p = [
        math.exp(laws.log_p_times(min(evidence_of(one, key.astype(int)).log_p for one in answers), 4))
        for key in keys
    ]
    for u in sorted(set(p)):
        assert np.mean(np.array(p) <= u) <= u


@pytest.fixture(scope="module")
def innocent(motifs):
    """Unmarked models served in every format, each under 15 fresh secrets: all p-values of `examine`."""
    found: dict[str, list[float]] = {}
    reference = Reference.of(motifs.data)
    for seed, backbone in enumerate(("GIN", "GraphSAGE")):
        model = new_model(motifs, backbone, seed, hidden_channels=16)
        train(model, motifs, epochs=4, seed=seed)
        for number in range(15):
            secret = Secret(bytes([seed, number] * 16))
            mark = Watermark.draw(secret, reference, m=32, access=("embedding", "logits", "labels"))
            for name, suspect in formats(model).items():
                found.setdefault(name, []).append(laws.p_of(examine(mark, suspect).log_p))
    return found


def formats(model):
    """A model of two classes, as it is and as it may be served."""

    def raw(batch):
        with torch.no_grad():
            return model.eval()(batch.x, batch.edge_index, batch.batch).double()

    def empty(batch):
        return torch.zeros(batch.num_graphs, 1, dtype=torch.float64)

    return {
        "the model": model,
        "logits": raw,
        "probabilities": lambda b: raw(b).softmax(-1),
        "log-probabilities": lambda b: raw(b).log_softmax(-1),
        "percentages": lambda b: 100 * raw(b).softmax(-1),
        "rolled": lambda b: raw(b).softmax(-1).roll(1, 1),
        "empty in front": lambda b: torch.cat([empty(b), raw(b).softmax(-1)], 1),
        "empty behind": lambda b: torch.cat([raw(b).softmax(-1), empty(b)], 1),
        "log-odds of class 0": lambda b: raw(b)[:, 0] - raw(b)[:, 1],
        "log-odds of class 1": lambda b: raw(b)[:, 1] - raw(b)[:, 0],
        "probability of class 0": lambda b: raw(b).softmax(-1)[:, 0],
        "with an empty class at minus infinity": lambda b: torch.cat(
            [raw(b).log_softmax(-1), empty(b) - torch.inf], 1
        ),
        "with a spare column of NaN": lambda b: torch.cat([empty(b) * torch.nan, raw(b).softmax(-1)], 1),
        "tiny": lambda b: 1e-20 * raw(b),
        "huge": lambda b: 3e306 * raw(b).clamp(-9, 9),
        "label numbers": lambda b: raw(b).argmax(1),
        "other numbers": lambda b: 7000 - 1000 * raw(b).argmax(1),
        "label names": lambda b: np.array(["mutagen", "harmless"])[raw(b).argmax(1).numpy()],
    }


@pytest.mark.parametrize("alpha", [0.1, 0.02])
def test_the_innocent_are_rarely_accused_in_any_format(innocent, alpha):
    from scipy.stats import binomtest

    assert len(innocent) == 18
    for name, p in innocent.items():
        assert len(p) == 30
        hits = sum(one <= alpha for one in p)
        assert binomtest(hits, len(p), alpha, alternative="greater").pvalue > 1e-3, name


# --- a copy is read whatever its format


@pytest.fixture(scope="module")
def marked(motifs):
    mark = Watermark.draw(Secret(b"m" * 32), motifs.data, m=64, access=("embedding", "logits"))
    model = new_model(motifs, "GIN", 3)
    train(model, motifs, mark, epochs=40, seed=3)
    return mark, model


def test_every_format_of_scores_reads_the_same(marked):
    mark, model = marked
    served = formats(model)
    bits = {name: verify(suspect, mark).evidence_bits for name, suspect in served.items()}
    usual = bits.pop("logits")
    assert bits.pop("the model") >= usual > 30
    for name in ("label numbers", "other numbers", "label names"):
        assert bits.pop(name) > 15, name  # only the top class is left
    for name, found in bits.items():
        assert found == pytest.approx(usual, abs=1.01), name  # one bit where two ways were tried


def test_the_verdict_says_how_columns_were_read(marked):
    mark, model = marked
    plain, rolled = (verify(formats(model)[name], mark) for name in ("probabilities", "rolled"))
    assert (plain.columns, rolled.columns) == (None, (1, 0))
    assert (plain.tests, rolled.tests) == (2, 4)
    assert "are read from columns 1, 0" in str(rolled)
    assert rolled.to_json()["columns"] == (1, 0)


def test_without_labels_columns_are_read_as_they_come(marked):
    mark, model = marked
    blind = replace(mark, labels=None)
    found = examine(blind, formats(model)["rolled"])
    assert (found.tests, found.aligned) == (2, False)
