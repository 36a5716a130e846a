"""Measure how well somebody who serves a stolen model can tell carriers from ordinary questions.

    make stealth         # table in docs/results/appendix/stealth.md

The thief knows the protocol and the data of the task. They draw carriers with a secret of their own and
learn how carriers differ from task graphs of the same size, by three detectors: a trained GIN, the number
of different feature rows in a graph, and the distance between the features of neighbours. Each detector is
then applied to the owner's carriers and to other task graphs, all made from unseen data. The best of the
three counts. One half is guessing.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any

from invgnn.bench.markdown import table
from invgnn.bench.script import run_benchmark
from invgnn.storage.tables import read_rows

SETTINGS, SEEDS = ("Cora", "PubMed", "Photo", "PROTEINS", "NCI1"), range(41, 44)
KINDS = {"kept": None, "64 donors": 64, "3 donors": 3}  # feature donors of a carrier
SIZE = 128
PATH = Path(__file__).parents[1] / "benchmarks" / "results" / "stealth.csv"


def grid() -> Iterator[dict[str, Any]]:
    """Yield all trials, seeds in turn."""
    for seed in SEEDS:
        for setting in SETTINGS:
            for features in KINDS:
                yield {"setting": setting, "seed": seed, "features": features}


def trial(setting: str, seed: int, features: str) -> list[dict[str, Any]]:
    """Train a detector and apply it to the carriers of an owner it has not seen."""
    import numpy as np
    import torch

    from invgnn.graphs.disjoint_union import Graphs
    from invgnn.nn.forward import to_batch
    from invgnn.secret import public_stream
    from invgnn.training.tasks import Task, load_task, new_model
    from invgnn.training.trainer import train
    from invgnn.watermark.carriers import Carriers
    from invgnn.watermark.reference import Reference
    from invgnn.watermark.sampler import Sampler

    whole = Reference.of(load_task(setting, seed).data)
    order = np.random.default_rng(seed).permutation(len(whole.graphs))
    # The carriers of thief and owner, and the graphs to be told from them, come from separate parts.
    parts = [whole.graphs.take(np.sort(part)) for part in np.array_split(order, 4)]
    sampler = Sampler(donors=KINDS[features], size_quantile=0.5)
    thief, owner = (
        Carriers.draw(
            Reference(part, whole.level), SIZE, public_stream("stealth", who, seed), sampler
        ).graphs
        for who, part in (("thief", parts[0]), ("owner", parts[1]))
    )
    largest = int(owner.sizes.max())
    seen, unseen = (part.take(np.flatnonzero(part.sizes <= largest)) for part in parts[2:])
    ours = Graphs.concat([thief, owner])
    usual = Graphs.concat([seen, unseen])
    graphs = [
        item
        for part, kind in ((ours, 1), (usual, 0))
        for item in _separate(to_batch(part), part, torch.tensor([kind]))
    ]
    first, last = len(ours), len(ours) + len(seen)
    learn = torch.cat([torch.arange(SIZE), torch.arange(first, last)])
    ask = torch.cat([torch.arange(SIZE, first), torch.arange(last, len(graphs))])
    task = Task("stealth", "graph", graphs, learn, learn, ask, 2, "thief and owner")
    model = new_model(task, "GIN", seed)
    train(model, task, epochs=60, seed=seed)
    rules = {"GIN": _trained(model), "different rows": _rows, "neighbours apart": _apart}
    found = {}
    for name, rule in rules.items():
        known, asked = (
            _area(rule(mine), rule(theirs)) for mine, theirs in ((thief, seen), (owner, unseen))
        )
        found[name] = asked if known >= 0.5 else 1 - asked
    best = max(found, key=lambda name: found[name])
    row = {
        "setting": setting,
        "seed": seed,
        "features": features,
        "rule": best,
        "area": round(found[best], 4),
    }
    return [row | {f"{name} area": round(area, 4) for name, area in found.items()}]


def _trained(model: Any) -> Any:
    """Return a function that computes the log-odds of a trained detector."""
    import torch

    from invgnn.nn.forward import to_batch

    def odds(graphs: Any) -> Any:
        batch = to_batch(graphs)
        with torch.no_grad():
            scores = model(batch.x.float(), batch.edge_index, batch.batch).numpy()
        return scores[:, 1] - scores[:, 0]

    return odds


def _rows(graphs: Any) -> list[float]:
    """Return the number of different feature rows of each graph, per node."""
    import numpy as np

    parts = (graphs.x[a:b] for a, b in zip(graphs.ptr[:-1], graphs.ptr[1:], strict=True))
    return [len(np.unique(part, axis=0)) / len(part) for part in parts]


def _apart(graphs: Any) -> Any:
    """Return the mean squared distance between the features of neighbours."""
    import numpy as np

    u, v = graphs.edges.T
    far = np.square(graphs.x[u].astype(np.float64) - graphs.x[v]).sum(1)
    return np.bincount(graphs.graph_of_edge, far, len(graphs)) / np.maximum(np.diff(graphs.edge_ptr), 1)


def _area(carriers: Any, others: Any) -> float:
    """Return how often a carrier ranks above another graph."""
    from scipy.stats import mannwhitneyu

    return float(mannwhitneyu(carriers, others).statistic) / (len(carriers) * len(others))


def _separate(batch: Any, graphs: Any, kind: Any) -> Iterator[Any]:
    """Yield the graphs of a batch one by one, with a class."""
    from torch_geometric.data import Data

    for number in range(len(graphs)):
        start, end = (int(v) for v in graphs.ptr[number : number + 2])
        first, last = (2 * int(v) for v in graphs.edge_ptr[number : number + 2])
        edges = batch.edge_index[:, first:last] - start
        yield Data(x=batch.x[start:end].float(), edge_index=edges, y=kind, num_nodes=end - start)


def summary() -> str:
    """Return how often the best detector ranks a carrier above a task graph, by setting."""
    rows, lines = read_rows(PATH), []
    for setting in SETTINGS:
        cells = []
        for features in KINDS:
            found = [float(r["area"]) for r in rows if (r["setting"], r["features"]) == (setting, features)]
            cells.append(f"{mean(found):.2f} ({min(found):.2f} to {max(found):.2f})" if found else "")
        lines.append([setting, *cells])
    return table(["carriers of", "features kept", "64 donors", "3 donors (default)"], lines)


if __name__ == "__main__":
    run_benchmark(__doc__, PATH, trial, grid(), summary)
