"""Tokens that a claimant might hand in: every one that proves no date has its own reason."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID

from _helpers.tokens import NOW, SHA1, STAMPING, accuracy, element, party, stamped, token
from invgnn.court.timestamp import Stamp, check_token
from invgnn.errors import TimestampError

MESSAGE = b"claim"
SIGNING = (ExtendedKeyUsageOID.CODE_SIGNING,)
ROOT = party("root", ca=True, usage=())
LEAF = party("authority", ROOT)
TRUSTED = [ROOT.cert]


def check(reply, *roots):
    return check_token(reply, MESSAGE, [one.cert for one in roots] or TRUSTED)


def signed_by(*chain, **how):
    return token(stamped(MESSAGE), *chain, **how)


def chained(**how):
    """A certificate in the middle of a chain, and one for time-stamping below it."""
    middle = party("middle", ROOT, **how)
    return party("authority", middle), middle


FOREIGN = party("root", ca=True, usage=())  # with the name of the trusted one
REFUSED = {
    "for another message": (lambda: token(stamped(b"Claim"), LEAF), "another message"),
    "usage not critical": (lambda: signed_by(party("a", ROOT, critical=False)), "not for time-stamping"),
    "no usage": (lambda: signed_by(party("a", ROOT, usage=())), "not for time-stamping"),
    "code signing": (lambda: signed_by(party("a", ROOT, usage=SIGNING)), "not for time-stamping"),
    "two usages": (lambda: signed_by(party("a", ROOT, usage=SIGNING + STAMPING)), "not for time-stamping"),
    "the root itself": (lambda: signed_by(ROOT), "not for time-stamping"),
    "expired": (lambda: signed_by(party("a", ROOT, starts=-30, days=5)), "had expired"),
    "not yet valid": (lambda: signed_by(party("a", ROOT, starts=5)), "not yet valid"),
    "foreign root inside": (lambda: signed_by(party("a", FOREIGN), FOREIGN), "vouches"),
    "signed by itself": (lambda: signed_by(party("a")), "vouches"),
    "middle may not issue": (lambda: signed_by(*chained(ca=False)), "may not issue"),
    "middle is an authority for time-stamping": (lambda: signed_by(*chained()), "may not issue"),
    "middle is missing": (lambda: signed_by(chained(ca=True, usage=())[0]), "vouches"),
    "no certificate inside": (lambda: signed_by(LEAF, flags=("-cades", "-nocerts")), "certificate"),
    "imprint of SHA-1": (lambda: token(stamped(MESSAGE, hash_id=SHA1), LEAF), "SHA-256"),
    "signed over SHA-1": (lambda: signed_by(LEAF, digest="sha1"), "outdated hash"),
    "signed over MD5": (lambda: signed_by(party("a", ROOT, old=True), digest="md5"), "outdated hash"),
    "certificate over a short hash": (
        lambda: signed_by(party("a", ROOT, hashed=hashes.SHA224())),
        "outdated hash",
    ),
    "no signed attributes": (lambda: signed_by(LEAF, flags=("-noattr",)), "signed attributes"),
    "impossible accuracy": (lambda: token(stamped(MESSAGE, stated=accuracy(2**40)), LEAF), "accuracy"),
    "unthinkable accuracy": (lambda: token(stamped(MESSAGE, stated=accuracy(2**80)), LEAF), "accuracy"),
    "negative accuracy": (lambda: token(stamped(MESSAGE, stated=accuracy(-3600)), LEAF), "no timestamp"),
    "a second too many": (lambda: token(stamped(MESSAGE, time="20260101120060Z"), LEAF), "no timestamp"),
    "local time": (lambda: token(stamped(MESSAGE, time="20260101120000+0200"), LEAF), "no timestamp"),
    "no zone": (lambda: token(stamped(MESSAGE, time="20260101120000"), LEAF), "no timestamp"),
    "before the certificate": (
        lambda: token(stamped(MESSAGE, time="19700101000000Z"), LEAF),
        "not yet valid",
    ),
    "after the certificate": (lambda: token(stamped(MESSAGE, time="99991231235959Z"), LEAF), "had expired"),
    "content and more": (lambda: token(stamped(MESSAGE) + b"\0\0", LEAF), "no timestamp"),
    "granted with changes": (lambda: element(0x30, b"\x30\x03\x02\x01\x01"), "no timestamp"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_token_that_proves_nothing_is_refused_with_its_reason(name):
    made, reason = REFUSED[name]
    reply = made()
    with pytest.raises(TimestampError, match=reason) as found:
        check(reply)
    assert "ErrorStack" not in found.value.message


def test_a_root_counts_only_if_the_judge_gives_it():
    own = party("claimant", ca=True, usage=())
    below = party("authority", own)
    reply = signed_by(below, own)
    assert check(reply, own).authority == "CN=authority"
    with pytest.raises(TimestampError, match="vouches"):
        check(reply)
    with pytest.raises(TimestampError, match="vouches"):
        check(signed_by(LEAF), LEAF)  # a judge who gives the authority's certificate instead of its root
    with pytest.raises(TimestampError, match="had expired"):
        check(signed_by(party("a", old := party("old", ca=True, usage=(), days=0))), old)


def test_what_is_in_order_counts():
    stamping_root = party("root", ca=True)
    leaf, middle = chained(ca=True, usage=())
    for reply, roots in (
        (signed_by(LEAF), [ROOT]),
        (signed_by(LEAF, digest="sha512"), [ROOT]),
        (signed_by(stamping_root), [stamping_root]),  # a judge who trusts an authority without a chain
        (signed_by(leaf, middle), [ROOT]),
        (signed_by(leaf), [ROOT, middle]),  # the judge knows the middle of the chain
        (token(stamped(MESSAGE, policy="1.2.3.99"), LEAF), [ROOT]),  # the root decides, whatever the policy
    ):
        assert check(reply, *roots).time == NOW


@pytest.mark.parametrize(
    ("time", "stated", "late", "spread"),
    [
        ("Z", b"", 0, 0),
        (".999Z", b"", 1, 1),
        (".5Z", accuracy(2), 3, 5),
        ("Z", accuracy(3600), 3600, 7200),
        ("Z", element(0x30, element(0x81, b"\x01\xf4")), 0.0005, 0.001),
        ("Z", accuracy(10**9), 10**9, 2 * 10**9),
    ],
)
def test_what_a_date_leaves_open_counts_against_the_claimant(time, stated, late, spread):
    reply = token(stamped(MESSAGE, time=NOW.strftime("%Y%m%d%H%M%S") + time, stated=stated), LEAF)
    found = check(reply)
    assert found.time == NOW + timedelta(seconds=late)
    assert found.earliest == found.time - timedelta(seconds=spread)


def test_a_name_cannot_pass_for_another_line():
    reply = signed_by(party("a\nOWNED\u202e", ROOT))
    assert check(reply).authority.isprintable()


def test_a_certificate_that_was_added_names_no_authority():
    """Whoever passes a token on can add certificates, also with the issuer and number of the signer's."""
    added = SimpleNamespace(cert=ROOT.cert, key=LEAF.key)
    decoys = [party(f"National Institute {i}", added, serial=LEAF.cert.serial_number) for i in range(3)]
    for chosen in (decoys[:1], decoys):
        with pytest.raises(TimestampError):
            check(token(stamped(MESSAGE), LEAF, *chosen))
    assert check(token(stamped(MESSAGE), LEAF, party("another", ROOT))).authority == "CN=authority"


def test_a_malformed_certificate_that_was_added_is_no_reason_to_crash():
    """No signature covers what is added: any byte of it may be anything."""
    added = party("another", ROOT).cert
    reply, der = signed_by(LEAF, SimpleNamespace(cert=added)), added.public_bytes(Encoding.DER)
    at, refused = reply.index(der), []
    for place in [*range(16), *range(16, len(der), 9)]:
        for value in (0, 3, 5, 255):
            altered = reply[: at + place] + bytes([value]) + reply[at + place + 1 :]
            try:
                assert check(altered).authority == "CN=authority"
            except TimestampError as error:
                refused.append(error.message)
    assert any("not a valid X509 version" in why for why in refused)


def test_overlapping_dates_show_no_order():
    """The rule of RFC 3161: the difference has to be larger than the two accuracies together."""
    noon, second = datetime(2026, 1, 1, 12, tzinfo=UTC), timedelta(seconds=1)

    def dated(seconds, spread):
        return Stamp(noon + (seconds + spread) * second, 1, "a", 2 * spread * second)

    assert dated(0, 0).precedes(dated(1, 0))
    assert not dated(0, 0).precedes(dated(0, 0))
    assert not dated(0, 1).precedes(dated(2, 1))
    assert dated(0, 1).precedes(dated(3, 1))
    assert not dated(0, 60).precedes(dated(59, 0))  # a vague date gains nothing
    assert not dated(59, 0).precedes(dated(0, 60))
