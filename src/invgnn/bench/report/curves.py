"""The figures that follow the paper's: robustness, weight, sensitivity, forgers."""

from __future__ import annotations

from statistics import mean, median

from markupsafe import Markup
from matplotlib.figure import Figure

from invgnn.audit.report.figures import INK, SOFT, STEM, draw
from invgnn.bench.report.beside import BEST, LITERAL
from invgnn.bench.report.drawing import NEEDED, Drawing, limits, shape
from invgnn.bench.report.evidence import Evidence, numbers
from invgnn.bench.trials.sensitivity import BANDS

EDITS = (
    *("prune 20%", "prune 40%", "prune 50%", "FT-clean 20 epochs", "distil, 50% soft targets"),
    *("8-bit", "4-bit"),
)
"""The edits of the paper's figure of robustness; its last is the owner's refresh."""
REFRESH = "KD+WM"
PROTEINS = "PROTEINS/GIN"
"""The setting of the paper's figures."""


def robustness_drawing(evidence: Evidence) -> Drawing:
    """Draw right answers under the edits of the paper's figure, for its scheme and ours.

    Args:
        evidence: The rows.
    """
    settings = evidence.values("change", "setting")
    setting = PROTEINS if PROTEINS in settings else next(iter(settings), "")
    curves: dict[str, dict[str, list[float]]] = {}
    for scheme in (LITERAL, BEST, "ours"):
        where = {"setting": setting, "scheme": scheme}
        for edit in (*EDITS, REFRESH):
            rows = (
                evidence.find("refresh", **where)
                if edit == REFRESH
                else evidence.find("change", change=edit, thief="100%", **where)
            )
            if shares := [100 * one for one in numbers(rows, "share").values()]:
                curves.setdefault(scheme, {})[edit] = shares
    edits = [edit for edit in (*EDITS, REFRESH) if any(edit in part for part in curves.values())]

    def paint(figure: Figure) -> None:
        ax = figure.add_subplot()
        ax.axvline(50, color=SOFT, lw=0.8, ls="--")
        for number, (scheme, part) in enumerate(curves.items()):
            for row, edit in enumerate(edits):
                at = row + 0.22 * (number - (len(curves) - 1) / 2)
                if edit in part:
                    ax.plot([min(part[edit]), max(part[edit])], [at, at], color=SOFT, lw=1)
                    fill = (INK, "none", STEM)[number % 3]
                    ax.plot(mean(part[edit]), at, shape(number), ms=4.5, mfc=fill, mec=INK, mew=0.8)
            fill = (INK, "none", STEM)[number % 3]
            ax.plot([], [], shape(number), ms=4.5, mfc=fill, mec=INK, ls="none", label=scheme)
        ax.set_yticks(range(len(edits)), edits, fontsize=7)
        ax.set(xlabel="WM-ACC, %", ylim=(len(edits) - 0.5, -0.5), xlim=(None, 101))
        figure.legend(loc="outside upper center", ncols=2, fontsize=7, frameon=False)

    said = "; ".join(
        f"{scheme}: " + ", ".join(f"{edit} {mean(v):.0f} %" for edit, v in part.items())
        for scheme, part in curves.items()
    )
    label = f"Right answers under edits on {setting}. {said}."
    svg = draw("robustness", 1.0 + 0.34 * len(edits), label, paint) if curves else Markup()
    caption = (
        f"Right answers after the edits of the paper's figure, by somebody with all of the training data, "
        f"on {setting}: mean over seeds, line from least to most. KD+WM is the owner's refresh."
    )
    return Drawing("robustness", "Robustness under edits", caption, svg)


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
        axes = figure.subplots(3, 1, height_ratios=(1, 1, 1.4))
        axes[1].sharex(axes[0])
        for number, (scheme, points) in enumerate(curves.items()):
            at, *both = zip(*sorted(points), strict=True)
            look = {"ms": 3.5, "lw": 1, "color": INK, "mfc": (INK, "none")[number % 2], "label": scheme}
            middle = [[100 * mean(v) for v in found] for found in both]
            for ax, found, values in zip(axes, both, middle, strict=False):
                low, high = ([100 * pick(v) for v in found] for pick in (min, max))
                ax.fill_between(at, low, high, color=STEM, alpha=0.3, lw=0)
                ax.plot(at, values, f"{shape(number)}-", **look)
            axes[2].plot(middle[1], middle[0], f"{shape(number)}-", **look)
        axes[0].set(ylabel="task, %", xscale="log")
        axes[1].set(ylabel="WM-ACC, %", xlabel="weight of the mark's loss")
        axes[2].set(ylabel="task, %", xlabel="WM-ACC, %")
        handles, names = axes[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside upper center", ncols=2, fontsize=7, frameon=False)

    said = "; ".join(
        f"{scheme}: " + ", ".join(f"{100 * mean(p[2]):.0f} % at {p[0]:g}" for p in points)
        for scheme, points in curves.items()
    )
    svg = (
        draw("weights", 5.2, f"Accuracy and right answers by weight. {said}.", paint)
        if curves
        else Markup()
    )
    caption = (
        "Imperceptibility: task accuracy and right answers by the weight of the mark's loss, mean over "
        "seeds, band from least to most. Below, the Pareto view of the same models: one against the other."
    )
    return Drawing("weights", "Accuracy and mark by its weight", caption, svg)


def sensitivity_drawing(evidence: Evidence) -> Drawing:
    """Draw right answers against the change of the invariant, and by band.

    Args:
        evidence: The rows.
    """
    curves: dict[str, list[tuple[float, float]]] = {}
    shares: dict[str, list[float | None]] = {}
    for scheme in evidence.values("sensitivity", "scheme"):
        every = evidence.find("sensitivity", scheme=scheme)
        for level in evidence.values("sensitivity", "level"):
            found = [row for row in every if row.get("level") == level]
            if found:
                right = sum(int(r.get("matches")) for r in found) / sum(int(r.get("asked")) for r in found)
                change = mean(float(row.get("change")) for row in found)
                curves.setdefault(scheme, []).append((change, 100 * right))
        for band in BANDS:
            count, right = (sum(int(r.get(f"{band}_{n}")) for r in every) for n in ("count", "right"))
            shares.setdefault(scheme, []).append(100 * right / count if count else None)

    def paint(figure: Figure) -> None:
        left, ax = figure.subplots(1, 2, sharey=True)
        for one in (left, ax):
            one.axhline(50, color=SOFT, lw=0.8, ls="--")
            one.tick_params(labelsize=7)
        for number, (scheme, points) in enumerate(curves.items()):
            fill = (INK, "none", STEM)[number % 3]
            look = {"ms": 4, "lw": 1, "color": INK, "mfc": fill, "mew": 0.8}
            left.plot(*zip(*sorted(points), strict=True), f"{shape(number)}-", label=scheme, **look)
            there = [(i, share) for i, share in enumerate(shares[scheme]) if share is not None]
            ax.plot(*zip(*there, strict=True), f"{shape(number)}-", **look)
        left.set_xlabel("mean change of the invariant", fontsize=8)
        left.set_ylabel("WM-ACC, %")
        ax.set_xticks(range(len(BANDS)), BANDS, fontsize=7)
        ax.set(xlim=(-0.3, len(BANDS) - 0.7), ylim=(-3, 103))
        ax.set_xlabel("band", fontsize=8)
        figure.legend(loc="outside upper center", ncols=2, fontsize=7, frameon=False)

    said = "; ".join(
        f"{scheme}: "
        + ", ".join(
            "none" if v is None else f"{band} {v:.0f} %" for band, v in zip(BANDS, part, strict=True)
        )
        for scheme, part in shares.items()
    )
    svg = (
        draw("sensitivity", 3.2, f"Right answers where the invariant changes. {said}.", paint)
        if curves
        else Markup()
    )
    caption = (
        "Edges of the carriers are removed or added so that the invariant moves towards the other side of "
        "one half; the bits stay. Left: against the mean change. Right: by band, over all levels: the "
        "invariant changes by 0.1 at most (preserved), by more on the same side (marginal), or crosses one "
        "half (broken). A model that perceives the invariant answers the other bit there: below 50 %."
    )
    return Drawing("sensitivity", "Sensitivity to the invariant", caption, svg)


def search_drawing(evidence: Evidence) -> Drawing:
    """Draw the best evidence of searching forgers against the number of audits.

    Args:
        evidence: The rows.
    """
    curves: dict[str, dict[str, dict[int, list[float]]]] = {"naive_bits": {}, "bits": {}}
    for search in evidence.values("search", "search"):
        for row in evidence.find("search", search=search):
            for name, part in curves.items():
                for audits, bits in zip(row.get("after").split(), row.get(name).split(), strict=True):
                    part.setdefault(search, {}).setdefault(int(audits), []).append(float(bits))

    def paint(figure: Figure) -> None:
        axes = figure.subplots(1, 2, sharey=True)
        for ax, part in zip(axes, curves.values(), strict=True):
            limits(ax)
            for number, (search, points) in enumerate(part.items()):
                at = sorted(points)
                low, high = ([pick(points[n]) for n in at] for pick in (min, max))
                ax.fill_between(at, low, high, color=STEM, alpha=0.3, lw=0)
                middle = [median(points[n]) for n in at]
                ax.plot(
                    at, middle, f"{shape(number)}-", ms=3.5, lw=0.8, color=INK, mfc="none", label=search
                )
            ax.set_xscale("log")
            ax.tick_params(labelsize=7)
        axes[0].set_title("plain bits, naive check", fontsize=8)
        axes[1].set_title("keyed bits", fontsize=8)
        axes[0].set_ylabel("best evidence so far, bits")
        figure.supxlabel("number of audits", fontsize=8)
        handles, names = axes[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside upper center", ncols=3, fontsize=7, frameon=False)

    said = "; ".join(
        f"{search}: {median(points[max(points)]):.0f} bits" for search, points in curves["bits"].items()
    )
    svg = (
        draw("searches", 3.2, f"Evidence of searching forgers; against keyed bits {said}.", paint)
        if curves["bits"]
        else Markup()
    )
    caption = (
        f"The best set of carriers after so many audits of an unmarked model: median over seeds, band from "
        f"least to most. Dashed line: {NEEDED:.0f} bits, dotted: 80. Evidence against keyed bits grows as "
        "the logarithm of the number of audits, by chance alone."
    )
    return Drawing("searches", "Forgers who search for carriers", caption, svg)
