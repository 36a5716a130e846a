"""Other JSON shapes: a small mapping from graphs to requests, and from responses to replies."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from invgnn.audit.remote.reply import Reply, split_rows
from invgnn.checks import check_whole
from invgnn.errors import ParameterError, SuspectError
from invgnn.graphs.attributed import Shown
from invgnn.storage.atomic import AnyPath, read_bytes

PATH = re.compile(r"[^.\s]{1,64}(\.[^.\s]{1,64}){0,15}")
"""A place in a response: keys and positions, separated by dots."""
_ADVICE = "see the how-to page on remote audits for the form of a mapping file"


@dataclass(frozen=True)
class JsonMapping:
    """How graphs become a JSON request, and where the answers are in the response.

    In the templates, a text `$name` stands for a value. In `graph`: `$x`, `$edges` (pairs), `$edge_index`
    (two rows), `$adjacency` (the neighbours of every node), `$num_nodes`, and further tensors by their
    names. In `request`: `$graphs`, the list of all graphs; `$graph`, the only one; and `$id`.

    Attributes:
        graph: Template of one graph.
        request: Template of a request.
        reply: Where the response holds the answers, such as `result.scores`; empty for the response itself.
        each: Where each entry of that list holds the scores or the label of its graph; empty for the entry
            itself. An object of names and numbers counts as scores in the order of the names.
        graphs_per_request: Most graphs of a request. With 1, `reply` leads to the answer of the only graph.

    Raises:
        ParameterError: If a field is invalid.
    """

    graph: Any
    request: Any
    reply: str = ""
    each: str = ""
    graphs_per_request: int = 1

    def __post_init__(self) -> None:
        check_whole("graphs_per_request", self.graphs_per_request, 1, 65_536)
        for path in (self.reply, self.each):
            if type(path) is not str or (path and not PATH.fullmatch(path)):
                raise ParameterError(f"{str(path)[:60]!r} is no place in a response", _ADVICE)
        text = json.dumps(self.request)
        wanted = '"$graphs"' if self.graphs_per_request > 1 else '"$graph"'
        if '"$graph"' not in text and '"$graphs"' not in text:
            raise ParameterError(f"the request does not contain {wanted}", _ADVICE)
        if self.graphs_per_request > 1 and '"$graphs"' not in text:
            raise ParameterError("several graphs per request need $graphs in the request", _ADVICE)

    @classmethod
    def load(cls, path: AnyPath) -> JsonMapping:
        """Read a mapping from a JSON file.

        Raises:
            FileError: If the file cannot be read.
            ParameterError: If it is no mapping.
        """
        try:
            return cls.of(json.loads(bytes(read_bytes(path))))
        except (ValueError, RecursionError) as error:
            if isinstance(error, ParameterError):
                raise
            raise ParameterError(f"{path} is no JSON: {error}", _ADVICE) from None

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> JsonMapping:
        """Return the mapping of a dictionary of its fields."""
        names = set(cls.__dataclass_fields__)
        if not isinstance(fields, Mapping) or not {"graph", "request"} <= set(fields) <= names:
            raise ParameterError(f"a mapping has the fields {', '.join(sorted(names))}", _ADVICE)
        return cls(**fields)

    @property
    def most(self) -> int | None:
        """Most graphs of a request."""
        return self.graphs_per_request

    def encode(self, graphs: Shown, number: str) -> dict[str, Any]:
        """Return the request about some graphs."""
        each = [_filled(self.graph, _values(graphs.take([place]))) for place in range(len(graphs))]
        filled: dict[str, Any] = _filled(self.request, {"graphs": each, "graph": each[0], "id": number})
        return filled

    def decode(self, value: Any, graphs: Shown, number: str) -> list[Reply]:
        """Return one reply per graph."""
        found = _at(value, self.reply)
        if self.graphs_per_request == 1:
            return split_rows(_entry(_at(found, self.each), alone=True), graphs)
        if not isinstance(found, list) or len(found) != len(graphs):
            raise SuspectError(f"the response holds no list of {len(graphs)} answers", _ADVICE)
        entries = [_entry(_at(one, self.each), alone=True) for one in found]
        return [split_rows(one, graphs.take([place]))[0] for place, one in enumerate(entries)]

    def record(self) -> dict[str, Any]:
        """Return the form as JSON values."""
        return {"protocol": "mapping", **asdict(self)}


def _values(graph: Shown) -> dict[str, Any]:
    """Return what a template of a graph may contain."""
    arrows = graph.directed()
    near: list[list[int]] = [[] for _ in range(graph.num_nodes)]
    for source, target in arrows.T.tolist():
        near[source].append(target)
    more = {name: value.tolist() for name, (_, value) in graph.more.items()}
    features = {} if graph.x is None else {"x": graph.x.tolist()}
    edges = {"edges": arrows.T.tolist(), "edge_index": arrows.tolist(), "adjacency": near}
    return {**more, **features, **edges, "num_nodes": graph.num_nodes}


def _filled(template: Any, values: Mapping[str, Any]) -> Any:
    """Return a template with its values."""
    if isinstance(template, dict):
        return {key: _filled(value, values) for key, value in template.items()}
    if isinstance(template, list):
        return [_filled(value, values) for value in template]
    if not isinstance(template, str) or not template.startswith("$"):
        return template
    if template[1:] not in values:
        raise ParameterError(f"{template[:60]!r} stands for nothing here", f"use {', '.join(values)}")
    return values[template[1:]]


def _at(value: Any, path: str) -> Any:
    """Return the part of a response at a place."""
    for key in path.split(".") if path else ():
        if isinstance(value, list) and key.isdigit() and int(key) < len(value):
            value = value[int(key)]
        elif isinstance(value, dict) and key in value:
            value = value[key]
        else:
            raise SuspectError(f"the response has nothing at {path!r}", _ADVICE)
    return value


def _real(value: int) -> float:
    """Return a whole number as a score; infinite, so that it counts as refused, if it is too large."""
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _entry(value: Any, alone: bool) -> Any:
    """Return the answer to one graph as a list: scores by name in the order of names, a label alone."""
    if isinstance(value, dict):
        value = [value[name] for name in sorted(value)]
    if isinstance(value, bool | int | str) and alone:
        return [value]
    if isinstance(value, list) and value and all(type(one) is int for one in value):
        return [[_real(one) for one in value]] if len(value) > 1 else value
    return value
