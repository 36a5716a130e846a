"""Overwriting: the thief embeds a mark of his own."""

from __future__ import annotations

from torch import nn

from invgnn.attacks.attack import Attack, Knowledge
from invgnn.attacks.own_marks import own_marks
from invgnn.errors import ParameterError
from invgnn.nn.layers import all_learn
from invgnn.stats.laws import check_m
from invgnn.training.tasks import Task
from invgnn.training.trainer import train
from invgnn.watermark.mark import Watermark


class Overwrite(Attack):
    """Embed the thief's own mark, with his own secret, into the stolen copy.

    His mark will verify as well as the owner's if that is still there: then the dispute is about whose
    is older, and only the owner has an original that carries one mark and not the other.
    """

    knows: tuple[Knowledge, ...] = ("the weights", "task data", "the algorithm")

    def __init__(self, m: int = 128, epochs: int = 20, lr: float = 0.01, seed: int = 0) -> None:
        check_m(m)
        if epochs < 1 or not 0 < lr < float("inf"):
            raise ParameterError(f"{epochs} epochs at {lr} is no training", "20 epochs at 0.01 are usual")
        self.m, self.epochs, self.lr, self.seed = m, epochs, lr, seed

    def apply(self, model: nn.Module, task: Task) -> nn.Module:
        """The library's own loop, with the wrong mark."""
        all_learn(model)
        mark = self.own_mark(model, task)
        train(model, task, mark, epochs=self.epochs, lr=self.lr, seed=self.seed, select=False)
        return model

    def own_mark(self, model: nn.Module, task: Task) -> Watermark:
        """The mark that the thief embeds, for whoever wants to read it afterwards."""
        return own_marks(model, task, 1, self.m, self.seed)[0]

    def __repr__(self) -> str:
        more = {
            f", m={self.m}": self.m != 128,
            f", {self.epochs} epochs": self.epochs != 20,
            f" at {self.lr:g}": self.lr != 0.01,
        }
        return "overwrite" + "".join(word for word, said in more.items() if said)
