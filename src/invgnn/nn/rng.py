"""Context managers that seed, restore and suppress the randomness of Python, numpy and torch."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

_DROPOUTS = {
    functional.dropout,
    functional.dropout1d,
    functional.dropout2d,
    functional.dropout3d,
    functional.alpha_dropout,
    functional.feature_alpha_dropout,
    torch.dropout,
    torch.alpha_dropout,
    torch.feature_dropout,
    torch.feature_alpha_dropout,
}


@contextmanager
def preserved_rng() -> Iterator[None]:
    """Restore Python's, numpy's and torch's global random states after a block.

    Layers and PyG's generators draw from global state and accept no generator. Inside this block they may
    draw without affecting the program outside.
    """
    python, legacy = random.getstate(), np.random.get_state()  # noqa: NPY002 - the state to protect
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(legacy)  # noqa: NPY002 - the state to protect


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the global random states for a block and restore them afterwards."""
    with preserved_rng():
        random.seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002 - PyG's generators read it
        torch.manual_seed(seed)
        yield


class without_dropout(TorchFunctionMode):
    """A context in which dropout has no effect, whether called as a layer or as a function.

    Dropout inside attention, recurrent and scripted layers is not affected.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Replace calls of dropout functions by their input."""
        if func in _DROPOUTS:
            return args[0] if args else kwargs["input"]
        return func(*args, **(kwargs or {}))
