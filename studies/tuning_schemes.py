"""Tune every scheme of the comparison with the same budget, on validation data of a seed of its own.

    make tuning-schemes      # table in docs/results/appendix/tuning-schemes.md

Eight trials per scheme, ours included, all with seed 1, on Cora and on PROTEINS. WGLE and EXPL do not serve
PROTEINS. WGLE has all of its settings on Cora instead, EXPL two on Photo and two on PubMed, of which one
each is the setting that its authors publish for these data.

Of the settings whose validation accuracy is close to the scheme's best, the one with the highest share of
right answers is chosen. Close means within one point, and within three on PROTEINS, where a split has 111
validation graphs. Test data are not used, and the seed is not reported elsewhere. The chosen settings are
in `src/invgnn/schemes/settings.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any

from invgnn.bench.markdown import table
from invgnn.bench.script import run_benchmark
from invgnn.storage.tables import read_rows

SEED = 1
KINDS = {
    "Cora/GCN": "node",
    "PROTEINS/GIN": "graph",
    "Photo/GraphSAGE": "Photo",
    "PubMed/GraphSAGE": "PubMed",
}
"""The tasks, and which part of the grid belongs to each."""
GRID: dict[str, dict[str, tuple[str, ...]]] = {
    "COS": {
        "node": (
            *("weight=1 per_step=32", "weight=3 per_step=32", "weight=10 per_step=32"),
            "weight=1 per_step=128",
        ),
        "graph": (
            *("weight=1 per_step=32", "weight=3 per_step=32", "weight=10 per_step=32"),
            "weight=1 per_step=128",
        ),
    },
    "TRIG": {
        "node": (
            *("edges=0.1 ones=0.1 weight=1", "edges=0.02 ones=0.1 weight=1"),
            *("edges=0.05 ones=0.02 weight=1", "edges=0.02 ones=0.1 weight=0.3"),
            "edges=0.05 ones=0.1 weight=1",
        ),
        "graph": ("weight=1 per_step=32", "weight=3 per_step=32", "weight=1 per_step=64"),
    },
    "NAT": {
        "node": (
            *("features=20 nodes_share=0.1", "features=100 nodes_share=0.1"),
            *("features=300 nodes_share=0.05", "features=300 nodes_share=0.1"),
            "features=200 nodes_share=0.05",
        ),
        "graph": (
            *("nodes=0.2 graphs_share=0.2", "nodes=0.2 graphs_share=0.1"),
            "nodes=0.3 graphs_share=0.2",
        ),
    },
    "EXPL": {
        "node": (
            *("weight=100 margin=0.01 least=16", "weight=300 margin=0.03 least=16"),
            *("weight=100 margin=0.01 least=48", "weight=300 margin=0.03 least=48"),
        ),
        "Photo": ("weight=100 margin=0.01 least=16 longer=3 rate=0.02", "weight=100 margin=0.01 least=48"),
        "PubMed": ("weight=70 margin=0.1 least=16 longer=2 rate=0.5", "weight=100 margin=0.01 least=48"),
    },
    "WGLE": {
        "node": (
            *("weight=1 margin=0.5", "weight=1 margin=0.2"),
            *("weight=0.3 margin=0.2", "weight=0.1 margin=0.2"),
            *("weight=3 margin=0.2", "weight=1 margin=0.1", "weight=3 margin=0.5"),
            "weight=3 margin=0.1",
        ),
    },
    "Published": {
        "node": (
            *("beta=1 gap=0", "beta=10 gap=0", "beta=1 gap=0.25", "beta=10 gap=0.25"),
            "beta=1 gap=0.25 nu=1.0",
        ),
        "graph": (
            *("beta=1 gap=0.25", "beta=10 gap=0.25"),
            "beta=10 gap=0.25 presentations=700",
        ),
    },
    "Keyed": {
        "node": ("beta=1", "beta=0.5", "beta=2", "after_task=140", "after_task=62"),
        "graph": ("beta=1", "beta=2", "presentations=700"),
    },
}
RECIPE = {"beta", "after_task", "presentations"}
"""Settings of the embedding of our own marks, which the paper's scheme shares."""
POINTS = {"PROTEINS/GIN": 0.03}
"""How far below the best validation accuracy of its scheme a setting may be, if not one point."""
PATH = Path(__file__).parents[1] / "benchmarks" / "results" / "tuning_schemes.csv"


def grid() -> Iterator[dict[str, Any]]:
    """Yield all trials."""
    for setting, kind in KINDS.items():
        for scheme, parts in GRID.items():
            for values in parts.get(kind, ()):
                yield {"setting": setting, "scheme": scheme, "values": values, "seed": SEED}


def made(scheme: str, values: str) -> Any:
    """Return a scheme with the settings of one trial."""
    from invgnn import schemes
    from invgnn.watermark.recipe import Recipe

    pairs = (pair.partition("=") for pair in values.split())
    given: dict[str, Any] = {name: float(v) if "." in v else int(v) for name, _, v in pairs}
    own = {"beta"} if scheme == "Published" else set()
    recipe = {name: given.pop(name) for name in RECIPE - own if name in given}
    if scheme in ("Keyed", "Published"):
        given["recipe"] = Recipe(**recipe)
    return getattr(schemes, scheme)(**given)


def trial(setting: str, scheme: str, values: str, seed: int) -> list[dict[str, Any]]:
    """Train one model and read it with the mark of its owner; only validation data are used."""
    import time

    from invgnn.bench.comparison import options, owner_secret
    from invgnn.training.tasks import load_task, new_model, parse_setting

    name, backbone = parse_setting(setting)
    task = load_task(name, seed)
    model = new_model(task, backbone, seed)
    mark = made(scheme, values).prepare(owner_secret(setting, seed, "tuning"), task)
    start = time.process_time()
    history = mark.train(model, task, options(task, seed))
    row = {"setting": setting, "scheme": scheme, "values": values, "seed": seed}
    found = mark.read(model)
    row |= {"val_accuracy": round(history.best_val_acc, 4), "matches": found.matches, "asked": found.asked}
    return [row | {"bits": round(found.bits, 1), "seconds": round(time.process_time() - start, 1)}]


def chosen(rows: list[dict[str, str]]) -> str:
    """Return the best of the settings of one scheme on one task."""
    parts = {v: [r for r in rows if r["values"] == v] for v in dict.fromkeys(r["values"] for r in rows)}
    scores = {values: mean(float(r["val_accuracy"]) for r in part) for values, part in parts.items()}
    right = {v: mean(int(r["matches"]) / int(r["asked"]) for r in part) for v, part in parts.items()}
    best = max(scores.values())
    close = best - POINTS.get(rows[0]["setting"], 0.01)
    return max((v for v in parts if scores[v] >= close), key=lambda v: (right[v], scores[v]))


def summary() -> str:
    """Return means over seeds; the chosen setting of every scheme is marked."""
    rows, lines = read_rows(PATH), []
    for setting, scheme in dict.fromkeys((r["setting"], r["scheme"]) for r in rows):
        whole = [r for r in rows if (r["setting"], r["scheme"]) == (setting, scheme)]
        best = chosen([r for r in whole if r["values"] in GRID[scheme].get(KINDS[setting], ())])
        for values in dict.fromkeys(r["values"] for r in whole):
            part = [r for r in whole if r["values"] == values]
            share = mean(int(r["matches"]) / int(r["asked"]) for r in part)
            accuracy = mean(float(r["val_accuracy"]) for r in part)
            name = f"**{values}**" if values == best else values
            name += "" if values in GRID[scheme].get(KINDS[setting], ()) else " (not in the grid)"
            lines.append([setting, scheme, name, str(len(part)), f"{accuracy:.1%}", f"{share:.1%}"])
    return table(["setting", "scheme", "settings", "seeds", "validation accuracy", "WM-ACC"], lines, text=3)


if __name__ == "__main__":
    run_benchmark(__doc__, PATH, trial, grid(), summary)
