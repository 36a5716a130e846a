"""What edits and attacks leave of a mark, and what the result is worth to a thief."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, median

from invgnn.bench.intervals import paired
from invgnn.bench.report.cells import needed_bits
from invgnn.bench.report.evidence import Evidence, numbers

NAMES = ("setting", "scheme", "change", "thief")


@dataclass(frozen=True)
class Attacked:
    """What one change leaves of one scheme on one setting, over all seeds.

    Attributes:
        setting: Task and backbone.
        scheme: The scheme.
        change: The edit or attack.
        thief: What the thief has.
        worth: Accuracy minus that of training from scratch with the same data, in points.
        bits: Median evidence left; 0 if the changed model cannot be read.
        shown: Whether the mark showed before the change.
        gone: Whether it does not show after it.
    """

    setting: str
    scheme: str
    change: str
    thief: str
    worth: float
    bits: float
    shown: bool
    gone: bool


def attacked(evidence: Evidence) -> list[Attacked]:
    """Return what every change leaves, where training from scratch was measured too.

    A change that the grids name for one thief alone needs no labels, so every thief can make it: its model
    is compared with what each of them would train.

    Args:
        evidence: The rows.
    """
    named: dict[str, set[str]] = {}
    for one in evidence.planned:
        if one.measure == "change":
            named.setdefault(one.arguments["change"], set()).add(one.arguments["thief"])
    keys = dict.fromkeys(
        tuple(row.arguments[name] for name in NAMES) for row in evidence.rows if row.measure == "change"
    )
    made: list[Attacked | None] = []
    for key in keys:
        change, thief = key[2:]
        thieves = evidence.values("scratch", "thief") if len(named[change]) == 1 else [thief]
        made += [_attacked(evidence, key, each) for each in thieves]
    return [one for one in made if one is not None]


def _attacked(evidence: Evidence, key: tuple[str, ...], thief: str) -> Attacked | None:
    """Return what one change leaves, to a thief; None if training from scratch was not measured."""
    setting, scheme, change, _ = key
    found = evidence.find("change", **dict(zip(NAMES, key, strict=True)))
    scratch = numbers(evidence.find("scratch", setting=setting, thief=thief), "accuracy")
    worth, bits = paired(numbers(found, "accuracy"), scratch), numbers(found, "bits")
    if not worth:
        return None
    needed, left = needed_bits(found), median(bits.values()) if bits else 0.0
    shown = median(numbers(found, "bits_before").values()) >= needed
    return Attacked(setting, scheme, change, thief, 100 * mean(worth), left, shown, left < needed)


def best_removal(found: Sequence[Attacked]) -> Attacked | None:
    """Return the change that removes a mark and leaves the best model; None if none removes it.

    Args:
        found: What the changes by one thief leave of one scheme on one setting.
    """
    return max((one for one in found if one.gone), key=lambda one: one.worth, default=None)
