"""The GCN, GraphSAGE, SGC and GIN models of the paper, for node and graph classification."""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import pairwise
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

from invgnn.errors import ParameterError
from invgnn.nn.perception import attach_head

Level = Literal["graph", "node"]
MOST_LAYERS, MOST_CHANNELS, MOST_NORM = 256, 2**24, 1e9
"""Limits of a model file: layers, channels, and the norm and clip of a perception head."""

_PLAN = {"name", "in_channels", "hidden_channels", "num_layers", "out_channels", "level", "dropout"}
_HEAD = {"width", "nu", "non_negative", "clip"}


class Backbone(nn.Module, ABC):
    """Graph convolutions, followed by class scores for every node or, after mean pooling, for every graph.

    In graph-level models the input of `head` is the pooled embedding. Node-level models end in their last
    convolution, whose input is the hidden representation.

    Args:
        in_channels: Number of node features.
        hidden_channels: Width of the hidden layers.
        num_layers: Number of convolutions.
        out_channels: Number of classes.
        level: "graph" for scores of graphs, "node" for scores of nodes.
        dropout: Probability of dropout.

    Attributes:
        architecture: The arguments and the name of the class, from which `build` makes the model again.
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
        """Return one convolution of this backbone.

        Args:
            in_channels: Width of its input.
            out_channels: Width of its output.
        """

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        """Compute the class scores of every graph (`level="graph"`) or of every node.

        Args:
            x: Node features.
            edge_index: Edges [2,E].
            batch: The graph of every node; all nodes belong to one graph by default.
        """
        if self.head is None:
            for conv in self.convs[:-1]:
                x = self._drop(conv(x, edge_index).relu())
            return torch.as_tensor(self.convs[-1](x, edge_index))
        for conv in self.convs:
            x = conv(x, edge_index).relu()
        return torch.as_tensor(self.head(self._drop(global_mean_pool(x, batch))))

    def _drop(self, x: Tensor) -> Tensor:
        """Apply dropout in training mode."""
        return nn.functional.dropout(x, self.dropout, self.training)

    def reset_parameters(self) -> None:
        """Draw new weights in place."""
        for layer in (*self.convs, self.head):
            if layer is not None:
                layer.reset_parameters()


class GCN(Backbone):
    """Graph convolutional network (Kipf and Welling, 2017)."""

    def conv(self, in_channels: int, out_channels: int) -> nn.Module:
        """Return a GCN convolution.

        Args:
            in_channels: Width of its input.
            out_channels: Width of its output.
        """
        return GCNConv(in_channels, out_channels)  # type: ignore[no-any-return]


class _NarrowSAGE(SAGEConv):  # type: ignore[misc]
    """PyG's SAGE convolution, with the linear map before the mean.

    The function is the same; the messages are smaller.
    """

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return the mean of the mapped neighbours plus the node's own map."""
        mapped = nn.functional.linear(x, self.lin_l.weight)
        near = self.propagate(edge_index, x=(mapped, mapped), size=None)
        return torch.as_tensor(near + self.lin_l.bias + self.lin_r(x))


class _NarrowSGC(SGConv):  # type: ignore[misc]
    """PyG's SGC convolution, with the linear map before the propagation.

    The function is the same; the messages are smaller.
    """

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return the mapped features, propagated K times."""
        edge_index, weight = gcn_norm(edge_index, None, x.size(0), dtype=x.dtype)
        x = nn.functional.linear(x, self.lin.weight)
        for _ in range(self.K):
            x = self.propagate(edge_index, x=x, edge_weight=weight)
        return x + torch.as_tensor(self.lin.bias)


class GraphSAGE(Backbone):
    """GraphSAGE with mean aggregation (Hamilton et al., 2017)."""

    def conv(self, in_channels: int, out_channels: int) -> nn.Module:
        """Return a SAGE convolution.

        Args:
            in_channels: Width of its input.
            out_channels: Width of its output.
        """
        kind = _NarrowSAGE if out_channels < in_channels else SAGEConv
        return kind(in_channels, out_channels)


class GIN(Backbone):
    """Graph isomorphism network with batch normalisation in its MLPs (Xu et al., 2019)."""

    def conv(self, in_channels: int, out_channels: int) -> nn.Module:
        """Return a GIN convolution with a two-layer MLP.

        Args:
            in_channels: Width of its input.
            out_channels: Width of its output.
        """
        return GINConv(MLP([in_channels, out_channels, out_channels], plain_last=False))  # type: ignore[no-any-return]


class SGC(Backbone):
    """Simple graph convolution (Wu et al., 2019): one linear map of features propagated twice.

    Args:
        in_channels: Number of node features.
        hidden_channels: Width of the pooled embedding (graph level only).
        num_layers: Must be 1.
        out_channels: Number of classes.
        level: "graph" for scores of graphs, "node" for scores of nodes.
        dropout: Probability of dropout.

    Raises:
        ParameterError: If `num_layers` is not 1.
    """

    def __init__(
        self, in_channels: int, hidden_channels: int, num_layers: int, out_channels: int,
        *, level: Level = "node", dropout: float = 0.0,
    ) -> None:  # fmt: skip
        if num_layers != 1:
            raise ParameterError(f"SGC has one layer, but num_layers is {num_layers}", "pass num_layers=1")
        super().__init__(
            in_channels, hidden_channels, num_layers, out_channels, level=level, dropout=dropout
        )

    def conv(self, in_channels: int, out_channels: int) -> nn.Module:
        """Return a two-hop SGC convolution.

        Args:
            in_channels: Width of its input.
            out_channels: Width of its output.
        """
        return _NarrowSGC(in_channels, out_channels, K=2)


BACKBONES: dict[str, type[Backbone]] = {model.__name__: model for model in (GCN, GraphSAGE, SGC, GIN)}


def build(architecture: dict[str, Any]) -> Backbone:
    """Build a model with new weights from the architecture record of a model file.

    Raises:
        ParameterError: If the record names an unknown backbone.
    """
    kwargs = dict(architecture)
    name, head = kwargs.pop("name", None), kwargs.pop("perception", None)
    if name not in BACKBONES:
        raise ParameterError(f"unknown backbone {name!r}", f"choose one of {', '.join(sorted(BACKBONES))}")
    model = BACKBONES[name](**kwargs)
    if head is not None:
        attach_head(model, **head)
    return model
