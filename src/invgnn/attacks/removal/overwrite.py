"""Overwriting: the thief embeds another mark."""

from __future__ import annotations

import warnings

from torch import nn

from invgnn.attacks.attack import Attack, Knowledge
from invgnn.attacks.own_marks import own_marks
from invgnn.errors import ParameterError, WeakMarkWarning
from invgnn.nn.layers import all_learn
from invgnn.stats.laws import check_m
from invgnn.training.tasks import Task
from invgnn.training.trainer import train
from invgnn.watermark.mark import Watermark


class Overwrite(Attack):
    """Embed the thief's own mark, with the thief's own secret, into the stolen copy.

    If the owner's mark is still there, both marks verify. Then the dispute is about which is older, and
    only the owner has an original that carries one mark and not the other.

    Args:
        m: Carriers of the thief's mark.
        epochs: Number of epochs.
        lr: Learning rate of Adam.
        seed: Seed of the thief's secret and of the training.
    """

    knows: tuple[Knowledge, ...] = ("the weights", "task data", "the algorithm")

    def __init__(self, m: int = 128, epochs: int = 20, lr: float = 0.01, seed: int = 0) -> None:
        check_m(m)
        if epochs < 1 or not 0 < lr < float("inf"):
            raise ParameterError(
                f"epochs={epochs}, lr={lr}", "use positive, finite numbers; the defaults are 20 and 0.01"
            )
        self.m, self.epochs, self.lr, self.seed = m, epochs, lr, seed

    def apply(self, model: nn.Module, task: Task) -> nn.Module:
        """Run the library's training loop with the thief's mark; that one may be weak."""
        all_learn(model)
        mark = self.own_mark(model, task)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", WeakMarkWarning)
            train(model, task, mark, epochs=self.epochs, lr=self.lr, seed=self.seed, select=False)
        return model

    def own_mark(self, model: nn.Module, task: Task) -> Watermark:
        """Return the mark that the thief embeds, so that it can be read afterwards.

        Args:
            model: The stolen model.
            task: Its task.
        """
        return own_marks(model, task, 1, self.m, self.seed)[0]

    def __repr__(self) -> str:
        """Return the name in tables and test ids."""
        more = {
            f", m={self.m}": self.m != 128,
            f", {self.epochs} epochs": self.epochs != 20,
            f" at {self.lr:g}": self.lr != 0.01,
        }
        return "overwrite" + "".join(word for word, said in more.items() if said)
