"""Public features of task inputs: activations of networks with published random weights."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from invgnn.errors import DataError, ParameterError
from invgnn.nn.observation import pool
from invgnn.secret import public_stream
from invgnn.stats.laws import LEAST_DIMENSION

WIDTH, LAYERS, NETS = 128, 3, 2
CLIP = 3.0
"""In standard deviations: a few very large graphs must not dominate the features."""
FLAT = 1e-3
"""Units with a smaller standard deviation are left out of the features (not in format 1)."""
LEAST = 1e-4
"""Directions with less than this share of the largest spread are rounding, not features."""


@dataclass(frozen=True, eq=False)
class Features:
    """Uncorrelated features of unit variance on the inputs they were fitted to, the widest spread first."""

    level: str
    scales: tuple[Tensor, ...]
    mean: Tensor
    spread: Tensor
    axes: Tensor
    sizes: Tensor

    @classmethod
    def fit(cls, batch: Any, level: str, dimension: int, version: int = 2) -> Features:
        """Fit features to the inputs of a task. No label and no secret is used.

        Args:
            batch: The graphs of a batch, or the one graph of a node task.
            level: `graph` or `node`.
            dimension: Number of features.
            version: The format of the mark.

        Raises:
            ParameterError: If the inputs do not carry so many features.
            DataError: If the inputs have no nodes or no edges.
        """
        raw, scales = _activations(batch, level, None)
        mean, spread = raw.mean(0), raw.std(0, unbiased=False)
        # The variation of a nearly constant unit is rounding, which differs between machines: leave it out.
        spread = spread.clamp(min=1e-12) if version == 1 else spread.where(spread >= FLAT, torch.inf)
        clipped = ((raw - mean) / spread).clamp(-CLIP, CLIP)
        centred = clipped - clipped.mean(0)
        values, vectors = torch.linalg.eigh(centred.T @ centred / len(centred))
        sizes, axes = values.flip(0).clamp(min=0).sqrt(), vectors.flip(1)
        rank = int((sizes > LEAST * sizes[0]).sum())
        most = min(rank, len(raw) // 2)
        if not LEAST_DIMENSION <= dimension <= most:
            fits = f"choose a dimension from {LEAST_DIMENSION} to {most}"
            raise ParameterError(
                f"{len(raw)} inputs with features of rank {rank} do not carry {dimension} directions",
                fits if most >= LEAST_DIMENSION else "these inputs are too few for a score channel",
            )
        return cls(level, scales, mean, spread, axes[:, :dimension], sizes[:dimension])

    @property
    def dimension(self) -> int:
        """Number of features."""
        return int(self.axes.shape[1])

    def __call__(self, batch: Any) -> Tensor:
        """Return the features of every input [inputs, dimension], in double precision on the CPU."""
        raw, _ = _activations(batch, self.level, self.scales)
        return ((raw - self.mean) / self.spread).clamp(-CLIP, CLIP) @ self.axes / self.sizes


def _activations(
    batch: Any, level: str, known: tuple[Tensor, ...] | None
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Return activations of every layer of every network, pooled over graphs, and the scale of each
    layer.
    """
    start, (row, column), degree = _start(batch)
    scales: list[Tensor] = []
    parts: list[Tensor] = []
    for net in range(NETS):
        x = start
        for layer in range(LAYERS):
            weight, bias = _weights(net, layer, x.shape[1])
            mapped = x @ weight
            near = torch.zeros_like(mapped).index_add_(0, row, mapped[column])
            mixed = mapped + near / (degree if net == 0 else degree.sqrt())
            scale = mixed.std(0, unbiased=False).clamp(min=1e-6) if known is None else known[len(scales)]
            scales.append(scale)
            x = torch.tanh(1.5 * mixed / scale + bias)
            parts += [x] if level == "node" else [pool(x, batch), _totals(x, batch)]
    return torch.cat(parts, dim=1).double(), tuple(scales)


def _start(batch: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Return node inputs (features, degree and a constant), the edges, and degrees of at least 1."""
    if getattr(batch, "edge_index", None) is None or not int(batch.num_nodes):
        raise DataError("the inputs have no nodes or no edges", "pass the graphs the model is trained on")
    edges, nodes = batch.edge_index.cpu(), int(batch.num_nodes)
    degree = torch.bincount(edges[0], minlength=nodes).float()
    own = [(degree + 1).log()[:, None], torch.ones(nodes, 1)]
    if batch.x is not None:
        x = batch.x.detach().cpu().float().view(nodes, -1)
        own.append(x / x.norm(dim=1, keepdim=True).clamp(min=1e-6))
    return torch.cat(own, dim=1), edges, degree.clamp(min=1)[:, None]


def _totals(rows: Tensor, batch: Any) -> Tensor:
    """Return sums over each graph; unlike means, they grow with its size."""
    count = torch.bincount(batch.batch.cpu(), minlength=int(batch.num_graphs)).to(rows)
    return pool(rows, batch) * count[:, None]


def _weights(net: int, layer: int, width: int) -> tuple[Tensor, Tensor]:
    """Return the published weights of one layer: normalised signs, and biases in [-1, 1].

    Changing them breaks every score channel in the field; golden vectors in the tests guard them.
    """
    stream = public_stream("features", net, layer, width)
    signs = torch.from_numpy(stream.signs(width * WIDTH).astype(np.float32)).view(width, WIDTH)
    words = stream.words(WIDTH).astype(np.float64) / 2.0**64
    return signs / math.sqrt(width), torch.from_numpy((2 * words - 1).astype(np.float32))
