"""The figures of a report, as inline SVG and as files."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import mean, median

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from invgnn.audit.report.figures import INK, SOFT, STEM, VARIABLES, WRONG, draw
from invgnn.bench.intervals import paired
from invgnn.bench.report.evidence import BASE, Evidence, numbers
from invgnn.stats.evidence import GRINDING_BITS

NEEDED = 20.0
"""Bits that α = 10⁻⁶ requires."""
KILLSHOTS = ("channel scrub 40%", "zero last layer", "KD-kill", "FT-clean 20 epochs")
"""The paper's four targeted attacks."""
SHAPES = "osD^vPX*<>hp"
FILE_COLOURS = {INK: "#1c1e21", SOFT: "#6a7077", STEM: "#a9b1ba", WRONG: "#a3241b"}
"""Colours in files, which have no style sheet."""


@dataclass(frozen=True)
class Drawing:
    """A figure.

    Attributes:
        name: Name of its file.
        title: Its heading.
        caption: What it shows.
        svg: The figure for a page; empty if there are no rows for it.
    """

    name: str
    title: str
    caption: str
    svg: Markup

    def file(self) -> str:
        """Return the figure as an SVG file of its own."""
        text = str(self.svg)
        for colour, variable in VARIABLES.items():
            text = text.replace(variable, FILE_COLOURS[colour])
        return (
            text.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" ', 1)
            + "\n"
        )


def all_drawings(evidence: Evidence) -> list[Drawing]:
    """Return the figures for which there are rows.

    Args:
        evidence: The rows.
    """
    made = [removal_drawing(evidence), tradeoff_drawing(evidence)]
    made += [weight_drawing(evidence), killshot_drawing(evidence)]
    return [one for one in made if one.svg]


def removal_drawing(evidence: Evidence) -> Drawing:
    """Draw evidence left against what the changed model is worth, one panel for each thief.

    Args:
        evidence: The rows.
    """
    thieves, schemes = evidence.values("change", "thief"), evidence.values("change", "scheme")
    points: dict[str, list[tuple[str, float, float, str]]] = {thief: [] for thief in thieves}
    keys = dict.fromkeys(
        tuple(row.arguments[n] for n in ("setting", "scheme", "change", "thief"))
        for row in evidence.rows
        if row.measure == "change"
    )
    for setting, scheme, change, thief in keys:
        found = evidence.find("change", setting=setting, scheme=scheme, change=change, thief=thief)
        scratch = numbers(evidence.find("scratch", setting=setting, thief=thief), "accuracy")
        worth, bits = paired(numbers(found, "accuracy"), scratch), numbers(found, "bits")
        if worth and bits:
            points[thief].append((scheme, 100 * mean(worth), median(bits.values()), f"{setting} {change}"))
    said = "; ".join(
        f"{thief}: " + ", ".join(f"{s} {what} {x:+.1f} points {y:.0f} bits" for s, x, y, what in part)
        for thief, part in points.items()
        if part
    )

    def paint(figure: Figure) -> None:
        panels = figure.subplots(1, len(thieves), sharey=True, squeeze=False)[0]
        for ax, thief in zip(panels, thieves, strict=True):
            _limits(ax)
            ax.axvline(0, color=SOFT, lw=0.8)
            for scheme, x, y, _ in points[thief]:
                ax.plot(
                    x, y, SHAPES[schemes.index(scheme) % len(SHAPES)], ms=4, mfc="none", mec=INK, mew=0.8
                )
            ax.set_title(thief, fontsize=8)
            ax.tick_params(labelsize=7)
        panels[0].set_ylabel("evidence left, bits")
        figure.supxlabel("accuracy minus training from scratch, points", fontsize=8)
        marks = [
            panels[0].plot([], [], SHAPES[i % len(SHAPES)], ms=4, mfc="none", mec=INK)[0]
            for i in range(len(schemes))
        ]
        figure.legend(marks, schemes, loc="outside upper center", ncols=3, fontsize=7, frameon=False)

    any_points = any(points.values())
    svg = (
        draw("removal", 3.6, f"Evidence left and worth of the model by thief. {said}.", paint)
        if any_points
        else Markup()
    )
    caption = (
        "One point for every setting and change: medians and means over seeds. A mark is removed only in "
        "the lower right: fewer than 20 bits (dashed line), and worth more than training from scratch with "
        "the same data (vertical line). Panels: the share of the data that the thief has."
    )
    return Drawing("removal", "What removal costs, by what the thief has", caption, svg)


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
        ax = figure.add_subplot()
        _limits(ax)
        for number, (name, x, y) in enumerate(sorted(placed, key=lambda one: one[1])):
            ax.plot(x, y, "o", ms=4, mfc=INK, mec=INK)
            above = (4, (3, -9, 12)[number % 3])
            ax.annotate(name, (x, y), above, textcoords="offset points", fontsize=7, color=INK)
        ax.set(xlabel="accuracy minus that of SS, points", ylabel="evidence, bits")
        ax.margins(0.2)

    svg = draw("tradeoff", 3.2, f"Accuracy and evidence: {said}.", paint) if placed else Markup()
    caption = (
        "Mean paired difference of accuracy and median evidence, over all settings and seeds with rows."
    )
    return Drawing("tradeoff", "Evidence against accuracy", caption, svg)


def weight_drawing(evidence: Evidence) -> Drawing:
    """Draw task accuracy and right answers against the weight of the mark's loss.

    Args:
        evidence: The rows.
    """
    curves: dict[str, list[tuple[float, list[float], list[float]]]] = {}
    for scheme in evidence.values("variant", "scheme"):
        for variant in evidence.values("variant", "variant"):
            found = evidence.find("variant", scheme=scheme, variant=variant)
            if variant.startswith("beta=") and found:
                accuracy, right = (list(numbers(found, n).values()) for n in ("test_accuracy", "share"))
                weight = float(variant.removeprefix("beta="))
                curves.setdefault(scheme, []).append((weight, accuracy, right))

    def paint(figure: Figure) -> None:
        axes = figure.subplots(2, 1, sharex=True)
        for number, (scheme, points) in enumerate(curves.items()):
            at, *both = zip(*sorted(points), strict=True)
            for ax, found in zip(axes, both, strict=True):
                values = [[100 * v for v in one] for one in found]
                low, high = ([pick(v) for v in values] for pick in (min, max))
                ax.fill_between(at, low, high, color=STEM, alpha=0.3, lw=0)
                look = {"ms": 3.5, "lw": 1, "color": INK, "label": scheme}
                ax.plot(at, [mean(v) for v in values], f"{SHAPES[number]}-", **look)
        axes[0].set(ylabel="task accuracy, %", xscale="log")
        axes[1].set(ylabel="WM-ACC, %", xlabel="weight of the mark's loss")
        axes[0].legend(fontsize=7, frameon=False)

    said = "; ".join(
        f"{scheme}: " + ", ".join(f"{100 * mean(p[2]):.0f} % at {p[0]:g}" for p in points)
        for scheme, points in curves.items()
    )
    svg = (
        draw("weights", 4.0, f"Accuracy and right answers by weight. {said}.", paint)
        if curves
        else Markup()
    )
    caption = "Imperceptibility, as in the paper's figure: mean over seeds, band from least to most."
    return Drawing("weights", "Accuracy and mark by its weight", caption, svg)


def killshot_drawing(evidence: Evidence) -> Drawing:
    """Draw the share of right answers after the paper's four attacks, for every scheme.

    Args:
        evidence: The rows.
    """
    schemes = evidence.values("change", "scheme")
    bars: dict[str, dict[str, float]] = {}
    for change in KILLSHOTS:
        for scheme in schemes:
            found = evidence.find("change", change=change, scheme=scheme, thief="100%")
            shares = [int(r.get("matches")) / int(r.get("asked")) for r in found if r.get("asked")]
            if shares:
                bars.setdefault(change, {})[scheme] = 100 * mean(shares)

    def paint(figure: Figure) -> None:
        ax = figure.add_subplot()
        width = 0.8 / len(schemes)
        for number, scheme in enumerate(schemes):
            at = [i + number * width for i, change in enumerate(bars) if scheme in bars[change]]
            tall = [bars[change][scheme] for change in bars if scheme in bars[change]]
            ax.bar(
                at,
                tall,
                width,
                color=(STEM, SOFT, INK)[number % 3],
                label=scheme,
                edgecolor="white",
                lw=0.5,
            )
        ax.axhline(50, color=SOFT, lw=0.8, ls="--")
        ax.set(ylabel="WM-ACC after, %", ylim=(0, 119))
        ax.set_xticks([i + 0.4 - width / 2 for i in range(len(bars))], list(bars), fontsize=7)
        ax.legend(fontsize=6, frameon=False, ncols=4, loc="upper center")

    said = "; ".join(
        f"{c}: " + ", ".join(f"{s} {v:.0f} %" for s, v in part.items()) for c, part in bars.items()
    )
    svg = draw("killshots", 3.0, f"Right answers after four attacks. {said}.", paint) if bars else Markup()
    caption = (
        "The paper's four attacks by a thief with all of the data: mean share of right answers over "
        "settings and seeds. The dashed line is chance for schemes with bits."
    )
    return Drawing("killshots", "Four targeted attacks", caption, svg)


def _limits(ax: Axes) -> None:
    """Draw the lines of 20 and 80 bits."""
    for bits, dashes in ((NEEDED, "--"), (GRINDING_BITS, ":")):
        ax.axhline(bits, color=SOFT, lw=0.8, ls=dashes)


def heat(bits: float | None) -> str:
    """Return how strong evidence is, as a step from 0 (none) to 6 (far beyond search).

    Args:
        bits: Evidence in bits; None if it was not read.
    """
    if bits is None or math.isnan(bits):
        return "none"
    return str(sum(bits >= limit for limit in (5, 10, 20, 40, 80, 120)))
