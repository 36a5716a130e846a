"""An attack: an edit by somebody who wants the mark gone, and what he has to make it with."""

from __future__ import annotations

from typing import Literal

from invgnn.attacks.edits import Edit

Knowledge = Literal[
    "the weights", "task data", "the algorithm", "an API", "a clean teacher", "a second licensed copy"
]
"""What a thief may have; the owner's secret, carriers and bits are not on the list."""


class Attack(Edit):
    """An edit aimed at the mark, by a thief who says what he `knows`.

    Subclasses write `apply(model, task)`, as every edit does. They may use everything that is public,
    how marks are drawn and embedded included, and draw marks of their own; the owner's never reaches them.
    """

    knows: tuple[Knowledge, ...]
