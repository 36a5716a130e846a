"""Whatever a server returns is read as replies that a file can hold, or refused with advice."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from invgnn.audit.remote.journal import Journal
from invgnn.audit.remote.mapping import JsonMapping
from invgnn.audit.remote.reply import Reply
from invgnn.audit.remote.transport import Transport
from invgnn.audit.remote.wire import OpenInference, parsed
from invgnn.errors import ParameterError, SuspectError
from invgnn.graphs.disjoint_union import Graphs

TWO = Graphs(np.array([0, 3, 7]), np.array([[0, 1], [1, 2], [3, 4], [5, 6]]), np.ones((7, 2), np.float32))
SHAPES = {
    "one": JsonMapping({"x": "$x"}, {"g": "$graphs"}, "a", "b", graphs_per_request=2),
    "alone": JsonMapping({"x": "$x"}, {"g": "$graph"}),
}
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-2, 9)
    | st.sampled_from([2**63, 2**64, -(10**400), 10**400, "\ud800", "\x00", "a" * 201])
    | st.floats()
    | st.text(st.characters(codec=None), max_size=5)
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["a", "b", "name", "shape", "data", "id", "outputs"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)
outputs = st.fixed_dictionaries(
    {
        "outputs": st.lists(
            st.fixed_dictionaries({"shape": values, "data": values}, optional={"name": values})
        )
    },
    optional={"id": values},
)


def read(decode, value, graphs):
    """The replies, through JSON and through a journal; None if the server is refused."""
    body = json.dumps(value).encode("utf-8", "surrogatepass")
    try:
        replies = decode(parsed(body), graphs, "n")
    except SuspectError:
        return None
    journal = Journal()
    journal.answered(["q"] * len(replies), replies, sent=1, requests=1)
    journal.rewind()
    assert len(replies) == len(graphs)
    for reply in replies:
        again = journal.take("q")
        assert again is not None
        assert again.same(reply, 0) or not np.isfinite(reply.rows).all()
    return replies


@given(values | outputs)
def test_the_open_inference_protocol(value):
    read(OpenInference().decode, value, TWO)


@given(values | st.fixed_dictionaries({"a": st.lists(st.fixed_dictionaries({"b": values}), max_size=3)}))
def test_other_shapes(value):
    read(SHAPES["one"].decode, value, TWO)
    read(SHAPES["alone"].decode, value, TWO.take([0]))


def output(data, shape=None, **more):
    return {"outputs": [{"name": "scores", "shape": shape or [len(data)], "data": data, **more}]}


@pytest.mark.parametrize(
    "value",
    [
        *(output([1, 2], name=[]), output([1, 2], name={}), output([1, 2])),
        output([1, 2], name=None),  # an output without a name is read if there is no other
    ],
    ids=str,
)
def test_odd_names_of_outputs(value):
    found = read(OpenInference().decode, value, TWO)
    assert [reply.rows.tolist() for reply in found] == [[1], [2]]


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (output(["\ud800", "a"]), "no Unicode"),
        (output([1, 2], shape=[10**9] * 10_000), "shape"),
        (output([[1, 2], [3]]), "no array"),
        (output([10**400, 1]), "no array"),
        (output(["a" * 201, "b"]), "too long"),
        ({"outputs": {}}, "no list of outputs"),
        ({"outputs": [1, None, []]}, "no output"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_is_refused(value, told):
    with pytest.raises(SuspectError, match=told) as caught:
        OpenInference().decode(json.loads(json.dumps(value)), TWO, "n")
    assert len(caught.value.message) < 300


def test_a_response_of_many_empty_lists_is_not_read():
    """Fifteen megabytes of them would take two seconds and 400 megabytes, for every request."""
    with pytest.raises(SuspectError, match="parts"):
        parsed(b"[" + b"[]," * (1 << 20) + b"0]")
    assert len(parsed(b"[" + b"[0]," * 50_000 + b"[0]]")) == 50_001


def test_long_refusals_are_cut():
    assert len(Reply(None, "a" * 10_000).record()["refused"]) == 200


@pytest.mark.parametrize(
    "name", ["X-Key\r\nEvil", "a b", "", "X:Y", "naïve", "X\0", "Host", "content-length"]
)
def test_names_of_headers(name):
    with pytest.raises(ParameterError, match="header"):
        Transport("https://example.com/x", {name: "HOME"})
    assert Transport("https://example.com/x", {"X-Api-Key": "HOME"}).headers
