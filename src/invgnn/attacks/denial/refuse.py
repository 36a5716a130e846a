"""Refusal: an endpoint that answers ordinary inputs and refuses inputs that look like carriers."""

from __future__ import annotations

import math
from typing import Any, Literal, get_args

from torch import Tensor, nn

from invgnn.attacks.attack import Knowledge
from invgnn.attacks.denial.detect import Detector, learn_carriers
from invgnn.attacks.denial.serve import Endpoint, Serving, Wire
from invgnn.errors import ParameterError
from invgnn.nn.forward import Forward
from invgnn.stats.laws import check_m
from invgnn.training.tasks import Task

Instead = Literal["NaN", "an error", "a constant"]


class Refuse(Serving):
    """Put the stolen model behind an endpoint that gives useless replies to inputs that look like carriers.

    The thief draws carriers under secrets of their own and trains a small network to distinguish them from
    ordinary graphs. At most 1 % of the ordinary graphs are refused as well.

    Args:
        instead: The reply to such an input: "NaN"; "an error", which refuses the whole request; or "a
            constant", equal scores for all classes.
        secrets: Number of carrier sets that the thief draws.
        m: Carriers per set.
        epochs: Epochs of the network.
        seed: Seed of the secrets and of the network.
    """

    knows: tuple[Knowledge, ...] = ("the weights", "task data", "the algorithm")

    def __init__(
        self, instead: Instead = "NaN", *, secrets: int = 16, m: int = 16, epochs: int = 20, seed: int = 0
    ) -> None:
        if instead not in get_args(Instead):
            raise ParameterError(
                f"unknown reply {instead!r}", f"choose one of {', '.join(get_args(Instead))}"
            )
        check_m(m)
        if min(secrets, epochs) < 1:
            raise ParameterError(
                f"secrets={secrets}, epochs={epochs}", "use positive numbers; the defaults are 16 and 20"
            )
        self.instead, self.secrets, self.m, self.epochs, self.seed = instead, secrets, m, epochs, seed

    def apply(self, model: nn.Module, task: Task) -> Endpoint:
        """Return an endpoint with a detector in front of the copy."""
        detector = learn_carriers(model, task, self.secrets, self.m, self.epochs, self.seed)
        return Wary(model, detector, self.instead, task.forward)

    def __repr__(self) -> str:
        """Return the name in tables and test ids."""
        more = {
            f", {self.secrets} secrets": self.secrets != 16,
            f", m={self.m}": self.m != 16,
            f", {self.epochs} epochs": self.epochs != 20,
        }
        return f"refuse carriers with {self.instead}" + "".join(word for word, said in more.items() if said)


class Wary(Endpoint):
    """An endpoint that classifies every input before it replies.

    A customer whose input is refused gets equal scores for all classes.

    Args:
        model: The stolen model.
        detector: The detector of carriers.
        instead: The reply to inputs that look like carriers.
        forward: Calls the model on a batch; by default the names of its arguments decide.
    """

    def __init__(
        self, model: nn.Module, detector: Detector, instead: Instead, forward: Forward | None = None
    ) -> None:
        super().__init__(model, Wire(Tensor.exp), forward)
        self._guard = (detector, instead)

    def serve(self, batch: Any) -> Tensor:
        """Return the reply.

        Raises:
            ValueError: If some input looks like a carrier and the endpoint refuses with an error.
        """
        said = self.answer(batch).exp()
        detector, instead = self._guard
        odd = detector.rows(batch, len(said))
        if instead == "an error" and bool(odd.any()):
            raise ValueError(f"invalid input: {int(odd.sum())} rows rejected")
        said[odd] = math.nan if instead == "NaN" else 1 / said.shape[1]
        return said

    def forward(self, batch: Any) -> Tensor:
        """Return the class scores of customers who send one input at a time."""
        said = self.answer(batch).exp()
        said[self._guard[0].rows(batch, len(said))] = 1 / said.shape[1]
        return said
