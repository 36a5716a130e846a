"""A local time-stamping authority, parties, and one marked model that all tests of the court share."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from _helpers.court import CASE, draw
from invgnn.court.bound import draw_bound
from invgnn.court.claim import Claim
from invgnn.court.exhibits import Exhibits
from invgnn.court.identity import Identity
from invgnn.court.judging import judge
from invgnn.court.local_authority import LocalAuthority
from invgnn.court.opening import load_opening, open_fully
from invgnn.court.timestamp import load_roots
from invgnn.nn.rng import seeded
from invgnn.secret import Secret
from invgnn.training.tasks import new_model
from invgnn.training.trainer import train


@pytest.fixture(scope="session")
def authority(tmp_path_factory):
    """A real authority, run by openssl."""
    with LocalAuthority(tmp_path_factory.mktemp("authority")) as found:
        yield found


@pytest.fixture(scope="session")
def roots(authority):
    return load_roots(authority.root)


@pytest.fixture(scope="session")
def people():
    """An owner, a judge and a thief, always the same."""
    return SimpleNamespace(
        **{
            name: Identity(name, Secret(bytes([i + 1]) * 32))
            for i, name in enumerate(("owner", "judge", "thief"))
        }
    )


def marked(motifs, mark, seed=0, epochs=80, hidden=16):
    model = new_model(motifs, "GIN", seed, hidden_channels=hidden)
    with seeded(0):
        train(model, motifs, mark, epochs=epochs)
    return model


@pytest.fixture(scope="session")
def house(motifs, authority, people):
    """A model whose mark is bound to a token, its dated claim, and an unmarked model of the same task."""
    mark, token = draw_bound(Secret(bytes([9]) * 32), motifs.data, authority.url, m=64)
    model = marked(motifs, mark)
    claim = Claim.make(mark, model, people.owner, motifs.data, token=token).dated(
        authority.url, people.owner
    )
    other = new_model(motifs, "GIN", 5, hidden_channels=16)
    train(other, motifs, epochs=5)
    return SimpleNamespace(mark=mark, token=token, model=model, claim=claim, other=other, data=motifs.data)


@pytest.fixture(scope="session")
def solid(motifs, people):
    """A strong mark that is the same in every run, and a claim without a date."""
    mark = draw(motifs, 7, m=128)
    model = marked(motifs, mark, seed=3, epochs=60, hidden=32)
    claim = Claim.make(mark, model, people.owner, motifs.data)
    return SimpleNamespace(mark=mark, model=model, claim=claim)


@pytest.fixture(scope="session")
def opened(house, people, tmp_path_factory):
    """Open a claim fully to the judge, and decrypt the opening."""
    folder, count = tmp_path_factory.mktemp("openings"), iter(range(10**6))

    def make(claim=None, mark=None, owner=None, case=CASE):
        path = folder / f"{next(count)}.opening"
        held = (claim or house.claim, mark or house.mark, owner or people.owner)
        open_fully(path, *held, people.judge.public(), case)
        return load_opening(path, people.judge)

    return make


@pytest.fixture(scope="session")
def tomorrow():
    """A date after every claim of the tests, within what clocks may disagree."""
    return datetime.now(UTC) + timedelta(minutes=5)


@pytest.fixture(scope="session")
def decide(house, opened, people, roots):
    """Judge a claim, by default the owner's on the marked model."""

    def run(suspect=None, claim=None, opening=None, *, original=None, rivals=(), case=CASE, **options):
        held = {"data": house.data, "roots": roots, "requests": 2**10, "claims": 2**10} | options
        exhibits = Exhibits(house.model if suspect is None else suspect, **held)
        claim = claim or house.claim
        opening = opening or opened(claim)
        return judge(claim, opening, exhibits, people.judge, case, original=original, rivals=rivals)

    return run
