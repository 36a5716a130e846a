"""Draw the figures of the robustness pages from the kept rows.

make robustness-figures
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, median

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from invgnn.bench.changes import change_names
from invgnn.bench.figures import figure_style, save_figure
from invgnn.bench.robustness_rows import (
    ACCESSES,
    NEEDED,
    REFRESH,
    RELEASED,
    SETTINGS,
    Index,
    accuracy_change,
    evidence,
    in_order,
    index,
    numbers,
)
from invgnn.storage.tables import read_rows

ROOT = Path(__file__).parents[1]
PATH = ROOT / "benchmarks" / "results" / "robustness.csv"
FIGURES = ROOT / "docs" / "results" / "figures"
COLOUR = {"embedding": "#0072b2", "logits": "#d55e00"}  # told apart by every kind of eye
MARK = {"embedding": "o", "logits": "^"}
MOST = 124.0  # bits that 128 carriers can give, rounded up
KILLSHOTS = ("channel scrub 40%", "zero last layer", "KD-kill", "FT-clean 20 epochs")
FAMILIES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "prune, round, add noise": ("#56b4e9", "o", ("prune", "8-", "4-", "fp16", "bf16", "noise", "re-est")),
    "permute, rescale, widen": ("#0072b2", "D", ("permute", "rescale", "idle")),
    "fine-tune": ("#e69f00", "s", ("fine-tune", "retrain", "FT-clean", "unscale weights")),
    "distil, extract": ("#d55e00", "v", ("distil", "extract", "KD-kill")),
    "scrub, zero": ("#000000", "X", ("channel scrub", "zero")),
    "overwrite, unlearn": ("#cc79a7", "P", ("overwrite", "unlearn")),
    "serve, refuse, collude": ("#009e73", "^", ("serve", "refuse", "average")),
}


def main() -> None:
    """Draw what has been measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=Path, default=PATH, help="results file")
    parser.add_argument("--to", type=Path, default=FIGURES, help="folder of the figures")
    parser.add_argument("--format", default="svg", choices=("svg", "png"))
    args = parser.parse_args()
    rows = read_rows(args.rows)
    found, changes = index(rows), in_order(rows, change_names())
    kinds = {r["change"]: r["kind"] for r in rows}
    with figure_style():
        drawn = {
            "edits": after_edits(found, [c for c in changes if kinds[c] != "attack"]),
            "heat": heat_map(found, changes, kinds),
            "cost": cost_scatter(found, changes),
            "killshots": killshots(found),
        }
        for name, figure in drawn.items():
            save_figure(figure, args.to / f"robustness-{name}.{args.format}")


# -- evidence after edits  --------------------------------------------------------------------------


def after_edits(found: Index, changes: Sequence[str]) -> Figure:
    """Draw a dot for every seed: the evidence that an edit leaves at each level."""
    figure = Figure(figsize=(11, 0.21 * len(changes) + 1.2), layout="constrained")
    axes = figure.subplots(1, len(SETTINGS), sharey=True, sharex=True)
    for ax, setting in zip(axes, SETTINGS, strict=True):
        for access, side in zip(ACCESSES, (-0.17, 0.17), strict=True):
            spots = [
                (b, y + side) for y, c in enumerate(changes) for b in evidence(found, setting, c, access)
            ]
            ax.plot(*_apart(spots), MARK[access], color=COLOUR[access], ms=3.6, alpha=0.8, lw=0)
        ax.axvspan(-4, NEEDED, color="0.92", lw=0, zorder=0)
        ax.set(title=setting, xlim=(-4, MOST + 6), xticks=(0, 20, 60, 100), xlabel="evidence, bits")
        ax.grid(axis="y", alpha=0.15)
    axes[0].set_yticks(range(len(changes)), map(_short, changes))
    axes[0].set_ylim(len(changes) - 0.4, -0.6)
    _key(figure, "one symbol for each seed; grey: fewer than 20 bits, not enough at α = 10⁻⁶")
    return figure


def _short(change: str) -> str:
    """Shorten the name of a chain of edits to its verbs."""
    links = change.split(" > ")
    return change if len(links) == 1 else " > ".join(link.split()[0] for link in links)


def _apart(spots: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in spots], [y for _, y in spots]


def _key(figure: Figure, words: str) -> None:
    """Add a legend of the levels above the panels."""
    handles = [
        mpl.lines.Line2D([], [], color=COLOUR[a], marker=MARK[a], lw=0, label=f"read at {a}")
        for a in ACCESSES
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=2, frameon=False, title=words)


# -- everything at a glance ------------------------------------------------------------------------


def heat_map(found: Index, changes: Sequence[str], kinds: dict[str, str]) -> Figure:
    """Draw the median evidence of every change at every level; pale where it is below 20 bits."""
    columns = [(s, a) for s in SETTINGS for a in ACCESSES if evidence(found, s, RELEASED, a)]
    bits = [[evidence(found, s, change, a) for s, a in columns] for change in changes]
    grid = np.array([[median(cell) if cell else np.nan for cell in row] for row in bits])
    figure = Figure(figsize=(9, 0.2 * len(changes) + 1.6), layout="constrained")
    ax = figure.add_subplot()
    colours = mpl.colormaps["cividis"].with_extremes(under="#f0e9e0", bad="white")
    ax.pcolormesh(grid, cmap=colours, vmin=NEEDED, vmax=MOST, edgecolors="white", linewidth=1)
    for (y, x), value in np.ndenumerate(grid):
        dark = NEEDED <= value < 75
        text = "·" if np.isnan(value) else f"{value:.0f}"
        ink = "white" if dark else "#9c2a00" if value < NEEDED else "black"
        ax.text(x + 0.5, y + 0.5, text, ha="center", va="center", fontsize=7, color=ink)
    for y in (1, 1 + sum(kinds[c] == "edit" for c in changes), len(changes) - (REFRESH in changes)):
        ax.axhline(y, color="black", lw=0.9)  # released | edits | attacks | refresh
    ax.set_yticks(np.arange(len(changes)) + 0.5, map(_short, changes), fontsize=7.5)
    labels = [f"{_two_lines(s)}\n{a}" for s, a in columns]
    ax.set_xticks(np.arange(len(columns)) + 0.5, labels, fontsize=8)
    ax.xaxis.tick_top()
    ax.tick_params(length=0)
    ax.grid(visible=False)
    ax.spines[:].set_visible(False)
    ax.set_ylim(len(changes), 0)
    legend = "median bits over seeds; pale: fewer than 20, removed at α = 10⁻⁶; ·: cannot be made or read"
    figure.suptitle(legend, fontsize=9)  # above: the figure is taller than a screen
    return figure


# -- evidence left against accuracy left -----------------------------------------------------------


def cost_scatter(found: Index, changes: Sequence[str]) -> Figure:
    """Draw evidence against accuracy, a point for every change, medians over seeds."""
    figure = Figure(figsize=(11, 5.2), layout="constrained")
    axes = figure.subplots(len(ACCESSES), len(SETTINGS), sharex=True, sharey=True)
    for (row, column), ax in np.ndenumerate(axes):
        _paid(ax, found, SETTINGS[column], ACCESSES[row], changes)
        if row == 0:
            ax.set_title(SETTINGS[column])
        if column == 0:
            ax.set_ylabel(f"bits left at {ACCESSES[row]}")
        if row == len(ACCESSES) - 1:
            ax.set_xlabel("change of accuracy, points")
    handles = [
        mpl.lines.Line2D([], [], color=colour, marker=marker, lw=0, label=name)
        for name, (colour, marker, _) in FAMILIES.items()
    ]
    words = (
        "medians over seeds; shaded and counted: changes that leave fewer than 20 bits for at most 2 points"
    )
    many = {"ncols": (len(FAMILIES) + 1) // 2, "frameon": False, "title": words}
    figure.legend(handles=handles, loc="outside upper center", **many)
    return figure


def _paid(ax: Axes, found: Index, setting: str, access: str, changes: Sequence[str]) -> None:
    cheap = 0
    for change in changes:
        bits, paid = evidence(found, setting, change, access), accuracy_change(found, setting, change)
        look = next((f for f in FAMILIES.values() if change.startswith(f[2])), None)
        if look and bits and paid is not None:
            cheap += median(bits) < NEEDED and paid >= -2
            ax.plot(paid, median(bits), look[1], color=look[0], ms=5, alpha=0.8, mec="white", mew=0.4)
    if not evidence(found, setting, RELEASED, access):
        ax.text(0.5, 0.5, _why_not(found, setting), transform=ax.transAxes, ha="center", color="0.5")
        ax.set_axis_off()
        return
    ax.set_xscale("symlog", linthresh=2)
    ax.set(xlim=(-110, 15), ylim=(-6, MOST + 6), yticks=(0, 20, 40, 80, 120))
    ax.set_xticks((-50, -10, -2, 0, 2, 10), ("−50", "−10", "−2", "0", "2", "10"), fontsize=8)
    ax.minorticks_off()
    ax.fill_between((-2, 15), -6, NEEDED, color="#f0e9e0", lw=0, zorder=0)
    ax.text(14, NEEDED + 9, f"{cheap} changes", fontsize=8, color="#9c2a00", ha="right")


# -- the paper's four attacks ----------------------------------------------------------------------


def killshots(found: Index) -> Figure:
    """Draw the share of matching bits before (grey) and after (coloured) four attacks."""
    figure = Figure(figsize=(11, 5), layout="constrained")
    axes = figure.subplots(len(ACCESSES), len(KILLSHOTS), sharey=True, sharex=True)
    for (row, column), ax in np.ndenumerate(axes):
        _before_and_after(ax, found, ACCESSES[row], KILLSHOTS[column])
        if row == 0:
            ax.set_title(KILLSHOTS[column])
        if column == 0:
            ax.set_ylabel(f"matching bits at {ACCESSES[row]}")
    figure.supxlabel(
        "grey: as released; dots: seeds; dashed: τ = 92 of 128 bits; numbers: change of accuracy in points",
        fontsize=9,
    )
    return figure


def _why_not(found: Index, setting: str) -> str:
    return "no hidden layer" if evidence(found, setting, RELEASED, "logits") else "not measured"


def _two_lines(setting: str) -> str:
    return setting.replace("/Graph", "/").replace("/", "\n")


def _before_and_after(ax: Axes, found: Index, access: str, change: str) -> None:
    for x, setting in enumerate(SETTINGS):
        for side, name, colour in ((-0.2, RELEASED, "0.75"), (0.2, change, COLOUR[access])):
            seen = numbers(found, setting, name, access, "wm_acc")
            if seen:
                ax.bar(x + side, mean(seen), 0.38, color=colour)
                ax.plot([x + side] * len(seen), seen, "o", color="black", ms=2, alpha=0.6)
        before, after = (numbers(found, setting, c, access, "wm_acc") for c in (RELEASED, change))
        paid = accuracy_change(found, setting, change)
        if after and paid is not None:
            ax.text(x, 1.06, f"{paid:+.1f}".replace("-", "−"), ha="center", fontsize=7.5)
        else:
            why = "cannot be made" if before else _why_not(found, setting)
            ax.text(x + 0.2 * bool(before), 0.03, why, rotation=90, ha="center", fontsize=7, color="0.4")
    ax.axhline(92 / 128, color="black", lw=0.8, ls="--")
    ax.set(xlim=(-0.6, len(SETTINGS) - 0.4), ylim=(0, 1.16))
    ax.set_yticks((0, 0.25, 0.5, 0.75, 1), ("0", "25 %", "50 %", "75 %", "100 %"))
    ax.set_xticks(range(len(SETTINGS)), map(_two_lines, SETTINGS), fontsize=8)
    ax.grid(axis="x", visible=False)


if __name__ == "__main__":
    main()
