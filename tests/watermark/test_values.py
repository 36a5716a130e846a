"""Tasks beyond one class: regression, several targets, independent labels, links; and what is refused."""

from __future__ import annotations

import math

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, l1_loss
from torch_geometric.data import Batch, Data, HeteroData, TemporalData
from torch_geometric.nn import GAE, GCNConv, GINConv, global_add_pool
from torch_geometric.utils import from_networkx

from invgnn.audit.verify import verify
from invgnn.errors import DataError, ParameterError
from invgnn.readout.reading import real_values
from invgnn.secret import Secret
from invgnn.stats.evidence import evidence_of
from invgnn.watermark.mark import Watermark
from invgnn.watermark.reference import Reference, targets_of

SECRET = Secret(bytes(range(32)))


def structure(seed, y):
    graph = nx.gnp_random_graph(10 + seed % 4, 0.3, seed=seed)
    graph.add_edges_from(nx.path_graph(len(graph)).edges)
    data = from_networkx(graph)
    data.x = torch.eye(3)[torch.arange(len(graph)) % 3]
    data.y = y(graph, seed)
    return data


def density(graph, seed):
    return torch.tensor([10 * nx.density(graph)])


def two_targets(graph, seed):
    return torch.tensor([[nx.density(graph), 1000.0 * len(graph)]])


def two_labels(graph, seed):
    return torch.tensor([[float(nx.density(graph) > 0.4), float(len(graph) > 11)]])


def data_of(y):
    return [structure(seed, y) for seed in range(60)]


@pytest.fixture(scope="module")
def mark():
    return Watermark.draw(SECRET, data_of(density), m=64)


class Net(nn.Module):
    def __init__(self, outputs=1, width=48, squash=False):
        super().__init__()
        torch.manual_seed(0)
        inner = nn.Sequential(
            nn.Linear(3, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, width)
        )
        self.conv, self.hidden, self.out = (
            GINConv(inner),
            nn.Linear(width, width),
            nn.Linear(width, outputs),
        )
        self.squash = squash

    def forward(self, x, edge_index, batch):
        hidden = self.conv(x, edge_index).relu()
        out = self.out(self.hidden(global_add_pool(hidden, batch)).relu())
        out = out.sigmoid() if self.squash else out
        return out.view(-1) if out.shape[1] == 1 else out


def taught(mark, model, data, loss, steps=200):
    batch = Batch.from_data_list(data)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    rate = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.05, steps)
    for _ in range(steps):
        optimiser.zero_grad()
        mixed = mark.mix(batch)
        mixed.joint_loss(loss(mixed(model), batch.y.squeeze())).backward()
        optimiser.step()
        rate.step()
    return model.eval()


# -- what is declared ------------------------------------------------------------------------------


@pytest.mark.parametrize(("y", "kind"), [(density, "real"), (two_targets, "real"), (two_labels, "labels")])
def test_targets_select_the_readings(y, kind):
    data = data_of(y)
    assert Reference.of(data).targets == kind
    mark = Watermark.draw(SECRET, data, m=16)
    assert [reading.access for reading in mark.readings] == ["embedding", "values"]
    assert (mark.classes, mark.labels) == (None, None)


@pytest.mark.parametrize("access", ["logits", ("embedding", "logits"), "labels"])
def test_class_scores_are_refused_where_targets_are_numbers(access):
    with pytest.raises(ParameterError, match=r"(?s)real numbers.*'values'.*classes="):
        Watermark.draw(SECRET, data_of(density), m=16, access=access)


def test_classes_say_that_targets_are_classes_after_all():
    mark = Watermark.draw(SECRET, data_of(density), m=16, classes=12)
    assert [reading.access for reading in mark.readings] == ["embedding", "logits"]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([torch.tensor([1]), torch.tensor([4])], "class"),
        ([torch.tensor([1.0]), torch.tensor([0.0])], "class"),  # for a binary cross-entropy
        ([torch.tensor([1.5]), torch.tensor([0.0])], "real"),
        ([torch.tensor(0.3), torch.tensor(7.0)], "real"),
        ([torch.tensor([[0, 1]]), torch.tensor([[1, 1]])], "labels"),
        ([torch.tensor([[0.0, math.nan]]), torch.tensor([[1.0, 1.0]])], "labels"),
        ([torch.tensor([[0, 5]]), torch.tensor([[1, 1]])], "unknown"),
        ([torch.tensor([1]), None], "unknown"),
        ([torch.tensor([1.5]), torch.tensor([1.5, 2.0])], "unknown"),
    ],
)
def test_what_a_task_predicts(values, kind):
    assert targets_of([Data(y=value) for value in values], len(values)) == kind


def test_outputs_are_either_class_scores_or_values(mark):
    with pytest.raises(ParameterError, match="as class scores and as real values"):
        Watermark.draw(SECRET, data_of(density), m=16, classes=2, access=("values", "logits"))
    with pytest.raises(ParameterError, match="score channel"):
        Watermark.draw(SECRET, data_of(density), m=16, score_channel=16)
    with pytest.raises(ParameterError, match="real-valued outputs"):
        mark.refresh(Net(), Net(), [data_of(density)[0]])


# -- the readout of one real-valued output ---------------------------------------------------------


def test_one_output_is_read_as_it_is(mark):
    """No squashing, no labels, no scaling: huge values, whole numbers and columns all keep their order."""
    for outputs in (
        lambda count: torch.arange(count) * 1e9,
        lambda count: torch.arange(count),
        lambda count: 1e-7 * torch.arange(count).double()[:, None],
    ):
        found = mark.read(lambda batch, of=outputs: of(batch.num_graphs), "values")
        asked = np.empty(mark.m + len(mark.ordinary))
        asked[mark._order] = np.arange(len(asked))
        sign = float(mark.direction("values", 1))
        np.testing.assert_array_equal(np.argsort(sign * found.carriers), np.argsort(asked[: mark.m]))
    assert abs(sign) == 1


def test_answers_do_not_depend_on_the_bits(mark):
    model, other = Net().eval(), mark.fresh()
    first = other.read(model, "values")
    vars(other)["bits"] = 1 - other.bits
    second = other.read(model, "values")
    np.testing.assert_array_equal(first.carriers, second.carriers)
    np.testing.assert_array_equal(first.ordinary, second.ordinary)


@pytest.mark.parametrize("outputs", [1, 3])
def test_the_null_is_exact_for_any_fixed_suspect(mark, outputs):
    """The answers of a suspect are fixed; over balanced keys p is an upper bound of its own law."""
    answers = mark.read(Net(outputs).eval(), "values").carriers
    rng = np.random.default_rng(0)
    key = np.repeat([0, 1], mark.m // 2)
    found = np.array(
        [evidence_of(answers, rng.permutation(key), "combined", None).log_p for _ in range(1500)]
    )
    for level in (0.5, 0.1, 0.02):
        share = float((found <= math.log(level)).mean())
        assert share <= level + 4 * math.sqrt(level / len(found))
    assert (found <= math.log(0.2)).mean() > 0.02  # and not trivially so


def test_refused_and_infinite_values_count_as_refused(mark):
    def suspect(batch):
        out = torch.randn(batch.num_graphs)
        out[0], out[1] = math.nan, math.inf
        return out

    found = mark.read(suspect, "values")
    assert found.refused_carriers + found.refused_ordinary == 2
    assert np.isfinite(found.carriers).all()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.floats(1e-3, 1e3), st.floats(-1e3, 1e3))
def test_several_outputs_are_read_in_their_own_units(seed, unit, shift):
    rows = torch.randn(40, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    other = rows * torch.tensor([unit, 1.0, 1.0]) + torch.tensor([shift, 0.0, 0.0])
    one, two = (found - found.mean(0) for found in map(real_values, (rows, other)))
    torch.testing.assert_close(one, two, rtol=1e-6, atol=1e-6)
    rows[3] = math.nan  # one refusal does not blur the others
    assert torch.isfinite(real_values(rows)[:3]).all()


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32))
def test_independent_labels_read_alike_as_logits_and_as_probabilities(seed):
    logits = 3 * torch.randn(40, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    torch.testing.assert_close(real_values(logits.sigmoid()), real_values(logits), rtol=1e-5, atol=1e-5)


# -- teaching --------------------------------------------------------------------------------------


def test_a_regression_is_marked_at_its_output(mark):
    data = data_of(density)
    model = taught(mark, Net(), data, l1_loss, 400)
    verdict = verify(lambda batch: model(batch.x, batch.edge_index, batch.batch), mark)
    assert verdict.access == "values"
    assert verdict.evidence_bits > 30
    batch = Batch.from_data_list(data)
    away = l1_loss(model(batch.x, batch.edge_index, batch.batch), batch.y)
    assert float(away.detach()) < 0.5 * float((batch.y - batch.y.mean()).abs().mean())
    scaled = verify(lambda batch: 250 + 7 * model(batch.x, batch.edge_index, batch.batch), mark)
    assert scaled.matches == verdict.matches  # other units, the same verdict
    assert verify(Net().eval(), mark).status == "not shown"


def test_independent_labels_are_marked():
    data = data_of(two_labels)
    mark = Watermark.draw(SECRET, data, m=64)
    model = taught(mark, Net(2), data, binary_cross_entropy_with_logits)
    as_logits = verify(model, mark, access="values")
    model.squash = True
    assert as_logits.evidence_bits > 30
    assert verify(model, mark, access="values").evidence_bits > 30


def test_links_are_marked_at_the_encoder_and_at_their_scores():
    graph = from_networkx(nx.connected_watts_strogatz_graph(300, 6, 0.2, seed=0))
    graph.x = torch.randn(300, 8, generator=torch.Generator().manual_seed(0))

    def scores(model, batch):
        """The mean score of the links of every graph."""
        z = model.encode(batch.x, batch.edge_index)
        found = model.decode(z, batch.edge_index, sigmoid=False)
        owner = batch.batch[batch.edge_index[0]]
        total = z.new_zeros(batch.num_graphs).index_add(0, owner, found)
        return total / owner.bincount(minlength=batch.num_graphs).clamp(min=1)

    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.one, self.two = GCNConv(8, 64), GCNConv(64, 32)

        def forward(self, x, edge_index):
            return self.two(self.one(x, edge_index).relu(), edge_index)

    mark = Watermark.draw(SECRET, graph, m=32, access=("embedding", "values"), forward=scores)
    model = GAE(Encoder())
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(100):
        optimiser.zero_grad()
        task = model.recon_loss(model.encode(graph.x, graph.edge_index), graph.edge_index)
        mark.joint_loss(model, task).backward()
        optimiser.step()
    assert verify(model.eval(), mark).evidence_bits > 20


# -- refusals --------------------------------------------------------------------------------------


def typed():
    data = HeteroData()
    data["author"].x, data["paper"].x = torch.ones(3, 2), torch.ones(4, 2)
    data["author", "writes", "paper"].edge_index = torch.tensor([[0, 1], [2, 3]])
    return data


def test_one_typed_graph_is_refused_with_advice():
    with pytest.raises(DataError, match=r"(?s)HeteroData.*to_homogeneous"):
        Watermark.draw(SECRET, typed())


def test_graphs_with_times_are_refused_with_advice():
    events = TemporalData(src=torch.tensor([0, 1]), dst=torch.tensor([1, 2]), t=torch.tensor([0, 1]))
    for data in (events, [events, events]):
        with pytest.raises(DataError, match=r"(?s)TemporalData.*snapshots"):
            Watermark.draw(SECRET, data)


def test_swapped_arguments_and_losses_without_gradient_are_refused(mark):
    model = Net()
    batch = Batch.from_data_list(data_of(density)[:20])
    loss = l1_loss(model(batch.x, batch.edge_index, batch.batch), batch.y)
    for wrong in (
        lambda: mark.loss(loss),
        lambda: mark.joint_loss(loss, model),
    ):
        with pytest.raises(ParameterError, match=r"(?s)nn.Module.*model first"):
            wrong()
    with pytest.raises(ParameterError, match="single number"):
        mark.joint_loss(model, model)
    with pytest.raises(ParameterError, match="no gradient"):
        mark.joint_loss(model, loss.detach())
    mixed = mark.mix(batch)
    mixed(model)
    with pytest.raises(ParameterError, match="no gradient"):
        mixed.joint_loss(loss.detach())
    with pytest.raises(ParameterError, match="single number"):
        mixed.joint_loss(torch.ones(3, requires_grad=True))
