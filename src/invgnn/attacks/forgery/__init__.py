"""Forgeries: claims on a model that the claimant never marked, and how verification treats them."""

from invgnn.attacks.forgery.choose import (
    ArrangeData,
    ChooseCarriers,
    ChooseSubset,
    RepeatCarriers,
    Transcribe,
    UnbalanceKey,
)
from invgnn.attacks.forgery.claimant import ClaimantCode
from invgnn.attacks.forgery.forgery import Forged, Forgery, Naive, Outcome
from invgnn.attacks.forgery.grind import GrindSecrets, best_bits, grinding_law
from invgnn.attacks.forgery.guided import Gp, Tpe
from invgnn.attacks.forgery.heads import AlignToOriginal, KnowingForward, SupplyHead
from invgnn.attacks.forgery.hunt import Ground, Hunt
from invgnn.attacks.forgery.owners import AnotherOwner, Descent, EmbedLater, Original, Replay, cross_read
from invgnn.attacks.forgery.pick import PickBest
from invgnn.attacks.forgery.rounding import GrindScores, RoundCosine
from invgnn.attacks.forgery.search import Cma, Evolution, Random
from invgnn.attacks.forgery.transfer import TransferCarriers
from invgnn.attacks.forgery.twins import TwinInputs
from invgnn.attacks.forgery.zeros import SignOfZero

__all__ = [
    "AlignToOriginal",
    "AnotherOwner",
    "ArrangeData",
    "ChooseCarriers",
    "ChooseSubset",
    "ClaimantCode",
    "Cma",
    "Descent",
    "EmbedLater",
    "Evolution",
    "Forged",
    "Forgery",
    "Gp",
    "GrindScores",
    "GrindSecrets",
    "Ground",
    "Hunt",
    "KnowingForward",
    "Naive",
    "Original",
    "Outcome",
    "PickBest",
    "Random",
    "RepeatCarriers",
    "Replay",
    "RoundCosine",
    "SignOfZero",
    "SupplyHead",
    "Tpe",
    "Transcribe",
    "TransferCarriers",
    "TwinInputs",
    "UnbalanceKey",
    "best_bits",
    "cross_read",
    "grinding_law",
    "suite",
]


def suite() -> list[Forgery]:
    """Return every forgery that needs only a model and a task, in the order of the tables.

    `Replay`, and `Transcribe` with overheard queries, need leaked data and are not included.
    """
    return [
        *(Hunt(search) for search in (Random(), Evolution(), Cma(), Tpe(), Gp())),
        GrindSecrets(),
        GrindScores(),
        RoundCosine(),
        ArrangeData(),
        Transcribe(),
        ChooseCarriers(),
        ChooseSubset(),
        RepeatCarriers(),
        UnbalanceKey(),
        SignOfZero(),
        TwinInputs(),
        PickBest(),
        SupplyHead(),
        AlignToOriginal(),
        KnowingForward(),
        ClaimantCode(),
        TransferCarriers(),
        AnotherOwner(),
        EmbedLater(),
    ]
