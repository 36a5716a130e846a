"""Ensembles of invariants: several invariants of a carrier in one target, which the paper proposes."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from invgnn.graphs.disjoint_union import Floats, Graphs
from invgnn.graphs.invariants import INVARIANTS, Invariant, Scale, find_invariant
from invgnn.training.tasks import Task
from invgnn.watermark.reference import Reference


def known_invariant(names: str, task: Task) -> str:
    """Return the name of an invariant under which marks find it.

    Several names joined by `+` stand for their ensemble: the mean of the normalised invariants. It depends
    on the task, by whose graphs each invariant is normalised, and so does its name.

    Args:
        names: One name, or several such as `lambda2+triangle_count`.
        task: The task.

    Raises:
        ParameterError: If there is no such invariant.
    """
    parts = names.split("+")
    if len(parts) == 1:
        return names
    reference = Reference.of(task.data)
    scales = [reference.scale(name) for name in parts]
    about = repr([(name, scale.low, scale.high) for name, scale in zip(parts, scales, strict=True)])
    name = f"{names}@{hashlib.sha256(about.encode()).hexdigest()[:8]}"
    INVARIANTS.setdefault(name, mean_of([find_invariant(one) for one in parts], scales))
    return name


def mean_of(invariants: Sequence[Invariant], scales: Sequence[Scale]) -> Invariant:
    """Return the mean of some invariants, each normalised.

    Args:
        invariants: The invariants.
        scales: The normalisation of each.
    """

    def ensemble(graphs: Graphs) -> Floats:
        values = [scale(value(graphs)) for value, scale in zip(invariants, scales, strict=True)]
        return np.asarray(np.mean(values, axis=0), dtype=np.float64)

    return ensemble
