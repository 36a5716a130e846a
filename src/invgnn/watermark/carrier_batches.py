"""Carriers and ordinary inputs as PyG batches, kept for every device and precision."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from invgnn.graphs.attributed import Shown, joined
from invgnn.nn.forward import to_batch
from invgnn.watermark.schedule import Portion

ENOUGH = 16
"""Fewest ordinary inputs on which the spread of ordinary answers is estimated."""

MANY = 32
"""Most ordinary inputs that accompany some of the carriers."""

MIXED = 8
"""Most mixed batches of a node task that are kept."""


class Part(NamedTuple):
    """Some graphs as tensors of a PyG batch, numbered from so many nodes and graphs on."""

    x: Tensor | None
    edge_index: Tensor
    batch: Tensor
    ptr: Tensor
    nodes: int
    graphs: int
    more: dict[str, Tensor]


class Wanted(NamedTuple):
    """What some carriers should answer: their bits and targets."""

    bits: Tensor
    targets: Tensor


class _Kept(NamedTuple):
    """A mixed batch, with what it was made of and the state of every tensor when it was made."""

    x: Tensor | None
    edge_index: Tensor
    part: Part
    batch: Any
    state: tuple[int, ...]

    def fits(self, task: Any, part: Part) -> bool:
        """Return whether it is the batch of these inputs, and no tensor was written to since."""
        same = self.x is task.x and self.edge_index is task.edge_index and self.part.batch is part.batch
        return same and self.state == _state(task, self.batch)


def _state(task: Any, batch: Any) -> tuple[int, ...]:
    """Count the changes of tensors in place."""
    tensors = (value for of in (task, batch) for value in of._store.values())
    return tuple(value._version for value in tensors if isinstance(value, Tensor))


class CarrierBatches:
    """The carriers and ordinary inputs of one mark, laid out as tensors.

    Owned by the mark. Whole rounds of the schedule are laid out at once, and the last two are kept.
    """

    def __init__(
        self,
        carriers: Shown,
        ordinary: Shown,
        bits: NDArray[np.int64],
        targets: NDArray[np.float64],
    ) -> None:
        self.carriers, self.ordinary, self._bits, self._targets = carriers, ordinary, bits, targets
        self._whole: dict[Any, Any] = {}
        self._ordinary: dict[Any, Part] = {}
        self._mixed: list[_Kept] = []
        self._rounds: list[tuple[NDArray[np.int64], Any, list[tuple[Part, Wanted]]]] = []

    def wanted(self, chosen: NDArray[np.int64] | None, like: Tensor) -> Wanted:
        """Return bits and targets of some carriers, or of all, on the device of a tensor.

        They have its precision, and single precision at least.
        """
        exact = torch.promote_types(like.dtype, torch.float32)
        held = (values if chosen is None else values[chosen] for values in (self._bits, self._targets))
        return Wanted(*(torch.from_numpy(values).to(like.device, exact) for values in held))

    @torch.inference_mode(False)  # what is kept may be trained on later
    def with_ordinary(self, portion: Portion | None, like: Tensor | None) -> Any:
        """Return the carriers of a step, or all, and then ordinary inputs, as one PyG batch."""
        place = None if like is None else (like.device, like.dtype)
        batch = self._whole.get(place) if portion is None else None
        if batch is None:
            batch = to_batch(self._graphs(portion), like)
        if portion is None:
            self._whole[place] = batch
        batch = copy.copy(batch)
        batch.x = None if batch.x is None else batch.x.clone()  # some models write into their input
        return batch

    def _graphs(self, portion: Portion | None) -> Shown:
        if portion is None:
            return joined([self.carriers, self.ordinary])
        beside = self.beside(portion)
        ordinary = self.ordinary if beside is None else self.ordinary.take(beside)
        return joined([self.carriers.take(portion.carriers), ordinary])

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
        nodes, links = np.diff(starts).tolist(), np.diff(graphs.arrow_ptr[::n]).tolist()
        lengths = {"node": nodes, "edge": links, "graph": [n] * len(nodes)}
        more = [
            dict(zip(graphs.more, split, strict=True))
            for split in zip(
                *(laid[m].split(lengths[kind]) for m, (kind, _) in graphs.more.items()), strict=True
            )
        ]
        parts = map(
            Part,
            [None] * len(nodes) if laid.x is None else laid.x.split(nodes),
            laid.edge_index.split(links, dim=1),
            laid.batch.split(nodes),
            laid.ptr[1:].split(n),
            starts.tolist(),
            range(0, len(graphs), n),
            more or [{}] * len(nodes),
        )
        wanted = map(Wanted, *(values.split(n) for values in self.wanted(portion.order, like)))
        return list(zip(parts, wanted, strict=True))

    def kept(self, task: Any, part: Part, make: Callable[[], Any]) -> Any:
        """Return the mixed batch of the one graph of a node task; made once, while nothing changes.

        Args:
            task: The task's graph.
            part: The carriers.
            make: Makes the batch.
        """
        inputs = (task.x, task.edge_index)  # PyTorch counts no changes of tensors made in inference mode
        if torch.is_inference_mode_enabled() or any(v.is_inference() or v.requires_grad for v in inputs):
            return make()
        self._mixed[:] = [one for one in self._mixed if one.x is task.x]
        found = next((one for one in self._mixed if one.fits(task, part)), None)
        if found is None:
            batch = make()
            found = _Kept(task.x, task.edge_index, part, batch, _state(task, batch))
            self._mixed[:] = [*self._mixed, found][-MIXED:]
        return copy.copy(found.batch)

    @torch.inference_mode(False)
    def ordinary_part(self, portion: Portion, like: Tensor) -> Part:
        """Return the ordinary inputs of one step, on the device and in the precision of a tensor."""
        chosen = self.beside(portion)
        which = None if chosen is None else (int(chosen[0]), len(chosen))
        place = (which, like.device, like.dtype)
        if place not in self._ordinary:
            graphs = self.ordinary if chosen is None else self.ordinary.take(chosen)
            laid = to_batch(graphs, like)
            more = {name: laid[name] for name in graphs.more}
            self._ordinary[place] = Part(laid.x, laid.edge_index, laid.batch, laid.ptr[1:], 0, 0, more)
        return self._ordinary[place]

    def beside(self, portion: Portion) -> NDArray[np.int64] | None:
        """Return which ordinary inputs accompany the carriers of a step, in turn.

        Args:
            portion: The carriers of the step.

        Returns:
            Numbers of ordinary inputs; None for all, which accompany all carriers.
        """
        count, total = min(max(ENOUGH, portion.length), MANY), len(self.ordinary)
        if count >= total or portion.length >= len(self.carriers):
            return None
        first = min(portion.number % -(-total // count) * count, total - count)
        return np.arange(first, first + count)
