"""Refusing: an endpoint that answers its customers, and nothing that looks like a carrier."""

from __future__ import annotations

import math
from typing import Any, Literal, get_args

from torch import Tensor, nn

from invgnn.attacks.attack import Knowledge
from invgnn.attacks.denial.detect import Detector, learn_carriers
from invgnn.attacks.denial.serve import Endpoint, Serving, Wire
from invgnn.errors import ParameterError
from invgnn.stats.laws import check_m
from invgnn.training.tasks import Task

Instead = Literal["NaN", "an error", "a constant"]


class Refuse(Serving):
    """Put the stolen model behind an endpoint that answers nonsense on inputs that look like carriers.

    The thief draws carriers under secrets of his own, as everybody may, and trains a small network to tell
    them from ordinary graphs. Of these at most 1 % are refused as well.

    Args:
        instead: What is sent for such an input: "NaN"; "an error", which refuses the whole request; or
            "a constant", all classes alike.
        secrets: How many carrier sets he draws, of m each.
        m: How many carriers a set has.
        epochs: How long the network learns.
        seed: Decides his secrets and the network.
    """

    knows: tuple[Knowledge, ...] = ("the weights", "task data", "the algorithm")

    def __init__(
        self, instead: Instead = "NaN", *, secrets: int = 16, m: int = 16, epochs: int = 20, seed: int = 0
    ) -> None:
        if instead not in get_args(Instead):
            raise ParameterError(f"{instead!r} cannot be sent", f"choose {', '.join(get_args(Instead))}")
        check_m(m)
        if min(secrets, epochs) < 1:
            raise ParameterError(
                f"{secrets} secrets, {epochs} epochs", "16 secrets and 20 epochs are usual"
            )
        self.instead, self.secrets, self.m, self.epochs, self.seed = instead, secrets, m, epochs, seed

    def apply(self, model: nn.Module, task: Task) -> Endpoint:
        """Return an endpoint in front of the copy, and a detector in front of the endpoint."""
        detector = learn_carriers(model, task, self.secrets, self.m, self.epochs, self.seed)
        return Wary(model, detector, self.instead)

    def __repr__(self) -> str:
        more = {
            f", {self.secrets} secrets": self.secrets != 16,
            f", m={self.m}": self.m != 16,
            f", {self.epochs} epochs": self.epochs != 20,
        }
        return f"refuse carriers with {self.instead}" + "".join(word for word, said in more.items() if said)


class Wary(Endpoint):
    """An endpoint that looks at every input before it answers.

    A customer whose input is refused knows as much as before: to him all classes are alike.
    """

    def __init__(self, model: nn.Module, detector: Detector, instead: Instead) -> None:
        super().__init__(model, Wire(Tensor.exp))
        self._guard = (detector, instead)

    def serve(self, batch: Any) -> Tensor:
        """Return what is sent.

        Raises:
            ValueError: If some input looks like a carrier and the thief refuses with an error.
        """
        said = self.answer(batch).exp()
        detector, instead = self._guard
        odd = detector.rows(batch, len(said))
        if instead == "an error" and bool(odd.any()):
            raise ValueError(f"invalid input: {int(odd.sum())} rows rejected")
        said[odd] = math.nan if instead == "NaN" else 1 / said.shape[1]
        return said

    def forward(self, batch: Any) -> Tensor:
        """Return the class scores that customers have who ask about one input at a time."""
        said = self.answer(batch).exp()
        said[self._guard[0].rows(batch, len(said))] = 1 / said.shape[1]
        return said
