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
