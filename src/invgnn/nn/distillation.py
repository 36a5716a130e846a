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
    return divergence(student, softened(teacher, temperature), temperature)


def softened(scores: Tensor, temperature: float) -> Tensor:
    """Return log-probabilities of scores, softened at a temperature.

    Args:
        scores: The scores.
        temperature: The temperature T.
    """
    return log_softmax(scores / temperature, dim=-1)


def divergence(student: Tensor, target: Tensor, temperature: float) -> Tensor:
    """Compute the distillation loss for a teacher whose scores are softened already.

    Args:
        student: Scores of the student.
        target: What `softened` returned for the teacher, at the same temperature.
        temperature: The temperature T.

    Returns:
        One loss per row.
    """
    found = softened(student, temperature)
    return temperature**2 * kl_div(found, target, reduction="none", log_target=True).sum(-1)
