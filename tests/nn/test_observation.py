"""Scores on a log scale and rows per graph, by hand."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from torch_geometric.data import Batch, Data

from invgnn.errors import SuspectError
from invgnn.nn.observation import (
    Observation,
    _finite,
    _improbable,
    _two_columns,
    full,
    log_scores,
    num_graphs,
    pool,
)

NAN, INF = math.nan, math.inf


def rows(*values):
    return torch.tensor(values, dtype=torch.float64)


def batch_of(*sizes):
    return Batch.from_data_list([Data(x=torch.zeros(n, 1), num_nodes=n) for n in sizes])


def test_graphs_are_counted_by_offsets_then_by_owners_then_as_one():
    owners = torch.tensor([0, 0, 2])
    assert num_graphs(batch_of(3, 1)) == 2
    assert num_graphs(SimpleNamespace(ptr=torch.tensor([0, 2, 3]), batch=owners)) == 2
    assert num_graphs(SimpleNamespace(batch=owners)) == 3
    assert num_graphs(SimpleNamespace(ptr=None, batch=owners, num_graphs=5)) == 5
    assert num_graphs(SimpleNamespace(batch=None)) == 1
    assert num_graphs(SimpleNamespace(batch=None, num_graphs=7)) == 1
    assert num_graphs(Data(num_nodes=4)) == 1


def test_rows_of_nodes_are_averaged_and_rows_of_graphs_stay():
    batch = batch_of(3, 1)
    each = rows([1.0, 10.0], [2.0, 20.0], [6.0, 60.0], [4.0, 5.0])
    assert pool(each, batch).tolist() == [[3.0, 30.0], [4.0, 5.0]]
    assert pool(each[:2], batch) is not None
    assert pool(each[:2], batch).equal(each[:2])
    assert pool(each[:, 0], batch).tolist() == [[3.0], [4.0]]
    assert pool(each[:2, 0], batch).tolist() == [[1.0], [2.0]]


def test_a_graph_without_nodes_has_a_mean_of_zero():
    batch = SimpleNamespace(ptr=torch.tensor([0, 2, 2, 3]), batch=torch.tensor([0, 0, 2]), num_nodes=3)
    batch.ptr = torch.tensor([0, 2, 2, 3, 3])
    assert pool(rows([1.0], [3.0], [5.0]), batch).tolist() == [[2.0], [0.0], [5.0], [0.0]]


@pytest.mark.parametrize("shape", [(3, 2), (5, 2), (1, 4), (2, 1, 2), (4, 1, 1)])
def test_rows_of_neither_graphs_nor_nodes_are_refused(shape):
    with pytest.raises(SuspectError, match="for 2 graphs of 4 nodes"):
        pool(torch.zeros(shape), batch_of(3, 1))


def test_a_hidden_layer_is_pooled_in_single_precision_at_least():
    batch = batch_of(1, 2)
    seen = Observation(rows([0.0, 1.0]), torch.tensor([[1.0], [2.0], [4.0]], dtype=torch.float16), batch)
    assert seen.embeddings.tolist() == [[1.0], [3.0]]
    assert seen.embeddings.dtype == torch.float32
    with pytest.raises(SuspectError, match="hidden layer"):
        _ = Observation(rows([0.0, 1.0]), None, batch).embeddings
    kinds = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
    assert [full(torch.zeros(1, dtype=kind)).dtype for kind in kinds] == [
        *[torch.float32] * 3,
        torch.float64,
    ]


def test_log_probabilities_are_averaged_over_the_nodes_of_a_graph():
    scores = rows([0.0, 2.0], [3.0, -1.0], [0.0, 1.0])
    logs = [[-math.log1p(math.exp(b - a)), -math.log1p(math.exp(a - b))] for a, b in scores.tolist()]
    expected = [[(logs[0][c] + logs[1][c]) / 2 for c in (0, 1)], logs[2]]
    found = Observation(scores, None, batch_of(2, 1)).log_probabilities
    torch.testing.assert_close(found, rows(*expected))


@pytest.mark.parametrize(
    ("scores", "improbable"),
    [
        (rows([0.0, 100.0]), False),
        (rows([0.0, 100.5]), True),
        (rows([-0.5, 100.0]), True),
        (rows([-0.5, 101.0]), True),
        (rows([0.5, 0.6]), False),
        (rows([-INF, 0.5]), False),
        (rows([-1.0, INF]), False),
        (rows([NAN, -1.0]), False),
        (torch.zeros(0, 2), False),
    ],
)
def test_finite_scores_outside_0_to_100_are_no_probabilities(scores, improbable):
    assert _improbable(scores) is improbable


def test_rows_that_are_not_finite_do_not_count():
    mixed = rows([0.0, 1.0], [NAN, 0.0], [2.0, INF], [-INF, 1.0], [3.0, 4.0]).requires_grad_()
    assert _finite(mixed).tolist() == [[0.0, 1.0], [3.0, 4.0]]
    assert not _finite(mixed).requires_grad
    assert _finite(rows(1.0, NAN, 2.0)).tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("row", "probable"),
    [
        ([-0.02, 1.0], False),  # sums to one as nearly as two classes may
        ([1.01, 0.0], False),
        ([0.0, 1.0], True),
        ([0.3, 0.7], True),
        ([99.0, 1.0], True),
        ([100.5, 0.0], False),
        ([-1.0, 100.0], False),
        ([150.0, 50.0], False),
        ([1.3, 0.7], False),  # sums to two
    ],
)
def test_a_refused_row_does_not_decide_what_the_others_are(row, probable):
    scores = rows(row, [NAN, NAN])
    whole = 100.0 if max(row) > 2 else 1.0
    expected = [math.log(max(each / whole, 1e-6)) for each in row] if probable else row
    assert log_scores(scores)[0].tolist() == pytest.approx(expected, abs=1e-12)
    assert log_scores(scores)[1].isnan().all()


@pytest.mark.parametrize(
    ("scores", "probable"),
    [([0.0, 1.0], True), ([0.2, 0.9], True), ([1.5, 0.5], False), ([-0.5, 0.5], False), ([0.2, NAN], True)],
)
def test_one_score_is_a_probability_or_a_logit_of_the_second_class(scores, probable):
    found = _two_columns(rows(*scores))
    expected = [[1 - s, s] if probable else [-s / 2, s / 2] for s in scores]
    torch.testing.assert_close(found, rows(*expected), equal_nan=True)
    shape = (len(scores), 1)
    logs = found.clamp(min=1e-6).log() if probable else found
    for form in (rows(*scores), rows(*scores).reshape(shape)):
        torch.testing.assert_close(log_scores(form), logs, equal_nan=True)


def test_classes_are_on_the_last_axis():
    sure = rows([[0.25, 0.75]], [[0.5, 0.5]])
    assert log_scores(sure).equal(sure.log())
    three = rows([[0.97, 0.02, 0.02], [0.3, 0.3, 0.36]])  # 1.01 and 0.96: three classes may
    assert log_scores(three).equal(three.log())
