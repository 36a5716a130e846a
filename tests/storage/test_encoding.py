"""One encoding for everything that is hashed: it can be decoded, so it is injective."""

from __future__ import annotations

import hashlib
import math
import struct

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from invgnn.errors import ParameterError
from invgnn.storage.encoding import DEEPEST, DTYPES, decode, digest, digest_encoded, encode

NAMES = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        ["", "edge_index", "s\x05\0\0\0\0\0\0\0name", "x;torch.float32;(1,);", "|", "\0", "é", "\U0001f9ed"]
    ),
)
ARRAYS = st.sampled_from(sorted(DTYPES)).flatmap(
    lambda name: arrays(np.dtype(name), array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3))
)
PLAIN = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**200), 2**200),
    st.floats(width=64),
    NAMES,
    st.binary(max_size=12),
    ARRAYS,
)
VALUES = st.recursive(
    PLAIN,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=8,
)


def same(one, other):
    """Equal to the last bit, types included."""
    if isinstance(one, np.ndarray):
        alike = isinstance(other, np.ndarray) and (one.dtype, one.shape) == (other.dtype, other.shape)
        return alike and one.tobytes() == other.tobytes()
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return struct.pack("<d", one) == struct.pack("<d", other)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    return one == other


@given(VALUES)
@example([-0.0, 0.0, math.nan, math.inf, True, 1, 1.0, "1", b"1", None, [], {}, "", b""])
@example({"": {}, "a": [[]], "b": np.zeros((0, 3), "<f4")})
def test_what_is_encoded_can_be_decoded(value):
    assert same(decode(encode(value)), value)


@given(VALUES, VALUES)
def test_equal_bytes_mean_equal_values(one, other):
    assert (encode(one) == encode(other)) == same(one, other)


@given(VALUES, st.data())
def test_nothing_but_canonical_bytes_is_decoded(value, data):
    """Flip, cut, or add: what still decodes is another value, whose one form these bytes are."""
    raw = bytearray(encode(value))
    how = data.draw(st.sampled_from(["flip", "cut", "add"]))
    if how == "flip":
        place = data.draw(st.integers(0, len(raw) - 1))
        raw[place] ^= data.draw(st.integers(1, 255))
    elif how == "cut":
        del raw[data.draw(st.integers(0, len(raw) - 1)) :]
    else:
        raw += data.draw(st.binary(min_size=1, max_size=12))
    try:
        other = decode(bytes(raw))
    except ParameterError:  # the messages: `test_other_forms_are_refused`
        return
    assert encode(other) == bytes(raw)
    assert not same(other, value)


def by_hand(tag, content):
    return tag + len(content).to_bytes(8, "little") + content


def test_the_form_is_the_one_on_the_page():
    """Golden: a change here breaks every mark in the field."""
    value = {"b": [None, True, -300, 0.5, "é", b"\1"], "a": np.array([[1, 2, 3]], "<i2")}
    inner = [
        by_hand(b"n", b""),
        by_hand(b"o", b"\1"),
        by_hand(b"i", b"-12c"),
        by_hand(b"d", struct.pack("<d", 0.5)),
        by_hand(b"s", "é".encode()),
        by_hand(b"b", b"\1"),
    ]
    shape = by_hand(b"l", by_hand(b"i", b"1") + by_hand(b"i", b"3"))
    array = by_hand(b"a", by_hand(b"s", b"<i2") + shape + b"\1\0\2\0\3\0")
    pairs = by_hand(b"s", b"a") + array + by_hand(b"s", b"b") + by_hand(b"l", b"".join(inner))
    assert encode(value) == by_hand(b"m", pairs)
    expected = hashlib.sha256(by_hand(b"s", b"here") + by_hand(b"m", pairs)).hexdigest()
    assert digest("here", value) == digest_encoded("here", encode(value)) == expected
    assert digest("there", value) != expected
    assert encode(False) == by_hand(b"o", b"\0")


@pytest.mark.parametrize(
    ("defect", "raw"),
    [
        (
            "keys out of order",
            by_hand(b"m", b"".join(by_hand(b"s", k) + by_hand(b"n", b"") for k in (b"b", b"a"))),
        ),
        ("a key twice", by_hand(b"m", 2 * (by_hand(b"s", b"a") + by_hand(b"n", b"")))),
        ("a key that is no text", by_hand(b"m", by_hand(b"i", b"1") + by_hand(b"n", b""))),
        ("a key without a value", by_hand(b"m", by_hand(b"s", b"a"))),
        ("leading zero", by_hand(b"i", b"01")),
        ("minus zero", by_hand(b"i", b"-0")),
        ("upper case", by_hand(b"i", b"FF")),
        ("no digits", by_hand(b"i", b"")),
        ("a long integer", by_hand(b"i", b"1" * 65)),
        ("a third truth value", by_hand(b"o", b"\2")),
        ("none with content", by_hand(b"n", b"x")),
        ("half a float", by_hand(b"d", b"1234")),
        ("not utf-8", by_hand(b"s", b"\xff")),
        ("unknown type", by_hand(b"z", b"")),
        ("an absurd length", b"s" + b"\xff" * 8),
        ("cut off", b"s\0\0"),
        ("nothing", b""),
        ("an array of objects", by_hand(b"a", by_hand(b"s", b"|O") + by_hand(b"l", b""))),
        ("an array that is too short", by_hand(b"a", by_hand(b"s", b"<f8") + by_hand(b"l", b"") + b"1234")),
        ("a negative size", by_hand(b"a", by_hand(b"s", b"<f8") + by_hand(b"l", by_hand(b"i", b"-1")))),
        (
            "a truth value of 2 in an array",
            by_hand(b"a", by_hand(b"s", b"|b1") + by_hand(b"l", b"") + b"\2"),
        ),
        ("nested without end", b"".join(b"l" + (9 * k).to_bytes(8, "little") for k in range(99, -1, -1))),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_other_forms_are_refused(defect, raw):
    with pytest.raises(ParameterError, match="not a canonical encoding"):
        decode(raw)


@pytest.mark.parametrize(
    "value",
    [
        object(),
        {1: 2},
        {"a": {2: 1}},
        1j,
        {1, 2},
        "\ud800",
        np.array(["a"]),
        np.array([None]),
        16**64,
        np.float32(1),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_has_no_canonical_bytes_is_refused(value):
    with pytest.raises(ParameterError) as caught:
        encode(value)
    assert caught.value.advice


def test_depth_has_a_limit():
    value: object = "x"
    for _ in range(DEEPEST):
        value = [value]
    assert decode(encode(value)) == value
    with pytest.raises(ParameterError, match="deep"):
        encode([value])
    for inner in (lambda one: {"a": one}, lambda one: [one]):  # maps count like lists
        held: object = {"last": 1}
        for _ in range(DEEPEST - 1):
            held = inner(held)
        assert decode(encode(held)) == held
        raw = encode(held)
        wrapped = by_hand(b"l", raw)
        for _ in range(2):
            with pytest.raises(ParameterError, match="deep"):
                decode(wrapped)
            wrapped = by_hand(b"l", wrapped)


def test_arrays_come_back_fresh_and_in_native_order():
    one = np.arange(6, dtype=">i4").reshape(2, 3)[:, ::-1]
    found = decode(encode(one))
    found[0, 0] = 7
    assert one[0, 0] == 2
    assert found.dtype == np.dtype("=i4")
    assert np.array_equal(found[1], one[1])


@pytest.mark.parametrize("wrap", [lambda value: {"a": value}, lambda value: [value]])
def test_maps_and_lists_are_nested_to_a_depth_and_no_deeper(wrap):
    value = 1
    for _ in range(DEEPEST):
        value = wrap(value)
    assert decode(encode(value)) == value
    with pytest.raises(ParameterError, match="nested more than"):
        encode(wrap(value))


@pytest.mark.parametrize(
    ("value", "fits"), [(16**64 - 1, True), (16**64, False), (1 - 16**63, True), (-(16**63), False)]
)
def test_integers_have_64_characters_at_most_and_the_sign_is_one(value, fits):
    if fits:
        assert decode(encode(value)) == value
        return
    with pytest.raises(ParameterError, match="too long"):
        encode(value)


@pytest.mark.parametrize("wrap", [lambda value: {"a": value}, lambda value: [value]])
def test_32_levels_are_written_and_read_and_33_are_not(wrap):
    value: object = None
    for _ in range(32):
        value = wrap(value)
    assert decode(encode(value)) == value
    with pytest.raises(ParameterError, match="more than 32 levels"):
        encode(wrap(value))
    for deeper in (by_hand(b"l", encode(value)), by_hand(b"m", by_hand(b"s", b"a") + encode(value))):
        with pytest.raises(ParameterError, match="more than 32 levels"):
            decode(deeper)


def test_the_types_of_arrays_are_those_on_the_page():
    wide = ["<f8", "<f4", "<f2", "<c16", "<c8", "<i8", "<i4", "<i2", "<u8", "<u4", "<u2"]
    assert {*wide, "|i1", "|u1", "|b1"} == DTYPES


def array_by_hand(shape, name=b"<f4", data=b""):
    sizes = b"".join(by_hand(b"i", b"%x" % size) for size in shape)
    return by_hand(b"a", by_hand(b"s", name) + by_hand(b"l", sizes) + data)


@pytest.mark.parametrize("shape", [(0, 2**48 - 1), (0,), (1,) * 31 + (0,)])
def test_arrays_have_at_most_32_axes_shorter_than_two_to_the_48(shape):
    assert decode(array_by_hand(shape)).shape == shape
    assert encode(np.zeros(shape, "<f4")) == array_by_hand(shape)


@pytest.mark.parametrize("shape", [(0, 2**48), (1,) * 32 + (0,), (0, -1)])
def test_arrays_of_impossible_shapes_are_refused(shape):
    with pytest.raises(ParameterError, match="impossible shape"):
        decode(array_by_hand(shape))


@pytest.mark.parametrize(
    ("why", "raw"),
    [
        ("an impossible shape", by_hand(b"a", by_hand(b"s", b"<f4") + by_hand(b"i", b"0"))),
        ("an impossible shape", by_hand(b"a", by_hand(b"s", b"<f4") + by_hand(b"l", by_hand(b"o", b"\1")))),
        ("an array has an unknown type", by_hand(b"a", by_hand(b"i", b"4") + by_hand(b"l", b""))),
        ("an array has an unknown type", array_by_hand((), b">f4", bytes(4))),
        ("does not match its shape", array_by_hand((2,), data=bytes(7))),
        ("does not match its shape", array_by_hand((2,), data=bytes(9))),
        ("a boolean is neither 0 nor 1", array_by_hand((3,), b"|b1", b"\0\1\2")),
        ("bytes after its end", by_hand(b"n", b"") + b"x"),
        ("it is truncated", b"n" + bytes(7)),
        ("longer than the value", b"b" + bytes([2]) + bytes(7) + b"x"),
        ("longer than the value", b"b" + bytes(7) + bytes([1])),
        ("longer than the value", by_hand(b"l", b"b" + bytes([2]) + bytes(7) + b"x") + b"y"),
        ("unknown type or invalid content", by_hand(b"d", bytes(7))),
        ("unknown type or invalid content", by_hand(b"d", bytes(9))),
        ("not UTF-8", by_hand(b"s", b"\xff")),
        ("not made of pairs", by_hand(b"m", by_hand(b"s", b"a"))),
    ],
)
def test_bytes_that_are_refused_are_refused_for_what_is_wrong(why, raw):
    with pytest.raises(ParameterError, match=why):
        decode(raw)


def test_truth_values_and_maps_of_several_entries_come_back():
    assert decode(array_by_hand((4,), b"|b1", b"\1\0\1\1")).tolist() == [True, False, True, True]
    flags = decode(encode([np.array([True, False]), 1]))
    assert (flags[0].tolist(), flags[1]) == ([True, False], 1)
    names = {f"key {number}": number / 2 for number in range(5)}
    assert decode(encode(names)) == names
