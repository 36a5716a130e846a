"""The paper's monotone decoder as a constraint on the weights of a head: three pure functions.

A head with weights at or above zero never answers less when a number of the embedding grows. That is
monotone in the embedding, and in the head's own weights if embeddings are not negative; nothing follows
for the weights of the network below, where most of what a thief can change lies.
"""

from __future__ import annotations

from torch import Tensor, linalg


def project(weight: Tensor) -> Tensor:
    """You get the nearest weights without a negative one; apply it after every optimiser step.

    `PerceptionHead(non_negative=True).project` does the same in place, except that it turns weights
    that are all negative around: projected they would be all zero, and the head blind.
    """
    return weight.clamp(min=0)


def penalty(weight: Tensor) -> Tensor:
    """You get the squared distance from the allowed weights, to be added to the loss; 0 inside.

    The soft alternative to `project`: it pulls towards monotone weights and guarantees none.
    """
    return (project(weight) - weight).square().sum()


def group_l1(weight: Tensor) -> Tensor:
    """You get the sum of the Euclidean norms of the columns [outputs, inputs], to be added to the loss.

    It empties whole columns, so that few inputs feed the bits. It moves no weight across zero by
    itself and so leaves a monotone head monotone.
    """
    norms: Tensor = linalg.vector_norm(weight, dim=0)
    return norms.sum()


def is_monotone(weight: Tensor) -> bool:
    """You get whether no weight is negative (or NaN)."""
    return bool((weight >= 0).all())
