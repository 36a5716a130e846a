"""PyG transforms of questions: applied once, bound to the bits, and never run when a suspect is read."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch_geometric import transforms as T
from torch_geometric.data import Batch, Data, InMemoryDataset
from torch_geometric.nn import GINConv, global_add_pool
from torch_geometric.utils import from_networkx

from invgnn.audit.verify import verify
from invgnn.errors import DataError, ParameterError
from invgnn.secret import Secret
from invgnn.watermark.mark import Watermark

SECRET = Secret(bytes(range(32)))


def structure(seed):
    graph = nx.gnp_random_graph(10 + seed % 4, 0.3, seed=seed)
    graph.add_edges_from(nx.path_graph(len(graph)).edges)
    data = from_networkx(graph)
    data.y = torch.tensor([int(graph.number_of_edges() > 20)])
    return data


DATA = [structure(seed) for seed in range(50)]


def shown_by(mark):
    seen = []
    mark.fresh().read(lambda batch: seen.append(batch) or torch.randn(batch.num_graphs, 2), "logits")
    graphs = seen[0].to_data_list()
    return [graphs[i] for i in np.argsort(mark._order)]  # carriers first


def plain(mark):
    """The carriers before the transform."""
    parts = [mark.carriers.take([number]) for number in range(mark.m)]
    return [Data(edge_index=torch.from_numpy(g.directed()), num_nodes=g.num_nodes) for g in parts]


@pytest.mark.parametrize(
    ("transform", "name"),
    [
        (T.AddRandomWalkPE(4, attr_name="pe"), "pe"),
        (T.AddRandomWalkPE(4, attr_name=None), "x"),
        (T.Constant(), "x"),
        (T.AddSelfLoops(), "edge_index"),
        (T.ToUndirected(), "edge_index"),
        (T.Compose([T.VirtualNode(), T.OneHotDegree(16)]), "x"),
        (T.VirtualNode(), "edge_type"),
        (T.LocalDegreeProfile(), "x"),
    ],
    ids=repr,
)
def test_every_question_is_what_the_transform_makes_of_it(transform, name):
    mark = Watermark.draw(SECRET, DATA, m=16, transform=transform)
    for one, before in zip(shown_by(mark), plain(mark), strict=False):
        want = transform(before)
        torch.testing.assert_close(one[name], want[name])
        assert one.num_nodes == want.num_nodes
        assert torch.equal(one.edge_index, want.edge_index)


def test_random_signs_are_drawn_once_from_the_secret():
    transform = T.AddLaplacianEigenvectorPE(3, attr_name="pe")
    state = torch.random.get_rng_state()
    one, other = (Watermark.draw(SECRET, DATA, m=16, transform=transform) for _ in range(2))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert one.digest == other.digest
    found = torch.cat([graph.pe for graph in shown_by(one)])
    again = torch.cat([graph.pe for graph in shown_by(one)])
    assert torch.equal(found, again)


def test_a_transform_does_not_run_when_a_suspect_is_read(tmp_path):
    calls = []

    def transform(data):
        calls.append(data)
        return T.AddRandomWalkPE(4, attr_name="x")(data)

    mark = Watermark.draw(SECRET, DATA, m=16, transform=transform)
    assert len(calls) == 16 + len(mark.ordinary)
    mark.save(tmp_path / "walks.mark", insecure_no_passphrase=True)
    loaded = Watermark.load(tmp_path / "walks.mark")
    verdict = verify(lambda batch: batch.x.new_zeros(batch.num_graphs, 2).normal_(), loaded)
    assert len(calls) == 16 + len(mark.ordinary)
    assert not any(
        "transform" in one["name"] for one in verdict.code["foreign"] if "read" not in one["name"]
    )


def test_what_a_transform_yields_is_bound():
    one, other = (Watermark.draw(SECRET, DATA, m=16, transform=T.Constant(value)) for value in (1.0, 2.0))
    assert one.bound == other.bound  # the same carriers ...
    assert one.carriers.digest() == other.carriers.digest()
    assert one.digest != other.digest  # ... and other questions, so other bits
    assert one.bits.tolist() != other.bits.tolist()


class Walks(nn.Module):
    """A model of structural encodings alone: the graphs have no node features."""

    def __init__(self, width=64):
        super().__init__()
        torch.manual_seed(0)
        inner = nn.Sequential(nn.Linear(6, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.conv, self.hidden, self.out = GINConv(inner), nn.Linear(width, width), nn.Linear(width, 2)

    def forward(self, pe, edge_index, batch):
        hidden = self.conv(pe, edge_index).relu()
        return self.out(self.hidden(global_add_pool(hidden, batch)).relu())


def test_a_model_of_encodings_is_taught_in_the_batch():
    transform = T.AddRandomWalkPE(6, attr_name="pe")
    mark = Watermark.draw(SECRET, DATA, m=32, transform=transform)
    batch = Batch.from_data_list([transform(one.clone()) for one in DATA])
    model = Walks()
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(120):
        optimiser.zero_grad()
        mixed = mark.mix(batch)
        mixed.joint_loss(cross_entropy(mixed(model), batch.y)).backward()
        optimiser.step()
    assert verify(model.eval(), mark).evidence_bits > 15
    assert verify(Walks().eval(), mark).status == "not shown"
    with pytest.raises(DataError, match="pe"):
        Watermark.draw(SECRET, DATA, m=16).mix(batch)


def sparse(data):
    data.adj_t, data.edge_index = torch.eye(data.num_nodes), None
    return data


def uneven(data):
    data.odd = torch.ones(data.num_nodes + 1)
    return data


def broken(data):
    raise RuntimeError("no such file")


@pytest.mark.parametrize(
    ("transform", "why"),
    [
        (sparse, "edge_index"),
        (uneven, r"odd.*not with one row per node"),
        (broken, "failed on graph 0.*no such file"),
        (lambda data: None, "NoneType"),
        (T.AddLaplacianEigenvectorPE(12, attr_name="pe"), "failed on graph"),
        (lambda data: Data(edge_index=data.edge_index[:, :0], num_nodes=1), "look the same"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_a_transform_that_cannot_be_bound_is_refused(transform, why):
    with pytest.raises((DataError, ParameterError), match=why):
        Watermark.draw(SECRET, DATA, m=16, transform=transform)


def test_a_score_channel_takes_data_that_are_transformed_already():
    with pytest.raises(ParameterError, match="score channel"):
        Watermark.draw(SECRET, DATA, m=16, score_channel=16, transform=T.Constant())


def test_a_data_set_with_a_transform_of_its_own_is_not_transformed_twice():
    held = InMemoryDataset(transform=T.Constant())
    held.data, held.slices = held.collate(DATA)
    with pytest.raises(ParameterError, match="transform of its own"):
        Watermark.draw(SECRET, held, m=16, transform=T.Constant())
    assert Watermark.draw(SECRET, held, m=16).carriers.x.shape[1] == 1


def test_a_node_task_keeps_its_nodes():
    graph = from_networkx(nx.connected_watts_strogatz_graph(300, 6, 0.2, seed=0))
    graph.y = torch.arange(300) % 3
    mark = Watermark.draw(SECRET, graph, m=16, transform=T.AddRandomWalkPE(4, attr_name="x"))
    assert mark.presented[0].x.shape == (mark.carriers.num_nodes, 4)
    with pytest.raises(ParameterError, match="number of nodes"):
        Watermark.draw(SECRET, graph, m=16, transform=T.VirtualNode())
