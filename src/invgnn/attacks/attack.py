"""The base class of attacks: edits that aim at the mark and declare what they require."""

from __future__ import annotations

from typing import Literal

from invgnn.attacks.edits import Edit

Knowledge = Literal[
    "the weights", "task data", "the algorithm", "an API", "a clean teacher", "a second licensed copy"
]
"""What a thief may have. The owner's secret, carriers and bits are not on the list."""


class Attack(Edit):
    """An edit that aims at the mark, and that declares in `knows` what the thief has.

    Subclasses implement `apply(model, task)`, like every edit. They may use everything that is public,
    including how marks are drawn and embedded, and may draw marks of their own. They never have the owner's
    mark.

    Attributes:
        knows: What the thief has.
    """

    knows: tuple[Knowledge, ...]
