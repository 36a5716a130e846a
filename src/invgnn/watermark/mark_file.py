"""The parts of a mark that are written to a file and read back; the bits are never stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from invgnn.checks import check_whole
from invgnn.concealed import conceal
from invgnn.errors import ParameterError
from invgnn.graphs.disjoint_union import Graphs
from invgnn.graphs.invariants import Scale
from invgnn.secret import SIZE, Secret
from invgnn.storage.container import Container
from invgnn.watermark.baseline import Baseline
from invgnn.watermark.recipe import Recipe


def pack(fields: Mapping[str, Any], digest: str) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the body and the tensors of a mark's file.

    Args:
        fields: The fields of the mark, as `unpack` returns them.
        digest: The digest of the mark.
    """
    scale, baseline = fields["scale"], fields["baseline"]
    body = {
        "context": fields["context"],
        "recipe": fields["recipe"].record(),
        "rejected": fields["rejected"],
        "scale": [scale.low, scale.high],
        "digest": digest,
    }
    secret = {"secret": np.frombuffer(bytes(fields["secret"]), dtype=np.uint8)}
    tensors: dict[str, NDArray[Any]] = conceal(secret)
    del secret  # a traceback may show what is still here
    tensors |= _pack("carriers", fields["carriers"]) | _pack("ordinary", fields["ordinary"])
    if baseline is not None:
        body["inputs"], tensors["before"] = baseline.inputs, baseline.scores
    if fields["labels"] is not None:
        tensors["labels"] = fields["labels"]
    return body, tensors


def unpack(held: Container) -> dict[str, Any]:
    """Return the fields of the mark in a file.

    Raises:
        ParameterError: If a part is missing, unknown or malformed.
    """
    body, tensors = held.body, held.tensors
    _check_names(body, tensors)
    if (tensors["secret"].dtype, tensors["secret"].shape) != (np.uint8, (SIZE,)):
        raise ParameterError(f"its secret is not {SIZE} bytes", "use another copy of it")
    return {
        "secret": Secret(tensors["secret"].tobytes()),
        "context": body["context"],
        "carriers": _unpack("carriers", tensors),
        "ordinary": _unpack("ordinary", tensors),
        "scale": Scale(*body["scale"]),
        "recipe": Recipe.recall(body["recipe"]),
        "rejected": _counts(body["rejected"]),
        "baseline": Baseline(tensors["before"], body["inputs"]) if "inputs" in body else None,
        "labels": tensors.get("labels"),
    }


def _pack(name: str, graphs: Graphs) -> dict[str, NDArray[Any]]:
    packed: dict[str, NDArray[Any]] = {f"{name}.ptr": graphs.ptr, f"{name}.edges": graphs.edges}
    return packed if graphs.x is None else packed | {f"{name}.x": graphs.x}


def _unpack(name: str, tensors: Mapping[str, Any]) -> Graphs:
    return Graphs(tensors[f"{name}.ptr"], tensors[f"{name}.edges"], tensors.get(f"{name}.x"))


_BODY = {"context", "recipe", "rejected", "scale", "digest"}
_TENSORS = {"secret", *(f"{name}.{part}" for name in ("carriers", "ordinary") for part in ("ptr", "edges"))}


def _check_names(body: Mapping[str, Any], tensors: Mapping[str, Any]) -> None:
    """Refuse a file that lacks a part or holds one that no mark has."""
    for held, needed, allowed in (
        (set(body), _BODY, {"inputs"}),
        (set(tensors), _TENSORS, {"carriers.x", "ordinary.x", "before", "labels"}),
    ):
        odd = sorted((needed - held) | (held - needed - allowed))
        if odd or ("inputs" in body) != ("before" in tensors):
            raise ParameterError(
                f"parts are missing or unknown: {', '.join(odd)}", "use another copy of it"
            )


def _counts(rejected: Any) -> dict[str, int]:
    """Return the counts of rejected candidates; they are informative only, so only their form is
    checked.
    """
    if not isinstance(rejected, dict) or len(rejected) > 100:
        raise ParameterError("the counts of refused candidates are malformed", "draw the mark anew")
    for count in rejected.values():
        check_whole("a count of refused candidates", count, 0, 2**62)
    return rejected
