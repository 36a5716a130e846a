"""Partial openings: carriers that nobody chose after looking, their own exact law, and never `owned`."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from _helpers.court import CASE, resigned
from invgnn.court.challenge import Challenge
from invgnn.court.leaves import Leaves
from invgnn.court.opening import PROVES, load_opening, open_drawn, open_prefix
from invgnn.court.partial import _evidence, as_good, reveal
from invgnn.errors import FileError, ParameterError
from invgnn.readout.answers import Answers
from invgnn.readout.reading import Reading


@pytest.fixture(scope="module")
def prefix(solid, people, tmp_path_factory):
    path = tmp_path_factory.mktemp("partial") / "prefix"
    open_prefix(path, solid.claim, solid.mark, people.owner, people.judge.public(), CASE)
    return load_opening(path, people.judge)


@pytest.fixture(scope="module")
def drawn(solid, people, tmp_path_factory):
    path = tmp_path_factory.mktemp("partial") / "drawn"
    challenge = Challenge.draw(solid.claim, people.judge, CASE, 40)
    open_drawn(path, solid.claim, solid.mark, people.owner, people.judge.public(), challenge)
    return load_opening(path, people.judge)


@pytest.mark.parametrize("form", ["prefix", "drawn"])
def test_a_part_is_evidence_and_never_enough(request, form, decide, solid, house, tomorrow):
    part = request.getfixturevalue(form)
    assert part.secret is None
    found = decide(solid.model, solid.claim, part, suspect_since=tomorrow)
    assert (found.status, found.codes) == ("inconclusive", ["partial"])
    assert found.payload["opening"]["proves"] == PROVES[form]
    assert "at random" in found.payload["opening"]["proves"]
    assert found.payload["verdict"]["m"] == {"prefix": 64, "drawn": 40}[form]
    assert found.payload["verdict"]["evidence_bits"] > 20
    other = decide(house.other, solid.claim, part, controls=[house.other])
    assert (other.status, other.codes) == ("not shown", ["chance"])
    assert (
        decide(solid.model, solid.claim, part, controls=[solid.model]).payload["checks"][-1]["passed"]
        is False
    )


def test_what_is_shown_is_what_the_mark_has(solid, prefix):
    shown = reveal(solid.claim, prefix)
    order = solid.mark.secret.derive("court/order", solid.mark.bound).permutation(solid.mark.m)[:64]
    assert np.array_equal(shown.bits, solid.mark.bits[order])
    assert shown.questions.decoded[0].digest() == solid.mark.carriers.take(order).digest()
    for access, width in (("embedding", 32), ("logits", 2)):
        ours, theirs = shown.direction(access, width), solid.mark.direction(access, width)
        assert ours.tolist() == theirs.tolist()


def test_partial_and_full_readings_agree_on_the_answers(solid, prefix, decide, opened):
    whole = decide(solid.model, solid.claim, opened(solid.claim, solid.mark)).payload["verdict"]
    part = decide(solid.model, solid.claim, prefix).payload["verdict"]
    assert part["matches"] / part["m"] == pytest.approx(whole["matches"] / whole["m"], abs=0.1)


def test_the_claimant_chooses_neither_carriers_nor_their_number(decide, solid, people, prefix, drawn):
    for leaves in (
        prefix.leaves[1:],
        prefix.leaves[:-1],
        (*prefix.leaves[1:64], prefix.leaves[0], *prefix.leaves[64:]),
        prefix.leaves[:32] + prefix.leaves[64:],
    ):
        assert decide(solid.model, solid.claim, replace(prefix, leaves=leaves)).codes == ["opening"]
    own = Challenge.draw(solid.claim, people.owner, CASE, 40)  # a claimant's own draw
    assert decide(solid.model, solid.claim, replace(drawn, challenge=own)).codes == ["opening"]
    again = Challenge.draw(solid.claim, people.judge, CASE, 40)  # not the draw that was answered
    assert decide(solid.model, solid.claim, replace(drawn, challenge=again)).codes == ["opening"]
    shorter = resigned(solid.claim, people.owner, lambda said: said["rule"].update(prefix=30))
    found = decide(solid.model, shorter, replace(prefix, claim=shorter.digest))
    assert found.codes == ["opening"]


def test_altered_leaves_do_not_belong(decide, solid, prefix):
    first = prefix.leaves[0]
    flipped = first.content.replace(b"bit", b"Bit")
    for leaf in (
        replace(first, content=flipped),
        replace(first, salt=bytes(32)),
        replace(first, salt=b""),
        replace(first, path=first.path[::-1]),
        replace(first, path=()),
        replace(first, content=b""),
    ):
        assert decide(
            solid.model, solid.claim, replace(prefix, leaves=(leaf, *prefix.leaves[1:]))
        ).codes == ["opening"]


def test_unopened_leaves_stay_hidden(solid, prefix):
    """A shown leaf gives neither the salt nor the content of another one."""
    leaves = Leaves(solid.mark, solid.claim.salt)
    shown = b"".join(leaf.salt + leaf.content + b"".join(leaf.path) for leaf in prefix.leaves)
    for index in range(64, solid.mark.m):
        assert bytes(leaves.salt(index)) not in shown
        assert bytes(leaves.content(index)) not in shown
    assert bytes(solid.mark.secret) not in shown
    assert len({bytes(leaves.salt(i)) for i in range(len(leaves))}) == len(leaves)


@given(st.integers(2, 8), st.data())
def test_the_law_is_that_of_all_keys_with_as_many_ones(size, data):
    answers = np.array(data.draw(st.lists(st.integers(0, 9), min_size=size, max_size=size)), dtype=float)
    ones = data.draw(st.integers(0, size))
    keys = np.zeros((math.comb(size, ones), size), dtype=np.int64)
    for key, places in zip(keys, combinations(range(size), ones), strict=True):
        key[list(places)] = 1
    bits = keys[data.draw(st.integers(0, len(keys) - 1))]
    given_ = Answers(Reading("logits"), answers, np.zeros(1))
    found = _evidence(Reading("logits"), given_, bits, 3, size)
    counts = [(found.decoded == (key == 1)).sum() for key in keys]
    exact = sum(count >= found.matches for count in counts) / len(keys)
    assert math.exp(found.log_p) == pytest.approx(min(1.0, 3 * exact))
    assert as_good(found.decoded, bits, list(keys)) == (max(counts), round(exact * len(keys)))


def test_challenges(solid, people, tmp_path):
    made = Challenge.draw(solid.claim, people.judge, CASE, 10)
    made.save(tmp_path / "a")
    held = Challenge.load(tmp_path / "a")
    assert held.drawn(solid.claim) == made.drawn(solid.claim)
    assert len(set(held.drawn(solid.claim))) == 10
    assert held.drawn(solid.claim) != Challenge.draw(solid.claim, people.judge, CASE, 10).drawn(solid.claim)
    for count in (1, 129, 2.0):
        with pytest.raises(ParameterError):
            Challenge.draw(solid.claim, people.judge, CASE, count)
    for case in ("", "a\nb", "x" * 201):
        with pytest.raises(ParameterError):
            Challenge.draw(solid.claim, people.judge, case, 10)
    with pytest.raises(ParameterError):
        held.check(solid.claim, people.thief.key)


def test_an_opening_states_what_it_proves_and_cannot_be_relabelled(solid, people, tmp_path):
    from invgnn.storage import container

    open_prefix(tmp_path / "a", solid.claim, solid.mark, people.owner, people.judge.public(), CASE)
    held = container.read(tmp_path / "a", "opening")
    assert held.body["proves"] == PROVES["prefix"]
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o600
    for change in (
        {"form": "full", "proves": PROVES["full"]},
        {"case": "case 8"},
        {"claim": "0" * 64},
        {"owner": people.thief.key},
        {"proves": "everything"},
        {"once": "0" * 64},
        {"once": "zz"},
        {"mediaType": "application/vnd.invgnn.opening.v2"},
        {"more": "x"},
    ):
        container.write(tmp_path / "b", "opening", {**held.body, **change}, held.tensors, overwrite=True)
        with pytest.raises(FileError):
            load_opening(tmp_path / "b", people.judge)
