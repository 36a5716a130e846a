"""Changes that an honest or a dishonest user makes to a model without knowing the secret."""

from invgnn.attacks.edits.cast import Cast
from invgnn.attacks.edits.chain import Chain
from invgnn.attacks.edits.channels import PruneChannels
from invgnn.attacks.edits.distil import Distil
from invgnn.attacks.edits.edit import Edit
from invgnn.attacks.edits.finetune import FineTune
from invgnn.attacks.edits.idle import IdleUnit
from invgnn.attacks.edits.noise import WeightNoise
from invgnn.attacks.edits.permute import PermuteUnits
from invgnn.attacks.edits.prune import Prune
from invgnn.attacks.edits.quantise import Quantise
from invgnn.attacks.edits.registry import find_edits, suite
from invgnn.attacks.edits.renorm import ReestimateNorm
from invgnn.attacks.edits.rescale import RescaleUnits
from invgnn.nn.layers import weight_matrices

__all__ = [
    "Cast",
    "Chain",
    "Distil",
    "Edit",
    "FineTune",
    "IdleUnit",
    "PermuteUnits",
    "Prune",
    "PruneChannels",
    "Quantise",
    "ReestimateNorm",
    "RescaleUnits",
    "WeightNoise",
    "find_edits",
    "suite",
    "weight_matrices",
]
