"""Carriers and ordinary inputs as PyG batches, kept for every device and precision."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from invgnn.graphs.disjoint_union import Graphs
from invgnn.nn.forward import to_batch
from invgnn.watermark.schedule import Portion


class Part(NamedTuple):
    """Some graphs as tensors of a PyG batch, numbered from so many nodes and graphs on."""

    x: Tensor
    edge_index: Tensor
    batch: Tensor
    ptr: Tensor
    nodes: int
    graphs: int


class Wanted(NamedTuple):
    """What some carriers should answer: their bits and targets."""

    bits: Tensor
    targets: Tensor


class CarrierBatches:
    """The carriers and ordinary inputs of one mark, laid out as tensors.

    Owned by the mark. Whole rounds of the schedule are laid out at once, and the last two are kept.
    """

    def __init__(
        self,
        carriers: Graphs,
        ordinary: Graphs,
        bits: NDArray[np.int64],
        targets: NDArray[np.float64],
    ) -> None:
        self.carriers, self.ordinary, self._bits, self._targets = carriers, ordinary, bits, targets
        self._whole: dict[Any, Any] = {}
        self._ordinary: dict[Any, Part] = {}
        self._rounds: list[tuple[NDArray[np.int64], Any, list[tuple[Part, Wanted]]]] = []

    def wanted(self, chosen: NDArray[np.int64] | None, like: Tensor) -> Wanted:
        """Return bits and targets of some carriers, or of all, on the device of a tensor.

        They have its precision, and single precision at least.
        """
        exact = torch.promote_types(like.dtype, torch.float32)
        held = (values if chosen is None else values[chosen] for values in (self._bits, self._targets))
        return Wanted(*(torch.from_numpy(values).to(like.device, exact) for values in held))

    @torch.inference_mode(False)  # what is kept may be trained on later
    def with_ordinary(self, chosen: NDArray[np.int64] | None, like: Tensor | None) -> Any:
        """Return some carriers, or all, and then the ordinary inputs, as one PyG batch."""
        place = None if like is None else (like.device, like.dtype)
        batch = self._whole.get(place) if chosen is None else None
        if batch is None:
            carriers = self.carriers if chosen is None else self.carriers.take(chosen)
            batch = to_batch(Graphs.concat([carriers, self.ordinary]), like)
        if chosen is None:
            self._whole[place] = batch
        batch = copy.copy(batch)
        batch.x = None if batch.x is None else batch.x.clone()  # some models write into their input
        return batch

    def portion(self, portion: Portion, like: Tensor) -> tuple[Part, Wanted]:
        """Return the carriers of one step, on the device and in the precision of a tensor."""
        place = (portion.length, like.device, like.dtype)
        known = [
            i
            for i, (order, where, _) in enumerate(self._rounds)
            if order is portion.order and where == place
        ]
        latest = self._rounds.pop(known[0]) if known else (portion.order, place, self._round(portion, like))
        self._rounds[:] = [*self._rounds[-1:], latest]
        return latest[2][portion.number]

    @torch.inference_mode(False)  # what is kept may be trained on later
    def _round(self, portion: Portion, like: Tensor) -> list[tuple[Part, Wanted]]:
        """Lay out all portions of a round."""
        graphs, n = self.carriers.take(portion.order), portion.length
        laid, starts = to_batch(graphs, like), graphs.ptr[::n]
        nodes, links = np.diff(starts).tolist(), (2 * np.diff(graphs.edge_ptr[::n])).tolist()
        parts = map(
            Part,
            laid.x.split(nodes),
            laid.edge_index.split(links, dim=1),
            laid.batch.split(nodes),
            laid.ptr[1:].split(n),
            starts.tolist(),
            range(0, len(graphs), n),
        )
        wanted = map(Wanted, *(values.split(n) for values in self.wanted(portion.order, like)))
        return list(zip(parts, wanted, strict=True))

    @torch.inference_mode(False)
    def ordinary_part(self, like: Tensor) -> Part:
        """Return the ordinary inputs, on the device and in the precision of a tensor."""
        place = (like.device, like.dtype)
        if place not in self._ordinary:
            laid = to_batch(self.ordinary, like)
            self._ordinary[place] = Part(laid.x, laid.edge_index, laid.batch, laid.ptr[1:], 0, 0)
        return self._ordinary[place]
