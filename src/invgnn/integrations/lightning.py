"""A Lightning callback that embeds a mark: `Trainer(callbacks=[MarkCallback(mark)])`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torch import nn

from invgnn.errors import ParameterError
from invgnn.integrations.loop import MarkLoop
from invgnn.watermark.mark import Watermark

try:
    from lightning.pytorch import Callback
except ImportError as error:  # pragma: no cover - the tests have it
    raise ParameterError(
        "lightning is not installed", "pip install lightning, or use invgnn.integrations.loop.MarkLoop"
    ) from error


class MarkCallback(Callback):
    """Embed a mark while Lightning trains a model, log how far it has come, and finish it.

    The mark's gradient is added before every optimiser step, after gradients were accumulated and unscaled,
    without the part that conflicts with the task's. Your `training_step` stays as it is.

    Args:
        mark: The mark.
        network: Returns the network inside your `LightningModule`, e.g. `lambda module: module.net`; by
            default the module itself. It is what you will release.
        finish: Whether to call `mark.finish` with the training data at the end.
    """

    def __init__(
        self,
        mark: Watermark,
        network: Callable[[Any], nn.Module] | None = None,
        *,
        finish: bool = True,
    ) -> None:
        super().__init__()
        self.mark, self.network, self._finish = mark, network, finish
        self.loop: MarkLoop | None = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Check that the network can be read, and plan the steps."""
        network = pl_module if self.network is None else self.network(pl_module)
        steps = trainer.estimated_stepping_batches
        planned = int(steps) if 0 < steps < math.inf else None
        self.loop = MarkLoop(self.mark, network, planned)

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        """Add the mark's gradient."""
        if self.loop is not None:
            pl_module.log("mark/loss", self.loop.before_step(), batch_size=1)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Log evidence and losses."""
        if self.loop is not None:
            pl_module.log_dict(self.loop.after_epoch())

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Estimate the statistics of norms again and scale weights."""
        if self.loop is not None and self._finish:
            self.loop.finish(trainer.train_dataloader)
