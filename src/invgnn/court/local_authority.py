"""A time-stamping authority on this machine, run by `openssl ts`: for tests, examples and closed networks.

Its tokens are real RFC 3161 tokens. Whoever runs an authority can date a token as they like, so nobody
else has a reason to trust this one.
"""

from __future__ import annotations

import shutil
import subprocess
import threading
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID

from invgnn.errors import ParameterError

MOST_BYTES = 65_536
"""Largest query that the authority reads."""
_CONFIG = """\
[tsa]
default_tsa = here
[here]
serial = {folder}/serial
default_policy = 1.2.3.4.1
digests = sha256, sha512
accuracy = secs:1
ess_cert_id_alg = sha256
signer_digest = sha256
"""


class LocalAuthority:
    """An authority that answers on the loopback interface while a `with` block runs.

    Args:
        folder: Where to keep its keys and certificates; an empty folder.
        starts: From when its certificate is valid; by default since yesterday.
        days: For how many days its certificate is valid.
        curve: Whether to sign with ECDSA instead of RSA.

    Raises:
        ParameterError: If `openssl` is not installed.
    """

    def __init__(
        self, folder: str | Path, *, starts: datetime | None = None, days: int = 365, curve: bool = False
    ) -> None:
        self.folder, self.curve = Path(folder), curve
        openssl = shutil.which("openssl")
        if openssl is None:
            raise ParameterError("there is no openssl on this machine", "install the package openssl")
        self.openssl = openssl
        self.starts = starts or datetime.now(UTC) - timedelta(days=1)
        self.ends = self.starts + timedelta(days=days)
        self._lock = threading.Lock()
        self._certify()

    @property
    def url(self) -> str:
        """The address to request tokens from."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/"

    @property
    def root(self) -> Path:
        """The root certificate, a PEM file."""
        return self.folder / "root.pem"

    def __enter__(self) -> LocalAuthority:
        authority = self

        class Replies(BaseHTTPRequestHandler):
            """Answer one query."""

            def do_POST(self) -> None:
                """Sign the query in the body."""
                size = int(self.headers.get("Content-Length") or 0)
                if not 0 < size <= MOST_BYTES:
                    return self.send_error(413)
                reply = authority.reply(self.rfile.read(size))
                self.send_response(200)
                self.send_header("Content-Type", "application/timestamp-reply")
                self.send_header("Content-Length", str(len(reply)))
                self.end_headers()
                self.wfile.write(reply)
                return None

            def log_message(self, format: str, *args: Any) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Replies)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def reply(self, query: bytes) -> bytes:
        """Return the signed reply to a query.

        Args:
            query: DER bytes of a query.
        """
        with self._lock:  # openssl counts serial numbers in a file
            (self.folder / "query.tsq").write_bytes(query)
            files = {"-config": "ts.cnf", "-queryfile": "query.tsq", "-signer": "tsa.pem"}
            files |= {"-inkey": "tsa.key", "-out": "reply.tsr"}
            words = [word for name, file in files.items() for word in (name, str(self.folder / file))]
            command = [self.openssl, "ts", "-reply", *words]
            subprocess.run(command, check=True, capture_output=True)  # noqa: S603 - fixed arguments
            return (self.folder / "reply.tsr").read_bytes()

    def _certify(self) -> None:
        """Write a root and a certificate for time stamping."""
        root_key, key = self._key(), self._key()
        root_name, name = (_name(f"invgnn local {what}") for what in ("root", "authority"))
        root = self._builder(root_name, root_name, root_key.public_key())
        root = root.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        use = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.TIME_STAMPING])
        leaf = self._builder(name, root_name, key.public_key()).add_extension(use, critical=True)
        pem = serialization.Encoding.PEM
        files = {
            "root.pem": root.sign(root_key, hashes.SHA256()).public_bytes(pem),
            "tsa.pem": leaf.sign(root_key, hashes.SHA256()).public_bytes(pem),
            "tsa.key": key.private_bytes(
                pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            ),
            "ts.cnf": _CONFIG.format(folder=self.folder).encode(),
            "serial": b"01\n",
        }
        for file, data in files.items():
            path = self.folder / file
            path.touch(mode=0o600)
            path.write_bytes(data)

    def _key(self) -> Any:
        """Return a new private key."""
        if self.curve:
            return ec.generate_private_key(ec.SECP256R1())
        return rsa.generate_private_key(public_exponent=65537, key_size=2048)

    def _builder(self, name: x509.Name, issuer: x509.Name, key: Any) -> x509.CertificateBuilder:
        """Return a certificate that only lacks extensions and a signature."""
        made = x509.CertificateBuilder().subject_name(name).issuer_name(issuer).public_key(key)
        dated = made.not_valid_before(self.starts).not_valid_after(self.ends)
        return dated.serial_number(x509.random_serial_number())


def _name(text: str) -> x509.Name:
    """Return a name with one common name."""
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])
