"""Attacks that try to remove a mark from a model."""

from invgnn.attacks.removal.clean import FTClean
from invgnn.attacks.removal.collude import Collude
from invgnn.attacks.removal.extract import Extract
from invgnn.attacks.removal.kdkill import KDKill
from invgnn.attacks.removal.overwrite import Overwrite
from invgnn.attacks.removal.scrub import ChannelScrub
from invgnn.attacks.removal.unlearn import Unlearn
from invgnn.attacks.removal.unscale import UnscaleWeights
from invgnn.attacks.removal.zero import ZeroHead

__all__ = [
    "ChannelScrub",
    "Collude",
    "Extract",
    "FTClean",
    "KDKill",
    "Overwrite",
    "Unlearn",
    "UnscaleWeights",
    "ZeroHead",
]
