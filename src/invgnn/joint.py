"""Carriers riding in the task batch: one forward pass, one loss."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from invgnn.errors import DataError, ParameterError, SuspectError
from invgnn.forward import as_batch, observe, run, to_batch, unwrap
from invgnn.parallel import peers
from invgnn.reading import Observation, num_graphs
from invgnn.recipe import Recipe, guarded
from invgnn.secret import Stream
from invgnn.teaching import Wanted, observed_loss

if TYPE_CHECKING:
    from invgnn.watermark import Watermark


ENOUGH = 16
"""Fewer task graphs say too little about the spread of answers: the mark's own ordinary ones ride along."""
_KNOWN = {"x", "edge_index", "batch", "ptr", "y", "n_id", "e_id"}
"""What is mixed; and labels, and numbers that PyG's loaders note for themselves."""


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
        self.tasks, self.nodes = num_graphs(task), len(task.x)
        self.alone = mark.context["level"] == "graph" and self.tasks >= ENOUGH
        riders = _riders(mark, turn, task.x)
        self.wanted = riders.wanted
        # Task graphs are ordinary inputs too, where there are enough.
        self.batch = _joined(task, [riders.part] if self.alone else [riders.part, _usual(mark, task.x)])

    def __call__(self, model: nn.Module) -> Tensor:
        """One forward over task inputs and carriers; returns the scores of the task inputs only."""
        if not len(self.carriers):
            scores = run(model, self.batch, self.mark.forward)
            self.seen = Observation(scores, None, self.batch), unwrap(model)
            return scores
        seen = observe(model, self.batch, self.mark.layer, self.mark.forward)
        self.seen, self.peers = (seen, unwrap(model)), peers(model)
        rows = self.nodes if len(seen.scores) == self.batch.num_nodes else self.tasks
        return seen.scores[:rows]

    def loss(self) -> Tensor:
        """The mark's loss for the forward pass just made, times the weight of its recipe."""
        if self.seen is None:
            raise SuspectError("no forward pass was made", "call this joint batch on the model")
        if not len(self.carriers):
            return self.seen[0].scores.new_zeros(())
        first, last = self.tasks, self.tasks + len(self.carriers)
        usual = slice(first) if self.alone else slice(last, None)
        return observed_loss(self.mark, *self.seen, slice(first, last), usual, self.wanted)

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
    more = [name for name in task.keys() if name not in _KNOWN and not name.endswith("_mask")]  # noqa: SIM118 a PyG batch is no dict
    sizes = {int(task.num_nodes), int(task.num_edges)} - {num_graphs(task)} if more else ()
    return [
        name
        for name in more
        if isinstance(value := task[name], Tensor) and value.dim()
        if value.shape[-1 if "index" in name else 0] in sizes
    ]


class Turn(NamedTuple):
    """Whose turn it is in a step: one of the stretches of equal length that make up a round."""

    order: NDArray[np.int64]
    length: int
    number: int

    @property
    def carriers(self) -> NDArray[np.int64]:
        """Their numbers."""
        return self.order[self.number * self.length : (self.number + 1) * self.length]


class Rota:
    """The turns of m carriers, in rounds; every round has an order of its own, from a stream of its own."""

    def __init__(self, m: int, level: str, stream: Callable[[int], Stream]) -> None:
        self.m, self.level, self.stream = m, level, stream
        self.everyone, self.nobody = (Turn(np.arange(m), length, 0) for length in (m, 0))
        self._order = lru_cache(maxsize=2)(self._drawn)  # the last batch of an epoch has its own

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
        return Turn(self._order(number // turns, turns * count), count, number % turns)

    def _drawn(self, number: int, size: int) -> NDArray[np.int64]:
        """All carriers in the order of a round, the first once more to make up the last turn."""
        return self.stream(number).permutation(self.m).take(np.arange(size), mode="wrap")


class _Part(NamedTuple):
    """A stretch of graphs as tensors of a PyG batch, numbered after so many nodes and graphs."""

    x: Tensor
    edge_index: Tensor
    batch: Tensor
    ptr: Tensor
    nodes: int
    graphs: int


class _Riders(NamedTuple):
    """The carriers whose turn it is, and what they are to answer."""

    part: _Part
    wanted: Wanted


def _riders(mark: Watermark, turn: Turn, like: Tensor) -> _Riders:
    """Placed as a tensor is; a whole round is laid out at once, and the last two rounds are kept."""
    held, place = mark.__dict__.setdefault("_rounds", []), (turn.length, like.device, like.dtype)
    known = [i for i, (order, where, _) in enumerate(held) if order is turn.order and where == place]
    latest = held.pop(known[0]) if known else (turn.order, place, _round(mark, turn, like))
    held[:] = [*held[-1:], latest]
    found: _Riders = latest[2][turn.number]
    return found


@torch.inference_mode(False)  # what is kept may be trained on later
def _round(mark: Watermark, turn: Turn, like: Tensor) -> list[_Riders]:
    """All turns of a round."""
    graphs, n = mark.carriers.take(turn.order), turn.length
    laid, starts = to_batch(graphs, like), graphs.ptr[::n]
    nodes, links = np.diff(starts).tolist(), (2 * np.diff(graphs.edge_ptr[::n])).tolist()
    parts = map(
        _Part,
        laid.x.split(nodes),
        laid.edge_index.split(links, dim=1),
        laid.batch.split(nodes),
        laid.ptr[1:].split(n),
        starts.tolist(),
        range(0, len(graphs), n),
    )
    wanted = map(Wanted, *(values.split(n) for values in Wanted.of(mark, turn.order, like)))
    return list(map(_Riders, parts, wanted))


@torch.inference_mode(False)
def _usual(mark: Watermark, like: Tensor) -> _Part:
    """The mark's own ordinary inputs, placed as a tensor is."""
    held, place = mark.__dict__.setdefault("_usual", {}), (like.device, like.dtype)
    if place not in held:
        laid = to_batch(mark.ordinary, like)
        held[place] = _Part(laid.x, laid.edge_index, laid.batch, laid.ptr[1:], 0, 0)
    found: _Part = held[place]
    return found


def _joined(task: Any, parts: list[_Part]) -> Any:
    x, nodes, graphs = task.x, len(task.x), num_graphs(task)
    _check_features(x, parts[0].x)
    own, ptr = getattr(task, "batch", None), getattr(task, "ptr", None)
    own = x.new_zeros(nodes, dtype=torch.long) if own is None else own
    if ptr is None:
        ptr = nn.functional.pad(torch.bincount(own, minlength=graphs).cumsum(0), (1, 0))
    features, edges, owners, ends = [x], [task.edge_index], [own], [ptr]
    for part in parts:
        features.append(part.x)
        edges.append(part.edge_index + (nodes - part.nodes))
        owners.append(part.batch + (graphs - part.graphs))
        ends.append(part.ptr + (nodes - part.nodes))
        nodes, graphs = nodes + len(part.x), graphs + len(part.ptr)
    joined = as_batch(
        x=torch.cat(features),
        edge_index=torch.cat(edges, dim=1),
        batch=torch.cat(owners),
        ptr=torch.cat(ends),
    )
    joined.num_nodes = nodes  # PyG would look for it again and again
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
