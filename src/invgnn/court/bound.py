"""Draw a mark whose bits are bound to a timestamp token, so that every other key costs another request."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from invgnn.court.commitment import commit_secret, digest_labels, message_before_drawing
from invgnn.court.timestamp import binding, request_token
from invgnn.errors import FileError
from invgnn.secret import SIZE, Secret
from invgnn.storage import container
from invgnn.storage.atomic import AnyPath
from invgnn.watermark.mark import Watermark
from invgnn.watermark.reference import Reference


@dataclass(frozen=True)
class Token:
    """A timestamp token that a mark is bound to, and the salt of the commitment that it is for.

    Attributes:
        salt: The public salt of the commitment.
        token: The token.
    """

    salt: bytes
    token: bytes

    def save(self, path: AnyPath, *, overwrite: bool = False) -> None:
        """Write the token to a file. It is public once the claim is."""
        data = np.frombuffer(self.token, np.uint8)
        container.write(path, "token", {"salt": self.salt.hex()}, {"token": data}, overwrite=overwrite)

    @classmethod
    def load(cls, path: AnyPath) -> Token:
        """Read a token from a file that `save` wrote.

        Raises:
            FileError: If the file does not exist, is damaged, or holds no token.
        """
        held = container.read(path, "token")
        try:
            salt = bytes.fromhex(held.body["salt"])
            token = held.tensors["token"]
            if len(salt) != SIZE or token.dtype != np.uint8 or len(held.tensors) + len(held.body) != 2:
                raise ValueError("parts are malformed")
        except (KeyError, TypeError, ValueError) as error:
            raise FileError(f"{path} holds no token: {error}", "use another copy of the file") from None
        return cls(salt, token.tobytes())


def draw_bound(secret: Secret, data: Any, url: str, **options: Any) -> tuple[Watermark, Token]:
    """Commit to a secret, obtain a timestamp token for the commitment, and draw a mark bound to the token.

    Guarantee: whoever looks for a secret that fits a given model needs one token for every try.

    Args:
        secret: The secret.
        data: As in `Watermark.draw`.
        url: Address of a time-stamping authority.
        **options: As in `Watermark.draw`.

    Returns:
        The mark, and the token that belongs in its claim.

    Raises:
        TimestampError: If the authority grants no token.
    """
    context, salt = Watermark.draw(secret, data, **options).context, os.urandom(SIZE)
    if "score_channel" in options:  # `auto` counts the inputs, which a reference does not hold
        options["score_channel"] = context.get("function")
    reference = Reference.of(data, tensors=options.pop("tensors", None))
    labels = digest_labels(reference.labels)
    token = request_token(url, message_before_drawing(commit_secret(secret, salt), context, labels))
    return Watermark.draw(secret, reference, **options, token=binding(token)), Token(salt, token)
