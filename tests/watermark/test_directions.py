"""The secret's vectors: which signs they hold, and what further or missing columns change."""

from __future__ import annotations

import pytest
import torch

from invgnn.secret import Secret
from invgnn.watermark.directions import directions

SECRET, BOUND = Secret(bytes(range(32))), "ab" * 32


def halves(count, *labels):
    """As many +1 as half the classes, rounded down, and -1 else, in the order of the secret."""
    signs = [1.0] * (count // 2) + [-1.0] * (count - count // 2)
    return [signs[i] for i in SECRET.derive("projection", BOUND, *labels).permutation(count)]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("width", [1, 8, 33])
def test_hidden_units_have_the_signs_of_the_stream(version, width):
    labels = ("embedding", width) if version == 1 else ("embedding",)
    signs = SECRET.derive("projection", BOUND, *labels).signs(width).tolist()
    assert directions(SECRET, BOUND, version, 5)("embedding", width).tolist() == signs
    assert set(signs) <= {-1, 1}


@pytest.mark.parametrize("access", ["logits", "labels"])
@pytest.mark.parametrize("width", [2, 5, 6])
def test_classes_of_format_1_are_as_many_as_columns(access, width):
    found = directions(SECRET, BOUND, 1, 4)(access, width).tolist()
    assert found == halves(width, access, width)


@pytest.mark.parametrize(("classes", "width"), [(5, 5), (5, 3), (5, 8), (4, 6), (None, 5), (None, 2)])
@pytest.mark.parametrize("access", ["logits", "labels"])
def test_columns_beyond_the_classes_get_nothing(access, classes, width):
    """Of scores the mean of the columns there are is taken away, of labels it is not."""
    count = classes or width
    signs = halves(count, access, count)[:width]
    mean = sum(signs) / len(signs) if access == "logits" else 0.0
    expected = [sign - mean for sign in signs] + [0.0] * (width - len(signs))
    assert directions(SECRET, BOUND, 2, classes)(access, width).tolist() == pytest.approx(expected)


def test_a_vector_has_the_precision_it_is_asked_for():
    direction = directions(SECRET, BOUND, 2, 3)
    assert direction("logits", 3).dtype == torch.float64
    assert direction("logits", 3, torch.zeros(1)).dtype == torch.float32


@pytest.mark.parametrize("classes", [2, 3, 6])
def test_labels_and_scores_of_one_mark_ask_for_the_same_answer(draw, classes):
    levels = ("logits", "labels")
    for seed in range(6):
        mark = draw(access=levels, classes=classes, seed=seed)
        scores, labels = (mark.direction(access, classes) for access in levels)
        assert mark.context["shared_halves"] is True
        torch.testing.assert_close(scores, labels - labels.mean())


def test_earlier_marks_keep_two_directions_and_are_opposite_for_some_secrets(draw):
    """The reason for one direction: with two classes the older levels often contradict each other."""
    products = set()
    for seed in range(12):
        mark = draw(access=("logits", "labels"), seed=seed, shared_halves=False)
        assert "shared_halves" not in mark.context
        products.add(float(mark.direction("logits", 2) @ mark.direction("labels", 2)))
    assert products == {-2.0, 2.0}


@pytest.mark.parametrize("access", [("logits",), ("embedding", "labels"), ("embedding", "logits")])
def test_a_single_level_of_classes_is_bound_as_before(draw, access):
    assert "shared_halves" not in draw(access=access).context
