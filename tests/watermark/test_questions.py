"""What a suspect is asked: kept as canonical bytes, and put in order with the class of every input."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from _helpers.drawn import union
from invgnn.graphs.disjoint_union import Graphs
from invgnn.storage import encoding
from invgnn.watermark.questions import Questions

CARRIERS = union([nx.path_graph(2), nx.path_graph(3)])
ORDINARY = union([nx.cycle_graph(4), nx.path_graph(2), nx.empty_graph(1)])


def parts(graphs):
    return {"ptr": graphs.ptr, "edges": graphs.edges, "x": graphs.x}


@pytest.mark.parametrize("labels", [None, np.array([2, 0, 5])])
def test_questions_come_back_from_their_bytes(labels):
    asked = Questions(CARRIERS, ORDINARY, labels)
    held = {"carriers": parts(CARRIERS), "ordinary": parts(ORDINARY), "labels": labels}
    assert asked.bytes == encoding.encode(held)
    assert asked.digest == encoding.digest("invgnn/questions/2", held)
    carriers, ordinary, known = asked.decoded
    assert (carriers.digest(), ordinary.digest()) == (CARRIERS.digest(), ORDINARY.digest())
    assert (None if known is None else known.tolist()) == (None if labels is None else labels.tolist())


@pytest.mark.parametrize(
    ("level", "labels", "found"),
    [
        ("graph", None, None),
        ("graph", [2, 0, 5], [5, -1, 2, -1, 0]),
        ("node", [1, 2, 3, 4, 6, 7, 9], [9, -1, -1, -1, 1, 2, 3, 4, -1, -1, 6, 7]),
    ],
)
def test_in_order_carriers_have_no_class(level, labels, found):
    asked = Questions(CARRIERS, ORDINARY, None if labels is None else np.array(labels))
    graphs, classes = asked.in_order(np.array([4, 1, 2, 0, 3]), level)
    assert graphs.digest() == Graphs.concat([CARRIERS, ORDINARY]).take([4, 1, 2, 0, 3]).digest()
    assert (None if classes is None else classes.tolist()) == found
