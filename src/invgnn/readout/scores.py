"""Convert the replies of a suspect, in whatever form, into an array of scores."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from invgnn.errors import SuspectError
from invgnn.graphs.disjoint_union import Ints
from invgnn.nn.observation import full

GAP = 14.0
"""Scores that are missing or minus infinity are placed this far, in nats, below all others."""
HUGE, TINY = 1e6, 1e-4
"""Scores above the first, or with differences below the second, are scaled."""
MOST_COLUMNS = 8192
"""Largest number of columns of scores."""
MOST_LABELS = 1024
"""Integers below this count as class numbers, others as names of classes."""


def _plain(value: Any) -> NDArray[Any]:
    """Return a reply as an array on the CPU: floats, or integers or text that name labels."""
    if isinstance(value, tuple | dict):
        kind, pick = type(value).__name__, '["scores"]' if isinstance(value, dict) else "[0]"
        raise SuspectError(
            f"the suspect returned a {kind}, expected an array of scores",
            f"return the scores only: result{pick}",
        )
    if isinstance(value, Tensor):
        value = full(value.detach()).cpu().numpy() if value.is_floating_point() else value.cpu().numpy()
    try:
        found = np.array(value)
    except (TypeError, ValueError) as error:
        raise SuspectError(
            f"the suspect returned no array: {error}", "return one array of scores"
        ) from error
    if found.dtype.kind not in "fiubUS":
        raise SuspectError(
            f"the suspect returned an array of type {found.dtype}", "return scores or labels"
        )
    return found


def _array(value: Any, rows: set[int], single: bool) -> NDArray[Any]:
    """Return a reply as an array with one of these numbers of rows; labels become one column."""
    found = _plain(value)
    if found.ndim == 1 and single and found.dtype.kind == "f" and len(found) not in rows:
        found = found[None]  # an endpoint may drop the batch dimension of a single graph
    if found.ndim == 3 and found.shape[1] == 1:
        found = found.squeeze(1)
    if found.ndim == 1:
        found = found[:, None]
    if found.ndim != 2 or len(found) not in rows or not 0 < found.shape[1] <= MOST_COLUMNS:
        wanted = " or ".join(map(str, sorted(rows)))
        raise SuspectError(
            f"the suspect returned an array of shape {found.shape}, not {wanted} rows",
            "a suspect must return one row per graph, or one row per node for node tasks",
        )
    if found.dtype.kind != "f" and found.shape[1] > 1:
        found = found.astype(np.float64)  # for example counts of votes
    return found


def _real(rows: int, parts: list[tuple[Ints, NDArray[Any]]]) -> Tensor:
    """Return real-valued outputs of all calls as they are; rows without numbers, or with fewer, are NaN."""
    held = [(chosen, scores) for chosen, scores in parts if scores.dtype.kind in "fiub"]
    width = max((scores.shape[1] for _, scores in held), default=1)
    out = np.full((rows, width), np.nan)
    for chosen, scores in held:
        if scores.shape[1] == width:
            out[chosen] = scores
    return torch.from_numpy(out)


def _filled(rows: int, parts: list[tuple[Ints, NDArray[Any]]]) -> Tensor:
    """Return the scores of all calls; rows without a reply, or with a minority format, are NaN."""
    forms = Counter(scores.dtype.kind == "f" for chosen, scores in parts for _ in chosen)
    floats = forms[True] >= forms[False]
    held = [(chosen, scores) for chosen, scores in parts if (scores.dtype.kind == "f") == floats]
    if not floats:
        names: NDArray[Any] = np.full(rows, None, dtype=object)
        for chosen, scores in held:
            names[chosen] = scores.ravel()
        return torch.from_numpy(_one_hot(names))
    raw = np.full((rows, max(scores.shape[1] for _, scores in held)), np.nan)
    for chosen, scores in held:
        raw[chosen] = -np.inf  # columns that this reply lacks
        raw[chosen, : scores.shape[1]] = scores
    if raw.shape[1] == 1 and _are_labels(raw):
        names = np.array(
            [int(value) if np.isfinite(value) else None for value in raw.ravel()], dtype=object
        )
        return torch.from_numpy(_one_hot(names))
    return torch.from_numpy(tidy(raw))


def _are_labels(column: NDArray[np.float64]) -> bool:
    """Return whether a column of floats holds class numbers: at least three different integers."""
    values = np.unique(column[np.isfinite(column)])
    return 3 <= len(values) <= MOST_LABELS and bool((values == values.round()).all())


def tidy(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return scores that can be computed with, whatever their size; rows without any score are NaN.

    A column without any score, and scores of minus infinity, exclude a class. Scores so large or so close
    together that doubles would lose their differences are scaled, all by one factor. Single rows that are
    far larger than a typical row are clipped first, so that one absurd reply does not blur the others.

    Guarantee: all of this depends on the scores alone.
    """
    finite = np.isfinite(scores)
    void = ~finite.any(1) | (np.isnan(scores) & ~np.isnan(scores).all(0)).any(1)
    if not finite[~void].any():
        return np.full_like(scores, np.nan)
    low, high = float(scores[finite].min()), float(scores[finite].max())
    least = 0.0 if low >= 0 else low - GAP
    out = np.where(np.isposinf(scores), high + GAP, np.where(finite, scores, least))
    typical = float(np.quantile(np.abs(out[~void]).max(1), 0.5, method="lower"))
    bound = HUGE if typical <= HUGE else min(10 * typical, 1e307)
    out = np.clip(out, -bound, bound)
    largest = float(np.abs(out).max())
    centred = out / largest if largest > HUGE else out
    centred = centred - centred.mean(1, keepdims=True)  # 0 if there is one column
    spread = float(np.abs(centred)[~void].max())
    if largest > HUGE or 0 < spread < TINY:
        out = centred * (10.0 / spread) if spread else centred
    out[void] = np.nan
    return np.asarray(out)


def _one_hot(names: NDArray[Any]) -> NDArray[np.float64]:
    """Return label names as one-hot rows; class numbers keep their positions, other names are sorted."""
    column = names.reshape(len(names))
    void = np.array([name is None for name in column])
    known = np.array([str(name) if isinstance(name, str | bytes) else int(name) for name in column[~void]])
    if known.dtype.kind == "i" and known.min() >= 0 and known.max() < MOST_LABELS:
        place, width = known, max(int(known.max()) + 1, 2)
    else:
        values, place = np.unique(known, return_inverse=True)
        width = max(len(values), 2)
    out = np.full((len(column), width), np.nan)
    out[~void] = 0.0
    out[np.flatnonzero(~void), place] = 1.0
    return out
