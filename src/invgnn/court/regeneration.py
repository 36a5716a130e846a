"""Derive a mark anew from an opened secret and the judge's own data, and check that its key is valid."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from invgnn.errors import DataError, ParameterError
from invgnn.graphs.attributed import KINDS, Attributed
from invgnn.graphs.disjoint_union import Graphs, Ints
from invgnn.graphs.statistics import clustering, degrees
from invgnn.secret import Secret
from invgnn.stats.ks_test import similar
from invgnn.watermark.baseline import Baseline
from invgnn.watermark.mark import Watermark
from invgnn.watermark.reference import Reference
from invgnn.watermark.sampler import Sampler, distinct, hashes_of
from invgnn.watermark.transforms import Transform

ROUNDING = 1e-4
"""How far two runs of one transform may differ by rounding, relative to the largest value of a tensor."""


def reference_for(data: Any, digest: str, tensors: Collection[str] | None = None) -> Reference:
    """Return data as the reference that a mark was drawn from, if they are; otherwise as they are.

    Args:
        data: The data.
        digest: The digest of the reference in the context of the mark.
        tensors: The tensors that carriers were given, where not all of the data; None for all.
    """
    found = Reference.of(data)
    if found.digest == digest or isinstance(data, Reference):
        return found
    try:
        chosen = Reference.of(data, tensors=() if tensors is None else tensors)
        plain = Reference.of(data, tensors=(), keep_directions=False)  # as before tensors were bound
    except DataError:  # the data lack a tensor
        return found
    return next((one for one in (chosen, plain) if one.digest == digest), found)


def regenerate(
    secret: Secret,
    reference: Reference,
    context: Mapping[str, Any],
    baseline: Baseline | None,
    transform: Transform | None = None,
) -> Watermark:
    """Draw the mark that a secret gives in a context.

    Nothing but the secret and the baseline scores comes from the claimant: carriers, ordinary inputs,
    labels, directions and bits are derived here.

    Args:
        secret: The opened secret.
        reference: The judge's own reference data.
        context: The context in the claim.
        baseline: The opened baseline scores, if the mark has a score channel.
        transform: The judge's own transform of the questions; None to leave them as they are drawn.

    Raises:
        ParameterError: If this version draws another context from these data.
        CarrierError: If these data do not yield enough carriers.
    """
    readings = context["readings"]
    options = {
        "m": context["m"],
        "access": [one["access"] for one in readings],
        "layer": next((one["layer"] for one in readings if "layer" in one), "auto"),
        "feature": next((one["feature"] for one in readings if "feature" in one), "projection"),
        "classes": context["classes"],
        "invariant": context["invariant"],
        "key": context["key"],
        "gap": context["gap"],
        "statistic": context["statistic"],
        "sampler": Sampler.recall(context["sampler"]),
        "score_channel": context.get("function"),
        "token": context.get("token"),
        "shared_halves": "shared_halves" in context,
        "transform": transform,
    }
    mark = Watermark.draw(secret, reference, **options)
    if mark.context != context:
        odd = sorted(
            name
            for name in mark.context.keys() | context.keys()
            if mark.context.get(name) != context.get(name)
        )
        raise ParameterError(
            f"the context cannot be regenerated from these data: {', '.join(odd)}",
            "use the data that the claim names, and a version that knows its format",
        )
    return mark if baseline is None else replace(mark, baseline=baseline)


def flaws(
    context: Mapping[str, Any], carriers: Graphs, reference: Reference, bits: Ints | None = None
) -> list[str]:
    """Return what makes a key invalid; nothing for a sound one.

    Checked independently of the drawing: carriers are distinct, equal no reference graph and resemble
    them, and the key is keyed and balanced.

    Args:
        context: The context of the mark.
        carriers: All of its carriers, or those that were revealed.
        reference: The data that it was drawn from.
        bits: All of its bits; None if only a part was revealed, which need not be balanced.
    """
    sampler = Sampler.recall(context["sampler"])
    plain, found = carriers.skeleton, []
    if context["key"] != "keyed":
        found.append("the bits are a public function of the carriers (a plain key)")
    if not distinct(carriers, sampler):
        found.append("some carriers are the same graph")
    if reference.hashes(sampler) & set(hashes_of(carriers, sampler)):
        found.append("some carriers are graphs of the reference data")
    if not similar(clustering(plain), plain.ptr, reference.clustering, sampler.delta).all():
        found.append("the clustering of some carriers is unlike that of the reference data")
    if not _usual_degrees(carriers, reference, sampler):
        found.append("the degrees of some carriers are unlike those of the reference data")
    if bits is not None and 2 * int(bits.sum()) != len(bits):
        found.append("the key is not balanced")
    return found


def _usual_degrees(carriers: Graphs, reference: Reference, sampler: Sampler) -> bool:
    """Return whether carriers have usual degrees; directed ones have to have those of a reference graph.

    Rewiring keeps the edges into and out of every node, but not the number of neighbours if two edges come
    to run between the same nodes.
    """
    if carriers.is_directed:
        return set(_arrows(carriers)) <= set(_arrows(reference.graphs))
    values = degrees(carriers).astype(np.float64)
    return bool(similar(values, carriers.ptr, reference.degrees, sampler.delta).all())


def _arrows(graphs: Graphs) -> list[bytes]:
    """Return for every graph the numbers of edges out of and into its nodes, in ascending order."""
    counts = np.stack([np.bincount(ends, minlength=graphs.num_nodes) for ends in graphs.directed()], 1)
    parts = (counts[start:end] for start, end in pairwise(graphs.ptr.tolist()))
    return [part[np.lexsort(part.T)].tobytes() for part in parts]


def difference(first: Attributed, second: Attributed) -> float:
    """Return the largest difference of two sets of graphs, relative to the largest value of each tensor.

    Args:
        first: Graphs with tensors.
        second: The same graphs, perhaps made on another machine.

    Returns:
        0 if they are the same, infinity if anything but real numbers differs.
    """
    ours, theirs = (
        {
            **{name: getattr(one, name) for name in ("ptr", "arrow_ptr", "edge_index")},
            **{f"{kind}/{name}": value for kind in KINDS for name, value in getattr(one, kind).items()},
        }
        for one in (first, second)
    )
    if ours.keys() != theirs.keys():
        return math.inf
    return max(_difference(ours[name], theirs[name]) for name in ours)


def _difference(first: NDArray[Any], second: NDArray[Any]) -> float:
    """Return the largest difference of two tensors, relative to the largest value of the first."""
    if first.shape != second.shape or first.dtype != second.dtype:
        return math.inf
    if np.array_equal(first, second):
        return 0.0
    if first.dtype.kind != "f":
        return math.inf
    apart = np.abs(first.astype(np.float64) - second.astype(np.float64)).max()
    return float(apart / max(np.abs(first).max(), np.abs(second).max()))
