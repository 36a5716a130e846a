"""Graphs as JSON requests, and JSON responses as replies: the Open Inference Protocol, version 2."""

from __future__ import annotations

import json
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from invgnn.audit.remote.reply import Reply, split_rows
from invgnn.errors import SuspectError
from invgnn.graphs.attributed import Shown

KINDS = {"f": "FP32", "i": "INT64", "b": "BOOL"}
"""The protocol's name of every type of tensor that questions have."""
OUTPUTS = (
    "scores",
    "logits",
    "probabilities",
    "log_probabilities",
    "labels",
    "label",
    "output",
    "output__0",
)
"""Names of output tensors that are read, in this order; otherwise the first tensor is."""


MOST_PARTS = 1 << 20
"""Most lists and objects of a response: each takes many times the memory of its two characters."""


class Wire(Protocol):
    """A form of requests and responses."""

    @property
    def most(self) -> int | None:
        """Most graphs of a request; None for any number."""

    def encode(self, graphs: Shown, number: str) -> dict[str, Any]:
        """Return the request about some graphs; `number` identifies it."""

    def decode(self, value: Any, graphs: Shown, number: str) -> list[Reply]:
        """Return one reply per graph, or raise a `SuspectError`."""

    def record(self) -> dict[str, Any]:
        """Return the form as JSON values, for the record of an audit."""


class OpenInference:
    """Requests and responses of the Open Inference Protocol, version 2, in JSON."""

    most: int | None = None

    def encode(self, graphs: Shown, number: str) -> dict[str, Any]:
        """Return the request about some graphs."""
        more = {name: value for name, (_, value) in graphs.more.items()}
        tensors = {"edge_index": graphs.directed(), "batch": graphs.graph_of_node, **more}
        if graphs.x is not None:
            tensors = {"x": graphs.x, **tensors}
        return {"id": number, "inputs": [_tensor(name, value) for name, value in tensors.items()]}

    def decode(self, value: Any, graphs: Shown, number: str) -> list[Reply]:
        """Return one reply per graph."""
        if not isinstance(value, dict) or not isinstance(value.get("outputs"), list):
            raise SuspectError(
                "the response has no list of outputs", "serve the Open Inference Protocol, v2"
            )
        if value.get("id") not in (None, "", number):
            raise SuspectError("the response belongs to another request", "answer every request in turn")
        outputs = [one for one in value["outputs"] if isinstance(one, dict)]
        named = {one["name"]: one for one in outputs if isinstance(one.get("name"), str)}
        chosen = next((named[name] for name in OUTPUTS if name in named), next(iter(outputs), None))
        if chosen is None:
            raise SuspectError("the response has no output", "return one tensor of scores or labels")
        return split_rows(_shaped(chosen), graphs)

    def record(self) -> dict[str, Any]:
        """Return the form as JSON values."""
        return {"protocol": "open-inference-v2"}


def _tensor(name: str, value: NDArray[Any]) -> dict[str, Any]:
    """Return a tensor as JSON values. Single precision survives JSON to the last bit."""
    kind = KINDS[value.dtype.kind]
    return {"name": name, "datatype": kind, "shape": list(value.shape), "data": value.ravel().tolist()}


def _shaped(tensor: dict[str, Any]) -> Any:
    """Return the data of a tensor in its shape."""
    data, shape = tensor.get("data"), tensor.get("shape")
    whole = isinstance(shape, list) and all(type(size) is int and 0 <= size < 1 << 31 for size in shape)
    if not isinstance(data, list) or not whole or not shape:
        raise SuspectError("an output has no data or no shape", "serve the Open Inference Protocol, v2")
    if any(isinstance(value, list) for value in data):
        return data
    if len(data) != int(np.prod(shape, dtype=object)):
        raise SuspectError(
            f"an output of shape {str(shape)[:60]} has {len(data)} numbers", "return all numbers"
        )
    width = len(data) // shape[0] if shape[0] else 0
    if len(shape) == 1 or not width:
        return data
    return [data[place : place + width] for place in range(0, len(data), width)]


def parsed(body: bytes) -> Any:
    """Return the JSON value of a response.

    Raises:
        SuspectError: If it is no JSON, or has too many parts. The message shows its beginning.
    """
    if body.count(b"[") + body.count(b"{") > MOST_PARTS:
        raise SuspectError(f"the response has more than {MOST_PARTS} parts", "return one row per graph")
    try:
        return json.loads(body)
    except (ValueError, RecursionError):  # a UnicodeDecodeError is a ValueError
        start = body[:60].decode("ascii", "replace")
        shown = "".join(c if c.isprintable() else " " for c in start)
        raise SuspectError(f"the response is no JSON; it starts with {shown!r}", "return JSON") from None
