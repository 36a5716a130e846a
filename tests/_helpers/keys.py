"""Every key there is, for tests by enumeration."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np


def balanced_keys(m):
    """All balanced keys of m bits [C(m, m/2), m]."""
    keys = np.zeros((math.comb(m, m // 2), m), dtype=np.int64)
    for key, ones in zip(keys, combinations(range(m), m // 2), strict=True):
        key[list(ones)] = 1
    return keys
