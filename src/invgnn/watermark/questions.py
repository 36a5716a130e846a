"""The questions of a mark: the canonical bytes that its bits are bound to, and what is decoded from
them.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from invgnn.graphs.disjoint_union import Graphs, Ints, ranges
from invgnn.storage import encoding


class Questions:
    """All that a suspect is asked: carriers, ordinary inputs and the labels of these, as canonical bytes.

    The bits are bound to the bytes, and a suspect is shown only what is decoded from them.
    """

    def __init__(self, carriers: Graphs, ordinary: Graphs, labels: Ints | None) -> None:
        asked = {"carriers": carriers.record(), "ordinary": ordinary.record(), "labels": labels}
        self.bytes = encoding.encode(asked)

    @property
    def digest(self) -> str:
        """The digest that the bits are bound to."""
        return encoding.digest_encoded("invgnn/questions/2", self.bytes)

    @cached_property
    def decoded(self) -> tuple[Graphs, Graphs, Ints | None]:
        """Carriers, ordinary inputs and labels, decoded from the bytes."""
        found = encoding.decode(self.bytes)
        return Graphs.recall(found["carriers"]), Graphs.recall(found["ordinary"]), found["labels"]

    def in_order(self, order: Ints, level: str) -> tuple[Graphs, Ints | None]:
        """Return all graphs in an order, and the class of every graph or node; -1 is unknown.

        Args:
            order: A permutation of carriers and then ordinary inputs.
            level: `graph` if graphs have classes, `node` if nodes have.
        """
        carriers, ordinary, known = self.decoded
        graphs = Graphs.concat([carriers, ordinary])
        if known is None:
            return graphs.take(order), None
        if level == "graph":
            labels = np.concatenate([np.full(len(carriers), -1), known])[order]
        else:
            rows = np.concatenate([np.full(graphs.num_nodes - len(known), -1), known])
            labels = rows[ranges(graphs.ptr[order], graphs.sizes[order])]
        return graphs.take(order), labels
