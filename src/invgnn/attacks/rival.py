"""Marks of the thief's own, drawn as everybody draws them: he knows the algorithm."""

from __future__ import annotations

from torch import nn

from invgnn.carriers import Reference
from invgnn.edits.layers import some_inputs
from invgnn.forward import executed, weighted
from invgnn.reading import Access
from invgnn.recipe import Recipe
from invgnn.secret import Secret, public_stream
from invgnn.tasks import Task
from invgnn.watermark import Watermark


def own_marks(model: nn.Module, task: Task, count: int, m: int, seed: int) -> list[Watermark]:
    """Marks for the task under secrets that the seed alone decides.

    They are read where marks usually are: at the embedding, if the model has one, and at its scores.
    """
    reference, places = Reference.of(task.data), accesses(model, task)
    recipe = Recipe(wait=0, after=False)  # a stolen model knows its task already
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
