"""Tasks: generated tasks are reproducible, data sets have the right size, shared data are only read."""

from __future__ import annotations

import copy
import os
import shutil
import sys
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import torch
from scipy.stats import chi2_contingency
from torch_geometric.data import Data
from torch_geometric.utils import to_networkx

from invgnn.errors import DataError, ParameterError
from invgnn.graphs.disjoint_union import Graphs
from invgnn.training.tasks import (
    NAMES,
    load_task,
    motif_task,
    new_model,
    own_task,
    parse_setting,
    scratch_root,
)

SMALL = 60


def bytes_of(task):
    return b"".join(
        part.numpy().tobytes() for g in task.graphs for part in (g.x, g.edge_index, g.y)
    ) + b"".join(part.numpy().tobytes() for part in (task.train, task.val, task.test))


def test_motifs_repeat_whatever_the_global_state():
    torch.manual_seed(1)
    first = bytes_of(motif_task(41, SMALL))
    torch.manual_seed(2)
    np.random.seed(3)  # noqa: NPY002 - PyG's generators read it
    assert bytes_of(motif_task(41, SMALL)) == first
    assert bytes_of(motif_task(42, SMALL)) != first
    before = torch.get_rng_state()
    motif_task(41, SMALL)
    assert torch.get_rng_state().equal(before)


def test_motifs_are_balanced_and_only_the_motif_tells(task):
    whole = task("BA-2motif")
    assert [len(part) for part in (whole.train, whole.val, whole.test)] == [800, 100, 100]
    assert sorted(torch.cat([whole.train, whole.val, whole.test]).tolist()) == list(range(1000))
    y = torch.cat([g.y for g in whole.graphs])
    assert y.bincount().tolist() == [500, 500]
    # Colours and sizes are independent of the class; the last five nodes are its motif.
    colours = [sum(g.x.sum(0) for g in whole.graphs if g.y == label).tolist() for label in (0, 1)]
    sizes = [np.bincount([g.num_nodes for g in whole.graphs if g.y == label])[17:30] for label in (0, 1)]
    assert chi2_contingency(colours).pvalue > 1e-3
    assert chi2_contingency(sizes).pvalue > 1e-3
    for g in whole.graphs[:40]:
        graph = to_networkx(g, to_undirected=True)
        motif = graph.subgraph(range(g.num_nodes - 5, g.num_nodes))
        assert nx.is_isomorphic(motif, nx.cycle_graph(5) if g.y else nx.house_graph())
        assert (g.x.sum(1) == 1).all()


def test_a_task_hands_out_only_training_graphs(task, web):
    whole = task("BA-2motif")
    assert [id(g) for g in whole.data] == [id(whole.graphs[i]) for i in whole.train]
    assert web.data is web.graphs[0]
    assert (whole.num_features, web.num_features) == (4, 5)


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: load_task("PROTEIN"), "unknown task"),
        (lambda: load_task(""), "unknown task"),
        (lambda: parse_setting("PROTEINS"), "TASK/BACKBONE"),
        (lambda: parse_setting("PROTEINS/GAT"), "TASK/BACKBONE"),
        (lambda: new_model(motif_task(1, 10), "GAT", 0), "unknown backbone"),
    ],
)
def test_unknown_names(act, message):
    with pytest.raises(ParameterError, match=message) as caught:
        act()
    assert "GIN" in caught.value.advice or "PROTEINS" in caught.value.advice


def test_settings_name_a_task_and_a_backbone():
    assert parse_setting("BA-2motif/GIN") == ("BA-2motif", "GIN")
    assert parse_setting("Cora-public/SGC") == ("Cora-public", "SGC")


SIZES = {
    "PROTEINS": (1113, 2, 890, 111, 112),
    "NCI1": (4110, 2, 3288, 411, 411),
    "MUTAG": (188, 2, 150, 19, 19),
    "ENZYMES": (600, 6, 480, 60, 60),
    "Cora": (2708, 7, 1208, 500, 1000),
    "Cora-public": (2708, 7, 140, 500, 1000),
    "CiteSeer": (3327, 6, 1827, 500, 1000),
    "CiteSeer-public": (3327, 6, 120, 500, 1000),
    "PubMed": (19717, 3, 18217, 500, 1000),
    "PubMed-public": (19717, 3, 60, 500, 1000),
    "Photo": (7650, 8, 6120, 765, 765),
}


@pytest.mark.parametrize("name", SIZES)
def test_real_data_have_their_sizes(task, name):
    real = task(name)
    count = len(real.graphs) if real.level == "graph" else real.graphs[0].num_nodes
    parts = (real.train, real.val, real.test)
    assert (count, real.num_classes, *map(len, parts)) == SIZES[name]
    together = torch.cat(parts).tolist()
    assert len(set(together)) == len(together)
    assert (real.seed is None) == (real.split in {"full", "public"})


@pytest.mark.parametrize("name", SIZES)
def test_real_data_have_both_directions(task, name):
    """Warnings are errors here: no data set triggers the warning about one-way edges."""
    Graphs.from_data(task(name).graphs)


def test_where_files_cannot_be_locked(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "fcntl", None)  # as on Windows
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with scratch_root("MUTAG") as root:
        assert (Path(root) / "MUTAG").is_dir()


def test_every_name_was_measured():
    assert set(NAMES) == {"BA-2motif", *SIZES}


def listing(folder):
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.stat().st_size)
        for path in (folder, *folder.rglob("*"))
    }


def test_shared_data_are_only_read(tmp_path, monkeypatch):
    shared = Path(os.environ.get("INVGNN_DATA", "")) / "MUTAG" / "raw"
    if not os.environ.get("INVGNN_DATA") or not shared.is_dir():
        pytest.skip("no data: INVGNN_DATA holds no MUTAG")
    copy = tmp_path / "data"
    shutil.copytree(shared, copy / "MUTAG" / "raw")
    before = listing(copy)
    monkeypatch.setenv("INVGNN_DATA", str(copy))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    first, again = load_task("MUTAG"), load_task("MUTAG")
    assert bytes_of(first) == bytes_of(again)
    assert listing(copy) == before
    assert listing(tmp_path / "cache")


def test_a_relative_folder_is_another_one_elsewhere(tmp_path, monkeypatch):
    monkeypatch.setenv("INVGNN_DATA", "data")
    roots = set()
    for place in ("here", "there"):
        (tmp_path / place).mkdir()
        monkeypatch.chdir(tmp_path / place)
        roots.add(scratch_root("MUTAG").root)
    assert len(roots) == 2


def test_missing_data_say_what_to_do(tmp_path, monkeypatch):
    def offline(*_):
        raise OSError("no network")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("INVGNN_DATA", str(tmp_path / "nothing"))
    monkeypatch.setitem(
        __import__("invgnn.training.tasks").training.tasks._LOADERS, "MUTAG", (offline, "80/10/10", "graph")
    )
    with pytest.raises(DataError, match="MUTAG cannot be loaded: no network") as caught:
        load_task("MUTAG")
    assert "INVGNN_DATA" in caught.value.advice


def test_a_task_of_ones_own_is_split_as_masks_say_or_at_random(web):
    graph = copy.copy(web.data)
    node = own_task(graph, "mine")
    assert (node.level, node.num_classes, node.split, node.seed) == ("node", 2, "random 80/10/10", 41)
    assert sorted(torch.cat([node.train, node.val, node.test]).tolist()) == list(range(150))
    assert (len(node.train), len(node.val), len(node.test)) == (120, 15, 15)
    for part, first in (("train", 0), ("val", 1), ("test", 2)):
        graph[f"{part}_mask"] = torch.arange(150) % 3 == first
    masked = own_task(graph, "mine")
    assert masked.split == "own masks"
    assert masked.val.tolist() == list(range(1, 150, 3))
    assert own_task(masked, "other") is masked
    items = [Data(x=graph.x, edge_index=graph.edge_index, y=torch.tensor([i % 3])) for i in range(20)]
    graphs = own_task(items, "mine")
    assert (graphs.level, graphs.num_classes, len(graphs.test)) == ("graph", 3, 2)
    with pytest.raises(DataError, match="no classes"):
        own_task([Data(x=graph.x, edge_index=graph.edge_index)], "unlabelled")
