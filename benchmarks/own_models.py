"""Measure `mark.embed` on models as users of PyG write them: evidence, the task before and after, cost.

    make own-models   # table in docs/results/own-models.md

Every model is trained on its task alone, then marked with default settings and read. The task is measured
on inputs that no choice of a setting has seen (`studies/embedding.py` uses others, and other seeds).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any

from invgnn.bench.markdown import table
from invgnn.bench.script import run_benchmark
from invgnn.storage.tables import read_rows

SEEDS = (41, 42, 43)
LINES = {
    "GPS with encodings, ENZYMES": 2,
    "regression, MUTAG": 2,
    "regression, PROTEINS": 2,
    "graph autoencoder, Cora": 8,
    "HGT, generated typed graphs": 2,
    "GATv2 with jumping knowledge, ENZYMES": 2,
    "GINE with edge attributes, MUTAG": 2,
    "GraphSAGE, CiteSeer": 2,
    "GraphSAGE in parts, CiteSeer": 2,
}
"""The cases, and how many lines a user adds: `draw` and `embed`, and what calls an unusual model."""
PATH = Path(__file__).parent / "results" / "own_models.csv"


def grid() -> Iterator[dict[str, Any]]:
    """Yield every case with every seed."""
    for seed in SEEDS:
        for case in LINES:
            yield {"case": case, "seed": seed}


def trial(case: str, seed: int) -> list[dict[str, Any]]:
    """Train one model, mark it and read it."""
    import time
    import warnings

    from invgnn.bench.user_models import load_case
    from invgnn.secret import Secret, public_stream
    from invgnn.watermark.mark import Watermark

    made = load_case(case, seed, "test")
    start = time.process_time()
    made.fit(seed=seed)
    trained = time.process_time()
    secret = Secret(public_stream("own models", case, seed).bytes(32))
    mark = Watermark.draw(secret, made.data, **made.options)
    drawn = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = mark.embed(made.model, made.inputs, metric=made.metric, keep=made.keep, seed=seed)
    done = time.process_time()
    row: dict[str, Any] = {"case": case, "seed": seed, "metric": made.measure}
    row |= {"before": round(found.before or 0, 4), "after": round(found.after or 0, 4)}
    row |= {"training": round(trained - start, 1), "drawing": round(drawn - trained, 1)}
    row |= {"embedding": round(done - drawn, 1), "steps": found.steps, "lr": found.lr}
    for number, (name, level) in enumerate(found.levels.items()):
        row |= {f"level {number}": name, f"bits {number}": round(level.bits, 1)}
    return [row]


def summary() -> str:
    """Return one line per case, with means over the seeds."""
    rows = read_rows(PATH)
    cases = {case: [r for r in rows if r["case"] == case] for case in LINES}
    lines = [_line(case, found) for case, found in cases.items() if found]
    head = ["model and data", "metric", "seeds", "bits", "before", "after", "difference", "lines"]
    return table([*head, "steps", "seconds", "cost"], lines, text=2)


def _line(case: str, rows: list[dict[str, str]]) -> list[str]:
    before, after, steps, embedding, training = (
        mean(float(r[name]) for r in rows) for name in ("before", "after", "steps", "embedding", "training")
    )
    least = [f"{min(float(r[f'bits {n}']) for r in rows):.0f}" for n in (0, 1)]
    names = [rows[0][f"level {n}"] for n in (0, 1)]
    bits = ", ".join(f"{name} {value}" for name, value in zip(names, least, strict=True))
    error = rows[0]["metric"] == "MAE"
    change = f"{after / before - 1:+.1%}" if error else f"{100 * (after - before):+.1f}"
    values = [f"{value:.3f}" if error else f"{value:.1%}" for value in (before, after)]
    return [
        case,
        rows[0]["metric"],
        str(len(rows)),
        bits,
        *values,
        change,
        str(LINES[case]),
        f"{steps:.0f}",
        f"{embedding:.0f}",
        f"{(training + embedding) / training:.1f}",
    ]


if __name__ == "__main__":
    run_benchmark(__doc__, PATH, trial, grid(), summary)
