"""Compare watermarking schemes on one task and backbone: one trial per scheme and seed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import mean, median
from typing import Any

from invgnn.bench.intervals import Interval
from invgnn.bench.marked import ALPHA, left_out, options, owner_secret

__all__ = ["ALPHA", "Interval", "left_out", "options", "owner_secret"]

CONTROLS = 19
"""Number of unmarked models that every mark is read in."""
BASE = "SS"
"""The scheme that accuracy and cost are compared with."""


def grid(
    setting: str, schemes: Iterable[str], seeds: Iterable[int], epochs: int = 100, controls: int = CONTROLS
) -> Iterator[dict[str, Any]]:
    """Yield all trials: seeds in turn, so that an unfinished run is balanced.

    Args:
        setting: Task and backbone, such as `Cora/GCN`.
        schemes: Names of the schemes.
        seeds: Seeds of splits, weights and training.
        epochs: Number of epochs.
        controls: Number of unmarked models.
    """
    names = list(schemes)
    for seed in seeds:
        for scheme in names:
            yield {
                "setting": setting,
                "seed": seed,
                "scheme": scheme,
                "epochs": epochs,
                "controls": controls,
            }


def trial(setting: str, seed: int, scheme: str, epochs: int, controls: int) -> list[dict[str, Any]]:
    """Train one model with the mark of a scheme, and read it and unmarked models.

    A scheme that cannot serve the task gives a row with the reason and nothing else.

    Args:
        setting: Task and backbone, such as `Cora/GCN`.
        seed: Seed of split, weights and training.
        scheme: Name of the scheme.
        epochs: Number of epochs.
        controls: Number of unmarked models.
    """
    from invgnn.errors import SchemeError, SuspectError

    key = {"setting": setting, "seed": seed, "scheme": scheme, "epochs": epochs, "controls": controls}
    try:
        return [key | _measured(setting, seed, scheme, epochs, controls) | {"reason": ""}]
    except (SchemeError, SuspectError) as error:
        return [key | dict.fromkeys(MEASURED, "") | {"reason": " ".join(error.message.split())}]


MEASURED = (
    *("test_accuracy", "val_accuracy", "matches", "asked", "bits", "null", "other_matches"),
    *("other_bits", "innocents", "at_alpha", "at_5", "seconds", "more"),
)
"""The columns of a row besides the arguments of its trial and the reason."""


def _measured(setting: str, seed: int, scheme: str, epochs: int, controls: int) -> dict[str, Any]:
    """Return the figures of one trial."""
    from invgnn.bench.marked import begin, measured, train
    from invgnn.schemes.registry import find_schemes

    chosen = next(one for one in find_schemes() if one.name == scheme)
    return measured(train(begin(setting, seed, chosen, epochs)), controls)


@dataclass(frozen=True)
class Line:
    """One scheme in the comparison.

    Attributes:
        scheme: Its name.
        seeds: Number of seeds.
        reason: Why it cannot serve the task; empty if it can.
        accuracy: Test accuracy.
        gap: Test accuracy minus that of SS with the same seed.
        wm_accuracy: Share of right answers.
        answers: Number of answers.
        bits: Median evidence in bits.
        least_bits: Smallest evidence in bits.
        null: The null that the evidence rests on.
        innocents: Number of readings of unmarked models.
        at_alpha: How many of them have a p-value of at most 1e-6.
        at_5: How many of them have a p-value of at most 5 %.
        other: Share of right answers for the key of a second owner.
        other_bits: Largest evidence in bits for the key of a second owner.
        cost: Processor time of training relative to SS with the same seed.
        more: Further figures of every seed.
    """

    scheme: str
    seeds: int
    reason: str = ""
    accuracy: Interval | None = None
    gap: Interval | None = None
    wm_accuracy: Interval | None = None
    answers: int = 0
    bits: float = 0.0
    least_bits: float = 0.0
    null: str = ""
    innocents: int = 0
    at_alpha: int = 0
    at_5: int = 0
    other: float = 0.0
    other_bits: float = 0.0
    cost: float | None = None
    more: list[str] = field(default_factory=list)

    def record(self) -> dict[str, Any]:
        """Return the line as plain values."""
        return asdict(self)


def lines(rows: Sequence[Mapping[str, Any]]) -> list[Line]:
    """Summarise the rows of a comparison, one line per scheme in the order of the rows.

    Args:
        rows: Rows of trials, all of one setting.
    """
    base = {row["seed"]: row for row in rows if row["scheme"] == BASE and not row["reason"]}
    found = []
    for scheme in dict.fromkeys(row["scheme"] for row in rows):
        part = [row for row in rows if row["scheme"] == scheme]
        done = [row for row in part if not row["reason"]]
        reason = next((str(row["reason"]) for row in part if row["reason"]), "")
        found.append(_line(scheme, done, base) if done else Line(scheme, len(part), reason))
    return found


def _line(scheme: str, rows: Sequence[Mapping[str, Any]], base: Mapping[Any, Mapping[str, Any]]) -> Line:
    """Return the line of one scheme that serves the task."""
    pairs = [(row, base[row["seed"]]) for row in rows if row["seed"] in base]
    gaps = [float(row["test_accuracy"]) - float(ss["test_accuracy"]) for row, ss in pairs]
    costs = [float(row["seconds"]) / max(float(ss["seconds"]), 1e-9) for row, ss in pairs]
    bits = [float(row["bits"]) for row in rows]
    innocents, at_alpha, at_5 = (
        sum(int(row[name]) for row in rows) for name in ("innocents", "at_alpha", "at_5")
    )
    return Line(
        scheme,
        len(rows),
        accuracy=Interval.of([float(row["test_accuracy"]) for row in rows]),
        gap=Interval.of(gaps) if gaps else None,
        wm_accuracy=Interval.of([int(row["matches"]) / int(row["asked"]) for row in rows]),
        answers=max(int(row["asked"]) for row in rows),
        bits=median(bits),
        least_bits=min(bits),
        null=str(rows[0]["null"]),
        innocents=innocents,
        at_alpha=at_alpha,
        at_5=at_5,
        other=mean(int(row["other_matches"]) / int(row["asked"]) for row in rows),
        other_bits=max(float(row["other_bits"]) for row in rows),
        cost=median(costs) if costs else None,
        more=[str(row["more"]) for row in rows if row["more"]],
    )


HEAD = ("scheme", "accuracy, %", "WM-ACC, %", "bits (least)", "false positives", "second owner", "cost")


def cells(line: Line) -> tuple[str, ...]:
    """Return a line as text; a scheme that cannot serve the task has dashes.

    Args:
        line: The line.
    """
    if line.reason:
        return (line.scheme, *["-"] * (len(HEAD) - 1))
    second = f"{100 * line.other:.0f} %, {line.other_bits:.1f} bits"
    return (
        line.scheme,
        str(line.accuracy),
        str(line.wm_accuracy),
        f"{line.bits:.1f} ({line.least_bits:.1f})",
        f"{line.at_alpha} of {line.innocents}",
        second,
        "" if line.cost is None else f"{line.cost:.2f}",
    )


def text_table(found: Sequence[Line]) -> str:
    """Return the comparison as aligned text, with the reasons of dashes and the nulls below.

    Args:
        found: The lines.
    """
    rows = [HEAD, *map(cells, found)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEAD))]
    shown = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows]
    notes = [f"{line.scheme}: {line.reason or f'null: {line.null}'}" for line in found]
    more = [f"{line.scheme}: {each}" for line in found for each in line.more]
    return "\n".join([*shown, "", *notes, *([""] if more else []), *more])
