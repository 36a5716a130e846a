"""The tables and figures of the cost pages."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

from matplotlib.figure import Figure

from invgnn.bench.figures import figure_style, save_figure
from invgnn.bench.markdown import table
from invgnn.bench.measurements import Measurement, read_measurements

ROOT = Path(__file__).parents[2]
PATH = ROOT / "benchmarks" / "results" / "speed.csv"
FIGURES = ROOT / "docs" / "results" / "figures"
APART = ("machine", "growth")
TRAININGS = ("training", "large", "own loops")
"""Parts that time whole trainings."""


def summary(path: Path = PATH) -> str:
    """Return all tables: promises, and growth."""
    kept = read_measurements(path)
    machine = "; ".join(one.note for one in kept if one.row == "machine")
    return "\n\n".join(
        [
            f"Machine: {machine}.",
            "## Promises\n\n" + _promises(one for one in kept if one.row not in APART),
            "## Growth\n\n" + _growth([one for one in kept if one.row == "growth"]),
        ]
    )


def _promises(kept: Iterable[Measurement]) -> str:
    rows = [
        [
            one.what,
            one.against or "–",
            one.note,
            _target(one),
            _measured(one),
            _number(one.wall, one),
            _held(one),
        ]
        for one in kept
    ]
    head = ["what", "compared with", "note", "promise", "measured (quartiles)", "wall clock", "holds"]
    return table(head, rows, text=3)


def _target(one: Measurement) -> str:
    unit = "×" if one.against else " s"
    return one.target.replace(">=", "≥").replace("<=", "≤") + unit if one.target else ""


def _number(value: float, one: Measurement) -> str:
    if math.isnan(value):
        return ""
    digits = f"{value:,.0f}" if value >= 100 else f"{value:.2f}" if value < 10 else f"{value:.1f}"
    return f"{digits}×" if one.against else f"{value:.3f} s"


def _measured(one: Measurement) -> str:
    return f"{_number(one.value, one)} ({_number(one.low, one)} to {_number(one.high, one)})"


def _held(one: Measurement) -> str:
    return {True: "yes", False: "**no**", None: ""}[one.held]


def _growth(kept: list[Measurement]) -> str:
    rows = []
    for what in dict.fromkeys(one.what for one in kept):
        sizes = [one for one in kept if one.what == what and one.against != "linear"]
        slope = next(one for one in kept if one.what == what and one.against == "linear")
        times = ", ".join(f"{int(one.against):,}: {one.value:.3g} s" for one in sizes)
        memory = ", ".join(one.note.split(" beyond")[0] for one in sizes)
        rows.append([what, times, memory, f"{slope.value:.2f}", _held(slope)])
    head = [
        "what",
        "seconds by size",
        "memory beyond program and data",
        "exponent (promise ≤ 1.1)",
        "holds",
    ]
    return table(head, rows, text=3)


# -- figures --------------------------------------------------------------------------------------


def draw_figures(folder: Path, path: Path = PATH) -> None:
    """Draw the cost of whole trainings, and growth."""
    kept = read_measurements(path)
    with figure_style():
        trainings = _draw_trainings([one for one in kept if one.row in TRAININGS])
        save_figure(trainings, folder / "cost-training.svg")
        save_figure(
            _draw_growth([one for one in kept if one.row == "growth"]), folder / "performance-growth.svg"
        )


def _draw_trainings(kept: list[Measurement]) -> Figure:
    figure = Figure(figsize=(7.5, 0.6 + 0.27 * len(kept)), layout="constrained")
    axes = figure.add_subplot()
    for place, one in enumerate(reversed(kept)):
        limit = float(one.target.split()[1])
        axes.barh(place, one.value - 1, left=1, height=0.6, color="C0" if one.held else "C3", zorder=2)
        axes.plot([limit] * 2, [place - 0.4, place + 0.4], color="0.2", linewidth=1.5, zorder=3)
        axes.text(max(one.value, limit) + 0.015, place, f"{one.value:.2f}×", va="center", fontsize=9)
    axes.set_yticks(range(len(kept)), [one.what for one in reversed(kept)])
    axes.set(xlabel="training time with a mark, relative to training without", xlim=(1, None))
    axes.set_title("Cost of a mark, end to end; the line is the promise")
    axes.margins(x=0.12)
    return figure


def _draw_growth(kept: list[Measurement]) -> Figure:
    figure = Figure(figsize=(7.5, 3.4), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    figure.get_layout_engine().set(wspace=0.08)  # the outer tick labels of the panels would touch
    labels = ("number of carriers m", "number of graphs")
    for axes, ending, label in zip(panels, ("by m", "by graphs"), labels, strict=True):
        for what in dict.fromkeys(one.what for one in kept if one.what.endswith(ending)):
            sizes = [one for one in kept if one.what == what and one.against != "linear"]
            x, y = [int(one.against) for one in sizes], [one.value for one in sizes]
            axes.loglog(x, y, "o-", label=what.removesuffix(f" {ending}"))
        if axes.lines:
            x = axes.lines[0].get_xdata()
            start = float(max(line.get_ydata()[0] for line in axes.lines)) * 1.6
            axes.loglog(x, [start * s / x[0] for s in x], ":", color="0.5", label="linear")
            axes.set_xticks(x, [f"{int(s):,}" for s in x])
            axes.minorticks_off()
        axes.set(xlabel=label)
        axes.legend(fontsize=8, frameon=False)
    panels[0].set_ylabel("processor time, seconds")
    return figure
