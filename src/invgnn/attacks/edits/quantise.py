"""Post-training quantisation of every weight matrix."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from invgnn.attacks.edits.edit import Edit
from invgnn.errors import EditError, ParameterError
from invgnn.nn.layers import weight_matrices
from invgnn.training.tasks import Task


class Quantise(Edit):
    """Round weights to 2^bits - 1 levels per output channel, symmetrically around zero.

    Args:
        bits: Bits per weight, from 2 to 16.
    """

    def __init__(self, bits: int) -> None:
        if not 2 <= bits <= 16:
            raise ParameterError(f"bits={bits} is not in 2..16", "common values are 8 and 4")
        self.bits = bits

    @torch.no_grad()
    def apply(self, model: nn.Module, task: Task) -> nn.Module:
        """Replace each weight by the nearest level of its channel.

        Raises:
            EditError: If no weight changes.
        """
        changed = 0
        for weight in weight_matrices(model):
            rounded = quantised(weight, self.bits)
            changed += int((rounded != weight).sum())
            weight.copy_(rounded)
        if not changed:
            raise EditError(
                "quantisation changed no weight",
                "leave this edit out: the weights are zero or quantised already",
            )
        return model

    def __repr__(self) -> str:
        """Return the name in tables and test ids."""
        return f"{self.bits}-bit"


def quantised(weight: Tensor, bits: int) -> Tensor:
    """Return the weight rounded to `2^(bits-1) - 1` steps on either side of zero in every row.

    Args:
        weight: The weight.
        bits: Bits per weight.
    """
    steps = 2 ** (bits - 1) - 1
    rows = weight.flatten(1)
    scale = (rows.abs().amax(dim=1, keepdim=True) / steps).clamp(min=torch.finfo(rows.dtype).tiny)
    return torch.round(rows / scale).mul(scale).view_as(weight)
