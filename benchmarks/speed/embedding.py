"""What teaching a mark costs beside teaching the task alone, and the library's loop beside a plain one."""

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
from invgnn.nn.forward import call, to_batch
from invgnn.nn.rng import seeded
from invgnn.secret import Secret, public_stream
from invgnn.training.batching import Collated, accuracy, batches
from invgnn.training.tasks import Task, load_task, new_model
from invgnn.training.trainer import train
from invgnn.watermark.mark import Watermark
from invgnn.watermark.recipe import Recipe
from speed.clock import Figure, race

SEED, BATCH, ALONE = 41, 64, "the same loop without the mark"
PAPER = {"PROTEINS": "<= 1.15", "NCI1": "<= 1.10"}
SETTINGS = {
    "0.08 of a batch": Recipe(ratio=0.08),
    "0.16 of a batch": Recipe(ratio=0.16),
    "0.32 of a batch": Recipe(ratio=0.32),
    "0.16, every fourth step": Recipe(ratio=0.16, every=4),
    "all in every fourth step": Recipe(every=4),
    "default": Recipe(),
    "no guard": Recipe(gradient_projection=False),
    "one extra step": Recipe(extra=1),
    "weight noise 0.3": Recipe(joint=False, noise=0.3),
    "3 simulated steps": Recipe(joint=False, simulate=3),
    "robust: both": Recipe(joint=False, noise=0.3, simulate=3),
}
"""Of PROTEINS-GIN; by default every carrier rides along twelve times in the fourteen steps of an epoch."""


def owner(task: Task, recipe: Recipe) -> Watermark:
    """The mark of a fixed owner, whose models stay soft."""
    secret = Secret(public_stream("speed", "owner").bytes(32))
    return Watermark.draw(secret, task.data, recipe=replace(recipe, weight_scale=None))


Source = Callable[[], Iterable[Any]]
Loss = Callable[[Any, Any, int], Any]


@dataclass
class Lesson:
    """A model in training: an epoch's batches, and the loss of one of them in a step."""

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
        """Every training graph twice, written as the first page of the manual has it."""
        with seeded(self.step):
            for batch in chain(self.source(), self.source()):
                self.optimiser.zero_grad()
                self.loss(self.model, batch, self.step).backward()
                self.optimiser.step()
                self.step += 1


def alone(model: Any, batch: Any, _: int) -> Any:
    """The loss of the task."""
    return cross_entropy(call(model, batch), batch.y)


def marked(mark: Watermark) -> Loss:
    """The loss of the task and that of a mark whose carriers ride along."""

    def loss(model: Any, batch: Any, step: int) -> Any:
        joint = mark.mix(batch, step=step)
        task_loss = cross_entropy(joint(model), batch.y)
        return joint.joint_loss(task_loss) if mark.recipe.gradient_projection else task_loss + joint.loss()

    return loss


def first(model: Any, batch: Any, _: int) -> Any:
    """The loss of the task, some graphs of the batch being there for nothing."""
    return cross_entropy(call(model, batch), batch.y, ignore_index=NOBODY)


NOBODY = -1
"""The class of a carrier that is no more than another graph in the batch."""


def crowded(task: Task, mark: Watermark) -> Source:
    """Batches with as many carriers among them, laid out with the others: nothing of the mark's."""
    held = Collated([*task.graphs, *_items(mark)])

    def source() -> Iterator[Any]:
        order = task.train[torch.randperm(len(task.train))]
        for number, index in enumerate(order.split(BATCH)):
            riders = torch.arange(round(0.16 / 0.84 * len(index))) + 12 * number
            yield held.batch(torch.cat([index, riders % mark.m + len(task.graphs)]))

    return source


def _items(mark: Watermark) -> Iterator[Data]:
    for graph in map(mark.carriers.take, range(mark.m)):
        one = to_batch(graph)
        yield Data(x=one.x, edge_index=one.edge_index, y=torch.tensor([NOBODY]), num_nodes=len(one.x))


RIDING = {
    "in every step": Recipe(ratio=0.16, gradient_projection=False),
    "twice as many in every second step": Recipe(ratio=0.16, gradient_projection=False, every=2),
    "four times as many in every fourth step": Recipe(ratio=0.16, gradient_projection=False, every=4),
    "in every step, guarded": Recipe(ratio=0.16),
}


def mixing() -> Iterator[Figure]:
    """Two epochs with carriers in the task batches, 16 of 100 graphs, in two loops."""
    for name, target in PAPER.items():
        task = load_task(name, SEED)
        loader = DataLoader([task.graphs[i] for i in task.train], batch_size=BATCH, shuffle=True)
        ready = partial(_ready, task, Collated(task.graphs))
        for where, source in {"PyG's loader": loader.__iter__, "batches laid out": ready}.items():
            for how, recipe in RIDING.items():
                lesson = Lesson(task, source, marked(owner(task, recipe)))
                wanted, note = ("", GUARDED) if recipe.gradient_projection else (target, "")
                yield _dearer(f"{name}-GIN, {where}: {how}", lesson, source, wanted, note)
        floor = Lesson(task, crowded(task, owner(task, Recipe())), first)
        yield _dearer(f"{name}-GIN, batches laid out: the graphs alone", floor, ready, "", FLOOR)


GUARDED = "task and mark each need a backward pass of their own"
FLOOR = "the floor: 12 graphs more in a batch of 64, laid out with the others, and no mark"


def _ready(task: Task, held: Collated) -> Iterator[Any]:
    return (batch for batch, _ in batches(task, held, BATCH))


def _dearer(what: str, ours: Lesson, source: Source, target: str, note: str) -> Figure:
    figure = race(ours.epochs, Lesson(ours.task, source, alone).epochs, 15)
    return figure.dearer("mixing", what, ALONE, target, note=note)


def settings(epochs: int = 60, repeats: int = 5) -> Iterator[Figure]:
    """Evidence against overhead on PROTEINS-GIN: what `train` costs by setting, and what it buys."""
    task = load_task("PROTEINS", SEED)
    for name, recipe in SETTINGS.items():
        mark = owner(task, recipe)
        short = partial(_train, task, epochs=3)
        hurried = mark.replace(recipe=Recipe.recall({**recipe.record(), "wait": 0}))
        figure = race(partial(short, hurried), partial(short, None), repeats)
        model = _train(task, mark, epochs)
        tuned = FineTune(20, 1e-2)(model, task)
        found = {
            edit: mark.evidence(mark.read(net)).bits() for edit, net in (("", model), ("tuned", tuned))
        }
        note = f"{found['']:.1f} bits; {found['tuned']:.1f} after fine-tuning; "
        note += f"validation {accuracy(model, task, task.val):.1%}"
        yield figure.dearer("settings", name, ALONE, note=note)


def _train(task: Task, mark: Watermark | None, epochs: int) -> Any:
    model = new_model(task, "GIN", SEED)
    train(model, task, mark, epochs=epochs, seed=SEED)
    return model


def loop(epochs: int = 2) -> Iterator[Figure]:
    """The loop the library owns against what a PyG tutorial would write."""
    for name in PAPER:
        task = load_task(name, SEED)

        def ours(task: Task = task) -> None:
            _train(task, None, epochs)

        def theirs(task: Task = task) -> None:
            plain_loop(new_model(task, "GIN", SEED), task, epochs)

        what = f"{epochs} epochs of {name}-GIN by `train`"
        yield race(ours, theirs, 9).dearer("loop", what, "a plain hand-written PyG loop", "<= 1.0")


def plain_loop(model: Any, task: Task, epochs: int) -> None:
    """What a PyG tutorial would write, with the same choice by validation accuracy and a last test."""
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
