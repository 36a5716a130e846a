"""Measure evidence and accuracy on every setting of the paper, before and after edits.

    make strength        # table in docs/results/appendix/strength.md

One set of defaults everywhere. Every marked model has an unmarked twin: same split, first weights and
learning rates. Five seeds go through every edit; further seeds count for accuracy and unedited evidence.

    labels      marked at `labels` alone
    longer      unmarked, trained for as many epochs as task and mark may take together
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

from scipy.stats import t as student

from invgnn.bench.markdown import table
from invgnn.bench.released import access_levels, prepare
from invgnn.bench.script import run_benchmark
from invgnn.storage.tables import read_rows

NODE = tuple(f"{task}/{net}" for task in ("Cora", "PubMed", "Photo") for net in ("GCN", "GraphSAGE", "SGC"))
SEEDS = dict.fromkeys(NODE, 5)
SEEDS |= {"PROTEINS/GIN": 20, "PROTEINS/GraphSAGE": 20, "NCI1/GIN": 10, "NCI1/GraphSAGE": 10}
FIRST, EDITED = 41, 5
EDITS = ("unedited", "prune 20%", "prune 40%", "prune 50%", "8-bit", "4-bit", "bf16")
EDITS += ("fine-tune 20 epochs at 0.001", "fine-tune 20 epochs at 0.01")
PATH = Path(__file__).parent / "results" / "strength.csv"


def grid() -> Iterator[dict[str, Any]]:
    """Yield all trials: seeds in turn, so that an unfinished run is balanced; comparisons last."""
    for seed in range(FIRST, FIRST + max(SEEDS.values())):
        for setting, count in SEEDS.items():
            if seed < FIRST + count:
                for kind in ("unmarked", "marked"):
                    yield {"setting": setting, "seed": seed, "kind": kind}
    for setting in ("Cora/GCN", "NCI1/GIN"):
        for seed in range(FIRST, FIRST + 3):
            yield {"setting": setting, "seed": seed, "kind": "labels"}
    for seed in range(FIRST, FIRST + EDITED):
        for setting in NODE:
            yield {"setting": setting, "seed": seed, "kind": "longer"}


def access_of(setting: str, kind: str) -> tuple[Any, ...]:
    """Return the levels at which a model is marked and read."""
    return ("labels",) if kind == "labels" else access_levels(setting)


def trial(setting: str, seed: int, kind: str) -> list[dict[str, Any]]:
    """Train one model, and read it and its edited copies with the owner's mark."""
    import time

    from invgnn.attacks.edits import Cast, FineTune, Prune, Quantise
    from invgnn.training.batching import accuracy
    from invgnn.training.planning import planned
    from invgnn.training.trainer import train

    levels = access_of(setting, kind)
    begun = prepare(setting, seed, access=levels)
    task, mark, model = begun.task, begun.mark, begun.model
    start, plain = time.process_time(), kind in ("unmarked", "longer")
    epochs = planned(task, mark, 100) if kind == "longer" else 100
    history = train(model, task, None if plain else mark, seed=seed, epochs=epochs)
    key = {"setting": setting, "seed": seed, "kind": kind}
    about = {"m": mark.m, "epoch": history.best_epoch, "seconds": round(time.process_time() - start, 1)}

    def row(edit: str, suspect: Any) -> dict[str, Any]:
        found = {a: mark.evidence(mark.read(suspect, a)) for a in levels}
        read = {f"{a}_{what}": "" for a in ("embedding", "logits", "labels") for what in ("t", "bits")}
        for a, evidence in found.items():
            read |= {f"{a}_t": evidence.matches, f"{a}_bits": round(evidence.bits(), 2)}
        shares = {"val_accuracy": task.val, "test_accuracy": task.test}
        return {
            **key,
            "edit": edit,
            **about,
            **{n: round(accuracy(suspect, task, r), 4) for n, r in shares.items()},
            **read,
        }

    rows = [row("unedited", model)]
    if not plain and seed < FIRST + EDITED:
        edits = [Prune(0.2), Prune(0.4), Prune(0.5), Quantise(8), Quantise(4), Cast("bf16")]
        for edit in (*edits, FineTune(20, 1e-3), FineTune(20, 1e-2)):
            rows.append(row(repr(edit), edit(model, task)))
    return rows


def paired(setting: str, kind: str = "marked", twin: str = "unmarked") -> list[float]:
    """Return test accuracy minus that of the twin, in points, for every seed that has both."""
    rows = [r for r in read_rows(PATH) if (r["setting"], r["edit"]) == (setting, "unedited")]
    seen = {(r["kind"], r["seed"]): 100 * float(r["test_accuracy"]) for r in rows}
    seeds = [s for k, s in seen if k == kind and (twin, s) in seen]
    return [seen[kind, s] - seen[twin, s] for s in seeds]


def lower_limit(differences: list[float]) -> float:
    """Return the one-sided 95 % confidence limit of the mean (Student)."""
    n = len(differences)
    if n < 2:
        return float("nan")
    return mean(differences) - float(student.ppf(0.95, n - 1)) * stdev(differences) / n**0.5


def evidence(setting: str, access: str, edit: str, kind: str = "marked") -> list[float]:
    """Return the evidence in bits of every seed after an edit."""
    wanted = (setting, kind, edit)
    rows = [r for r in read_rows(PATH) if (r["setting"], r["kind"], r["edit"]) == wanted]
    return [float(r[f"{access}_bits"]) for r in rows if r[f"{access}_bits"]]


def summary() -> str:
    """Return accuracy, evidence at each level, and marks for labels alone."""
    kinds = ("marked", "labels")
    held = {k: {r["setting"] for r in read_rows(PATH) if r["kind"] == k} for k in kinds}
    marked, *others = ([s for s in SEEDS if s in held[k]] for k in kinds)
    compared = [
        f"## Marks of kind `{kind}`\n\n{_compared(settings, kind)}"
        for kind, settings in zip(kinds[1:], others, strict=True)
    ]
    parts = [f"## Accuracy\n\n{_accuracy(marked)}", f"## Evidence\n\n{_evidence(marked)}"]
    return "\n\n".join([*parts, *compared])


def costs(setting: str) -> list[float]:
    """Return the processor time of the training, relative to that of the unmarked twin, for every seed."""
    rows = [r for r in read_rows(PATH) if (r["setting"], r["edit"]) == (setting, "unedited")]
    took = {(r["kind"], r["seed"]): float(r["seconds"]) for r in rows}
    return [
        took["marked", s] / took["unmarked", s]
        for k, s in took
        if k == "marked" and ("unmarked", s) in took
    ]


def _accuracy(settings: list[str]) -> str:
    rows, lines = read_rows(PATH), []
    for setting in settings:
        differences = paired(setting)
        if not differences:
            continue
        whole = [r for r in rows if (r["setting"], r["edit"]) == (setting, "unedited")]
        shown = {k: {r["seed"]: r for r in whole if r["kind"] == k} for k in ("unmarked", "marked")}
        both = shown["unmarked"].keys() & shown["marked"].keys()
        shares = [f"{mean(float(part[s]['test_accuracy']) for s in both):.1%}" for part in shown.values()]
        gaps = [_gap(differences), _gap(paired(setting, twin="longer"))]
        lines.append([setting, str(len(differences)), *shares, *gaps, f"{median(costs(setting)):.2f}×"])
    head = ["setting", "seeds", "unmarked", "marked", "difference (95 % limit)", "to one trained as long"]
    return table([*head, "training time"], lines)


def _evidence(settings: list[str]) -> str:
    lines = [
        [setting, access, *(_cell(evidence(setting, access, edit)) for edit in EDITS)]
        for setting in settings
        for access in access_of(setting, "marked")
    ]
    return table(["setting", "access", *map(_short, EDITS)], lines, text=2)


def _compared(settings: list[str], kind: str) -> str:
    lines = []
    for setting in settings:
        differences = paired(setting, kind)
        for access in access_of(setting, kind):
            bits = [_cell(evidence(setting, access, edit, kind)) for edit in EDITS]
            lines.append([setting, access, str(len(differences)), _gap(differences), *bits])
    head = ["setting", "access", "seeds", "difference (95 % limit)", *map(_short, EDITS)]
    return table(head, lines, text=2)


def _cell(bits: list[float]) -> str:
    return f"{median(bits):.0f} ({min(bits):.0f})" if bits else ""


def _gap(differences: list[float]) -> str:
    limit = f" ({lower_limit(differences):+.1f})" if len(differences) > 1 else ""
    return f"{mean(differences):+.1f}{limit}" if differences else ""


def _short(edit: str) -> str:
    return edit.replace("fine-tune 20 epochs at ", "fine-tuned ")


if __name__ == "__main__":
    run_benchmark(__doc__, PATH, trial, grid(), summary)
