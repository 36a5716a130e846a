"""Task inputs: what is bound, what is shown, and what cannot be."""

from __future__ import annotations

import hashlib
import struct

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, InMemoryDataset

from invgnn.errors import DataError
from invgnn.storage import encoding
from invgnn.watermark.inputs import Inputs, is_one_graph

ENDS = [[0, 1], [1, 0]]


def pair(**parts):
    return Data(edge_index=torch.tensor(ENDS), num_nodes=2, **parts)


def kept(values, kind=""):
    return {"as": kind, "values": np.array(values)}


@pytest.mark.parametrize("level", ["graph", "node"])
def test_the_digest_is_that_of_names_and_values(level):
    parts = {"name": "a", "share": 0.5, "odd": True}
    data = pair(x=torch.tensor([[1.5], [2.0]]), y=torch.ones(1), train_mask=torch.ones(2))
    for name, value in parts.items():
        data[name] = value
    record = parts | {"edge_index": kept(ENDS), "num_nodes": 2}
    record["x"] = kept([[1.5], [2.0]]) | {"values": np.array([[1.5], [2.0]], dtype=np.float32)}
    inputs = Inputs(data if level == "node" else [data])
    assert inputs.level == level
    held = {"level": level, "graphs": [record]}
    assert inputs.digest() == inputs.digest(2) == encoding.digest("invgnn/inputs/2", held)
    (shown,) = inputs.graphs()
    assert {name: shown[name] for name in parts} == parts
    assert sorted(shown.to_dict()) == sorted(record)


def test_numbers_of_half_precision_travel_as_integers():
    inputs = Inputs([pair(x=torch.tensor([[1.0], [-2.0]]).bfloat16())])
    bits = {"as": "bfloat16", "values": np.array([[0x3F80], [-0x4000]], dtype=np.int16)}
    record = {"edge_index": kept(ENDS), "num_nodes": 2, "x": bits}
    assert inputs.digest() == encoding.digest("invgnn/inputs/2", {"level": "graph", "graphs": [record]})
    assert inputs.graphs()[0].x.tolist() == [[1.0], [-2.0]]


def test_the_digest_of_format_1_by_hand():
    inputs = Inputs([pair(x=torch.tensor([[1.5], [2.0]])), pair(x=torch.tensor([[0.0], [1.0]]))])
    told = b""
    for first, second in ((1.5, 2.0), (0.0, 1.0)):
        told += b"edge_index;torch.int64;(2, 2);" + struct.pack("<4q", 0, 1, 1, 0) + b"num_nodes;2;"
        told += b"x;torch.float32;(2, 1);" + struct.pack("<2f", first, second) + b"|"
    assert inputs.digest(1) == hashlib.sha256(told).hexdigest()


def test_batches_are_of_1024_graphs_unless_asked():
    inputs = Inputs([pair()] * 1025)
    assert [batch.num_graphs for batch in inputs.batches()] == [1024, 1]
    assert [batch.num_graphs for batch in inputs.batches(None)] == [1025]
    few = Inputs([pair(x=torch.full((2, 1), float(i))) for i in range(5)])
    assert [batch.x[::2, 0].tolist() for batch in few.batches(2)] == [[0.0, 1.0], [2.0, 3.0], [4.0]]
    (alone,) = Inputs(pair()).batches(1)
    assert type(alone) is Data
    assert alone.num_nodes == 2


class Held(InMemoryDataset):
    def __init__(self, items):
        super().__init__()
        self.data, self.slices = self.collate(items)


def test_a_data_set_is_many_graphs_though_it_shows_edges():
    data = Held([pair(x=torch.ones(2, 1)), pair(x=torch.zeros(2, 1))])
    assert is_one_graph(pair()) is True
    assert is_one_graph(data) is False
    assert is_one_graph([pair()]) is False
    assert (Inputs(data).level, len(Inputs(data).graphs())) == ("graph", 2)
    inputs = Inputs(data)
    assert Inputs.of(inputs) is inputs
    assert Inputs.of(data).digest() == inputs.digest()


@pytest.mark.parametrize("name", ["self", "_hidden", "größe", "two words", "1st"])
def test_names_are_plain_and_not_reserved(name):
    graph = pair()
    graph.update({name: 1})
    with pytest.raises(DataError, match="not an ASCII identifier, or is reserved"):
        Inputs([graph])


@pytest.mark.parametrize(
    ("graphs", "message"),
    [
        ([], "the list of graphs is empty"),
        ([pair(), pair(pos=torch.ones(2, 1))], "graph 1 differs from graph 0 in its attributes: pos\n"),
        ([pair(x=1), pair(x=2), pair()], "graph 2 differs from graph 0 in its attributes: x\n"),
        ([Data(edge_index=torch.tensor(ENDS), num_nodes=torch.tensor(2))], "num_nodes is a Tensor"),
        ([pair(adj=torch.eye(2).to_sparse())], "hold adj, a Tensor, which cannot be bound"),
        ([pair(notes=[1])], "hold notes, a list, which cannot be bound"),
    ],
)
def test_graphs_that_cannot_be_bound(graphs, message):
    with pytest.raises(DataError, match=message):
        Inputs(graphs)
