"""Serving: the stolen model stays as it is, but what it says is changed on the way out."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from invgnn.attacks.attack import Attack, Knowledge
from invgnn.errors import ParameterError
from invgnn.forward import call, weight_of
from invgnn.reading import log_scores
from invgnn.tasks import Task


class Serve(Attack):
    """Put the stolen model behind an endpoint that blurs the probabilities it returns.

    temperature  divides the scores before they become probabilities
    noise        standard deviation, in nats, of noise on the scores; the same for the same request
    top          the top class gets all the probability
    digits       decimal digits that probabilities are rounded to
    """

    knows: tuple[Knowledge, ...] = ("the weights",)
    same_architecture = False

    def __init__(
        self,
        *,
        digits: int | None = None,
        top: bool = False,
        temperature: float = 1.0,
        noise: float = 0.0,
        seed: int = 0,
    ) -> None:
        if digits is not None and not 1 <= digits <= 12:
            raise ParameterError(f"{digits} digits cannot be returned", "2 is usual")
        if not 0 < temperature < float("inf") or not 0 <= noise < float("inf"):
            raise ParameterError(f"temperature {temperature}, noise {noise}", "give positive numbers")
        if (digits, top, temperature, noise) == (None, False, 1, 0):
            raise ParameterError("nothing is changed on the way out", "pass digits=2, or top=True")
        self.digits, self.top = digits, top
        self.temperature, self.noise, self.seed = temperature, noise, seed

    def apply(self, model: nn.Module, task: Task) -> nn.Module:
        """An endpoint in front of the copy."""
        return Endpoint(model, self)

    def blur(self, scores: Tensor) -> Tensor:
        """The probabilities that are returned for class scores."""
        logs = log_scores(scores).double() / self.temperature
        if self.noise:
            draws = torch.Generator().manual_seed(self.seed)
            logs = logs + self.noise * torch.randn(logs.shape, generator=draws, dtype=logs.dtype)
        shown = logs.softmax(-1)
        if self.top:
            shown = one_hot(shown.argmax(-1), shown.shape[-1]).to(shown)
        return shown if self.digits is None else shown.round(decimals=self.digits)

    def __repr__(self) -> str:
        parts = {
            f"at temperature {self.temperature:g}": self.temperature != 1,
            f"with noise {self.noise:g}": self.noise > 0,
            "top class only": self.top,
            f"rounded to {self.digits} digits": self.digits is not None,
        }
        return "serve " + ", ".join(word for word, said in parts.items() if said)


class Endpoint(nn.Module):
    """A served model: takes a PyG batch, gives probabilities, and shows no layer and no weight.

    The owner meets it as a function: verify `endpoint.forward`.
    """

    def __init__(self, model: nn.Module, serving: Serve) -> None:
        super().__init__()
        self._held = (model.eval(), serving)  # in a tuple, where nobody looks for a submodule

    @torch.no_grad()
    def forward(self, batch: Any) -> Tensor:
        """Blurred probabilities, one row per graph or node."""
        model, serving = self._held
        weight = weight_of(model)
        placed = batch if weight is None else copy.copy(batch).to(weight.device)
        return serving.blur(call(model, placed).cpu())
