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

    Args:
        in_channels: Width of the embedding.
        nu: Operator norm of the map; None leaves it free.
        non_negative: Whether to keep weights at or above zero, so that the decoder is monotone.
        clip: Largest absolute weight after `project`; None for no limit.
        gradient_penalty: Weight of the squared gradient of the head's output with respect to all
            parameters in the loss of a mark.
    """

    def __init__(
        self,
        in_channels: int,
        *,
        nu: float | None = 1.0,
        non_negative: bool = False,
        clip: float | None = None,
        gradient_penalty: float = 0.0,
    ) -> None:
        super().__init__()
        if nu is not None and nu <= 0:
            raise ParameterError(f"nu={nu} must be positive", "the paper uses 1.0")
        if not 0 <= gradient_penalty < float("inf"):
            raise ParameterError(f"gradient_penalty={gradient_penalty} is not a weight", "use 0 or more")
        self.nu, self.non_negative, self.clip = nu, non_negative, clip
        self.gradient_penalty = gradient_penalty
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
    gradient_penalty: float = 0.0,
) -> PerceptionHead:
    """Give a model the paper's head as its submodule `perception`.

    This adds two keys to the state dict: the head is part of the released model, as in the paper.
    Readings at other access levels leave the model as it is.

    Args:
        model: The model.
        width: Width of its graph-level embedding.
        nu: Operator norm of the head's map; None leaves it free.
        non_negative: Whether to keep the head's weights at or above zero.
        clip: Largest absolute weight of the head; None for no limit.
        gradient_penalty: Weight of the squared gradient of the head's output in the loss of a mark.

    Returns:
        The head.

    Raises:
        ParameterError: If the model has a submodule of that name already.
    """
    if hasattr(model, "perception"):
        raise ParameterError("the model already has a `perception`", "use that one, or remove it")
    head = PerceptionHead(
        width, nu=nu, non_negative=non_negative, clip=clip, gradient_penalty=gradient_penalty
    )
    model.add_module("perception", head.to(next(model.parameters())))
    return head


def squared_gradient(perceived: Tensor, parameters: Sequence[Tensor]) -> Tensor:
    """Return the squared norm of the gradient of the mean perception with respect to the parameters."""
    gradients = torch.autograd.grad(perceived.mean(), parameters, create_graph=True, allow_unused=True)
    return torch.stack([g.square().sum() for g in gradients if g is not None]).sum()


def head_penalty(model: nn.Module, perceived: Tensor) -> Tensor | float:
    """Return the penalty on the gradient of a model's head, which keeps its Lipschitz constant small."""
    weight = getattr(getattr(model, "perception", None), "gradient_penalty", 0.0)
    if not weight:
        return 0.0
    return weight * squared_gradient(perceived, [p for p in model.parameters() if p.requires_grad])


def project_heads(model: nn.Module) -> None:
    """Put the weights of every perception head of a model back into their allowed set."""
    for part in model.modules():
        if isinstance(part, PerceptionHead):
            part.project()
