"""What a thief does to a model to be rid of the mark, and what he has to do it with."""

from invgnn.attacks.attack import Attack
from invgnn.attacks.clean import FTClean
from invgnn.attacks.collude import Collude
from invgnn.attacks.extract import Extract
from invgnn.attacks.formats import FORMS, Format
from invgnn.attacks.kdkill import KDKill
from invgnn.attacks.overwrite import Overwrite
from invgnn.attacks.refuse import Refuse
from invgnn.attacks.registry import find_attacks, suite
from invgnn.attacks.scrub import ChannelScrub
from invgnn.attacks.serve import Endpoint, Serve, Serving, Wire
from invgnn.attacks.soften import Soften
from invgnn.attacks.unlearn import Unlearn
from invgnn.attacks.zero import ZeroHead

__all__ = [
    "FORMS",
    "Attack",
    "ChannelScrub",
    "Collude",
    "Endpoint",
    "Extract",
    "FTClean",
    "Format",
    "KDKill",
    "Overwrite",
    "Refuse",
    "Serve",
    "Serving",
    "Soften",
    "Unlearn",
    "Wire",
    "ZeroHead",
    "find_attacks",
    "suite",
]
