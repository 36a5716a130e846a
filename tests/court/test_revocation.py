"""Revocations: by the owner only, with dates that count, and with a successor who agrees."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from invgnn.court.documents import Document
from invgnn.court.revocation import REASONS, Revocation, parse_time
from invgnn.errors import FileError, ParameterError


def test_a_revoked_claim_does_not_count(decide, house, people, tomorrow, tmp_path):
    Revocation.make(people.owner, "secret leaked", claim=house.claim).save(tmp_path / "a")
    found = decide(suspect_since=tomorrow, revocations=[Revocation.load(tmp_path / "a")])
    assert (found.status, found.codes) == ("inconclusive", ["revocation"])
    assert "secret leaked" in str(found)


def test_a_revocation_counts_from_its_date_on(decide, house, people):
    now = datetime.now(UTC)
    made = Revocation.make(people.owner, "licence ended", claim=house.claim, since=now + timedelta(hours=1))
    assert decide(revocations=[made]).status == "owned"
    later = decide(revocations=[made], now=now + timedelta(hours=2))
    assert later.codes == ["revocation"]
    assert "licence ended" in str(later)


def test_nobody_else_revokes(decide, house, people, tomorrow):
    with pytest.raises(ParameterError, match="another identity"):
        Revocation.make(people.thief, "secret leaked", claim=house.claim)
    said = Revocation.make(people.owner, "superseded", claim=house.claim).document.payload
    forged = Revocation(Document.sign("revocation", said, people.thief))
    assert decide(suspect_since=tomorrow, revocations=[forged]).status == "owned"
    key = Revocation.make(people.owner, "key compromised").document.payload
    with pytest.raises(ParameterError, match="by itself"):
        Revocation(Document.sign("revocation", key, people.thief))


def test_a_claim_outlives_its_key_if_it_is_dated_before(decide, people, tomorrow):
    now = datetime.now(UTC)
    later = Revocation.make(people.owner, "key compromised", since=now + timedelta(hours=1))
    assert decide(suspect_since=tomorrow, revocations=[later]).status == "owned"
    earlier = Revocation.make(people.owner, "key compromised", since=now - timedelta(days=1))
    assert decide(suspect_since=tomorrow, revocations=[earlier]).codes == ["revocation"]
    undated = decide(roots=(), suspect_since=tomorrow, revocations=[later])
    assert undated.codes == ["revocation"]  # no date that counts


def test_a_successor_agrees(people, tmp_path):
    made = Revocation.make(people.owner, "superseded", successor=people.judge)
    assert made.document.payload["successor"]["key"] == people.judge.key
    said = {
        **made.document.payload,
        "successor": {**made.document.payload["successor"], "key": people.thief.key},
    }
    Document.sign("revocation", said, people.owner).save(tmp_path / "a")
    with pytest.raises(FileError, match="successor"):
        Revocation.load(tmp_path / "a")


def test_reasons_and_times(people):
    with pytest.raises(ParameterError):
        Revocation.make(people.owner, "because")
    assert len(REASONS) == 5
    assert parse_time("2026-01-31") == datetime(2026, 1, 31, tzinfo=UTC)
    assert parse_time("2026-01-31T12:00:00+02:00") == datetime(2026, 1, 31, 10, tzinfo=UTC)
    for text in ("", "tomorrow", "2026-02-30", "2026-01-31T12:00:00", "9999-12-31T23:59:59-23:59"):
        with pytest.raises(ParameterError):
            parse_time(text)
