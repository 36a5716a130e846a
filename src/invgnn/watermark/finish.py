"""Finish an embedding in a training loop that the library does not own."""

from __future__ import annotations

import math
from typing import Any

from torch import nn

from invgnn.nn.forward import to_batch, unwrap, weight_of
from invgnn.nn.running_statistics import reestimate, tracking_norms
from invgnn.nn.weight_scaling import scale_weights
from invgnn.watermark.levels import Level, levels_of, loss_of, warn_if_weak
from invgnn.watermark.protocol import Refreshable
from invgnn.watermark.task_batches import TaskBatches

_REMEDY = (
    "train longer, with a learning rate that falls to zero over the second half, or call "
    "mark.embed(model, data)"
)


def finish(mark: Refreshable, model: nn.Module, data: Any, batch_size: int) -> dict[str, Level]:
    """Re-estimate running statistics and scale weights; see `Watermark.finish`."""
    core = unwrap(model)
    like = weight_of(core)
    _refresh_statistics(mark, core, TaskBatches(data, mark.level, batch_size, like, mark.forward))
    if mark.recipe.weight_scale is not None:
        scale_weights(core, to_batch(mark.batches.carriers, like), mark.recipe.weight_scale, mark.forward)
    found = levels_of(mark, core)
    warn_if_weak(found, _REMEDY, stacklevel=3)
    return found


def _refresh_statistics(mark: Refreshable, model: nn.Module, inputs: TaskBatches) -> None:
    """Estimate the statistics of batch norms again, unless the mark is read better by the old ones.

    Old ones lag behind weights that moved until the end. In a loop with carriers in the task batches and
    with a learning rate that fell to zero, they do not lag, and the mark and the task were learnt with
    statistics of task inputs and carriers together.
    """
    norms = tracking_norms(model)
    held = [(value, value.clone()) for norm in norms for value in norm.buffers()]
    before = loss_of(mark, model, training=False)
    if not reestimate(model, inputs, mark.forward):
        return
    after = loss_of(mark, model, training=False)
    if math.isfinite(before) and not after <= before:
        for value, old in held:
            value.copy_(old)
