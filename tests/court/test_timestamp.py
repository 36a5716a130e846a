"""Tokens of a real time-stamping authority: checked offline, and which of their parts are signed."""

from __future__ import annotations

import threading
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from invgnn.court.der import _items, signed_parts
from invgnn.court.local_authority import LocalAuthority
from invgnn.court.timestamp import binding, check_token, load_roots, request_token
from invgnn.errors import FileError, ParameterError, TimestampError


@pytest.fixture(scope="module")
def token(authority):
    return request_token(authority.url, b"message")


def test_a_token_dates_its_message(token, roots):
    found = check_token(token, b"message", roots)
    assert abs(found.time - datetime.now(UTC)) < timedelta(minutes=2)
    assert "authority" in found.authority
    for message, trusted in ((b"Message", roots), (b"message", [])):
        with pytest.raises(TimestampError):
            check_token(token, message, trusted)


def test_the_accuracy_counts_against_the_claimant(token, roots):
    import rfc3161_client

    held = rfc3161_client.decode_timestamp_response(token)
    assert check_token(token, b"message", roots).time == held.tst_info.gen_time + timedelta(seconds=1)


def test_a_token_of_another_authority_is_not_trusted(token, tmp_path):
    with LocalAuthority(tmp_path) as other, pytest.raises(TimestampError):
        check_token(token, b"message", load_roots(other.root))


@pytest.mark.parametrize("starts", [-30, 30])
def test_a_certificate_has_to_be_valid_at_the_time_of_the_token(tmp_path, starts):
    when = datetime.now(UTC) + timedelta(days=starts)
    with LocalAuthority(tmp_path, starts=when, days=5) as other:
        found = request_token(other.url, b"message")
        with pytest.raises(TimestampError):
            check_token(found, b"message", load_roots(other.root))


def test_an_expired_root_still_vouches_for_old_tokens(token, roots, monkeypatch):
    import time

    monkeypatch.setattr(time, "time", lambda: 4e9)  # in the year 2096
    assert check_token(token, b"message", roots)


def test_every_request_gives_another_binding(authority, token):
    again = request_token(authority.url, b"message")
    assert len({binding(token), binding(again)}) == 2
    assert binding(token) == binding(bytes(token))


def grown(token):
    """The same token with a text in its status, which no signature covers."""
    ((_, content),) = _items(token)
    (_, status), (_, signed) = _items(content)
    text = b"\x30\x04\x0c\x02hi"

    def element(tag, data):
        size = len(data)
        head = bytes([size]) if size < 128 else b"\x82" + size.to_bytes(2)
        return bytes([tag]) + head + data

    return element(0x30, element(0x30, status + text) + element(0x30, signed))


def test_what_no_signature_covers_changes_no_bits(token, roots):
    """Otherwise a claimant would get new bits from one token, as often as wanted."""
    other = grown(token)
    assert other != token
    assert check_token(other, b"message", roots) == check_token(token, b"message", roots)
    assert binding(other) == binding(token)


@pytest.mark.parametrize("curve", [False, True])
def test_every_byte_of_the_signed_parts_is_bound(tmp_path, curve):
    with LocalAuthority(tmp_path, curve=curve) as authority:
        token = request_token(authority.url, b"message")
        roots = load_roots(authority.root)
    assert check_token(token, b"message", roots)
    bound = binding(token)
    for part in signed_parts(_token(token)):
        at = token.index(part)
        for place in range(at, at + len(part), 7):
            altered = token[:place] + bytes([token[place] ^ 1]) + token[place + 1 :]
            with pytest.raises(TimestampError):
                check_token(altered, b"message", roots)
            with suppress(TimestampError):
                assert binding(altered) != bound


def _token(reply):
    import rfc3161_client

    return rfc3161_client.decode_timestamp_response(reply).time_stamp_token()


@pytest.fixture
def liar(authority):
    """An endpoint that replies whatever the test wants."""
    told = {}

    class Lies(BaseHTTPRequestHandler):
        def do_POST(self):
            query = self.rfile.read(int(self.headers["Content-Length"]))
            data = told["reply"](query)
            self.send_response(told.get("status", 200))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Lies)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    told["url"] = f"http://127.0.0.1:{server.server_address[1]}/"
    yield told
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("reply", "status"),
    [
        (lambda query: b"", 200),
        (lambda query: b"garbage", 200),
        (lambda query: bytes(2 << 20), 200),
        (lambda query: query, 200),
        (lambda query: b"no", 500),
        (lambda query: bytes.fromhex("30053003020102"), 200),  # refused
    ],
)
def test_replies_that_are_no_tokens(liar, reply, status):
    liar |= {"reply": reply, "status": status}
    with pytest.raises(TimestampError):
        request_token(liar["url"], b"message", timeout=5)


def test_a_token_for_another_request_is_noticed(liar, token):
    liar["reply"] = lambda query: token
    with pytest.raises(TimestampError, match="another request"):
        request_token(liar["url"], b"message")


def test_addresses_and_roots(tmp_path):
    for url in ("file:///etc/passwd", "ftp://a", ""):
        with pytest.raises(ParameterError):
            request_token(url, b"message")
    with pytest.raises(TimestampError):
        request_token("http://127.0.0.1:9/", b"message", timeout=2)
    (tmp_path / "none.pem").write_text("nothing")
    with pytest.raises(FileError):
        load_roots(tmp_path / "none.pem")
