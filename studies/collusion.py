"""Measure whom tracing names if licensees average their copies.

    make collusion

Licensees get copies of one model, each with a mark of its own: embedded while the copy is trained, from the
same start and in the same order, or embedded into copies of one trained model. Two or three of them average
their weights. The average is traced among the marks of all licensees.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

from invgnn.bench.markdown import table
from invgnn.bench.script import run_benchmark
from invgnn.storage.tables import read_rows

PATH = Path(__file__).parents[1] / "benchmarks" / "results" / "collusion.csv"
SETTINGS = ("BA-2motif/GIN", "MUTAG/GIN", "Cora/GCN")
SEEDS = (41, 42, 43)
KINDS = ("while training", "into a trained model")
COPIES, LICENSEES = 3, 100


def grid() -> Iterator[dict[str, Any]]:
    """Yield one group of colluders per trial."""
    for seed in SEEDS:
        for marked in reversed(KINDS):
            for setting in SETTINGS:
                yield {"setting": setting, "marked": marked, "seed": seed}


def trial(setting: str, marked: str, seed: int) -> list[dict[str, Any]]:
    """Train three copies, average one, two and three of them, and trace each average."""
    import copy

    from invgnn.attacks.removal import Collude
    from invgnn.court.tracing import named, trace_suspect
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
        return Watermark.draw(secret, reference)

    marks = {str(licensee): draw(licensee) for licensee in range(LICENSEES)}
    start = new_model(task, backbone, seed)
    how: dict[str, Any] = {"seed": seed}
    if marked == KINDS[1]:
        train(start, task, seed=seed)
        how |= {"epochs": 25, "lr": 2e-3, "trained": True}
    copies = [copy.deepcopy(start) for _ in range(COPIES)]
    for licensee, model in enumerate(copies):
        train(model, task, marks[str(licensee)], **how)
    rows = []
    for count in range(1, COPIES + 1):
        model = copy.deepcopy(copies[0])
        average = Collude(*copies[1:count])(model, task) if count > 1 else model
        found = named(trace_suspect("average", average, marks))["average"]
        guilty = [one for one in found if int(one) < count]
        rows.append(
            {
                "setting": setting,
                "marked": marked,
                "seed": seed,
                "copies": count,
                "named": len(guilty),
                "innocent": len(found) - len(guilty),
                "test_accuracy": round(accuracy(average, task, task.test), 4),
            }
        )
    return rows


def summary() -> str:
    """Return how often nobody, at least one and all of the colluders are named, by setting."""
    rows, lines = read_rows(PATH), []
    for marked, setting, count in product(KINDS, SETTINGS, range(1, COPIES + 1)):
        kind = (setting, marked, str(count))
        held = [r for r in rows if (r["setting"], r["marked"], r["copies"]) == kind]
        if held:
            found = [int(row["named"]) for row in held]
            mean = sum(float(row["test_accuracy"]) for row in held) / len(held)
            lines.append(
                [
                    marked,
                    setting,
                    str(count),
                    f"{sum(n > 0 for n in found)} of {len(held)}",
                    f"{sum(n == count for n in found)} of {len(held)}",
                    str(sum(int(row["innocent"]) for row in held)),
                    f"{100 * mean:.1f} %",
                ]
            )
    head = ["marked", "setting", "copies", "at least one named", "all named", "innocent named", "accuracy"]
    return table(head, lines, text=2)


if __name__ == "__main__":
    run_benchmark(__doc__, PATH, trial, grid(), summary)
