"""Measure whom tracing names if licensees average their copies.

    make collusion

Licensees get copies of one model, each with a mark of its own: embedded while the copy is trained, from the
same start and in the same order, or embedded into copies of one trained model. Every group of two and of
three of four licensees averages its weights. The average is traced among the marks of all licensees.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

from invgnn.bench.markdown import table
from invgnn.bench.script import run_benchmark
from invgnn.storage.tables import read_rows

PATH = Path(__file__).parents[1] / "benchmarks" / "results" / "collusion.csv"
SEEDS = (41, 42, 43)
WHILE, AFTER = "while training", "into a trained model"
SETTINGS = (
    ("Cora/GCN", AFTER, 128),
    ("MUTAG/GIN", AFTER, 128),
    ("BA-2motif/GIN", AFTER, 128),
    ("Cora/GCN", WHILE, 128),
    ("MUTAG/GIN", WHILE, 128),
    ("BA-2motif/GIN", WHILE, 128),
    ("BA-2motif/GIN", AFTER, 512),
)
COPIES, LICENSEES = 4, 100
EPOCHS = {"MUTAG/GIN": 100}
"""Epochs of embedding into a trained model; 25 unless its data set is small."""


def grid() -> Iterator[dict[str, Any]]:
    """Yield one set of four copies per trial."""
    for seed in SEEDS:
        for setting, marked, carriers in SETTINGS:
            yield {"setting": setting, "marked": marked, "carriers": carriers, "seed": seed}


def trial(setting: str, marked: str, carriers: int, seed: int) -> list[dict[str, Any]]:
    """Train four copies, average every group of one, two and three of them, and trace each average."""
    import copy

    from invgnn.attacks.removal import Collude
    from invgnn.court.tracing import trace_suspect
    from invgnn.secret import Secret, public_stream
    from invgnn.training.batching import accuracy
    from invgnn.training.tasks import load_task, new_model, parse_setting
    from invgnn.training.trainer import train
    from invgnn.watermark.mark import Watermark
    from invgnn.watermark.reference import Reference

    name, backbone = parse_setting(setting)
    task = load_task(name, seed)
    reference = Reference.of(task.data)

    def draw(licensee: int) -> Watermark:
        secret = Secret(public_stream("licensee", setting, seed, licensee).bytes(32))
        return Watermark.draw(secret, reference, m=carriers)

    marks = {str(licensee): draw(licensee) for licensee in range(LICENSEES)}
    start = new_model(task, backbone, seed)
    how: dict[str, Any] = {"seed": seed}
    if marked == AFTER:
        train(start, task, seed=seed)
        how |= {"epochs": EPOCHS.get(setting, 25), "lr": 2e-3, "trained": True}
    copies = [copy.deepcopy(start) for _ in range(COPIES)]
    for licensee, model in enumerate(copies):
        train(model, task, marks[str(licensee)], **how)
    rows = []
    for group in (one for size in (1, 2, 3) for one in combinations(range(COPIES), size)):
        model, others = copy.deepcopy(copies[group[0]]), [copies[member] for member in group[1:]]
        average = Collude(*others)(model, task) if others else model
        found = trace_suspect("average", average, marks)
        guilty = [row for row in found if int(row.mark) in group]
        rows.append(
            {
                "setting": setting,
                "marked": marked,
                "carriers": carriers,
                "seed": seed,
                "group": "+".join(map(str, group)),
                "copies": len(group),
                "named": sum(row.named for row in guilty),
                "innocent": sum(row.named for row in found) - sum(row.named for row in guilty),
                "bits": round(sum(row.evidence_bits for row in guilty) / len(group), 1),
                "test_accuracy": round(accuracy(average, task, task.test), 4),
            }
        )
    return rows


def summary() -> str:
    """Return how often nobody, at least one and all of the colluders are named, by setting."""
    rows, lines = read_rows(PATH), []
    kinds = [(*setting, size) for setting in SETTINGS for size in (1, 2, 3)]
    for setting, marked, carriers, size in kinds:
        kind = (setting, marked, str(carriers), str(size))
        held = [r for r in rows if (r["setting"], r["marked"], r["carriers"], r["copies"]) == kind]
        if held:
            found = [int(row["named"]) for row in held]
            lines.append(
                [
                    marked,
                    setting,
                    str(carriers),
                    str(size),
                    f"{sum(n > 0 for n in found)} of {len(held)}",
                    f"{sum(n == size for n in found)} of {len(held)}",
                    str(sum(int(row["innocent"]) for row in held)),
                    f"{_mean(held, 'bits'):.0f}",
                    f"{100 * _mean(held, 'test_accuracy'):.1f} %",
                ]
            )
    head = ["marked", "setting", "carriers", "copies", "at least one named", "all named"]
    return table([*head, "innocent named", "bits", "accuracy"], lines, text=2)


def _mean(rows: list[dict[str, str]], name: str) -> float:
    """Return the mean of a column."""
    return sum(float(row[name]) for row in rows) / len(rows)


if __name__ == "__main__":
    run_benchmark(__doc__, PATH, trial, grid(), summary)
