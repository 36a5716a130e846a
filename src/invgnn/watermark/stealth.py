"""Stealth: settings of a mark whose carriers are hard to tell from ordinary inputs."""

from __future__ import annotations

from invgnn.errors import ParameterError
from invgnn.watermark.recipe import Recipe
from invgnn.watermark.sampler import Sampler

SAMPLER = Sampler(donors=None)
"""Carriers that keep the features of their seed graphs."""
RECIPE = Recipe(after_task=140)
"""How such carriers are embedded: on node tasks in twice as many steps as others."""
CARRIERS = {"graph": 256, "node": 128}
"""How many of them, by the level of the task. A server that recognises some of 256 leaves the evidence of
the others; on node tasks, which are marked in few steps, so many are hard to embed."""


def stealth_settings(sampler: Sampler | None, recipe: Recipe | None) -> tuple[Sampler, Recipe]:
    """Return the settings of an inconspicuous mark.

    Args:
        sampler: The parameters of the sampler, if any were given.
        recipe: The settings of the embedding, if any were given; they are kept.

    Raises:
        ParameterError: If a sampler was given, which would decide how conspicuous the carriers are.
    """
    if sampler is not None:
        raise ParameterError(
            "stealth=True chooses the sampler, and another one was given",
            "leave out stealth, or sampler; Sampler(donors=None) keeps the features of the seed graphs",
        )
    return SAMPLER, recipe or RECIPE
