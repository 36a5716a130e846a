"""Draw figures as inline SVG: own text and numbers only, no global state, the same bytes every time."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from html import escape
from io import StringIO
from threading import Lock
from typing import Any

import matplotlib as mpl
import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from invgnn.audit.report.layout import place
from invgnn.audit.verdict import Verdict
from invgnn.graphs.disjoint_union import Bools, Floats, Graphs, Ints

WIDTH = 4.2  # inches; with 9-point text a figure can be read at phone width
DRAWN, LARGEST = 8, 150  # carriers drawn, and the most nodes a drawing is still readable with
SETTINGS = Lock()  # matplotlib has one set of settings for all threads
STEMS = 300  # beyond that the eye sees a surface anyway

# Stand-ins, replaced by the page's own variables so that figures follow light, dark and print.
INK, SOFT, STEM, WRONG = "#010101", "#020202", "#030303", "#040404"
VARIABLES = {INK: "var(--ink)", SOFT: "var(--soft)", STEM: "var(--stem)", WRONG: "var(--wrong)"}

STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.labelsize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.unicode_minus": True,
    "path.simplify": False,  # it would drop stems
    "svg.fonttype": "none",  # text stays text: small, sharp, read aloud and searched
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": SOFT,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
}


def draw_law(verdict: Verdict) -> Markup:
    """Draw the distribution of the match count for an unrelated suspect, with the count found.

    Args:
        verdict: The verdict.

    Returns:
        The figure, with lines at the matches found and at the threshold.
    """
    counts, heights = matches_law(verdict.m, verdict.ones)
    step = -(-len(counts) // STEMS)
    floor = 1.08 * min(float(heights.min()), -1.0)
    label = (
        f"Probability of each match count from {counts[0]} to {counts[-1]} on a logarithmic scale, "
        f"highest near {verdict.m // 2}; lines at T = {verdict.matches} and tau = {verdict.threshold}."
    )

    def paint(figure: Figure) -> None:
        ax = figure.add_subplot()
        _stems(ax, counts[::step], heights[::step], floor)
        ax.set(xlim=(-0.02 * verdict.m, 1.02 * verdict.m), ylim=(floor, 0))
        ax.set(xlabel=f"T, matching bits of {verdict.m}", ylabel="log₁₀ probability")
        _mark(ax, verdict.matches, f"T = {verdict.matches}", 2, "-")
        if verdict.threshold <= verdict.m:
            _mark(ax, verdict.threshold, f"τ = {verdict.threshold}", 13, "--")

    return draw("law", 2.6, label, paint)


def draw_controls(verdict: Verdict) -> Markup:
    """Draw the match counts of the unmarked controls, which are the null of a plain mark.

    Args:
        verdict: The verdict on a plain mark, with controls.

    Returns:
        The figure, with a line at the matches found.
    """
    found = np.array([control["matches"] for control in verdict.controls])
    counts, often = np.unique(found, return_counts=True)
    label = (
        f"Match counts of {len(found)} unmarked models, from {counts[0]} to {counts[-1]}; "
        f"line at T = {verdict.matches}."
    )

    def paint(figure: Figure) -> None:
        ax = figure.add_subplot()
        _stems(ax, counts, often.astype(np.float64), 0.0, width=2.5)
        ax.set(xlim=(-0.02 * verdict.m, 1.02 * verdict.m), ylim=(0, 1.1 * often.max()))
        ax.set(xlabel=f"T, matching bits of {verdict.m}", ylabel="unmarked models")
        ax.yaxis.set_major_locator(MaxNLocator(integer=True))
        _mark(ax, verdict.matches, f"T = {verdict.matches}", 2, "-")

    return draw("controls", 2.2, label, paint)


def draw_answers(answers: Floats, bits: Ints, right: Bools, threshold: float, relative: bool) -> Markup:
    """Draw every answer in the row of its carrier's bit, mismatches as crosses.

    Args:
        answers: The answer to each carrier.
        bits: The bit of each carrier.
        right: Whether each answer matches the bit.
        threshold: Answers above it are decoded as 1.
        relative: Whether the answers are standardised.

    Returns:
        The figure.
    """
    # A golden-ratio sequence spreads neighbours apart as well as chance would, and always alike.
    height = bits + 0.6 * ((np.arange(len(bits)) * 0.618034) % 1 - 0.5)
    label = (
        f"Answers on {int((bits == 0).sum())} carriers of bit 0 and {int(bits.sum())} of bit 1; "
        f"{int((~right).sum())} do not match."
    )

    name = "standardised answer" if relative else "answer"

    def paint(figure: Figure) -> None:
        ax = figure.add_subplot()
        ax.axvline(threshold, color=SOFT, lw=0.8, ls="--")
        ax.plot(answers[right], height[right], "o", color=INK, ms=2.6, mew=0)
        ax.plot(answers[~right], height[~right], "x", color=WRONG, ms=4.5, mew=1.2)
        ax.set(ylim=(-0.5, 1.5), yticks=(0, 1), yticklabels=("bit 0", "bit 1"), xlabel=name)
        ax.tick_params(axis="y", length=0)
        ax.ticklabel_format(axis="x", useOffset=False)

    return draw("answers", 2.2, label, paint)


def draw_carriers(carriers: Graphs, bits: Ints) -> tuple[Markup, list[int]]:
    """Draw the first carriers that are small enough.

    Args:
        carriers: All carriers.
        bits: The bit of each carrier.

    Returns:
        The figure, and the indices of the carriers in it.
    """
    chosen = [int(k) for k in np.flatnonzero(carriers.sizes <= LARGEST)[:DRAWN]]
    sizes = ", ".join(f"carrier {k + 1} with {carriers.sizes[k]} nodes" for k in chosen)

    def paint(figure: Figure) -> None:
        for spot, k in enumerate(chosen):
            ax = figure.add_subplot(-(-len(chosen) // 4), 4, spot + 1)
            ax.set_axis_off()
            ax.set_aspect("equal", adjustable="datalim")
            ax.set_title(f"{k + 1}: bit {bits[k]}", fontsize=8)
            _graph(ax, carriers.take([k]))

    height = 1.25 * max(1, -(-len(chosen) // 4))
    return draw("carriers", height, f"Drawings of carriers: {sizes}.", paint), chosen


def matches_law(m: int, ones: int) -> tuple[Ints, Floats]:
    """Return the exact distribution of the match count under a random balanced key.

    Args:
        m: Number of carriers.
        ones: Number of answers decoded as 1.

    Returns:
        Every possible match count, and log10 of its probability.
    """
    half = m // 2
    hits = range(max(0, ones - half), min(half, ones) + 1)
    ways = [math.comb(half, x) * math.comb(half, ones - x) for x in hits]
    total = math.log10(math.comb(m, ones))
    counts = 2 * np.array(hits, dtype=np.int64) + half - ones
    return counts, np.array([math.log10(way) - total for way in ways])


def _graph(ax: Axes, graph: Graphs) -> None:
    """Draw one graph."""
    at = place(graph)
    ends = np.full((len(graph.edges), 3, 2), np.nan)
    ends[:, :2] = at[graph.edges]
    ax.plot(*ends.reshape(-1, 2).T, color=SOFT, lw=0.7)
    ax.plot(*at.T, "o", color=INK, ms=2.4, mew=0)
    ax.margins(0.12)


def _stems(ax: Axes, x: Ints, top: Floats, floor: float, width: float = 0.9) -> None:
    """Draw vertical lines as one path: hundreds of separate paths would make a large file."""
    ends = np.full((len(x), 3, 2), np.nan)
    ends[:, :2, 0] = x[:, None]
    ends[:, 0, 1], ends[:, 1, 1] = floor, top
    ax.plot(*ends.reshape(-1, 2).T, color=STEM, lw=width, solid_capstyle="butt")


def _mark(ax: Axes, x: int, text: str, above: int, dashes: str) -> None:
    """Draw a vertical line, with its name `above` points above the axes."""
    ax.axvline(x, color=INK, lw=1.2, ls=dashes)
    left, right = ax.get_xlim()
    side = "right" if x > left + 0.9 * (right - left) else "center"
    ax.annotate(
        text,
        (x, 1),
        (0, above),
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
        ha=side,
        va="bottom",
    )


def draw(name: str, height: float, label: str, paint: Callable[[Figure], None]) -> Markup:
    """Return a figure as inline SVG with a label for screen readers.

    Args:
        name: Name of the figure, unique within a page.
        height: Height in inches.
        label: Description for readers who cannot see the figure.
        paint: Function that draws on the empty figure.

    Returns:
        The SVG element.
    """
    with SETTINGS, mpl.rc_context():
        mpl.rcdefaults()  # whatever the user's own settings are
        mpl.rcParams.update(STYLE | {"svg.hashsalt": name})
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        paint(figure)
        file = StringIO()
        figure.savefig(
            file,
            format="svg",
            transparent=True,
            metadata={"Date": None, "Creator": None, "Format": None, "Type": None},
        )
    return _inline(file.getvalue(), label)


def _inline(svg: str, label: str) -> Markup:
    """Return the SVG element alone, without prolog, stylesheet and ids that could clash within a page."""
    head, body = re.split(r"(?<=>)", svg[svg.index("<svg") :], maxsplit=1)
    box = re.search(r'viewBox="[^"]+"', head)
    if box is None:
        raise AssertionError("matplotlib wrote an SVG without a viewBox")
    body = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", body, count=1, flags=re.DOTALL)
    for clutter in (r' id="[\w.]+_\d+"', r' transform="rotate\(-0 [^"]*"', r"font-family: [^;]+; "):
        body = re.sub(clutter, "", body)
    body = re.sub(r"\s+", " ", body)
    for colour, variable in VARIABLES.items():
        body = body.replace(colour, variable)
    return Markup(f'<svg {box[0]} role="img" aria-label="{escape(label)}">{body}')  # noqa: S704 - our own text
