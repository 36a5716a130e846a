"""The distillation loss of a student that imitates the scores of a teacher."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import kl_div, log_softmax


def distillation_loss(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """Compute T² KL(teacher || student) for every row of scores, softened at temperature T.

    Args:
        student: Scores of the student.
        teacher: Scores of the teacher.
        temperature: The temperature T.

    Returns:
        One loss per row.
    """
    target, found = (log_softmax(scores / temperature, dim=-1) for scores in (teacher, student))
    return temperature**2 * kl_div(found, target, reduction="none", log_target=True).sum(-1)
