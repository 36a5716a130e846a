"""What an honest or a dishonest user does to a model without knowing the secret."""

from invgnn.edits.cast import Cast
from invgnn.edits.chain import Chain
from invgnn.edits.channels import PruneChannels
from invgnn.edits.distil import Distil
from invgnn.edits.edit import Edit, weight_matrices
from invgnn.edits.finetune import FineTune
from invgnn.edits.idle import IdleUnit
from invgnn.edits.noise import WeightNoise
from invgnn.edits.permute import PermuteUnits
from invgnn.edits.prune import Prune
from invgnn.edits.quantise import Quantise
from invgnn.edits.registry import find_edits, suite
from invgnn.edits.renorm import ReestimateNorm
from invgnn.edits.rescale import RescaleUnits

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
