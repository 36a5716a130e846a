"""What of a mark is written to a file, and how it comes back; the bits never are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from invgnn.channel import Memory
from invgnn.files import Container
from invgnn.graphs import Graphs
from invgnn.invariants import Scale
from invgnn.recipe import Recipe
from invgnn.secret import Secret

if TYPE_CHECKING:
    from invgnn.watermark import Watermark


def pack(mark: Watermark) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The body and the tensors of a mark's file."""
    body = {
        "context": mark.context,
        "recipe": mark.recipe.record(),
        "rejected": mark.rejected,
        "scale": [mark.scale.low, mark.scale.high],
        "digest": mark.digest,
    }
    tensors: dict[str, NDArray[Any]] = {"secret": np.frombuffer(bytes(mark.secret), dtype=np.uint8)}
    tensors |= _pack("carriers", mark.carriers) | _pack("ordinary", mark.ordinary)
    if mark.memory is not None:
        body["inputs"], tensors["before"] = mark.memory.inputs, mark.memory.scores
    return body, tensors


def unpack(held: Container) -> dict[str, Any]:
    """The fields of the mark in a file."""
    body, tensors = held.body, held.tensors
    return {
        "secret": Secret(tensors["secret"].tobytes()),
        "context": body["context"],
        "carriers": _unpack("carriers", tensors),
        "ordinary": _unpack("ordinary", tensors),
        "scale": Scale(*body["scale"]),
        "recipe": Recipe.recall(body["recipe"]),
        "rejected": body["rejected"],
        "memory": Memory(tensors["before"], body["inputs"]) if "inputs" in body else None,
    }


def _pack(name: str, graphs: Graphs) -> dict[str, NDArray[Any]]:
    packed: dict[str, NDArray[Any]] = {f"{name}.ptr": graphs.ptr, f"{name}.edges": graphs.edges}
    return packed if graphs.x is None else packed | {f"{name}.x": graphs.x}


def _unpack(name: str, tensors: Mapping[str, Any]) -> Graphs:
    return Graphs(tensors[f"{name}.ptr"], tensors[f"{name}.edges"], tensors.get(f"{name}.x"))
