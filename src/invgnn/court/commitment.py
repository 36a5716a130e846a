"""Commitments to a secret and to a mark: they hide both until opened, and open in one way only.

Changing this breaks every claim in the field; golden vectors in the tests guard it.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Any

from invgnn.graphs.disjoint_union import Ints
from invgnn.secret import SIZE, Secret
from invgnn.storage import encoding


def commit_secret(secret: Secret, salt: bytes) -> str:
    """Return the commitment to a secret.

    Guarantee: binding if SHA-256 is collision resistant. Hiding: besides the secret, 256 bits of a nonce
    that only the secret and the public salt determine are hashed.

    Args:
        secret: The secret.
        salt: 32 random bytes, published with the claim: claims on one secret cannot be linked.
    """
    return encoding.digest("invgnn/commitment/1", [_nonce(secret, "secret", salt), bytes(secret)])


def commit_mark(secret: Secret, salt: bytes, digest: str) -> str:
    """Return the commitment to a mark as it was embedded.

    Args:
        secret: The secret of the mark.
        salt: As in `commit_secret`.
        digest: The digest of the mark: of its context, of all questions, and of the baseline scores.
    """
    return encoding.digest("invgnn/mark-commitment/1", [_nonce(secret, "mark", salt), digest])


def message_before_drawing(commitment: str, context: Mapping[str, Any], labels: str) -> bytes:
    """Return what a token is requested for before a mark is drawn.

    It fixes the secret, the data and everything that is declared, so that nothing but a new request gives
    new bits.

    Args:
        commitment: The commitment to the secret.
        context: The context of the mark; a digest of a token in it is left out.
        labels: The digest of the labels of the reference data.
    """
    held = {name: value for name, value in context.items() if name != "token"}
    return encoding.encode(["invgnn/before-drawing/1", commitment, held, labels])


def digest_labels(labels: Ints | None) -> str:
    """Return the digest of the labels of the reference data, which the digest of its graphs leaves out."""
    return encoding.digest("invgnn/labels/1", labels)


def same(first: str, second: str) -> bool:
    """Return whether two commitments are equal, in a time that does not depend on them."""
    return hmac.compare_digest(first.encode(), second.encode())


def _nonce(secret: Secret, purpose: str, salt: bytes) -> bytes:
    """Return the 256-bit nonce of a commitment."""
    return secret.derive("court/nonce", purpose, salt).bytes(SIZE)
