"""Carriers riding in the task batch: one forward pass, one loss."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from invgnn.errors import DataError, SuspectError
from invgnn.parallel import peers
from invgnn.query import as_batch, observe, unwrap
from invgnn.reading import Observation
from invgnn.recipe import guarded
from invgnn.teaching import Laid, lay, num_graphs, observed_loss

if TYPE_CHECKING:
    from invgnn.watermark import Watermark


ENOUGH = 16
"""Fewer task graphs say too little about the spread of answers: the mark's own ordinary ones ride along."""
_MIXED = {"x", "edge_index", "batch", "ptr"}
_UNUSED = {"y", "n_id", "e_id"}  # labels, and numbers that PyG's loaders note for themselves


class Joint:
    """A task batch with carriers in it, for one forward pass and one loss."""

    def __init__(self, mark: Watermark, task: Any, chosen: NDArray[np.int64] | None) -> None:
        self.mark, self.chosen = mark, chosen
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
        self.carriers = np.arange(mark.m) if chosen is None else chosen
        self.tasks, self.nodes = num_graphs(task), int(task.num_nodes)
        self.alone = mark.context["level"] == "graph" and self.tasks >= ENOUGH
        usual = np.arange(mark.m, mark.m + (0 if self.alone else len(mark.ordinary)))  # or the task graphs
        self.batch = _joined(task, lay(mark, np.append(self.carriers, usual), task.x), self.tasks)
        self.seen: tuple[Observation, nn.Module] | None = None
        self.peers: Any = None

    def __call__(self, model: nn.Module) -> Tensor:
        """One forward over task inputs and carriers; returns the scores of the task inputs only."""
        seen = observe(model, self.batch, self.mark.layer, self.mark.forward)
        self.seen, self.peers = (seen, unwrap(model)), peers(model)
        rows = self.nodes if seen.scores.shape[0] == self.batch.num_nodes else self.tasks
        return seen.scores[:rows]

    def loss(self) -> Tensor:
        """β times the mark's loss for the forward pass just made."""
        if self.seen is None:
            raise SuspectError("no forward pass was made", "call this joint batch on the model")
        first, last = self.tasks, self.tasks + len(self.carriers)
        usual = slice(first) if self.alone else slice(last, None)
        return observed_loss(self.mark, *self.seen, slice(first, last), usual, self.chosen)

    def guard(self, task_loss: Tensor) -> Tensor:
        """Task loss and mark loss in one, the mark's gradient freed of what points against the task's."""
        mark_loss = self.loss()
        parameters = self.seen[1].parameters() if self.seen else ()
        return guarded(task_loss, mark_loss, parameters, self.mark.recipe.cap, self.peers)


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


def _joined(task: Any, extra: Laid, tasks: int) -> Any:
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
    if task.x.is_floating_point() != extra.x.is_floating_point():
        raise DataError(
            f"the batch has features of type {task.x.dtype}, the carriers of {extra.x.dtype}",
            "draw the mark from features as the model gets them: whole numbers or floats in both",
        )
    return as_batch(
        x=torch.cat([task.x, extra.x]),
        edge_index=torch.cat([task.edge_index, extra.edge_index + nodes], dim=1),
        batch=torch.cat([own, extra.batch + tasks]),
        ptr=torch.cat([ptr, extra.ptr[1:] + nodes]),
    )
