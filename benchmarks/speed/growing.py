"""Measure how time and memory grow with the number of carriers, of graphs, and of nodes of one graph."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from torch_geometric.data import Data

from invgnn.bench.clock import exponent, peak_megabytes, repeated
from invgnn.bench.measurements import Measurement
from invgnn.graphs.disjoint_union import Graphs, key_edges, offsets_of, unkey_edges
from invgnn.nn.backbones import GCN, GIN
from invgnn.nn.forward import to_batch
from invgnn.secret import Secret, public_stream
from invgnn.watermark.mark import Watermark
from invgnn.watermark.reference import Reference

CARRIERS, GRAPHS, NODES = (128, 512, 2048, 4096), (10**3, 10**4, 10**5), (10**5, 10**6)
WIDTH, FEW = 16, 10**4
ROOT = Path(__file__).parents[2]
SECRET = Secret(public_stream("speed", "growth").bytes(32))


def molecules(count: int) -> Graphs:
    """Return connected random graphs of 12 to 40 nodes: a random tree and some chords."""
    rng = np.random.default_rng(count)
    sizes = rng.integers(12, 41, count)
    ptr = offsets_of(sizes)
    first = np.repeat(ptr[:-1], sizes)
    node = np.arange(ptr[-1])
    # Each node hangs on one not far before it; chords join two nodes of a graph anywhere.
    up = np.maximum(first, node - rng.integers(1, 4, len(node)))
    links = sizes // 5
    graph = np.repeat(np.arange(count), links)
    ends = ptr[graph] + (rng.random((2, len(graph))) * sizes[graph]).astype(np.int64)
    u, v = np.concatenate([[node, up], ends], axis=1)
    keys = np.unique(key_edges(u, v, len(node))[u != v])
    x = np.eye(WIDTH, dtype=np.float32)[rng.integers(0, WIDTH, len(node))]
    return Graphs(ptr, unkey_edges(keys, len(node)), x)


def web(nodes: int) -> Data:
    """Return one graph in which every node links to three others, half of them nearby."""
    rng = np.random.default_rng(nodes)
    u = np.repeat(np.arange(nodes), 3)
    near = (u + rng.integers(1, 50, len(u))) % nodes
    v = np.where(rng.random(len(u)) < 0.5, near, rng.integers(0, nodes, len(u)))
    both = np.concatenate([[u, v], [v, u]], axis=1)
    x = rng.integers(0, 2, (nodes, WIDTH)).astype(np.float32)
    return Data(x=torch.from_numpy(x), edge_index=torch.from_numpy(both), num_nodes=nodes)


def growth() -> Iterator[Measurement]:
    """Measure carriers, one embedding step and an audit, by m and by the number of graphs."""
    parts: dict[str, Callable[[Any], Any]] = {
        "carriers": _further,
        "embedding step": _step,
        "audit": _audit,
    }
    for what, part in parts.items():
        yield from _grown(f"{what} by m", CARRIERS, part, [(m, FEW) for m in CARRIERS])
    yield from _grown("carriers by graphs", GRAPHS, _first, [(128, count) for count in GRAPHS])


def _grown(
    what: str, sizes: tuple[int, ...], part: Callable[..., Any], cases: list[Any]
) -> Iterator[Measurement]:
    """Measure each size in a process of its own, for its peak memory, and the slope of the times."""
    found = [in_its_own_process("growth", part.__name__, *case) for case in cases]
    times = [one["seconds"] for one in found]
    for size, one in zip(sizes, found, strict=True):
        yield Measurement(
            "growth",
            what,
            str(size),
            "",
            one["seconds"],
            one["low"],
            one["high"],
            repeats=3,
            note=one["note"],
        )
    slope = exponent(list(sizes), times)
    yield Measurement("growth", what, "linear", "<= 1.1", slope, slope, slope, note="exponent")


def in_its_own_process(kind: str, *case: Any) -> dict[str, Any]:
    """Return what `measure` returns for one case, run in another process."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.speed.growing", kind, *map(str, case)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S603 - our own file
    return dict(json.loads(done.stdout.splitlines()[-1]))


def measure(kind: str, name: str, *sizes: int) -> dict[str, Any]:
    """Return the seconds of one case, and its memory beyond program and data."""
    torch.set_num_threads(1)
    if kind == "nodes":
        return _measure_nodes(*sizes)
    m, count = sizes
    run = {"_first": _first, "_further": _further, "_step": _step, "_audit": _audit}[name](m, count)
    before = peak_megabytes()
    times = repeated(run, 3)[:, 0]
    return _record(times, f"{peak_megabytes() - before:.0f} MB beyond the {before:.0f} of program and data")


def _record(times: Any, note: str) -> dict[str, Any]:
    low, middle, high = np.percentile(times, [25, 50, 75]).tolist()
    return {"seconds": middle, "low": low, "high": high, "note": note}


def _first(m: int, count: int) -> Callable[[], Any]:
    """Return a function that draws the first mark of new data."""
    graphs = molecules(count)
    return lambda: Watermark.draw(SECRET, Graphs(graphs.ptr, graphs.edges, graphs.x), m=m)


def _further(m: int, count: int) -> Callable[[], Any]:
    """Return a function that draws a further mark of data whose statistics are known."""
    return partial(Watermark.draw, SECRET, Reference(molecules(count)), m=m)


def _learner(m: int, count: int) -> tuple[Any, Watermark, Any]:
    graphs = molecules(count)
    model = GIN(WIDTH, 64, 3, 2)
    return model, Watermark.draw(SECRET, graphs, m=m), to_batch(graphs.take(np.arange(64)))


def _step(m: int, count: int) -> Callable[[], Any]:
    model, mark, batch = _learner(m, count)
    optimiser, labels = torch.optim.Adam(model.train().parameters()), torch.arange(64) % 2

    def step() -> None:
        mixed = mark.mix(batch)
        optimiser.zero_grad()
        mixed.joint_loss(cross_entropy(mixed(model), labels)).backward()
        optimiser.step()

    return step


def _audit(m: int, count: int) -> Callable[[], Any]:
    model, mark, _ = _learner(m, count)
    return partial(mark.read, model)


def nodes() -> Iterator[Measurement]:
    """Measure carriers of one large graph, and the audit, relative to reading the graph once."""
    for count in NODES:
        found = in_its_own_process("nodes", "", count)
        for what, (ratio, low, high, note, target) in found.items():
            named = f"{what} of a graph of 10^{len(str(count)) - 1} nodes"
            yield Measurement(
                "nodes", named, "reading the graph once", target, ratio, low, high, repeats=3, note=note
            )


def _measure_nodes(count: int) -> dict[str, Any]:
    data = web(count)
    whole = repeated(lambda: Graphs.from_data([data]), 3)[:, 0]
    before = peak_megabytes()
    reference = Reference.of(data)
    parts = {
        "population": lambda: Reference.of(data),
        "carriers": lambda: Watermark.draw(SECRET, Reference(reference.graphs, "node")),
    }
    model, mark = GCN(WIDTH, 64, 2, 2, level="node"), parts["carriers"]()
    parts["audit"] = partial(mark.read, model)
    found = {}
    for what, run in parts.items():
        times = repeated(run, 3)[:, 0]
        low, middle, high = np.percentile(times / np.median(whole), [25, 50, 75]).tolist()
        note = f"{np.median(times):.3g} s; {peak_megabytes() - before:.0f} MB beyond reading it"
        found[what] = (middle, low, high, note, "" if what == "population" else "<= 1")
    return found


if __name__ == "__main__":
    print(json.dumps(measure(*sys.argv[1:3], *map(int, sys.argv[3:]))))
