"""Identities of owners and judges: one private file, from which a signing and an encryption key derive."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from invgnn.concealed import conceal
from invgnn.court.documents import Document, load_document
from invgnn.errors import FileError, ParameterError
from invgnn.secret import SIZE, Secret
from invgnn.storage import container
from invgnn.storage.atomic import AnyPath

LONGEST_NAME = 200
"""Largest number of characters of a name."""


@dataclass(frozen=True)
class Identity:
    """The private keys of an owner or a judge.

    Attributes:
        name: The name that others see.
        seed: 32 secret bytes from which both keys derive.
    """

    name: str
    seed: Secret = field(repr=False)

    def __post_init__(self) -> None:
        if not self.name or len(self.name) > LONGEST_NAME or not self.name.isprintable():
            raise ParameterError(
                f"a name has 1 to {LONGEST_NAME} printable characters", "choose another name"
            )

    @classmethod
    def generate(cls, name: str) -> Identity:
        """Generate a new identity.

        Args:
            name: The name that others see.
        """
        return cls(name, Secret.generate())

    @property
    def key(self) -> str:
        """The public Ed25519 key, in hex."""
        return _public(self._signing)

    @property
    def encryption_key(self) -> str:
        """The public X25519 key, in hex."""
        return _public(self.encryption)

    @property
    def _signing(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(self.seed.derive("court/signing").bytes(SIZE))

    @property
    def encryption(self) -> X25519PrivateKey:
        """The private X25519 key, with which openings are decrypted."""
        return X25519PrivateKey.from_private_bytes(self.seed.derive("court/encryption").bytes(SIZE))

    def sign(self, message: bytes) -> bytes:
        """Return the Ed25519 signature of a message."""
        return self._signing.sign(message)

    def public(self) -> Document:
        """Return the public part, signed by itself, so that nobody can exchange one of the keys."""
        keys = {"format": 1, "name": self.name, "signing": self.key, "encryption": self.encryption_key}
        return Document.sign("identity", keys, self)

    def save(
        self, path: AnyPath, passphrase: str | None, *, insecure_no_passphrase: bool = False, **options: Any
    ) -> None:
        """Write the identity to a file that only its owner may read, encrypted with the passphrase.

        Args:
            path: Where to write the file.
            passphrase: The passphrase; None only together with `insecure_no_passphrase`.
            insecure_no_passphrase: Write the keys without encryption.
            **options: As in `Secret.save`.
        """
        passphrase, body = conceal(passphrase), {"name": self.name}
        self.seed.seal(path, passphrase, "identity", "seed", body, not insecure_no_passphrase, **options)

    @classmethod
    def load(cls, path: AnyPath, passphrase: str | None = None) -> Identity:
        """Read an identity from a file that `save` wrote.

        Raises:
            FileError: If the file does not exist, is damaged, or holds no identity.
            PassphraseError: If the passphrase is missing or wrong.
        """
        passphrase = conceal(passphrase)
        held = container.read(path, "identity", passphrase=passphrase)
        form = {name: (array.dtype.name, array.shape) for name, array in held.tensors.items()}
        name = held.body.get("name")
        if form != {"seed": ("uint8", (SIZE,))} or set(held.body) != {"name"} or type(name) is not str:
            raise FileError(f"{path} holds no identity", "use another copy of the file")
        try:
            return cls(name, Secret(held.tensors["seed"].tobytes()))
        except ParameterError as error:
            raise FileError(f"{path} holds no identity: {error.message}", error.advice) from None


def load_public(path: AnyPath) -> Document:
    """Read the public part of an identity.

    Raises:
        FileError: If the file is no public identity, or was altered.
    """
    held = load_document(path, "identity")
    if held.payload["signing"] != held.key:
        raise FileError(f"{path} is signed by another key than it names", "ask its author for a new copy")
    return held


def _public(key: Any) -> str:
    """Return the public part of a private key, in hex."""
    found: bytes = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    return found.hex()
