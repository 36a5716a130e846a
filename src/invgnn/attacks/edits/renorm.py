"""Re-estimation of batch norm statistics on the editor's data."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from invgnn.attacks.edits.edit import Edit
from invgnn.errors import EditError
from invgnn.training.batching import Collated, batches
from invgnn.training.tasks import Task


class ReestimateNorm(Edit):
    """Estimate the running means and variances of batch norms again on the training data.

    No weight changes. All batches have the same weight: the statistics are plain averages over one pass.

    Args:
        batch_size: Graphs per batch.
        seed: Fixes the order of batches.
    """

    def __init__(self, batch_size: int = 64, seed: int = 0) -> None:
        self.batch_size, self.seed = batch_size, seed

    @torch.no_grad()
    def apply(self, model: nn.Module, task: Task) -> nn.Module:
        """Run one pass with only the norms in training mode.

        Raises:
            EditError: If the model has no batch norm with running statistics.
        """
        norms = [m for m in model.modules() if isinstance(m, _BatchNorm) and m.running_mean is not None]
        if not norms:
            raise EditError(
                "the model has no batch norm with running statistics",
                "leave this edit out: there are no statistics to estimate",
            )
        momenta = [norm.momentum for norm in norms]
        model.eval()
        for norm in norms:
            norm.reset_running_stats()
            norm.train().momentum = None  # in PyTorch None means a plain average
        held = Collated(task.graphs) if task.level == "graph" else None
        for batch, _ in batches(task, held, self.batch_size):
            task.scores(model, batch)
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
        return model

    def __repr__(self) -> str:
        """Return the name in tables and test ids."""
        return "re-estimate norms"
