"""What somebody who never marked a model does to claim it, and what becomes of it."""

from invgnn.forgeries.choose import (
    ArrangeData,
    ChooseCarriers,
    ChooseSubset,
    RepeatCarriers,
    Transcribe,
    UnbalanceKey,
)
from invgnn.forgeries.forgery import Forged, Forgery, Naive, Outcome
from invgnn.forgeries.grind import GrindSecrets, best_bits, grinding_law
from invgnn.forgeries.guided import Gp, Tpe
from invgnn.forgeries.heads import AlignToOriginal, KnowingForward, SupplyHead
from invgnn.forgeries.hunt import Ground, Hunt
from invgnn.forgeries.owners import AnotherOwner, Descent, EmbedLater, Original, Replay, cross_read
from invgnn.forgeries.pick import PickBest
from invgnn.forgeries.search import Cma, Evolution, Random
from invgnn.forgeries.transfer import TransferCarriers

__all__ = [
    "AlignToOriginal",
    "AnotherOwner",
    "ArrangeData",
    "ChooseCarriers",
    "ChooseSubset",
    "Cma",
    "Descent",
    "EmbedLater",
    "Evolution",
    "Forged",
    "Forgery",
    "Gp",
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
    "SupplyHead",
    "Tpe",
    "Transcribe",
    "TransferCarriers",
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
        ArrangeData(),
        Transcribe(),
        ChooseCarriers(),
        ChooseSubset(),
        RepeatCarriers(),
        UnbalanceKey(),
        PickBest(),
        SupplyHead(),
        AlignToOriginal(),
        KnowingForward(),
        TransferCarriers(),
        AnotherOwner(),
        EmbedLater(),
    ]
