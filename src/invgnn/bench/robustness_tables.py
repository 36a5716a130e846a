"""The tables of the robustness pages, in Markdown."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from statistics import mean, median

from invgnn.bench.markdown import table, table_head, table_row
from invgnn.bench.robustness_rows import (
    ACCESSES,
    DENIALS,
    GENTLE,
    HARSH,
    NEEDED,
    PROMISED,
    PRUNED,
    REFRESH,
    RELEASED,
    SETTINGS,
    Index,
    Record,
    Rows,
    accuracy_change,
    evidence,
    index,
    least_headroom,
    numbers,
    refuses,
    removed,
    settings_of,
)

PAPER_WM_ACC = {
    "PROTEINS/GIN": 89.8,
    "NCI1/GIN": 97.8,
    "Cora/GCN": 98.9,
    "Cora/GraphSAGE": 98.5,
    "Cora/SGC": 98.6,
}
PAPER_THRESHOLD, PAPER_M = 94, 128
_MILD = (*PRUNED, "8-bit", "4-bit", GENTLE)
EDIT_SETS: tuple[tuple[str, Collection[str], float | None], ...] = (
    ("pruning, quantisation, fine-tuning at 0.001", _MILD, 88.3),
    ("and fine-tuning at 0.01", (*_MILD, HARSH), None),
    ("and distillation", (*_MILD, HARSH, "distil"), 64.8),
)
"""Sets of edits, and the least WM-ACC of the paper's PROTEINS-GIN under them, if it has one."""


def promise_table(found: Index, settings: Sequence[str]) -> str:
    """Return the least evidence over seeds after every change for which 20 bits were promised.

    Args:
        found: Rows by setting, change and access.
        settings: Settings to show, one per column.

    Returns:
        A sentence with the count of promises that hold, and the table.
    """
    lines = [table_head("change", "at", *settings, text=2)]
    held = asked = 0
    for change, access in PROMISED:
        cells = []
        for setting in settings:
            bits = evidence(found, setting, change, access)
            asked, held = asked + bool(bits), held + bool(bits and min(bits) >= NEEDED)
            cells.append("" if not bits else f"{min(bits):.0f} {'✓' if min(bits) >= NEEDED else '**✗**'}")
        if any(cells):
            lines.append(table_row(change, access, *cells))
    return f"{held} of {asked} hold at every seed. Least bits over seeds:\n\n" + "\n".join(lines)


def removal_table(found: Index, settings: Sequence[str], changes: Sequence[str]) -> str:
    """Return every change that removes the mark on some setting, and what it costs in accuracy.

    Args:
        found: Rows by setting, change and access.
        settings: Settings to show, one per column.
        changes: Changes in the order of the rows.

    Returns:
        The table, or a sentence if nothing removed the mark.
    """
    rows = [
        [change, *(_removal(found, setting, change) for setting in settings)]
        for change in changes
        if change not in {RELEASED, REFRESH} and any(removed(found, s, change) for s in settings)
    ]
    return table(["change", *settings], rows) if rows else "Nothing removed the mark."


def _removal(found: Index, setting: str, change: str) -> str:
    gone, points = removed(found, setting, change), accuracy_change(found, setting, change)
    if points is None:
        return "not applied"
    read = [access for access in ACCESSES if evidence(found, setting, change, access)]
    where = "removed" if gone == read else f"removed at {gone[0]}" if gone else "held"
    if gone and refuses(found, setting, change):
        where = "refuses carriers"
    return f"{where}, {points:+.1f}"


def headroom_table(found: Index, settings: Sequence[str]) -> str:
    """Return the least headroom T - τ over sets of edits, beside the paper's.

    Args:
        found: Rows by setting, change and access.
        settings: Settings to show.

    Returns:
        The table: medians over seeds, with the least value and the edit that caused it.
    """
    rows = []
    for setting in settings:
        for access in ACCESSES:
            every: list[Callable[[Record], bool]] = [
                lambda r: r["kind"] == "released",
                *(partial(_is_one_of, some) for _, some, _ in EDIT_SETS),
                lambda r: r["kind"] == "edit",
            ]
            seen = [least_headroom(found, setting, access, wanted) for wanted in every]
            if seen[0][0]:
                rows.append([setting, access, *(_headroom(*pair) for pair in seen)])
        shown = [acc if setting == "PROTEINS/GIN" else None for *_, acc in EDIT_SETS]
        rows.append(
            [setting, "*paper*", *map(_paper_headroom, [PAPER_WM_ACC[setting], *shown]), ""],
        )
    head = ["setting", "at", RELEASED, *(name for name, *_ in EDIT_SETS), "every edit"]
    return table(head, rows, text=2)


def _is_one_of(some: Collection[str], row: Record) -> bool:
    return row["change"] in some


def _headroom(values: list[float], worst: str) -> str:
    if not values:
        return ""
    return f"{median(values):+.0f} ({min(values):+.0f}{'' if worst == RELEASED else ': ' + worst})"


def _paper_headroom(wm_acc: float | None) -> str:
    return "" if wm_acc is None else f"*{round(PAPER_M * wm_acc / 100) - PAPER_THRESHOLD:+d}*"


def refresh_table(found: Index, settings: Sequence[str]) -> str:
    """Return evidence and accuracy of the released model, a plain student and a refreshed one.

    Args:
        found: Rows by setting, change and access.
        settings: Settings to show.

    Returns:
        The table.
    """
    rows = []
    for setting in settings:
        for change in (RELEASED, "distil", REFRESH):
            right = numbers(found, setting, change, "logits", "accuracy")
            if right:
                bits = [_bits(evidence(found, setting, change, access)) for access in ACCESSES]
                rows.append([setting, change, *bits, f"{mean(right):.1%}"])
    return table(["setting", "model", *(f"bits at {a}" for a in ACCESSES), "accuracy"], rows, text=2)


def change_table(found: Index, setting: str, changes: Sequence[str]) -> str:
    """Return evidence, headroom and change of accuracy after every change to one setting.

    Args:
        found: Rows by setting, change and access.
        setting: Task and backbone.
        changes: Changes in the order of the rows.

    Returns:
        The table.
    """
    rows = [_change(found, setting, change) for change in changes if (setting, change, "logits") in found]
    head = ["change", "needs", *(f"bits at {access}" for access in ACCESSES), "T - τ", "accuracy"]
    return table(head, rows, text=2)


def _change(found: Index, setting: str, change: str) -> list[str]:
    rows = found[setting, change, "logits"]
    bits = [_bits(evidence(found, setting, change, access)) for access in ACCESSES]
    rooms = [numbers(found, setting, change, access, "headroom") for access in ACCESSES]
    points = accuracy_change(found, setting, change)
    last = rows[0]["note"] if points is None else f"{points:+.1f}"
    last += ", refuses carriers" * refuses(found, setting, change)
    if change == RELEASED:
        last = f"{mean(float(r['accuracy']) for r in rows):.1%}"
    headroom = " / ".join(f"{median(values):+.0f}" for values in rooms if values)
    return [change, rows[0]["knows"], *bits, headroom, last]


def denial_table(rows: Rows) -> str:
    """Return the evidence at `logits` that is left after every form of serving a copy.

    Args:
        rows: Rows of the results file of denials.

    Returns:
        The table: medians over seeds, with the least value.
    """
    found, settings = index(rows), settings_of(rows)
    changes = [
        change
        for change in (RELEASED, "permute units", *DENIALS)
        if any((setting, change, "logits") in found for setting in settings)
    ]
    lines = [[change, *(_denial(found, setting, change) for setting in settings)] for change in changes]
    return table(["served", *settings], lines)


def _denial(found: Index, setting: str, change: str) -> str:
    bits = evidence(found, setting, change, "logits")
    if not bits:
        return "does not apply" if (setting, change, "logits") in found else ""
    reported = ", refusal reported" if refuses(found, setting, change) else ""
    return f"{median(bits):.0f} ({min(bits):.0f}){reported}"


def effort(rows: Rows) -> str:
    """Return the number of changes and models, and the processor time they took.

    Args:
        rows: Rows of the results file.

    Returns:
        One sentence.
    """
    spent = {(r["setting"], r["seed"], r["change"]): (r["setting"], float(r["seconds"])) for r in rows}
    each = {s: sum(t for name, t in spent.values() if name == s) / 60 for s in SETTINGS}
    listed = ", ".join(f"{setting} {minutes:.0f}" for setting, minutes in each.items() if minutes)
    models = len({(r["setting"], r["seed"], r["model"]) for r in rows})
    return f"{len(spent)} changes to {models} models; core-minutes: {listed}."


def _bits(bits: list[float]) -> str:
    if not bits:
        return ""
    text = f"{median(bits):.0f} ({min(bits):.0f})"
    return text if median(bits) >= NEEDED else f"**{text}**"
