"""RFC 3161 timestamps: request a token from any authority by its URL, and check one without a network."""

from __future__ import annotations

import hashlib
import re
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm

from invgnn.court.der import check_signing, has_fraction, signed_parts
from invgnn.errors import FileError, ParameterError, TimestampError
from invgnn.storage import encoding
from invgnn.storage.atomic import read_bytes

MOST_BYTES = 1 << 20
"""Largest reply of an authority, and largest token."""
SHA256 = "2.16.840.1.101.3.4.2.1"
"""Object identifier of SHA-256, the only hash that tokens here are requested for."""

_STOPS = (KeyboardInterrupt, SystemExit, MemoryError)
"""What is never taken for a property of a token."""

Roots = Sequence[x509.Certificate]
"""The root certificates of the authorities that a judge trusts."""


@dataclass(frozen=True)
class Stamp:
    """What a valid token proves: a message existed at a time.

    Attributes:
        time: The latest time that the token allows for: its time plus its stated accuracy.
        serial: Serial number of the token at its authority.
        authority: Name of the certificate that signed it.
        spread: How long before this time the token may have been issued.
    """

    time: datetime
    serial: int
    authority: str
    spread: timedelta = timedelta()

    @property
    def earliest(self) -> datetime:
        """The earliest time that the token allows for."""
        return self.time - self.spread

    def precedes(self, other: Stamp) -> bool:
        """Return whether this token was issued before another one, whatever their accuracies (RFC 3161)."""
        return self.time < other.earliest


def request_token(url: str, message: bytes, *, timeout: float = 30.0) -> bytes:
    """Request a token for a message from a time-stamping authority.

    Only the SHA-256 of the message leaves this machine.

    Args:
        url: Address of the authority, http or https.
        message: What is to be dated.
        timeout: Seconds to wait for the reply.

    Returns:
        The reply, DER bytes as in RFC 3161.

    Raises:
        ParameterError: If the address is neither http nor https.
        TimestampError: If the authority cannot be reached, or does not grant a token for this message.
    """
    client = _client()
    if not url.startswith(("http://", "https://")):
        raise ParameterError(f"{url!r} is not the address of an authority", "use http://... or https://...")
    wanted = client.TimestampRequestBuilder(data=message, hash_algorithm=client.base.HashAlgorithm.SHA256)
    asked = wanted.build()
    headers = {"Content-Type": "application/timestamp-query", "Accept": "application/timestamp-reply"}
    query = urllib.request.Request(url, data=asked.as_bytes(), headers=headers)  # noqa: S310 - checked above
    try:
        with urllib.request.urlopen(query, timeout=timeout) as reply:  # noqa: S310 - checked above
            found = bytes(reply.read(MOST_BYTES + 1))
    except (OSError, ValueError) as error:
        raise TimestampError(
            f"the authority at {url} gave no reply: {error}", "check the address, or use another authority"
        ) from None
    held = _decoded(found)
    imprint = held.tst_info.message_imprint.message
    if imprint != hashlib.sha256(message).digest() or held.tst_info.nonce != asked.nonce:
        raise TimestampError(f"the reply of {url} is to another request", "use another authority")
    check_signing(held.time_stamp_token())
    return found


def check_token(token: bytes, message: bytes, roots: Roots) -> Stamp:
    """Check that a trusted authority dated a message. Needs no network.

    The certificate of the authority has to be valid at the time of the token; it may have expired since.

    Args:
        token: What `request_token` returned.
        message: The message.
        roots: The trusted root certificates.

    Returns:
        What the token proves.

    Raises:
        TimestampError: If the token is malformed, is for another message, or no trusted root vouches for
            it at its time.
    """
    if not roots:
        raise TimestampError("no root certificate is given", "pass the root of a trusted authority")
    client, held = _client(), _decoded(token)
    if held.tst_info.message_imprint.hash_algorithm.dotted_string != SHA256:
        raise TimestampError("the token is not for a SHA-256", "request a token with SHA-256")
    verifier = client.VerifierBuilder(roots=list(roots)).build()
    try:
        verifier.verify(held, hashlib.sha256(message).digest())
    except _STOPS:
        raise
    except BaseException as error:  # the verifier also raises what its parsers and Rust panics raise
        raise TimestampError(f"the token is not valid here: {_why(str(error))}", _ADVICE) from None
    check_signing(held.time_stamp_token())
    info, _ = signed_parts(held.time_stamp_token())
    earliest, latest = _times(held.tst_info, has_fraction(info))
    return Stamp(latest, int(held.tst_info.serial_number), _authority(held), latest - earliest)


_ADVICE = "check the root certificate; a token must be for this message and within its certificate's dates"
_WHY = {
    "Mismatch between messages": "it is for another message",
    "certificate has expired": "its certificate had expired at the time of the token",
    "not yet valid": "its certificate was not yet valid at the time of the token",
    "certificate purpose": "its certificate is not for time-stamping alone",
    "EKU": "its certificate is not for time-stamping alone",
    "invalid CA certificate": "a certificate in its chain may not issue others",
    "signer certificate not found": "it does not contain the certificate of the authority",
    "issuer certificate": "none of the given roots vouches for its certificate",
    "self": "none of the given roots vouches for its certificate",
    "certificate signature failure": "none of the given roots vouches for its certificate",
    "digest failure": "its content was altered",
    "signature failure": "its signature does not fit",
}
"""Parts of messages of the verifier, and what they mean."""


def _why(text: str) -> str:
    """Return why a token is not valid, in plain words."""
    found = re.search(r"Verify error: ([^\"]*)", text)
    exact = found.group(1) if found else text
    return next((plain for part, plain in _WHY.items() if part in exact), exact[:200])


def binding(token: bytes) -> str:
    """Return the digest of a token that bits can be bound to.

    Guarantee: without the key of the authority, the digest can neither be predicted nor changed: it covers
    the signed content and the signature, and nothing else. An ECDSA signature has two valid forms.

    Args:
        token: What `request_token` returned.

    Raises:
        TimestampError: If the token is malformed.
    """
    info, signature = signed_parts(_decoded(token).time_stamp_token())
    return encoding.digest("invgnn/token/1", [info, signature])


def load_roots(path: str | Path) -> list[x509.Certificate]:
    """Read root certificates from a PEM file.

    Raises:
        FileError: If the file does not exist or holds no certificate.
    """
    try:
        return x509.load_pem_x509_certificates(bytes(read_bytes(path)))
    except (ValueError, x509.InvalidVersion) as error:
        raise FileError(f"{path} holds no PEM certificate: {error}", "pass the authority's root") from None


def _times(info: Any, fraction: bool) -> tuple[datetime, datetime]:
    """Return the earliest and the latest time that a token allows for.

    The decoder drops a fraction of a second, for which a whole one is added.
    """
    time, accuracy = info.gen_time, info.accuracy
    time = time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    try:
        spread = timedelta()
        if accuracy is not None:
            spread = timedelta(
                seconds=accuracy.seconds or 0,
                milliseconds=accuracy.millis or 0,
                microseconds=accuracy.micros or 0,
            )
        return time - spread, time + spread + timedelta(seconds=fraction)
    except OverflowError:
        raise TimestampError("the token states an impossible accuracy", "request another token") from None


def _authority(held: Any) -> str:
    """Return the subject of the certificate that signed a token."""
    (signer,) = held.signed_data.signer_infos
    number = (signer.issuer, signer.serial_number)
    try:
        known = map(x509.load_der_x509_certificate, held.signed_data.certificates)
        found = [one for one in known if (one.issuer, one.serial_number) == number]
    except (ValueError, x509.InvalidVersion) as error:
        raise TimestampError(f"the token has a malformed certificate: {error}", _ADVICE) from None
    if len(found) != 1:  # anybody can add certificates to a token, also of the same issuer and number
        what = "does not contain its certificate" if not found else "contains several such certificates"
        raise TimestampError(f"the token {what}", "request another token")
    if not _sound(found[0]):
        raise TimestampError(
            "the authority's certificate is signed with an outdated hash", "use another authority"
        )
    name = found[0].subject.rfc4514_string()[:200]
    return "".join(letter if letter.isprintable() else "?" for letter in name)


def _sound(certificate: x509.Certificate) -> bool:
    """Return whether nobody can find a second certificate with this signature, as with MD5 or SHA-1."""
    try:
        hashed = certificate.signature_hash_algorithm
    except UnsupportedAlgorithm:
        return False
    return hashed is None or hashed.digest_size >= 32  # Ed25519 hashes by itself


def _decoded(token: bytes) -> Any:
    """Return a granted reply of an authority, decoded."""
    if len(token) > MOST_BYTES:
        raise TimestampError(f"the token has more than {MOST_BYTES} bytes", "use another authority")
    try:
        held = _client().decode_timestamp_response(bytes(token))
        if held.status != 0:
            raise ValueError(f"the authority refused with status {held.status}")
        _ = held.tst_info.gen_time, held.time_stamp_token(), held.signed_data.certificates
    except _STOPS:
        raise
    except BaseException as error:  # the decoder is written in Rust, whose panics are not Exceptions
        raise TimestampError(f"this is no timestamp: {str(error)[:200]}", "request another token") from None
    return held


def _client() -> Any:
    """Return the RFC 3161 client, which is needed for timestamps only."""
    try:
        import rfc3161_client
        import rfc3161_client.base
    except ImportError:
        raise ParameterError("timestamps need rfc3161-client", "pip install 'invgnn[court]'") from None
    return rfc3161_client
