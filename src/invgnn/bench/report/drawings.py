"""The figures of the main comparison and of removal."""

from __future__ import annotations

from statistics import mean, median

from markupsafe import Markup
from matplotlib.figure import Figure

from invgnn.audit.report.figures import INK, SOFT, STEM, draw
from invgnn.bench.intervals import paired
from invgnn.bench.report.attacked import Attacked, attacked, best_removal
from invgnn.bench.report.curves import (
    robustness_drawing,
    search_drawing,
    sensitivity_drawing,
    weight_drawing,
)
from invgnn.bench.report.drawing import NEEDED, Drawing, limits, shape
from invgnn.bench.report.evidence import BASE, Evidence, numbers
from invgnn.bench.trials.thieves import FRESH, SHARES, THIEVES
from invgnn.stats.evidence import GRINDING_BITS

KILLSHOTS = ("channel scrub 40%", "zero last layer", "KD-kill", "FT-clean 20 epochs")
"""The paper's four targeted attacks."""
MOST = 128
"""Largest number of bits in the figure of all attacks."""
HOLDINGS = {thief: f"{thief} of the data" for thief in SHARES} | {FRESH: "fresh data"}
"""What thieves have, in titles."""


def all_drawings(evidence: Evidence) -> list[Drawing]:
    """Return the figures for which there are rows, the most important one first.

    Args:
        evidence: The rows.
    """
    made = [removal_drawing(evidence), attack_drawing(evidence), tradeoff_drawing(evidence)]
    made += [robustness_drawing(evidence), killshot_drawing(evidence), weight_drawing(evidence)]
    made += [sensitivity_drawing(evidence), search_drawing(evidence)]
    return [one for one in made if one.svg]


def removal_drawing(evidence: Evidence) -> Drawing:
    """Draw what the best removal is worth to each thief: the headline of the report.

    Args:
        evidence: The rows.
    """
    found = [one for one in attacked(evidence) if one.shown]
    schemes = [s for s in evidence.values("change", "scheme") if any(one.scheme == s for one in found)]
    thieves = [t for t in THIEVES if any(one.thief == t for one in found)]
    settings = [s for s in evidence.values("change", "setting") if any(one.setting == s for one in found)]
    tried: dict[tuple[str, str, str], list[Attacked]] = {}
    for one in found:
        tried.setdefault((one.thief, one.scheme, one.setting), []).append(one)
    best = {key: best_removal(part) for key, part in tried.items()}
    said = "; ".join(
        f"{thief}, {scheme}, {setting}: "
        + ("nothing removes it" if one is None else f"{one.worth:+.1f} points by {one.change}")
        for (thief, scheme, setting), one in best.items()
    )

    def paint(figure: Figure) -> None:
        columns = min(2, len(thieves))
        grid = figure.subplots(
            -(-len(thieves) // columns), columns, sharex=True, sharey=True, squeeze=False
        )
        panels = [ax for line in grid for ax in line]
        values = [one.worth for one in best.values() if one is not None]
        low, high = min([*values, -5.0]) - 3, max([*values, 5.0]) + 3
        for ax in panels[len(thieves) :]:
            ax.set_visible(False)
        for ax, thief in zip(panels, thieves, strict=False):
            ax.axvspan(0, high, color=STEM, alpha=0.25, lw=0)
            ax.axvline(0, color=SOFT, lw=0.8)
            for row, scheme in enumerate(schemes):
                ax.axhline(row, color=SOFT, lw=0.3, alpha=0.5)
                for number, setting in enumerate(settings):
                    if (thief, scheme, setting) not in best:
                        continue
                    one = best[thief, scheme, setting]
                    look = {"ms": 4.5, "mec": INK, "mew": 0.8, "ls": "none"}
                    if one is None:
                        ax.plot(low + 1.5 + 2 * number, row, shape(number), mfc="none", **look)
                    else:
                        ax.plot(one.worth, row, shape(number), mfc=INK, **look)
            ax.set_title(f"thief has {HOLDINGS[thief]}", fontsize=8)
            ax.set(xlim=(low, high), ylim=(len(schemes) - 0.5, -0.5))
            ax.set_yticks(range(len(schemes)), schemes, fontsize=7)
            ax.tick_params(axis="x", labelsize=7)
        figure.supxlabel("worth of the best model without the mark, points", fontsize=8)
        marks = [
            panels[0].plot([], [], shape(i), ms=4.5, mfc=INK, mec=INK, ls="none")[0]
            for i in range(len(settings))
        ]
        figure.legend(marks, settings, loc="outside upper center", ncols=2, fontsize=7, frameon=False)

    height = 1.1 + 0.24 * len(schemes) * (-(-len(thieves) // 2))
    label = f"Worth of the best model without the mark, compared with training from scratch. {said}."
    svg = draw("removal", height, label, paint) if best else Markup()
    caption = (
        "Of all edits and attacks after which the mark does not show any more, the one that leaves the "
        "best model: its accuracy minus that of a model trained from scratch with the same data. Right of "
        "zero (grey) the thief has gained, and the mark is removed. Left of zero, training anew would have "
        "given a better model. Hollow, at the left edge: nothing that was tried removes the mark. Edits "
        "that need no labels count for every thief."
    )
    return Drawing("removal", "What removing a mark is worth", caption, svg)


def attack_drawing(evidence: Evidence) -> Drawing:
    """Draw evidence left against what the changed model is worth, one panel for each thief.

    Args:
        evidence: The rows.
    """
    found = attacked(evidence)
    schemes = evidence.values("change", "scheme")
    thieves = [thief for thief in THIEVES if any(one.thief == thief for one in found)]

    def paint(figure: Figure) -> None:
        columns = min(2, len(thieves))
        grid = figure.subplots(
            -(-len(thieves) // columns), columns, sharex=True, sharey=True, squeeze=False
        )
        panels = [ax for line in grid for ax in line]
        for ax in panels[len(thieves) :]:
            ax.set_visible(False)
        for ax, thief in zip(panels, thieves, strict=False):
            limits(ax)
            ax.axvline(0, color=SOFT, lw=0.8)
            for one in found:
                if one.thief == thief:
                    mark = shape(schemes.index(one.scheme))
                    ax.plot(one.worth, min(one.bits, MOST), mark, ms=3.5, mfc="none", mec=INK, mew=0.7)
            ax.set_title(f"thief has {HOLDINGS[thief]}", fontsize=8)
            ax.tick_params(labelsize=7)
        figure.supylabel("evidence left, bits", fontsize=8)
        figure.supxlabel("accuracy minus training from scratch, points", fontsize=8)
        marks = [
            panels[0].plot([], [], shape(i), ms=4, mfc="none", mec=INK, ls="none")[0]
            for i in range(len(schemes))
        ]
        figure.legend(marks, schemes, loc="outside upper center", ncols=3, fontsize=7, frameon=False)

    said = f"{len(found)} points, one for each setting, scheme, change and thief; the table has them all"
    svg = (
        draw("attacks", 4.4, f"Evidence left and worth of the model. {said}.", paint) if found else Markup()
    )
    caption = (
        "Every edit and attack: medians and means over seeds. A mark is removed only in the lower right: "
        "fewer than 20 bits (dashed line), and worth more than training from scratch with the same data "
        f"(vertical line). Dotted line: 80 bits. More than {MOST} bits are drawn at {MOST}."
    )
    return Drawing("attacks", "Every edit and attack", caption, svg)


def tradeoff_drawing(evidence: Evidence) -> Drawing:
    """Draw the evidence of every scheme against its difference to SS in accuracy, over all settings.

    Args:
        evidence: The rows.
    """
    placed = []
    for scheme in evidence.values("mark", "scheme"):
        apart: list[float] = []
        bits: list[float] = []
        for setting in evidence.values("mark", "setting"):
            found = evidence.find("mark", setting=setting, scheme=scheme)
            base = numbers(evidence.find("mark", setting=setting, scheme=BASE), "test_accuracy")
            apart += paired(numbers(found, "test_accuracy"), base)
            bits += numbers(found, "bits").values()
        if apart and bits:
            placed.append((scheme, 100 * mean(apart), median(bits)))
    said = ", ".join(f"{name} {x:+.1f} points and {y:.1f} bits" for name, x, y in placed)

    def paint(figure: Figure) -> None:
        left, right = figure.subplots(1, 2, sharey=True)
        left.axvline(0, color=SOFT, lw=0.8)
        for bits, dashes in ((NEEDED, "--"), (GRINDING_BITS, ":")):
            right.axvline(bits, color=SOFT, lw=0.8, ls=dashes)
        for row, (_, apart, bits) in enumerate(placed):
            for ax, value in ((left, apart), (right, bits)):
                ax.axhline(row, color=SOFT, lw=0.3, alpha=0.5)
                ax.plot(value, row, "o", ms=4, mfc=INK, mec=INK)
        left.set_yticks(range(len(placed)), [name for name, *_ in placed], fontsize=7)
        left.set_ylim(len(placed) - 0.5, -0.5)
        left.set_xlabel("accuracy minus SS, points", fontsize=8)
        right.set_xlabel("evidence, bits", fontsize=8)
        for ax in (left, right):
            ax.tick_params(axis="x", labelsize=7)
            ax.margins(x=0.1)

    svg = (
        draw("tradeoff", 0.9 + 0.24 * len(placed), f"Accuracy and evidence: {said}.", paint)
        if placed
        else Markup()
    )
    caption = (
        "Mean paired difference of accuracy and median evidence, over all settings and seeds with rows. "
        "Lines: 20 bits (dashed) and 80 bits (dotted)."
    )
    return Drawing("tradeoff", "Evidence against accuracy", caption, svg)


def killshot_drawing(evidence: Evidence) -> Drawing:
    """Draw the share of right answers before and after the paper's four attacks, for every scheme.

    Args:
        evidence: The rows.
    """
    schemes = evidence.values("change", "scheme")
    pairs: dict[str, dict[str, tuple[float, float]]] = {}
    for change in KILLSHOTS:
        for scheme in schemes:
            found = evidence.find("change", change=change, scheme=scheme, thief="100%")
            asked = [r for r in found if r.get("asked") and r.get("matches_before")]
            before, after = (
                [100 * int(r.get(name)) / int(r.get("asked")) for r in asked]
                for name in ("matches_before", "matches")
            )
            if asked:
                pairs.setdefault(change, {})[scheme] = mean(before), mean(after)
    schemes = [scheme for scheme in schemes if any(scheme in part for part in pairs.values())]

    def paint(figure: Figure) -> None:
        columns = min(2, len(pairs))
        grid = figure.subplots(-(-len(pairs) // columns), columns, sharex=True, sharey=True, squeeze=False)
        panels = [ax for line in grid for ax in line]
        for ax in panels[len(pairs) :]:
            ax.set_visible(False)
        for ax, (change, part) in zip(panels, pairs.items(), strict=False):
            ax.axvline(50, color=SOFT, lw=0.8, ls="--")
            for row, scheme in enumerate(schemes):
                if scheme in part:
                    before, after = part[scheme]
                    ax.barh(row, before, 0.75, color=STEM, alpha=0.6, lw=0)
                    ax.barh(row, after, 0.4, color=INK, lw=0)
            ax.set_title(change, fontsize=8)
            ax.set(xlim=(0, 100), ylim=(len(schemes) - 0.5, -0.5))
            ax.set_yticks(range(len(schemes)), schemes, fontsize=7)
            ax.tick_params(axis="x", labelsize=7)
        figure.supxlabel("WM-ACC, %", fontsize=8)

    said = "; ".join(
        f"{c}: " + ", ".join(f"{s} {b:.0f} to {a:.0f} %" for s, (b, a) in part.items())
        for c, part in pairs.items()
    )
    height = 0.8 + 0.22 * len(schemes) * (-(-len(pairs) // 2))
    label = f"Right answers before and after four attacks. {said}."
    svg = draw("killshots", height, label, paint) if pairs else Markup()
    caption = (
        "The paper's four attacks by a thief with all of the data: mean share of right answers before "
        "(wide, grey) and after (narrow, dark), over settings and seeds. The dashed line is chance for "
        "schemes with bits."
    )
    return Drawing("killshots", "Four targeted attacks", caption, svg)
