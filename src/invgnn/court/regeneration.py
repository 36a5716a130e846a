"""Derive a mark anew from an opened secret and the judge's own data, and check that its key is valid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from invgnn.errors import ParameterError
from invgnn.graphs.statistics import clustering, degrees
from invgnn.secret import Secret
from invgnn.stats.ks_test import similar
from invgnn.watermark.baseline import Baseline
from invgnn.watermark.mark import Watermark
from invgnn.watermark.reference import Reference
from invgnn.watermark.sampler import Sampler, distinct, hashes_of


def regenerate(
    secret: Secret, reference: Reference, context: Mapping[str, Any], baseline: Baseline | None
) -> Watermark:
    """Draw the mark that a secret gives in a context.

    Nothing but the secret and the baseline scores comes from the claimant: carriers, ordinary inputs,
    labels, directions and bits are derived here.

    Args:
        secret: The opened secret.
        reference: The judge's own reference data.
        context: The context in the claim.
        baseline: The opened baseline scores, if the mark has a score channel.

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


def flaws(mark: Watermark, reference: Reference) -> list[str]:
    """Return what makes the key of a mark invalid; nothing for a sound one.

    Checked independently of the drawing: carriers are distinct, equal no reference graph and resemble
    them, and the key is keyed and balanced.

    Args:
        mark: The mark.
        reference: The data that it was drawn from.
    """
    sampler, carriers = Sampler.recall(mark.context["sampler"]), mark.carriers
    found = []
    if mark.context["key"] != "keyed":
        found.append("the bits are a public function of the carriers (a plain key)")
    if not distinct(carriers, sampler):
        found.append("some carriers are the same graph")
    if reference.hashes(sampler) & set(hashes_of(carriers, sampler)):
        found.append("some carriers are graphs of the reference data")
    for name, values, pool in (
        ("clustering", clustering(carriers), reference.clustering),
        ("degrees", degrees(carriers).astype(np.float64), reference.degrees),
    ):
        if not similar(values, carriers.ptr, pool, sampler.delta).all():
            found.append(f"the {name} of some carriers are unlike those of the reference data")
    if 2 * int(mark.bits.sum()) != mark.m:
        found.append("the key is not balanced")
    return found
