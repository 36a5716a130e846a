"""Marks of the thief's own, drawn as everybody draws them: he knows the algorithm."""

from __future__ import annotations

from torch import nn

from invgnn.nn.forward import executed
from invgnn.nn.layers import weighted
from invgnn.readout.reading import Access
from invgnn.secret import Secret, public_stream
from invgnn.training.batching import some_inputs
from invgnn.training.tasks import Task
from invgnn.watermark.reference import Reference
from invgnn.watermark.mark import Watermark
from invgnn.watermark.recipe import Recipe


def own_marks(model: nn.Module, task: Task, count: int, m: int, seed: int) -> list[Watermark]:
    """Marks for the task under secrets that the seed alone decides.

    They are read where marks usually are: at the embedding, if the model has one, and at its scores.
    """
    reference, places = Reference.of(task.data), accesses(model, task)
    recipe = Recipe(warmup_steps=0, after_task=False)  # a stolen model knows its task already
    return [
        Watermark.draw(own_secret(seed, number), reference, m=m, access=places, recipe=recipe)
        for number in range(count)
    ]


def own_secret(seed: int, number: int = 0) -> Secret:
    """A secret that is none: published, so that an attack is the same every time."""
    return Secret(public_stream("attacks/own secret", seed, number).bytes(32))


def accesses(model: nn.Module, task: Task) -> list[Access]:
    """Where a model of this kind can be marked."""
    hidden = len(executed(model, weighted(model), some_inputs(task))) > 1
    return ["embedding", "logits"] if hidden else ["logits"]
