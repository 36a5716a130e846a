"""The tree of a claim: against an independent implementation, and golden vectors."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from invgnn.court.merkle import hash_leaf, path_of, root_from, root_of
from invgnn.errors import ParameterError

leaves = st.lists(st.binary(min_size=32, max_size=32), min_size=1, max_size=40)


def node(left, right):
    return hashlib.sha256(b"invgnn/merkle/1/node\0" + left + right).digest()


def by_levels(hashes):
    """The same tree built level by level: a node without a neighbour moves up unchanged."""
    while len(hashes) > 1:
        pairs = [hashes[i : i + 2] for i in range(0, len(hashes), 2)]
        hashes = [node(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
    return hashes[0]


@given(leaves)
def test_the_root_is_that_of_an_independent_tree(hashes):
    assert root_of(hashes) == by_levels(hashes)


@given(leaves, st.data())
def test_a_path_leads_from_its_place_to_the_root_and_from_no_other(hashes, data):
    place = data.draw(st.integers(0, len(hashes) - 1))
    path, root = path_of(hashes, place), root_of(hashes)
    assert root_from(hashes[place], place, len(hashes), path) == root
    other = data.draw(st.integers(-2, len(hashes) + 2))
    if other != place:
        assert root_from(hashes[place], other, len(hashes), path) != root or hashes.count(hashes[place]) > 1
    assert root_from(b"\1" * 32, place, len(hashes), path) != root
    if path:
        assert root_from(hashes[place], place, len(hashes), path[:-1]) is None
        assert root_from(hashes[place], place, len(hashes), [*path[:-1], bytes(32)]) != root


def test_a_node_never_passes_for_a_leaf():
    a, b = hash_leaf(bytes(32), b"a"), hash_leaf(bytes(32), b"b")
    assert hash_leaf(a, b) != root_of([a, b])


def test_golden_vectors():
    hashes = [hash_leaf(bytes([i]) * 32, b"content") for i in range(5)]
    assert hashes[0].hex() == hashlib.sha256(b"invgnn/merkle/1/leaf\0" + bytes(32) + b"content").hexdigest()
    assert root_of(hashes).hex() == "24897054605006f2928df8e3792f2c0c2268bf2beaa9d7fdb9248a738e7e5c35"


@pytest.mark.parametrize(
    "wrong",
    [lambda: hash_leaf(b"", b""), lambda: root_of([]), lambda: path_of([b""], 1), lambda: path_of([], 0)],
)
def test_what_is_no_tree_is_refused(wrong):
    with pytest.raises(ParameterError):
        wrong()
