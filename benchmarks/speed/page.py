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
APART = ("machine", "settings", "growth")
RETIRED = {"one extra step", "weight noise 0.3", "3 simulated steps", "noise 0.3 and 3 simulated steps"}
"""Settings that were measured and that `Recipe` does not have."""
ABSENT = " (not in Recipe)"


def summary(path: Path = PATH) -> str:
    """Return all tables: promises, settings of the embedding, and growth."""
    kept = read_measurements(path)
    machine = "; ".join(one.note for one in kept if one.row == "machine")
    return "\n\n".join(
        [
            f"Machine: {machine}.",
            "## Promises\n\n" + _promises(one for one in kept if one.row not in APART),
            "## Settings of the embedding\n\n" + _settings([one for one in kept if one.row == "settings"]),
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


def _settings(kept: list[Measurement]) -> str:
    rows = []
    for one in kept:
        bits, tuned, validation = one.note.split("; ")
        name = f"**{one.what}**" if one.what == "default" else one.what
        name += ABSENT * (one.what in RETIRED)
        rows.append([name, _measured(one), bits.split()[0], tuned.split()[0], validation.split()[1]])
    head = [
        "setting",
        "time relative to unmarked (quartiles)",
        "bits",
        "bits after fine-tuning",
        "validation",
    ]
    return table(head, rows)


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
    """Draw evidence against overhead, and growth."""
    kept = read_measurements(path)
    with figure_style():
        settings = _draw_settings([one for one in kept if one.row == "settings"])
        save_figure(settings, folder / "performance-settings.svg")
        save_figure(
            _draw_growth([one for one in kept if one.row == "growth"]), folder / "performance-growth.svg"
        )


def _draw_settings(kept: list[Measurement]) -> Figure:
    figure = Figure(figsize=(7.5, 4.2), layout="constrained")
    axes = figure.add_subplot()
    for label, place, marker in (("as trained", 0, "o"), ("fine-tuned, learning rate 0.01", 1, "s")):
        bits = [float(one.note.split("; ")[place].split()[0]) for one in kept]
        axes.scatter([one.value for one in kept], bits, marker=marker, label=label, zorder=3)
    names = []
    for number, one in enumerate(sorted(kept, key=lambda one: one.value), 1):  # names would overlap
        top, low = (float(part.split()[0]) for part in one.note.split("; ")[:2])
        axes.plot([one.value] * 2, [low, top], color="0.8", linewidth=1, zorder=1)
        weight = "bold" if one.what == "default" else "normal"
        place = {"xytext": (0, 6), "textcoords": "offset points", "ha": "center"}
        axes.annotate(str(number), (one.value, top), fontsize=9, weight=weight, **place)
        names.append(f"{number:>2}  {one.what}" + ABSENT * (one.what in RETIRED))
    axes.text(1.02, 1, "\n".join(names), transform=axes.transAxes, va="top", fontsize=9, linespacing=1.5)
    axes.set(xlabel="training time relative to the unmarked model", ylabel="evidence, bits", ylim=(-4, 140))
    axes.set_xlim(0.9, 1.05 * max(one.value for one in kept))
    axes.set_title("Evidence against training time: PROTEINS-GIN, one seed")
    axes.legend(loc="center right", frameon=False)
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
