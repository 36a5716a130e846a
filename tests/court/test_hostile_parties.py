"""What a claimant, a thief or a careless judge can hand in with a valid signature, and what is found."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

from _helpers.court import CASE, ROOT, TSA, constant, dated, golden_rings, resigned
from _helpers.tokens import NOW, party, stamped, token
from invgnn.court import merkle
from invgnn.court.bound import Token
from invgnn.court.challenge import Challenge
from invgnn.court.claim import Claim
from invgnn.court.commitment import commit_secret, digest_labels, message_before_drawing
from invgnn.court.documents import Document
from invgnn.court.exhibits import Exhibits
from invgnn.court.grounds import grounds_of, sufficient
from invgnn.court.judging import judge
from invgnn.court.leaves import Leaf, Leaves
from invgnn.court.opening import Opened, load_opening, open_drawn, open_fully
from invgnn.court.revocation import Revocation
from invgnn.court.rivals import Rival
from invgnn.court.timestamp import binding
from invgnn.court.tracing import trace_suspect
from invgnn.errors import InvgnnError, TimestampError
from invgnn.secret import Secret
from invgnn.storage import encoding
from invgnn.watermark.mark import Watermark
from invgnn.watermark.reference import Reference

OTHER_ROOT = party("another root", ca=True, usage=())
OTHER_TSA = party("another authority", OTHER_ROOT)


@pytest.fixture(scope="module")
def case(people, tmp_path_factory):
    """A claim on a small model that nobody trained, and a judge: enough for whatever decides by form."""
    rings, model = golden_rings(), constant()
    mark = Watermark.draw(Secret(bytes([5]) * 32), rings, m=32, classes=2)
    claim = Claim.make(mark, model, people.owner, rings)
    path = tmp_path_factory.mktemp("case") / "full"
    open_fully(path, claim, mark, people.owner, people.judge.public(), CASE)

    class Case:
        full = load_opening(path, people.judge)

        def decide(self, claim=claim, opened=None, **options):
            held = {"roots": [ROOT.cert, OTHER_ROOT.cert]} | options
            opened = opened or replace(self.full, claim=claim.digest)
            return judge(claim, opened, Exhibits(model, rings, **held), people.judge, CASE)

    found = Case()
    found.mark, found.claim, found.rings = mark, claim, rings
    return found


def check(judgement, name):
    return next(one for one in judgement.payload["checks"] if one["check"] == name)


# --- dates ----------------------------------------------------------------------------------------


def test_a_token_dates_one_claim_with_its_signature(case, people):
    """Not the payload alone, not another claim of the same owner, nothing without the owner's signature."""
    own = case.claim.document
    other = resigned(case.claim, people.owner, lambda said: said.update(label="another"))
    assert dated(case.claim, people.owner).stamp([ROOT.cert]).time == NOW
    for message in (
        encoding.encode(own.payload),
        encoding.encode(["invgnn/dated/1", "application/vnd.invgnn.claim.v1+json", b"", own.signature]),
        other.document.message,
    ):
        odd = dated(case.claim, people.owner, message=message)
        with pytest.raises(TimestampError, match="another message"):
            odd.stamp([ROOT.cert])
        found = case.decide(odd)
        assert "another message" in check(found, "timestamp")["says"]
        assert found.payload["timeline"]["claimed_by"] is None


def test_two_authorities_that_disagree(case, people):
    """A claim contains the token that its bits are bound to, so it cannot be older than this token."""
    rings, salt = case.rings, bytes(32)
    secret = case.mark.secret
    message = message_before_drawing(commit_secret(secret, salt), case.mark.context, digest_labels(None))
    reply = token(stamped(message, time=NOW - timedelta(minutes=30)), TSA)
    mark = Watermark.draw(secret, rings, m=32, classes=2, token=binding(reply))
    claim = Claim.make(mark, constant(), people.owner, rings, token=Token(salt, reply))
    early, late = (dated(claim, people.owner, NOW - timedelta(minutes=ago), OTHER_TSA) for ago in (31, 29))
    since = {"suspect_since": NOW, "controls": [constant()]}
    found = case.decide(early, **since)
    assert "one of the two authorities is wrong" in check(found, "timestamp")["says"]
    assert [one["available"] for one in found.payload["grounds"]] == [True, False, True]
    found = case.decide(late, **since)
    assert check(found, "timestamp")["passed"]
    assert [one["available"] for one in found.payload["grounds"]] == [True, True, True]


def test_a_date_in_the_future_is_not_counted(case, people):
    for ahead, counted in ((5, True), (15, False)):  # clocks may disagree by ten minutes
        claim = dated(case.claim, people.owner, NOW + timedelta(minutes=ahead))
        assert check(case.decide(claim, now=NOW), "timestamp")["passed"] is counted


def test_a_claimant_who_operates_the_authority_is_believed_only_with_its_root(
    decide, house, people, opened
):
    """Nothing tells a back-dated token from an honest one. So the judgement says that it rests on it."""
    made = resigned(house.claim, people.owner, lambda said: said.update(label="made after the theft"))
    claim = dated(made, people.owner, NOW - timedelta(days=0, hours=20))
    late = {"suspect_since": NOW - timedelta(hours=10), "controls": [house.other], "requests": 2**60}
    found = decide(claim=claim, opening=opened(claim), roots=[ROOT.cert], **late)
    assert [one["holds"] for one in found.payload["grounds"]] == [False, True, False]
    assert found.status == "owned"
    assert any("or the claimant operates it" in text for text in found.payload["voids"])
    found = decide(claim=claim, opening=opened(claim), roots=[OTHER_ROOT.cert], **late)
    assert (found.status, found.codes) == ("inconclusive", ["grinding"])


def test_grinding_tokens_costs_what_the_verdict_says(house, motifs):
    """One secret, another token each time: the best of n has b bits with probability n / 2^b at most."""
    reference, count = Reference.of(motifs.data), 24
    tried = {
        str(i): Watermark.draw(house.mark.secret, reference, m=64, token=f"{i:064x}") for i in range(count)
    }
    rows = trace_suspect("innocent", house.other, tried)  # corrected for all tries
    best = max(-math.log2(10) * row.log10_p for row in rows)
    found = grounds_of(1e-6, stamp=None, suspect_since=None, token=None, requests=count)[2]
    assert found.needed == pytest.approx(math.log2(2 * count) + math.log2(1e6))
    assert best < found.needed  # up to 26 bits: one search in a million gets so far
    assert len({one.bits.tobytes() for one in tried.values()}) == count
    assert sufficient((replace(found, available=True),)).bits == found.needed


# --- openings -------------------------------------------------------------------------------------


def test_one_opening_may_serve_two_suspects_of_a_case_if_they_are_counted(decide, house, opened, tomorrow):
    opening = opened()
    first = decide(suspect_since=tomorrow, controls=[house.other], opening=opening)
    again = decide(house.other, suspect_since=tomorrow, opening=opening, suspects=2)
    assert (first.status, again.status) == ("owned", "not shown")
    assert any("other suspects" in text for text in first.payload["voids"])
    assert again.payload["verdict"]["suspects"] == 2


def test_a_challenge_of_another_case_is_stale(case, people, tmp_path):
    """Otherwise a claimant chooses between the challenges of several cases."""
    old = Challenge.draw(case.claim, people.judge, "case 6", 8)
    open_drawn(tmp_path / "a", case.claim, case.mark, people.owner, people.judge.public(), old)
    stale = load_opening(tmp_path / "a", people.judge)
    assert case.decide(opened=stale).codes == ["opening"]
    aimed = replace(stale, case=CASE)  # a claimant signs any case into an opening
    found = case.decide(opened=aimed)
    assert found.codes == ["opening"]
    assert "another case" in check(found, "opening")["says"] or "another case" in str(found)


def test_a_superseded_claim_counts_until_it_is_revoked(decide, house, people, opened, tomorrow):
    newer = Claim.make(
        house.mark, house.model, people.owner, house.data, token=house.token, supersedes=house.claim.digest
    )
    how = {"suspect_since": tomorrow, "controls": [house.other]}
    assert decide(**how).status == "owned"
    gone = Revocation.make(people.owner, "superseded", claim=house.claim)
    assert decide(**how, revocations=[gone]).codes == ["revocation"]
    assert decide(claim=newer, opening=opened(newer), revocations=[gone]).status == "owned"


# --- trees of a claimant --------------------------------------------------------------------------


def grown(case, people, contents, salts):
    """A claim over a tree of the claimant's making, and its prefix opening."""
    hashes = [merkle.hash_leaf(salt, one) for salt, one in zip(salts, contents, strict=True)]
    tree = {"root": merkle.root_of(hashes).hex(), "leaves": len(hashes)}
    claim = resigned(case.claim, people.owner, lambda said: said.update(tree=tree))
    places = [*range(claim.rule["prefix"]), *range(32, len(hashes))]
    leaves = tuple(
        Leaf(i, salts[i], contents[i], tuple(merkle.path_of(hashes, i))) for i in places if i < len(hashes)
    )
    about = {"judge": people.judge.key, "signer": people.owner.key, "digest": "0" * 64}
    return claim, Opened("prefix", claim.digest, CASE, **about, leaves=leaves)


def honest(case):
    leaves = Leaves(case.mark, case.claim.salt)
    return [bytes(leaves.content(i)) for i in range(len(leaves))], [
        leaves.salt(i) for i in range(len(leaves))
    ]


def test_equal_salts_harm_only_the_claimant(case, people):
    """Salts hide what is not shown. They prove nothing, and a full opening derives its own."""
    contents, salts = honest(case)
    claim, opened = grown(case, people, contents, [bytes(32)] * len(salts))
    assert check(case.decide(claim, opened), "leaves")["passed"]
    assert case.decide(claim).codes == ["regeneration"]


def test_carriers_of_a_part_are_checked_like_all(case, people):
    """Two carriers that are repeated would count as sixteen independent answers."""
    contents, salts = honest(case)
    first = {encoding.decode(one)["bit"]: one for one in contents[:32]}
    claim, opened = grown(case, people, [first[i % 2] for i in range(32)] + contents[32:], salts)
    found = case.decide(claim, opened)
    assert (found.status, found.codes) == ("inconclusive", ["key"])
    assert "same graph" in check(found, "key")["says"]
    own = [encoding.encode({"carrier": case.rings.take([i]).record(), "bit": i % 2}) for i in range(32)]
    claim, opened = grown(case, people, own + contents[32:], salts)
    assert "reference data" in check(case.decide(claim, opened), "key")["says"]


def odd_values():
    """Values that no honest leaf holds."""
    return [None, -1, 2, 2**70, -(2**70), 0.5, float("nan"), "", "x" * 99, b"", [], {}, [[]], True]


def test_leaves_of_a_hostile_claimant_give_an_answer(case, people):
    """Every value of a signed leaf is exchanged for one that does not belong there."""
    contents, salts = honest(case)
    rng, seen = np.random.default_rng(3), 0
    for place in (0, 32, 33):
        value = encoding.decode(contents[place])
        for path in paths(value):
            for odd in some(rng, odd_values(), 5):
                try:
                    other = encoding.encode(exchanged(value, path, odd))
                except InvgnnError:
                    continue
                changed = [*contents[:place], other, *contents[place + 1 :]]
                claim, opened = grown(case, people, changed, salts)
                found = case.decide(claim, opened)
                assert found.status in {"inconclusive", "not shown"}
                seen += 1
    assert seen > 50


def test_openings_of_a_hostile_claimant_give_an_answer(case, people, tmp_path):
    """What a claimant encrypts and signs need not be what the form promises."""
    from invgnn.court import opening

    revealed = {"secret": bytes(case.mark.secret), "baseline": {"scores": np.zeros(3), "inputs": "0" * 64}}
    for path in [*paths(revealed), ()]:
        for odd in odd_values():
            try:
                odd_one = exchanged(revealed, path, odd)
                opening._write(
                    tmp_path / "a",
                    "full",
                    odd_one,
                    case.claim,
                    people.owner,
                    people.judge.public(),
                    CASE,
                    True,
                )
            except (InvgnnError, TypeError, ValueError):
                continue
            try:
                opened = load_opening(tmp_path / "a", people.judge)
            except InvgnnError:
                continue
            assert case.decide(opened=opened).status in {"inconclusive", "not shown"}


def test_partial_openings_of_a_hostile_claimant_give_an_answer(case, people, tmp_path):
    """Places, salts and paths of leaves, and the challenge, are the claimant's as well."""
    from invgnn.court import opening

    made = Challenge.draw(case.claim, people.judge, CASE, 8)
    arrays, rng = [np.array([0, 1]), np.zeros(0)], np.random.default_rng(5)
    for form, places in (("prefix", range(16)), ("drawn", made.drawn(case.claim))):
        revealed = {"leaves": opening._shown(case.claim, case.mark, places)}
        revealed |= {"challenge": made.document.bytes} if form == "drawn" else {}
        chosen = [path for path in paths(revealed) if len(path) < 2 or path[1] == 0]
        for path in chosen:
            for odd in (*arrays, *some(rng, odd_values(), 3)):
                try:
                    whole = exchanged(revealed, path, odd)
                    held = (case.claim, people.owner, people.judge.public(), CASE, True)
                    opening._write(tmp_path / "a", form, whole, *held)
                    opened = load_opening(tmp_path / "a", people.judge)
                except InvgnnError:
                    continue
                assert case.decide(opened=opened).status in {"inconclusive", "not shown"}, (path, odd)


def test_claims_of_a_hostile_claimant_give_an_answer(case, people, tmp_path):
    """Every value of a claim is exchanged, and the claim is signed again."""
    rng, judged = np.random.default_rng(4), 0
    for path in paths(case.claim.payload):
        for odd in some(rng, [*odd_values(), 10**9, "0" * 64, 1e300], 4):
            payload = exchanged(case.claim.payload, path, odd)
            try:
                Document.sign("claim", payload, people.owner).save(tmp_path / "a", overwrite=True)
                claim = Claim.load(tmp_path / "a")
            except InvgnnError:
                continue
            found = case.decide(claim)
            assert found.status in {"inconclusive", "not shown"}
            judged += 1
    assert judged > 5


def some(rng, values, count):
    return [values[i] for i in rng.permutation(len(values))[:count]]


def paths(value, at=()):
    """The place of every value inside a value, arrays not entered."""
    items = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, inner in items:
        yield (*at, key)
        yield from paths(inner, (*at, key))


def exchanged(value, path, odd):
    """A copy of a value with another one at a place."""
    if not path:
        return odd
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = exchanged(value[path[0]], path[1:], odd)
    return copy


# --- rivals ---------------------------------------------------------------------------------------


def test_rivals_on_one_secret_with_dates_that_do_not_tell(decide, house, opened, people, tomorrow):
    """Replay: the same secret twice. Equal or overlapping dates, or none, decide nothing."""

    def claim(who, time):
        made = Claim.make(house.mark, house.model, who, house.data, token=house.token)
        return made if time is None else dated(made, who, time)

    hour = NOW - timedelta(hours=1)
    for ours, theirs, outcome in (
        (hour, hour, "not settled"),
        (hour, hour + timedelta(seconds=1), "replays this secret"),
        (hour + timedelta(seconds=1), hour, "is older on the same secret"),
        (None, None, "not settled"),
        (hour, None, "replays this secret"),  # whoever has a date prevails over whoever has none
        (None, hour, "is older on the same secret"),
    ):
        first, second = claim(people.owner, ours), claim(people.thief, theirs)
        rival = Rival(second, opened(second, owner=people.thief), house.model)
        found = decide(claim=first, opening=opened(first), rivals=[rival], roots=[ROOT.cert], claims=1)
        assert found.payload["rivals"][0]["outcome"] == outcome
        by_date = any("settled a rival claim" in text for text in found.payload["voids"])
        assert by_date is (outcome != "not settled")
