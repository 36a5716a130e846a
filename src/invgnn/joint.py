"""Carriers riding in the task batch: one forward pass, one loss."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch_geometric.data import Batch

from invgnn.errors import DataError, SuspectError
from invgnn.query import observe, unwrap
from invgnn.reading import Observation

if TYPE_CHECKING:
    from invgnn.watermark import Watermark


class Joint:
    """A task batch with carriers in it, for one forward pass and one loss."""

    def __init__(self, mark: Watermark, task: Any, chosen: NDArray[np.int64] | None) -> None:
        self.mark, self.chosen = mark, chosen
        for name in ("edge_attr", "edge_weight"):
            if getattr(task, name, None) is not None:
                raise DataError(
                    f"the task batch has {name} and carriers have none to mix in",
                    "use loss = task_loss + mark.loss(model) with a forward= that supplies it",
                )
        if task.x is None:
            raise DataError(
                "the task batch has no node features to mix carriers into",
                "use loss = task_loss + mark.loss(model), or give the graphs features",
            )
        self.carriers = mark.carriers if chosen is None else mark.carriers.take(chosen)
        extra = mark.batch_like(self.carriers, task.x, keep=chosen is None)
        self.level = mark.context["level"]
        if self.level == "graph":  # the task graphs themselves are the ordinary inputs
            nodes, edges = self.carriers.num_nodes, 2 * len(self.carriers.edges)
            extra = _part(extra, len(self.carriers), nodes, edges)
        self.tasks, self.nodes = num_graphs(task), int(task.num_nodes)
        self.batch = _joined(task, extra, self.tasks)
        self.seen: tuple[Observation, nn.Module] | None = None

    def __call__(self, model: nn.Module) -> Tensor:
        """One forward over task inputs and carriers; returns the scores of the task inputs only."""
        seen = observe(model, self.batch, self.mark.layer, self.mark.forward)
        self.seen = seen, unwrap(model)
        rows = self.nodes if seen.scores.shape[0] == self.batch.num_nodes else self.tasks
        return seen.scores[:rows]

    def loss(self) -> Tensor:
        """β times the mark's loss for the forward pass just made."""
        if self.seen is None:
            raise SuspectError("no forward pass was made", "call this joint batch on the model")
        first, last = self.tasks, self.tasks + len(self.carriers)
        usual = slice(last, None) if self.level == "node" else slice(first)
        return self.mark.observed_loss(*self.seen, slice(first, last), usual, self.chosen)


def num_graphs(batch: Any) -> int:
    """How many graphs a PyG batch holds; a single `Data` is one."""
    return int(batch.num_graphs) if getattr(batch, "ptr", None) is not None else 1


def _part(batch: Any, graphs: int, nodes: int, edges: int) -> Any:
    """The first graphs of a batch."""
    return Batch(
        x=batch.x[:nodes],
        edge_index=batch.edge_index[:, :edges],
        batch=batch.batch[:nodes],
        ptr=batch.ptr[: graphs + 1],
    )


def _joined(task: Any, extra: Any, tasks: int) -> Any:
    nodes = int(task.num_nodes)
    own = getattr(task, "batch", None)
    own = task.x.new_zeros(nodes, dtype=torch.long) if own is None else own
    ptr = getattr(task, "ptr", None)
    ptr = torch.tensor([0, nodes], device=task.x.device) if ptr is None else ptr
    if task.x.shape[1] != extra.x.shape[1]:
        raise DataError(
            f"the batch has {task.x.shape[1]} features, the carriers {extra.x.shape[1]}",
            "draw the mark from the data the model is trained on",
        )
    return Batch(
        x=torch.cat([task.x, extra.x]),
        edge_index=torch.cat([task.edge_index, extra.edge_index + nodes], dim=1),
        batch=torch.cat([own, extra.batch + tasks]),
        ptr=torch.cat([ptr, extra.ptr[1:] + nodes]),
    )
