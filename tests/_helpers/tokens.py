"""Timestamp tokens as a hostile or careless authority would sign them, made with `openssl cms`."""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID

PEM = serialization.Encoding.PEM
NOW = datetime.now(UTC).replace(microsecond=0)
SHA256, SHA1 = "2.16.840.1.101.3.4.2.1", "1.3.14.3.2.26"
STAMPING = (ExtendedKeyUsageOID.TIME_STAMPING,)


def element(tag, *parts):
    """One DER element."""
    data = b"".join(parts)
    size = len(data)
    head = (
        bytes([size]) if size < 128 else bytes([0x81, size]) if size < 256 else b"\x82" + size.to_bytes(2)
    )
    return bytes([tag]) + head + data


def integer(value):
    """A DER integer."""
    return element(2, value.to_bytes(value.bit_length() // 8 + 1, signed=True))


def object_id(text):
    """A DER object identifier."""
    first, second, *rest = map(int, text.split("."))
    found = bytes([40 * first + second])
    for value in rest:
        digits = [value & 127]
        while value := value >> 7:
            digits.append(128 | value & 127)
        found += bytes(digits[::-1])
    return element(6, found)


def accuracy(seconds):
    """The accuracy that a token states."""
    return element(0x30, integer(seconds))


def stamped(message, *, time=None, hash_id=SHA256, policy="1.2.3.4.1", stated=b"", serial=7):
    """The content of a token (TSTInfo)."""
    digest = (hashlib.sha1 if hash_id == SHA1 else hashlib.sha256)(message).digest()
    if not isinstance(time, str):
        time = (time or NOW).strftime("%Y%m%d%H%M%SZ")
    imprint = element(0x30, element(0x30, object_id(hash_id), element(5)), element(4, digest))
    parts = (integer(1), object_id(policy), imprint, integer(serial), element(0x18, time.encode()), stated)
    return element(0x30, *parts)


def party(
    name,
    issuer=None,
    *,
    ca=None,
    usage=STAMPING,
    critical=True,
    starts=-1,
    days=365,
    hashed=None,
    old=False,
    serial=None,
):
    """A certificate and its key; signed by itself without an issuer."""
    key = rsa.generate_private_key(65537, 2048) if old else ec.generate_private_key(ec.SECP256R1())
    start, hashed = NOW + timedelta(days=starts), hashed or hashes.SHA256()
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    made = x509.CertificateBuilder().subject_name(subject).public_key(key.public_key())
    made = made.issuer_name(issuer.cert.subject if issuer else subject)
    made = made.serial_number(serial or x509.random_serial_number())
    made = made.not_valid_before(start).not_valid_after(start + timedelta(days=days))
    if ca is not None:
        made = made.add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
    if usage:
        made = made.add_extension(x509.ExtendedKeyUsage(list(usage)), critical=critical)
    return SimpleNamespace(key=key, cert=made.sign(issuer.key if issuer else key, hashed))


def token(content, signer, *more, digest="sha256", flags=("-cades",)):
    """A granted reply of an authority: the content, signed, with certificates that it carries along."""
    plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "content").write_bytes(content)
        (folder / "cert").write_bytes(signer.cert.public_bytes(PEM))
        (folder / "key").write_bytes(signer.key.private_bytes(PEM, *plain))
        (folder / "more").write_bytes(b"".join(one.cert.public_bytes(PEM) for one in more))
        words = "openssl cms -sign -binary -nodetach -nosmimecap -econtent_type 1.2.840.113549.1.9.16.1.4"
        words += f" -in content -outform DER -signer cert -inkey key -md {digest}"
        whole = [*words.split(), *flags, *(("-certfile", "more") if more else ())]
        done = subprocess.run(whole, cwd=folder, capture_output=True, check=True)
    return element(0x30, element(0x30, integer(0)), done.stdout)
