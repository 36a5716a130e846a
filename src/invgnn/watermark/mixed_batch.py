"""MixedBatch: a task batch with carriers appended, for one forward pass and one loss."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from invgnn.errors import DataError, SuspectError
from invgnn.nn.distributed import peers, shared
from invgnn.nn.forward import as_batch, make_separable, observe, run, unwrap
from invgnn.nn.gradient_projection import check_task_loss, projected_sum
from invgnn.nn.layers import has_batch_norm
from invgnn.nn.observation import Observation, num_graphs
from invgnn.nn.typed_graphs import flattened, is_typed
from invgnn.watermark.carrier_batches import ENOUGH, Part
from invgnn.watermark.embedding_loss import observed_loss, own_loss
from invgnn.watermark.protocol import Embeddable
from invgnn.watermark.schedule import Portion

_KNOWN = {"x", "edge_index", "batch", "ptr", "y", "n_id", "e_id"}
"""What is mixed, and labels and numbers that PyG's loaders add for their own use."""


class MixedBatch:
    """A task batch with carriers appended.

    Call it on the model to get the scores of the task inputs, then take `loss` or `joint_loss`.

    Args:
        mark: The mark.
        task: The task batch.
        portion: The carriers to append.
        appended: Whether the task batch ends with these carriers already, after enough task graphs.
        settling: Whether a model with batch norms gets the carriers in a pass of their own. There they are
            normalised by statistics of ordinary inputs, as in evaluation mode, and the running statistics
            are those of the task alone.
    """

    def __init__(
        self,
        mark: Embeddable,
        task: Any,
        portion: Portion,
        *,
        appended: bool = False,
        settling: bool = False,
    ) -> None:
        self.mark, self.carriers, self.portion, self.settling = mark, portion.carriers, portion, settling
        self.apart: nn.Module | None = None
        self.seen: tuple[Observation, nn.Module] | None = None
        self.peers: Any = None
        self.batch = self.task = task = flattened(task, mark.forward)
        if not len(self.carriers):  # this step is the task's alone, at no extra cost
            return
        if appended:
            self.tasks, self.alone = num_graphs(task) - len(self.carriers), True
            self.nodes = int(task.ptr[self.tasks])
            self.wanted = mark.batches.wanted(self.carriers, task.x)
            return
        _check(mark, task)
        self.tasks, self.nodes = num_graphs(task), int(task.num_nodes)
        self.alone = mark.level == "graph" and self.tasks >= ENOUGH
        like = task.edge_index.new_empty(0, dtype=torch.get_default_dtype()) if task.x is None else task.x
        part, self.wanted = mark.batches.portion(portion, like)
        if self.alone:  # task graphs are ordinary inputs too, where there are enough of them
            self.batch = _joined(task, [part], mark.batches.carriers.more)
        else:
            more, usual = mark.batches.carriers.more, mark.batches.ordinary_part(portion, like)
            make = partial(_joined, task, [part, usual], more)
            plain = mark.level == "node" and task.x is not None and not mark.batches.carriers.more
            self.batch = mark.batches.kept(task, part, make) if plain else make()

    def __call__(self, model: nn.Module) -> Tensor:
        """Run one forward pass over task inputs and carriers, and return the scores of the task inputs."""
        self.apart = model if self.settling and has_batch_norm(unwrap(model)) else None
        if not len(self.carriers) or self.apart is not None:
            alone = self.batch if self.apart is None else self._alone()
            scores = run(model, alone, self.mark.forward)
            self.seen, self.peers = (Observation(scores, None, alone), unwrap(model)), peers(model)
            return scores
        seen = observe(model, self.batch, self.mark.layer, self.mark.forward)
        self.seen, self.peers = (seen, unwrap(model)), peers(model)
        rows = self.nodes if len(seen.scores) == self.batch.num_nodes else self.tasks
        return seen.scores[:rows]

    def _alone(self) -> Any:
        """Return the task inputs alone, as a batch with owners and offsets, which a call may expect."""
        if getattr(self.task, "ptr", None) is not None:
            return self.task
        return _joined(self.task, [], self.mark.batches.carriers.more)

    def loss(self) -> Tensor:
        """Return the weighted loss of the mark for the forward pass just made.

        Raises:
            SuspectError: If no forward pass was made.
        """
        if self.seen is None:
            raise SuspectError("no forward pass was made", "call this mixed batch on the model first")
        if not len(self.carriers):
            return self.seen[0].scores.new_zeros(())
        if self.apart is not None:
            return shared(own_loss(self.mark, self.apart, self.portion), self.apart)
        seen, model = self.seen
        first, last = self.tasks, self.tasks + len(self.carriers)
        if self.alone:
            return observed_loss(self.mark, seen, model, slice(first, last), slice(first), self.wanted)
        asked, count = _without_task(seen, self.tasks, self.nodes), len(self.carriers)
        return observed_loss(self.mark, asked, model, slice(count), slice(count, None), self.wanted)

    def joint_loss(self, task_loss: Tensor) -> Tensor:
        """Return task loss and mark loss in one, without the conflicting part of the mark's gradient.

        Args:
            task_loss: The loss of the scores that this batch returned.
        """
        check_task_loss(task_loss)
        if self.apart is not None and len(self.carriers):
            mark_loss = own_loss(self.mark, unwrap(self.apart), self.portion)
        else:
            mark_loss = self.loss()
        if not len(self.carriers):
            return task_loss
        parameters = self.seen[1].parameters() if self.seen else ()
        return projected_sum(task_loss, mark_loss, parameters, self.mark.recipe.cap, self.peers)


@dataclass(frozen=True)
class _Questions:
    """Which graph the nodes of the appended graphs belong to: what `pool` needs of a batch."""

    batch: Tensor
    ptr: Tensor
    num_nodes: int


def _without_task(seen: Observation, graphs: int, nodes: int) -> Observation:
    """Return what a forward pass returned for the graphs after the task's, on which alone the loss depends.

    Args:
        seen: The whole forward pass.
        graphs: Number of graphs of the task batch.
        nodes: Number of its nodes.
    """
    whole = seen.batch
    last = int(whole.num_nodes)
    asked = _Questions(whole.batch[nodes:] - graphs, whole.ptr[graphs:] - nodes, last - nodes)

    def rows(found: Tensor) -> Tensor:
        return found[nodes if len(found) == last else graphs :]

    return Observation(rows(seen.scores), None if seen.hidden is None else rows(seen.hidden), asked)


def _check(mark: Embeddable, task: Any) -> None:
    """Refuse a task batch that carriers cannot be mixed into."""
    if is_typed(task):
        raise DataError(
            "carriers cannot be mixed into this HeteroData: the types of the task's graphs are not known",
            "load the mark with forward=invgnn.Schema.of(graphs), and mix batches of a DataLoader; or use "
            "a forward pass of their own: task_loss + mark.loss(model, step=step, steps=steps)",
        )
    lost = _lost(task, mark.batches.carriers.more)
    if lost:
        raise DataError(
            f"the task batch has {', '.join(lost)} and carriers have none to mix in",
            "draw the mark from data that have it (or with the same transform=), or delete it from the "
            "batch if the model does not use it",
        )
    if (task.x is None) != (mark.batches.carriers.x is None):
        without = "the task batch has" if task.x is None else "the carriers have"
        raise DataError(
            f"{without} no node features", "draw the mark from the data the model is trained on"
        )


def _lost(task: Any, carried: Collection[str]) -> list[str]:
    """Names of what a batch holds for every node or edge and a mixed batch would lack."""
    known = {*_KNOWN, *carried}
    more = [name for name in task.keys() if name not in known and not name.endswith("_mask")]  # noqa: SIM118 a PyG batch is no dict
    sizes = {int(task.num_nodes), int(task.num_edges)} - {num_graphs(task)} if more else ()
    return [
        name
        for name in more
        if isinstance(value := task[name], Tensor) and value.dim()
        if value.shape[-1 if "index" in name else 0] in sizes
    ]


def _joined(task: Any, parts: list[Part], carried: Mapping[str, tuple[str, Any]]) -> Any:
    nodes, graphs = int(task.num_nodes), num_graphs(task)
    own, ptr = getattr(task, "batch", None), getattr(task, "ptr", None)
    own = task.edge_index.new_zeros(nodes) if own is None else own
    if ptr is None:
        ptr = nn.functional.pad(torch.bincount(own, minlength=graphs).cumsum(0), (1, 0))
    edges, owners, ends = [task.edge_index], [own], [ptr]
    for part in parts:
        edges.append(part.edge_index + (nodes - part.nodes))
        owners.append(part.batch + (graphs - part.graphs))
        ends.append(part.ptr + (nodes - part.nodes))
        nodes, graphs = nodes + len(part.batch), graphs + len(part.ptr)
    held = {name: [part.more[name] for part in parts] for name in carried if name in task}
    features = [part.x for part in parts if part.x is not None]
    joined = as_batch(
        x=None if task.x is None else _rows("x", task.x, features),
        edge_index=torch.cat(edges, dim=1),
        batch=torch.cat(owners),
        ptr=torch.cat(ends),
        **{name: _rows(name, task[name], values) for name, values in held.items()},
    )
    joined.num_nodes = nodes  # PyG would look for it again and again
    slices = getattr(task, "_slice_dict", {})
    if "edge_index" in slices:  # so that a model may ask for the graphs one by one
        starts = [slices["edge_index"].to(own.device), *(_links(part) for part in parts)]
        arrow_ptr = torch.cat([starts[0], starts[0][-1] + torch.cat(starts[1:]).cumsum(0)])
        kinds = {name: kind for name, (kind, _) in carried.items() if name in held}
        make_separable(joined, joined.ptr, arrow_ptr, kinds)
    return joined


def _links(part: Part) -> Tensor:
    """Return the number of edges of every graph of a part."""
    owners = part.batch[part.edge_index[0] - part.nodes] - part.graphs
    return owners.bincount(minlength=len(part.ptr))


def _rows(name: str, task: Tensor, parts: list[Tensor]) -> Tensor:
    """Return a tensor of the task batch with the rows of the carriers appended."""
    if parts:
        (_check_features if name == "x" else _check_tensor)(task, parts[0], name)
    return torch.cat([task, *parts])


def _check_tensor(task: Tensor, carriers: Tensor, name: str) -> None:
    if task.shape[1:] != carriers.shape[1:] or task.is_floating_point() != carriers.is_floating_point():
        raise DataError(
            f"{name} of the batch has rows of shape {tuple(task.shape[1:])} and type {task.dtype}, that of "
            f"the carriers {tuple(carriers.shape[1:])} and {carriers.dtype}",
            "draw the mark from the data the model is trained on",
        )


def _check_features(task: Tensor, carriers: Tensor, name: str) -> None:
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
