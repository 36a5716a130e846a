"""Carriers riding in the task batch: one forward pass, one loss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from invgnn.errors import DataError, ParameterError, SuspectError
from invgnn.forward import as_batch, observe, run, to_batch, unwrap
from invgnn.graphs import Graphs
from invgnn.parallel import peers
from invgnn.reading import Observation
from invgnn.recipe import Recipe, guarded
from invgnn.secret import Stream
from invgnn.teaching import num_graphs, observed_loss

if TYPE_CHECKING:
    from invgnn.watermark import Watermark


ENOUGH = 16
"""Fewer task graphs say too little about the spread of answers: the mark's own ordinary ones ride along."""
_MIXED = {"x", "edge_index", "batch", "ptr"}
_UNUSED = {"y", "n_id", "e_id"}  # labels, and numbers that PyG's loaders note for themselves


class Joint:
    """A task batch with carriers in it, for one forward pass and one loss."""

    def __init__(self, mark: Watermark, task: Any, turn: Turn) -> None:
        self.mark, self.carriers = mark, turn.carriers
        self.seen: tuple[Observation, nn.Module] | None = None
        self.peers: Any = None
        self.batch = task
        if not len(self.carriers):  # nobody's turn: the step is the task's, and costs what that costs
            return
        _check(mark, task)
        self.tasks, self.nodes = num_graphs(task), int(task.num_nodes)
        self.alone = mark.context["level"] == "graph" and self.tasks >= ENOUGH
        riders = _riders(mark, turn.order, task.x)
        parts = [riders.part(turn.first, turn.last, self.nodes, self.tasks)]
        if not self.alone:  # task graphs are ordinary inputs too
            after = self.nodes + len(parts[0].x), self.tasks + len(self.carriers)
            parts.append(riders.part(len(turn.order), len(riders.graphs), *after))
        self.batch = _joined(task, parts)

    def __call__(self, model: nn.Module) -> Tensor:
        """One forward over task inputs and carriers; returns the scores of the task inputs only."""
        if not len(self.carriers):
            scores = run(model, self.batch, self.mark.forward)
            self.seen = Observation(scores, None, self.batch), unwrap(model)
            return scores
        seen = observe(model, self.batch, self.mark.layer, self.mark.forward)
        self.seen, self.peers = (seen, unwrap(model)), peers(model)
        rows = self.nodes if seen.scores.shape[0] == self.batch.num_nodes else self.tasks
        return seen.scores[:rows]

    def loss(self) -> Tensor:
        """The mark's loss for the forward pass just made, times the weight of its recipe."""
        if self.seen is None:
            raise SuspectError("no forward pass was made", "call this joint batch on the model")
        if not len(self.carriers):
            return self.seen[0].scores.new_zeros(())
        first, last = self.tasks, self.tasks + len(self.carriers)
        usual = slice(first) if self.alone else slice(last, None)
        return observed_loss(self.mark, *self.seen, slice(first, last), usual, self.carriers)

    def guard(self, task_loss: Tensor) -> Tensor:
        """Task loss and mark loss in one, the mark's gradient freed of what points against the task's."""
        mark_loss = self.loss()
        if not len(self.carriers):
            return task_loss
        parameters = self.seen[1].parameters() if self.seen else ()
        return guarded(task_loss, mark_loss, parameters, self.mark.recipe.cap, self.peers)


def _check(mark: Watermark, task: Any) -> None:
    """Whether carriers can ride in a task batch at all."""
    lost = _lost(task)
    if lost:
        raise DataError(
            f"the task batch has {', '.join(lost)} and carriers have none to mix in",
            "use loss = task_loss + mark.loss(model) with a forward= that supplies it, or delete it "
            "from the batch if the model does not use it",
        )
    if task.x is None:
        raise DataError(
            "the task batch has no node features to mix carriers into",
            "use loss = task_loss + mark.loss(model), or give the graphs features",
        )
    if mark.carriers.x is None:
        raise DataError("the carriers have no node features", "draw the mark from graphs with features")


def _lost(task: Any) -> list[str]:
    """Names of what a batch holds for every node or edge and a joint batch would not."""
    sizes = {int(task.num_nodes), int(task.num_edges)} - {num_graphs(task)}
    return [
        name
        for name, value in task.to_dict().items()
        if name not in _MIXED | _UNUSED and not name.endswith("_mask")
        if isinstance(value, Tensor) and value.dim()
        if value.shape[-1 if "index" in name else 0] in sizes
    ]


class Turn(NamedTuple):
    """Whose turn it is in a step: a stretch of carriers, in the order of their round."""

    order: NDArray[np.int64]
    first: int
    last: int

    @property
    def carriers(self) -> NDArray[np.int64]:
        """Their numbers."""
        return self.order[self.first : self.last]


class Rota:
    """The turns of m carriers, in rounds; every round has an order of its own, from a stream of its own."""

    def __init__(self, m: int, level: str, stream: Callable[[int], Stream]) -> None:
        self.m, self.level, self.stream = m, level, stream
        self.everyone, self.nobody = (Turn(np.arange(m), 0, last) for last in (m, 0))
        self._order = lru_cache(maxsize=1)(self._drawn)

    def turn(self, recipe: Recipe, beside: Any, step: int | None) -> Turn:
        """Whose turn it is in a step, by the recipe, beside a task batch."""
        ratio, every = recipe.ratio, recipe.every
        if ratio is None and every == 1:
            return self.everyone
        if step is None or (beside is None and ratio is not None):
            raise ParameterError(
                "with a ratio or `every` the carriers take turns: beside which batch, and when?",
                "pass the batch and the number of the optimiser step",
            )
        if not recipe.rides(step):
            return self.nobody
        if ratio is None:
            return self.everyone
        if self.level == "node":  # one graph has no share to speak of: a share of the carriers
            count = round(ratio * every * self.m)
        else:
            count = round(ratio / (1 - ratio) * every * num_graphs(beside))
        return self.share(step // every, max(1, count))

    def share(self, number: int, count: int) -> Turn:
        """So many carriers, or all there are; in every round of turns each gets its own."""
        if count >= self.m:
            return self.everyone
        turns = -(-self.m // count)
        first = (number % turns) * count
        return Turn(self._order(number // turns, turns * count), first, first + count)

    def _drawn(self, number: int, size: int) -> NDArray[np.int64]:
        """All carriers in the order of a round, the first once more to make up the last turn."""
        return self.stream(number).permutation(self.m).take(np.arange(size), mode="wrap")


class _Part(NamedTuple):
    """A stretch of graphs, numbered to follow others, as tensors of a PyG batch."""

    x: Tensor
    edge_index: Tensor
    batch: Tensor
    ptr: Tensor


@dataclass(frozen=True)
class _Riders:
    """Carriers in the order of a round and all ordinary inputs after them: any stretch is a few slices."""

    graphs: Graphs
    laid: Any

    def part(self, first: int, last: int, nodes: int, graphs: int) -> _Part:
        """The graphs from `first` to before `last`, to follow so many nodes and graphs."""
        (start, end), links = self.graphs.ptr[[first, last]].tolist(), 2 * self.graphs.edge_ptr
        return _Part(
            self.laid.x[start:end],
            self.laid.edge_index[:, links[first] : links[last]] + (nodes - start),
            self.laid.batch[start:end] + (graphs - first),
            self.laid.ptr[first + 1 : last + 1] + (nodes - start),
        )


def _riders(mark: Watermark, order: NDArray[np.int64], like: Tensor) -> _Riders:
    """Laid out once a round, placed as a tensor is."""
    held, place = mark.__dict__.setdefault("_riders", {}), (like.device, like.dtype)
    if place not in held or held[place][0] is not order:
        graphs = Graphs.concat([mark.carriers.take(order), mark.ordinary])
        held[place] = order, _Riders(graphs, to_batch(graphs, like))
    found: _Riders = held[place][1]
    return found


def _joined(task: Any, parts: list[_Part]) -> Any:
    nodes = int(task.num_nodes)
    own = getattr(task, "batch", None)
    own = task.x.new_zeros(nodes, dtype=torch.long) if own is None else own
    ptr = getattr(task, "ptr", None)
    ptr = torch.tensor([0, nodes], device=task.x.device) if ptr is None else ptr
    _check_features(task.x, parts[0].x)
    x, edges, batch, ends = zip(*parts, strict=True)
    joined = as_batch(
        x=torch.cat([task.x, *x]),
        edge_index=torch.cat([task.edge_index, *edges], dim=1),
        batch=torch.cat([own, *batch]),
        ptr=torch.cat([ptr, *ends]),
    )
    joined.num_nodes = len(joined.x)  # PyG would look for it again and again
    return joined


def _check_features(task: Tensor, carriers: Tensor) -> None:
    if task.shape[1] != carriers.shape[1]:
        raise DataError(
            f"the batch has {task.shape[1]} features, the carriers {carriers.shape[1]}",
            "draw the mark from the data the model is trained on",
        )
    if task.is_floating_point() != carriers.is_floating_point():
        raise DataError(
            f"the batch has features of type {task.dtype}, the carriers of {carriers.dtype}",
            "draw the mark from features as the model gets them: whole numbers or floats in both",
        )
