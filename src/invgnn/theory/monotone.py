"""The paper's monotone decoder as a constraint on the weights of a head: pure functions.

The output of a head with non-negative weights never decreases when a component of the embedding increases.
The head is monotone in the embedding, and in its own weights if embeddings are not negative. Nothing
follows for the weights of the network below it, which are most of the parameters that a thief can change.
"""

from __future__ import annotations

from torch import Tensor, linalg


def project(weight: Tensor) -> Tensor:
    """Return the nearest non-negative weights; apply it after every optimiser step.

    `PerceptionHead(non_negative=True).project` does the same in place, except that it flips the sign of
    weights that are all negative: their projection would be all zero, and the output of the head constant.
    """
    return weight.clamp(min=0)


def penalty(weight: Tensor) -> Tensor:
    """Return the squared distance from the non-negative weights, to be added to the loss.

    A soft alternative to `project`: it favours monotone weights and does not guarantee them.
    """
    return (project(weight) - weight).square().sum()


def group_l1(weight: Tensor) -> Tensor:
    """Return the sum of the Euclidean norms of the columns of [outputs, inputs], to be added to the loss.

    It drives whole columns to zero, so that few inputs determine the bits. It does not change the sign of
    any weight, so a monotone head stays monotone.
    """
    norms: Tensor = linalg.vector_norm(weight, dim=0)
    return norms.sum()


def is_monotone(weight: Tensor) -> bool:
    """Return whether all weights are non-negative (and none is NaN)."""
    return bool((weight >= 0).all())
