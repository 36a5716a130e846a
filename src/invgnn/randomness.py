"""Borrowing the global generators and giving them back as they were."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def kept() -> Iterator[None]:
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
    with kept():
        random.seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002 - PyG's generators read it
        torch.manual_seed(seed)
        yield
