"""GCN, GraphSAGE, SGC and GIN as in the paper, for nodes or for whole graphs."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch_geometric.nn import (
    MLP,
    GCNConv,
    GINConv,
    Linear,
    SAGEConv,
    SGConv,
    global_mean_pool,
)
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from invgnn import files
from invgnn.errors import FileError, ParameterError
from invgnn.perception import PerceptionHead, attach_head

Level = Literal["graph", "node"]


class Backbone(nn.Module, ABC):
    """Convolutions, then class scores for every node or, after mean pooling, for every graph.

    Graph-level models keep the pooled embedding at the input of `head`; node-level models end in
    their last convolution, whose input is the hidden representation.
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        num_layers: int,
        out_channels: int,
        *,
        level: Level = "graph",
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        self.level = level
        self.dropout = dropout
        self.architecture: dict[str, Any] = {
            "name": type(self).__name__,
            "in_channels": in_channels,
            "hidden_channels": hidden_channels,
            "num_layers": num_layers,
            "out_channels": out_channels,
            "level": level,
            "dropout": dropout,
        }
        last = hidden_channels if level == "graph" else out_channels
        widths = [in_channels, *[hidden_channels] * (num_layers - 1), last]
        self.convs = nn.ModuleList(self.conv(a, b) for a, b in pairwise(widths))
        self.head: nn.Module | None = None
        if level == "graph":
            self.head = Linear(hidden_channels, out_channels)

    @abstractmethod
    def conv(self, in_channels: int, out_channels: int) -> nn.Module:
        """One convolution of the kind this backbone is named after."""

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        """Class scores of every graph (`level="graph"`) or of every node."""
        if self.head is None:
            for conv in self.convs[:-1]:
                x = self._drop(conv(x, edge_index).relu())
            return torch.as_tensor(self.convs[-1](x, edge_index))
        for conv in self.convs:
            x = conv(x, edge_index).relu()
        return torch.as_tensor(self.head(self._drop(global_mean_pool(x, batch))))

    def _drop(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(x, self.dropout, self.training)

    def reset_parameters(self) -> None:
        """Fresh weights in place."""
        for layer in (*self.convs, self.head):
            if layer is not None:
                layer.reset_parameters()


class GCN(Backbone):
    """Graph convolutional network (Kipf and Welling, 2017)."""

    def conv(self, in_channels: int, out_channels: int) -> nn.Module:
        """A GCN convolution."""
        return GCNConv(in_channels, out_channels)  # type: ignore[no-any-return]


class _NarrowSAGE(SAGEConv):  # type: ignore[misc]
    """PyG's SAGE convolution that maps before it averages: the same function, less to move about."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Mean of the mapped neighbours, plus the node itself through its own map."""
        mapped = nn.functional.linear(x, self.lin_l.weight)
        near = self.propagate(edge_index, x=(mapped, mapped), size=None)
        return torch.as_tensor(near + self.lin_l.bias + self.lin_r(x))


class _NarrowSGC(SGConv):  # type: ignore[misc]
    """PyG's SGC convolution that maps before it propagates: the same function, less to move about."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Mapped features, propagated K times."""
        edge_index, weight = gcn_norm(edge_index, None, x.size(0), dtype=x.dtype)
        x = nn.functional.linear(x, self.lin.weight)
        for _ in range(self.K):
            x = self.propagate(edge_index, x=x, edge_weight=weight)
        return x + torch.as_tensor(self.lin.bias)


class GraphSAGE(Backbone):
    """GraphSAGE with mean aggregation (Hamilton et al., 2017)."""

    def conv(self, in_channels: int, out_channels: int) -> nn.Module:
        """A SAGE convolution."""
        kind = _NarrowSAGE if out_channels < in_channels else SAGEConv
        return kind(in_channels, out_channels)


class GIN(Backbone):
    """Graph isomorphism network with batch normalisation in its MLPs (Xu et al., 2019)."""

    def conv(self, in_channels: int, out_channels: int) -> nn.Module:
        """A GIN convolution around a two-layer MLP."""
        return GINConv(MLP([in_channels, out_channels, out_channels], plain_last=False))  # type: ignore[no-any-return]


class SGC(Backbone):
    """Simple graph convolution (Wu et al., 2019): one linear map of twice-propagated features."""

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        num_layers: int,
        out_channels: int,
        *,
        level: Level = "node",
        dropout: float = 0.0,
    ) -> None:
        if num_layers != 1:
            raise ParameterError("SGC has one layer", "pass num_layers=1")
        super().__init__(
            in_channels, hidden_channels, num_layers, out_channels, level=level, dropout=dropout
        )

    def conv(self, in_channels: int, out_channels: int) -> nn.Module:
        """A two-hop SGC convolution."""
        return _NarrowSGC(in_channels, out_channels, K=2)


BACKBONES: dict[str, type[Backbone]] = {model.__name__: model for model in (GCN, GraphSAGE, SGC, GIN)}


def build(architecture: dict[str, Any]) -> Backbone:
    """A model with fresh weights from the record that a model file carries."""
    kwargs = dict(architecture)
    name, head = kwargs.pop("name", None), kwargs.pop("perception", None)
    if name not in BACKBONES:
        raise ParameterError(f"unknown backbone {name!r}", f"choose one of {', '.join(sorted(BACKBONES))}")
    model = BACKBONES[name](**kwargs)
    if head is not None:
        attach_head(model, **head)
    return model


def save_model(path: str | Path, model: Backbone, *, overwrite: bool = False, **about: Any) -> None:
    """Write weights and architecture to one file; `about` is kept beside them."""
    if type(model) not in BACKBONES.values():
        raise ParameterError(
            f"a {type(model).__name__} cannot be rebuilt from a file: it is none of {', '.join(BACKBONES)}",
            "keep its weights with safetensors.torch.save_file(model.state_dict(), path) and read them "
            "back with load_model(path, architecture=...)",
        )
    plan, head = dict(model.architecture), getattr(model, "perception", None)
    if isinstance(head, PerceptionHead):
        plan["perception"] = head.record()
    body = {"architecture": plan, "about": about}
    files.write(path, "model", body, dict(model.state_dict()), overwrite=overwrite)


def load_model(path: str | Path, architecture: nn.Module | None = None) -> nn.Module:
    """The model in a file written by `save_model`, or a copy of your `architecture` with its weights.

    Plain safetensors and PyTorch state dicts are read too when `architecture` is given; nothing is
    ever unpickled into live objects.
    """
    if architecture is None:
        return _rebuild(path).eval()
    model, weights = copy.deepcopy(architecture), _weights(Path(path))
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise FileError(
            f"the weights in {path} do not fit this architecture: {error}",
            "build the architecture with the widths and layers of the saved model",
        ) from error
    return model.eval()


def _rebuild(path: str | Path) -> Backbone:
    """The model of a file whose author may be a stranger: nothing is allocated that it does not hold."""
    held = files.read(path, "model", framework="torch")
    try:
        plan = held.body["architecture"]
        if plan["num_layers"] > len(held.tensors):
            raise ValueError(f"{plan['num_layers']} layers, {len(held.tensors)} tensors")
        with torch.device("meta"):
            model = build(plan)
        model.load_state_dict(held.tensors, assign=True)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        advice = "use another copy of it, or save it again with save_model"
        raise FileError(f"{path} does not hold the model it names: {error}", advice) from error
    return model


def _weights(path: Path) -> dict[str, Any]:
    if path.suffix in {".pt", ".pth"}:
        try:
            state = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:
            raise FileError(
                f"{path} is not a plain PyTorch state dict: {error}",
                "save model.state_dict(), or use safetensors",
            ) from error
        if not isinstance(state, Mapping) or not all(isinstance(name, str) for name in state):
            raise FileError(f"{path} holds no state dict", "save model.state_dict(), or use safetensors")
        return dict(state)
    return files.read_tensors(path)
