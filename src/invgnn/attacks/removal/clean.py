"""FT-clean: further training on clean data, at the learning rate of the original training."""

from __future__ import annotations

from invgnn.attacks.attack import Attack, Knowledge
from invgnn.attacks.edits import FineTune


class FTClean(FineTune, Attack):
    """Train all layers further with the task loss alone, at the owner's learning rate.

    The paper's settings are 20 epochs of Adam with learning rate 0.01. More epochs model a more determined
    thief.

    Args:
        epochs: Number of epochs.
        lr: Learning rate of Adam.
        seed: Fixes the order of batches and dropout.
    """

    knows: tuple[Knowledge, ...] = ("the weights", "task data")

    def __init__(self, epochs: int = 20, lr: float = 0.01, seed: int = 0) -> None:
        super().__init__(epochs, lr, seed)

    def __repr__(self) -> str:
        """Return the name in tables and test ids."""
        rate = "" if self.lr == 0.01 else f" at {self.lr:g}"
        return f"FT-clean {self.epochs} epochs{rate}"
