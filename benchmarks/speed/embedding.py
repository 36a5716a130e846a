"""Time the embedding of a mark against training alone, and the library's loop against a plain one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader

from invgnn.attacks.edits import FineTune
from invgnn.bench.clock import race
from invgnn.bench.measurements import Measurement
from invgnn.nn.forward import call, to_batch
from invgnn.nn.rng import seeded
from invgnn.secret import Secret, public_stream
from invgnn.training.batching import Collated, accuracy, batches
from invgnn.training.tasks import Task, load_task, new_model
from invgnn.training.trainer import train
from invgnn.watermark.mark import Watermark
from invgnn.watermark.recipe import Recipe

SEED, BATCH, ALONE = 41, 64, "the same loop without the mark"
PAPER = {"PROTEINS": "<= 1.15", "NCI1": "<= 1.10"}
SETTINGS = {
    "0.08 of a batch": Recipe(ratio=0.08),
    "0.16 of a batch": Recipe(ratio=0.16),
    "0.32 of a batch": Recipe(ratio=0.32),
    "0.16, every fourth step": Recipe(ratio=0.16, every=4),
    "all in every fourth step": Recipe(every=4),
    "default": Recipe(),
    "no gradient projection": Recipe(gradient_projection=False),
}
"""Settings of PROTEINS-GIN. By default an epoch of fourteen steps uses every carrier twelve times."""


def owner(task: Task, recipe: Recipe) -> Watermark:
    """Return the mark of a fixed owner, without weight scaling."""
    secret = Secret(public_stream("speed", "owner").bytes(32))
    return Watermark.draw(secret, task.data, recipe=replace(recipe, weight_scale=None))


Source = Callable[[], Iterable[Any]]
Loss = Callable[[Any, Any, int], Any]


@dataclass
class Training:
    """A model in training: the batches of an epoch, and the loss of a batch in a step."""

    task: Task
    source: Source
    loss: Loss
    step: int = 0
    model: Any = field(init=False)
    optimiser: Any = field(init=False)

    def __post_init__(self) -> None:
        self.model = new_model(self.task, "GIN", SEED).train()
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=0.01, weight_decay=5e-4)

    def epochs(self) -> None:
        """Train for two epochs, in a loop as in the README."""
        with seeded(self.step):
            for batch in chain(self.source(), self.source()):
                self.optimiser.zero_grad()
                self.loss(self.model, batch, self.step).backward()
                self.optimiser.step()
                self.step += 1


def alone(model: Any, batch: Any, _: int) -> Any:
    """Return the loss of the task."""
    return cross_entropy(call(model, batch), batch.y)


def marked(mark: Watermark) -> Loss:
    """Return the loss of the task and of a mark whose carriers are mixed into the batch."""

    def loss(model: Any, batch: Any, step: int) -> Any:
        mixed = mark.mix(batch, step=step)
        task_loss = cross_entropy(mixed(model), batch.y)
        return mixed.joint_loss(task_loss) if mark.recipe.gradient_projection else task_loss + mixed.loss()

    return loss


def first(model: Any, batch: Any, _: int) -> Any:
    """Return the loss of the task; carriers in the batch have no label."""
    return cross_entropy(call(model, batch), batch.y, ignore_index=NOBODY)


NOBODY = -1
"""The label of a carrier that is only another graph in the batch."""


def crowded(task: Task, mark: Watermark) -> Source:
    """Return batches that contain as many carriers, collated with the task graphs, and no mark."""
    held = Collated([*task.graphs, *_items(mark)])

    def source() -> Iterator[Any]:
        order = task.train[torch.randperm(len(task.train))]
        for number, index in enumerate(order.split(BATCH)):
            extra = torch.arange(round(0.16 / 0.84 * len(index))) + 12 * number
            yield held.batch(torch.cat([index, extra % mark.m + len(task.graphs)]))

    return source


def _items(mark: Watermark) -> Iterator[Data]:
    for graph in map(mark.carriers.take, range(mark.m)):
        one = to_batch(graph)
        yield Data(x=one.x, edge_index=one.edge_index, y=torch.tensor([NOBODY]), num_nodes=len(one.x))


MIXED = {
    "in every step": Recipe(ratio=0.16, gradient_projection=False),
    "twice as many in every second step": Recipe(ratio=0.16, gradient_projection=False, every=2),
    "four times as many in every fourth step": Recipe(ratio=0.16, gradient_projection=False, every=4),
    "in every step, gradient projection": Recipe(ratio=0.16),
}


def mixing() -> Iterator[Measurement]:
    """Time two epochs with carriers in the task batches, 16 of 100 graphs, in two loops."""
    for name, target in PAPER.items():
        task = load_task(name, SEED)
        loader = DataLoader([task.graphs[i] for i in task.train], batch_size=BATCH, shuffle=True)
        ready = partial(_ready, task, Collated(task.graphs))
        for where, source in {"PyG's loader": loader.__iter__, "collated batches": ready}.items():
            for how, recipe in MIXED.items():
                lesson = Training(task, source, marked(owner(task, recipe)))
                wanted, note = ("", PROJECTED) if recipe.gradient_projection else (target, "")
                yield _dearer(f"{name}-GIN, {where}: {how}", lesson, source, wanted, note)
        floor = Training(task, crowded(task, owner(task, Recipe())), first)
        yield _dearer(f"{name}-GIN, collated batches: more graphs, no mark", floor, ready, "", FLOOR)


PROJECTED = "two backward passes: task and mark"
FLOOR = "lower bound: 12 more graphs in a batch of 64, no mark"


def _ready(task: Task, held: Collated) -> Iterator[Any]:
    return (batch for batch, _ in batches(task, held, BATCH))


def _dearer(what: str, ours: Training, source: Source, target: str, note: str) -> Measurement:
    figure = race(ours.epochs, Training(ours.task, source, alone).epochs, 15)
    return figure.slower("mixing", what, ALONE, target, note=note)


def settings(epochs: int = 60, repeats: int = 5) -> Iterator[Measurement]:
    """Measure evidence and overhead on PROTEINS-GIN by setting of the recipe."""
    task = load_task("PROTEINS", SEED)
    for name, recipe in SETTINGS.items():
        mark = owner(task, recipe)
        short = partial(_train, task, epochs=3)
        hurried = mark.replace(recipe=replace(mark.recipe, warmup_steps=0))
        figure = race(partial(short, hurried), partial(short, None), repeats)
        model = _train(task, mark, epochs)
        tuned = FineTune(20, 1e-2)(model, task)
        found = {
            edit: mark.evidence(mark.read(net)).bits() for edit, net in (("", model), ("tuned", tuned))
        }
        note = f"{found['']:.1f} bits; {found['tuned']:.1f} after fine-tuning; "
        note += f"validation {accuracy(model, task, task.val):.1%}"
        yield figure.slower("settings", name, ALONE, note=note)


def _train(task: Task, mark: Watermark | None, epochs: int) -> Any:
    model = new_model(task, "GIN", SEED)
    train(model, task, mark, epochs=epochs, seed=SEED)
    return model


def loop(epochs: int = 2) -> Iterator[Measurement]:
    """Time the loop of the library against the loop of a PyG tutorial."""
    for name in PAPER:
        task = load_task(name, SEED)

        def ours(task: Task = task) -> None:
            _train(task, None, epochs)

        def theirs(task: Task = task) -> None:
            plain_loop(new_model(task, "GIN", SEED), task, epochs)

        what = f"{epochs} epochs of {name}-GIN by `train`"
        yield race(ours, theirs, 9).slower("loop", what, "a plain hand-written PyG loop", "<= 1.0")


def plain_loop(model: Any, task: Task, epochs: int) -> None:
    """Train as in a PyG tutorial, with the same selection by validation accuracy and a final test."""
    with seeded(SEED):
        loader = DataLoader([task.graphs[i] for i in task.train], batch_size=BATCH, shuffle=True)
        held, last = (
            DataLoader([task.graphs[i] for i in rows], batch_size=len(rows))
            for rows in (task.val, task.test)
        )
        optimiser = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
        best, kept = -1, model.state_dict()
        for _ in range(epochs):
            model.train()
            for batch in loader:
                optimiser.zero_grad()
                cross_entropy(model(batch.x, batch.edge_index, batch.batch), batch.y).backward()
                optimiser.step()
            if (right := _right(model, held)) > best:
                best, kept = right, {k: v.clone() for k, v in model.state_dict().items()}
        model.load_state_dict(kept)
        _right(model, last)


@torch.no_grad()
def _right(model: Any, loader: Any) -> int:
    model.eval()
    return sum(int((model(b.x, b.edge_index, b.batch).argmax(-1) == b.y).sum()) for b in loader)
