"""The parts of a mark that are written to a file and read back; the bits are never stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from invgnn.checks import check_whole
from invgnn.concealed import conceal
from invgnn.errors import ParameterError
from invgnn.graphs.attributed import KINDS, Attributed
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
    if fields["shown"] is not None:
        tensors |= _pack_shown(fields["shown"])
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
        "shown": _unpack_shown(tensors),
    }


def _pack(name: str, graphs: Graphs) -> dict[str, NDArray[Any]]:
    packed: dict[str, NDArray[Any]] = {f"{name}.ptr": graphs.ptr, _edges(name, graphs): graphs.edges}
    return packed if graphs.x is None else packed | {f"{name}.x": graphs.x}


def _edges(name: str, graphs: Graphs) -> str:
    """Return the name under which edges are stored, which says whether they have a direction."""
    return f"{name}.arrows" if graphs.is_directed else f"{name}.edges"


def _unpack(name: str, tensors: Mapping[str, Any]) -> Graphs:
    directed = f"{name}.arrows" in tensors
    edges = tensors[f"{name}.{'arrows' if directed else 'edges'}"]
    return Graphs(tensors[f"{name}.ptr"], edges, tensors.get(f"{name}.x"), directed)


def _pack_shown(shown: Attributed) -> dict[str, NDArray[Any]]:
    """Return the tensors of a file that hold graphs as a suspect is shown them."""
    plain = {f"shown.{name}": getattr(shown, name) for name in _SHOWN}
    return plain | {
        f"shown.{kind}.{name}": value for kind in KINDS for name, value in getattr(shown, kind).items()
    }


def _unpack_shown(tensors: Mapping[str, Any]) -> Attributed | None:
    """Return graphs as a suspect is shown them, or None if the file holds no more than plain graphs."""
    held = {name.removeprefix("shown."): name for name in tensors if name.startswith("shown.")}
    if not held:
        return None
    tables: dict[str, dict[str, NDArray[Any]]] = {kind: {} for kind in KINDS}
    for part, name in held.items():
        kind, _, tensor = part.partition(".")
        if part not in _SHOWN:
            tables[kind][tensor] = tensors[name]
    return Attributed.recall({name: tensors[f"shown.{name}"] for name in _SHOWN} | tables)


_SHOWN = ("ptr", "arrow_ptr", "edge_index")
_BODY = {"context", "recipe", "rejected", "scale", "digest"}
_TENSORS = {"secret", "carriers.ptr", "ordinary.ptr"}


def _check_names(body: Mapping[str, Any], tensors: Mapping[str, Any]) -> None:
    """Refuse a file that lacks a part or holds one that no mark has."""
    directed = "carriers.arrows" in tensors
    edges = {f"{name}.{'arrows' if directed else 'edges'}" for name in ("carriers", "ordinary")}
    shown = {name for name in tensors if name.startswith("shown.")}
    for held, needed, allowed in (
        (set(body), _BODY, {"inputs"}),
        (set(tensors), _TENSORS | edges, {"carriers.x", "ordinary.x", "before", "labels"} | shown),
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
