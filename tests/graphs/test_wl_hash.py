"""Graph hashes against networkx and stored values."""

from __future__ import annotations

from itertools import product

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from _helpers.drawn import GAPS, random_graphs, same, union
from invgnn.errors import ParameterError
from invgnn.graphs.wl_hash import label_nodes, wl_hash


def hashes(g, labels=None, rounds=3):
    return [tuple(words) for words in wl_hash(g, labels, rounds).tolist()]


@given(random_graphs(), st.randoms(use_true_random=False))
def test_hash_ignores_numbering(graphs, random):
    labels, moved, moved_labels = [], [], []
    for graph in graphs:
        own = {node: random.randrange(-2, 3) for node in graph}
        order = random.sample(list(graph), len(graph))
        turned = nx.Graph()
        turned.add_nodes_from(order)
        turned.add_edges_from(graph.edges)
        moved.append(turned)
        labels += [own[node] for node in graph]
        moved_labels += [own[node] for node in order]
    assert hashes(union(graphs)) == hashes(union(moved))
    assert hashes(union(graphs), labels) == hashes(union(moved), moved_labels)


def agree(ours, theirs):
    """Two namings cut the graphs into the same classes."""
    return len(set(ours)) == len(set(theirs)) == len(set(zip(ours, theirs, strict=True)))


def networkx_hash(graph, labels, rounds):
    graph = graph.copy()
    nx.set_node_attributes(graph, dict(zip(graph, labels, strict=True)), "label")
    return nx.weisfeiler_lehman_graph_hash(graph, node_attr="label", iterations=rounds)


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_hash_classes_are_networkx_classes_on_the_atlas(rounds):
    graphs = nx.graph_atlas_g()[1:]
    theirs = [networkx_hash(graph, [0] * len(graph), rounds) for graph in graphs]
    ours = hashes(union(graphs), rounds=rounds)
    assert agree(ours, theirs)
    sequences = {tuple(sorted(degree for _, degree in graph.degree)) for graph in graphs}
    assert len(set(ours)) == len(sequences) if rounds == 1 else len(set(ours)) > len(sequences)


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_labelled_hash_classes_are_networkx_classes(rounds):
    graphs = [graph for graph in nx.graph_atlas_g()[1:] if len(graph) <= 5]
    pairs = [(graph, own) for graph in graphs for own in product([0, 1], repeat=len(graph))]
    theirs = [networkx_hash(graph, own, rounds) for graph, own in pairs]
    ours = hashes(union([graph for graph, _ in pairs]), np.concatenate([own for _, own in pairs]), rounds)
    assert agree(ours, theirs)
    assert 1 < len(set(ours)) < len(pairs)


def test_hash_without_rounds_sees_only_size_and_labels():
    g = union([nx.path_graph(4), nx.star_graph(3), nx.path_graph(5)])
    first, second, third = hashes(g, rounds=0)
    assert first == second != third
    assert hashes(g, np.arange(13), rounds=0)[0] != hashes(g, np.arange(13), rounds=0)[1]


def test_hash_golden():
    g = union([nx.path_graph(4), nx.star_graph(3), nx.empty_graph(1), nx.petersen_graph()])
    assert wl_hash(g).tolist() == [
        [0x1363B0AE0C73B9D3, 0xE139535C13B2EF45],
        [0x1ACDBB4A1B6CB58B, 0xDA8AF472FA3A34A1],
        [0xA64E94CB696B679F, 0xA384E0A299185298],
        [0x39A237C651997D0E, 0x60B917098CE990C9],
    ]
    assert wl_hash(g, np.arange(19) % 3, rounds=2).tolist() == [
        [0x6A7AD7A143078C85, 0x843CA4358F648F27],
        [0xED60178612D9E2CA, 0x2DEBD21DFE14E520],
        [0x6F0AFC755EB13CFA, 0x1A88053F725C6482],
        [0x42263ED36D19EA17, 0x870612545C3C10F2],
    ]


def test_hash_refuses_what_is_no_label():
    g = union(GAPS)
    for labels in (np.zeros(g.num_nodes), np.zeros(3, dtype=int)):
        with pytest.raises(ParameterError, match="labels"):
            wl_hash(g, labels)
    with pytest.raises(ParameterError, match="rounds"):
        wl_hash(g, rounds=-1)


def test_labels_follow_rounded_rows():
    x = np.array([[0, 1, 0], [1, 0, 0], [0, 1.000001, 0], [0, 0, 0], [0, -1, 0], [0, 1.001, 0]])
    labels = label_nodes(x)
    assert labels.dtype == np.uint64
    assert labels[0] == labels[2]
    assert len(set(labels.tolist())) == 5
    same(label_nodes(x[::-1]), labels[::-1])
    assert label_nodes(np.array([[1e30], [3e30], [-1e30]])).tolist()[0] not in labels


def test_labels_golden():
    assert label_nodes([[0.5, 0.0], [0.0, -0.5], [0.0, 0.0]]).tolist() == [
        0xA0B6B67ECBCDB3BF,
        0x8A51B3CC6C37B68C,
        0xE220A8397B1DCDAF,
    ]


def test_the_label_of_a_row_does_not_depend_on_the_other_rows():
    rows = np.arange(35.0).reshape(7, 5) % 11
    together = label_nodes(rows)
    assert [label_nodes(rows[i : i + 1]).item() for i in range(7)] == together.tolist()


@pytest.mark.parametrize("sign", [1, -1])
def test_numbers_beyond_two_to_the_53_are_all_labelled_alike(sign):
    """A float is an exact integer up to there and no further."""
    last, end, far = label_nodes(sign * np.array([[2.0**53 - 1], [2.0**53], [2.0**60]]), decimals=0)
    assert last != end == far
