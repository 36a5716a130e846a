"""The reply of a server to one question: rows of scores, labels, or a refusal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from invgnn.errors import SuspectError
from invgnn.graphs.attributed import Attributed, Shown

MOST_COLUMNS = 8192
"""Largest number of columns of scores."""
LONGEST_LABEL = 200
"""Largest number of characters of a label."""


@dataclass(frozen=True, eq=False)
class Reply:
    """What a server returned for one graph.

    Attributes:
        rows: Scores [rows, columns] as floats, or labels [rows] as whole numbers or text. None if refused.
        refusal: Why there is no answer; empty if there is one.
    """

    rows: NDArray[Any] | None
    refusal: str = ""

    def record(self) -> dict[str, Any]:
        """Return the reply as JSON values; a score that is not finite is null."""
        if self.rows is None:
            return {"refused": self.refusal[:LONGEST_LABEL]}
        if self.rows.dtype.kind == "f":
            return {"scores": [[v if np.isfinite(v) else None for v in row] for row in self.rows.tolist()]}
        return {"labels": self.rows.tolist()}

    @classmethod
    def recall(cls, record: Any) -> Reply:
        """Return the reply of a record.

        Raises:
            SuspectError: If it is no such record.
        """
        if isinstance(record, dict) and len(record) == 1:
            ((kind, value),) = record.items()
            if kind == "refused" and isinstance(value, str):
                return cls(None, value[:LONGEST_LABEL])
            if kind in ("scores", "labels") and isinstance(value, list) and value:
                found = as_rows(value)
                if (found.dtype.kind == "f") == (kind == "scores") == (found.ndim == 2):
                    return cls(found)
        raise SuspectError("a reply in the record is malformed", "use another copy of the file")

    def same(self, other: Reply, tolerance: float) -> bool:
        """Return whether two replies to one question are equal, up to a relative error of scores."""
        if self.rows is None or other.rows is None or self.rows.shape != other.rows.shape:
            return self.rows is None and other.rows is None
        if self.rows.dtype.kind != "f" or other.rows.dtype.kind != "f":
            return bool(np.array_equal(self.rows, other.rows))
        return bool(np.allclose(self.rows, other.rows, rtol=tolerance, atol=tolerance, equal_nan=True))


def as_rows(value: Any) -> NDArray[Any]:
    """Return JSON values as scores (floats, two axes) or labels (whole numbers or text, one axis).

    Raises:
        SuspectError: If the values are neither.
    """
    _check_texts(value)
    try:
        found = np.array(value)
        if found.dtype.kind == "O":  # null stands for a score that is not finite
            found = np.array(value, dtype=np.float64)
        found = found[:, 0, :] if found.ndim == 3 and found.shape[1] == 1 else found
    except (TypeError, ValueError, OverflowError):
        found = np.empty(0)
    if found.ndim == 1 and found.size and found.dtype.kind in "biuU":
        return found if found.dtype.kind == "U" else found.astype(np.int64)
    if found.ndim not in (1, 2) or not found.size or found.dtype.kind not in "biuf":
        raise SuspectError("the reply holds no array of scores or labels", "return one row per graph")
    return found.astype(np.float64)


def _check_texts(value: Any) -> None:
    """Refuse long or nested texts, for each of which numpy would reserve the size of the longest one, and
    texts that no file can hold.

    Raises:
        SuspectError: If there are such texts.
    """
    rows = value if isinstance(value, list) else []
    nested = any(isinstance(one, str) for row in rows if isinstance(row, list) for one in row)
    if nested or any(isinstance(row, str) and len(row) > LONGEST_LABEL for row in rows):
        raise SuspectError("a label is too long, or nested", "return one short name of a class per graph")
    try:
        "".join(row for row in rows if isinstance(row, str)).encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON can spell
        raise SuspectError("a label is no Unicode text", "return names of classes in UTF-8") from None


def split_rows(value: Any, graphs: Shown) -> list[Reply]:
    """Return one reply per graph.

    Args:
        value: JSON values: one row per graph, or one row per node.
        graphs: The graphs that were asked about.

    Raises:
        SuspectError: If the number of rows fits neither graphs nor nodes.
    """
    count = len(graphs)
    if not isinstance(value, list) or len(value) > max(MOST_COLUMNS, graphs.num_nodes):
        raise SuspectError("the reply is no list, or has too many rows", "return one row per graph")
    rows = as_rows(value)
    if rows.dtype.kind == "f" and rows.ndim == 1:
        alone = count == 1 and len(rows) not in (1, graphs.num_nodes)
        rows = rows[None] if alone else rows[:, None]
    if len(rows) not in (count, graphs.num_nodes) or (rows.ndim == 2 and rows.shape[1] > MOST_COLUMNS):
        raise SuspectError(
            f"the reply has shape {rows.shape} for {count} graphs of {graphs.num_nodes} nodes",
            "return one row per graph, or one row per node for node tasks",
        )
    if len(rows) == count:
        return [Reply(rows[place : place + 1]) for place in range(count)]
    return [Reply(part) for part in np.split(rows, graphs.ptr[1:-1])]


def graphs_of(batch: Any) -> Shown:
    """Return the graphs of a PyG batch, or the one graph of a `Data`."""
    return Attributed.from_data(batch.to_data_list() if hasattr(batch, "to_data_list") else [batch])


def stacked(replies: Sequence[Reply], graphs: Shown) -> Any:
    """Return replies as one array, in the form that most of them have; scores of others are NaN."""
    forms = Counter(
        (one.rows.dtype.kind == "f", one.rows.shape[1] if one.rows.ndim == 2 else 0, len(one.rows) == 1)
        for one in replies
        if one.rows is not None
    )
    if not forms:
        raise SuspectError("the server answers no question", "check the address and the mapping")
    (is_scores, width, by_graph), _ = forms.most_common(1)[0]
    sizes = np.ones(len(graphs), dtype=np.int64) if by_graph else graphs.sizes
    held = [_fits(reply, is_scores, width, int(size)) for reply, size in zip(replies, sizes, strict=True)]
    if not is_scores:
        if any(rows is None for rows in held):
            raise SuspectError("the server refused some questions", "ask again with another journal")
        return np.concatenate([rows for rows in held if rows is not None])
    blank = [np.full((int(size), width), np.nan) for size in sizes]
    return np.concatenate([none if rows is None else rows for rows, none in zip(held, blank, strict=True)])


def _fits(reply: Reply, is_scores: bool, width: int, rows: int) -> Any:
    """Return the rows of a reply if they have this form, else None."""
    if reply.rows is None or (reply.rows.dtype.kind == "f") != is_scores or len(reply.rows) != rows:
        return None
    return reply.rows if not is_scores or reply.rows.shape[1] == width else None
