"""Serving: the stolen model is unchanged, but an endpoint changes its answers."""

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
from invgnn.nn.forward import Forward, call, weight_of
from invgnn.nn.observation import log_scores
from invgnn.training.tasks import Task


@dataclass(frozen=True)
class Wire:
    """The format of an endpoint's replies, and how a customer who knows it reads them.

    Attributes:
        encode: Maps log-probabilities [rows, classes] to the reply.
        decode: Maps the reply to scores [rows, classes]; by default the reply is used as scores.
    """

    encode: Callable[[Tensor], Any]
    decode: Callable[[Any], Tensor] = torch.as_tensor


class Endpoint(nn.Module):
    """A served model: it takes a PyG batch, replies over a wire, and exposes no layer and no weight.

    The owner gets the function `endpoint.serve`, which returns the reply and nothing else. Calling the
    endpoint returns the class scores of a customer who knows the format.

    Args:
        model: The stolen model.
        wire: The format of the replies.
        forward: Calls the model on a batch; by default the names of its arguments decide.
    """

    def __init__(self, model: nn.Module, wire: Wire, forward: Forward | None = None) -> None:
        super().__init__()
        self._call = forward or call
        self._held = (model.eval(), wire)  # in a tuple, so that it is not registered as a submodule

    @torch.no_grad()
    def answer(self, batch: Any) -> Tensor:
        """Return the internal log-probabilities in double precision, one row per graph or node."""
        model, _ = self._held
        weight = weight_of(model)
        placed = batch if weight is None else copy.copy(batch).to(weight.device)
        return log_scores(self._call(model, placed).cpu()).double().log_softmax(-1)

    def serve(self, batch: Any) -> Any:
        """Return the reply."""
        return self._held[1].encode(self.answer(batch))

    def forward(self, batch: Any) -> Tensor:
        """Return the class scores that a customer reads from the reply."""
        return self._held[1].decode(self.serve(batch))


class Serving(Attack):
    """An attack that puts the stolen model behind an endpoint, which decides what it returns."""

    knows: tuple[Knowledge, ...] = ("the weights",)
    same_architecture = False

    @abstractmethod
    def apply(self, model: nn.Module, task: Task) -> Endpoint:
        """Return an endpoint in front of the copy."""


class Serve(Serving):
    """Put the stolen model behind an endpoint that makes the returned probabilities less precise.

    Args:
        digits: Number of decimal digits that probabilities are rounded to.
        top: Whether the top class gets all the probability.
        temperature: Divisor of the scores before they become probabilities.
        noise: Standard deviation, in nats, of noise on the scores; the same for equal requests.
        seed: Seed of the noise.
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
            raise ParameterError(f"digits={digits} is not in 1..12", "for example, use 2 digits")
        if not 0 < temperature < float("inf") or not 0 <= noise < float("inf"):
            raise ParameterError(
                f"temperature={temperature}, noise={noise}", "use temperature > 0 and noise >= 0"
            )
        if (digits, top, temperature, noise) == (None, False, 1, 0):
            raise ParameterError(
                "these settings do not change the replies", "pass for example digits=2 or top=True"
            )
        self.digits, self.top = digits, top
        self.temperature, self.noise, self.seed = temperature, noise, seed

    def apply(self, model: nn.Module, task: Task) -> Endpoint:
        """Return an endpoint in front of the copy."""
        return Endpoint(model, Wire(self.blur), task.forward)

    def blur(self, logs: Tensor) -> Tensor:
        """Return the probabilities that are sent for log-probabilities."""
        logs = logs / self.temperature
        if self.noise:
            draws = torch.Generator().manual_seed(self.seed)
            logs = logs + self.noise * torch.randn(logs.shape, generator=draws, dtype=logs.dtype)
        shown = logs.softmax(-1)
        if self.top:
            shown = one_hot(shown.argmax(-1), shown.shape[-1]).to(shown)
        return shown if self.digits is None else shown.round(decimals=self.digits)

    def __repr__(self) -> str:
        """Return the name in tables and test ids."""
        parts = {
            f"at temperature {self.temperature:g}": self.temperature != 1,
            f"with noise {self.noise:g}": self.noise > 0,
            "top class only": self.top,
            f"rounded to {self.digits} digits": self.digits is not None,
        }
        return "serve " + ", ".join(word for word, said in parts.items() if said)
