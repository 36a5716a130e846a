"""What models of one owner score for other owners: the tables of the uniqueness study, in Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from statistics import mean

from invgnn.bench.markdown import table
from invgnn.theory.hamming import HammingLaw
from invgnn.theory.intervals import bound_share
from invgnn.theory.uniqueness import p_min

Rows = Sequence[dict[str, str]]


def owner_tables(rows: Rows) -> str:
    """Return the scores of every model for every owner, and the distances between their keys.

    Args:
        rows: Rows of the results file of the study `owners`.

    Returns:
        Two tables.
    """
    models = dict.fromkeys((row["key"], row["model"]) for row in rows)
    scores = [
        "key",
        "model marked by",
        "test accuracy",
        "its owner's T",
        "T of the others",
        "mean",
        "evidence",
    ]
    apart = ["key", "p (p_min)", "pairs", "distance (least)"]
    apart += ["bits independent", "uniform balanced", "quota"]
    keys = dict.fromkeys(row["key"] for row in rows)
    return "\n\n".join(
        [
            table(scores, (_scores(key, model, rows) for key, model in models), text=2),
            table(apart, (_distances(key, rows) for key in keys)),
        ]
    )


def _scores(key: str, model: str, rows: Rows) -> list[str]:
    part = [row for row in rows if (row["key"], row["model"]) == (key, model)]
    own = next((row["t"] for row in part if row["reader"] == model), "–")
    others = [row for row in part if row["reader"] != model]
    t = [int(row["t"]) for row in others]
    bits = [float(row["evidence_bits"]) for row in others if row["evidence_bits"]]
    most = f"{max(bits):.1f} bits at most" if bits else "no exact null"
    who = model if model == "nobody" else f"owner {model}"
    accuracy = f"{float(part[0]['test_accuracy']):.1%}"
    return [key, who, accuracy, own, ", ".join(map(str, t)), f"{mean(t):.1f}", most]


def _distances(key: str, rows: Rows) -> list[str]:
    """Compare with the laws at the share of ones among candidates; count the keys of a pair once."""
    part = [row for row in rows if row["key"] == key and row["model"] not in ("nobody", row["reader"])]
    pairs = {frozenset((row["model"], row["reader"])): int(row["key_distance"]) for row in part}
    m, ones, drawn = (int(part[0][name]) for name in ("m", "candidate_ones", "candidates"))
    p, least = ones / drawn, p_min(bound_share(ones, drawn))
    laws = [HammingLaw(m, p), HammingLaw(m), HammingLaw(m, p, quota=True)]
    distances = [f"{law.mean:.1f}, 2^{law.log_collision / log(2):.0f}" for law in laws]
    apart = f"{mean(pairs.values()):.1f} ({min(pairs.values())})"
    return [key, f"{p:.3f} ({least:.3f})", str(len(pairs)), apart, *distances]
