"""The one short loop the library owns: train a task, with or without a mark."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch_geometric.data import Data

from invgnn.forward import as_batch, call, politely, unwrap, weight_of
from invgnn.parallel import peers
from invgnn.randomness import seeded, undropped
from invgnn.recipe import distillation_loss, guarded
from invgnn.tasks import Task

if TYPE_CHECKING:  # edits train too, and must not be able to reach a mark
    from invgnn.watermark import Watermark

TEMPERATURE = 2.0
"""At which a model learns from its own scores, as students usually do."""

Progress = Callable[[int, int], None]
"""Told the number of epochs done and their total."""


class Collated:
    """Graphs laid out end to end once, so that any batch of them is a few gathers."""

    def __init__(self, graphs: list[Data]) -> None:
        self.x = torch.cat([g.x for g in graphs]).contiguous()
        self.y = torch.cat([g.y.view(-1) for g in graphs])
        self.edges = torch.cat([g.edge_index for g in graphs], dim=1)
        place = self.edges.device
        self.nodes = torch.tensor([int(g.num_nodes) for g in graphs], device=place)
        self.links = torch.tensor([g.edge_index.shape[1] for g in graphs], device=place)
        self.first_node = self.nodes.cumsum(0) - self.nodes
        self.first_link = self.links.cumsum(0) - self.links

    def numbered(self) -> Collated:
        """The same graphs with their numbers in place of their classes."""
        twin = copy.copy(self)
        twin.y = torch.arange(len(self.nodes), device=self.nodes.device)
        return twin

    def batch(self, index: Tensor) -> Any:
        """The chosen graphs as one PyG batch."""
        nodes, links = self.nodes[index], self.links[index]
        graph = torch.repeat_interleave(nodes)
        ptr = torch.cat([nodes.new_zeros(1), nodes.cumsum(0)])
        chosen = torch.arange(int(ptr[-1]), device=ptr.device) + (self.first_node[index] - ptr[:-1])[graph]
        which = torch.repeat_interleave(links)
        start = self.first_link[index] - (links.cumsum(0) - links)
        linked = torch.arange(len(which), device=ptr.device) + start[which]
        edges = self.edges[:, linked] + ptr[:-1][which]
        batch = as_batch(x=self.x[chosen], edge_index=edges, y=self.y[index], batch=graph, ptr=ptr)
        batch.num_nodes = int(ptr[-1])
        return batch


def placed(task: Task, model: nn.Module) -> Task:
    """The task where a model computes."""
    like = weight_of(model)
    return task if like is None else task.to(like.device)


@dataclass
class History:
    """What happened during training, epoch by epoch, and what was kept."""

    val_acc: list[float] = field(default_factory=list)
    loss: list[float] = field(default_factory=list)
    mark_loss: list[float] = field(default_factory=list)
    best_epoch: int = -1
    best_val_acc: float = -1.0
    test_acc: float = float("nan")


def train(
    model: nn.Module,
    task: Task,
    mark: Watermark | None = None,
    *,
    epochs: int = 100,
    lr: float = 0.01,
    weight_decay: float = 5e-4,
    batch_size: int = 64,
    seed: int = 41,
    select: bool = True,
    progress: Progress | None = None,
) -> History:
    """Train in place and keep the checkpoint with the best validation accuracy.

    A mark joins in after its recipe's first steps and needs time to settle: with one, only the last
    quarter of the epochs is eligible. `select=False` keeps the last epoch. A mark with a second channel
    needs a model that knows the task, and `mark.remember(model, task.data)`: it is then taught not the
    labels but the scores it gave before, leaning, and without dropout: there is no noise in them to fit.
    """
    lessons = None if mark is None or mark.function is None else _lessons(task, mark)
    history, task = History(), placed(task, model)
    lessons = None if lessons is None else lessons.to(task.train.device)
    optimiser = torch.optim.Adam(model.parameters(), lr=lr, weight_decay=weight_decay)
    held = Collated(task.graphs) if task.level == "graph" else None
    numbered = None if held is None or lessons is None else held.numbered()
    best: dict[str, Tensor] = {}
    step, first = 0, 0
    if mark is not None:
        steps = 1 if held is None else -(-len(task.train) // batch_size)
        first = mark.recipe.begins(epochs * steps)
        mark = mark.replace(recipe=mark.recipe.paced(mark.m, steps, batch_size))
        _fits(model, task, mark, held)
    with seeded(seed), nullcontext() if lessons is None else undropped():
        for epoch in range(epochs):
            model.train()
            total, marked = 0.0, 0.0
            for batch, rows in batches(task, held if lessons is None else numbered, batch_size):
                taught = mark if mark and step >= first and mark.recipe.rides(step) else None
                task_loss, mark_loss = _step(model, batch, rows, taught, step, lr, lessons)
                optimiser.zero_grad()
                _sum(task_loss, mark_loss, model, taught).backward()
                optimiser.step()
                if taught is not None:
                    _mark_alone(model, taught, optimiser, batch, step)
                _project(model)
                total += float(task_loss.detach())
                marked += float(mark_loss.detach())
                step += 1
            history.loss.append(total)
            history.mark_loss.append(marked)
            history.val_acc.append(accuracy(model, task, task.val, held))
            settled = mark is None or 4 * (epoch + 1) > 3 * epochs
            if not select or (settled and history.val_acc[-1] > history.best_val_acc):
                history.best_epoch, history.best_val_acc = epoch, history.val_acc[-1]
                best = {k: v.detach().clone() for k, v in model.state_dict().items()}
            if progress:
                progress(epoch + 1, epochs)
    if best:
        model.load_state_dict(best)
    model.eval()
    history.test_acc = accuracy(model, task, task.test, held)
    return history


def _step(
    model: nn.Module,
    batch: Any,
    rows: Tensor | None,
    mark: Watermark | None,
    step: int,
    lr: float,
    lessons: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Task loss and weighted mark loss of one batch; the task is to repeat the lessons if there are any."""
    wanted: Any = slice(None) if rows is None else rows

    def task_loss(scores: Tensor) -> Tensor:
        if lessons is not None:  # a node task's lessons are about all of its nodes
            taught = lessons[batch.y] if rows is None else lessons
            return distillation_loss(scores, taught, TEMPERATURE).mean()
        return cross_entropy(scores[wanted], batch.y[wanted])

    if mark is None:
        return task_loss(call(model, batch)), batch.x.new_zeros(())
    if mark.recipe.joint:
        joint = mark.mix(batch, step=step)
        return task_loss(joint(model)), joint.loss()
    shift = _shift(model, mark, lambda net: task_loss(call(net, batch)), lr)
    return task_loss(call(model, batch)), mark.loss(model, step=step, beside=batch, at=shift)


def _lessons(task: Task, mark: Watermark) -> Tensor:
    """What the model said of the task's inputs before, leaning along the mark's direction."""
    channel = mark.channel(task.data)
    batch = task.graphs[0] if task.level == "node" else Collated(task.graphs).batch(task.train)
    said = channel.lean(
        torch.tensor(channel.before, dtype=torch.float32).to(batch.edge_index.device), batch
    )
    if task.level == "node":
        return said
    return said.new_zeros(len(task.graphs), said.shape[1]).index_copy(0, task.train, said)


def _fits(model: nn.Module, task: Task, mark: Watermark, held: Collated | None) -> None:
    """Fail now rather than when the mark joins in: the model cannot be read, or the batch not mixed."""
    if mark.recipe.joint:
        mark.mix(task.graphs[0] if held is None else held.batch(task.train[:2]), step=0)
    for reading in mark.readings:
        mark.read(model, reading.access)


def _mark_alone(
    model: nn.Module, mark: Watermark, optimiser: torch.optim.Optimizer, batch: Any, step: int
) -> None:
    for _ in range(mark.recipe.extra):
        optimiser.zero_grad()
        mark.loss(model, step=step, beside=batch).backward()
        optimiser.step()


def _sum(task_loss: Tensor, mark_loss: Tensor, model: nn.Module, mark: Watermark | None) -> Tensor:
    if mark is None or not mark.recipe.guard:
        return task_loss + mark_loss
    return guarded(task_loss, mark_loss, model.parameters(), mark.recipe.cap, peers(model))


def _shift(
    model: nn.Module, mark: Watermark, task_loss: Callable[[nn.Module], Tensor], lr: float
) -> dict[str, Tensor]:
    """Where the mark should hold as well: after simulated fine-tuning, under weight noise, or both."""
    shift: dict[str, Tensor] = {}
    if mark.recipe.simulate:
        shift = simulated_steps(model, task_loss, mark.recipe.simulate, lr)
    if mark.recipe.noise:
        noise = weight_noise(model, mark.recipe.noise)
        shift = {name: value + shift.get(name, 0) for name, value in noise.items()}
    return shift


def weight_noise(model: nn.Module, scale: float) -> dict[str, Tensor]:
    """Gaussian noise for every weight matrix, relative to its mean absolute weight."""
    return {
        name: scale * value.detach().abs().mean() * torch.randn_like(value)
        for name, value in unwrap(model).named_parameters()
        if value.dim() >= 2
    }


def simulated_steps(
    model: nn.Module, task_loss: Callable[[nn.Module], Tensor], steps: int, lr: float
) -> dict[str, Tensor]:
    """How the parameters would move in a few steps of fine-tuning on the task alone."""
    twin = copy.deepcopy(unwrap(model))
    optimiser = torch.optim.Adam(twin.parameters(), lr=lr)
    for _ in range(steps):
        optimiser.zero_grad()
        task_loss(twin).backward()
        optimiser.step()
    before = dict(unwrap(model).named_parameters())
    return {name: (p - before[name]).detach() for name, p in twin.named_parameters()}


def batches(task: Task, held: Collated | None, batch_size: int) -> Iterator[tuple[Any, Tensor | None]]:
    """Shuffled batches of training graphs, or the one graph with its training nodes."""
    if held is None:
        yield task.graphs[0], task.train
        return
    order = task.train[torch.randperm(len(task.train))]
    for index in order.split(batch_size):
        yield held.batch(index), None


def _project(model: nn.Module) -> None:
    head = getattr(model, "perception", None)
    if head is not None:
        head.project()


@torch.no_grad()
def accuracy(model: nn.Module, task: Task, rows: Tensor, held: Collated | None = None) -> float:
    """Share of the chosen graphs or nodes whose top class is right."""
    model, task = unwrap(model), placed(task, model)  # the wrapper would wait for other processes
    with politely(model):
        if task.level == "node":
            data = task.graphs[0]
            return float((call(model, data)[rows].argmax(-1) == data.y[rows]).float().mean())
        batch = (held or Collated(task.graphs)).batch(rows)
        return float((call(model, batch).argmax(-1) == batch.y).float().mean())
