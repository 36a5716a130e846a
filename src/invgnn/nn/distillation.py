"""The loss of a student that repeats the scores of a teacher."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import kl_div, log_softmax


def distillation_loss(said: Tensor, taught: Tensor, temperature: float) -> Tensor:
    """T² KL(teacher || student) of every row of scores, softened at temperature T."""
    theirs, ours = (log_softmax(scores / temperature, dim=-1) for scores in (taught, said))
    return temperature**2 * kl_div(ours, theirs, reduction="none", log_target=True).sum(-1)
