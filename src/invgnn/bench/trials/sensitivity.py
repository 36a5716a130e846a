"""What is read if the invariant of the carriers changes: the paper's bands of preserved and broken."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from invgnn.bench.trials.kept import kept
from invgnn.errors import ParameterError, SchemeError
from invgnn.graphs.disjoint_union import Bools, Floats, Graphs, Ints
from invgnn.graphs.invariants import find_invariant
from invgnn.readout.query import answers_on
from invgnn.schemes.keyed import KeyedMark
from invgnn.schemes.published import Perceived
from invgnn.stats.evidence import decode

SMALL = 0.1
"""The invariant is preserved if its normalised value changes by at most this much."""
BANDS = ("preserved", "marginal", "broken")
COLUMNS = (
    *("matches", "asked", "change"),
    *(f"{band}_{what}" for band in BANDS for what in ("count", "right")),
)


def measure_sensitivity(setting: str, seed: int, scheme: str, level: str, epochs: int) -> dict[str, Any]:
    """Read a marked model on its carriers after edges were added to them or removed.

    A carrier whose invariant is above one half loses edges, any other gets more: each edit drives the
    invariant towards the other side. The bits stay those that were embedded.

    Args:
        setting: Task and backbone.
        seed: Seed of split, weights, training and edits.
        scheme: Name of the scheme, ours or the paper's.
        level: Share of the edges that are edited, such as `10%`.
        epochs: Number of epochs.

    Returns:
        Matches, the mean change of the normalised invariant, and the number of carriers and of right
        answers in each band: `preserved` (changed by 0.1 at most), `marginal` (by more, on the same side of
        one half) and `broken` (on the other side).

    Raises:
        SchemeError: If the scheme has no carriers.
    """
    made = kept(setting, seed, scheme, epochs)
    if not isinstance(made.mark, KeyedMark | Perceived):
        raise SchemeError(f"{scheme} asks no carriers", "choose ours or InvGNN-WM")
    mark = made.mark.mark
    old = mark.perceived
    graphs = edited(mark.carriers, old >= 0.5, share_of(level), np.random.default_rng([seed, 0x5E45]))
    new = mark.scale(find_invariant(mark.context["invariant"])(graphs.skeleton))
    answers = answers_on(made.model, graphs, mark.reading(), mark.direction)
    right = decode(answers, 0.5 if isinstance(made.mark, Perceived) else None) == mark.bits
    row: dict[str, Any] = {
        "matches": int(right.sum()),
        "asked": mark.m,
        "change": round(float(np.abs(new - old).mean()), 4),
    }
    for number, name in enumerate(BANDS):
        part = bands(old, new) == number
        row |= {f"{name}_count": int(part.sum()), f"{name}_right": int((right & part).sum())}
    return row


def share_of(level: str) -> float:
    """Return the share that a level stands for.

    Args:
        level: A share such as `10%`.

    Raises:
        ParameterError: If it is no share.
    """
    number, sign, rest = level.partition("%")
    if not (sign and not rest and number.replace(".", "", 1).isdigit() and float(number) <= 100):
        raise ParameterError(f"{level!r} is not a share of the edges", 'write one such as "10%"')
    return float(number) / 100


def bands(old: Floats, new: Floats) -> Ints:
    """Return the band of every carrier: 0 preserved, 1 marginal, 2 broken.

    Args:
        old: Normalised invariants before.
        new: Those after.
    """
    other = (old >= 0.5) != (new >= 0.5)
    return np.where(other, 2, np.where(np.abs(new - old) > SMALL, 1, 0)).astype(np.int64)


def edited(graphs: Graphs, fewer: Bools, share: float, rng: np.random.Generator) -> Graphs:
    """Return graphs with a share of their edges removed, or as many added.

    Args:
        graphs: Undirected graphs.
        fewer: Which of them lose edges; the others get more, as long as there is room.
        share: How many, relative to the number of edges; rounded up.
        rng: Source of randomness.
    """
    ends, found = graphs.edge_ptr, []
    for number, (low, high) in enumerate(zip(graphs.ptr[:-1], graphs.ptr[1:], strict=True)):
        own = graphs.edges[ends[number] : ends[number + 1]]
        count = math.ceil(share * len(own))
        if fewer[number]:
            stay = rng.permutation(len(own))[count:]
            found.append(own[np.sort(stay)])
            continue
        u, v = np.triu_indices(int(high - low), 1)
        there = set(map(tuple, (own - low).tolist()))
        free = np.array([pair for pair in zip(u.tolist(), v.tolist(), strict=True) if pair not in there])
        added = free[rng.permutation(len(free))[:count]].reshape(-1, 2) + low
        both = np.concatenate([own, added.astype(np.int64)])
        found.append(both[np.lexsort((both[:, 1], both[:, 0]))])
    return Graphs(graphs.ptr, np.concatenate(found), graphs.x, graphs.is_directed)
