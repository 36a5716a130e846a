"""Models that take one graph at a time, called in a loop by `forward=`."""

import pytest
import torch
from torch import nn
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader

from invgnn.errors import SuspectError, WeakMarkWarning
from invgnn.nn.forward import observe, to_batch
from invgnn.training.batching import Collated


class Single(nn.Module):
    """Takes the features and edges of one graph, and returns one row."""

    def __init__(self, features, mean_first, layers=2):
        super().__init__()
        self.mean_first = mean_first
        self.first = nn.Linear(features, 8) if layers == 2 else nn.Identity()
        self.out = nn.Linear(8 if layers == 2 else features, 2)

    def forward(self, x, edge_index):
        x = x.mean(0, keepdim=True) if self.mean_first else x
        return self.out(self.first(x).relu()).mean(0, keepdim=True)


def one_by_one(model, batch):
    return torch.cat([model(graph.x, graph.edge_index) for graph in batch.to_data_list()])


@pytest.mark.parametrize("layer", ["auto", "first", "out:in"])
@pytest.mark.parametrize("mean_first", [False, True])
def test_a_layer_is_observed_on_all_graphs(draw, layer, mean_first):
    mark = draw()
    batch = to_batch(mark.carriers)
    model = Single(batch.x.shape[1], mean_first)
    seen = observe(model, batch, layer, one_by_one)
    x = batch.x
    if mean_first:
        x = torch.stack([graph.x.mean(0) for graph in batch.to_data_list()])
    expected = model.first(x) if layer == "first" else model.first(x).relu()
    torch.testing.assert_close(seen.hidden, expected)


def test_one_layer_is_still_no_hidden_representation(draw):
    batch = to_batch(draw().carriers)
    with pytest.raises(SuspectError, match="single layer"):
        observe(Single(batch.x.shape[1], mean_first=True, layers=1), batch, "auto", one_by_one)


def test_such_a_model_is_marked_at_both_levels(motifs, draw):
    mark = draw(forward=one_by_one)
    model = Single(motifs.num_features, mean_first=True)
    with pytest.warns(WeakMarkWarning):  # few steps embed little
        found = mark.embed(model, list(motifs.data)[:20], steps=3)
    assert set(found.levels) == {"embedding", "logits"}


def test_mixed_batches_can_be_taken_apart(motifs, draw):
    mark = draw()
    graphs = list(motifs.data)[:20]
    for few in (graphs, graphs[:3]):  # with fewer than sixteen, ordinary inputs follow
        batch = mark.mix(next(iter(DataLoader(few, 20))), step=3).batch
        found = batch.to_data_list()
        again = Batch.from_data_list([Data(x=one.x, edge_index=one.edge_index) for one in found])
        assert len(found) == batch.num_graphs
        for name in ("x", "edge_index", "batch", "ptr"):
            assert again[name].equal(batch[name]), name


def test_batches_of_a_task_can_be_taken_apart(motifs):
    chosen = torch.tensor([4, 0, 9])
    for one, number in zip(Collated(motifs.graphs).batch(chosen).to_data_list(), chosen, strict=True):
        graph = motifs.graphs[number]
        assert one.x.equal(graph.x)
        assert one.edge_index.equal(graph.edge_index)
        assert one.y.item() == graph.y.item()
