"""What an honest or a dishonest user does to a model without knowing the secret."""

from invgnn.edits.cast import Cast
from invgnn.edits.edit import Edit
from invgnn.edits.finetune import FineTune
from invgnn.edits.prune import Prune
from invgnn.edits.quantise import Quantise

__all__ = ["Cast", "Edit", "FineTune", "Prune", "Quantise"]
