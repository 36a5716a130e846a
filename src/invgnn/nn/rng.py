"""Borrowing the global generators and giving them back as they were."""

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
    """Leave Python's, numpy's and torch's global random states as they were found.

    Layers and PyG's generators draw from global state and take no generator of their own; inside
    this block they may, and nobody outside can tell.
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
    """Fix the global random states for a block, then restore them."""
    with preserved_rng():
        random.seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002 - PyG's generators read it
        torch.manual_seed(seed)
        yield


class without_dropout(TorchFunctionMode):
    """A block in which dropout drops nothing, as layer or as function, wherever in a model it is called.

    What attention, recurrent and scripted layers drop inside of themselves they still do.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """What torch asks before every call."""
        if func in _DROPOUTS:
            return args[0] if args else kwargs["input"]
        return func(*args, **(kwargs or {}))
