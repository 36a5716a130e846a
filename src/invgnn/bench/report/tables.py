"""The tables of a report."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean, median

from invgnn.bench.grids.store import Row
from invgnn.bench.intervals import paired, paired_p
from invgnn.bench.report.beside import Beside
from invgnn.bench.report.cells import (
    NEEDED,
    SEEDS,
    difference_cell,
    interval_cell,
    needed_bits,
    refused,
)
from invgnn.bench.report.evidence import BASE, Cell, Evidence, numbers
from invgnn.bench.report.paper_table import paper_table
from invgnn.bench.report.study_tables import (
    forgery_table,
    refresh_table,
    search_table,
    sensitivity_table,
    uniqueness_table,
    variant_table,
)
from invgnn.bench.report.table import Table

NO_GAIN = "gone, no gain"
"""The outcome of a removal that leaves a model worth no more than training from scratch."""


def all_tables(evidence: Evidence, found: Sequence[Beside]) -> list[Table]:
    """Return all tables of a report.

    Args:
        evidence: The rows.
        found: The published numbers beside ours.
    """
    return [
        main_table(evidence, found),
        cost_table(evidence),
        removal_table(evidence),
        refresh_table(evidence),
        scratch_table(evidence),
        uniqueness_table(evidence),
        variant_table(evidence),
        sensitivity_table(evidence),
        forgery_table(evidence),
        search_table(evidence),
        paper_table(evidence, found),
    ]


def main_table(evidence: Evidence, published: Sequence[Beside] = ()) -> Table:
    """Return accuracy and evidence of every scheme on every setting, and beside them the paper's.

    Args:
        evidence: The rows.
        published: The published numbers beside ours.
    """
    rows = []
    said = {
        (one.published.setting, one.scheme, one.published.quantity): str(one.published)
        for one in published
        if one.published.table == "tab:main_comparison"
    }
    for setting in evidence.values("mark", "setting"):
        base = numbers(evidence.find("mark", setting=setting, scheme=BASE), "test_accuracy")
        for scheme in evidence.values("mark", "scheme"):
            found = evidence.find("mark", setting=setting, scheme=scheme)
            head = [Cell(setting), Cell(scheme)]
            theirs = [Cell(said.get((setting, scheme, n), "–")) for n in ("Task ACC", "WM-ACC")]
            if not found:
                rows.append([*head, *refused(evidence, setting, scheme, 7), *theirs])
                continue
            accuracy = numbers(found, "test_accuracy")
            apart = paired(accuracy, base) if scheme != BASE else []
            bits, others = numbers(found, "bits"), numbers(found, "other_bits")
            p = paired_p(apart)
            false = sum(int(row.get("at_alpha")) for row in found)
            read = sum(int(row.get("innocents")) for row in found)
            rows.append(
                [
                    *head,
                    evidence.cell(str(len(found)), found, len(found)),
                    interval_cell(evidence, found, list(accuracy.values())),
                    difference_cell(evidence, found, apart, p),
                    interval_cell(evidence, found, list(numbers(found, "share").values())),
                    evidence.cell(
                        f"{median(bits.values()):.1f} ({min(bits.values()):.1f})",
                        found,
                        median(bits.values()),
                    ),
                    evidence.cell(f"{false} of {read}", found, false),
                    evidence.cell(f"{max(others.values()):.1f}", found, max(others.values())),
                    *theirs,
                ]
            )
    about = (
        f"{SEEDS} *To SS*: paired difference to training without a mark, in points, with the p-value of "
        "Student's paired test. *Bits*: median evidence (least). *False positives*: unmarked models with "
        "p ≤ 10⁻⁶. *Second owner*: most bits that another owner's key finds. *Paper*: its means with its "
        "own intervals (± 1.96 s/√3, which cover 81 %); both forms of InvGNN-WM stand beside its only one."
    )
    names = ("setting", "scheme", "seeds", "task accuracy, %", "to SS, points (p)", "WM-ACC, %")
    more = ("bits (least)", "false positives", "second owner, bits")
    theirs_too = ("paper: accuracy, %", "paper: WM-ACC, %")
    return Table("main", "Main comparison", about, (*names, *more, *theirs_too), rows)


def cost_table(evidence: Evidence) -> Table:
    """Return what a mark costs: training, questions and seconds of an audit, refusals.

    Args:
        evidence: The rows.
    """
    rows = []
    settings = evidence.values("mark", "setting")
    for scheme in evidence.values("mark", "scheme"):
        found = evidence.find("mark", scheme=scheme)
        ratios = (
            [numbers(evidence.find("mark", setting=s, scheme=scheme), "seconds") for s in settings],
            [numbers(evidence.find("mark", setting=s, scheme=BASE), "seconds") for s in settings],
        )
        costs = [
            mine[k] / max(base[k], 1e-9)
            for mine, base in zip(*ratios, strict=True)
            for k in mine
            if k in base
        ]
        unable = {
            row.get("setting")
            for row in evidence.rows
            if row.measure == "mark" and row.get("scheme") == scheme and row.get("reason")
        }
        if not found:
            dashes = [Cell("–")] * 5
            rows.append([Cell(scheme), *dashes, Cell(f"{len(unable)} of {len(settings)}")])
            continue
        questions, seconds = ([float(r.get(n)) for r in found] for n in ("questions", "audit_seconds"))
        rows.append(
            [
                Cell(scheme),
                evidence.cell(
                    f"{median(costs):.2f}" if costs else "", found, median(costs) if costs else None
                ),
                evidence.cell(f"{max(costs):.2f}" if costs else "", found, max(costs) if costs else None),
                evidence.cell(f"{median(questions):.0f}", found, median(questions)),
                evidence.cell(f"{1000 * median(seconds):.0f}", found, median(seconds)),
                weak_cell(evidence, scheme, found),
                Cell(f"{len(unable)} of {len(settings)}", (), float(len(unable))),
            ]
        )
    about = (
        "What the literature seldom reports. *Embedding*: processor time of the training relative to SS "
        "with the same seed, median and largest over settings and seeds. *Questions*: graphs that an audit "
        "shows to the model. *Failures*: models in which the mark does not show at 10⁻⁶, or, without an "
        "exact law, not at the level that the unmarked models allow. *Refusals*: settings that the scheme "
        "cannot serve."
    )
    head = ("scheme", "embedding, ×", "most", "questions", "audit, ms", "failures", "refusals")
    return Table("cost", "Cost", about, head, rows, text=1)


def weak_cell(evidence: Evidence, scheme: str, rows: Sequence[Row]) -> Cell:
    """Return how many marks do not show in the models that they were embedded in.

    Args:
        evidence: The rows of the report.
        scheme: Name of the scheme.
        rows: Its rows.
    """
    if scheme == BASE:
        return Cell("–")
    weak = [row for row in rows if float(row.get("bits")) < needed_bits([row])]
    return evidence.cell(f"{len(weak)} of {len(rows)}", weak or rows, float(len(weak)))


def removal_table(evidence: Evidence) -> Table:
    """Return what every change leaves, beside training from scratch with the same data.

    Args:
        evidence: The rows.
    """
    rows = []
    names = ("setting", "scheme", "change", "thief")
    keys = dict.fromkeys(
        tuple(row.arguments[name] for name in names) for row in evidence.rows if row.measure == "change"
    )
    for setting, scheme, change, thief in keys:
        found = evidence.find("change", setting=setting, scheme=scheme, change=change, thief=thief)
        scratch = evidence.find("scratch", setting=setting, thief=thief)
        rows.append(
            [*map(Cell, (setting, scheme, change, thief)), *_removal(evidence, found, scratch)]
            if found
            else [*map(Cell, (setting, scheme, change, thief)), *refused(evidence, setting, scheme, 6)]
        )
    about = (
        "*Worth*: accuracy after the change minus that of a model trained from scratch with the same data, "
        "in points, paired by seed. A mark is *removed* only if fewer than 20 bits are left and the model "
        "is worth more on average than one trained from scratch; else it is gone without gain. A scheme "
        "without an exact law counts as shown at the most bits that its unmarked models allow. *Fresh*: "
        "data of the same kind that the owner never had. Accuracy is measured on inputs that neither had."
    )
    head = ("setting", "scheme", "change", "thief has", "outcome", "accuracy before, %", "after, %")
    more = ("from scratch, %", "worth, points", "bits before → after (least)")
    return Table("removal", "Edits and removal by what the thief has", about, (*head, *more), rows, text=5)


def _removal(evidence: Evidence, found: Sequence[Row], scratch: Sequence[Row]) -> list[Cell]:
    """Return the figures of one change."""
    before, after = (numbers(found, name) for name in ("accuracy_before", "accuracy"))
    bits, was = numbers(found, "bits"), numbers(found, "bits_before")
    worth = paired(after, numbers(scratch, "accuracy"))
    both = [*found, *scratch]
    shown = [interval_cell(evidence, found, list(part.values())) for part in (before, after)]
    note = next((row.get("note") for row in found if row.get("note")), "")
    left = f"{median(bits.values()):.1f} ({min(bits.values()):.1f})" if bits else f"not read: {note}"
    needed = needed_bits(found)
    return [
        evidence.cell(outcome(list(was.values()), list(bits.values()), worth, needed), both),
        *shown,
        interval_cell(evidence, scratch, list(numbers(scratch, "accuracy").values())),
        difference_cell(evidence, both, worth, None),
        evidence.cell(
            f"{median(was.values()):.1f} → {left}", found, median(bits.values()) if bits else None
        ),
    ]


def outcome(
    before: Sequence[float], after: Sequence[float], worth: Sequence[float], needed: float = NEEDED
) -> str:
    """Return what a change did to a mark.

    Args:
        before: Bits before the change, one number per seed.
        after: Bits after it; empty if the changed model cannot be read.
        worth: Accuracy minus that of training from scratch with the same data, one number per seed.
        needed: Bits that show a mark.
    """
    if not before or median(before) < needed:
        return "not shown before"
    if after and median(after) >= needed:
        return "kept"
    if not worth:
        return "gone; worth not measured"
    return "removed" if mean(worth) > 0 else NO_GAIN


def scratch_table(evidence: Evidence) -> Table:
    """Return what a thief reaches without the stolen model.

    Args:
        evidence: The rows.
    """
    rows = []
    for setting in evidence.values("scratch", "setting"):
        for thief in evidence.values("scratch", "thief"):
            found = evidence.find("scratch", setting=setting, thief=thief)
            values = list(numbers(found, "accuracy").values())
            labels = numbers(found, "labels").values()
            if found:
                count = evidence.cell(f"{mean(labels):.0f}", found, mean(labels))
                rows.append([Cell(setting), Cell(thief), count, interval_cell(evidence, found, values)])
    about = f"{SEEDS} Accuracy of a model that a thief trains from scratch."
    head = ("setting", "thief has", "labels", "accuracy, %")
    return Table("scratch", "Training from scratch", about, head, rows)
