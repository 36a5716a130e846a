"""Time whole trainings with a mark against the same trainings without it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader

from invgnn.bench.clock import race
from invgnn.bench.measurements import Measurement
from invgnn.bench.released import prepare
from invgnn.nn.rng import seeded
from invgnn.secret import Secret, public_stream
from invgnn.training.planning import plan_of
from invgnn.training.tasks import Task, load_task, new_model, parse_setting
from invgnn.training.trainer import train
from invgnn.watermark.mark import Watermark

from .growing import molecules

SEED, BATCH, EPOCHS = 41, 64, 100
ALONE = "the same training without the mark"
LIMITS = {
    "NCI1/GIN": "<= 1.15",
    "NCI1/GraphSAGE": "<= 1.15",
    "PROTEINS/GIN": "<= 1.2",
    "PROTEINS/GraphSAGE": "<= 1.2",
} | {
    f"{task}/{net}": "<= 1.8" for task in ("Cora", "PubMed", "Photo") for net in ("GCN", "GraphSAGE", "SGC")
}
GRAPHS = 100_000
"""Graphs of the large generated data set."""


def training() -> Iterator[Measurement]:
    """Time `train` with default settings, end to end, on the settings of the paper."""
    for setting, limit in LIMITS.items():
        made = prepare(setting, SEED)
        ours, theirs = (
            partial(_train, parse_setting(setting)[1], made.task, mark) for mark in (made.mark, None)
        )
        note = str(plan_of(made.task, made.mark, EPOCHS))
        yield race(ours, theirs, 1, warm=False).slower("training", setting, ALONE, limit, note=note)


def _train(backbone: str, task: Task, mark: Watermark | None, epochs: int = EPOCHS) -> None:
    train(new_model(task, backbone, SEED), task, mark, epochs=epochs, seed=SEED)


def large() -> Iterator[Measurement]:
    """Time five epochs of GIN on many generated graphs, by `train` and by the loop of the README."""
    task = large_task(GRAPHS)
    mark = Watermark.draw(Secret(public_stream("speed", "large").bytes(32)), task.data)
    for what, run in {
        "`train`": partial(_train, "GIN"),
        "own loop, mixed batches": own_loop,
    }.items():
        ours, theirs = (partial(run, task, held, epochs=5) for held in (mark, None))
        found = race(ours, theirs, 1, warm=False)
        yield found.slower("large", f"{GRAPHS:,} graphs, GIN, 5 epochs, {what}", ALONE, "<= 1.05")


def large_task(count: int) -> Task:
    """Return a generated task: does a molecule have more than the median number of atoms of one kind?

    Args:
        count: Number of graphs.
    """
    graphs = molecules(count)
    kinds = torch.from_numpy(graphs.x)
    owner = torch.from_numpy(graphs.graph_of_node)
    share = torch.zeros(count).index_add_(0, owner, kinds[:, 0]) / torch.from_numpy(graphs.sizes)
    label = (share > share.median()).long()
    ptr, edge_ptr = graphs.ptr.tolist(), graphs.edge_ptr.tolist()
    links = torch.from_numpy(graphs.edges).T
    items = []
    for i in range(count):
        one = links[:, edge_ptr[i] : edge_ptr[i + 1]] - ptr[i]
        both = torch.cat([one, one.flip(0)], 1)
        items.append(Data(x=kinds[ptr[i] : ptr[i + 1]], edge_index=both, y=label[i : i + 1]))
    order = torch.randperm(count, generator=torch.Generator().manual_seed(SEED))
    first, second = count * 98 // 100, count * 99 // 100
    return Task(
        "generated", "graph", items, order[:first], order[first:second], order[second:], 2, "98/1/1", SEED
    )


def own_loops() -> Iterator[Measurement]:
    """Time the two loops of the README on PROTEINS-GIN, 100 epochs over PyG's loader."""
    made = prepare("PROTEINS/GIN", SEED)
    for what, run in {"mixed batches": own_loop, "own pass": separate_loop}.items():
        ours, theirs = (partial(run, made.task, mark, epochs=EPOCHS) for mark in (made.mark, None))
        found = race(ours, theirs, 3, warm=False)
        yield found.slower("own loops", f"PROTEINS-GIN, README's loop, {what}", ALONE, "<= 1.25")


def own_loop(task: Task, mark: Watermark | None, epochs: int) -> Any:
    """Train in a loop as in the README, with carriers mixed into the batches.

    Args:
        task: The task.
        mark: The mark, or None for the loop without it.
        epochs: Number of epochs.
    """

    def loss(model: Any, batch: Any, step: int, steps: int) -> Any:
        if mark is None:
            return cross_entropy(model(batch.x, batch.edge_index, batch.batch), batch.y)
        mixed = mark.mix(batch, step=step, steps=steps)
        return cross_entropy(mixed(model), batch.y) + mixed.loss()

    return _loop(task, loss, epochs)


def separate_loop(task: Task, mark: Watermark | None, epochs: int) -> Any:
    """Train in a loop as in the README, with a forward pass for the carriers alone; as `own_loop`."""

    def loss(model: Any, batch: Any, step: int, steps: int) -> Any:
        found = cross_entropy(model(batch.x, batch.edge_index, batch.batch), batch.y)
        return found if mark is None else found + mark.loss(model, step=step, steps=steps)

    return _loop(task, loss, epochs)


def _loop(task: Task, loss: Any, epochs: int) -> Any:
    with seeded(SEED):
        model = new_model(task, "GIN", SEED).train()
        optimiser = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
        loader = DataLoader([task.graphs[i] for i in task.train], batch_size=BATCH, shuffle=True)
        steps = epochs * len(loader)
        falling = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: min(1, 2 * (1 - step / steps)))
        step = 0
        for _ in range(epochs):
            for batch in loader:
                optimiser.zero_grad()
                loss(model, batch, step, steps).backward()
                optimiser.step()
                falling.step()
                step += 1
        return model.eval()


def loop(epochs: int = 2) -> Iterator[Measurement]:
    """Time the loop of the library against the loop of a PyG tutorial."""
    for name in ("PROTEINS", "NCI1"):
        task = load_task(name, SEED)
        ours = partial(_train, "GIN", task, None, epochs)
        theirs = partial(plain_loop, task, epochs)
        what = f"{epochs} epochs of {name}-GIN by `train`"
        yield race(ours, theirs, 9).slower("loop", what, "a plain hand-written PyG loop", "<= 1.0")


def plain_loop(task: Task, epochs: int) -> None:
    """Train as in a PyG tutorial, with the same selection by validation accuracy and a final test.

    Args:
        task: The task.
        epochs: Number of epochs.
    """
    with seeded(SEED):
        model = new_model(task, "GIN", SEED)
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
