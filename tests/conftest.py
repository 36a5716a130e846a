"""Small tasks, marks and models that several tests share."""

from __future__ import annotations

import os
import random
import warnings
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import settings

with warnings.catch_warnings():  # PyG itself compiles in ways that torch has come to deprecate
    warnings.simplefilter("ignore")
    from torch_geometric.data import Data

from _helpers.drawn import Lcg
from invgnn.errors import DataError
from invgnn.graphs.disjoint_union import Graphs
from invgnn.nn.rng import seeded
from invgnn.secret import Secret
from invgnn.training.tasks import Task, load_task
from invgnn.watermark.mark import Watermark
from invgnn.watermark.reference import Reference

SHARED = Path(__file__).resolve().parents[2] / "shared" / "datasets"
if "INVGNN_DATA" not in os.environ and SHARED.is_dir():
    os.environ["INVGNN_DATA"] = str(SHARED)
settings.register_profile("shared machine", deadline=None)
settings.load_profile("shared machine")
torch.set_num_threads(1)  # tests share the machine; two threads a process are slower than one


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call():
    """Models that a test builds without a seed are the same in whatever order, on whichever worker."""
    with seeded(0):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup():
    """So are those that a fixture builds."""
    with seeded(0):
        return (yield)


@pytest.fixture(scope="session")
def task():
    """Loads a named task, or skips where its data cannot be had."""
    held = {}

    def load(name):
        if name not in held:
            try:
                held[name] = load_task(name)
            except DataError as error:
                pytest.skip(f"no data: {error.message}")
        return held[name]

    return load


@pytest.fixture(scope="session")
def motifs(task):
    """The first 200 graphs of BA-2motif: 160 to train, 20 to validate, 20 to test."""
    whole, part = task("BA-2motif"), torch.arange(200)
    return replace(whole, graphs=whole.graphs[:200], train=part[:160], val=part[160:180], test=part[180:])


@pytest.fixture(scope="session")
def web():
    """A node task: 150 nodes of one graph, hubs against the others, 5 noisy features."""
    draws, nodes = Lcg(5), 150
    ends = [(v, int(draws.below(np.array([v]))[0])) for v in range(1, nodes) for _ in range(2)]
    pairs = torch.tensor([(u, v) for u, v in ends] + [(v, u) for u, v in ends]).T
    y = (torch.bincount(pairs[0], minlength=nodes) > 4).long()
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(nodes, 5))).float() + y[:, None]
    order = torch.from_numpy(np.random.default_rng(1).permutation(nodes))
    graph = Data(x=x, edge_index=pairs, y=y, num_nodes=nodes)
    return Task("web", "node", [graph], order[:90], order[90:120], order[120:], 2, "test")


@pytest.fixture(scope="session")
def rings():
    """Eighty rings of 9 to 16 nodes with chords and three one-hot colours, from Knuth's generator."""
    draws, items = Lcg(11), []
    for size in (9 + draws.below(np.full(80, 8))).tolist():
        ring = [(v, (v + 1) % size) for v in range(size)]
        chords = draws.below(np.full(2 * (size // 3), size)).reshape(-1, 2).tolist()
        x = np.eye(3, dtype=np.float32)[draws.below(np.full(size, 3))]
        pairs = ring + chords
        both = torch.tensor(pairs + [(v, u) for u, v in pairs]).T
        items.append(Data(x=torch.from_numpy(x), edge_index=both, num_nodes=size))
    return Graphs.from_data(items)


@pytest.fixture(scope="session")
def references(motifs, web):
    return {"graph": Reference.of(motifs.data), "node": Reference.of(web.data)}


@pytest.fixture(scope="session")
def draw(references):
    """Draws a mark, by default the same small one for graphs."""

    def drawn(level="graph", seed=0, **options):
        secret = Secret(bytes([seed % 256, seed // 256]) * 16)
        return Watermark.draw(secret, references[level], **{"m": 16, "classes": 2, **options})

    return drawn


def everything(model):
    """All there is to see of a model and of the global random states, as comparable values."""
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return {
        "state": {name: value.numpy(force=True).tobytes() for name, value in model.state_dict().items()},
        "grads": {
            name: None if p.grad is None else p.grad.tolist() for name, p in model.named_parameters()
        },
        "wants": [p.requires_grad for p in model.parameters()],
        "same": [id(t) for t in (*model.parameters(), *model.buffers())],
        "modules": [(name, type(m), m.training) for name, m in model.named_modules()],
        "hooks": [len(getattr(m, kind)) for m in model.modules() for kind in hooks],
        "caches": [id(v) for m in model.modules() for n, v in vars(m).items() if n.startswith("_cached_")],
        "torch": torch.get_rng_state().tolist(),
        "numpy": str(np.random.get_state()),  # noqa: NPY002 - the state to compare
        "python": random.getstate(),
    }


@pytest.fixture(scope="session")
def unchanged():
    """A block that must leave a model and the random states as they were."""

    @contextmanager
    def watched(model):
        before = everything(model)
        yield
        after = everything(model)
        assert [key for key in before if before[key] != after[key]] == []

    return watched
