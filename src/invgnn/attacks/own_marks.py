"""Marks that a thief draws with the public algorithm."""

from __future__ import annotations

from torch import nn

from invgnn.nn.forward import executed
from invgnn.nn.layers import weighted
from invgnn.readout.reading import Access
from invgnn.secret import Secret, public_stream
from invgnn.training.batching import some_inputs
from invgnn.training.tasks import Task
from invgnn.watermark.mark import Watermark
from invgnn.watermark.recipe import Recipe
from invgnn.watermark.reference import Reference


def own_marks(model: nn.Module, task: Task, count: int, m: int, seed: int) -> list[Watermark]:
    """Draw marks for the task under secrets that depend on the seed alone.

    They are read where marks usually are: at the embedding, if the model has one, and at its scores.

    Args:
        model: The stolen model.
        task: Its task.
        count: Number of marks.
        m: Carriers per mark.
        seed: Seed of the secrets.
    """
    reference, places = Reference.of(task.data), accesses(model, task)
    recipe = Recipe(warmup_steps=0, after_task=0)  # a stolen model is trained on its task already
    return [
        Watermark.draw(
            own_secret(seed, number), reference, m=m, access=places, recipe=recipe, forward=task.forward
        )
        for number in range(count)
    ]


def own_secret(seed: int, number: int = 0) -> Secret:
    """Return a public secret, so that an attack is reproducible.

    Args:
        seed: Seed of the attack.
        number: Number of the secret.
    """
    return Secret(public_stream("attacks/own secret", seed, number).bytes(32))


def accesses(model: nn.Module, task: Task) -> list[Access]:
    """Return the access levels at which a model of this kind can be marked.

    Args:
        model: The model.
        task: Its task.
    """
    hidden = len(executed(model, weighted(model), some_inputs(task), task.forward)) > 1
    return ["embedding", "logits"] if hidden else ["logits"]
