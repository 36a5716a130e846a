"""The laws and the data of single schemes, against independent computations."""

from __future__ import annotations

import copy
import math

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom
from torch_geometric.data import Batch, Data
from torch_geometric.utils import to_networkx

from _helpers.schemes import SCHEMES
from invgnn.errors import ParameterError
from invgnn.nn.forward import to_batch
from invgnn.nn.layers import batch_norms
from invgnn.schemes.backdoor import Subgraph
from invgnn.schemes.chance import log_p_labels
from invgnn.schemes.edge_signs import edge_distances
from invgnn.schemes.embedding import Joined, join
from invgnn.schemes.features import dense_features
from invgnn.schemes.portions import Portions
from invgnn.schemes.random_graphs import random_edges
from invgnn.schemes.without_dropout import scores_without_dropout
from invgnn.secret import Secret
from invgnn.training.tasks import new_model

SECRET = Secret(b"o" * 32)


@given(st.integers(2, 9), st.integers(1, 128), st.data())
def test_the_law_of_right_labels_is_the_binomial_tail(classes, asked, data):
    right = data.draw(st.integers(0, asked))
    found = log_p_labels(right, asked, classes)
    exact = binom.logsf(right - 1, asked, 1 / classes)
    assert found == pytest.approx(exact, rel=1e-9, abs=1e-9)
    assert found <= 0
    assert log_p_labels(0, asked, classes) == 0


def test_impossible_counts_are_refused():
    for bad in ((5, 4, 2), (-1, 4, 2), (1, 4, 1)):
        with pytest.raises(ParameterError):
            log_p_labels(*bad)


def test_random_edges_are_sorted_pairs_with_the_right_density():
    edges = random_edges(SECRET.derive("edges"), 80, 0.3)
    assert (edges[:, 0] < edges[:, 1]).all()
    assert len(np.unique(edges, axis=0)) == len(edges)
    assert abs(len(edges) / (80 * 79 / 2) - 0.3) < 0.05
    assert len(random_edges(SECRET.derive("edges"), 6, 1.0)) == 15


@pytest.mark.parametrize("value", [1.0, 0.4])
def test_trigger_features_look_like_those_of_the_task(value):
    rng = np.random.default_rng(0)
    rows = (value * (rng.random((30, 40)) < 0.3)).astype(np.float32)
    x = dense_features(SECRET.derive("x"), 9, 0.1, rows)
    assert ((x != 0).sum(1) == 4).all()
    assert np.allclose(x[x != 0], value)
    share = rows / np.maximum(rows.sum(1, keepdims=True), 1e-9)
    assert np.allclose(dense_features(SECRET.derive("x"), 9, 0.1, share).sum(1), 1, atol=1e-5)


def test_the_trigger_is_the_induced_subgraph(graphs):
    trigger = Subgraph.draw(SECRET.derive("t"), 5, 0.8)
    wanted = nx.Graph()
    wanted.add_nodes_from(range(5))
    wanted.add_edges_from(trigger.edges.tolist())
    before = graphs.graphs[3]
    found = trigger.put(before, SECRET.derive("place"), 1)
    chosen = SECRET.derive("place").permutation(int(before.num_nodes))[:5].tolist()
    whole, old = (to_networkx(g, to_undirected=True) for g in (found, before))
    assert nx.is_isomorphic(whole.subgraph(chosen), wanted)
    assert {frozenset(e) for e in whole.subgraph(chosen).edges} == {
        frozenset((chosen[u], chosen[v])) for u, v in trigger.edges.tolist()
    }
    outside = {frozenset(e) for e in old.edges if not set(e) <= set(chosen)}
    assert outside == {frozenset(e) for e in whole.edges if not set(e) <= set(chosen)}
    assert int(found.y) == 1
    assert found.x is before.x


@pytest.mark.parametrize("level", ["node", "graph"])
def test_a_backdoor_is_read_on_inputs_that_were_held_out(level, nodes, graphs):
    task = {"node": nodes, "graph": graphs}[level]
    mark = SCHEMES["NAT"].prepare(SECRET, task)
    changed = mark.changed(task)
    same = {"train": True, "val": True, "test": True}
    assert {part: torch.equal(getattr(changed, part), getattr(task, part)) for part in same} == same
    if level == "node":
        old, new = task.graphs[0], changed.graphs[0]
        moved = (old.x != new.x).any(1) | (old.y != new.y)
        assert set(moved.nonzero().view(-1).tolist()) <= set(task.train.tolist())
        assert set(mark.rows.tolist()) <= {*task.test.tolist(), *task.val.tolist()}
        assert (old.y[mark.rows] != mark.target).all()
        places = {tuple(row.nonzero().view(-1).tolist()) for row in new.x[moved] == new.x[moved].max()}
        shared = set.intersection(*(set(place) for place in places))
        assert len(shared) >= 16  # one index set for all nodes
    else:
        moved = [i for i, (a, b) in enumerate(zip(task.graphs, changed.graphs, strict=True)) if a is not b]
        assert moved
        assert set(moved) <= set(task.train.tolist())
        assert all(int(task.graphs[i].y) != mark.target == int(changed.graphs[i].y) for i in moved)


def test_edge_distances_are_relative_to_their_mean():
    rows = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    found = edge_distances(rows, torch.tensor([[0, 0], [1, 2]]))
    half = 1 - 1 / math.sqrt(2)
    assert torch.allclose(found, torch.tensor([1.0, half]) / ((1 + half) / 2))


def test_secret_edges_have_no_end_in_common(nodes):
    mark = SCHEMES["WGLE"].prepare(SECRET, nodes)
    ends = mark.edges[:, mark.chosen].flatten().tolist()
    assert len(set(ends)) == len(ends) == 2 * len(mark.bits)


# --- the forward pass over task inputs and private inputs ----------------------------------------


@pytest.mark.parametrize("level", ["node", "graph"])
def test_joined_passes_give_the_outputs_of_separate_ones(level, nodes, graphs):
    task = {"node": nodes, "graph": graphs}[level]
    model = new_model(task, "GraphSAGE", 0, hidden_channels=8).eval()
    private = SCHEMES["TRIG"].prepare(SECRET, task).questions.private
    batch = task.graphs[0] if level == "node" else Batch.from_data_list(task.graphs[:5])
    joined, extra = Joined(), to_batch(private)
    seen, more = joined.observe(model, batch, extra, "auto")
    alone, _ = joined.observe(model, batch, None, "auto")
    assert torch.allclose(seen.scores, alone.scores, atol=1e-5)
    assert torch.allclose(seen.hidden, alone.hidden, atol=1e-5)
    other, _ = joined.observe(model, extra, None, "auto")
    assert torch.allclose(more.scores, other.scores, atol=1e-5)
    assert torch.allclose(more.hidden, other.hidden, atol=1e-5)


def test_joined_batches_are_disjoint_unions(graphs):
    first, second = (Batch.from_data_list(graphs.graphs[a:b]) for a, b in ((0, 2), (2, 5)))
    both, expected = join(first, second), Batch.from_data_list(graphs.graphs[:5])
    for name in ("x", "edge_index", "batch", "ptr"):
        assert torch.equal(both[name], expected[name])
    assert both.num_nodes == expected.num_nodes
    one = join(Data(x=first.x, edge_index=first.edge_index, num_nodes=first.num_nodes), second)
    assert one.ptr.tolist()[:2] == [0, first.num_nodes]


def test_portions_show_every_graph_once_in_a_round(graphs):
    private = SCHEMES["TRIG"].prepare(SECRET, graphs).questions.private
    portions = Portions(private, torch.arange(16), 5)
    seen = [portions.wanted(portions.batch(step)).tolist() for step in range(4)]
    assert sorted(number for part in seen for number in part) == list(range(16))
    assert portions.batch(4) is portions.batch(0)


@pytest.mark.parametrize("training", [True, False])
def test_a_pass_without_dropout_leaves_batch_norms_in_their_mode(training, graphs):
    """In training they use and learn the statistics of the batch, as in the pass over the task."""
    model = new_model(graphs, "GIN", 0, hidden_channels=8).train(training)
    model.dropout = 0.5
    same, batch = copy.deepcopy(model), Batch.from_data_list(graphs.graphs[:5])
    same.dropout = 0.0
    norms = batch_norms(model)
    norms[0].train(False)  # one that its owner has frozen
    batch_norms(same)[0].train(False)
    modes = [part.training for part in model.modules()]
    found, wanted = scores_without_dropout(model, batch), same(batch.x, batch.edge_index, batch.batch)
    assert torch.equal(found, wanted)
    assert found.requires_grad
    assert [part.training for part in model.modules()] == modes
    assert [bool(norm.num_batches_tracked) for norm in norms] == [False] + [training] * (len(norms) - 1)
