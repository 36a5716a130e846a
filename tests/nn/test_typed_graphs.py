"""Typed graphs: carriers keep types, models get HeteroData, and marks are embedded and read."""

import numpy as np
import pytest
import torch
from torch_geometric.data import Batch, HeteroData
from torch_geometric.loader import DataLoader
from torch_geometric.nn import HGTConv, Linear, SAGEConv, global_add_pool, to_hetero

from invgnn.audit.verify import verify
from invgnn.errors import DataError, SuspectError, WeakMarkWarning
from invgnn.graphs.rewiring import rewire_within
from invgnn.nn.rng import seeded
from invgnn.nn.typed_graphs import Schema
from invgnn.secret import Secret, public_stream
from invgnn.watermark.feature_donors import TypedDonors, types_of
from invgnn.watermark.mark import Watermark
from invgnn.watermark.reference import Reference

SECRET = Secret(bytes(range(32)))


def library(kind):
    """Authors, papers that cite papers, and the reverse of who writes what."""
    data = HeteroData(y=torch.tensor([kind]))
    authors, papers = int(torch.randint(5, 8, ())), int(torch.randint(8, 12, ()))
    data["author"].x, data["paper"].x = torch.randn(authors, 2), torch.randn(papers, 3) + kind
    written = (torch.rand(authors, papers) < 0.35).nonzero().t()
    data["author", "writes", "paper"].edge_index = written
    data["paper", "rev_writes", "author"].edge_index = written.flip(0)
    cited = (torch.rand(papers, papers) < 0.2) & ~torch.eye(papers, dtype=torch.bool)
    data["paper", "cites", "paper"].edge_index = cited.nonzero().t()
    return data


@pytest.fixture(scope="module")
def graphs():
    with seeded(0):
        return [library(number % 2) for number in range(60)]


@pytest.fixture(scope="module")
def mark(graphs):
    return Watermark.draw(SECRET, graphs, m=16)


class Attention(torch.nn.Module):
    def __init__(self, metadata, width=8):
        super().__init__()
        self.first = torch.nn.ModuleDict({"author": Linear(2, width), "paper": Linear(3, width)})
        self.conv, self.out = HGTConv(width, width, metadata, heads=2), Linear(width, 2)

    def forward(self, x_dict, edge_index_dict, batch_dict):
        x = self.conv({name: self.first[name](x) for name, x in x_dict.items()}, edge_index_dict)
        return self.out(global_add_pool(x["paper"].relu(), batch_dict["paper"]))


class Sage(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = SAGEConv((-1, -1), 32)

    def forward(self, x, edge_index):
        return self.conv(x, edge_index).relu()


class Converted(torch.nn.Module):
    def __init__(self, metadata):
        super().__init__()
        self.body, self.out = to_hetero(Sage(), metadata), torch.nn.Linear(32, 2)

    def forward(self, data):
        x = self.body(data.x_dict, data.edge_index_dict)
        return self.out(global_add_pool(x["paper"], data["paper"].batch, size=data.num_graphs))


def edges(data, one):
    return set(map(tuple, data[one].edge_index.t().tolist()))


def test_a_typed_graph_survives_the_way_there_and_back(graphs):
    schema = Schema.of(graphs)
    assert schema.relations == (("author", "writes", "paper"), ("paper", "cites", "paper"))
    assert schema.reverses == {("paper", "rev_writes", "author"): ("author", "writes", "paper")}
    back = schema.restore(Batch.from_data_list([schema.flatten(graph) for graph in graphs[:7]]))
    want = Batch.from_data_list(graphs[:7])
    assert back.num_graphs == 7
    for name in want.node_types:
        assert back[name].x.equal(want[name].x)
        assert back[name].batch.equal(want[name].batch)
    assert back.edge_types == want.edge_types  # HGTConv depends on the order
    assert all(edges(back, one) == edges(want, one) for one in want.edge_types)


def test_swaps_keep_the_degrees_of_every_relation(graphs):
    schema = Schema.of(graphs)
    plain = Reference.of([schema.flatten(graph) for graph in graphs[:9]]).graphs
    kind = types_of(plain.x, 2)
    found, done = rewire_within(plain, kind, 5, public_stream("swaps"))
    assert (done >= 5).all()
    assert found.is_directed
    for one in ((0, 1), (1, 1)):
        before, after = (g.edges[(kind[g.edges] == one).all(1)] for g in (plain, found))
        assert not np.array_equal(before, after)
        for side in (0, 1):  # out-degrees of the sources, in-degrees of the targets
            assert np.array_equal(np.bincount(before[:, side]), np.bincount(after[:, side]))
    assert len(found.edges) == len(plain.edges)
    assert np.array_equal(found.edges, np.unique(found.edges, axis=0))  # sorted, none twice


def test_donors_give_to_nodes_of_their_type(graphs):
    schema = Schema.of(graphs)
    plain = Reference.of([schema.flatten(graph) for graph in graphs[:9]]).graphs
    found = TypedDonors.collect(plain.x, 2, 3, public_stream("d")).donate(plain, public_stream("e"))
    assert np.array_equal(types_of(found.x, 2), types_of(plain.x, 2))
    assert {row.tobytes() for row in found.x} <= {row.tobytes() for row in plain.x}
    assert not np.array_equal(found.x, plain.x)


def test_carriers_are_graphs_that_the_model_can_be_given(graphs, mark):
    kind = types_of(mark.carriers.x, 2)
    ends = {tuple(pair) for pair in kind[mark.carriers.edges]}
    assert ends == {(0, 1), (1, 1)}
    assert mark.context["sampler"]["types"] == 2
    plain = Watermark.draw(SECRET, [Schema.of(graphs).flatten(graph) for graph in graphs], m=16)
    assert "types" not in plain.context["sampler"]  # graphs without types are bound as before
    assert plain.digest != mark.digest


@pytest.mark.filterwarnings("ignore::invgnn.errors.WeakMarkWarning")
@pytest.mark.parametrize("kind", [Attention, Converted])
def test_a_model_of_typed_graphs_is_marked_and_read(kind, graphs, mark, tmp_path):
    with seeded(1):
        model = kind(graphs[0].metadata())
        batch = next(iter(DataLoader(graphs, 60)))
        arguments = (
            (batch.x_dict, batch.edge_index_dict, batch.batch_dict) if kind is Attention else (batch,)
        )
        model(*arguments)  # sets the width of lazy layers
    found = mark.embed(model, graphs, steps=80)
    assert max(found.bits.values()) > 8
    mark.save(tmp_path / "a.mark", insecure_no_passphrase=True)
    again = Watermark.load(tmp_path / "a.mark", forward=Schema.of(graphs))
    assert again.digest == mark.digest
    assert verify(model, again).bits == pytest.approx(verify(model, mark).bits)
    assert mark.finish(model, graphs).keys() == found.bits.keys()
    assert mark.loss(model).requires_grad


@pytest.mark.filterwarnings("ignore::invgnn.errors.WeakMarkWarning")
@pytest.mark.parametrize("kind", [Attention, Converted])
def test_carriers_are_mixed_into_batches_of_typed_graphs(kind, graphs, mark):
    loader, model = DataLoader(graphs, 30), kind(graphs[0].metadata())
    with seeded(1):
        batch = next(iter(loader))
        arguments = (
            (batch.x_dict, batch.edge_index_dict, batch.batch_dict) if kind is Attention else (batch,)
        )
        scores = model(*arguments)
    mixed = mark.mix(batch)
    torch.testing.assert_close(mixed(model), scores)
    mixed.joint_loss(mixed.seen[0].scores[:30].logsumexp(1).mean()).backward()
    assert any(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())
    assert mark.embed(model, loader, steps=2).steps == 2
    assert mark.finish(model, loader).keys() == {"embedding", "logits"}


def test_what_typed_carriers_cannot_be_is_refused(graphs, mark):
    rich = [graph.clone() for graph in graphs[:3]]
    rich[1]["paper", "cites", "paper"].edge_attr = torch.ones(rich[1]["cites"].num_edges, 1)
    twice = [graph.clone() for graph in graphs[:3]]
    for graph in twice:
        graph["author", "reads", "paper"].edge_index = graph["writes"].edge_index[:, :2]
    bare = [graph.clone() for graph in graphs[:3]]
    del bare[2]["author"].x
    for data, said in ((rich, "edge_attr"), (twice, "same types"), (bare, "no real-valued features")):
        with pytest.raises(DataError, match=said):
            Watermark.draw(SECRET, data)
    with pytest.raises(DataError, match="other types"):
        Schema.of([graphs[0], twice[0]])
    with pytest.raises(DataError, match="list of HeteroData"):
        Schema.of([])
    with pytest.raises(DataError, match="graph tasks only"):
        Watermark.draw(SECRET, graphs[0])
    batch, plain = (
        next(iter(DataLoader(graphs, 32))),
        mark.replace(forward=lambda model, batch: model(batch)),
    )
    with pytest.raises(DataError, match="DataLoader of HeteroData"):
        plain.embed(Attention(graphs[0].metadata()), DataLoader(graphs, 32))
    with pytest.raises(DataError, match=r"mark\.loss"):
        plain.mix(batch)
    del batch["paper", "cites", "paper"]
    with pytest.raises(DataError, match="other types"):
        mark.mix(batch)

    class Odd(torch.nn.Module):
        def forward(self, nodes, links):
            return nodes

    with pytest.raises(SuspectError, match="x_dict"):
        mark.read(Odd())


def test_a_weak_mark_of_typed_graphs_warns(graphs, mark):
    model = Attention(graphs[0].metadata())
    with pytest.warns(WeakMarkWarning):
        mark.embed(model, graphs, steps=2)
