"""Rounding of a checkpoint to half precision."""

from __future__ import annotations

import torch
from torch import nn

from invgnn.attacks.edits.edit import Edit
from invgnn.errors import ParameterError
from invgnn.training.tasks import Task

PRECISIONS = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Cast(Edit):
    """Round every parameter and buffer to a shorter floating-point format, and compute as before.

    Args:
        precision: "bf16" or "fp16".
    """

    def __init__(self, precision: str = "bf16") -> None:
        if precision not in PRECISIONS:
            raise ParameterError(f"unknown precision {precision!r}", f"choose {' or '.join(PRECISIONS)}")
        self.precision = precision

    def apply(self, model: nn.Module, task: Task) -> nn.Module:
        """Convert to the shorter format and back, so that the model accepts the same inputs."""
        with torch.no_grad():
            for value in (*model.parameters(), *model.buffers()):
                if value.is_floating_point():
                    value.copy_(value.to(PRECISIONS[self.precision]))
        return model

    def __repr__(self) -> str:
        """Return the name in tables and test ids."""
        return self.precision
