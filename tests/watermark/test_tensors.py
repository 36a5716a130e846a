"""Marks of graphs with further tensors: donated by the task, bound to the bits, taught and read."""

from __future__ import annotations

import copy
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GATv2Conv, GINEConv, global_add_pool, global_mean_pool

from invgnn.audit.verify import verify
from invgnn.errors import DataError, FileError, ParameterError, SuspectError
from invgnn.graphs.attributed import Attributed
from invgnn.nn.forward import call
from invgnn.secret import Secret
from invgnn.storage import encoding
from invgnn.watermark.mark import Watermark
from invgnn.watermark.reference import Reference

SECRET = Secret(bytes(range(32)))


def molecule(seed, *, classes=2):
    """A random graph with one-hot node features, one-hot bonds, whole-number types, weights and more."""
    rng = np.random.default_rng(seed)
    graph = nx.gnp_random_graph(int(rng.integers(9, 15)), 0.3, seed=seed)
    graph.add_edges_from(nx.path_graph(len(graph)).edges)
    pairs = np.array(sorted(graph.edges)).reshape(-1, 2)
    bonds = rng.integers(0, 3, len(pairs))
    atoms = rng.integers(0, 4, len(graph))
    both = np.concatenate([pairs, pairs[:, ::-1]]).T
    eye = torch.eye
    return Data(
        x=eye(4)[atoms],
        edge_index=torch.from_numpy(both.copy()),
        edge_attr=eye(3)[np.tile(bonds, 2)],
        edge_weight=torch.from_numpy(np.tile(1.0 + bonds, 2)).float(),
        z=torch.from_numpy(10 * atoms),
        u=torch.tensor([[float(len(graph))]]),
        y=torch.tensor([int((bonds == 2).sum() > len(bonds) / 3)]) if classes else None,
    )


DATA = [molecule(seed) for seed in range(60)]


@pytest.fixture(scope="module")
def mark():
    return Watermark.draw(SECRET, DATA, m=64)


class Bonds(nn.Module):
    """GINE or GATv2 with batch norm; edge attributes are a required argument."""

    def __init__(self, kind="gine", width=32):
        super().__init__()
        torch.manual_seed(0)
        if kind == "gine":
            self.conv = GINEConv(
                nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, width)), edge_dim=3
            )
        else:
            self.conv = GATv2Conv(4, width, edge_dim=3)
        self.norm, self.hidden = nn.BatchNorm1d(width), nn.Linear(width, width)
        self.out = nn.Linear(width, 2)

    def forward(self, x, edge_index, edge_attr, batch):
        hidden = self.norm(self.conv(x, edge_index, edge_attr)).relu()
        return self.out(self.hidden(global_add_pool(hidden, batch)).relu())


def taught(mark, model, way, epochs=40):
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    rate = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.05, epochs)
    generator = torch.Generator().manual_seed(1)
    for _ in range(epochs):
        for batch in DataLoader(DATA, 30, shuffle=True, generator=generator):
            optimiser.zero_grad()
            if way == "mix":
                mixed = mark.mix(batch)
                loss = mixed.joint_loss(cross_entropy(mixed(model), batch.y))
            else:
                loss = cross_entropy(
                    model(batch.x, batch.edge_index, batch.edge_attr, batch.batch), batch.y
                )
                loss = mark.joint_loss(model, loss) if way == "joint" else loss + mark.loss(model)
            loss.backward()
            optimiser.step()
        rate.step()
    return model.eval()


# -- where carriers get their tensors --------------------------------------------------------------


def test_carriers_have_the_tensors_of_the_task(mark):
    assert sorted(mark.shown.names) == ["edge_attr", "edge_weight", "u", "x", "z"]
    carriers, ordinary = mark.presented
    assert (len(carriers), len(ordinary)) == (64, 60)
    assert carriers.edge_index.tolist() == mark.carriers.directed().tolist()
    assert carriers.x.tolist() == mark.carriers.x.tolist()


def test_both_directions_of_an_edge_have_the_attributes_of_one_task_edge(mark):
    carriers = mark.presented[0]
    rows = {}
    for place, (u, v) in enumerate(carriers.edge_index.T.tolist()):
        both = (carriers.edge["edge_attr"][place].tolist(), float(carriers.edge["edge_weight"][place]))
        assert rows.setdefault((min(u, v), max(u, v)), both) == both
        assert both[1] == 1 + both[0].index(1)  # the weight that a task edge with this attribute has
    counts = carriers.edge["edge_attr"].mean(0)
    task = torch.cat([one.edge_attr for one in DATA]).mean(0).numpy()
    np.testing.assert_allclose(counts, task, atol=0.06)  # drawn as often as the task has them


def test_attributes_that_differ_by_direction_stay_a_pair():
    data = [copy.copy(one) for one in DATA]
    for one in data:
        up = (one.edge_index[0] < one.edge_index[1]).float()
        one.edge_attr = torch.stack([up, 1 - up], 1)
    carriers = Watermark.draw(SECRET, data, m=16).presented[0]
    upward = carriers.edge_index[0] < carriers.edge_index[1]
    assert (carriers.edge["edge_attr"][:, 0] == upward).all()


def test_node_tensors_come_from_a_node_with_the_same_features(mark):
    carriers = mark.presented[0]
    assert (carriers.node["z"] == 10 * carriers.x.argmax(1)).all()
    assert set(carriers.graph["u"].ravel()) <= {float(one.num_nodes) for one in DATA}


def test_ordinary_inputs_are_task_graphs_as_they_are(mark):
    ordinary = mark.presented[1]
    stored = {encoding.encode(ordinary.take([i]).record()) for i in range(len(ordinary))}
    task = Reference.of(DATA).tensors
    assert stored <= {encoding.encode(task.take([i]).record()) for i in range(len(task))}


def test_tensors_can_be_chosen():
    assert Watermark.draw(SECRET, DATA, m=16, tensors=("edge_attr",)).shown.names == ["x", "edge_attr"]
    with pytest.raises(DataError, match="no 'edge_color'"):
        Watermark.draw(SECRET, DATA, m=16, tensors=("edge_color",))
    with pytest.raises(ParameterError, match="selects from data"):
        Watermark.draw(SECRET, Reference.of(DATA), m=16, tensors=())


def test_without_further_tensors_a_mark_keeps_every_byte():
    bare = [Data(x=one.x, edge_index=one.edge_index, y=one.y) for one in DATA]
    one, other = Watermark.draw(SECRET, bare, m=16), Watermark.draw(SECRET, DATA, m=16, tensors=())
    assert one.shown is None
    assert one.digest == other.digest
    assert set(encoding.decode(one.questions.bytes)) == {"carriers", "ordinary", "labels"}


@pytest.mark.parametrize("kind", [torch.long, torch.bool])
def test_whole_numbers_and_truth_values_stay_what_they_are(kind):
    data = [copy.copy(one) for one in DATA]
    for one in data:
        one.edge_attr = one.edge_attr.argmax(1).to(kind)
    seen = []
    mark = Watermark.draw(SECRET, data, m=16, tensors=("edge_attr",))
    mark.read(lambda batch: seen.append(batch.edge_attr) or torch.randn(batch.num_graphs, 2), "logits")
    assert seen[0].dtype == kind


# -- what a suspect is shown is what was bound -----------------------------------------------------


def test_a_suspect_is_shown_what_is_decoded_from_the_bound_bytes(mark):
    shown = []
    mark.fresh().read(lambda batch: shown.append(batch) or torch.randn(batch.num_graphs, 2), "logits")
    (batch,) = shown
    bound = Attributed.recall(encoding.decode(mark.questions.bytes)["shown"]).take(mark._order)
    assert set(batch.keys()) == {*bound.names, "edge_index", "batch", "ptr", "num_nodes"}
    for kind in ("node", "edge", "graph"):
        for name, value in getattr(bound, kind).items():
            np.testing.assert_array_equal(batch[name].numpy(), value)


@pytest.mark.parametrize(("kind", "name"), [("edge", "edge_attr"), ("node", "z"), ("graph", "u")])
def test_whoever_changes_a_tensor_gets_other_bits(mark, kind, name):
    values = getattr(mark.shown, kind)[name].copy()
    values[-1] = values[-1] + 1
    table = getattr(mark.shown, kind) | {name: values}
    other = replace(mark, shown=replace(mark.shown, **{kind: table}))
    assert other.digest != mark.digest
    assert other.bits.tolist() != mark.bits.tolist()


def test_whoever_renames_or_drops_a_tensor_gets_other_bits(mark):
    edge = dict(mark.shown.edge)
    edge["bond"] = edge.pop("edge_weight")
    for shown in (replace(mark.shown, edge=edge), None):
        assert replace(mark, shown=shown).bits.tolist() != mark.bits.tolist()


def test_what_a_suspect_writes_does_not_reach_the_next(mark):
    seen = []

    def vandal(batch):
        seen.append(batch.edge_attr.clone())
        batch.edge_attr.zero_()
        return torch.randn(batch.num_graphs, 2)

    mark.read(vandal, "logits")
    mark.read(vandal, "logits")
    assert torch.equal(seen[0], seen[1])
    assert seen[0].any()


def test_the_reference_digest_covers_the_tensors():
    other = [copy.copy(one) for one in DATA]
    other[7].edge_attr = other[7].edge_attr.flip(1)
    assert Reference.of(DATA).digest != Reference.of(other).digest


def test_a_mark_comes_back_from_its_file(mark, tmp_path):
    mark.save(tmp_path / "rich.mark", insecure_no_passphrase=True)
    again = Watermark.load(tmp_path / "rich.mark")
    assert again.digest == mark.digest
    assert encoding.encode(again.shown.record()) == encoding.encode(mark.shown.record())


def test_carriers_that_look_the_same_are_refused(mark):
    twice = mark.shown.take([0, 0, *range(2, len(mark.shown))])
    with pytest.raises(ParameterError, match="look the same"):
        replace(mark, shown=twice)
    with pytest.raises(ParameterError, match="questions"):
        replace(mark, shown=mark.shown.take([0, 1]))


def test_a_file_whose_tensors_do_not_fit_is_refused(mark, tmp_path):
    from invgnn.storage import container
    from invgnn.watermark.mark_file import pack

    fields = {name: getattr(mark, name) for name in mark.__dataclass_fields__}
    body, tensors = pack(fields, mark.digest)
    for number, change in enumerate(
        (
            {"shown.edge.edge_attr": np.ones((3, 3), np.float32)},
            {"shown.body.edge_attr": np.ones(3, np.float32)},
            {"shown.node.batch": np.ones(mark.shown.num_nodes, np.float32)},
            {"shown.edge.edge_attr": np.zeros_like(tensors["shown.edge.edge_attr"])},
        )
    ):
        path = tmp_path / f"{number}.mark"
        container.write(path, "mark", body, tensors | change, private=True)
        with pytest.raises(FileError, match="no sound mark"):
            Watermark.load(path)


def test_a_score_channel_is_bound_to_the_tensors_too():
    mark = Watermark.draw(SECRET, DATA, m=16, score_channel=16)
    mark = mark.with_baseline(Bonds().eval(), DATA)
    assert len(mark.channel(DATA).direction) == 16
    other = [copy.copy(one) for one in DATA]
    other[7].edge_attr = other[7].edge_attr.flip(1)
    with pytest.raises(DataError, match="not the inputs"):
        mark.channel(other)


# -- teaching and reading --------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["mix", "loss", "joint"])
def test_a_model_with_edge_attributes_is_taught(mark, way):
    model = taught(mark, Bonds(), way)
    verdict = verify(model, mark)
    assert verdict.evidence_bits > 30
    assert verdict.called == "by its own signature"
    rest, eager = (float(mark.loss(model.train(on)).detach()) for on in (False, True))
    assert rest < 0.5
    assert abs(rest - eager) < 0.35


def test_a_forward_that_would_fill_in_a_constant_gets_attributes(mark):
    """Carriers had none once: the constant in their place was normalised by statistics of its own."""
    filled = []

    def forward(model, batch):
        attr = getattr(batch, "edge_attr", None)
        if attr is None:
            filled.append(batch)
            attr = torch.ones(batch.num_edges, 3)
        return model(batch.x, batch.edge_index, attr, batch.batch)

    mark = mark.replace(forward=forward)
    model = taught(mark, Bonds(), "loss")
    verdict = verify(model, mark)
    assert not filled
    assert verdict.evidence_bits > 30
    assert [one["name"].rpartition(".")[2] for one in verdict.code["foreign"]].count("forward") == 1


@pytest.mark.slow
def test_attention_over_edge_attributes_is_taught(mark):
    assert verify(taught(mark, Bonds("gat"), "joint", 150), mark).evidence_bits > 25


def test_an_unmarked_model_with_edge_attributes_is_not_accused(mark):
    assert verify(Bonds().eval(), mark).status == "not shown"


def test_a_mixed_batch_is_the_batch_pyg_would_collate(mark):
    task = Batch.from_data_list(DATA[:20])
    mixed = mark.mix(task).batch
    carriers = mark.presented[0]
    for name in ("x", "z", "edge_attr", "edge_weight", "u"):
        kind = next(k for k in ("node", "edge", "graph") if name in getattr(carriers, k))
        want = torch.cat([task[name], torch.from_numpy(getattr(carriers, kind)[name])])
        torch.testing.assert_close(mixed[name], want.to(mixed[name].dtype), rtol=0, atol=0)
    assert mixed.num_graphs == 20 + 64


def test_a_batch_with_other_attributes_cannot_be_mixed(mark):
    task = Batch.from_data_list(DATA[:20])
    task.edge_attr = task.edge_attr[:, :2]
    with pytest.raises(DataError, match=r"edge_attr of the batch.*\(2,\)"):
        mark.mix(task)
    bare = Watermark.draw(SECRET, DATA, m=16, tensors=())
    with pytest.raises(DataError, match="edge_attr"):
        bare.mix(Batch.from_data_list(DATA[:20]))


def test_a_model_that_needs_what_carriers_lack_says_so():
    bare = Watermark.draw(SECRET, DATA, m=16, tensors=())
    for use in (bare.loss, bare.read):
        with pytest.raises(SuspectError, match=r"requires edge_attr.*\n.*data that have it"):
            use(Bonds())


def test_labels_and_loader_numbers_are_not_passed_to_a_model():
    class Optional(nn.Module):
        def forward(self, x, edge_index, batch=None, y=None, batch_size=None, n_id=None, edge_weight=None):
            assert (y, batch_size, n_id) == (None, None, None)
            assert edge_weight is not None
            return global_mean_pool(x, batch)

    batch = Batch.from_data_list(DATA[:4])
    batch.batch_size, batch.n_id = 2, torch.arange(batch.num_nodes)
    assert call(Optional(), batch).shape == (4, 4)


class Encodings(nn.Module):
    """A model without node features, on whole-number node types and positions."""

    def __init__(self, names):
        super().__init__()
        self.names, self.table = names, nn.Embedding(64, 16)
        self.hidden, self.out = nn.Linear(16, 16), nn.Linear(16, 2)

    def forward(self, data):
        hidden = self.table(data.z) + (data.pos.sum(1, keepdim=True) if "pos" in self.names else 0)
        return self.out(self.hidden(global_mean_pool(hidden, data.batch)).relu())


@pytest.mark.parametrize("double", [False, True])
def test_graphs_without_node_features_work(double):
    data = []
    for seed in range(40):
        one = molecule(seed)
        one.pos = torch.randn(one.num_nodes, 3, generator=torch.Generator().manual_seed(seed))
        del one.x
        data.append(one)
    mark = Watermark.draw(SECRET, data, m=16)
    model = Encodings(["pos"]).to(torch.float64 if double else torch.float32)
    assert torch.isfinite(mark.loss(model))
    batch = Batch.from_data_list(data[:20])
    batch.pos = batch.pos.double() if double else batch.pos
    mixed = mark.mix(batch, step=0)
    assert torch.isfinite(mixed.joint_loss(cross_entropy(mixed(model), batch.y)))
    assert mark.read(model, "embedding").carriers.std() > 0


# -- one large graph, and directed graphs ----------------------------------------------------------


def city(seed=0, nodes=400):
    """One graph with a class per node, edge weights and a one-way street here and there."""
    graph = nx.connected_watts_strogatz_graph(nodes, 6, 0.2, seed=seed)
    pairs = np.array(graph.edges).T
    rng = np.random.default_rng(seed)
    weight = rng.random(pairs.shape[1]).astype(np.float32)
    both = np.concatenate([pairs, pairs[::-1]], 1)
    return Data(
        x=torch.from_numpy(rng.random((nodes, 5)).astype(np.float32)),
        edge_index=torch.from_numpy(both),
        edge_weight=torch.from_numpy(np.tile(weight, 2)),
        y=torch.from_numpy(rng.integers(0, 3, nodes)),
    )


def test_subgraphs_of_one_graph_keep_the_weights_of_their_edges():
    whole = city()
    reference = Reference.of(whole)
    pairs = zip(*whole.edge_index.tolist(), whole.edge_weight.tolist(), strict=True)
    known = {(u, v): weight for u, v, weight in pairs}
    row = {tuple(x): number for number, x in enumerate(whole.x.tolist())}
    held = reference.tensors.take([0, 1, 2])
    number = [row[tuple(x)] for x in held.x.tolist()]
    for (u, v), weight in zip(held.edge_index.T.tolist(), held.edge["edge_weight"].tolist(), strict=True):
        assert known[number[u], number[v]] == pytest.approx(weight)
    mark = Watermark.draw(SECRET, reference, m=16)
    assert mark.level == "node"
    assert mark.mix(whole, step=0).batch.edge_weight.shape[0] > len(whole.edge_weight)


def cascade(seed):
    graph = nx.gn_graph(14, seed=seed)
    graph.add_edges_from(nx.gnp_random_graph(14, 0.12, seed=seed, directed=True).edges)
    return Data(
        x=torch.eye(3)[torch.arange(14) % 3],
        edge_index=torch.tensor(list(graph.edges)).T,
        edge_attr=torch.arange(float(graph.number_of_edges()))[:, None],
        y=torch.tensor([seed % 2]),
    )


@pytest.mark.parametrize("tensors", [None, ()])
def test_directed_graphs_stay_directed(tensors, tmp_path):
    data = [cascade(seed) for seed in range(50)]
    mark = Watermark.draw(SECRET, data, m=16, tensors=tensors)
    assert mark.carriers.is_directed
    assert (mark.shown is None) == (tensors == ())
    degrees = {
        tuple(
            sorted(
                zip(*(torch.bincount(row, minlength=14).tolist() for row in one.edge_index), strict=True)
            )
        )
        for one in data
    }
    seen = []
    mark.read(lambda batch: seen.append(batch) or torch.randn(batch.num_graphs, 2), "logits")
    for one in seen[0].to_data_list():
        found = zip(*(torch.bincount(row, minlength=14).tolist() for row in one.edge_index), strict=True)
        assert tuple(sorted(found)) in degrees  # in- and out-degrees are those of a task graph
    mark.save(tmp_path / "directed.mark", insecure_no_passphrase=True)
    assert Watermark.load(tmp_path / "directed.mark").digest == mark.digest


def test_one_directed_graph_gives_directed_subgraphs():
    whole = city()
    keep = (whole.edge_index[0] < whole.edge_index[1]) | (torch.arange(whole.num_edges) % 3 == 0)
    whole.edge_index, whole.edge_weight = whole.edge_index[:, keep], whole.edge_weight[keep]
    reference = Reference.of(whole)
    assert reference.graphs.is_directed
    row = {tuple(x): number for number, x in enumerate(whole.x.tolist())}
    held = reference.graphs.take([3])
    number = [row[tuple(x)] for x in held.x.tolist()]
    mine = {(number[u], number[v]) for u, v in held.edges.tolist()}
    inside = {(u, v) for u, v in whole.edge_index.T.tolist() if u in number and v in number}
    assert mine == inside
    assert Watermark.draw(SECRET, reference, m=16).carriers.is_directed


def test_a_mark_of_before_still_finds_its_data():
    """Marks that were drawn when edge attributes and directions were ignored have no such tensors."""
    data = [cascade(seed) for seed in range(40)]
    with pytest.warns(UserWarning, match="one direction only"):
        old = Reference.of(data, tensors=(), keep_directions=False)
    mark = Watermark.draw(SECRET, old, m=16, score_channel=16)
    with pytest.warns(UserWarning, match="one direction only"):
        assert mark._features(data) == 16
