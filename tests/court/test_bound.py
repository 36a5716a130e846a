"""Marks that are bound to a token: every key costs a request, and marks without one are as before."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

from invgnn.court.bound import Token, draw_bound
from invgnn.court.claim import Claim
from invgnn.court.commitment import commit_mark, commit_secret, digest_labels, message_before_drawing
from invgnn.court.timestamp import binding, check_token
from invgnn.errors import FileError, ParameterError
from invgnn.secret import Secret
from invgnn.storage import container
from invgnn.watermark.mark import Watermark


def test_the_token_fixes_secret_data_and_declarations(house, roots):
    claim, mark = house.claim, house.mark
    said = claim.payload
    assert mark.context["token"] == binding(house.token.token)
    assert commit_secret(mark.secret, house.token.salt) == said["commitment"]["secret"]
    labels = said["reference"]["labels"]
    message = message_before_drawing(said["commitment"]["secret"], mark.context, labels)
    assert check_token(house.token.token, message, roots)
    for other in (
        message_before_drawing("0" * 64, mark.context, labels),
        message_before_drawing(said["commitment"]["secret"], {**mark.context, "m": 66}, labels),
        message_before_drawing(said["commitment"]["secret"], mark.context, digest_labels(None)),
    ):
        assert other != message


def test_another_token_gives_another_key(house, motifs, authority):
    again, _ = draw_bound(house.mark.secret, motifs.data, authority.url, m=64)
    assert again.bits.tolist() != house.mark.bits.tolist()
    assert again.carriers.digest() != house.mark.carriers.digest()


def test_a_bound_mark_survives_its_file(house, tmp_path):
    house.mark.save(tmp_path / "a", insecure_no_passphrase=True)
    held = Watermark.load(tmp_path / "a")
    assert (held.digest, held.context["token"]) == (house.mark.digest, house.mark.context["token"])
    house.token.save(tmp_path / "b")
    assert Token.load(tmp_path / "b") == house.token


def test_without_a_token_nothing_changes(motifs):
    """The golden files prove it for stored marks; this for new ones."""
    assert "token" not in Watermark.draw(Secret(bytes(32)), motifs.data, m=16).context


@pytest.mark.parametrize("token", ["", "0" * 63, "Z" * 64, 5])
def test_a_token_is_a_digest(motifs, token):
    with pytest.raises(ParameterError):
        Watermark.draw(Secret(bytes(32)), motifs.data, m=16, token=token)


@pytest.mark.parametrize("body", [{}, {"salt": "zz"}, {"salt": "00"}, {"salt": "0" * 64, "more": 1}])
def test_malformed_token_files(house, tmp_path, body):
    import numpy as np

    container.write(tmp_path / "a", "token", body, {"token": np.zeros(3, np.uint8)})
    with pytest.raises(FileError):
        Token.load(tmp_path / "a")


def test_commitments_hide_and_bind():
    secret, other, salt = Secret(bytes(32)), Secret(bytes([1]) * 32), bytes([5]) * 32
    found = {
        commit_secret(secret, salt),
        commit_secret(other, salt),
        commit_secret(secret, bytes(32)),
        commit_mark(secret, salt, "0" * 64),
        commit_mark(secret, salt, "1" * 64),
        commit_mark(secret, bytes(32), "0" * 64),
    }
    assert len(found) == 6
    assert commit_secret(secret, salt) == "7618fc18682fb249447c0ab475b19a9b5e9c8361ed6669724bcf4b95387a0ab5"
    assert (
        commit_mark(secret, salt, "0" * 64)
        == "a0d1171e145411682ad288a410c644eafe18e88e5fe604d798bde2bbb46b6cf3"
    )


def test_a_claim_needs_its_own_data_and_a_finished_mark(house, people, motifs):
    with pytest.raises(ParameterError, match="other data"):
        Claim.make(house.mark, house.model, people.owner, motifs.data[:-1])
    unfinished = Watermark.draw(Secret(bytes(32)), motifs.data, m=16, score_channel=16)
    with pytest.raises(ParameterError, match="finished"):
        Claim.make(unfinished, house.model, people.owner, motifs.data)
    with pytest.raises(ParameterError, match="contradicts"):
        Claim.make(house.mark, house.model, people.owner, motifs.data)  # its token is missing


def test_the_size_of_a_score_channel_is_chosen_before_the_token(authority):
    """A node task says how many inputs it has; what the mark is drawn from after the token does not."""
    steps = torch.arange(400).repeat(3), torch.tensor([1, 7, 31]).repeat_interleave(400)
    ends = torch.stack([steps[0], (steps[0] * steps[1] + steps[1]) % 400])
    graph = Data(
        x=torch.eye(5)[torch.arange(400) % 5], edge_index=to_undirected(ends[:, ends[0] != ends[1]])
    )
    mark, _ = draw_bound(Secret(bytes(32)), graph, authority.url, m=16, classes=3, score_channel="auto")
    assert mark.score_channel == 20
