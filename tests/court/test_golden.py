"""Files of the first version of the court keep opening, and say what they said."""

from __future__ import annotations

from pathlib import Path

import pytest

from _helpers.court import constant, golden_people, golden_rings
from invgnn.court.bound import Token
from invgnn.court.challenge import Challenge
from invgnn.court.claim import Claim
from invgnn.court.exhibits import Exhibits
from invgnn.court.identity import Identity, load_public
from invgnn.court.judgement import Judgement
from invgnn.court.judging import judge
from invgnn.court.opening import load_opening
from invgnn.court.revocation import Revocation
from invgnn.court.timestamp import binding, load_roots

GOLDEN = Path(__file__).parents[1] / "golden" / "court"


@pytest.mark.parametrize("form", ["full", "prefix", "drawn"])
def test_an_old_claim_is_judged_as_before(form):
    _, judge_ = golden_people()
    claim = Claim.load(GOLDEN / "v1-claim.json")
    opened = load_opening(GOLDEN / f"v1-{form}.opening", judge_)
    exhibits = Exhibits(constant(), golden_rings(), roots=load_roots(GOLDEN / "v1-root.pem"))
    found = judge(claim, opened, exhibits, judge_, "golden").payload
    before = Judgement.load(GOLDEN / "v1-judgement.json").payload
    assert all(one["passed"] for one in found["checks"] if one["fatal"]), found["checks"]
    assert found["timeline"]["claimed_by"] == before["timeline"]["claimed_by"]
    assert found["timeline"]["drawn_after"] == before["timeline"]["drawn_after"]
    assert found["claim"] | {"model": ""} == before["claim"] | {"model": ""}  # which covers code
    if form == "full":
        assert found["verdict"]["matches"] == before["verdict"]["matches"]
        assert [one["check"] for one in found["checks"]] == [one["check"] for one in before["checks"]]


def test_old_files_open():
    owner, judge_ = golden_people()
    assert Identity.load(GOLDEN / "v1-owner.key", "golden") == owner
    assert load_public(GOLDEN / "v1-owner.pub.json").payload["encryption"] == owner.encryption_key
    claim = Claim.load(GOLDEN / "v1-claim.json")
    token = Token.load(GOLDEN / "v1-mark.token")
    assert binding(token.token) == claim.context["token"]
    assert Challenge.load(GOLDEN / "v1-challenge.json").document.key == judge_.key
    assert Revocation.load(GOLDEN / "v1-revocation.json").affects(claim, None) is not None
    assert claim.digest == Judgement.load(GOLDEN / "v1-judgement.json").payload["claim"]["digest"]
