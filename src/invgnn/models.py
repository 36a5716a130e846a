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
from invgnn.checks import check_choice, check_whole
from invgnn.errors import FileError, InvgnnError, ParameterError
from invgnn.perception import PerceptionHead, attach_head

Level = Literal["graph", "node"]
MOST_LAYERS, MOST_CHANNELS, MOST_NORM = 256, 2**24, 1e9
"""What a model file may say at most: layers, channels, and the norm and clip of a perception head."""

_PLAN = {"name", "in_channels", "hidden_channels", "num_layers", "out_channels", "level", "dropout"}
_HEAD = {"width", "nu", "non_negative", "clip"}


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
    """Read a model from a file. Nothing is ever unpickled into live objects.

    Args:
        path: A file that `save_model` wrote. With `architecture` it may also be a plain safetensors file,
            or a PyTorch state dict (`.pt`, `.pth`).
        architecture: A model with the layers of the saved one. It stays as it is.

    Returns:
        The model, in evaluation mode: built anew, or a copy of `architecture` with the weights of the file.

    Raises:
        FileError: If there is no such file, or it is damaged, or its weights do not fit the architecture.
        PassphraseError: If it is sealed.
    """
    if architecture is None:
        return _rebuild(path).eval()
    model, weights = copy.deepcopy(architecture), _weights(Path(path))
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise FileError(
            f"the weights in {path} do not fit this architecture: {_brief(error)}",
            "build the architecture with the widths and layers of the saved model",
        ) from error
    return model.eval()


def _rebuild(path: str | Path) -> Backbone:
    """Build the model of a file that a stranger may have written: it allocates only what the file holds."""
    held = files.read(path, "model", framework="torch")
    try:
        plan: Any = held.body.get("architecture")
        _check_plan(plan, len(held.tensors))
        with torch.device("meta"):
            model = build(plan)
        _check_weights(held.tensors, model.state_dict())
        model.load_state_dict(held.tensors, assign=True)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        advice = "use another copy of it, or save it again with save_model"
        raise FileError(f"{path} does not hold the model it names: {_brief(error)}", advice) from error
    return model


def _check_plan(plan: Any, tensors: int) -> None:
    """Refuse an architecture that `save_model` cannot have written into a file with this many tensors."""
    if not isinstance(plan, dict) or plan.keys() - {"perception"} != _PLAN:
        raise ParameterError(f"its architecture is not a record of {', '.join(sorted(_PLAN))}")
    check_choice("backbone", plan["name"], BACKBONES)
    check_choice("level", plan["level"], ("graph", "node"))
    for name in ("in_channels", "hidden_channels", "out_channels"):
        check_whole(name, plan[name], 1, MOST_CHANNELS)
    check_whole("num_layers", plan["num_layers"], 1, min(MOST_LAYERS, tensors))
    _check_real("dropout", plan["dropout"], 1)
    if "perception" not in plan:
        return
    head = plan["perception"]
    if not isinstance(head, dict) or head.keys() != _HEAD:
        raise ParameterError(f"its perception head is not a record of {', '.join(sorted(_HEAD))}")
    check_whole("width", head["width"], 1, MOST_CHANNELS)
    for name in ("nu", "clip"):
        if head[name] is not None:
            _check_real(name, head[name], MOST_NORM)
    if type(head["non_negative"]) is not bool:
        raise ParameterError("non_negative is neither true nor false")


def _check_weights(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    """Refuse weights of other names, shapes or types. Floating point may be of any precision."""
    odd = sorted(found.keys() ^ wanted.keys())
    if odd:
        raise ParameterError(f"weights are missing or unknown: {', '.join(odd[:8])}")
    for name, ours in wanted.items():
        theirs = found[name]
        floats = ours.is_floating_point() and theirs.is_floating_point()
        if ours.shape != theirs.shape or not (floats or ours.dtype == theirs.dtype):
            held, needed = (f"{one.dtype} {list(one.shape)}" for one in (theirs, ours))
            raise ParameterError(f"the weights {name} are {held}, not {needed}")


def _check_real(name: str, value: Any, most: float) -> None:
    if type(value) not in (int, float) or not 0 <= value <= most:
        raise ParameterError(f"{name} is not a number from 0 to {most:g}")


def _brief(error: Exception) -> str:
    """Return the text of an error, without what a stranger wrote at length into a file."""
    text = error.message if isinstance(error, InvgnnError) else str(error)
    return text if len(text) <= 400 else f"{text[:400]} …"


def _weights(path: Path) -> dict[str, Any]:
    if path.suffix in {".pt", ".pth"}:
        try:
            state = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:
            raise FileError(
                f"{path} is not a plain PyTorch state dict: {_brief(error)}",
                "save model.state_dict(), or use safetensors",
            ) from error
        if not isinstance(state, Mapping) or not all(isinstance(name, str) for name in state):
            raise FileError(f"{path} holds no state dict", "save model.state_dict(), or use safetensors")
        return dict(state)
    return files.read_tensors(path)
