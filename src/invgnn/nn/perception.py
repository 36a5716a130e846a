"""The paper's perception head: a linear map from the graph embedding to an invariant in [0, 1]."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from invgnn.errors import ParameterError


class PerceptionHead(nn.Module):
    """One spectrally normalised linear map, followed by a sigmoid.

    The operator norm of a map to a single number equals its Euclidean norm. Dividing by it is therefore
    exact spectral normalisation and adds no buffer to the state dict.

    Args:
        in_channels: Width of the embedding.
        nu: Operator norm of the map; None for no normalisation.
        non_negative: Whether to keep weights at or above zero, so that the decoder is monotone.
        clip: Largest absolute weight after `project`; None for no limit.
        gradient_penalty: Weight, in the loss of a mark, of the squared gradient of the head's output with
            respect to all parameters.

    Raises:
        ParameterError: If `nu` or `gradient_penalty` is out of range.
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
            raise ParameterError(
                f"nu={nu} is not positive", "use 1.0 as in the paper, or None for no normalisation"
            )
        if not 0 <= gradient_penalty < float("inf"):
            raise ParameterError(
                f"gradient_penalty={gradient_penalty} is not a finite number of at least 0", "use 0 or more"
            )
        self.nu, self.non_negative, self.clip = nu, non_negative, clip
        self.gradient_penalty = gradient_penalty
        self.weight = nn.Parameter(torch.empty(1, in_channels))
        self.bias = nn.Parameter(torch.zeros(1))
        self.reset_parameters()

    def record(self) -> dict[str, Any]:
        """Return the arguments from which `attach_head` makes an equal head."""
        width = self.weight.shape[1]
        return {"width": width, "nu": self.nu, "non_negative": self.non_negative, "clip": self.clip}

    def reset_parameters(self) -> None:
        """Draw new weights in place."""
        nn.init.normal_(self.weight, std=self.weight.shape[1] ** -0.5)
        nn.init.zeros_(self.bias)
        self.project()

    def forward(self, embedding: Tensor) -> Tensor:
        """Return the perceived invariant of every row, strictly inside (0, 1)."""
        weight = self.weight
        if self.nu is not None:
            weight = self.nu * weight / weight.norm().clamp(min=1e-12)
        return torch.sigmoid(nn.functional.linear(embedding, weight, self.bias)).squeeze(-1)

    @torch.no_grad()
    def project(self) -> None:
        """Project the weights onto the allowed set; call this after every optimiser step."""
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
    """Attach the paper's head to a model, as its submodule `perception`.

    This adds two keys to the state dict: the head is part of the released model, as in the paper. The other
    access levels do not change the model.

    Args:
        model: The model.
        width: Width of its graph-level embedding.
        nu: Operator norm of the head's map; None for no normalisation.
        non_negative: Whether to keep the head's weights at or above zero.
        clip: Largest absolute weight of the head; None for no limit.
        gradient_penalty: Weight of the squared gradient of the head's output in the loss of a mark.

    Returns:
        The head.

    Raises:
        ParameterError: If the model already has a submodule of that name, or a value is out of range.
    """
    if hasattr(model, "perception"):
        raise ParameterError(
            "the model already has a submodule `perception`", "use that head, or remove it first"
        )
    head = PerceptionHead(
        width, nu=nu, non_negative=non_negative, clip=clip, gradient_penalty=gradient_penalty
    )
    model.add_module("perception", head.to(next(model.parameters())))
    return head


def squared_gradient(perceived: Tensor, parameters: Sequence[Tensor]) -> Tensor:
    """Return the squared norm of the gradient of the mean perceived invariant.

    Args:
        perceived: The output of the head.
        parameters: The parameters with respect to which to differentiate.
    """
    gradients = torch.autograd.grad(perceived.mean(), parameters, create_graph=True, allow_unused=True)
    return torch.stack([g.square().sum() for g in gradients if g is not None]).sum()


def head_penalty(model: nn.Module, perceived: Tensor) -> Tensor | float:
    """Return the gradient penalty of a model's head, which keeps its Lipschitz constant small.

    Args:
        model: The model. Without a head, or without a penalty, the result is 0.
        perceived: The output of the head.
    """
    weight = getattr(getattr(model, "perception", None), "gradient_penalty", 0.0)
    if not weight:
        return 0.0
    return weight * squared_gradient(perceived, [p for p in model.parameters() if p.requires_grad])


def project_heads(model: nn.Module) -> None:
    """Project the weights of every perception head of a model onto their allowed set."""
    for part in model.modules():
        if isinstance(part, PerceptionHead):
            part.project()
