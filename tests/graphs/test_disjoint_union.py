"""The disjoint union of graphs: reading, checks, selection and digests."""

from __future__ import annotations

import hashlib
from types import SimpleNamespace

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from _helpers.drawn import GAPS, item, random_graphs, same, union
from invgnn.errors import DataError
from invgnn.graphs.adjacency import adjacent
from invgnn.graphs.disjoint_union import Graphs, sum_runs
from invgnn.storage.encoding import decode, encode


def test_from_data_drops_loops_directions_and_duplicates():
    data = SimpleNamespace(edge_index=[[2, 0, 1, 1, 0], [0, 2, 1, 0, 1]], num_nodes=4, x=None)
    g = Graphs.from_data([data, data])
    assert g.ptr.tolist() == [0, 4, 8]
    assert g.edges.tolist() == [[0, 1], [0, 2], [4, 5], [4, 6]]
    assert g.x is None


def test_from_data_reads_pyg():
    torch = pytest.importorskip("torch")
    pyg = pytest.importorskip("torch_geometric.data")
    utils = pytest.importorskip("torch_geometric.utils")
    edge_index = torch.tensor([[3, 0, 1, 2, 2], [1, 1, 3, 0, 2]])
    x = torch.arange(8, dtype=torch.float64).reshape(4, 2).requires_grad_()
    with pytest.warns(UserWarning, match="undirected"):
        g = Graphs.from_data([pyg.Data(x=x, edge_index=edge_index)])
    loopless = utils.remove_self_loops(edge_index)[0]
    same(g.directed(), utils.to_undirected(loopless).numpy())
    assert g.x.dtype == np.float32
    assert g.x.flags.c_contiguous
    assert g.x.tolist() == x.tolist()
    batch = pyg.Batch.from_data_list([pyg.Data(x=x, edge_index=edge_index)] * 2)
    for wrong in (batch, [batch], pyg.Data(x=x, edge_index=edge_index)):
        with pytest.raises(DataError, match="list"):
            Graphs.from_data(wrong)


def test_lost_directions_warn_once():
    both = [[0, 1, 1, 2, 2, 2], [1, 0, 2, 1, 2, 2]]  # self-loops, even twice, say nothing of directions
    fine = SimpleNamespace(edge_index=both, num_nodes=3, x=None)
    arrow = SimpleNamespace(edge_index=[[0, 1, 1], [1, 0, 2]], num_nodes=3, x=None)
    Graphs.from_data([fine, fine])
    with pytest.warns(UserWarning, match="carriers are undirected") as caught:
        mixed = Graphs.from_data([arrow, fine, arrow])
    assert mixed.take([0]).digest() == Graphs.from_data([fine]).digest()
    assert len(caught) == 1


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8])
def test_whole_features_stay_whole(dtype):
    x = np.array([[3], [1], [4]], dtype=dtype)
    g = Graphs.from_data([item(nx.path_graph(3), x), item(nx.path_graph(3), x + dtype(1))])
    same(g.x, np.array([[3], [1], [4], [4], [2], [5]]))
    same(g.take([1]).x, np.array([[4], [2], [5]]))
    same(Graphs.concat([g.take([1]), g.take([0])]).x, np.array([[4], [2], [5], [3], [1], [4]]))
    assert Graphs.concat([g.take([0]), g.take([1])]).digest() == g.digest()
    others = Graphs(g.ptr, g.edges, g.x.astype(np.float32)), Graphs(g.ptr, g.edges, g.x + 2**40)
    assert len({g.digest(), *(other.digest() for other in others)}) == 3
    assert others[0].x.dtype == np.float32


PAIR = np.array([[0, 1], [1, 0]])
ONES = np.ones((2, 3))
GOOD = SimpleNamespace(edge_index=PAIR, num_nodes=2, x=ONES)


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([], "empty"),
        ([GOOD, SimpleNamespace(edge_index=PAIR, num_nodes=2, x=ONES * np.nan)], "graph 1 .*NaN"),
        ([SimpleNamespace(edge_index=PAIR, num_nodes=2, x=ONES * np.inf)], "graph 0 .*NaN"),
        ([SimpleNamespace(edge_index=PAIR, num_nodes=2, x=ONES * 1e300)], "infinite"),
        ([GOOD, SimpleNamespace(edge_index=PAIR, num_nodes=2, x=ONES[:, :2])], "2 features"),
        ([GOOD, SimpleNamespace(edge_index=PAIR, num_nodes=2, x=None)], "graph 1 has no features"),
        ([GOOD, GOOD, SimpleNamespace(edge_index=PAIR + 1, num_nodes=2, x=ONES)], "graph 2"),
        ([SimpleNamespace(edge_index=PAIR - 1, num_nodes=2, x=ONES)], "graph 0 has an edge"),
        ([SimpleNamespace(edge_index=PAIR * 0.5, num_nodes=2, x=ONES)], "type float64"),
        ([SimpleNamespace(edge_index=PAIR[:1], num_nodes=2, x=ONES)], r"shape \(1, 2\)"),
        ([SimpleNamespace(edge_index=PAIR, num_nodes=3, x=ONES)], r"graph 0 has .* \(2, 3\) for 3 nodes"),
        (
            [SimpleNamespace(edge_index=PAIR, num_nodes=2, x=ONES[:, 0])],
            r"graph 0 has .* \(2,\) for 2 nodes",
        ),
        (
            [GOOD] + [SimpleNamespace(edge_index=[[0], [node]], num_nodes=2, x=ONES) for node in (2, 3)],
            "graph 1 has an edge",
        ),
        ([SimpleNamespace(edge_index=PAIR, num_nodes=2, x=ONES[0])], r"shape \(3,\)"),
        ([SimpleNamespace(num_nodes=2)], "no edge_index"),
    ],
)
def test_from_data_refuses(items, message):
    with pytest.raises(DataError, match=message) as caught:
        Graphs.from_data(items)
    assert caught.value.advice


@pytest.mark.parametrize(
    ("ptr", "edges", "x", "message"),
    [
        ([1, 2], [], None, "must start at 0 and not decrease"),
        ([0, 2, 1], [], None, "must start at 0 and not decrease"),
        ([0, 3], [[1, 0]], None, "two nodes u < v"),
        ([0, 3], [[1, 1]], None, "two nodes u < v"),
        ([0, 3], [[0, 3]], None, "two nodes u < v"),
        ([0, 3], [[-1, 2]], None, "two nodes u < v"),
        ([0, 2, 4], [[1, 2]], None, "joins two different graphs"),
        ([0, 3], [[1, 2], [0, 1]], None, "must be sorted"),
        ([0, 3], [[0, 1], [0, 1]], None, "each may occur only once"),
        ([0, 3], [[0, 1, 2]], None, r"shape \[E,2\], not \[1, 3\]"),
        ([0, 3], [[0, 1]], np.ones((2, 1)), r"shape \(2, 1\) for 3 nodes"),
        ([0, 3], [[0, 1]], np.ones(3), r"shape \(3,\) for 3 nodes"),
    ],
)
def test_an_invalid_union_cannot_be_built(ptr, edges, x, message):
    edges = np.array(edges, dtype=np.int64)
    with pytest.raises(DataError, match=message):
        Graphs(np.array(ptr), edges if edges.size else edges.reshape(0, 2), x)


@given(random_graphs(), st.data())
def test_take_and_concat_pick_whole_graphs(graphs, data):
    x = [np.full((len(graph), 2), number) for number, graph in enumerate(graphs)]
    items = [item(graph, rows) for graph, rows in zip(graphs, x, strict=True)]
    g = Graphs.from_data(items)
    index = data.draw(st.lists(st.integers(-len(graphs), len(graphs) - 1), max_size=8))
    taken = g.take(index)
    assert len(taken) == len(index)
    if index:
        assert taken.digest() == Graphs.from_data([items[i] for i in index]).digest()
        joined = Graphs.concat([Graphs.from_data([items[i]]) for i in index])
        assert taken.digest() == joined.digest()


def test_take_by_mask_number_or_nothing():
    g = union(GAPS)
    assert g.take([False, True] + [False] * 5).digest() == g.take(1).digest() == g.take([1]).digest()
    assert len(g.take([])) == 0
    with pytest.raises(IndexError):
        g.take([7])


def test_concat_refuses_nothing_and_mixed_features():
    with pytest.raises(DataError):
        Graphs.concat([])
    one = Graphs.from_data([GOOD])
    with pytest.raises(DataError, match="part 1 has no features, but part 0 has 3 features per node"):
        Graphs.concat([one, union(GAPS)])
    assert len(Graphs.concat([one, Graphs.concat([one, one])])) == 3  # of other sizes, of equal width


@given(random_graphs())
def test_offsets_neighbours_and_directions(graphs):
    g = union(graphs)
    assert len(g) == g.num_graphs == len(graphs)
    assert g.sizes.tolist() == [len(graph) for graph in graphs]
    assert np.diff(g.edge_ptr).tolist() == [graph.number_of_edges() for graph in graphs]
    assert np.bincount(g.graph_of_node, minlength=len(g)).tolist() == g.sizes.tolist()
    whole = nx.disjoint_union_all(graphs)
    offsets, neighbours = g.csr
    for node in whole:
        assert neighbours[offsets[node] : offsets[node + 1]].tolist() == sorted(whole[node])
    assert list(map(tuple, g.directed().T.tolist())) == sorted(whole.to_directed().edges)
    assert g.graph_of_edge.tolist() == g.graph_of_node[g.edges[:, 1]].tolist()


def test_digest_is_stable_and_sees_every_part():
    g = Graphs.from_data([item(nx.path_graph(3), np.eye(3)), item(nx.path_graph(1), np.eye(1, 3))])
    assert g.digest_1() == "f0e397e641527dde89e34fdef7a38f328153249b4235b43afc776b00900fdf7a"
    assert g.digest() == "eab5f7b2c9f96a5309e0febaf7b83acb54130c02a8500423b22c18272fa667c0"
    signed = Graphs(g.ptr, g.edges, g.x * np.where(g.x == 0, -1, 1))
    assert signed.digest() == g.digest()
    assert not np.signbit(signed.x).any()  # there is one zero: no model can tell what is not hashed
    assert Graphs.recall(decode(encode(signed.record()))).digest() == g.digest()
    others = [
        Graphs(g.ptr, g.edges, None),
        Graphs(g.ptr, g.edges, g.x[:, :0]),
        Graphs(g.ptr, g.edges, g.x + 1),
        Graphs(g.ptr, g.edges[:1], g.x),
        Graphs(np.array([0, 4]), g.edges, g.x),
        g.take([1, 0]),
    ]
    others.append(Graphs(g.ptr, g.edges, g.x.astype(np.int64)))
    for digest in (Graphs.digest, Graphs.digest_1):
        assert len({digest(g), *map(digest, others)}) == 8


def test_repr_is_one_line():
    assert repr(union(GAPS)) == "Graphs(7 graphs, 24 nodes, 20 edges, no features)"


@given(random_graphs(), st.sampled_from([0, 1e9]))
def test_adjacent_by_search_and_by_matrix(graphs, room):
    """Every pair of nodes of every graph, in both orders, against networkx."""
    g, pairs, expected = union(graphs), [], []
    for graph, start in zip(graphs, g.ptr.tolist(), strict=False):
        nodes = list(graph)
        pairs += [(start + i, start + j) for i in range(len(nodes)) for j in range(len(nodes))]
        expected += [graph.has_edge(a, b) and a != b for a in nodes for b in nodes]
    u, v = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("invgnn.graphs.adjacency.MAX_CELLS_PER_EDGE", room)
        assert adjacent(g, u, v).tolist() == expected


@pytest.mark.parametrize(
    ("ptr", "edges", "x", "message"),
    [
        ([0.0, 2.0], [[0, 1]], None, "ptr is of type float64"),
        ([0, 2], [[0.0, 1.0]], None, "edges is of type float64"),
        ([0, 2], [[False, True]], None, "edges is of type bool"),
        ([0, 2], [[0, 1]], np.array([["a"], ["b"]]), "x is of type <U1"),
        ([0, 2], [[0, 1]], np.ones((2, 1), dtype=complex), "x is of type complex128"),
    ],
)
def test_numbers_of_other_types_are_refused(ptr, edges, x, message):
    with pytest.raises(DataError, match=message):
        Graphs(np.array(ptr), np.array(edges), x)


def test_the_warning_of_lost_directions_points_at_the_caller():
    one_way = SimpleNamespace(edge_index=np.array([[0], [1]]), num_nodes=2, x=None)
    with pytest.warns(UserWarning, match="one direction only") as caught:
        Graphs.from_data([one_way])
    assert [warning.filename for warning in caught] == [__file__]


def test_a_union_of_no_graphs_has_one_offset_and_not_none():
    none = np.zeros((0, 2), dtype=np.int64)
    assert len(Graphs(np.array([0]), none)) == 0
    with pytest.raises(DataError, match="must start at 0"):
        Graphs(np.array([], dtype=np.int64), none)


def test_lists_become_arrays():
    g = Graphs([0, 2, 3], [[0, 1]])
    assert (g.ptr.dtype, g.edges.dtype) == (np.int64, np.int64)
    assert (g.sizes.tolist(), g.directed().tolist()) == ([2, 1], [[0, 1], [1, 0]])


def test_graphs_may_lack_edges_and_even_nodes():
    nothing = SimpleNamespace(edge_index=[], num_nodes=0, x=None)
    g = Graphs.from_data([nothing, SimpleNamespace(edge_index=PAIR, num_nodes=2, x=None), nothing])
    assert (g.sizes.tolist(), g.edges.tolist()) == ([0, 2, 0], [[0, 1]])
    none = Graphs.from_data([nothing])
    assert (none.edges.shape, none.directed().shape, none.edge_keys.shape) == ((0, 2), (2, 0), (0,))
    assert Graphs(none.ptr, none.edges).digest() == none.digest()


@pytest.mark.parametrize(
    ("x", "width", "tail"),
    [
        (None, -1, b""),
        (np.array([[1], [2], [-3]]), 1, np.array([1, 2, -3], "<i8").tobytes()),
        (np.array([[1, 0.5], [2, 0], [-3, 4]]), 2, np.array([1, 0.5, 2, 0, -3, 4], "<f4").tobytes()),
    ],
    ids=["none", "whole", "floats"],
)
def test_the_digest_of_format_1_by_hand(x, width, tail):
    """Four numbers, the offsets, the edges and the features; without features their width is -1."""
    numbers = np.array([2, 3, 1, width, 0, 2, 3, 0, 1], "<i8").tobytes()
    expected = hashlib.sha256(b"invgnn.graphs/1\0" + numbers + tail).hexdigest()
    assert Graphs(np.array([0, 2, 3]), np.array([[0, 1]]), x).digest_1() == expected


def test_runs_are_summed_along_the_first_axis():
    values = np.array([[1, 10], [2, 20], [3, 30], [4, 40], [5, 50]])
    ptr = np.array([0, 2, 2, 5])
    assert sum_runs(values, ptr).tolist() == [[3, 30], [0, 0], [12, 120]]
    assert sum_runs(values[:, 0], ptr).tolist() == [3, 0, 12]
    assert sum_runs(values[:0], ptr[:1]).shape == (0, 2)
