"""Unlearning: graphs like the owner's carriers are to answer like any other."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from invgnn.attacks.attack import Attack, Knowledge
from invgnn.attacks.own_marks import accesses, own_marks
from invgnn.errors import ParameterError
from invgnn.graphs.disjoint_union import Graphs
from invgnn.nn.forward import call, evaluation_mode, observe, to_batch, weight_of
from invgnn.nn.gradient_projection import projected_sum
from invgnn.nn.layers import all_learn
from invgnn.nn.observation import Observation
from invgnn.nn.optimise import optimise
from invgnn.nn.weight_scaling import unscale_weights
from invgnn.readout.reading import Reading, pooled
from invgnn.training.batching import Collated, batches, some_inputs
from invgnn.training.fitting import BATCH_SIZE, Item, label_loss
from invgnn.training.tasks import Task

SHARE = 128
"""Graphs of the thief's own in a step, carrier-like and ordinary ones together."""


class Unlearn(Attack):
    """Train the answers on graphs like carriers towards the model's usual answers, the task kept.

    The thief draws carriers under many secrets of his own and pulls every coordinate of what the model
    says about them, since he knows no direction, to its mean over ordinary inputs, which are to answer as
    before. Like the owner's mark, the pull is freed of what in it points against the task.

    secrets  how many carrier sets he draws, of m each
    weight   of that pull beside the task loss
    """

    knows: tuple[Knowledge, ...] = ("the weights", "task data", "the algorithm")

    def __init__(
        self,
        secrets: int = 8,
        m: int = 64,
        *,
        weight: float = 1.0,
        epochs: int = 20,
        lr: float = 0.01,
        seed: int = 0,
    ) -> None:
        if min(secrets, m, epochs) < 1 or not all(0 < value < float("inf") for value in (weight, lr)):
            raise ParameterError("all settings of unlearning must be positive", "the defaults are usual")
        self.secrets, self.m, self.weight = secrets, m, weight
        self.epochs, self.lr, self.seed = epochs, lr, seed

    def apply(self, model: nn.Module, task: Task) -> nn.Module:
        """A step on the task and on some carrier-like and ordinary graphs together, batch by batch."""
        unscale_weights(model, some_inputs(task))  # whoever knows how marks are taught knows of this too
        marks = own_marks(model, task, self.secrets, self.m, self.seed)
        asked = Graphs.concat([*(mark.carriers for mark in marks), *(mark.ordinary for mark in marks)])
        wanted = neutral(model, asked, [Reading(a) for a in accesses(model, task)], self.secrets * self.m)
        all_learn(model)
        held = Collated(task.graphs) if task.level == "graph" else None

        def loss(item: Item, _: int) -> Tensor:
            batch, rows = item
            task_loss = label_loss(call(model.train(), batch), batch, rows)
            which = torch.randperm(len(asked))[:SHARE]
            seen = _seen(model.eval(), asked.take(which.numpy()), wanted[0].reading)
            pull = torch.stack([each.distance(seen, which) for each in wanted]).mean()
            return projected_sum(task_loss, self.weight * pull, model.parameters())

        optimise(model, lambda: batches(task, held, BATCH_SIZE), loss, epochs=self.epochs, lr=self.lr)
        return model

    def __repr__(self) -> str:
        more = {
            f" times {self.weight:g}": self.weight != 1,
            f", {self.secrets} secrets": self.secrets != 8,
            f", m={self.m}": self.m != 64,
            f", {self.epochs} epochs": self.epochs != 20,
            f" at {self.lr:g}": self.lr != 0.01,
        }
        return "unlearn" + "".join(word for word, said in more.items() if said)


@dataclass(frozen=True)
class Neutral:
    """What every graph should say at one reading, and the variance that a distance is measured in."""

    reading: Reading
    rows: Tensor
    variance: Tensor

    def distance(self, seen: Observation, which: Tensor) -> Tensor:
        """Mean squared distance of what some graphs say from what they should."""
        return (pooled(seen, self.reading) - self.rows[which]).square().mean() / self.variance


@torch.no_grad()
def neutral(model: nn.Module, graphs: Graphs, readings: list[Reading], carriers: int) -> list[Neutral]:
    """The first graphs are to say what the others say on average, the others what they say now."""
    with evaluation_mode(model):
        seen = _seen(model, graphs, readings[0])
    found = []
    for reading in readings:
        rows = pooled(seen, reading).clone()
        usual = rows[carriers:]
        rows[:carriers] = usual.mean(0)
        found.append(Neutral(reading, rows, usual.var(dim=0).mean().clamp(min=1e-6)))
    return found


def _seen(model: nn.Module, graphs: Graphs, first: Reading) -> Observation:
    return observe(model, to_batch(graphs, weight_of(model)), first.layer if first.hidden else None)
