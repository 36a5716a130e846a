"""The context of a mark: the ends of every range, and what lies just beyond them."""

from __future__ import annotations

import hashlib
import json

import pytest

from invgnn.errors import ParameterError
from invgnn.watermark.context import bind, check_context

SAMPLER = {
    **{"delta": 0.1, "swap_step": 5, "swap_cap": 50, "size_quantile": 0.25, "wl": "structure"},
    **{"rounds": 3, "lenders": 3, "wave": 256, "patience": 64},
}
CONTEXT = {
    **{"format": 2, "m": 16, "key": "keyed", "invariant": "lambda2", "gap": 0.25, "sampler": SAMPLER},
    **{"level": "graph", "reference": "0123456789abcdef" * 4, "statistic": "combined", "ordinary": 64},
    "readings": [{"access": "embedding", "layer": "auto"}, {"access": "logits", "feature": "projection"}],
    "classes": 2,
}
LABELS = {"access": "labels", "classes": 3}
HIDDEN = {"access": "perception", "layer": "auto"}

ALLOWED = {
    "m": [8, 4096],
    "key": ["keyed", "plain"],
    "invariant": ["lambda2"],
    "gap": [0, 0.0, 0.5],
    "level": ["graph", "node"],
    "statistic": ["rank", "combined"],
    "ordinary": [1, 65_536],
    "classes": [None, 2, 65_536],
    "function": [16, 4096],
    "readings": [[LABELS | {"classes": 2}], [HIDDEN, CONTEXT["readings"][0]]],
}
REFUSED = {
    "format": [0, 3, 2.0, True, "2", None],
    "m": [6, 4098, 17, 16.0],
    "key": ["open", None],
    "invariant": ["beauty", None, 2],
    "gap": [-0.01, 0.51, float("nan"), None, "0.25", True],
    "level": ["edge", None],
    "statistic": ["best", None],
    "ordinary": [0, 65_537, 64.0, None],
    "reference": ["0" * 63, "0" * 65, "0" * 64 + "\n", "A" * 64, "g" * 64, None, 64],
    "classes": [1, 65_537, 2.0, True],
    "sampler": [None, [], SAMPLER | {"note": 1}],
    "function": [1, 15, 4097, 128.0, None],
    "readings": [
        *(None, {}, (), [], "logits", [None], [CONTEXT["readings"][1], "logits"]),
        *([CONTEXT["readings"][1]] * 2, [HIDDEN, {"access": "embedding", "layer": "out"}], [LABELS]),
        *([{"access": "logits"}], [CONTEXT["readings"][1] | {"layer": "auto"}]),
    ],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name in ALLOWED for value in ALLOWED[name]])
def test_the_ends_of_every_range_are_allowed(name, value):
    check_context(CONTEXT | {name: value})


NAMED = {"function": "score_channel", "readings": ".*"}  # by other names, or by many


@pytest.mark.parametrize(("name", "value"), [(name, value) for name in REFUSED for value in REFUSED[name]])
def test_what_lies_beyond_is_refused_by_name(name, value):
    with pytest.raises(ParameterError, match=rf"\b{NAMED.get(name, name)}\b") as caught:
        check_context(CONTEXT | {name: value})
    assert caught.value.advice


@pytest.mark.parametrize("value", [None, 2, ["lambda2"]])
def test_an_invariant_is_given_by_its_name(value):
    with pytest.raises(ParameterError, match="the invariant is not a name"):
        check_context(CONTEXT | {"invariant": value})


@pytest.mark.parametrize(
    ("size", "message"),
    [
        (0, "score_channel is 0, expected a whole number from 1 to 4096"),
        (1, "rounding can pass for evidence"),
    ],
)
def test_few_features_are_another_fault_than_none(size, message):
    with pytest.raises(ParameterError, match=message):
        check_context(CONTEXT | {"function": size})


def test_fields_too_many_or_too_few_are_listed():
    wrong = {name: value for name, value in CONTEXT.items() if name != "gap"} | {"note": 1, "function": 128}
    with pytest.raises(ParameterError, match=r"fields: \['gap', 'note'\]"):
        check_context(wrong)


@pytest.mark.parametrize("name", CONTEXT)
def test_every_field_is_needed(name):
    with pytest.raises(ParameterError):
        check_context({key: value for key, value in CONTEXT.items() if key != name})


@pytest.mark.parametrize("context", [None, [], "format", [("format", 2)], CONTEXT | {"note": 1}])
def test_other_things_are_no_context(context):
    with pytest.raises(ParameterError):
        check_context(context)


def test_labels_of_as_many_classes_as_there_are_or_of_a_task_without_known_classes():
    check_context(CONTEXT | {"readings": [LABELS], "classes": 3})
    check_context(CONTEXT | {"readings": [LABELS], "classes": None})


def test_a_second_channel_stands_beside_a_keyed_mark_only():
    check_context(CONTEXT | {"function": 128})
    with pytest.raises(ParameterError, match="needs a keyed mark"):
        check_context(CONTEXT | {"function": 128, "key": "plain"})


def test_format_1_knows_no_classes():
    old = {key: value for key, value in CONTEXT.items() if key != "classes"} | {"format": 1}
    check_context(old)
    with pytest.raises(ParameterError, match="classes"):
        check_context(old | {"classes": 2})
    text = json.dumps(old, sort_keys=True, separators=(",", ":")).encode()
    assert bind(old) == hashlib.sha256(b"invgnn/context/1" + text).hexdigest()
    assert bind(CONTEXT) == "f77f01f036f7dc7769602b1cf1a617357066140865a500b1f9bc7cd2d1b821e9"


def test_halves_are_shared_by_two_levels_only():
    both = CONTEXT | {"readings": [CONTEXT["readings"][1], LABELS | {"classes": 2}]}
    check_context(both | {"shared_halves": True})
    for wrong in (
        both | {"shared_halves": False},
        both | {"shared_halves": 1},
        CONTEXT | {"shared_halves": True},
    ):
        with pytest.raises(ParameterError, match="shared_halves"):
            check_context(wrong)
