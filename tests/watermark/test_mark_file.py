"""What a mark's file holds: every part needed, none unknown, and the same mark again."""

from __future__ import annotations

from dataclasses import fields, replace
from types import SimpleNamespace

import numpy as np
import pytest

from invgnn.errors import ParameterError
from invgnn.graphs.disjoint_union import Graphs
from invgnn.watermark.baseline import Baseline
from invgnn.watermark.mark_file import _counts, pack, unpack


@pytest.fixture(scope="module")
def held(draw):
    mark = draw()
    body, tensors = pack({one.name: getattr(mark, one.name) for one in fields(mark)}, mark.digest)
    return body, dict(tensors)


def unpacked(body, tensors):
    return unpack(SimpleNamespace(body=body, tensors=tensors))


def test_a_mark_comes_back_from_its_parts(draw, held):
    mark, found = draw(), unpacked(*held)
    assert bytes(found["secret"]) == bytes(mark.secret)
    assert found["context"] == mark.context
    assert (found["scale"].low, found["scale"].high) == (mark.scale.low, mark.scale.high)
    assert found["recipe"] == mark.recipe
    assert found["rejected"] == mark.rejected
    assert found["baseline"] is None
    assert found["labels"].tolist() == mark.labels.tolist()
    for name in ("carriers", "ordinary"):
        assert found[name].digest() == getattr(mark, name).digest()
    assert not any("bits" in name for part in held for name in part)


def test_a_baseline_is_kept_with_the_digest_of_its_inputs(draw):
    mark = draw(score_channel=16)
    mark = replace(mark, baseline=Baseline(np.array([[-0.5, -1.0], [-2.0, -0.25]]), "ab" * 32))
    body, tensors = pack({one.name: getattr(mark, one.name) for one in fields(mark)}, "digest")
    assert (body["inputs"], body["digest"]) == ("ab" * 32, "digest")
    assert tensors["before"].tolist() == [[-0.5, -1.0], [-2.0, -0.25]]
    found = unpacked(body, dict(tensors))["baseline"]
    assert (found.inputs, found.scores.tolist()) == ("ab" * 32, [[-0.5, -1.0], [-2.0, -0.25]])
    for lost in ("inputs", "before"):
        rest = [{k: v for k, v in part.items() if k != lost} for part in (body, tensors)]
        with pytest.raises(ParameterError, match="missing or unknown"):
            unpacked(*rest)


def test_graphs_without_features_and_labels_have_no_parts_for_them(draw):
    mark = draw()
    bare = {
        name: Graphs(getattr(mark, name).ptr, getattr(mark, name).edges)
        for name in ("carriers", "ordinary")
    }
    given = {one.name: getattr(mark, one.name) for one in fields(mark)} | bare | {"labels": None}
    body, tensors = pack(given, mark.digest)
    assert sorted(tensors) == ["carriers.edges", "carriers.ptr", "ordinary.edges", "ordinary.ptr", "secret"]
    found = unpacked(body, dict(tensors))
    assert (found["carriers"].x, found["ordinary"].x, found["labels"]) == (None, None, None)


def test_every_part_is_needed_and_no_other_is_known(held):
    body, tensors = held
    assert set(body) == {"context", "recipe", "rejected", "scale", "digest"}
    for name in body:
        with pytest.raises(ParameterError, match=f"missing or unknown: {name}"):
            unpacked({key: value for key, value in body.items() if key != name}, tensors)
    needed = ["secret", "carriers.ptr", "carriers.edges", "ordinary.ptr", "ordinary.edges"]
    assert sorted(tensors) == sorted([*needed, "carriers.x", "ordinary.x", "labels"])
    for name in needed:
        with pytest.raises(ParameterError, match=f"missing or unknown: {name}"):
            unpacked(body, {key: value for key, value in tensors.items() if key != name})
    for odd in (({"note": 1}, {}), ({}, {"note": 1}), ({"inputs": "0"}, {}), ({}, {"before": 0})):
        with pytest.raises(ParameterError, match="missing or unknown"):
            unpacked(body | odd[0], tensors | odd[1])


def test_a_traceback_of_packing_shows_no_plain_secret(draw):
    mark = draw()
    given = {one.name: getattr(mark, one.name) for one in fields(mark)} | {"carriers": None}
    with pytest.raises(AttributeError) as caught:
        pack(given, mark.digest)
    (shown,) = (entry.frame.f_locals for entry in caught.traceback if entry.name == "pack")
    assert "tensors" in shown  # the secret has been read
    assert not [name for name, value in shown.items() if "secret" in name or type(value) is np.ndarray]


def test_labels_may_be_unknown(held):
    body, tensors = held
    assert unpacked(body, {k: v for k, v in tensors.items() if k != "labels"})["labels"] is None


@pytest.mark.parametrize("secret", [np.zeros(31, np.uint8), np.zeros(33, np.uint8), np.zeros(32, np.int64)])
def test_a_secret_is_32_bytes(held, secret):
    body, tensors = held
    with pytest.raises(ParameterError, match="secret is not 32 bytes"):
        unpacked(body, tensors | {"secret": secret})


def test_counts_of_refused_candidates_have_limits():
    most = {str(number): 2**62 for number in range(100)} | {"0": 0}
    assert _counts(most) == most
    for wrong in (
        None,
        [],
        {str(number): 1 for number in range(101)},
        {"a": -1},
        {"a": 2**62 + 1},
        {"a": 1.0},
    ):
        with pytest.raises(ParameterError):
            _counts(wrong)
