"""Graph counts against networkx and brute force; hashes and rewiring against stored values."""

from __future__ import annotations

from itertools import combinations, product
from types import SimpleNamespace

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from invgnn.errors import DataError, ParameterError
from invgnn.graphs import (
    Graphs,
    clustering,
    components,
    connected,
    degrees,
    label_nodes,
    motifs,
    rewire,
    sample_subgraphs,
    triangles,
    wl_hash,
)


class Lcg:
    """Knuth's generator: a stream simple enough to write down."""

    def __init__(self, seed=1):
        self.state, self.calls = seed, []

    def below(self, bounds):
        self.calls.append(np.array(bounds))
        assert (bounds >= 1).all()
        return np.array([self._next() % int(bound) for bound in bounds], dtype=np.int64)

    def _next(self):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return self.state >> 33


def item(graph, x=None):
    nodes = {node: place for place, node in enumerate(graph)}
    pairs = [(nodes[u], nodes[v]) for u, v in graph.edges]
    edge_index = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    return SimpleNamespace(edge_index=edge_index, num_nodes=len(nodes), x=x)


def union(graphs):
    return Graphs.from_data([item(graph) for graph in graphs])


def random_graphs():
    one = st.builds(
        lambda n, p, seed: nx.gnp_random_graph(n, p, seed=seed),
        st.integers(1, 10),
        st.sampled_from([0.0, 0.2, 0.5, 0.8, 1.0]),
        st.integers(0, 10**6),
    )
    return st.lists(one, min_size=1, max_size=6)


def flat(graphs, function):
    return [function(graph)[node] for graph in graphs for node in graph]


def same(left, right):
    assert left.dtype == right.dtype
    np.testing.assert_array_equal(left, right)


# Edgeless graphs first, last and twice in the middle: where offsets go wrong.
GAPS = [
    nx.empty_graph(3),
    nx.cycle_graph(4),
    nx.empty_graph(1),
    nx.empty_graph(2),
    nx.complete_graph(5),
    nx.disjoint_union(nx.path_graph(3), nx.star_graph(4)),
    nx.empty_graph(1),
]


# ---------------------------------------------------------------------------------- the union


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


PAIR = np.array([[0], [1]])
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
        ([SimpleNamespace(edge_index=PAIR.T, num_nodes=2, x=ONES)], r"shape \(1, 2\)"),
        ([SimpleNamespace(edge_index=PAIR, num_nodes=3, x=ONES)], "3 nodes"),
        ([SimpleNamespace(edge_index=PAIR, num_nodes=2, x=ONES[0])], r"shape \(3,\)"),
        ([SimpleNamespace(num_nodes=2)], "no edge_index"),
    ],
)
def test_from_data_refuses(items, message):
    with pytest.raises(DataError, match=message) as caught:
        Graphs.from_data(items)
    assert caught.value.advice


@pytest.mark.parametrize(
    ("ptr", "edges", "x"),
    [
        ([1, 2], [], None),
        ([0, 2, 1], [], None),
        ([0, 3], [[1, 0]], None),
        ([0, 3], [[0, 3]], None),
        ([0, 3], [[-1, 2]], None),
        ([0, 2, 4], [[1, 2]], None),
        ([0, 3], [[1, 2], [0, 1]], None),
        ([0, 3], [[0, 1], [0, 1]], None),
        ([0, 3], [[0, 1, 2]], None),
        ([0, 3], [[0, 1]], np.ones((2, 1))),
    ],
)
def test_an_invalid_union_cannot_be_built(ptr, edges, x):
    edges = np.array(edges, dtype=np.int64)
    with pytest.raises(DataError):
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
    assert (
        g.take([False, True] + [False] * 5).digest() == g.take(1).digest() == g.take([1]).digest()
    )
    assert len(g.take([])) == 0
    with pytest.raises(IndexError):
        g.take([7])


def test_concat_refuses_nothing_and_mixed_features():
    with pytest.raises(DataError):
        Graphs.concat([])
    with pytest.raises(DataError, match="no features"):
        Graphs.concat([Graphs.from_data([GOOD]), union(GAPS)])


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
    assert g.digest() == "f0e397e641527dde89e34fdef7a38f328153249b4235b43afc776b00900fdf7a"
    signed = Graphs(g.ptr, g.edges, g.x * np.where(g.x == 0, -1, 1))
    assert signed.digest() == g.digest()
    others = [
        Graphs(g.ptr, g.edges, None),
        Graphs(g.ptr, g.edges, g.x[:, :0]),
        Graphs(g.ptr, g.edges, g.x + 1),
        Graphs(g.ptr, g.edges[:1], g.x),
        Graphs(np.array([0, 4]), g.edges, g.x),
        g.take([1, 0]),
    ]
    assert len({g.digest(), *(other.digest() for other in others)}) == 7


def test_repr_is_one_line():
    assert repr(union(GAPS)) == "Graphs(7 graphs, 24 nodes, 20 edges, no features)"


# ------------------------------------------------------------------------------------ counting


@given(random_graphs())
def test_counts_agree_with_networkx(graphs):
    g = union(graphs)
    assert degrees(g).tolist() == flat(graphs, lambda graph: dict(graph.degree))
    assert triangles(g).tolist() == flat(graphs, nx.triangles)
    assert clustering(g).tolist() == flat(graphs, nx.clustering)  # bit for bit
    assert components(g).tolist() == [nx.number_connected_components(graph) for graph in graphs]
    assert connected(g).tolist() == [nx.is_connected(graph) for graph in graphs]


SHAPES = [(1, 1, 2, 2), (1, 1, 1, 3), (2, 2, 2, 2), (1, 2, 2, 3), (2, 2, 3, 3), (3, 3, 3, 3)]


def brute_motifs(graph):
    found = [0] * 6
    for four in combinations(graph, 4):
        shape = tuple(sorted(degree for _, degree in graph.subgraph(four).degree))
        if shape in SHAPES:
            found[SHAPES.index(shape)] += 1
    return found


@given(random_graphs())
def test_motifs_agree_with_brute_force(graphs):
    assert motifs(union(graphs)).tolist() == [brute_motifs(graph) for graph in graphs]


def test_motif_order():
    names = ["path", "star", "cycle", "tailed triangle", "diamond", "clique"]
    tailed = nx.Graph([(0, 1), (1, 2), (2, 0), (2, 3)])
    diamond = nx.Graph([(0, 1), (1, 2), (2, 0), (1, 3), (2, 3)])
    shapes = [nx.path_graph(4), nx.star_graph(3), nx.cycle_graph(4), tailed, diamond]
    counts = motifs(union([*shapes, nx.complete_graph(4)]))
    same(counts, np.eye(len(names), dtype=np.int64))


FUNCTIONS = [degrees, triangles, clustering, motifs, components, connected, wl_hash]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_a_graph_counts_the_same_in_any_company(function):
    graphs = [*GAPS, nx.gnp_random_graph(12, 0.4, seed=3), *GAPS[::-1]]
    alone = np.concatenate([function(union([graph])) for graph in graphs])
    same(function(union(graphs)), alone)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_no_graphs_give_no_counts(function):
    assert len(function(union(GAPS).take([]))) == 0


# ------------------------------------------------------------------------------------- hashing


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
    ours = hashes(
        union([graph for graph, _ in pairs]), np.concatenate([own for _, own in pairs]), rounds
    )
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


# -------------------------------------------------------------------------- rewiring, sampling


@settings(max_examples=60)
@given(random_graphs(), st.integers(0, 6), st.integers(0, 2**32))
def test_rewiring_keeps_degrees_and_features(graphs, swaps, seed):
    x = np.arange(sum(map(len, graphs)))[:, None]
    g = union(graphs)
    g = Graphs(g.ptr, g.edges, x)
    before, stream = g.digest(), Lcg(seed)
    out, done = rewire(g, swaps, stream, tries=5)
    assert g.digest() == before
    same(degrees(out), degrees(g))
    same(out.edge_ptr, g.edge_ptr)
    same(out.x, g.x)
    assert ((done >= 0) & (done <= swaps)).all()
    assert len(stream.calls) <= 5 * swaps
    assert all(len(bounds) == 3 * len(g) for bounds in stream.calls)


@given(random_graphs(), st.integers(0, 2**32))
def test_one_swap_moves_two_edges(graphs, seed):
    g = union(graphs)
    out, done = rewire(g, 1, Lcg(seed))
    for number in range(len(g)):
        left, right = (set(map(tuple, h.take([number]).edges.tolist())) for h in (g, out))
        assert len(left - right) == len(right - left) == 2 * done[number]


def test_rewiring_finishes_or_says_so():
    stuck = [nx.star_graph(5), nx.complete_graph(5), nx.path_graph(2), nx.empty_graph(4)]
    free = [nx.cycle_graph(8), nx.path_graph(9), nx.petersen_graph()]
    stream = Lcg()
    _, done = rewire(union([*stuck, *free]), 7, stream)
    assert done.tolist() == [0, 0, 0, 0, 7, 7, 7]
    assert len(stream.calls) == 7 * 20  # the stuck are tried to the end
    stream = Lcg()
    assert rewire(union(free), 7, stream)[1].tolist() == [7, 7, 7]
    assert len(stream.calls) < 7 * 20  # and nobody is tried once all are done


def test_rewiring_takes_exactly_the_swaps_there_are():
    # A hexagon under every choice of two edges and a crossing: 6 neighbouring pairs share a node,
    # 6 pairs one apart allow one crossing, 3 opposite pairs allow both, one of them two triangles.
    choices = np.array(list(product(range(6), range(5), range(2)))).T
    every = SimpleNamespace(below=lambda bounds: choices.ravel())
    out, done = rewire(union([nx.cycle_graph(6)] * 60), 1, every, tries=1)
    assert done.sum() == 2 * (6 + 3 * 2)
    assert components(out).tolist().count(2) == 2 * 3
    moved = {tuple(map(tuple, (one.edges).tolist())) for one in map(out.take, np.flatnonzero(done))}
    assert len(moved) == 6 + 3 * 2


def test_rewiring_golden():
    g = union([nx.cycle_graph(6), nx.empty_graph(1), nx.path_graph(5), nx.star_graph(2)])
    out, done = rewire(g, 3, Lcg(7))
    assert done.tolist() == [3, 0, 3, 0]
    assert out.edges.tolist() == [
        [0, 2],
        [0, 4],
        [1, 3],
        [1, 5],
        [2, 4],
        [3, 5],
        [7, 9],
        [8, 9],
        [8, 10],
        [10, 11],
        [12, 13],
        [12, 14],
    ]


@pytest.mark.parametrize(("swaps", "tries"), [(-1, 20), (1, 0)])
def test_rewiring_refuses_senseless_counts(swaps, tries):
    with pytest.raises(ParameterError):
        rewire(union(GAPS), swaps, Lcg(), tries)


def scattered():
    """A hub-heavy part, a ring of 15, a part too small, and isolated nodes; numbers shuffled."""
    parts = [nx.barabasi_albert_graph(80, 2, seed=1), nx.cycle_graph(15), nx.complete_graph(6)]
    whole = nx.disjoint_union_all([*parts, nx.empty_graph(3)])
    order = np.random.default_rng(5).permutation(len(whole)).tolist()
    out = nx.Graph()
    out.add_nodes_from(range(len(whole)))
    out.add_edges_from((order[u], order[v]) for u, v in whole.edges)
    return out


def test_subgraphs_are_connected_induced_and_of_the_drawn_size():
    graph = scattered()
    g = Graphs.from_data([item(graph, np.arange(len(graph))[:, None])])
    out = sample_subgraphs(g, 150, Lcg(3))
    replay = Lcg(3)
    start = replay.below(np.full(150, len(graph)))
    target = 12 + replay.below(np.full(150, 21))
    room = np.array([len(nx.node_connected_component(graph, int(node))) for node in start])
    assert (room < 12).any()
    assert ((room >= 12) & (room < target)).any()
    assert out.sizes.tolist() == np.minimum(target, room)[room >= 12].tolist()
    assert connected(out).all()
    for number, begin in enumerate(start[room >= 12]):
        one = out.take([number])
        nodes = one.x[:, 0].astype(int)
        assert begin in nodes
        assert (np.diff(nodes) > 0).all()
        edges = {tuple(pair) for pair in nodes[one.edges].tolist()}
        assert edges == {tuple(sorted(pair)) for pair in graph.subgraph(nodes.tolist()).edges}


def test_subgraphs_of_a_path_reach_their_size():
    out = sample_subgraphs(union([nx.path_graph(200)]), 40, Lcg(), low=32, high=32)
    assert out.sizes.tolist() == [32] * 40
    assert out.x is None
    assert (np.diff(out.edge_ptr) == 31).all()


def test_subgraphs_of_one_node():
    out = sample_subgraphs(union([nx.empty_graph(4)]), 5, Lcg(), low=1, high=3)
    assert out.sizes.tolist() == [1] * 5


def test_subgraphs_refuse():
    with pytest.raises(DataError, match="component of 12"):
        sample_subgraphs(union([nx.complete_graph(11)]), 5, Lcg())
    with pytest.raises(DataError, match="component"):
        sample_subgraphs(union([nx.empty_graph(0)]), 5, Lcg())
    with pytest.raises(ParameterError, match="one graph"):
        sample_subgraphs(union(GAPS), 5, Lcg())
    for count, low, high in [(0, 1, 2), (1, 0, 2), (1, 3, 2)]:
        with pytest.raises(ParameterError):
            sample_subgraphs(union([nx.path_graph(9)]), count, Lcg(), low, high)
