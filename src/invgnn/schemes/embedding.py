"""Train a model with the mark of a scheme: one forward pass over the task batch and private inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from invgnn.nn.forward import as_batch, call, observe
from invgnn.nn.gradient_projection import projected_sum
from invgnn.nn.observation import Observation, num_graphs
from invgnn.nn.rng import seeded
from invgnn.training.batching import Collated, batches, placed
from invgnn.training.embedding import ELIGIBLE
from invgnn.training.fitting import (
    FitOptions,
    History,
    Item,
    Losses,
    Progress,
    fit,
    label_loss,
)
from invgnn.training.tasks import Task


class Embeddable(Protocol):
    """What the training needs to know of a mark."""

    projected: bool

    @property
    def layer(self) -> str | None:
        """The hidden layer to observe, if any."""

    def changed(self, task: Task) -> Task:
        """Return the task to train on."""

    def private_inputs(self, step: int) -> Any:
        """Return private inputs of a step."""

    def loss(self, model: nn.Module, task: Observation, extra: Observation | None) -> Tensor | None:
        """Return the weighted loss of the mark."""


def fit_marked(
    mark: Embeddable,
    model: nn.Module,
    task: Task,
    options: FitOptions,
    progress: Progress | None = None,
) -> History:
    """Train a model on a task with a mark, in place.

    Optimiser, batches and selection are those of `train`: of a marked model the best of the last quarter of
    the epochs is kept.

    Args:
        mark: The mark.
        model: The model; left in evaluation mode.
        task: The task.
        options: Settings of the run.
        progress: Called after every epoch.
    """
    own = placed(task, model)
    changed = placed(mark.changed(own), model)
    held, source = ((Collated(t.graphs) if t.level == "graph" else None) for t in (own, changed))
    joined = Joined()

    def losses(item: Item, step: int) -> Losses:
        seen, extra = joined.observe(model, item[0], mark.private_inputs(step), mark.layer)
        found, marked = label_loss(seen.scores, *item), mark.loss(model, seen, extra)
        if marked is None:
            return Losses(found, None, found)
        add: Callable[..., Tensor] = projected_sum if mark.projected else _sum
        return Losses(found, marked, add(found, marked, model.parameters()))

    def items() -> Iterable[Item]:
        return batches(changed, source, options.batch_size)

    with seeded(options.seed):
        return fit(model, own, items, losses, options, eligible=ELIGIBLE, held=held, progress=progress)


def _sum(task_loss: Tensor, mark_loss: Tensor, parameters: Iterable[Tensor]) -> Tensor:
    """Return the sum of both losses."""
    return task_loss + mark_loss


def noiseless(model: nn.Module, batch: Any) -> Tensor:
    """Return the scores of a model without dropout, as a suspect gives them, with gradients.

    Args:
        model: The model; its mode is restored.
        batch: A PyG batch.
    """
    training = model.training
    scores = call(model.eval(), batch)
    model.train(training)
    return scores


class Joined:
    """Forward passes over a task batch and private inputs together.

    The one graph of a node task is joined with the same private inputs again and again, so the last joined
    batches are kept.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[int, int], tuple[Any, Any, Any]] = {}

    def observe(
        self, model: nn.Module, batch: Any, extra: Any, layer: str | None
    ) -> tuple[Observation, Observation | None]:
        """Return the outputs on the task batch and on the private inputs.

        Args:
            model: The model.
            batch: The task batch.
            extra: The private inputs; None for none.
            layer: The hidden layer to observe, if any.
        """
        if extra is None:
            return observe(model, batch, layer), None
        seen = observe(model, self._both(batch, extra), layer)
        nodes, graphs = int(batch.num_nodes), num_graphs(batch)
        first = graphs if len(seen.scores) == graphs + num_graphs(extra) else nodes
        hidden: list[Tensor] | list[None] = [None, None]
        if seen.hidden is not None:
            by_node = len(seen.hidden) == int(seen.batch.num_nodes)
            hidden = _split(seen.hidden, nodes if by_node else graphs)
        scores = _split(seen.scores, first)
        return Observation(scores[0], hidden[0], batch), Observation(scores[1], hidden[1], extra)

    def _both(self, batch: Any, extra: Any) -> Any:
        """Return both batches in one."""
        key = id(batch), id(extra)
        if key not in self._kept:
            if getattr(batch, "batch", None) is not None:  # another batch in every step
                return join(batch, extra)
            self._kept[key] = join(batch, extra), batch, extra  # both are held, so that ids stay unique
        return self._kept[key][0]


def _split(rows: Tensor, first: int) -> list[Tensor]:
    """Return the rows of the task batch and those of the private inputs."""
    return [rows[:first], rows[first:]]


def join(first: Any, second: Any) -> Any:
    """Return the disjoint union of two PyG batches, with features, edges and owners.

    Args:
        first: A batch, or the one graph of a node task.
        second: A batch.
    """
    nodes, graphs = int(first.num_nodes), num_graphs(first)
    owners = getattr(first, "batch", None)
    owners = first.edge_index.new_zeros(nodes) if owners is None else owners
    ends = torch.bincount(owners, minlength=graphs).cumsum(0)
    joined = as_batch(
        x=torch.cat([first.x, second.x.to(first.x)]),
        edge_index=torch.cat([first.edge_index, second.edge_index.to(first.edge_index) + nodes], dim=1),
        batch=torch.cat([owners, second.batch.to(owners) + graphs]),
        ptr=torch.cat([ends.new_zeros(1), ends, second.ptr[1:].to(ends) + nodes]),
    )
    joined.num_nodes = nodes + int(second.num_nodes)
    return joined
