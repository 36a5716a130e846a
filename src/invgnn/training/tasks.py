"""Named data sets and their splits. This is the only module that downloads."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.datasets import Amazon, Planetoid, TUDataset
from torch_geometric.datasets.graph_generator import BAGraph
from torch_geometric.datasets.motif_generator import CycleMotif, HouseMotif

from invgnn.errors import DataError, ParameterError
from invgnn.nn.backbones import BACKBONES, Backbone, Level, build
from invgnn.nn.forward import Forward, call, one_tensor
from invgnn.nn.rng import seeded
from invgnn.nn.typed_graphs import Schema, is_typed


@dataclass(frozen=True, eq=False)
class Task:
    """A classification task: graphs, or the nodes of one graph, with a fixed split.

    Attributes:
        name: Name of the task.
        level: "graph" or "node".
        graphs: The graphs; one graph for a node task.
        train: Indices of the training graphs or nodes.
        val: Indices of the validation part.
        test: Indices of the test part.
        num_classes: Number of classes.
        split: Name of the split.
        seed: Seed of a random split; None if the data set has its own split.
        forward: How a model of one's own is called; None if the names of its arguments decide.
    """

    name: str
    level: Level
    graphs: list[Data]
    train: Tensor
    val: Tensor
    test: Tensor
    num_classes: int
    split: str
    seed: int | None = None
    forward: Forward | None = None

    @property
    def num_features(self) -> int:
        """Width of the node features; 0 without any."""
        x = self.graphs[0].x
        return 0 if x is None else int(x.shape[1])

    @property
    def data(self) -> Any:
        """The data that a mark is drawn from: the training graphs, or the one graph of a node task."""
        if self.level == "node":
            return self.graphs[0]
        return [self.graphs[i] for i in self.train.tolist()]

    def scores(self, model: nn.Module, batch: Any) -> Tensor:
        """Return the scores of a model on a batch of the task, in its present mode.

        The library's own backbones are called by the names of their arguments in any case.

        Args:
            model: The model.
            batch: A PyG batch.
        """
        way = None if isinstance(model, Backbone) else self.forward
        return one_tensor((way or call)(model, batch))

    def to(self, device: torch.device | str) -> Task:
        """Return the same task on a device; this object if it is there already."""
        if self.train.device == torch.device(device):
            return self
        return replace(
            self,
            graphs=[copy.copy(graph).to(device) for graph in self.graphs],
            **{name: getattr(self, name).to(device) for name in ("train", "val", "test")},
        )


def _tu(root: str, name: str) -> list[Data]:
    """Load a TU data set."""
    return list(TUDataset(root, name))


def _planetoid(split: str) -> Callable[[str, str], list[Data]]:
    """Return the loader of a Planetoid data set with a split."""
    return lambda root, name: [Planetoid(root, name, split=split)[0]]


def _amazon(root: str, name: str) -> list[Data]:
    """Load an Amazon data set."""
    return [Amazon(root, name)[0]]


_LOADERS: dict[str, tuple[Callable[[str, str], list[Data]], str, Level]] = {
    **dict.fromkeys(("PROTEINS", "NCI1", "MUTAG", "ENZYMES"), (_tu, "80/10/10", "graph")),
    **{name: (_planetoid("full"), "full", "node") for name in ("Cora", "CiteSeer", "PubMed")},
    **{
        f"{name}-public": (_planetoid("public"), "public", "node")
        for name in ("Cora", "CiteSeer", "PubMed")
    },
    "Photo": (_amazon, "80/10/10", "node"),
}
NAMES = ("BA-2motif", *_LOADERS)


def load_task(name: str, seed: int = 41) -> Task:
    """Load a named task.

    Data are loaded through PyG. The environment variable `INVGNN_DATA` names a folder with raw files in
    PyG's layout, to use instead of a download; the folder is only read.

    Args:
        name: Name of the task, one of `NAMES`.
        seed: Seed of the random split, for data sets without a split of their own.

    Raises:
        ParameterError: If the name is unknown.
        DataError: If the data set cannot be loaded.
    """
    if name == "BA-2motif":
        return motif_task(seed)
    if name not in _LOADERS:
        raise ParameterError(f"unknown task {name!r}", f"choose one of {', '.join(NAMES)}")
    loader, split, level = _LOADERS[name]
    dataset = name.removesuffix("-public")
    with scratch_root(dataset) as root, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Planetoid's pickles name modules SciPy has renamed
        graphs = loader(root, dataset)
    classes = int(torch.cat([g.y for g in graphs]).max()) + 1
    train, val, test = _parts(graphs, split, seed)
    drawn = seed if split == "80/10/10" else None
    return Task(name, level, graphs, train, val, test, classes, split, drawn)


def _parts(graphs: list[Data], split: str, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the indices of the training, validation and test parts."""
    if split in {"full", "public"}:
        masks = (graphs[0].train_mask, graphs[0].val_mask, graphs[0].test_mask)
        train, val, test = (mask.nonzero().view(-1) for mask in masks)
        return train, val, test
    count = len(graphs) if len(graphs) > 1 else int(graphs[0].num_nodes)
    order = torch.from_numpy(np.random.default_rng(seed).permutation(count))
    first, second = int(0.8 * count), int(0.9 * count)
    return order[:first], order[first:second], order[second:]


class scratch_root:
    """A folder that PyG may write `processed/` into, with `raw/` linked from INVGNN_DATA if present."""

    def __init__(self, name: str) -> None:
        given = os.environ.get("INVGNN_DATA", "")
        given = str(Path(given).resolve()) if given else ""  # the same name in another folder is other data
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "invgnn"
        self.root = cache / (hashlib.sha256(given.encode()).hexdigest()[:8] if given else "data")
        self.raw = Path(given) / name / "raw" if given else None
        self.name = name

    def __enter__(self) -> str:
        folder = self.root / self.name
        folder.mkdir(parents=True, exist_ok=True)
        self.lock = (folder / ".lock").open("w")
        with contextlib.suppress(ImportError):  # Windows has no fcntl: load once there, then in parallel
            import fcntl

            fcntl.flock(self.lock, fcntl.LOCK_EX)  # two processes must not process the same data
        if self.raw is not None and self.raw.is_dir() and not (folder / "raw").exists():
            (folder / "raw").symlink_to(self.raw)
        return str(self.root)

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> Literal[False]:
        self.lock.close()
        if isinstance(error, OSError | RuntimeError):
            raise DataError(
                f"the data set {self.name} cannot be loaded: {error}",
                "set INVGNN_DATA to a folder that contains <name>/raw in PyG's layout, or connect to the "
                "internet once to download it",
            ) from error
        return False


COLOURS = 4


def motif_task(seed: int, count: int = 1000) -> Task:
    """Generate Barabási-Albert graphs that contain a house or a five-cycle, with random node colours.

    The task is generated, so that everything runs without a download. The colours are independent of the
    class: only the motif determines it.

    Args:
        seed: Seed of the graphs and of the split.
        count: Number of graphs.
    """
    with seeded(seed):
        graphs = [_motif_graph(i % 2) for i in range(count)]
    train, val, test = _parts(graphs, "80/10/10", seed)
    return Task("BA-2motif", "graph", graphs, train, val, test, 2, "80/10/10", seed)


def _motif_graph(label: int) -> Data:
    """Generate one graph of a class."""
    base = BAGraph(num_nodes=int(torch.randint(12, 25, ())), num_edges=2)()
    motif = (HouseMotif, CycleMotif)[label](*((5,) if label else ()))()
    offset = int(base.num_nodes)
    bridge = torch.tensor([[int(torch.randint(offset, ()))], [offset]])
    edges = torch.cat([base.edge_index, motif.edge_index + offset, bridge, bridge.flip(0)], dim=1)
    nodes = offset + int(motif.num_nodes)
    colours = torch.randint(COLOURS, (nodes,))
    return Data(
        x=torch.nn.functional.one_hot(colours, COLOURS).float(),
        edge_index=edges,
        y=torch.tensor([label]),
        num_nodes=nodes,
    )


def own_task(data: Any, name: str, seed: int = 41, forward: Forward | None = None) -> Task:
    """Return the task of graphs of one's own: as masks say, or split 80/10/10 at random.

    Args:
        data: A list of labelled PyG graphs, a data set, the labelled graph of a node task, or a `Task`.
        name: Name of the task.
        seed: Seed of the split.
        forward: How a model is called, as in `Watermark.draw`; typed graphs have their own way.

    Raises:
        DataError: If some graph or node has no class.
    """
    if isinstance(data, Task):
        return data if forward is None else replace(data, forward=forward)
    if is_typed(data):
        raise DataError(
            "a single HeteroData is no task: typed graphs are classified as wholes",
            "pass a list of HeteroData, one for each graph, or data.to_homogeneous() for its nodes",
        )
    one = getattr(data, "edge_index", None) is not None and not hasattr(data, "indices")
    graphs = [data] if one else list(data)
    if graphs and all(map(is_typed, graphs)):
        schema = Schema.of(graphs)
        graphs, forward = [schema.flatten(graph) for graph in graphs], forward or schema
    labels = [getattr(graph, "y", None) for graph in graphs]
    if not graphs or any(not isinstance(y, Tensor) or y.is_floating_point() for y in labels):
        raise DataError(
            "the data have no classes to measure accuracy by",
            "set y of every graph to its class; for real-valued targets edit a copy of the model yourself, "
            "for example by invgnn.attacks.edits, and verify it",
        )
    rows = int(data.num_nodes) if one else len(graphs)
    masks = [getattr(data, f"{part}_mask", None) for part in ("train", "val", "test")] if one else [None]
    known = all(mask is not None and mask.dim() == 1 for mask in masks)
    with seeded(seed):
        order = torch.randperm(rows)
    tenth = max(1, rows // 10)
    parts = order[2 * tenth :], order[:tenth], order[tenth : 2 * tenth]
    train, val, test = [mask.nonzero().view(-1) for mask in masks] if known else parts  # type: ignore[union-attr]
    classes = 1 + max(int(y.max()) for y in labels if y is not None)
    level: Level = "node" if one else "graph"
    split, chosen = ("own masks", None) if known else ("random 80/10/10", seed)
    return Task(name, level, graphs, train, val, test, classes, split, chosen, forward)


DEPTHS = {"graph": 3, "node": 2}


def new_model(task: Task, backbone: str, seed: int, hidden_channels: int = 64) -> Backbone:
    """Return a new model for a task.

    Args:
        task: The task.
        backbone: Name of the backbone.
        seed: Seed of the initial weights.
        hidden_channels: Number of hidden channels.

    Raises:
        ParameterError: If the backbone is unknown.
    """
    if backbone not in BACKBONES:
        raise ParameterError(f"unknown backbone {backbone!r}", f"choose one of {', '.join(BACKBONES)}")
    with seeded(seed):
        return build(
            {
                "name": backbone,
                "in_channels": task.num_features,
                "hidden_channels": hidden_channels,
                "num_layers": 1 if backbone == "SGC" else DEPTHS[task.level],
                "out_channels": task.num_classes,
                "level": task.level,
                "dropout": 0.0 if backbone == "SGC" else 0.5,
            }
        )


def parse_setting(setting: str) -> tuple[str, str]:
    """Split a setting such as `"PROTEINS/GIN"` into the names of the task and of the backbone.

    Raises:
        ParameterError: If either name is unknown.
    """
    name, _, backbone = setting.partition("/")
    if name not in NAMES or backbone not in BACKBONES:
        raise ParameterError(
            f"{setting!r} is not of the form TASK/BACKBONE with known names",
            f"tasks: {', '.join(NAMES)}; backbones: {', '.join(BACKBONES)}",
        )
    return name, backbone
