"""What several tests of the court share."""

from __future__ import annotations

import copy
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import torch

from _helpers.drawn import Lcg
from _helpers.tokens import NOW, party, stamped, token
from invgnn.court.claim import Claim
from invgnn.court.documents import Document, _countersigned
from invgnn.court.identity import Identity
from invgnn.graphs.disjoint_union import Graphs
from invgnn.nn.backbones import GCN
from invgnn.secret import Secret
from invgnn.watermark.mark import Watermark

CASE = "case 7"
ROOT = party("root", ca=True, usage=())
TSA = party("authority", ROOT)


def draw(task, seed, **options):
    """A small mark with a known secret."""
    return Watermark.draw(Secret(bytes([seed]) * 32), task.data, **{"m": 64, **options})


def resigned(claim, owner, change):
    """A claim with a changed payload, signed again by its owner."""
    payload = copy.deepcopy(claim.payload)
    change(payload)
    return Claim(Document.sign("claim", payload, owner))


def dated(claim, owner, time=NOW, signer=TSA, message=None):
    """The claim with a token that says what an authority, or whoever operates it, wants."""
    reply = token(stamped(message or claim.document.message, time=time), signer)
    signature = owner.sign(_countersigned(claim.document.signature, reply)).hex()
    return Claim(replace(claim.document, token=reply, token_signature=signature))


def golden_people():
    """The owner and the judge of the golden files."""
    return Identity("Acme", Secret(bytes([1]) * 32)), Identity("Court", Secret(bytes([2]) * 32))


def golden_rings():
    """Forty rings of 9 to 16 nodes with chords and three one-hot colours, from Knuth's generator."""
    draws, items = Lcg(11), []
    for size in (9 + draws.below(np.full(80, 8))).tolist()[:40]:
        ring = [(v, (v + 1) % size) for v in range(size)]
        chords = draws.below(np.full(2 * (size // 3), size)).reshape(-1, 2).tolist()
        x = np.eye(3, dtype=np.float32)[draws.below(np.full(size, 3))]
        both = np.array(ring + chords + [(v, u) for u, v in ring + chords]).T
        items.append(SimpleNamespace(edge_index=both, num_nodes=size, x=x))
    return Graphs.from_data(items)


def constant():
    """A model whose scores depend on the graph and never change."""
    model = GCN(3, 4, 2, 2)
    with torch.no_grad():
        for number, weight in enumerate(model.parameters()):
            weight.copy_(torch.linspace(-1, 1 + number, weight.numel()).view_as(weight))
    return model.eval()
