"""The rows of the robustness benchmark: what was planned, and statistics over seeds."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from statistics import mean, median

Record = dict[str, str]
Rows = list[Record]
Index = dict[tuple[str, str, str], Rows]
"""Rows of all seeds by setting, change and access."""

SETTINGS = ("PROTEINS/GIN", "NCI1/GIN", "Cora/GCN", "Cora/GraphSAGE", "Cora/SGC")
ACCESSES = ("embedding", "logits")
NEEDED = 20.0
"""Bits that α = 10⁻⁶ requires."""

RELEASED, REFRESH, COLLUDE = "as released", "KD+WM (owner's refresh)", "average of 2 copies"
PRUNED = ("prune 20%", "prune 40%", "prune 50%")
CUT = ("prune 20% of channels", "prune 40% of channels")
ROUNDED = ("8-bit", "4-bit", "fp16", "bf16")
STEADY = (*PRUNED, *CUT, *ROUNDED, "noise 10%", "noise 30%", "re-estimate norms")
GENTLE, HARSH = "fine-tune 20 epochs at 0.001", "fine-tune 20 epochs at 0.01"
SAME = ("permute units", "rescale units by up to 4")
IDLE = "idle hidden unit"
FORMS = (
    *("serve classes rolled by one", "serve classes shuffled", "serve percentages"),
    *("serve with an empty class in front", "serve with an empty class behind"),
    *("serve log-odds of class 0", "serve log-odds of class 1", "serve log-probabilities"),
)
"""Forms in which a served copy returns all of its scores."""
LABELS = ("serve label names", "serve label numbers")
REFUSALS = tuple(f"refuse carriers with {what}" for what in ("NaN", "an error", "a constant"))
DENIALS = (IDLE, *FORMS, *LABELS, *REFUSALS)
"""What somebody who serves a copy can do at no cost. Their rows are in a file of their own."""

PROMISED = [(change, access) for change in (*STEADY, GENTLE) for access in ACCESSES]
PROMISED += [(HARSH, "embedding"), *((change, "logits") for change in SAME)]
"""Changes after which 20 bits were promised at every seed, and the level at which they are read."""


def index(rows: Rows) -> Index:
    """Group rows by setting, change and access.

    Args:
        rows: Rows of the results file.

    Returns:
        The rows of all seeds under each key.
    """
    found: Index = {}
    for row in rows:
        found.setdefault((row["setting"], row["change"], row["access"]), []).append(row)
    return found


def numbers(found: Index, setting: str, change: str, access: str, column: str) -> list[float]:
    """Return the values of a column, one per seed.

    Args:
        found: Rows by setting, change and access.
        setting: Task and backbone.
        change: Name of the change.
        access: Level of the reading.
        column: Column of the results file.

    Returns:
        The values; none where the model cannot be read or the change cannot be made.
    """
    return [float(r[column]) for r in found.get((setting, change, access), []) if r[column] != ""]


def evidence(found: Index, setting: str, change: str, access: str) -> list[float]:
    """Return the evidence in bits, one value per seed.

    Args:
        found: Rows by setting, change and access.
        setting: Task and backbone.
        change: Name of the change.
        access: Level of the reading.

    Returns:
        The values; none where the model cannot be read or the change cannot be made.
    """
    return numbers(found, setting, change, access, "evidence")


def accuracy_change(found: Index, setting: str, change: str) -> float | None:
    """Return the mean change of test accuracy over seeds.

    Args:
        found: Rows by setting, change and access.
        setting: Task and backbone.
        change: Name of the change.

    Returns:
        Accuracy after minus before, in points; None if the change cannot be made.
    """
    rows = found.get((setting, change, "logits"), [])
    points = [
        100 * (float(r["accuracy"]) - float(r["accuracy_before"])) for r in rows if r["accuracy"] != ""
    ]
    return mean(points) if points else None


def removed(found: Index, setting: str, change: str) -> list[str]:
    """Return the levels at which a change removes the mark: median evidence below 20 bits.

    Args:
        found: Rows by setting, change and access.
        setting: Task and backbone.
        change: Name of the change.

    Returns:
        Names of the levels.
    """
    bits = {access: evidence(found, setting, change, access) for access in ACCESSES}
    return [access for access, values in bits.items() if values and median(values) < NEEDED]


def refuses(found: Index, setting: str, change: str) -> bool:
    """Return whether a verdict at α = 10⁻⁶ reports the refusal of carriers, at every seed.

    Args:
        found: Rows by setting, change and access.
        setting: Task and backbone.
        change: Name of the change.

    Returns:
        True if carriers were refused significantly more often than ordinary inputs.
    """
    from invgnn.audit.examine import Refusal
    from invgnn.watermark.mark import ORDINARY

    rows = found.get((setting, change, "logits"), [])
    counts = [(re.search(r"refused (\d+) carriers, (\d+) others", r["note"]), r.get("m")) for r in rows]
    seen = [Refusal(int(c[1]), int(c[2]), int(m), ORDINARY) for c, m in counts if c and m]
    return 0 < len(seen) == len(rows) and all(one.log_p <= math.log(1e-6) for one in seen)


def least_headroom(
    found: Index, setting: str, access: str, wanted: Callable[[Record], bool]
) -> tuple[list[float], str]:
    """Return the least headroom T - τ over some changes.

    Args:
        found: Rows by setting, change and access.
        setting: Task and backbone.
        access: Level of the reading.
        wanted: Whether a row counts.

    Returns:
        The least headroom of every seed, and the change with the least of all.
    """
    rows = [r for (s, _, a), part in found.items() if (s, a) == (setting, access) for r in part]
    worst: dict[str, tuple[float, str]] = {}
    for row in rows:
        if wanted(row) and row["headroom"] != "":
            seen = float(row["headroom"]), row["change"]
            worst[row["seed"]] = min(worst.get(row["seed"], seen), seen)
    return [headroom for headroom, _ in worst.values()], min(worst.values(), default=(0.0, ""))[1]


def settings_of(rows: Rows) -> list[str]:
    """Return the settings that have rows, in the order of the tables.

    Args:
        rows: Rows of the results file.

    Returns:
        Names of the settings.
    """
    return [setting for setting in SETTINGS if any(row["setting"] == setting for row in rows)]


def in_order(rows: Rows, names: Sequence[str]) -> list[str]:
    """Return the changes that have rows, in the order of a list of names.

    Args:
        rows: Rows of the results file.
        names: Names of all changes in the order of the tables.

    Returns:
        Names of the changes.
    """
    made = {row["change"] for row in rows}
    return [name for name in names if name in made]
