"""What somebody who never marked a model does to claim it, and what becomes of it."""

from invgnn.forgeries.choose import (
    ArrangeData,
    ChooseCarriers,
    ChooseSubset,
    RepeatCarriers,
    Transcribe,
    UnbalanceKey,
)
from invgnn.forgeries.claimant import ClaimantCode
from invgnn.forgeries.forgery import Forged, Forgery, Naive, Outcome
from invgnn.forgeries.grind import GrindSecrets, best_bits, grinding_law
from invgnn.forgeries.guided import Gp, Tpe
from invgnn.forgeries.heads import AlignToOriginal, KnowingForward, SupplyHead
from invgnn.forgeries.hunt import Ground, Hunt
from invgnn.forgeries.owners import AnotherOwner, Descent, EmbedLater, Original, Replay, cross_read
from invgnn.forgeries.pick import PickBest
from invgnn.forgeries.rounding import GrindScores, RoundCosine
from invgnn.forgeries.search import Cma, Evolution, Random
from invgnn.forgeries.transfer import TransferCarriers
from invgnn.forgeries.twins import TwinInputs
from invgnn.forgeries.zeros import SignOfZero

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
    """Every forgery that needs nothing but a model and a task, in the order of the tables.

    `Replay`, and `Transcribe` of overheard queries, need what leaked.
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
