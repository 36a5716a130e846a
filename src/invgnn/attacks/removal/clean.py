"""FT-clean: more training on clean data, at the rate the model was trained with."""

from __future__ import annotations

from invgnn.attacks.attack import Attack, Knowledge
from invgnn.attacks.edits import FineTune


class FTClean(FineTune, Attack):
    """Train all layers on with the task loss alone, at the owner's own learning rate.

    The paper's settings are 20 epochs of Adam at 0.01. More epochs are the more determined thief.
    """

    knows: tuple[Knowledge, ...] = ("the weights", "task data")

    def __init__(self, epochs: int = 20, lr: float = 0.01, seed: int = 0) -> None:
        super().__init__(epochs, lr, seed)

    def __repr__(self) -> str:
        rate = "" if self.lr == 0.01 else f" at {self.lr:g}"
        return f"FT-clean {self.epochs} epochs{rate}"
