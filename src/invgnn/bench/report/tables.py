"""The tables of a report."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean, median

from invgnn.bench.grids.store import Row
from invgnn.bench.intervals import Interval, paired, paired_p
from invgnn.bench.report.beside import Beside
from invgnn.bench.report.evidence import BASE, Cell, Evidence, numbers
from invgnn.bench.report.table import Table

NO_GAIN = "gone, no gain"
"""The outcome of a removal that leaves a model worth no more than training from scratch."""
NEEDED = 20.0
"""Bits that α = 10⁻⁶ requires."""
SEEDS = "Mean over seeds with Student's 95 % interval."


def all_tables(evidence: Evidence, found: Sequence[Beside]) -> list[Table]:
    """Return all tables of a report.

    Args:
        evidence: The rows.
        found: The published numbers beside ours.
    """
    return [
        main_table(evidence),
        cost_table(evidence),
        removal_table(evidence),
        scratch_table(evidence),
        variant_table(evidence),
        forgery_table(evidence),
        paper_table(evidence, found),
    ]


def main_table(evidence: Evidence) -> Table:
    """Return accuracy and evidence of every scheme on every setting.

    Args:
        evidence: The rows.
    """
    rows = []
    for setting in evidence.values("mark", "setting"):
        base = numbers(evidence.find("mark", setting=setting, scheme=BASE), "test_accuracy")
        for scheme in evidence.values("mark", "scheme"):
            found = evidence.find("mark", setting=setting, scheme=scheme)
            head = [Cell(setting), Cell(scheme)]
            if not found:
                rows.append([*head, *_refused(evidence, setting, scheme, 7)])
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
                    _interval(evidence, found, list(accuracy.values())),
                    _difference(evidence, found, apart, p),
                    _interval(evidence, found, list(numbers(found, "share").values())),
                    evidence.cell(
                        f"{median(bits.values()):.1f} ({min(bits.values()):.1f})",
                        found,
                        median(bits.values()),
                    ),
                    evidence.cell(f"{false} of {read}", found, false),
                    evidence.cell(f"{max(others.values()):.1f}", found, max(others.values())),
                ]
            )
    about = (
        f"{SEEDS} *To SS*: paired difference to training without a mark, in points, with the p-value of "
        "Student's paired test. *Bits*: median evidence (least). *False positives*: unmarked models with "
        "p ≤ 10⁻⁶. *Second owner*: most bits that another owner's key finds."
    )
    names = ("setting", "scheme", "seeds", "task accuracy, %", "to SS, points (p)", "WM-ACC, %")
    more = ("bits (least)", "false positives", "second owner, bits")
    return Table("main", "Main comparison", about, (*names, *more), rows)


def _refused(evidence: Evidence, setting: str, scheme: str, columns: int) -> list[Cell]:
    """Return dashes, the first with the reason why a scheme cannot serve a setting."""
    rows = [r for r in evidence.rows if (r.get("setting"), r.get("scheme")) == (setting, scheme)]
    reasons = list(dict.fromkeys(row.get("reason") for row in rows if row.get("reason")))
    first = evidence.cell(f"– {reasons[0]}" if reasons else "not run yet", rows)
    return [first, *[Cell("–")] * (columns - 1)]


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
        refused = {r.get("setting") for r in evidence.rows if r.get("scheme") == scheme and r.get("reason")}
        if not found:
            rows.append([Cell(scheme), *[Cell("–")] * 4, Cell(f"{len(refused)} of {len(settings)}")])
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
                Cell(f"{len(refused)} of {len(settings)}", (), float(len(refused))),
            ]
        )
    about = (
        "What the literature seldom reports. *Embedding*: processor time of the training relative to SS "
        "with the same seed, median and largest over settings and seeds. *Questions*: graphs that an audit "
        "shows to the model. *Refusals*: settings that the scheme cannot serve."
    )
    head = ("scheme", "embedding, ×", "most", "questions", "audit, ms", "refusals")
    return Table("cost", "Cost", about, head, rows, text=1)


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
            else [*map(Cell, (setting, scheme, change, thief)), *_refused(evidence, setting, scheme, 6)]
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
    shown = [_interval(evidence, found, list(part.values())) for part in (before, after)]
    note = next((row.get("note") for row in found if row.get("note")), "")
    left = f"{median(bits.values()):.1f} ({min(bits.values()):.1f})" if bits else f"not read: {note}"
    exact = not any("empirical" in row.get("null") for row in found)
    needed = NEEDED if exact else min(NEEDED, max(was.values()))
    return [
        evidence.cell(outcome(list(was.values()), list(bits.values()), worth, needed), both),
        *shown,
        _interval(evidence, scratch, list(numbers(scratch, "accuracy").values())),
        _difference(evidence, both, worth, None),
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
                rows.append([Cell(setting), Cell(thief), count, _interval(evidence, found, values)])
    about = f"{SEEDS} Accuracy of a model that a thief trains from scratch."
    head = ("setting", "thief has", "labels", "accuracy, %")
    return Table("scratch", "Training from scratch", about, head, rows)


def variant_table(evidence: Evidence) -> Table:
    """Return the ablations.

    Args:
        evidence: The rows.
    """
    rows = []
    for scheme in evidence.values("variant", "scheme"):
        for variant in evidence.values("variant", "variant"):
            found = evidence.find("variant", scheme=scheme, variant=variant)
            if not found:
                continue
            t, bits = numbers(found, "matches"), numbers(found, "bits")
            margins = numbers(found, "margin").values()
            rows.append(
                [
                    *map(Cell, (scheme, variant)),
                    evidence.cell(str(len(found)), found, len(found)),
                    _interval(evidence, found, list(numbers(found, "test_accuracy").values())),
                    _interval(evidence, found, list(numbers(found, "share").values())),
                    evidence.cell(f"{mean(t.values()):.1f}", found, mean(t.values())),
                    evidence.cell(found[0].get("tau"), found, float(found[0].get("tau"))),
                    evidence.cell(f"{median(bits.values()):.1f}", found, median(bits.values())),
                    evidence.cell(f"{mean(margins):.3f}" if margins else "", found),
                ]
            )
    about = (
        f"{SEEDS} *τ*: exact threshold for α = 10⁻⁶. *Margin*: least distance of an answer from one half."
    )
    head = ("scheme", "changed", "seeds", "task accuracy, %", "WM-ACC, %", "T", "τ", "bits", "margin")
    return Table("variants", "Ablations", about, head, rows)


def forgery_table(evidence: Evidence) -> Table:
    """Return what forgers reach.

    Args:
        evidence: The rows.
    """
    rows = []
    for scheme in evidence.values("forgery", "scheme"):
        for forgery in evidence.values("forgery", "forgery"):
            found = evidence.find("forgery", scheme=scheme, forgery=forgery)
            if not found:
                continue
            naive, real = ([float(row.get(name)) for row in found] for name in ("naive_bits", "bits"))
            passes, wins = (sum(int(row.get(n)) for row in found) for n in ("naive_passes", "succeeds"))
            refusal = next((row.get("refused") for row in found if row.get("refused")), "")
            rows.append(
                [
                    *map(Cell, (scheme, forgery)),
                    evidence.cell(f"{passes} of {len(found)}", found, passes),
                    evidence.cell(f"{max(naive):.1f}", found, max(naive)),
                    evidence.cell(f"{wins} of {len(found)}", found, wins),
                    evidence.cell("refused" if refusal else f"{max(real):.1f}", found, max(real)),
                ]
            )
    about = (
        "Claims on models that were never marked. *Naive*: the check that the forger wants to be made, and "
        "its largest evidence. *Accepted*: by the scheme's own rules at 10⁻⁶, all tries paid for."
    )
    head = ("scheme", "forgery", "passes the naive check", "naive bits", "accepted", "bits")
    return Table("forgeries", "Forgeries", about, head, rows)


def paper_table(evidence: Evidence, found: Sequence[Beside]) -> Table:
    """Return every published number beside ours.

    Args:
        evidence: The rows.
        found: The published numbers beside ours.
    """
    rows = []
    for one in found:
        said = one.published
        apart = one.difference
        digits = max(1, len(said.value.partition(".")[2]))
        limit = said.quantity == "Measured alpha"
        shown = "" if apart is None or limit else f"{apart:+.{digits}f}"
        cells = (said.table.removeprefix("tab:"), said.setting, said.variant, said.quantity, one.scheme)
        rows.append(
            [
                *map(Cell, cells),
                Cell(str(said), (), said.number),
                evidence.cell(one.shown, one.rows, one.ours),
                evidence.cell(shown, one.rows, apart),
            ]
        )
    about = (
        "Every number of the paper's tables. The paper's intervals are mean ± 1.96 s/√3, which cover 81 % "
        "over three seeds; ours are Student's. InvGNN-WM stands twice: with the published weight, and in "
        "the best form found here."
    )
    head = ("table", "setting", "changed", "quantity", "our row", "paper", "ours", "difference")
    return Table("paper", "Published numbers beside ours", about, head, rows, text=5)


def _interval(evidence: Evidence, rows: Sequence[Row], values: Sequence[float]) -> Cell:
    """Return a mean of shares with its interval, in percent."""
    if not values:
        return Cell("")
    interval = Interval.of(values)
    return evidence.cell(str(interval), rows, interval.mean)


def _difference(evidence: Evidence, rows: Sequence[Row], apart: Sequence[float], p: float | None) -> Cell:
    """Return a mean difference of shares with its interval, in points, and a p-value."""
    if not apart:
        return Cell("")
    interval = Interval.of(apart)
    width = "" if interval.half is None else f" ± {100 * interval.half:.1f}"
    told = "" if p is None else f" ({p:.2f})" if p >= 0.01 else " (< 0.01)"
    return evidence.cell(f"{100 * interval.mean:+.1f}{width}{told}", rows, interval.mean)
