"""Graphs with further tensors: against PyG's own batches, and back from their canonical bytes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Batch, Data

from invgnn.errors import DataError
from invgnn.graphs.attributed import Attributed, kinds_of
from invgnn.graphs.disjoint_union import Graphs
from invgnn.nn.forward import to_batch
from invgnn.storage import encoding


@st.composite
def items(draw):
    """Graphs with self-loops, duplicates, empty edge sets and tensors of every kind."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    found = []
    for _ in range(draw(st.integers(1, 5))):
        nodes, edges = int(rng.integers(2, 6)), int(rng.integers(7, 12))
        found.append(
            Data(
                edge_index=torch.from_numpy(rng.integers(0, nodes, (2, edges))),
                num_nodes=nodes,
                x=torch.from_numpy(rng.normal(size=(nodes, 2)).astype(np.float32)),
                z=torch.from_numpy(rng.integers(0, 9, nodes)),
                pos=torch.from_numpy(rng.normal(size=(nodes, 3)).astype(np.float32)),
                is_ring=torch.from_numpy(rng.integers(0, 2, nodes).astype(bool)),
                edge_attr=torch.from_numpy(rng.normal(size=(edges, 4)).astype(np.float32)),
                edge_type=torch.from_numpy(rng.integers(0, 3, edges)),
                u=torch.from_numpy(rng.normal(size=(1, 2)).astype(np.float32)),
                temperature=torch.tensor(float(rng.normal())),
            )
        )
    return found


NAMES = ["x", "z", "pos", "is_ring", "edge_attr", "edge_type", "u", "temperature"]


def same_batches(ours, theirs):
    for name in [*NAMES, "edge_index", "batch", "ptr"]:
        assert ours[name].dtype == theirs[name].dtype
        torch.testing.assert_close(ours[name], theirs[name], rtol=0, atol=0)


@settings(max_examples=25, deadline=None)
@given(items())
def test_a_batch_is_the_one_pyg_collates(graphs):
    held = Attributed.from_data(graphs)
    assert sorted(held.names) == sorted(NAMES)
    ours = to_batch(held)
    same_batches(ours, Batch.from_data_list(graphs))
    for one, other in zip(ours.to_data_list(), graphs, strict=True):
        assert torch.equal(one.edge_attr, other.edge_attr)
        assert torch.equal(one.edge_index, other.edge_index)


@settings(max_examples=25, deadline=None)
@given(items(), st.lists(st.integers(0, 4), min_size=1, max_size=6))
def test_taking_and_joining_are_pygs(graphs, chosen):
    chosen = [number % len(graphs) for number in chosen]
    held = Attributed.from_data(graphs)
    same_batches(to_batch(held.take(chosen)), Batch.from_data_list([graphs[i] for i in chosen]))
    both = Attributed.concat([held, held.take(chosen)])
    same_batches(to_batch(both), Batch.from_data_list([*graphs, *(graphs[i] for i in chosen)]))


@settings(max_examples=25, deadline=None)
@given(items())
def test_the_canonical_bytes_hold_everything(graphs):
    held = Attributed.from_data(graphs)
    data = encoding.encode(held.record())
    again = Attributed.recall(encoding.decode(data))
    same_batches(to_batch(again), to_batch(held))
    assert encoding.encode(again.record()) == data


@settings(max_examples=40, deadline=None)
@given(items(), st.sampled_from(NAMES), st.integers(0, 2**16))
def test_no_value_can_change_without_the_bytes(graphs, name, place):
    held = Attributed.from_data(graphs)
    changed = [one.clone() for one in graphs]
    values = changed[place % len(changed)][name].view(-1)
    where = place % len(values)
    values[where] = ~values[where] if name == "is_ring" else values[where] + 1
    other = Attributed.from_data(changed)
    assert encoding.encode(held.record()) != encoding.encode(other.record())


def test_a_name_is_part_of_the_bytes():
    held = [Data(edge_index=torch.tensor([[0, 1], [1, 0]]), num_nodes=2, edge_attr=torch.ones(2))]
    named = [Data(edge_index=held[0].edge_index, num_nodes=2, edge_weight=torch.ones(2))]
    one, other = (encoding.encode(Attributed.from_data(data).record()) for data in (held, named))
    assert one != other


def test_labels_masks_and_numbers_of_nodes_are_not_carried():
    one = Data(
        edge_index=torch.tensor([[0, 1], [1, 0]]),
        num_nodes=2,
        y=torch.zeros(2),
        train_mask=torch.ones(2, dtype=torch.bool),
        edge_label=torch.ones(2),
        edge_label_index=torch.zeros(2, 2, dtype=torch.long),
        n_id=torch.arange(2),
        odd=torch.ones(5),
        text="a graph",
        adj=torch.eye(2).to_sparse(),
        weight=torch.ones(2),
    )
    assert kinds_of([one]) == {"weight": "node"}


@pytest.mark.parametrize(
    ("name", "rows", "kind"), [("edge_w", 3, "edge"), ("w", 3, "node"), ("w", 1, "graph"), ("w", 2, None)]
)
def test_a_name_decides_where_nodes_and_edges_are_as_many(name, rows, kind):
    one = Data(edge_index=torch.tensor([[0, 1, 2], [1, 2, 0]]), num_nodes=3)
    one[name] = torch.ones(rows)
    assert kinds_of([one]).get(name) == kind


@pytest.mark.parametrize(
    "change",
    [
        {"edge_index": np.array([[0, 2], [1, 3]])},  # from the first graph into the second
        {"edge_index": np.array([[0, -1], [1, 0]])},
        {"edge_index": np.array([[0.0, 1.0], [1.0, 0.0]])},
        {"arrow_ptr": np.array([0, 1, 1])},
        {"ptr": np.array([0, 2])},
        {"node": {"x": np.ones((3, 1))}},
        {"node": {"x": np.full((4, 1), np.nan)}},
        {"node": {"batch": np.ones(4)}},
        {"node": {"y": np.ones(4)}},
        {"node": {"a b": np.ones(4)}},
        {"node": {"a": np.ones(4)}, "edge": {"a": np.ones(2)}},
        {"graph": {"a": np.array(["x", "y"])}},
    ],
)
def test_malformed_graphs_cannot_be_made(change):
    sound = {
        "ptr": np.array([0, 2, 4]),
        "arrow_ptr": np.array([0, 2, 2]),
        "edge_index": np.array([[0, 1], [1, 0]]),
        "node": {},
        "edge": {},
        "graph": {},
    }
    assert len(Attributed.recall(sound)) == 2
    with pytest.raises(DataError):
        Attributed.recall(sound | change)


def test_tensors_follow_the_edges_of_plain_graphs():
    one = Data(edge_index=torch.tensor([[2, 1, 0, 1, 1, 2], [1, 2, 1, 0, 1, 1]]), num_nodes=3)
    one.edge_attr = torch.tensor([21.0, 12.0, 1.0, 10.0, 11.0, 99.0])
    graphs = Graphs.from_data([one])
    found = Attributed.from_data([one]).along(graphs, np.arange(3), np.arange(1))
    assert found.edge_index.tolist() == [[0, 1, 1, 2], [1, 0, 2, 1]]
    assert found.edge["edge_attr"].tolist() == [1, 10, 12, 21]  # without the loop and the second 2 -> 1


def test_a_tensor_that_is_wanted_must_be_there():
    one = Data(edge_index=torch.tensor([[0, 1], [1, 0]]), num_nodes=2, edge_attr=torch.ones(2))
    with pytest.raises(DataError, match=r"no 'pos'.*\n.*edge_attr"):
        Attributed.from_data([one], ["pos"])
