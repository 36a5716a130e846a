"""What the rows of the robustness benchmark say, as tables."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Sequence
from functools import partial
from statistics import mean, median

SETTINGS = ("PROTEINS/GIN", "NCI1/GIN", "Cora/GCN", "Cora/GraphSAGE", "Cora/SGC")
ACCESSES = ("embedding", "logits")
NEEDED = 20.0  # bits: α = 10⁻⁶
RELEASED, REFRESH = "as released", "KD+WM (owner's refresh)"
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
"""Forms in which a served copy says everything that it knows, only otherwise."""
LABELS = ("serve label names", "serve label numbers")
REFUSALS = tuple(f"refuse carriers with {what}" for what in ("NaN", "an error", "a constant"))
DENIALS = (IDLE, *FORMS, *LABELS, *REFUSALS)
"""What whoever serves a copy does to it that costs nothing; their rows are in a file of their own."""
HARD = [(change, access) for change in (*STEADY, GENTLE) for access in ACCESSES]
HARD += [(HARSH, "embedding"), *((change, "logits") for change in SAME)]
PAPER_WM_ACC = {"PROTEINS/GIN": 89.8, "NCI1/GIN": 97.8, "Cora/GCN": 98.9} | {
    "Cora/GraphSAGE": 98.5,
    "Cora/SGC": 98.6,
}
PAPER_TAU, PAPER_M = 94, 128
EDIT_SETS: tuple[tuple[str, Collection[str], float | None], ...] = (
    ("pruning, quantisation, tuning at 0.001", (*PRUNED, "8-bit", "4-bit", GENTLE), 88.3),
    ("and tuning at 0.01", (*PRUNED, "8-bit", "4-bit", GENTLE, HARSH), None),
    ("and distillation", (*PRUNED, "8-bit", "4-bit", GENTLE, HARSH, "distil"), 64.8),
)
"""Sets of edits, and the least WM-ACC of the paper's PROTEINS-GIN under them, if it has one."""

Rows = list[dict[str, str]]
Table = dict[tuple[str, str, str], Rows]


def index(rows: Rows) -> Table:
    """Rows of all seeds by setting, change and access."""
    table: Table = {}
    for row in rows:
        table.setdefault((row["setting"], row["change"], row["access"]), []).append(row)
    return table


def in_order(rows: Rows) -> list[str]:
    """The changes that have been made, in the order of the suites."""
    from released import names

    made = {row["change"] for row in rows}
    return [name for name in names() if name in made]


def numbers(table: Table, setting: str, change: str, access: str, column: str) -> list[float]:
    """What was measured, one number for each seed; none where a model cannot be read or changed."""
    return [float(r[column]) for r in table.get((setting, change, access), []) if r[column] != ""]


def evidence(table: Table, setting: str, change: str, access: str) -> list[float]:
    """Bits of every seed."""
    return numbers(table, setting, change, access, "evidence")


def cost(table: Table, setting: str, change: str) -> float | None:
    """Mean change of task accuracy, in points."""
    rows = table.get((setting, change, "logits"), [])
    paid = [100 * (float(r["accuracy"]) - float(r["accuracy_before"])) for r in rows if r["accuracy"] != ""]
    return mean(paid) if paid else None


def removed(table: Table, setting: str, change: str) -> list[str]:
    """Readings at which the median evidence falls short of α = 10⁻⁶."""
    found = {access: evidence(table, setting, change, access) for access in ACCESSES}
    return [access for access, bits in found.items() if bits and median(bits) < NEEDED]


def refuses(table: Table, setting: str, change: str) -> bool:
    """Whether, at every seed, carriers were refused so often that a verdict at α = 10⁻⁶ says so."""
    from invgnn.audit.examine import Refusal
    from invgnn.watermark.mark import ORDINARY

    rows = table.get((setting, change, "logits"), [])
    counts = [(re.search(r"refused (\d+) carriers, (\d+) others", r["note"]), r.get("m")) for r in rows]
    told = [Refusal(int(c[1]), int(c[2]), int(m), ORDINARY) for c, m in counts if c and m]
    return 0 < len(told) == len(rows) and all(one.log_p <= math.log(1e-6) for one in told)


def denial_table(rows: Rows) -> str:
    """What every denial leaves of a copy at its scores: medians over seeds, and the least."""
    table, settings = index(rows), [s for s in SETTINGS if any(r["setting"] == s for r in rows)]
    lines = [_line("served", *settings), _line("---", *["--:"] * len(settings))]
    for change in (RELEASED, "permute units", *DENIALS):
        if any((setting, change, "logits") in table for setting in settings):
            lines.append(_line(change, *(_denial(table, setting, change) for setting in settings)))
    return "\n".join(lines)


def _denial(table: Table, setting: str, change: str) -> str:
    found = evidence(table, setting, change, "logits")
    if not found:
        return "does not apply" if (setting, change, "logits") in table else ""
    told = ", refusal named" if refuses(table, setting, change) else ""
    return f"{median(found):.0f} ({min(found):.0f}){told}"


def least_headroom(
    table: Table, setting: str, access: str, wanted: Callable[[dict[str, str]], bool]
) -> tuple[list[float], str]:
    """T - τ at the worst of some changes, for each seed; and which was the worst of all."""
    rows = [r for (s, _, a), part in table.items() if (s, a) == (setting, access) for r in part]
    worst: dict[str, tuple[float, str]] = {}
    for row in rows:
        if wanted(row) and row["headroom"] != "":
            found = float(row["headroom"]), row["change"]
            worst[row["seed"]] = min(worst.get(row["seed"], found), found)
    return [room for room, _ in worst.values()], min(worst.values(), default=(0.0, ""))[1]


# -- tables ----------------------------------------------------------------------------------------


def hard_table(table: Table, settings: Sequence[str]) -> str:
    """Least evidence over seeds wherever 20 bits were asked for."""
    lines = [_head("change", "at", *settings, text=2)]
    held = asked = 0
    for change, access in HARD:
        cells = []
        for setting in settings:
            bits = evidence(table, setting, change, access)
            asked, held = asked + bool(bits), held + bool(bits and min(bits) >= NEEDED)
            cells.append("" if not bits else f"{min(bits):.0f} {'✓' if min(bits) >= NEEDED else '**✗**'}")
        if any(cells):
            lines.append(_line(change, access, *cells))
    return f"{held} of {asked} hold at every seed; least bits over seeds:\n\n" + "\n".join(lines)


def removal_table(table: Table, settings: Sequence[str], changes: Sequence[str]) -> str:
    """For every change that removes the mark somewhere: what is left where, and the thief's cost."""
    lines = [_head("change", *settings)]
    for change in changes:
        if change in {RELEASED, REFRESH} or not any(removed(table, s, change) for s in settings):
            continue
        lines.append(_line(change, *(_removal(table, setting, change) for setting in settings)))
    return "\n".join(lines) if len(lines) > 1 else "Nothing removed it."


def _removal(table: Table, setting: str, change: str) -> str:
    gone, paid = removed(table, setting, change), cost(table, setting, change)
    if paid is None:
        return "not applied"
    read = [access for access in ACCESSES if evidence(table, setting, change, access)]
    where = "removed" if gone == read else f"removed at {gone[0]}" if gone else "held"
    if gone and refuses(table, setting, change):
        where = "refuses carriers"
    return f"{where}, {paid:+.1f}"


def headroom_table(table: Table, settings: Sequence[str]) -> str:
    """Median over seeds of the least T - τ over edits, and the paper's beside it."""
    lines = [_head("setting", "at", "as released", *(name for name, *_ in EDIT_SETS), "every edit", text=2)]
    for setting in settings:
        for access in ACCESSES:
            every = [
                lambda r: r["kind"] == "released",
                *(partial(_is_one_of, some) for _, some, _ in EDIT_SETS),
            ]
            every.append(lambda r: r["kind"] == "edit")
            found = [least_headroom(table, setting, access, wanted) for wanted in every]
            if found[0][0]:
                lines.append(_line(setting, access, *(_room(*pair) for pair in found)))
        shown = [PAPER_WM_ACC[setting]]
        shown += [acc if setting == "PROTEINS/GIN" else None for *_, acc in EDIT_SETS]
        lines.append(_line(setting, "*paper*", *map(_paper_room, shown), ""))
    return "\n".join(lines)


def _is_one_of(some: Collection[str], row: dict[str, str]) -> bool:
    return row["change"] in some


def _room(rooms: list[float], worst: str) -> str:
    if not rooms:
        return ""
    return f"{median(rooms):+.0f} ({min(rooms):+.0f}{'' if worst == RELEASED else ': ' + worst})"


def _paper_room(wm_acc: float | None) -> str:
    return "" if wm_acc is None else f"*{round(PAPER_M * wm_acc / 100) - PAPER_TAU:+d}*"


def refresh_table(table: Table, settings: Sequence[str]) -> str:
    """The released model, a plain student and a refreshed one."""
    lines = [_head("setting", "model", *(f"bits at {access}" for access in ACCESSES), "accuracy", text=2)]
    for setting in settings:
        for change in (RELEASED, "distil", REFRESH):
            right = numbers(table, setting, change, "logits", "accuracy")
            if right:
                bits = [_bits(evidence(table, setting, change, access)) for access in ACCESSES]
                lines.append(_line(setting, change, *bits, f"{mean(right):.1%}"))
    return "\n".join(lines)


def change_table(table: Table, setting: str, changes: Sequence[str]) -> str:
    """Evidence at every reading, and accuracy after less before, for every change to one setting."""
    names = [f"bits at {access}" for access in ACCESSES]
    lines = [_head("change", "needs", *names, "T - τ", "accuracy", text=2)]
    for change in changes:
        rows = table.get((setting, change, "logits"), [])
        if not rows:
            continue
        bits = [_bits(evidence(table, setting, change, access)) for access in ACCESSES]
        rooms = [numbers(table, setting, change, access, "headroom") for access in ACCESSES]
        room = " / ".join(f"{median(r):+.0f}" for r in rooms if r)
        paid = cost(table, setting, change)
        last = rows[0]["note"] if paid is None else f"{paid:+.1f}"
        last += ", refuses carriers" * refuses(table, setting, change)
        if change == RELEASED:
            last = f"{mean(float(r['accuracy']) for r in rows):.1%}"
        lines.append(_line(change, rows[0]["knows"], *bits, room, last))
    return "\n".join(lines)


def effort(rows: Rows) -> str:
    """What it took."""
    spent = {(r["setting"], r["seed"], r["change"]): (r["setting"], float(r["seconds"])) for r in rows}
    each = {s: sum(t for name, t in spent.values() if name == s) / 60 for s in SETTINGS}
    told = ", ".join(f"{setting} {minutes:.0f}" for setting, minutes in each.items() if minutes)
    models = len({(r["setting"], r["seed"], r["model"]) for r in rows})
    return f"{len(spent)} changes to {models} models; core-minutes: {told}."


def _bits(bits: list[float]) -> str:
    if not bits:
        return ""
    text = f"{median(bits):.0f} ({min(bits):.0f})"
    return text if median(bits) >= NEEDED else f"**{text}**"


def _head(*cells: str, text: int = 1) -> str:
    return f"{_line(*cells)}\n|{'---|' * text}{'--:|' * (len(cells) - text)}"


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
