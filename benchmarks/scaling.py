"""Measure what each part costs and how it grows, and how much faster two workers are than one.

    make bench-scaling                      # python benchmarks/scaling.py --into docs/results/scaling.md
    python benchmarks/scaling.py workers    # measure only what grows with the workers again

Each part is measured at two sizes in one thread; its cost at a million graphs or a billion edges is
extrapolated from the larger. Sweeps train the same small models with one worker and with two; the start of
the workers is measured separately. It takes five minutes and needs an idle machine.
"""

from __future__ import annotations

import csv
import io
import os
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from math import log
from pathlib import Path
from statistics import median
from typing import Any

from invgnn.bench.markdown import table
from invgnn.bench.script import benchmark_parser, publish
from invgnn.storage.tables import read_rows

PATH = Path(__file__).parent / "results" / "scaling.csv"
TRAININGS, EPOCHS = 8, 30
ENGINES = ("processes", "Dask")
FLAT = {"a thousand subgraphs", "a training step without"}
"""Parts that do not depend on the size. All others are linear, or n log n, except those in `STEEP`."""
STEEP = {"drawing carriers", "an exact p-value of T", "λ₂ of one large graph"}
"""Parts whose exponent is measured. For the others the algorithm is known to be linear, and a ratio of two
short times would say less."""
BUSY = "other work"
Parts = dict[str, Callable[[], Any]]


def data_set(size: int) -> Parts:
    """Prepare reading graphs, and the statistics that carriers are compared with; PROTEINS, repeated."""
    from invgnn.graphs.disjoint_union import Graphs
    from invgnn.graphs.invariants import find_invariant
    from invgnn.training.tasks import load_task
    from invgnn.watermark.reference import Reference
    from invgnn.watermark.sampler import Sampler

    graphs = load_task("PROTEINS").graphs
    items = (graphs * -(-size // len(graphs)))[:size]
    union = Graphs.from_data(items)

    def compare() -> tuple[Any, ...]:
        fresh = Reference(Graphs(union.ptr, union.edges, union.x))
        return fresh.clustering, fresh.degrees, fresh.digest, fresh.hashes(Sampler())

    return {
        "reading a data set": lambda: Graphs.from_data(items),
        "its statistics and digest": compare,
        "λ₂ of every graph": lambda: find_invariant("lambda2")(union),
    }


def one_graph(size: int) -> Parts:
    """Prepare reading one graph with ten edges per node and 16 features, and its thousand subgraphs."""
    import numpy as np
    import torch
    from torch_geometric.data import Data

    from invgnn.graphs.disjoint_union import Graphs
    from invgnn.graphs.rewiring import sample_subgraphs
    from invgnn.secret import public_stream
    from invgnn.watermark.reference import SUBGRAPHS

    ends = np.random.default_rng(0).integers(0, size // 10, (2, size))
    both = torch.from_numpy(np.concatenate([ends, ends[::-1]], axis=1))
    data = Data(x=torch.zeros(size // 10, 16), edge_index=both, num_nodes=size // 10)
    whole = Graphs.from_data([data])
    return {
        "reading one graph": lambda: Graphs.from_data([data]),
        "its digest": whole.digest,
        "a thousand subgraphs": lambda: sample_subgraphs(whole, SUBGRAPHS, public_stream("scaling")),
    }


def marks(m: int) -> Parts:
    """Prepare drawing, embedding and reading a mark on PROTEINS-GIN, and its p-value."""
    import numpy as np
    from torch.nn.functional import cross_entropy

    from invgnn.secret import Secret, public_stream
    from invgnn.stats.evidence import evidence_of
    from invgnn.training.batching import Collated
    from invgnn.training.tasks import load_task, new_model
    from invgnn.watermark.mark import Watermark
    from invgnn.watermark.reference import Reference

    task, secret = load_task("PROTEINS"), Secret(public_stream("scaling", m).bytes(32))
    reference = Reference.of(task.data)
    mark = Watermark.draw(secret, reference, m=m)
    model, batch = new_model(task, "GIN", 41), Collated(task.graphs).batch(task.train[:64])
    answers = np.random.default_rng(0).normal(size=m)

    def marked() -> None:
        mixed = mark.mix(batch)
        mixed.joint_loss(cross_entropy(mixed(model), batch.y)).backward()

    return {
        "drawing carriers": lambda: Watermark.draw(secret, reference, m=m),
        "a training step without": lambda: cross_entropy(
            model(batch.x, batch.edge_index, batch.batch), batch.y
        ).backward(),
        "a training step with them": marked,
        "an audit": lambda: mark.read(model),
        "an exact p-value of T": lambda: evidence_of(answers, mark.bits, "matches"),
        "another secret's bits": lambda: secret.derive("bits", "scaling").balanced(m),
    }


def large_graph(nodes: int) -> Parts:
    """Prepare λ₂ of one sparse graph with five edges per node."""
    import numpy as np

    from invgnn.graphs.disjoint_union import Graphs
    from invgnn.graphs.invariants import find_invariant

    ends = np.sort(np.random.default_rng(0).integers(0, nodes, (5 * nodes, 2)), axis=1)
    one = Graphs(np.array([0, nodes]), np.unique(ends[ends[:, 0] < ends[:, 1]], axis=0))
    return {"λ₂ of one large graph": lambda: find_invariant("lambda2")(one)}


UNITS: dict[str, tuple[Callable[[int], Parts], tuple[int, int], int]] = {
    "graphs": (data_set, (1000, 4000), 10**6),
    "edges": (one_graph, (100_000, 400_000), 10**9),
    "carriers": (marks, (128, 512), 2048),
    "nodes": (large_graph, (750, 3000), 10**5),
}
"""What parts grow with: how to prepare them, at which sizes they are measured, and where it leads."""
EVERY = [*UNITS, "workers"]
COLUMNS = ("part", "unit", "size", "seconds", "bytes")


def timed(run: Callable[[], Any]) -> float:
    """Return the median seconds of three runs, of more if they are short and of fewer if they are long."""
    taken: list[float] = []
    while (sum(taken) < 0.3 and len(taken) < 99) or (sum(taken) < 3 and len(taken) < 3):
        start = time.perf_counter()
        run()
        taken.append(time.perf_counter() - start)
    return median(taken)


def peak(run: Callable[[], Any]) -> int:
    """Return the peak number of bytes that numpy and Python allocate during a run."""
    tracemalloc.start()
    run()
    held = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return held


# -- sweeps -----------------------------------------------------------------------------------------


def training(seed: int) -> list[dict[str, Any]]:
    """Run one short training with a mark."""
    from invgnn.secret import Secret, public_stream
    from invgnn.training.tasks import motif_task, new_model
    from invgnn.training.trainer import train
    from invgnn.watermark.mark import Watermark
    from invgnn.watermark.recipe import Recipe

    task = motif_task(41, 200)
    secret = Secret(public_stream("scaling", seed).bytes(32))
    mark = Watermark.draw(secret, task.data, m=64, recipe=Recipe(after_task=0))
    seen = train(new_model(task, "GIN", seed), task, mark, epochs=EPOCHS, seed=seed)
    return [{"seed": seed, "accuracy": seen.test_acc}]


def swept(began: float, workers: int, cluster: str | None = None) -> tuple[float, float]:
    """Return the seconds that workers take to start, and for all trainings but the first of each worker.

    The first of a worker waits for imports; the clock of the others starts when every worker has handed one
    in. What that moment was later than `began` by, less one training, is the start.
    """
    from invgnn.bench.sweep import sweep

    grid = [{"seed": seed} for seed in range(workers + TRAININGS)]
    with tempfile.TemporaryDirectory() as folder:
        rows = sweep(training, grid, into=Path(folder, "x.csv"), workers=workers, cluster=cluster)
        came = [time.perf_counter() - began for _ in rows]
    steady = came[-1] - came[workers - 1]
    return came[workers - 1] - steady * workers / TRAININGS, steady


def sweeps() -> Iterator[tuple[str, int, float]]:
    """Time the same trainings by one worker and by two, on processes and on a local cluster."""
    from distributed import LocalCluster

    options = {"threads_per_worker": 1, "host": "127.0.0.1", "dashboard_address": None}
    for workers in (1, 2):
        found = {"processes": swept(time.perf_counter(), workers)}
        began = time.perf_counter()
        with LocalCluster(n_workers=workers, **options) as local:
            found["Dask"] = swept(began, workers, local.scheduler_address)
        for engine, (start, steady) in found.items():
            yield f"start of {engine}", workers, start
            yield f"sweep on {engine}", workers, steady


# -- the results ------------------------------------------------------------------------------------


def rows(unit: str) -> Iterator[tuple[str, int, float, int | str]]:
    """Yield part, size, seconds, and bytes where they grow with the data; first, the load of the cores."""
    from psutil import cpu_percent

    cores = os.cpu_count() or 1
    yield BUSY, cores, cpu_percent(interval=1.0) / 100 * cores, ""
    if unit == "workers":
        yield from ((part, workers, seconds, "") for part, workers, seconds in sweeps())
        return
    prepare, sizes, _ = UNITS[unit]
    for size in sizes:
        for part, run in prepare(size).items():
            yield part, size, timed(run), peak(run) if unit in {"graphs", "edges"} else ""


def measure(units: list[str]) -> None:
    """Measure these units again; the rows of other units stay in the results file."""
    import torch

    torch.set_num_threads(1)
    for wanted in units:
        others = set(EVERY) - {wanted}
        kept: list[dict[str, Any]] = [r for r in read_rows(PATH) if r["unit"] in others]
        for part, size, seconds, held in rows(wanted):
            print(f"{part}, {size} {wanted}: {seconds:.4g} s", flush=True)
            kept.append(dict(zip(COLUMNS, (part, wanted, size, f"{seconds:.4g}", held), strict=True)))
        kept.sort(key=lambda row: EVERY.index(row["unit"]))
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, COLUMNS)
        writer.writeheader()
        writer.writerows(kept)
        PATH.write_text(text.getvalue(), newline="")


def summary() -> str:
    """Return the speed of sweeps, then seconds and bytes of every part and what they extrapolate to."""
    kept = read_rows(PATH)
    busy = {r["unit"]: float(r["seconds"]) for r in kept if r["part"] == BUSY}
    load = "Cores that other processes used when {} began: {:.1f}{}."
    head = [
        f"{TRAININGS} trainings on",
        "one worker",
        "two workers",
        "ratio",
        "to start one",
        "to start two",
    ]
    sweeps_table = table(head, (_sweep(engine, kept) for engine in ENGINES))
    parts = [r for r in kept if r["unit"] in UNITS and r["part"] != BUSY]
    lines = [
        _line(part, unit, *(r for r in kept if r["part"] == part))
        for part, unit in dict.fromkeys((r["part"], r["unit"]) for r in parts)
    ]
    head = ["part", "measured", "four times the size takes", "each", "extrapolated"]
    return "\n\n".join(
        [
            sweeps_table,
            load.format("this", busy.pop("workers"), ""),
            table(head, lines),
            load.format("these", max(busy.values()), " at most"),
        ]
    )


def _sweep(engine: str, kept: list[dict[str, str]]) -> list[str]:
    one, two, first, both = (
        float(r["seconds"])
        for part in (f"sweep on {engine}", f"start of {engine}")
        for r in kept
        if r["part"] == part
    )
    return [engine, f"{one:.1f} s", f"{two:.1f} s", f"{one / two:.2f}", f"{first:.1f} s", f"{both:.1f} s"]


def _line(part: str, unit: str, small: dict[str, str], large: dict[str, str]) -> list[str]:
    size, seconds, far = int(large["size"]), float(large["seconds"]), UNITS[unit][2]
    times, held = seconds / float(small["seconds"]), int(large["bytes"] or 0)
    power = log(times) / log(size / int(small["size"])) if part in STEEP else int(part not in FLAT)
    each, there = "", f"{_time(seconds * (far / size) ** power)}"
    if power == 1:
        each = _time(seconds / size) + (f", {_memory(held / size)}" if held else "")
        there += f", {_memory(held / size * far)}" if held else ""
    measured = f"{_time(seconds)} at {_count(size)} {unit}"
    return [part, measured, f"{times:.1f} times", each, f"{there} at {_count(far)} {unit}"]


def _count(number: int) -> str:
    return {10**5: "10⁵", 10**6: "10⁶", 10**9: "10⁹"}.get(number, str(number))


def _time(seconds: float) -> str:
    hours = ((86400 * 365, "years"), (86400, "days"), (3600, "h"), (60, "min"))
    return _in(seconds, (*hours, (1, "s"), (1e-3, "ms"), (1e-6, "μs")))


def _memory(held: float) -> str:
    return _in(held, ((2**40, "TB"), (2**30, "GB"), (2**20, "MB"), (2**10, "kB"), (1, "B")))


def _in(value: float, units: tuple[tuple[float, str], ...]) -> str:
    """Format a value with two digits in the largest unit of which there are two."""
    size, name = next((unit for unit in units if value >= 2 * unit[0]), units[-1])
    number = value / size
    return f"{number:.0f} {name}" if number >= 10 else f"{number:.2g} {name}"


def main() -> None:
    """Parse the command line, measure, and print the table."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("units", nargs="*", help=f"measure only these: {', '.join(EVERY)}")
    args = parser.parse_args()
    if unknown := set(args.units) - set(EVERY):
        parser.error(f"there is no {', '.join(unknown)}")
    if not args.summary:
        os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")
        measure(args.units or EVERY)
    publish(summary(), args.into)


if __name__ == "__main__":
    main()
