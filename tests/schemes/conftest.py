"""Small tasks on which every scheme of the comparison is defined, and models that carry its mark."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from _helpers.schemes import EPOCHS, FEATURES, SCHEMES
from invgnn.errors import SchemeError
from invgnn.secret import Secret
from invgnn.training.fitting import FitOptions, fit_task
from invgnn.training.tasks import Task, new_model


def binary(rows, rng):
    """Return binary features that depend on the class a little."""
    base = rng.random((len(rows), FEATURES)) < 0.25
    shown = rng.random((len(rows), FEATURES)) < 0.5
    half = (np.arange(FEATURES) % 4)[None] == np.asarray(rows)[:, None]
    return torch.from_numpy((base | (shown & half)).astype(np.float32))


@pytest.fixture(scope="session")
def nodes():
    """A node task: 240 nodes of four classes, mostly linked within a class, with 80 binary features."""
    rng = np.random.default_rng(3)
    y = np.arange(240) % 4
    ends = rng.integers(0, 60, size=(2, 500)) * 4 + rng.integers(0, 4, size=500)[None]
    some = rng.integers(0, 240, size=(2, 160))
    pairs = np.unique(np.sort(np.concatenate([ends, some], axis=1), axis=0), axis=1)
    pairs = torch.from_numpy(pairs[:, pairs[0] != pairs[1]])
    graph = Data(x=binary(y, rng), edge_index=torch.cat([pairs, pairs.flip(0)], 1), y=torch.from_numpy(y))
    order = torch.from_numpy(rng.permutation(240))
    return Task("squares", "node", [graph], order[:160], order[160:200], order[200:], 4, "test")


@pytest.fixture(scope="session")
def graphs(motifs):
    """A graph task: 190 of the motif graphs, with 80 binary features in place of colours."""
    rng = np.random.default_rng(4)
    held = [
        Data(x=binary(np.full(int(g.num_nodes), int(g.y)), rng), edge_index=g.edge_index, y=g.y)
        for g in motifs.graphs[:190]
    ]
    part = torch.arange(190)
    return Task("wide motifs", "graph", held, part[:160], part[160:175], part[175:], 2, "test")


class Owners:
    """Trains the model of every scheme and task once."""

    def __init__(self, tasks):
        self.tasks, self.kept = tasks, {}

    def __call__(self, name, level):
        key = name, level
        if key not in self.kept:
            self.kept[key] = self.made(SCHEMES[name], self.tasks[level])
        if isinstance(self.kept[key], SchemeError):
            pytest.skip(self.kept[key].message)
        return self.kept[key]

    def made(self, scheme, task):
        model = new_model(task, "GIN" if task.level == "graph" else "GraphSAGE", 0, hidden_channels=16)
        try:
            mark = scheme.suited(model, task).prepare(Secret(b"q" * 32), task)
        except SchemeError as error:
            return error
        history = mark.train(model, task, FitOptions(EPOCHS, seed=0, decay=True))
        return mark, model, history


@pytest.fixture(scope="session")
def owned(nodes, graphs):
    """Returns mark, model and history of a scheme by its name and the level of the task."""
    return Owners({"node": nodes, "graph": graphs})


@pytest.fixture(scope="session")
def innocents(nodes, graphs):
    """Two unmarked models of each task."""

    def trained(task, seed):
        model = new_model(task, "GIN" if task.level == "graph" else "GraphSAGE", seed, hidden_channels=16)
        fit_task(model, task, FitOptions(EPOCHS, seed=seed, decay=True))
        return model

    return {t.level: [trained(t, seed) for seed in (11, 12)] for t in (nodes, graphs)}
