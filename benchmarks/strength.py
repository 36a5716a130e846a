"""Evidence, and what it costs in accuracy, on every setting of the paper, before and after edits.

    make strength

One set of defaults everywhere. Every marked model has an unmarked twin: same split and first weights.
Five seeds go through every edit; further seeds count for accuracy and the unedited evidence. `longer` are
unmarked models trained for as many epochs as task and mark take together; `alongside` are models that are
taught the mark with the task where by default it comes after; `kept` are so taught too, and their carriers
keep the features of their seed graphs instead of borrowing them.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import mean, median, stdev
from typing import Any

import trials
from scipy.stats import t as student

NODE = tuple(f"{task}/{net}" for task in ("Cora", "PubMed", "Photo") for net in ("GCN", "GraphSAGE", "SGC"))
SEEDS = dict.fromkeys(NODE, 5)
SEEDS |= {"PROTEINS/GIN": 60, "PROTEINS/GraphSAGE": 20, "NCI1/GIN": 10, "NCI1/GraphSAGE": 30}
FIRST, EDITED = 41, 5
EDITS = ("unedited", "prune 20%", "prune 40%", "prune 50%", "8-bit", "4-bit", "bf16")
EDITS += ("fine-tune 20 epochs at 0.001", "fine-tune 20 epochs at 0.01")
PATH = trials.RESULTS / "strength.csv"


def grid() -> Iterator[dict[str, Any]]:
    """Seeds in turn, so that an unfinished run is balanced; what is there to compare with last."""
    for seed in range(FIRST, FIRST + max(SEEDS.values())):
        for setting, count in SEEDS.items():
            if seed < FIRST + count:
                for kind in ("unmarked", "marked"):
                    yield {"setting": setting, "seed": seed, "kind": kind}
    for setting in ("Cora/GCN", "NCI1/GIN"):
        for seed in range(FIRST, FIRST + 3):
            yield {"setting": setting, "seed": seed, "kind": "labels"}
    for kind, settings in {"longer": NODE, "alongside": NODE, "kept": tuple(SEEDS)}.items():
        for seed in range(FIRST, FIRST + EDITED):
            for setting in settings:
                yield {"setting": setting, "seed": seed, "kind": kind}


def access_of(setting: str, kind: str) -> tuple[str, ...]:
    """SGC has no hidden layer to read."""
    if kind == "labels":
        return ("labels",)
    return ("logits",) if setting.endswith("/SGC") else ("embedding", "logits")


def begin(setting: str, seed: int, kind: str = "marked", owner: str = "owner") -> tuple[Any, Any, Any]:
    """The task, an owner's mark and a model that has learnt nothing yet."""
    from invgnn.secret import Secret, public_stream
    from invgnn.training.tasks import load_task, new_model, parse_setting
    from invgnn.watermark.carriers import Sampler
    from invgnn.watermark.mark import Watermark
    from invgnn.watermark.recipe import Recipe

    name, backbone = parse_setting(setting)
    task, levels = load_task(name, seed), access_of(setting, kind)
    secret = Secret(public_stream(owner, setting, seed).bytes(32))
    sampler = Sampler(donors=None) if kind == "kept" else None
    recipe = Recipe(after_task=False, weight_scale=None) if kind in ("alongside", "kept") else None
    how: dict[str, Any] = {"access": levels, "sampler": sampler, "recipe": recipe}
    mark = Watermark.draw(secret, task.data, classes=task.num_classes, **how)
    return task, mark, new_model(task, backbone, seed)


def trial(setting: str, seed: int, kind: str) -> list[dict[str, Any]]:
    """Train one model and read it, and its edited copies, with its owner's mark."""
    import time

    from invgnn.attacks.edits import Cast, FineTune, Prune, Quantise
    from invgnn.training.batching import accuracy
    from invgnn.training.trainer import planned, train

    task, mark, model = begin(setting, seed, kind)
    levels = access_of(setting, kind)
    start, plain = time.perf_counter(), kind in ("unmarked", "longer")
    epochs = planned(task, mark, 100) if kind == "longer" else 100
    history = train(model, task, None if plain else mark, seed=seed, epochs=epochs)
    key = {"setting": setting, "seed": seed, "kind": kind}
    about = {"m": mark.m, "epoch": history.best_epoch, "seconds": round(time.perf_counter() - start)}

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
    """Test accuracy, marked less unmarked, in points, for every seed that has both."""
    rows = [r for r in trials.read(PATH) if (r["setting"], r["edit"]) == (setting, "unedited")]
    seen = {(r["kind"], r["seed"]): 100 * float(r["test_accuracy"]) for r in rows}
    seeds = [s for k, s in seen if k == kind and (twin, s) in seen]
    return [seen[kind, s] - seen[twin, s] for s in seeds]


def lower_limit(differences: list[float]) -> float:
    """One-sided 95 % limit of their mean (Student)."""
    n = len(differences)
    if n < 2:
        return float("nan")
    return mean(differences) - float(student.ppf(0.95, n - 1)) * stdev(differences) / n**0.5


def evidence(setting: str, access: str, edit: str, kind: str = "marked") -> list[float]:
    """Evidence bits of every seed after an edit."""
    wanted = (setting, kind, edit)
    rows = [r for r in trials.read(PATH) if (r["setting"], r["kind"], r["edit"]) == wanted]
    return [float(r[f"{access}_bits"]) for r in rows if r[f"{access}_bits"]]


def summary() -> str:
    """Accuracy, evidence at each access level, and what there is to compare with."""
    kinds = ("marked", "labels", "alongside", "kept")
    held = {k: {r["setting"] for r in trials.read(PATH) if r["kind"] == k} for k in kinds}
    marked, *others = ([s for s in SEEDS if s in held[k]] for k in kinds)
    asides = [_aside(settings, kind) for kind, settings in zip(kinds[1:], others, strict=True)]
    return "\n\n".join([_accuracy(marked), _evidence(marked), *asides])


def _accuracy(settings: list[str]) -> str:
    rows = trials.read(PATH)
    lines = [
        "| setting | seeds | unmarked | marked | difference (95 % limit) | to one trained as long |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for setting in settings:
        differences = paired(setting)
        if not differences:
            continue
        whole = [r for r in rows if (r["setting"], r["edit"]) == (setting, "unedited")]
        shown = {k: {r["seed"]: r for r in whole if r["kind"] == k} for k in ("unmarked", "marked")}
        both = shown["unmarked"].keys() & shown["marked"].keys()
        shares = [f"{mean(float(part[s]['test_accuracy']) for s in both):.1%}" for part in shown.values()]
        cells = [setting, str(len(differences)), *shares]
        cells += [_gap(differences), _gap(paired(setting, twin="longer"))]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _evidence(settings: list[str]) -> str:
    lines = [f"| setting | access | {' | '.join(map(_short, EDITS))} |", "|---|---|" + "--:|" * len(EDITS)]
    for setting in settings:
        for access in access_of(setting, "marked"):
            found = [evidence(setting, access, edit) for edit in EDITS]
            lines.append(f"| {' | '.join([setting, access, *map(_cell, found)])} |")
    return "\n".join(lines)


def _aside(settings: list[str], kind: str) -> str:
    head = ["setting", f"`{kind}` at", "seeds", "difference (95 % limit)", *map(_short, EDITS)]
    lines = [f"| {' | '.join(head)} |", "|---|---|--:|--:|" + "--:|" * len(EDITS)]
    for setting in settings:
        for access in access_of(setting, kind):
            found = [evidence(setting, access, edit, kind) for edit in EDITS]
            count, gap = str(len(paired(setting, kind))), _gap(paired(setting, kind))
            lines.append(f"| {' | '.join([setting, access, count, gap, *map(_cell, found)])} |")
    return "\n".join(lines)


def _cell(bits: list[float]) -> str:
    return f"{median(bits):.0f} ({min(bits):.0f})" if bits else ""


def _gap(differences: list[float]) -> str:
    limit = f" ({lower_limit(differences):+.1f})" if len(differences) > 1 else ""
    return f"{mean(differences):+.1f}{limit}" if differences else ""


def _short(edit: str) -> str:
    return edit.replace("fine-tune 20 epochs at ", "tuned ")


if __name__ == "__main__":
    trials.main(__doc__, PATH, trial, grid(), summary)
