"""The carriers: each check against an independent oracle, the same set from the same secret."""

from __future__ import annotations

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import ks_2samp
from torch_geometric.data import Data, InMemoryDataset

from _helpers.drawn import union
from invgnn.errors import CarrierError, DataError, ParameterError
from invgnn.graphs.disjoint_union import Graphs
from invgnn.graphs.wl_hash import label_nodes, wl_hash
from invgnn.secret import Secret, Stream
from invgnn.stats.ks_test import ks_numerator, similar
from invgnn.watermark.carriers import _ADVICE, Carriers
from invgnn.watermark.mark import Watermark
from invgnn.watermark.reference import Reference, labels_of_nodes
from invgnn.watermark.sampler import Sampler, distinct, hashes_of

SECRET = Secret(bytes(range(32)))


def networks(graphs):
    out = []
    for number in range(len(graphs)):
        one = graphs.take([number])
        out.append(nx.empty_graph(one.num_nodes))
        out[-1].add_edges_from(one.edges.tolist())
    return out


# --- the Kolmogorov-Smirnov test

tied = st.sampled_from([0.0, 1 / 3, 0.5, 2 / 3, 1.0])  # clustering coefficients: few values, many ties
free = st.floats(-5, 5, allow_nan=False)


@given(
    st.lists(st.lists(tied, min_size=2, max_size=30), min_size=1, max_size=4),
    st.lists(tied, min_size=5, max_size=200),
    st.floats(0.001, 0.9),
)
def test_ks_with_ties_decides_as_scipy(samples, pool, delta):
    check_ks(samples, pool, delta)


@given(
    st.lists(st.lists(free, min_size=2, max_size=30), min_size=1, max_size=4),
    st.lists(free, min_size=5, max_size=50),
    st.floats(0.001, 0.9),
)
def test_ks_without_ties_decides_as_scipy(samples, pool, delta):
    check_ks(samples, pool, delta)


def check_ks(samples, pool, delta):
    ptr = np.cumsum([0, *map(len, samples)])
    values, pool = np.concatenate(samples), np.sort(pool)
    found = [ks_2samp(sample, pool, method="asymp") for sample in samples]
    assume(all(abs(one.pvalue - delta) > 1e-6 for one in found))
    numerator = ks_numerator(values, ptr, pool)
    assert numerator.dtype == np.int64  # no rounding can differ between machines
    np.testing.assert_allclose(numerator / (np.diff(ptr) * len(pool)), [one.statistic for one in found])
    assert similar(values, ptr, pool, delta).tolist() == [one.pvalue >= delta for one in found]


# --- what is accepted


@pytest.mark.parametrize(
    "sampler",
    [
        Sampler(),
        Sampler(donors=None),
        Sampler(delta=0.3, size_quantile=0.6),
        Sampler(wl="features", rounds=1),
        Sampler(wave=32),
    ],
    ids=str,
)
def test_every_carrier_passes_every_check(rings, sampler):
    reference = Reference(rings)
    drawn = Carriers.draw(reference, 40, SECRET.derive("test"), sampler)
    carriers, cap = drawn.graphs, np.quantile(rings.sizes, sampler.size_quantile, method="lower")
    assert len(carriers) == 40
    assert carriers.sizes.max() <= cap

    hashes = []
    for graphs in (carriers, rings):
        labels = label_nodes(graphs.x) if sampler.wl == "features" else None
        hashes.append([key.tobytes() for key in wl_hash(graphs, labels, sampler.rounds)])
    assert len(set(hashes[0])) == 40
    assert not set(hashes[0]) & set(hashes[1])

    ours, theirs = networks(carriers), networks(rings)
    kept = sampler.donors is None
    seeds, drawn_from = (
        {
            (graphs.take([i]).x.tobytes() if kept else b"", *dict(g.degree).values())
            for i, g in enumerate(nets)
        }
        for graphs, nets in ((rings, theirs), (carriers, ours))
    )
    assert drawn_from <= seeds
    pools = [np.concatenate([list(part(g)) for g in theirs]) for part in (degrees, clustering)]
    for g in ours:
        for part, pool in zip((degrees, clustering), pools, strict=True):
            assert ks_2samp(list(part(g)), pool, method="asymp").pvalue >= sampler.delta - 1e-9


def degrees(g):
    return dict(g.degree).values()


def clustering(g):
    return nx.clustering(g).values()


def test_no_carrier_is_a_task_graph_or_another_carrier(rings):
    ours = networks(Carriers.draw(Reference(rings), 24, SECRET.derive("test")).graphs)
    theirs = [g for g in networks(rings) if len(g) <= max(map(len, ours))]
    for number, g in enumerate(ours):
        assert not any(nx.faster_could_be_isomorphic(g, h) and nx.is_isomorphic(g, h) for h in theirs)
        assert not any(nx.is_isomorphic(g, h) for h in ours[:number])


def test_refusals_are_counted(rings):
    drawn = Carriers.draw(Reference(rings), 40, SECRET.derive("test"), Sampler(delta=0.5))
    cap = np.quantile(rings.sizes, 0.25, method="lower")
    assert drawn.rejected["seed larger than the size cap"] == (rings.sizes > cap).sum()
    assert drawn.rejected["unusual clustering"] > 0
    assert all(n > 0 for n in drawn.rejected.values())
    assert set(drawn.rejected) <= set(_ADVICE)
    assert drawn.candidates % Sampler().wave == 0
    seen = []
    Carriers.draw(Reference(rings), 40, SECRET.derive("test"), Sampler(delta=0.5), progress=seen.append)
    assert sum(seen) == 40
    few, waves = Sampler(delta=0.5, wave=8), []
    Carriers.draw(Reference(rings), 40, SECRET.derive("test"), few, progress=waves.append)
    assert sum(waves) == 40
    assert len(waves) >= 5
    assert all(0 <= found <= 8 for found in waves)


# --- the same from the same, another from anything else


def test_a_mark_regenerates_bit_for_bit(rings):
    first, again = (Watermark.draw(SECRET, rings, m=32) for _ in range(2))
    assert first.carriers.digest() == again.carriers.digest()
    assert first.ordinary.digest() == again.ordinary.digest()
    assert first.bits.tolist() == again.bits.tolist()
    assert first.digest == again.digest


CHANGES = {
    "m": {"m": 34},
    "invariant": {"invariant": "spectral_radius"},
    "gap": {"gap": 0.2},
    "statistic": {"statistic": "rank"},
    "access": {"access": "embedding"},
    "layer": {"layer": "head:in"},
    "delta": {"sampler": Sampler(delta=0.11)},
    "donors": {"sampler": Sampler(donors=2)},
    "patience": {"sampler": Sampler(patience=65)},  # even what changes no decision
}


@pytest.mark.parametrize("name", CHANGES)
def test_carriers_and_bits_are_bound_to_the_context(rings, name):
    base = Watermark.draw(SECRET, rings, m=32)
    other = Watermark.draw(SECRET, rings, **{"m": 32, **CHANGES[name]})
    assert other.bound != base.bound
    assert other.carriers.digest() != base.carriers.digest()
    assert other.direction("embedding", 64).tolist() != base.direction("embedding", 64).tolist()
    assert other.bits[:32].tolist() != base.bits.tolist()


def test_every_seed_has_its_turn_before_any_comes_twice(rings):
    """Carriers of one seed that keep its features can hardly be told apart."""
    marked = Graphs(rings.ptr, rings.edges, np.arange(rings.num_nodes, dtype=np.float32)[:, None])
    sampler = Sampler(delta=0.0, size_quantile=1.0, wave=16, donors=None)
    drawn = Carriers.draw(Reference(marked), 32, SECRET.derive("test"), sampler)
    first = [int(drawn.graphs.x[start, 0]) for start in drawn.graphs.ptr[:-1]]
    seeds = np.searchsorted(rings.ptr, first, side="right")
    assert len(set(seeds.tolist())) == 32


def test_carriers_are_bound_to_secret_and_reference(rings):
    base = Watermark.draw(SECRET, rings, m=32)
    fewer = rings.take(np.arange(len(rings) - 1))
    for other in (Watermark.draw(Secret(bytes(32)), rings, m=32), Watermark.draw(SECRET, fewer, m=32)):
        assert other.carriers.digest() != base.carriers.digest()
        assert other.bits.tolist() != base.bits.tolist()


@pytest.mark.parametrize("features", ["lent", "kept"])
def test_golden_mark(rings, features):
    """A change here loses every mark ever made."""
    sampler = {"lent": Sampler(), "kept": Sampler(donors=None)}[features]
    mark = Watermark.draw(SECRET, rings, m=16, access="embedding", sampler=sampler)
    golden = GOLDEN[features]
    assert rings.digest() == "6564704e7e75be55127c0024a959fd4a3d083cfcc7e3818096e0e1501cb505ca"
    assert mark.bound == golden["bound"]
    assert mark.carriers.digest() == golden["carriers"]
    assert "".join(map(str, mark.bits)) == golden["bits"]
    assert mark.ordinary.digest() == golden["ordinary"]
    assert mark.direction("embedding", 8).tolist() == golden["projection"]
    np.testing.assert_allclose(mark.targets[:4], golden["targets"], atol=1e-8)


GOLDEN = {
    "lent": {
        "bound": "cd673e5d2c5cd853200d8b4c2a4904e63940af8a28ca73cad224d68b26cb1f18",
        "carriers": "91915086278cf4d6daec2ee176df6a8cb6451c7bf97a81f1be233949a6c997ae",
        "bits": "0100111100101001",
        "ordinary": "072dac20d65e9aff6b28c6837382a17079a190be9ab831675418c01ea348e258",
        "projection": [1.0, -1.0, 1.0, -1.0, -1.0, -1.0, -1.0, 1.0],
        "targets": [0.25, 1.0, 0.25, 0.25],
    },
    "kept": {
        "bound": "20d2b1f0372e5ecf990df4a713ff1a203cab421b2a67f92bc79914716b997565",
        "carriers": "dbda463d1fa40b76c12640210ee7ea24b3df86956fad606b76044b6850185f5d",
        "bits": "0100101001111100",
        "ordinary": "3835eb4e5073ebb52d0f215a7977830439334b882e3c5c2c671deca0dbfc7819",
        "projection": [-1.0, -1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0],
        "targets": [0.25, 1.0, 0.0, 0.0],
    },
}


# --- plain keys


@pytest.mark.parametrize("gap", [0.0, 0.1])
def test_a_plain_key_is_exactly_balanced(rings, gap):
    mark = Watermark.draw(SECRET, rings, m=32, key="plain", gap=gap)
    lambda2 = np.array([np.sort(nx.laplacian_spectrum(g))[1] for g in networks(rings)])
    low, high = np.percentile(lambda2, [5, 95])
    ours = np.array([np.sort(nx.laplacian_spectrum(g))[1] for g in networks(mark.carriers)])
    t = np.clip((ours - low) / (high - low), 0, 1)
    np.testing.assert_allclose(mark.targets, t, atol=1e-7)
    assert mark.bits.tolist() == (t >= 0.5).astype(int).tolist()
    assert mark.bits.sum() == 16
    assert (np.abs(t - 0.5) >= gap - 1e-7).all()


# --- starving: every check can, and is named


FEW = [nx.gnp_random_graph(7, 0.4, seed=seed) for seed in (3, 4)]
ODD = [nx.star_graph(6), nx.complete_graph(6), nx.cycle_graph(7)] * 3
STARVING = {
    "seed with unusual degrees": (ODD, {"delta": 0.999}, 8),
    "seed with fewer than two edges": ([nx.path_graph(2)] * 9 + [nx.cycle_graph(8)], {}, 8),
    "no swap possible": ([nx.complete_graph(5)] * 4 + [nx.complete_graph(6)] * 2, {}, 8),
    "same as a task graph": ([nx.cycle_graph(8)] * 4 + [nx.path_graph(9)], {"delta": 0.0}, 8),
    "same as an earlier carrier": (FEW, {"delta": 0.0}, 64),
    "unusual clustering": ([nx.ring_of_cliques(3 + s % 3, 4) for s in range(9)], {"delta": 0.6}, 8),
}


@pytest.mark.parametrize("check", STARVING)
def test_starving_names_the_check(check):
    graphs, options, m = STARVING[check]
    sampler = Sampler(**{"wave": 64, "patience": 4, "size_quantile": 0.5, "swap_cap": 20, **options})
    starve(check, union(graphs), m, sampler)


@pytest.mark.parametrize(("check", "kind"), [("invariant too close to one half", -1), ("balance", 1)])
def test_starving_quota_names_the_check(rings, check, kind):
    starve(check, rings, 8, Sampler(patience=16), lambda graphs: np.full(len(graphs), kind))


def starve(check, graphs, m, sampler, quota=None):
    with pytest.raises(CarrierError, match=f"{check}: [0-9]") as caught:
        Carriers.draw(Reference(graphs), m, Stream(b"starving"), sampler, quota)
    assert caught.value.advice == _ADVICE[check]


def test_every_advice_was_starved():
    quotas = {"invariant too close to one half", "balance"}
    assert set(_ADVICE) == {*STARVING, *quotas, "seed larger than the size cap"}


@pytest.mark.parametrize(("step", "cap", "checks"), [(1, 1, 1), (1, 2, 2), (5, 5, 1), (2, 5, 2)])
def test_candidates_are_checked_after_every_step_up_to_the_cap_until_patience_ends(
    rings, step, cap, checks
):
    """Where nothing is accepted, every check of every candidate is counted as a refusal."""
    settings = {"swap_step": step, "swap_cap": cap, "wave": 16, "patience": 4}
    sampler = Sampler(delta=0.0, size_quantile=1.0, donors=None, **settings)
    with pytest.raises(CarrierError, match=r"^0 of 8 carriers after 32 candidates; refused: ") as caught:
        Carriers.draw(Reference(rings), 8, Stream(b""), sampler, lambda graphs: np.full(len(graphs), -1))
    counts = [
        int(part.rpartition(": ")[2]) for part in caught.value.message.partition("d: ")[2].split(", ")
    ]
    assert sum(counts) == 32 * checks


def test_two_edges_are_enough_for_a_seed():
    pairs = nx.disjoint_union(nx.path_graph(2), nx.path_graph(2))
    with pytest.raises(CarrierError) as caught:
        Carriers.draw(Reference(union([pairs] * 4)), 8, Stream(b""), Sampler(delta=0.0, wave=8, patience=1))
    assert "fewer than two edges" not in caught.value.message


WAVES = {
    "smaller than the seeds": (Sampler(delta=0.5, wave=8), None),
    "as many as the seeds": (Sampler(delta=0.0, size_quantile=1.0, wave=80, donors=None), None),
    "of two classes": (Sampler(delta=0.3, size_quantile=0.6, wave=16), lambda graphs: graphs.sizes % 2),
}


@pytest.mark.parametrize("waves", WAVES)
def test_golden_waves(rings, waves):
    """Who is drawn, rewired again and refused over several waves; a change here loses every mark."""
    sampler, quota = WAVES[waves]
    drawn = Carriers.draw(Reference(rings), 24, SECRET.derive("waves"), sampler, quota)
    assert (drawn.graphs.digest()[:16], drawn.candidates, dict(drawn.rejected)) == GOLDEN_WAVES[waves]


_CAP, _ODD = "seed larger than the size cap", "seed with unusual degrees"
_TASK, _TWIN, _UNUSUAL = "same as a task graph", "same as an earlier carrier", "unusual clustering"
GOLDEN_WAVES = {
    "smaller than the seeds": (
        *("9fb2344eb2c6622f", 32),
        {_CAP: 58, _ODD: 2, _UNUSUAL: 8, _TASK: 11, _TWIN: 10},
    ),
    "as many as the seeds": ("b1b31c1374a032a3", 80, {_TASK: 6, _TWIN: 1}),
    "of two classes": (
        *("c3d50457a236d6ac", 32),
        {_CAP: 32, _ODD: 1, _UNUSUAL: 8, _TASK: 6, "balance": 4},
    ),
}


# --- the reference


def test_a_reference_holds_two_graphs_at_least():
    pair = union([nx.path_graph(3)] * 2)
    assert Reference(pair).level == "graph"
    with pytest.raises(DataError, match="1 reference graph is not enough"):
        Reference(pair.take([0]))


def test_golden_subgraphs():
    """A ladder without features: whoever draws other subgraphs, or other numbers of them, loses marks."""
    ladder = nx.ladder_graph(30)
    pairs = torch.tensor([*ladder.edges, *((v, u) for u, v in ladder.edges)]).T
    whole = Data(edge_index=pairs, num_nodes=60, y=torch.arange(60) % 3)
    reference = Reference.of(whole)
    assert (len(reference.graphs), reference.graphs.x) == (1000, None)
    assert reference.digest[:16] == "ddc5c2a29222e8d2"
    assert reference.labels_at(np.array([0])).tolist()[:6] == [0, 1, 2, 0, 1, 2]
    old = Reference.of(whole, version=1)
    assert old.digest == old.graphs.digest_1()
    assert old.digest[:16] == "766765d54d048dbd"


@pytest.mark.parametrize(("count", "enough"), [(99, False), (100, True)])
def test_a_node_task_needs_a_tenth_of_its_subgraphs(web, monkeypatch, count, enough):
    some = Reference.of(web.data).graphs.take(np.arange(count))
    found = some, np.zeros(some.num_nodes, dtype=np.int64)
    monkeypatch.setattr("invgnn.watermark.reference._subgraphs", lambda *_: found)
    if enough:
        assert len(Reference.of(web.data).graphs) == count
    else:
        with pytest.raises(DataError, match="only 99 of 1000 random subgraphs reach 12 nodes"):
            Reference.of(web.data)


def test_marks_of_format_1_are_bound_to_another_digest_of_the_same_graphs(rings, motifs):
    assert Reference.of(rings, version=1).digest == rings.digest_1() != rings.digest()
    items = motifs.data[:5]
    assert Reference.of(items, version=1).digest == Graphs.from_data(items).digest_1()


def test_a_node_task_is_a_population_of_subgraphs(web):
    reference = Reference.of(web.data)
    assert reference.level == "node"
    assert len(reference.graphs) > 100
    assert reference.graphs.sizes.min() >= 12
    assert reference.graphs.sizes.max() <= 32
    assert all(map(nx.is_connected, networks(reference.graphs)))
    assert Reference.of(web.data).digest == reference.digest  # public: everybody gets the same
    mark = Watermark.draw(SECRET, reference, m=16)
    assert mark.context["level"] == "node"
    assert mark.carriers.sizes.min() >= 12


class Held(InMemoryDataset):
    def __init__(self, items):
        super().__init__()
        self.data, self.slices = self.collate(items)


@pytest.mark.parametrize("shape", ["list", "dataset", "slice", "generator", "Graphs", "Reference"])
def test_a_reference_from_whatever_holds_graphs(motifs, shape):
    items = [Data(x=g.x, edge_index=g.edge_index, y=g.y, num_nodes=g.num_nodes) for g in motifs.data[:30]]
    given = {
        "list": lambda: items,
        "dataset": lambda: Held(items),
        "slice": lambda: Held([*items, *items])[:30],
        "generator": lambda: (g for g in items),
        "Graphs": lambda: Graphs.from_data(items),
        "Reference": lambda: Reference(Graphs.from_data(items)),
    }[shape]()
    reference = Reference.of(given)
    assert reference.level == "graph"
    assert reference.digest == Graphs.from_data(items).digest()


def test_samplers_tell_themselves_apart():
    records = [Sampler().record(), replace(Sampler(), rounds=4).record()]
    assert records[0] != records[1]
    assert Sampler.recall(records[1]) == replace(Sampler(), rounds=4)


@pytest.mark.parametrize(
    ("name", "most"),
    [("swap_cap", 10_000), ("rounds", 32), ("wave", 65_536), ("patience", 100_000), ("donors", 4096)],
)
def test_whole_numbers_of_a_sampler_go_from_one_to_a_limit(name, most):
    assert getattr(Sampler(**{"swap_step": 1, name: 1}), name) == 1
    assert getattr(Sampler(**{name: most}), name) == most
    for value in (0, most + 1, 2.0, True):
        with pytest.raises(ParameterError, match=rf"^{name} is "):
            Sampler(**{"swap_step": 1, name: value})


def test_the_other_settings_of_a_sampler_at_their_ends():
    Sampler(swap_step=10_000, swap_cap=10_000)
    Sampler(delta=0, size_quantile=1)
    for wrong in (
        *({"swap_step": 51}, {"swap_step": 0}, {"swap_step": 10_001, "swap_cap": 10_000}),
        *({"delta": -0.01}, {"delta": 1}, {"size_quantile": 0}, {"size_quantile": 1.01}),
        *({"delta": None}, {"size_quantile": float("nan")}, {"wl": "colours"}),
    ):
        with pytest.raises(ParameterError):
            Sampler(**wrong)
    for name in ("delta", "size_quantile"):
        for value in (None, "0.1", float("nan")):
            with pytest.raises(ParameterError, match=f"^{name} is .*expected a finite number"):
                Sampler(**{name: value})


def test_features_tell_graphs_apart_only_where_they_are_compared():
    ends = torch.tensor([[0, 1], [1, 0]])
    pairs = [Data(x=torch.tensor(x), edge_index=ends, num_nodes=2) for x in ([[1], [2]], [[1], [3]])]
    graphs, seen, unseen = Graphs.from_data(pairs), Sampler(wl="features"), Sampler(wl="structure")
    assert distinct(graphs, seen) is True
    assert distinct(graphs, unseen) is False
    assert len(set(hashes_of(graphs, seen))) == 2
    bare = Graphs(graphs.ptr, graphs.edges)
    assert hashes_of(bare, seen) == hashes_of(bare, unseen) == hashes_of(graphs, unseen)


def test_a_sampler_comes_back_from_its_record():
    for sampler in (Sampler(), Sampler(donors=None), Sampler(wl="features", wave=7)):
        assert Sampler.recall(sampler.record()) == sampler
    assert "lenders" not in Sampler(donors=None).record()
    for wrong in (None, [], ["wl"], Sampler().record() | {"note": 1}, {"donors": 3}):
        with pytest.raises(ParameterError, match="unknown fields"):
            Sampler.recall(wrong)


# --- labels


def labelled(*labels):
    """Pairs of nodes with these labels."""
    return [Data(edge_index=torch.tensor([[0, 1], [1, 0]]), num_nodes=2, y=y) for y in labels]


@pytest.mark.parametrize(
    ("labels", "found"),
    [
        (([0], [2], [1]), [0, 2, 1]),
        ((1, 0), [1, 0]),
        (([0], [-1]), None),
        (([0], [1, 1]), None),
        (([0], [1.0]), None),
        (([0], None), None),
    ],
)
def test_classes_of_graphs_are_whole_numbers_one_each(labels, found):
    items = labelled(*(None if y is None else torch.tensor(y) for y in labels))
    reference = Reference.of(items)
    assert (None if reference.labels is None else reference.labels.tolist()) == found
    chosen = reference.labels_at(np.array([1, 0]))
    assert (None if chosen is None else chosen.tolist()) == (
        None if found is None else [found[1], found[0]]
    )


@pytest.mark.parametrize(
    ("y", "found"),
    [(3, [3, 3]), (np.uint8(2), [2, 2]), (torch.tensor([0.5], requires_grad=True), None), ("two", None)],
)
def test_classes_may_be_plain_numbers_and_learnt_numbers_are_none(y, found):
    labels = Reference.of(labelled(y, y)).labels
    assert (None if labels is None else labels.tolist()) == found


def test_without_labels_nodes_have_none_either():
    assert Reference(union([nx.path_graph(3)] * 2), "node").labels_at(np.array([0])) is None


def test_classes_of_nodes_are_those_of_training():
    y, mask = torch.tensor([2, 0, -1, 1]), torch.tensor([True, False, True, True])
    graph = Data(num_nodes=4, y=y)
    assert labels_of_nodes(graph).tolist() == [2, 0, -1, 1]
    graph.y = torch.tensor([2, 0, -7, 1])
    assert labels_of_nodes(graph).tolist() == [2, 0, -1, 1]
    graph.train_mask = mask
    assert labels_of_nodes(graph).tolist() == [2, -1, -1, 1]
    graph.train_mask = torch.stack([mask, ~mask | mask], 1)  # two splits: of either
    assert labels_of_nodes(graph).tolist() == [2, 0, -1, 1]
    for wrong in (None, y[:3], y.double(), y[:, None]):
        graph.y = wrong
        assert labels_of_nodes(graph) is None


def test_labels_of_a_node_task_follow_the_nodes_of_the_subgraphs(web):
    """Features tell which node of the one graph each node is: they are drawn from a continuum."""
    reference = Reference.of(web.data)
    place = {
        row.tobytes(): int(label)
        for row, label in zip(web.graphs[0].x.numpy(), labels_of_nodes(web.data), strict=True)
    }
    expected = [place[row.tobytes()] for row in reference.graphs.x]
    assert reference.labels.tolist() == expected
    first = reference.graphs.sizes[0]
    at = reference.labels_at(np.array([2, 0]))
    assert at[-first:].tolist() == expected[:first]
    assert len(at) == first + reference.graphs.sizes[2]


@pytest.mark.parametrize(
    ("labels", "classes"),
    [(None, None), ([-1, -1], None), ([0, 0], None), ([0, 1], 2), ([-1, 1], 2), ([4, 0], 5)],
)
def test_the_number_of_classes_is_one_more_than_the_largest(labels, classes):
    graphs = Graphs.from_data(labelled(None, None))
    assert Reference(graphs, labels=None if labels is None else np.array(labels)).num_classes == classes
