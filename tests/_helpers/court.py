"""What several tests of the court share."""

from __future__ import annotations

import copy

from invgnn.court.claim import Claim
from invgnn.court.documents import Document
from invgnn.secret import Secret
from invgnn.watermark.mark import Watermark

CASE = "case 7"


def draw(task, seed, **options):
    """A small mark with a known secret."""
    return Watermark.draw(Secret(bytes([seed]) * 32), task.data, **{"m": 64, **options})


def resigned(claim, owner, change):
    """A claim with a changed payload, signed again by its owner."""
    payload = copy.deepcopy(claim.payload)
    change(payload)
    return Claim(Document.sign("claim", payload, owner))
