"""Choose the settings of `mark.embed`: one setting is changed at a time, on validation data.

    make embedding   # table in docs/results/appendix/trained-models.md

Trained models of users are marked and read, and measured on inputs that neither they nor
`benchmarks/own_models.py` have seen. Seeds are not among those of that benchmark. Bits are those at the
first and the second declared level.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any

from invgnn.bench.markdown import table
from invgnn.bench.script import run_benchmark
from invgnn.storage.tables import read_rows

SEEDS = (1, 2, 3)
CASES = (
    "GINE with edge attributes, MUTAG",
    "regression, MUTAG",
    "GCN with batch norms, BA-2motif",
    "GraphSAGE, CiteSeer",
    "GATv2 with jumping knowledge, ENZYMES",
    "GPS with encodings, ENZYMES",
)
VARIANTS: dict[str, dict[str, Any]] = {
    "learning rate 0.003": {"lr": 0.003},
    "learning rate 0.01": {"lr": 0.01},
    "learning rate 0.03": {"lr": 0.03},
    "learning rate 0.01, weight of the scores 5 throughout": {"lr": 0.01, "balance": (5.0, 5.0)},
    "learning rate 0.01, weight of the scores 20 at the end": {"lr": 0.01, "balance": (1.0, 20.0)},
    "learning rate 0.01, at most 200 steps": {"lr": 0.01, "steps": 200},
}
PATH = Path(__file__).parents[1] / "benchmarks" / "results" / "embedding.csv"


def grid() -> Iterator[dict[str, Any]]:
    """Yield every variant of every case."""
    for seed in SEEDS:
        for variant in VARIANTS:
            for case in CASES:
                yield {"case": case, "seed": seed, "variant": variant}


def trial(case: str, seed: int, variant: str) -> list[dict[str, Any]]:
    """Mark one trained model, and read it and a fine-tuned copy."""
    import time
    import warnings

    from invgnn.bench.user_models import trained_case
    from invgnn.secret import Secret, public_stream
    from invgnn.watermark.embed import Balance, Settings, embed
    from invgnn.watermark.levels import levels_of
    from invgnn.watermark.mark import Watermark

    made = trained_case(case, seed, "validation")
    secret = Secret(public_stream("embedding study", case, seed).bytes(32))
    mark = Watermark.draw(secret, made.data, **made.options)
    settings = dict(VARIANTS[variant])
    balance = settings.pop("balance", None)
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = embed(
            mark,
            made.model,
            made.inputs,
            settings=Settings(**settings, balance=Balance(*balance) if balance else None),
            metric=made.metric,
            seed=seed,
        )
    row: dict[str, Any] = {"case": case, "seed": seed, "variant": variant}
    row |= {"seconds": round(time.process_time() - start, 1), "steps": found.steps, "lr": found.lr}
    row |= {"before": round(found.before or 0, 4), "after": round(found.after or 0, 4)}
    row |= {"agreement": round(found.agreement, 4)}
    made.fit(10, 1e-3, seed=seed)
    for name, levels in (("unedited", found.levels), ("fine-tuned", levels_of(mark, made.model))):
        for number, level in enumerate(levels.values()):
            row[f"{name} {number}"] = round(level.bits, 1)
    return [row]


def summary() -> str:
    """Return metric, cost and evidence of every variant, as means over the seeds."""
    rows, lines = read_rows(PATH), []
    for case in CASES:
        for variant in VARIANTS:
            found = [r for r in rows if (r["case"], r["variant"]) == (case, variant)]
            if found:
                steps, seconds, before, after = (
                    mean(float(r[name]) for r in found) for name in ("steps", "seconds", "before", "after")
                )
                bits = [_bits(found, edit) for edit in ("unedited", "fine-tuned")]
                cells = [f"{steps:.0f}", f"{seconds:.0f}", f"{before:.4f}", f"{after:.4f}", *bits]
                lines.append([case, variant, str(len(found)), *cells])
    head = ["case", "variant", "seeds", "steps", "seconds", "before", "after", "bits", "bits, fine-tuned"]
    return table(head, lines, text=2)


def _bits(rows: list[dict[str, str]], edit: str) -> str:
    return " / ".join(f"{mean(float(r[f'{edit} {number}']) for r in rows):.0f}" for number in (0, 1))


if __name__ == "__main__":
    run_benchmark(__doc__, PATH, trial, grid(), summary)
