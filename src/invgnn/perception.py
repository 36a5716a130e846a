"""The paper's head: a one-layer map from the graph embedding to a perceived invariant in [0, 1]."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from invgnn.errors import ParameterError


class PerceptionHead(nn.Module):
    """One spectrally normalised linear map, squashed once.

    A map to a single number has operator norm equal to its Euclidean norm, so dividing by it is
    exact spectral normalisation and adds no buffer to the state dict.

    nu            operator norm of the map; None leaves it free
    non_negative  keep weights at or above zero, so that the decoder is monotone (call `project`)
    clip          largest absolute weight after `project`; None for no limit
    """

    def __init__(
        self,
        in_channels: int,
        *,
        nu: float | None = 1.0,
        non_negative: bool = False,
        clip: float | None = None,
    ) -> None:
        super().__init__()
        if nu is not None and nu <= 0:
            raise ParameterError(f"nu={nu} must be positive", "the paper uses 1.0")
        self.nu, self.non_negative, self.clip = nu, non_negative, clip
        self.weight = nn.Parameter(torch.empty(1, in_channels))
        self.bias = nn.Parameter(torch.zeros(1))
        self.reset_parameters()

    def record(self) -> dict[str, Any]:
        """What `attach_head` needs to make such a head again."""
        width = self.weight.shape[1]
        return {"width": width, "nu": self.nu, "non_negative": self.non_negative, "clip": self.clip}

    def reset_parameters(self) -> None:
        """Fresh weights in place."""
        nn.init.normal_(self.weight, std=self.weight.shape[1] ** -0.5)
        nn.init.zeros_(self.bias)
        self.project()

    def forward(self, embedding: Tensor) -> Tensor:
        """Perceived invariant of every row, strictly inside (0, 1)."""
        weight = self.weight
        if self.nu is not None:
            weight = self.nu * weight / weight.norm().clamp(min=1e-12)
        return torch.sigmoid(nn.functional.linear(embedding, weight, self.bias)).squeeze(-1)

    @torch.no_grad()
    def project(self) -> None:
        """Put the weights back into the allowed set; call after every optimiser step."""
        if self.non_negative:
            some = (self.weight > 0).any()
            self.weight.copy_(torch.where(some, self.weight.clamp(min=0), self.weight.abs()))
        if self.clip is not None:
            self.weight.clamp_(-self.clip, self.clip)


def attach_head(
    model: nn.Module,
    width: int,
    *,
    nu: float | None = 1.0,
    non_negative: bool = False,
    clip: float | None = None,
) -> PerceptionHead:
    """Give a model the paper's head as its submodule `perception`.

    This adds two keys to the state dict: the head is part of the released model, as in the paper.
    Readings at other access levels leave the model as it is.
    """
    if hasattr(model, "perception"):
        raise ParameterError("the model already has a `perception`", "use that one, or remove it")
    head = PerceptionHead(width, nu=nu, non_negative=non_negative, clip=clip)
    model.add_module("perception", head.to(next(model.parameters())))
    return head


def gradient_penalty(perceived: Tensor, parameters: Sequence[Tensor]) -> Tensor:
    """Squared norm of the gradient of the mean perception with respect to the parameters.

    Add a small multiple to the loss to keep the parameter-Lipschitz constant of the head small.
    """
    gradients = torch.autograd.grad(perceived.mean(), parameters, create_graph=True, allow_unused=True)
    return torch.stack([g.square().sum() for g in gradients if g is not None]).sum()
