"""Unlearning: the model is trained to answer graphs like carriers in the same way as ordinary graphs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from invgnn.attacks.attack import Attack, Knowledge
from invgnn.attacks.own_marks import accesses, own_marks
from invgnn.errors import ParameterError
from invgnn.graphs.attributed import Shown, joined
from invgnn.nn.forward import Forward, evaluation_mode, observe, to_batch, weight_of
from invgnn.nn.gradient_projection import projected_sum
from invgnn.nn.layers import all_learn
from invgnn.nn.observation import Observation
from invgnn.nn.optimise import LearningRate, optimise
from invgnn.nn.weight_scaling import unscale_weights
from invgnn.readout.reading import Reading, pooled
from invgnn.training.batching import Collated, batches, some_inputs
from invgnn.training.fitting import BATCH_SIZE, Item, label_loss
from invgnn.training.tasks import Task

SHARE = 128
"""The thief's graphs per step, carriers and ordinary graphs together."""


class Unlearn(Attack):
    """Train the answers on graphs like carriers towards the model's usual answers, while the task is kept.

    The thief draws carriers under many secrets. The direction of the owner's mark is unknown, so every
    coordinate of the model's answers on these carriers is trained towards its mean over ordinary inputs,
    whose answers should not change. As in embedding, the component of this gradient that conflicts with the
    task is projected out.

    Args:
        secrets: Number of carrier sets.
        m: Carriers per set.
        weight: Weight of the unlearning loss relative to the task loss.
        epochs: Number of epochs.
        lr: Learning rate of Adam.
        seed: Seed of the secrets and of the training.
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
            raise ParameterError(
                f"secrets={secrets}, m={m}, epochs={epochs}, weight={weight}, lr={lr}",
                "use positive, finite numbers",
            )
        self.secrets, self.m, self.weight = secrets, m, weight
        self.epochs, self.lr, self.seed = epochs, lr, seed

    def apply(self, model: nn.Module, task: Task) -> nn.Module:
        """Take one step per batch on the task and on a sample of carriers and ordinary graphs together."""
        # Weight scaling is part of the public algorithm.
        unscale_weights(model, some_inputs(task), task.forward)
        marks = own_marks(model, task, self.secrets, self.m, self.seed)
        asked = joined([part for side in zip(*(m.presented for m in marks), strict=True) for part in side])
        readings = [Reading(a) for a in accesses(model, task)]
        wanted = neutral(model, asked, readings, self.secrets * self.m, task.forward)
        all_learn(model)
        held = Collated(task.graphs) if task.level == "graph" else None

        def loss(item: Item, _: int) -> Tensor:
            batch, rows = item
            task_loss = label_loss(task.scores(model.train(), batch), batch, rows)
            which = torch.randperm(len(asked))[:SHARE]
            seen = _seen(model.eval(), asked.take(which.numpy()), wanted[0].reading, task.forward)
            pull = torch.stack([each.distance(seen, which) for each in wanted]).mean()
            return projected_sum(task_loss, self.weight * pull, model.parameters())

        rate = LearningRate(self.lr, self.epochs)
        optimise(model, lambda: batches(task, held, BATCH_SIZE), loss, rate)
        return model

    def __repr__(self) -> str:
        """Return the name in tables and test ids."""
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
    """The wanted answer of every graph at one reading.

    Attributes:
        reading: The reading.
        rows: The wanted answers, one row per graph.
        variance: The variance that distances are divided by.
    """

    reading: Reading
    rows: Tensor
    variance: Tensor

    def distance(self, seen: Observation, which: Tensor) -> Tensor:
        """Return the mean squared distance of the answers on some graphs from the wanted answers.

        Args:
            seen: The model's outputs on these graphs.
            which: Indices of the graphs.
        """
        return (pooled(seen, self.reading) - self.rows[which]).square().mean() / self.variance


@torch.no_grad()
def neutral(
    model: nn.Module,
    graphs: Shown,
    readings: list[Reading],
    carriers: int,
    forward: Forward | None = None,
) -> list[Neutral]:
    """Return the wanted answers: the mean over ordinary graphs for carriers, present answers for others.

    Args:
        model: The model.
        graphs: The graphs, carriers first.
        readings: The readings.
        carriers: Number of carriers.
        forward: Calls the model on a batch; by default the names of its arguments decide.
    """
    with evaluation_mode(model):
        seen = _seen(model, graphs, readings[0], forward)
    found = []
    for reading in readings:
        rows = pooled(seen, reading).clone()
        usual = rows[carriers:]
        rows[:carriers] = usual.mean(0)
        found.append(Neutral(reading, rows, usual.var(dim=0).mean().clamp(min=1e-6)))
    return found


def _seen(model: nn.Module, graphs: Shown, first: Reading, forward: Forward | None) -> Observation:
    """Run the model on graphs and record the first reading's layer."""
    layer = first.layer if first.hidden else None
    return observe(model, to_batch(graphs, weight_of(model)), layer, forward)
