"""A forward pass in training without dropout, whose batch norms stay in training mode."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from invgnn.nn.forward import call
from invgnn.nn.layers import batch_norms


def scores_without_dropout(model: nn.Module, batch: Any) -> Tensor:
    """Return the scores of a model without dropout, with gradients.

    Batch norms keep their mode. In training they use the statistics of the batch and learn them, as in the
    forward pass over the task: with the running statistics, which lag behind the weights, the model that is
    trained would not be the one that is read.

    Args:
        model: The model; its mode is restored.
        batch: A PyG batch.
    """
    modes = [(part, part.training) for part in model.modules()]
    norms = [(norm, norm.training) for norm in batch_norms(model)]
    model.eval()
    for norm, mode in norms:
        norm.train(mode)
    scores = call(model, batch)
    for part, mode in modes:
        part.training = mode
    return scores
