"""The judge: every check can fail, every ground has its arithmetic, nothing is owned without both."""

from __future__ import annotations

import copy
import math
import socket
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
import torch

from _helpers.court import CASE, draw, resigned
from invgnn.court.claim import Claim
from invgnn.court.documents import Document
from invgnn.court.exhibits import Exhibits
from invgnn.court.grounds import grounds_of, sufficient
from invgnn.court.judgement import Judgement
from invgnn.court.judging import judge
from invgnn.court.local_authority import LocalAuthority
from invgnn.court.opening import load_opening, open_fully
from invgnn.court.timestamp import Stamp, load_roots
from invgnn.court.tracing import trace_suspect
from invgnn.errors import FileError, ParameterError
from invgnn.nn.forward import call
from invgnn.secret import Secret
from invgnn.training.tasks import new_model
from invgnn.training.trainer import train
from invgnn.watermark.mark import Watermark
from invgnn.watermark.reference import Reference


def check(judgement, name):
    return next(one for one in judgement.payload["checks"] if one["check"] == name)


def test_the_owner_is_believed(decide, house, tomorrow, tmp_path):
    found = decide(suspect_since=tomorrow, controls=[house.other])
    assert found.status == "owned", str(found)
    assert all(one["passed"] for one in found.payload["checks"]), found.payload["checks"]
    assert [one["holds"] for one in found.payload["grounds"]][1:] == [True, True]
    found.save(tmp_path / "judgement.json")
    assert Judgement.load(tmp_path / "judgement.json") == found


def test_an_unmarked_model_is_not_shown(decide, house, tomorrow):
    found = decide(house.other, suspect_since=tomorrow)
    assert (found.status, found.codes) == ("not shown", ["chance"])


def test_a_judge_needs_no_network(decide, monkeypatch):
    def closed(*_, **__):
        raise AssertionError("a judge has no network")

    monkeypatch.setattr(socket, "socket", closed)
    monkeypatch.setattr(socket, "create_connection", closed)
    assert decide().payload["timeline"]["claimed_by"] is not None


# --- grounds --------------------------------------------------------------------------------------


@pytest.fixture
def damaged(house):
    """The marked model: 64 carriers give at most 59 bits, so 80 are out of reach."""
    return house.model


def test_below_80_bits_it_takes_a_ground(decide, damaged, tomorrow, house):
    bound = decide(damaged, roots=())  # tokens of an authority that the judge does not trust
    assert (bound.status, bound.codes) == ("inconclusive", ["grinding"])
    with_token = decide(damaged)
    assert with_token.status == "owned"
    held = [one["ground"] for one in with_token.payload["grounds"] if one["holds"]]
    assert held == ["bound to a token"]
    late = {"suspect_since": tomorrow, "requests": 2**60}
    assert decide(damaged, **late).codes == ["grinding"]  # no control shows what the task alone gives
    late["controls"] = [house.other]
    older = decide(damaged, **late)
    assert [one["ground"] for one in older.payload["grounds"] if one["holds"]] == [
        "claim older than the suspect"
    ]
    assert older.status == "owned"
    assert decide(damaged, **late, claims=2**60).status == "inconclusive"


def test_a_control_that_cannot_be_read_like_the_suspect_shows_nothing(decide, house, tomorrow):
    """A claimant declares the levels and a layer, and might choose ones that only the suspect has."""
    late = {"suspect_since": tomorrow, "requests": 2**60}
    scores = [lambda batch: call(house.other, batch)]  # has no embedding
    found = decide(controls=scores, **late)
    assert (found.status, found.codes) == ("inconclusive", ["grinding"])
    assert "every level" in found.payload["grounds"][1]["says"]
    assert found.payload["verdict"]["controls"][0]["read_at"] == ["logits"]
    assert decide(controls=[*scores, house.other], **late).status == "owned"


def test_a_claim_younger_than_the_suspect_is_no_ground(decide, damaged):
    early = datetime(2020, 1, 1, tzinfo=UTC)
    found = decide(damaged, suspect_since=early, requests=2**60)
    assert (found.status, found.codes) == ("inconclusive", ["grinding"])
    assert "2020-01-01" in found.payload["grounds"][1]["says"]


@pytest.mark.parametrize(
    ("alpha", "claims", "requests"), [(1e-6, 1, 1), (1e-6, 2**20, 2**30), (0.01, 7, 5)]
)
def test_the_arithmetic_of_grounds(alpha, claims, requests):
    now = datetime(2026, 1, 1, tzinfo=UTC)
    stamp = Stamp(now, 1, "a")
    later = now + timedelta(seconds=1)
    found = grounds_of(
        alpha,
        stamp=stamp,
        suspect_since=later,
        token=stamp,
        shared=0.0,
        claims=claims,
        requests=requests,
    )
    more = {"stamp": stamp, "suspect_since": later, "token": None, "claims": claims}
    assert grounds_of(alpha, **more, shared=7.5)[1].needed == pytest.approx(found[1].needed + 7.5)
    assert not grounds_of(alpha, **more)[1].available
    for ground, tries in zip(found[1:], (claims, 2 * requests), strict=True):
        assert ground.available
        assert tries * 2.0**-ground.needed <= alpha * (1 + 1e-12)
        assert tries * 2.0 ** -(ground.needed - 1e-6) > alpha
    assert sufficient(found).bits == min(80, found[1].needed, found[2].needed)
    same = grounds_of(alpha, stamp=stamp, suspect_since=now, token=stamp, chosen="baseline scores")
    assert [one.available for one in same] == [True, False, False]  # not before; baseline chosen after


def test_the_judge_and_not_the_claimant_sets_the_level(decide, house, people, opened, tomorrow, authority):
    lax = Claim.make(house.mark, house.other, people.owner, house.data, alpha=0.9, token=house.token)
    lax = lax.dated(authority.url, people.owner)
    found = decide(house.other, lax, opened(lax), suspect_since=tomorrow, claims=1)
    assert found.status == "not shown"
    assert found.payload["verdict"]["alpha"] == 1e-6
    strict = Claim.make(house.mark, house.model, people.owner, house.data, alpha=1e-12, token=house.token)
    assert decide(claim=strict, opening=opened(strict)).payload["verdict"]["alpha"] == 1e-12


def test_a_search_by_all_the_rules_gains_what_it_costs(
    decide, house, motifs, people, opened, authority, tomorrow
):
    """The best of a hundred secrets on an innocent model: seven bits, and a claim that is in order."""
    reference = Reference.of(motifs.data)
    tried = {str(i): Watermark.draw(Secret(bytes([i, 77] * 16)), reference, m=64) for i in range(100)}
    best = min(trace_suspect("innocent", house.other, tried), key=lambda row: row.log10_p)
    assert 3 < -best.log10_p / math.log10(2) < 20
    claim = Claim.make(tried[best.mark], house.other, people.thief, motifs.data)
    claim = claim.dated(authority.url, people.thief)
    opening = opened(claim, tried[best.mark], people.thief)
    found = decide(house.other, claim, opening, suspect_since=tomorrow, claims=1)
    assert (found.status, found.codes) == ("not shown", ["chance"])
    assert all(one["passed"] for one in found.payload["checks"] if one["fatal"])  # it is no forged claim
    lax = decide(house.other, claim, opening, suspect_since=tomorrow, claims=100, alpha=0.01)
    assert lax.status != "owned"  # the number of claims is paid for


def test_a_secret_fitted_to_all_models_of_a_task_needs_controls(web, people, opened, authority, roots):
    """Offline, before one honest claim: what one model answers, every other model of the task answers."""
    models = [new_model(web, "GCN", seed, hidden_channels=8) for seed in range(3)]
    for seed, model in enumerate(models):
        train(model, web, epochs=60, seed=seed)
    own, suspect, control = models
    reference, options = Reference.of(web.data), {"m": 32, "access": "logits"}
    tried = {str(i): Watermark.draw(Secret(bytes([i, 5] * 16)), reference, **options) for i in range(150)}
    best = min(trace_suspect("own", own, tried), key=lambda row: row.log10_p)
    mark = tried[best.mark]
    claim = Claim.make(mark, own, people.thief, web.data, alpha=0.1).dated(authority.url, people.thief)
    opening = opened(claim, mark, people.thief)
    late = {"suspect_since": datetime.now(UTC) + timedelta(minutes=5), "roots": roots, "claims": 1}
    found = {}
    for controls in ((), (control,)):
        exhibits = Exhibits(suspect, web.data, alpha=0.1, controls=controls, **late)
        found[len(controls)] = judge(claim, opening, exhibits, people.judge, CASE)
    bits = found[0].payload["verdict"]["evidence_bits"]
    assert bits > -math.log2(0.1)  # an innocent, later model would be convicted by the date alone
    assert (found[0].status, found[0].codes) == ("inconclusive", ["grinding"])
    assert "answer alike" in found[0].payload["grounds"][1]["says"]
    assert found[1].status == "inconclusive"
    assert found[1].payload["grounds"][1]["needed"] > bits
    assert not any(one["holds"] for one in found[1].payload["grounds"])


# --- what a claimant might still choose -----------------------------------------------------------


def test_an_opening_serves_one_claim_one_judge_and_one_case(decide, house, opened, people, tmp_path):
    again = Claim.make(house.mark, house.model, people.owner, house.data, token=house.token, label="b")
    assert decide(claim=again, opening=opened()).codes == ["opening"]  # replayed for another claim
    assert decide(opening=opened(), case="case 8").codes == ["opening"]  # replayed in another case
    open_fully(tmp_path / "a", house.claim, house.mark, people.owner, people.thief.public(), CASE)
    with pytest.raises(FileError, match="another judge"):
        load_opening(tmp_path / "a", people.judge)


def test_a_thief_cannot_open_the_owners_claim(decide, house, people, tmp_path):
    with pytest.raises(ParameterError, match="another identity"):
        open_fully(tmp_path / "a", house.claim, house.mark, people.thief, people.judge.public(), CASE)
    own = Claim.make(house.mark, house.model, people.thief, house.data, token=house.token)
    open_fully(tmp_path / "b", own, house.mark, people.thief, people.judge.public(), CASE)
    stolen = load_opening(tmp_path / "b", people.judge)
    aimed = replace(stolen, claim=house.claim.digest)
    assert decide(opening=aimed).codes == ["opening"]
    assert "somebody else" in check(decide(opening=aimed), "opening")["says"]


def test_another_secret_does_not_open_the_commitment(decide, opened):
    found = decide(opening=replace(opened(), secret=Secret(bytes(32))))
    assert (found.status, found.codes) == ("inconclusive", ["commitment"])
    assert found.payload["verdict"] is None


def test_other_data_are_noticed(decide, house, motifs):
    data = [copy.copy(one) for one in house.data]
    found = decide(data=data[:-1])
    assert found.codes == ["reference"]
    data[0] = copy.copy(data[0])
    data[0].y = 1 - data[0].y  # labels are no part of the digest of the graphs, and bits depend on them
    assert decide(data=data).codes == ["reference"]


def test_a_plain_key_is_never_owned(decide, motifs, people, opened):
    mark = draw(motifs, 4, key="plain")
    claim = Claim.make(mark, decide_model(), people.owner, motifs.data)
    found = decide(claim=claim, opening=opened(claim, mark))
    assert (found.status, found.codes) == ("inconclusive", ["key"])


def decide_model():
    return torch.nn.Linear(2, 2)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda said: said["commitment"].update(mark="0" * 64), "regeneration"),
        (lambda said: said["tree"].update(root="0" * 64), "regeneration"),
        (lambda said: said["tree"].update(leaves=3), "regeneration"),
        (lambda said: said["commitment"].update(secret="0" * 64), "commitment"),
        (lambda said: said["commitment"].update(salt="0" * 64), "commitment"),
        (lambda said: said["context"].update(gap=0.3), "regeneration"),
        (lambda said: said["reference"].update(labels="0" * 64), "reference"),
    ],
)
def test_a_claim_that_commits_to_something_else(decide, house, people, opened, change, code):
    altered = resigned(house.claim, people.owner, change)
    found = decide(claim=altered, opening=replace(opened(), claim=altered.digest))
    assert (found.status, found.codes) == ("inconclusive", [code])


@pytest.mark.parametrize(
    "change",
    [
        lambda said: said["rule"].update(statistic="rank"),
        lambda said: said["rule"].update(access=["logits"]),
        lambda said: said["rule"].update(prefix=65),
        lambda said: said["reference"].update(graphs="0" * 64),
        lambda said: said["owner"].update(signing="0" * 64),
        lambda said: said["context"].pop("token"),
        lambda said: said["context"].update(m=7),
    ],
)
def test_a_claim_that_contradicts_itself_is_refused(house, people, change, tmp_path):
    payload = copy.deepcopy(house.claim.payload)
    change(payload)
    with pytest.raises(ParameterError):
        Claim(Document.sign("claim", payload, people.owner))


def test_a_token_for_something_else_is_not_counted(decide, house, people, opened, motifs, authority):
    """Each try at a key costs a request: nothing else can be exchanged."""
    from invgnn.court.bound import draw_bound

    other, token = draw_bound(Secret(bytes([8]) * 32), motifs.data, authority.url, m=64)
    with pytest.raises(ParameterError, match="token"):
        Claim.make(house.mark, house.model, people.owner, motifs.data, token=token)

    def foreign(said):
        said["token"] = Claim.make(other, house.model, people.owner, motifs.data, token=token).payload[
            "token"
        ]

    altered = resigned(house.claim, people.owner, foreign)
    found = decide(claim=altered, opening=replace(opened(), claim=altered.digest))
    assert not check(found, "token")["passed"]
    assert not found.payload["grounds"][2]["available"]


# --- clocks and authorities -----------------------------------------------------------------------


def test_clocks_that_disagree(decide, house, roots):
    past = datetime(2021, 1, 1, tzinfo=UTC)
    found = decide(now=past)
    assert not check(found, "timestamp")["passed"]
    assert "after the judge's clock" in check(found, "timestamp")["says"]
    assert not any(one["available"] for one in found.payload["grounds"][1:])
    with pytest.raises(ParameterError, match="appeared later than now"):
        Exhibits(house.model, house.data, suspect_since=datetime(2999, 1, 1, tzinfo=UTC))
    with pytest.raises(ParameterError, match="time zone"):
        Exhibits(house.model, house.data, suspect_since=datetime(2020, 1, 1))


def test_foreign_and_expired_authorities_are_not_counted(decide, house, people, opened, tmp_path):
    foreign = decide(roots=())
    assert not check(foreign, "timestamp")["passed"]
    (tmp_path / "expired").mkdir()
    start = datetime.now(UTC) - timedelta(days=30)
    with LocalAuthority(tmp_path / "expired", starts=start, days=5) as old:
        claim = Claim.make(house.mark, house.model, people.owner, house.data, token=house.token)
        dated = claim.dated(old.url, people.owner)
        found = decide(claim=dated, opening=opened(dated), roots=load_roots(old.root))
    assert "expired" in check(found, "timestamp")["says"]
    assert found.payload["timeline"]["claimed_by"] is None


# --- judgements -----------------------------------------------------------------------------------


def test_a_judgement_cannot_contradict_itself(decide, people):
    found = decide(suspect_since=None)
    for change in (
        {"checks": [{"check": "key", "passed": False, "fatal": True, "says": "x"}]},
        {"rivals": [{"claim": "0" * 64, "owner": "x", "outcome": "is the ancestor", "says": "x"}]},
        {"grounds": []},
        {"grounds": [{**one, "found": 0.0, "holds": True} for one in found.payload["grounds"]]},
        {"opening": {**found.payload["opening"], "form": "prefix"}},
        {"judge": {"name": "judge", "signing": "0" * 64}},
    ):
        payload = found.payload | {"status": "owned"} | change
        with pytest.raises(ParameterError):
            Judgement(Document.sign("judgement", payload, people.judge))


def test_controls_that_verify_leave_nothing_owned(decide, house, tomorrow):
    found = decide(controls=[house.model], suspect_since=tomorrow)
    assert (found.status, found.codes) == ("inconclusive", ["controls"])
    assert "no unmarked model" in check(decide(), "controls")["says"]


def test_decoys_are_other_keys(decide, house):
    found = decide().payload
    assert found["decoys"]["count"] == 9999
    assert found["decoys"]["as_good"] == 0
    assert found["decoys"]["most"] < found["verdict"]["matches"]
    other = decide(house.other).payload
    share = (1 + other["decoys"]["as_good"]) / 10_000
    assert share > 1e-3  # an unmarked model matches random keys as well


def test_a_suspect_behind_a_function(decide, house):
    found = decide(lambda batch: call(house.model, batch))
    assert found.payload["suspect"]["digest"] == "function"


def test_bits_never_leave(decide, house):
    text = decide(suspect_since=None).document.bytes.decode()
    said = decide().payload["verdict"]
    assert not {"bits", "answers", "ordinary"} & said.keys()
    assert "".join(map(str, house.mark.bits.tolist())) not in text
    assert bytes(house.mark.secret).hex() not in text
    assert math.isfinite(said["evidence_bits"])
    assert np.isfinite(said["p"])
