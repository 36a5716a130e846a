"""Models of users with their data and training, for measurements of `mark.embed`."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, l1_loss
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader, RandomNodeLoader
from torch_geometric.nn import GAE, GAT, GCN, GraphSAGE
from torch_geometric.transforms import AddRandomWalkPE, RandomLinkSplit

from invgnn.bench.user_data import WIDTHS, Part, enzymes, libraries, rings, split
from invgnn.bench.user_networks import (
    WALKS,
    Bonds,
    Encoder,
    GraphModel,
    Library,
    OneNumber,
    Transformer,
    link_scores,
)
from invgnn.nn.forward import evaluation_mode
from invgnn.nn.optimise import LearningRate, optimise
from invgnn.nn.rng import seeded
from invgnn.training.tasks import load_task


@dataclass(frozen=True)
class Case:
    """A model of a user, the data it is trained on, and how it is measured.

    Attributes:
        model: The model, with fresh weights.
        data: What a mark is drawn from.
        inputs: Task inputs, as `mark.embed` takes them.
        batches: Returns the batches of one epoch.
        loss: Maps a model and a batch to the loss of the task.
        metric: Measures a model on the part that is asked for.
        epochs: Epochs of the training.
        lr: Learning rate of the training.
        options: Arguments of `Watermark.draw`.
        keep: What the model should keep, as `mark.embed` takes it.
        measure: Name of the metric; less is better for `MAE` only.
    """

    model: nn.Module
    data: Any
    inputs: Any
    batches: Callable[[], Iterable[Any]]
    loss: Callable[[nn.Module, Any], Tensor]
    metric: Callable[[nn.Module], float]
    epochs: int
    lr: float = 0.01
    options: dict[str, Any] = field(default_factory=dict)
    keep: Callable[[Any, Any], Tensor] | None = None
    measure: Literal["accuracy", "MAE", "AUC"] = "accuracy"

    def fit(self, epochs: int | None = None, lr: float | None = None, *, seed: int) -> None:
        """Train the model on its task, with a learning rate that falls to zero over the second half.

        Args:
            epochs: Number of epochs; by default those of the case.
            lr: Learning rate of Adam; by default that of the case.
            seed: Fixes the order of batches and dropout.
        """
        rate = LearningRate(lr or self.lr, epochs or self.epochs, decay=True)
        with seeded(seed):
            optimise(self.model, self.batches, lambda batch, _: self.loss(self.model, batch), rate)
        self.model.eval()


def load_case(name: str, seed: int, part: Part) -> Case:
    """Return a case by its name, not trained yet.

    Args:
        name: One of `CASES`.
        seed: Seed of the weights and, for validation, of the split.
        part: Where the metric is measured. With `test`, the model is trained on all other inputs.
    """
    with seeded(seed):
        return CASES[name](seed, part)


def trained_case(name: str, seed: int, part: Part) -> Case:
    """Return a case with its trained model, which is kept on disk for further trials.

    Args:
        name: One of `CASES`.
        seed: Seed of the weights and of the training.
        part: Where the metric is measured.
    """
    found = load_case(name, seed, part)
    base = Path(os.environ.get("INVGNN_CACHE") or Path(tempfile.gettempdir()) / "invgnn-models") / "users"
    path = base / f"{name}-{seed}-{part}.pt".replace("/", "-").replace(" ", "-")
    if path.exists():
        found.model.load_state_dict(torch.load(path, weights_only=True))
        found.model.eval()
    else:
        found.fit(seed=seed)
        base.mkdir(parents=True, exist_ok=True)
        torch.save(found.model.state_dict(), path)
    return found


# -- graph tasks ------------------------------------------------------------------------------


def _call(model: nn.Module, batch: Any) -> Any:
    """Call a model by the names of its arguments."""
    names = [n for n in ("x", "pe", "edge_index", "edge_attr", "batch") if n in _wanted(model)]
    return model(**{name: batch[name] for name in names})


def _wanted(model: nn.Module) -> set[str]:
    return set(model.forward.__annotations__)


def _graph_case(
    graphs: list[Data],
    model: nn.Module,
    seed: int,
    part: Part,
    *,
    epochs: int,
    transform: Any = None,
    values: bool = False,
    **options: Any,
) -> Case:
    """Return a graph task: a quarter of the graphs is for tests, a third of the rest for validation."""
    train, measured = split(graphs, seed, part)
    shown = train if transform is None else [transform(graph) for graph in train]
    others = measured if transform is None else [transform(graph) for graph in measured]
    whole = next(iter(DataLoader(others, batch_size=len(others))))
    score = _absolute_error if values else _accuracy

    def metric(net: nn.Module) -> float:
        with torch.no_grad(), evaluation_mode(net):
            return score(_call(net, whole), whole.y)

    loss = l1_loss if values else cross_entropy
    return Case(
        model=model,
        data=train,
        inputs=shown,
        batches=lambda: DataLoader(shown, batch_size=32, shuffle=True),
        loss=lambda net, batch: loss(_call(net, batch), batch.y),
        metric=metric,
        epochs=epochs,
        options={} if transform is None else {"transform": transform},
        measure="MAE" if values else "accuracy",
        **options,
    )


def _accuracy(scores: Tensor, y: Tensor) -> float:
    return float((scores.argmax(1) == y).double().mean())


def _absolute_error(found: Tensor, y: Tensor) -> float:
    return float(l1_loss(found, y))


def _gatv2(seed: int, part: Part) -> Case:
    graphs = enzymes()
    body = GAT(graphs[0].num_features, 64, 3, 64, heads=4, v2=True, jk="cat")
    return _graph_case(graphs, GraphModel(body, 64, 6), seed, part, epochs=40, lr=0.003)


def _gine(seed: int, part: Part) -> Case:
    task = load_task("MUTAG")
    model = Bonds(task.num_features, task.graphs[0].edge_attr.shape[1], 2)
    return _graph_case(task.graphs, model, seed, part, epochs=60, lr=0.003)


def _gps(seed: int, part: Part) -> Case:
    graphs = enzymes()
    encoding = AddRandomWalkPE(WALKS, attr_name="pe")
    model = Transformer(graphs[0].num_features, 6)
    return _graph_case(graphs, model, seed, part, epochs=30, lr=0.003, transform=encoding)


def _gcn(seed: int, part: Part) -> Case:
    task = load_task("BA-2motif", 0)
    body = GCN(task.num_features, 64, 3, norm="batch_norm")
    return _graph_case(task.graphs, GraphModel(body, 64, 2), seed, part, epochs=20)


def _rings(name: str, epochs: int, seed: int, part: Part) -> Case:
    graphs = rings(name)
    return _graph_case(graphs, OneNumber(graphs[0].num_features), seed, part, epochs=epochs, values=True)


# -- typed graphs -----------------------------------------------------------------------------


def _hgt(seed: int, part: Part) -> Case:
    graphs = libraries(600)
    train, measured = split(graphs, seed, part)
    whole = next(iter(DataLoader(measured, batch_size=len(measured))))

    def call(net: nn.Module, batch: Any) -> Any:
        return net(batch.x_dict, batch.edge_index_dict, batch.batch_dict)

    def metric(net: nn.Module) -> float:
        with torch.no_grad(), evaluation_mode(net):
            return _accuracy(call(net, whole), whole.y)

    return Case(
        model=Library(WIDTHS, graphs[0].metadata()),
        data=train,
        inputs=train,
        batches=lambda: DataLoader(train, batch_size=32, shuffle=True),
        loss=lambda net, batch: cross_entropy(call(net, batch), batch.y),
        metric=metric,
        epochs=15,
        lr=0.005,
    )


# -- tasks on one graph -----------------------------------------------------------------------


def _sage(parts: int, seed: int, part: Part) -> Case:
    data = load_task("CiteSeer").graphs[0]
    data.x = data.x.float()
    mask = data.val_mask if part == "validation" else data.test_mask

    def metric(net: nn.Module) -> float:
        with torch.no_grad(), evaluation_mode(net):
            return _accuracy(net(data.x, data.edge_index)[mask], data.y[mask])

    def loss(net: nn.Module, batch: Any) -> Tensor:
        return cross_entropy(net(batch.x, batch.edge_index)[batch.train_mask], batch.y[batch.train_mask])

    loader = RandomNodeLoader(data, num_parts=parts, shuffle=True) if parts > 1 else [data]
    return Case(
        model=GraphSAGE(data.num_features, 64, 2, 6, dropout=0.5),
        data=data,
        inputs=loader if parts > 1 else data,
        batches=lambda: loader,
        loss=loss,
        metric=metric,
        epochs=60 if parts == 1 else 20,
    )


def _gae(seed: int, part: Part) -> Case:
    data = load_task("Cora").graphs[0]
    with seeded(0):  # the same links are held out whatever the seed
        made = RandomLinkSplit(is_undirected=True, split_labels=True, add_negative_train_samples=False)(
            data
        )
    train, links = made[0], made[1] if part == "validation" else made[2]

    def metric(net: Any) -> float:
        with torch.no_grad(), evaluation_mode(net):
            z = net.encode(train.x, train.edge_index)
            yes, no = (
                net.decode(z, one) for one in (links.pos_edge_label_index, links.neg_edge_label_index)
            )
        return float((yes[:, None] > no).double().mean() + (yes[:, None] == no).double().mean() / 2)

    def loss(net: Any, batch: Any) -> Tensor:
        return torch.as_tensor(
            net.recon_loss(net.encode(batch.x, batch.edge_index), batch.pos_edge_label_index)
        )

    return Case(
        model=GAE(Encoder(data.num_features)),
        data=train,
        inputs=train,
        batches=lambda: [train],
        loss=loss,
        metric=metric,
        epochs=100,
        options={"access": ("embedding", "values"), "forward": link_scores},
        keep=lambda net, batch: torch.as_tensor(net.encode(batch.x, batch.edge_index)),
        measure="AUC",
    )


CASES: dict[str, Callable[[int, Part], Case]] = {
    "GATv2 with jumping knowledge, ENZYMES": _gatv2,
    "GINE with edge attributes, MUTAG": _gine,
    "GPS with encodings, ENZYMES": _gps,
    "GCN with batch norms, BA-2motif": _gcn,
    "GraphSAGE, CiteSeer": partial(_sage, 1),
    "GraphSAGE in parts, CiteSeer": partial(_sage, 4),
    "regression, MUTAG": partial(_rings, "MUTAG", 100),
    "regression, PROTEINS": partial(_rings, "PROTEINS", 40),
    "graph autoencoder, Cora": _gae,
    "HGT, generated typed graphs": _hgt,
}
"""The cases by name."""
