"""Fine-tuning on clean task data, of all layers or of the last."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from torch import nn

from invgnn.attacks.edits.edit import Edit
from invgnn.errors import ParameterError
from invgnn.nn.layers import all_learn, reset
from invgnn.training.batching import last_layer
from invgnn.training.fitting import FitOptions, fit_task
from invgnn.training.tasks import Task

Part = Literal["all", "last"]


class FineTune(Edit):
    """Train further with the task loss alone and keep the last epoch.

    Args:
        epochs: Number of epochs.
        lr: Learning rate of Adam.
        seed: Fixes the order of batches and dropout.
        part: "all" layers are trained, or the "last" alone; all else is fixed, including statistics of
            norms.
        fresh: Whether the last layer is initialised again first.
    """

    def __init__(
        self, epochs: int = 20, lr: float = 1e-3, seed: int = 0, *, part: Part = "all", fresh: bool = False
    ) -> None:
        if epochs < 1 or not 0 < lr < float("inf"):
            raise ParameterError(
                f"epochs={epochs}, lr={lr}", "use positive, finite numbers; the defaults are 20 and 1e-3"
            )
        if part not in ("all", "last"):
            raise ParameterError(f"unknown part {part!r}", "choose 'all' or 'last'")
        self.epochs, self.lr, self.seed, self.part, self.fresh = epochs, lr, seed, part, fresh

    def apply(self, model: nn.Module, task: Task) -> nn.Module:
        """Run the library's training loop without a mark."""
        last = last_layer(model, task) if self.fresh or self.part == "last" else model
        if self.fresh:
            reset(last)
        with _learning(model, last if self.part == "last" else model):
            fit_task(model, task, FitOptions(self.epochs, self.lr, seed=self.seed, select=False))
        return model

    def __repr__(self) -> str:
        """Return the name in tables and test ids."""
        verb = {
            ("all", False): "fine-tune",
            ("last", False): "fine-tune last layer",
            ("all", True): "fine-tune with fresh last layer",
            ("last", True): "retrain last layer",
        }[self.part, self.fresh]
        return f"{verb} {self.epochs} epochs at {self.lr:g}"


@contextmanager
def _learning(model: nn.Module, part: nn.Module) -> Iterator[None]:
    """Fix everything outside the part: its weights, and the running statistics of norms."""
    inside = set(part.modules())
    norms = [m for m in model.modules() if m not in inside and any(True for _ in m.buffers(recurse=False))]
    all_learn(model)
    for value in {*model.parameters()} - {*part.parameters()}:
        value.requires_grad_(False)

    def quiet(*_: object) -> None:
        for norm in norms:
            norm.training = False

    hook = model.register_forward_pre_hook(quiet)  # the loop sets training mode in every epoch
    try:
        yield
    finally:
        hook.remove()
        all_learn(model)
