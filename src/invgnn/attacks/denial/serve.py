"""Serving: the stolen model stays as it is, but what it says is changed on the way out."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from invgnn.attacks.attack import Attack, Knowledge
from invgnn.errors import ParameterError
from invgnn.nn.forward import call, weight_of
from invgnn.nn.observation import log_scores
from invgnn.training.tasks import Task


@dataclass(frozen=True)
class Wire:
    """How an endpoint writes its answers, and how a customer who was told reads them.

    Attributes:
        encode: From log-probabilities [rows, classes] to what is sent.
        decode: From what is sent to scores [rows, classes]; by default scores are what is sent.
    """

    encode: Callable[[Tensor], Any]
    decode: Callable[[Any], Tensor] = torch.as_tensor


class Endpoint(nn.Module):
    """A served model: takes a PyG batch, answers over a wire, and shows no layer and no weight.

    The owner meets it as the function `endpoint.serve`, which gives what is sent and nothing else. Calling
    the endpoint gives the class scores that a paying customer has in the end, who was told the format.
    """

    def __init__(self, model: nn.Module, wire: Wire) -> None:
        super().__init__()
        self._held = (model.eval(), wire)  # in a tuple, where nobody looks for a submodule

    @torch.no_grad()
    def answer(self, batch: Any) -> Tensor:
        """Return log-probabilities in double precision, one row per graph or node; they never leave."""
        model, _ = self._held
        weight = weight_of(model)
        placed = batch if weight is None else copy.copy(batch).to(weight.device)
        return log_scores(call(model, placed).cpu()).double().log_softmax(-1)

    def serve(self, batch: Any) -> Any:
        """Return what is sent."""
        return self._held[1].encode(self.answer(batch))

    def forward(self, batch: Any) -> Tensor:
        """Return the class scores that a customer reads out of what is sent."""
        return self._held[1].decode(self.serve(batch))


class Serving(Attack):
    """Put the stolen model behind an endpoint, which decides what leaves it."""

    knows: tuple[Knowledge, ...] = ("the weights",)
    same_architecture = False

    @abstractmethod
    def apply(self, model: nn.Module, task: Task) -> Endpoint:
        """Return an endpoint in front of the copy."""


class Serve(Serving):
    """Put the stolen model behind an endpoint that blurs the probabilities it returns.

    temperature  divides the scores before they become probabilities
    noise        standard deviation, in nats, of noise on the scores; the same for the same request
    top          the top class gets all the probability
    digits       decimal digits that probabilities are rounded to
    """

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

    def apply(self, model: nn.Module, task: Task) -> Endpoint:
        """An endpoint in front of the copy."""
        return Endpoint(model, Wire(self.blur))

    def blur(self, logs: Tensor) -> Tensor:
        """The probabilities that are returned for log-probabilities."""
        logs = logs / self.temperature
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
