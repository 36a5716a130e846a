"""The questions of a mark: the canonical bytes that its bits are bound to, and what is decoded from
them.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from invgnn.graphs.attributed import Attributed, Shown
from invgnn.graphs.disjoint_union import Graphs, Ints, ranges
from invgnn.storage import encoding


class Questions:
    """All that a suspect is asked: carriers, ordinary inputs and the labels of these, as canonical bytes.

    The bits are bound to the bytes, and a suspect is shown only what is decoded from them. Where graphs
    have further tensors, or a transform was applied to them, the bytes hold the result of that as well, and
    the result is what a suspect is shown: no transform runs when a suspect is queried.
    """

    def __init__(
        self, carriers: Graphs, ordinary: Graphs, labels: Ints | None, shown: Attributed | None = None
    ) -> None:
        asked = {"carriers": carriers.record(), "ordinary": ordinary.record(), "labels": labels}
        if shown is not None:  # without further tensors the bytes are those of every earlier mark
            asked["shown"] = shown.record()
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

    @cached_property
    def shown(self) -> Shown:
        """Carriers and then ordinary inputs as a suspect is shown them, decoded from the bytes."""
        found = encoding.decode(self.bytes).get("shown")
        return Graphs.concat(list(self.decoded[:2])) if found is None else Attributed.recall(found)

    def in_order(self, order: Ints, level: str) -> tuple[Shown, Ints | None]:
        """Return all graphs in an order, and the class of every graph or node; -1 is unknown.

        Args:
            order: A permutation of carriers and then ordinary inputs.
            level: `graph` if graphs have classes, `node` if nodes have.
        """
        carriers, _, known = self.decoded
        graphs = self.shown
        if known is None:
            return graphs.take(order), None
        if level == "graph":
            labels = np.concatenate([np.full(len(carriers), -1), known])[order]
        else:
            rows = np.concatenate([np.full(graphs.num_nodes - len(known), -1), known])
            labels = rows[ranges(graphs.ptr[order], graphs.sizes[order])]
        return graphs.take(order), labels
