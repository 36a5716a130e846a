"""Marks read at scores and at labels before a court: one direction in new marks, two in earlier ones."""

from __future__ import annotations

import pytest

from invgnn.court.leaves import Leaves
from invgnn.court.regeneration import regenerate
from invgnn.storage.encoding import decode
from invgnn.watermark.directions import directions_of

LEVELS = ("labels", "logits")


@pytest.mark.parametrize("shared", [True, False])
def test_a_judge_draws_marks_of_both_kinds_again(draw, references, shared):
    mark = draw(access=LEVELS, shared_halves=shared)
    again = regenerate(mark.secret, references["graph"], mark.context, None)
    assert again.digest == mark.digest
    assert again.direction("labels", 2).equal(mark.direction("labels", 2))


@pytest.mark.parametrize("shared", [True, False])
def test_a_partial_opening_reveals_every_level_by_its_name(draw, shared):
    mark = draw(access=LEVELS, classes=6, shared_halves=shared)
    leaves = Leaves(mark, bytes(32))
    ways = [decode(leaves.content(i)) for i in range(len(leaves) - len(LEVELS), len(leaves))]
    assert tuple(one["access"] for one in ways) == LEVELS
    streams = {one["access"]: one["stream"] for one in ways}
    assert (streams["labels"] == streams["logits"]) == shared
    shown = directions_of(streams, mark.classes)
    for access in LEVELS:
        assert shown(access, 6).equal(mark.direction(access, 6))
