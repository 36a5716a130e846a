"""Whether a mark can be somebody else's: other owners' marks, and ten million strangers' keys."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import nn

from invgnn.bench.marked import ALPHA, Made, owner_secret, unmarked_models
from invgnn.bench.trials.kept import kept
from invgnn.bench.trials.objects import told
from invgnn.errors import SchemeError
from invgnn.graphs.disjoint_union import Ints
from invgnn.schemes.keyed import KeyedMark
from invgnn.schemes.published import Perceived
from invgnn.stats.evidence import decode
from invgnn.stats.null import NULLS
from invgnn.theory.intervals import bound_share
from invgnn.theory.pooled import BLOCK

OWNERS, DRAWS = 8, 10_000_000
"""How many other owners read the model, and how many keys of strangers are drawn."""
COLUMNS = (
    *("matches", "asked", "tau", "owners", "others_mean", "others_most", "others_pass", "draws"),
    *("innocent_hits", "innocent_limit", "marked_hits", "marked_limit", "hyperparameters"),
)


def measure_uniqueness(setting: str, seed: int, scheme: str, epochs: int, controls: int) -> dict[str, Any]:
    """Read a marked model, and unmarked ones, with the marks of strangers.

    Args:
        setting: Task and backbone.
        seed: Seed of split, weights and training.
        scheme: Name of the scheme, ours or the paper's.
        epochs: Number of epochs.
        controls: Number of unmarked models.

    Returns:
        The owner's matches and the exact threshold at 1e-6; the matches of other owners in the same model;
        and how many of the drawn strangers reach the threshold in unmarked models, and in this marked one,
        with the upper 95 % limits of Clopper and Pearson.

    Raises:
        SchemeError: If the scheme has no carriers.
    """
    made = kept(setting, seed, scheme, epochs)
    if not isinstance(made.mark, KeyedMark | Perceived):
        raise SchemeError(f"{scheme} asks no carriers with bits", "choose ours or InvGNN-WM")
    m = made.mark.mark.m
    tau = NULLS["exact"].threshold(m, ALPHA)
    others = [stranger(made, owner) for owner in range(OWNERS)]
    scores = [one.read(made.model).matches for one in others]
    rng = np.random.default_rng([seed, 0xA1FA])
    innocent = [said(others, one) for one in unmarked_models(setting, epochs, controls)]
    bits = np.stack([one.mark.bits for one in others])
    plain = isinstance(made.mark, Perceived)
    row: dict[str, Any] = {
        "matches": made.mark.read(made.model).matches,
        "asked": m,
        "tau": tau,
        "owners": OWNERS,
        "others_mean": round(float(np.mean(scores)), 2),
        "others_most": max(scores),
        "others_pass": sum(score >= tau for score in scores),
        "draws": DRAWS,
    }
    for name, answers in (("innocent", innocent), ("marked", [said(others, made.model)])):
        hits = strangers(answers, bits, tau, DRAWS, plain, rng)
        row |= {f"{name}_hits": hits, f"{name}_limit": f"{bound_share(hits, DRAWS).upper:.2g}"}
    return row | {"hyperparameters": told(made.scheme)}


def stranger(made: Made, owner: int) -> KeyedMark | Perceived:
    """Return the mark of another owner of the same task, who never touched the model.

    Args:
        made: The model with the mark of its owner.
        owner: Number of the other owner.
    """
    mark = made.scheme.prepare(owner_secret(made.setting, made.seed, f"other {owner}"), made.task)
    if not isinstance(mark, KeyedMark | Perceived):
        raise AssertionError("a scheme of carriers prepares a mark of carriers")
    return mark


def said(marks: Sequence[KeyedMark | Perceived], model: nn.Module) -> Ints:
    """Return what a model says on the carriers of each mark, decoded to bits [marks, m].

    Args:
        marks: The marks.
        model: The model; a new head is attached to a copy of it if the marks need one.
    """
    found = []
    for one in marks:
        if isinstance(one, Perceived):
            if not hasattr(model, "perception"):
                model = copy.deepcopy(model)
                one.attach(model, seed=0)
            found.append(decode(one.mark.read(model, "perception").carriers, 0.5))
        else:
            found.append(decode(one.mark.read(model).carriers))
    return np.stack(found).astype(np.int64)


def strangers(
    answers: Sequence[Ints], bits: Ints, tau: int, draws: int, plain: bool, rng: np.random.Generator
) -> int:
    """Return how many strangers reach a threshold.

    A stranger with a plain key has m carriers of the pool, half of them with bit 1; that key is what the
    carriers say. A stranger with a keyed mark has the carriers of one mark and a new balanced key.

    Args:
        answers: What each model says on every carrier of the pool [marks, m].
        bits: Bits of these carriers [marks, m].
        tau: The threshold.
        draws: Number of strangers, shared among the models.
        plain: Whether bits are a function of the carriers.
        rng: Source of randomness.
    """
    m, hits = bits.shape[1], 0
    share, groups = np.full(len(answers), 1 / len(answers)), []
    for found, count in zip(answers, rng.multinomial(draws, share).tolist(), strict=True):
        if plain:
            right = [(found == bits)[bits == bit] for bit in (0, 1)]
            groups.append((count, [(int(one.sum()), int((~one).sum())) for one in right]))
            continue
        each = rng.multinomial(count, np.full(len(found), 1 / len(found))).tolist()
        for row, part in zip(found, each, strict=True):
            ones = int(row.sum())
            groups.append((part, [(ones, m - ones)]))
    for count, sides in groups:
        for start in range(0, count, BLOCK):
            size = min(BLOCK, count - start)
            drawn = [rng.hypergeometric(good, bad, m // 2, size=size) for good, bad in sides]
            # Keyed: X ones fall on the carriers with bit 1, so that T = 2X + m/2 - ones.
            t = drawn[0] + drawn[1] if plain else 2 * drawn[0] + m // 2 - sides[0][0]
            hits += int((t >= tau).sum())
    return hits
