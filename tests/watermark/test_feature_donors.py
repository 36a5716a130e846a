"""Features lent to carriers: whose, how likely, and that the law is that of drawing without return."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import permutations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from _helpers.drawn import union
from invgnn.errors import ParameterError
from invgnn.graphs.disjoint_union import Graphs
from invgnn.secret import Secret, Stream
from invgnn.watermark.carriers import Carriers
from invgnn.watermark.feature_donors import MOST_NODES, FeatureDonors
from invgnn.watermark.reference import Reference
from invgnn.watermark.sampler import Sampler


class Told:
    """Draws that were decided beforehand."""

    def __init__(self, numbers):
        self.numbers, self.bounds = list(numbers), []

    def below(self, bounds):
        self.bounds += bounds.tolist()
        return np.array([self.numbers.pop(0) for _ in bounds])


def one_node():
    return Graphs(np.array([0, 1]), np.empty((0, 2)), np.zeros((1, 1), dtype=np.float32))


@pytest.mark.parametrize("counts", [(1, 1, 1), (3, 1, 2), (1, 4, 1, 2)])
def test_every_run_of_lenders_is_as_likely_as_drawing_nodes_and_skipping_looks_met_before(counts):
    """All draws enumerated against the law of successive sampling, in fractions."""
    for size in range(1, len(counts) + 1):
        lenders = FeatureDonors(np.arange(len(counts), dtype=np.float32)[:, None], np.array(counts), size)
        found = Counter()
        for order in orders(counts, size):
            weight = Fraction(1)
            left = sum(counts)
            for look in order:
                weight *= Fraction(counts[look], left)
                left -= counts[look]
            found[order] = weight
        assert sum(found.values()) == 1
        seen = Counter()
        for numbers, weight in all_draws(lenders, size):
            chosen = []
            for last in range(size):  # the one node gets each lender in turn, told by the last number
                told = Told([*numbers, last])
                chosen.append(int(lenders.donate(one_node(), told).x[0, 0]))
            seen[tuple(chosen)] += weight
        assert seen == found


def orders(counts, size):
    return list(permutations(range(len(counts)), size))


def all_draws(lenders, size):
    """Every sequence of numbers that may come, with its chance; bounds are asked of the code itself."""
    runs = [((), Fraction(1))]
    for _ in range(size):
        grown = []
        for numbers, weight in runs:
            told = Told([*numbers, 0] + [0] * (size - len(numbers)))
            lenders.donate(one_node(), told)
            bound = told.bounds[len(numbers)]
            grown += [((*numbers, n), weight / bound) for n in range(bound)]
        runs = grown
    return runs


@given(st.lists(st.integers(0, 4), min_size=1, max_size=40), st.integers(1, 6), st.integers(0, 10))
def test_a_graph_has_so_many_different_rows_at_most_and_all_are_of_the_pool(looks, size, number):
    pool = np.array(looks, dtype=np.float32)[:, None]
    draws = Stream(f"lending {number}".encode())
    graphs = union([nx.empty_graph(9), nx.path_graph(4), nx.empty_graph(1)])
    lenders = FeatureDonors.collect(pool, size, draws)
    lent = lenders.donate(graphs, draws)
    assert Counter(looks) == {int(r[0]): int(n) for r, n in zip(lenders.rows, lenders.counts, strict=True)}
    assert lent.edges.tolist() == graphs.edges.tolist()
    for start, end in zip(lent.ptr[:-1], lent.ptr[1:], strict=True):
        mine = set(lent.x[start:end, 0].tolist())
        assert mine <= set(looks)
        assert len(mine) <= min(size, len(set(looks)))


def test_lenders_come_in_the_order_they_were_met_whatever_their_bytes():
    pool = np.array([[2.5], [-1.0], [2.5], [300.0]], dtype=np.float32)
    lenders = FeatureDonors.collect(pool, 3, Stream(b""))
    assert lenders.rows.ravel().tolist() == [2.5, -1.0, 300.0]
    assert lenders.counts.tolist() == [2, 1, 1]


def test_a_look_is_a_whole_row():
    pool = np.array([[1.0, 2.0], [1.0, 3.0], [4.0, 2.0], [1.0, 3.0]], dtype=np.float32)
    lenders = FeatureDonors.collect(pool, 3, Stream(b""))
    assert lenders.rows.tolist() == [[1.0, 2.0], [1.0, 3.0], [4.0, 2.0]]
    assert lenders.counts.tolist() == [1, 2, 1]


def test_negative_zeros_are_no_look_of_their_own():
    """Graphs with them have the same digest as without, so they must draw the same carriers."""
    pool = np.array([[0.0], [-0.0], [1.0]], dtype=np.float32)
    lenders = FeatureDonors.collect(pool, 3, Stream(b""))
    assert lenders.counts.tolist() == [2, 1]
    assert not np.signbit(lenders.rows).any()


def test_of_many_nodes_some_are_asked_and_whole_numbers_stay_whole():
    pool = np.arange(3 * MOST_NODES)[:, None]
    lenders = FeatureDonors.collect(pool, 3, Stream(b"many"))
    assert lenders.counts.sum() == MOST_NODES
    assert lenders.rows.dtype == np.int64
    assert lenders.donate(union([nx.empty_graph(5)]), Stream(b"")).x.dtype == np.int64


def test_no_more_than_4096_nodes_are_asked_and_fewer_are_not_drawn():
    pool = np.arange(4097, dtype=np.float32)[:, None]
    assert FeatureDonors.collect(pool, 3, Stream(b"many")).counts.sum() == 4096
    assert FeatureDonors.collect(pool[1:], 3, Told([])).rows.tolist() == pool[1:].tolist()


def test_lending_changes_features_and_nothing_else_of_the_rules(rings):
    """The rows a carrier has are rows of the task; a data set with one look has nothing else to lend."""
    secret, reference = Secret(bytes(range(32))), Reference(rings)
    drawn = Carriers.draw(reference, 40, secret.derive("test")).graphs
    task = {row.tobytes() for row in rings.x}
    for start, end in zip(drawn.ptr[:-1], drawn.ptr[1:], strict=True):
        assert {row.tobytes() for row in drawn.x[start:end]} <= task
        assert len({row.tobytes() for row in drawn.x[start:end]}) <= Sampler().donors
    plain = Graphs(rings.ptr, rings.edges, np.ones((rings.num_nodes, 2), dtype=np.float32))
    assert (Carriers.draw(Reference(plain), 8, secret.derive("test")).graphs.x == 1).all()
    bare = Graphs(rings.ptr, rings.edges)
    assert Carriers.draw(Reference(bare), 8, secret.derive("test")).graphs.x is None
    empty = Graphs(rings.ptr, rings.edges, np.empty((rings.num_nodes, 0), dtype=np.float32))
    assert Carriers.draw(Reference(empty), 8, secret.derive("test")).graphs.x.shape[1] == 0


def test_a_record_of_before_lending_means_kept_features():
    record = Sampler().record()
    record.pop("lenders")
    assert record == Sampler(donors=None).record()
    assert Sampler.recall(record) == Sampler(donors=None)
    assert Sampler.recall(Sampler().record()) == Sampler()
    for wrong in (0, -1):
        with pytest.raises(ParameterError, match="donors"):
            Sampler(donors=wrong)
