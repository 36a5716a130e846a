"""Finish an embedding in a training loop that the library does not own."""

from __future__ import annotations

from typing import Any

from torch import nn

from invgnn.nn.forward import to_batch, unwrap, weight_of
from invgnn.nn.running_statistics import reestimate
from invgnn.nn.weight_scaling import scale_weights
from invgnn.watermark.levels import Level, levels_of, warn_if_weak
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
    reestimate(core, TaskBatches(data, mark.level, batch_size, like, mark.forward), mark.forward)
    if mark.recipe.weight_scale is not None:
        scale_weights(core, to_batch(mark.batches.carriers, like), mark.recipe.weight_scale, mark.forward)
    found = levels_of(mark, core)
    warn_if_weak(found, _REMEDY, stacklevel=3)
    return found
