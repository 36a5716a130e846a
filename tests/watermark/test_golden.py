"""Files of earlier versions open and mean what they meant; those that are unsound say what to do."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric.data import Data

from _helpers.chords import chords
from invgnn.audit.verify import verify
from invgnn.errors import DataError, FileError
from invgnn.nn.forward import to_batch
from invgnn.nn.model_file import load_model
from invgnn.secret import Secret
from invgnn.watermark.mark import Watermark

HERE = Path(__file__).parents[1] / "golden"
GOLDEN, GOLDEN_2 = (json.loads((HERE / f"v{version}.json").read_text()) for version in (1, 2))
SOUND = sorted(GOLDEN.keys() - {"gin scores", "score-channel-of-two"})


def counts(batch):
    """A suspect anybody can redo: nodes, arrows, and one, of every graph."""
    nodes, arrows = torch.bincount(batch.batch), torch.bincount(batch.batch[batch.edge_index[0]])
    return torch.stack([nodes.float(), arrows.float(), torch.ones(len(nodes))], 1)


def items(rings):
    parts = [rings.take([i]) for i in range(len(rings))]
    return [
        Data(
            x=torch.from_numpy(one.x.copy()),
            edge_index=torch.from_numpy(one.directed()),
            num_nodes=one.num_nodes,
            y=torch.tensor([i % 3]),
        )
        for i, one in enumerate(parts)
    ]


def assert_reads(mark, golden):
    assert (mark.digest, mark.bound) == (golden["digest"], golden["bound"])
    assert "".join(map(str, mark.bits)) == golden["bits"]
    assert mark.direction("embedding", 8).tolist() == golden["embedding 8"]
    assert mark.direction("logits", 3).tolist() == golden["logits 3"]
    assert mark._order.tolist() == golden["order"]
    if golden["answers"] is not None:
        np.testing.assert_allclose(mark.read(counts, "logits").carriers, golden["answers"], rtol=1e-5)


@pytest.mark.parametrize("name", SOUND)
def test_marks_of_format_1_read_the_same_bits(name):
    mark = Watermark.load(HERE / f"v1-{name}.mark")
    assert mark.format == 1
    assert_reads(mark, GOLDEN[name])


@pytest.mark.parametrize("name", sorted(GOLDEN_2))
def test_marks_of_format_2_read_the_same_bits(name):
    mark = Watermark.load(HERE / f"v2-{name}.mark")
    assert mark.format == 2
    assert_reads(mark, GOLDEN_2[name])


@pytest.mark.parametrize("name", ["edge-attributes", "directed"])
def test_further_tensors_are_drawn_and_written_as_before(name, tmp_path):
    """The order of the donors' draws, swaps of directed graphs, and the bytes of the file."""
    data = [chords(number, name == "directed") for number in range(40)]
    mark = Watermark.draw(Secret(bytes(range(32))), data, m=16)
    assert mark.digest == GOLDEN_2[name]["digest"]
    assert mark.carriers.is_directed == (name == "directed")
    loaded = Watermark.load(HERE / f"v2-{name}.mark")
    loaded.save(tmp_path / "again.mark", insecure_no_passphrase=True)
    assert (tmp_path / "again.mark").read_bytes() == (HERE / f"v2-{name}.mark").read_bytes()


def test_a_score_channel_of_format_2_is_compared_along_the_same_direction(rings):
    mark = Watermark.load(HERE / "v2-score-channel.mark")
    found = np.abs(mark.channel(items(rings)).direction)
    np.testing.assert_allclose(found, GOLDEN_2["score-channel"]["direction"], atol=1e-5)


def test_signs_of_zero_are_dropped_from_a_mark_that_has_them():
    mark = Watermark.load(HERE / "v1-negative-zero.mark")
    assert not np.signbit(mark.carriers.x[mark.carriers.x == 0]).any()
    seen = []
    mark.read(lambda batch: seen.append(batch.x) or counts(batch), "logits")
    assert not any(bool(torch.signbit(x[x == 0]).any()) for x in seen)


def test_a_mark_saved_again_stays_in_its_format(tmp_path):
    mark = Watermark.load(HERE / "v1-graph.mark")
    mark.save(tmp_path / "again.mark", insecure_no_passphrase=True)
    again = Watermark.load(tmp_path / "again.mark")
    assert (again.format, again.digest, again.bits.tolist()) == (1, mark.digest, mark.bits.tolist())


def test_a_score_channel_of_format_1_is_read_soundly(rings):
    mark, golden = Watermark.load(HERE / "v1-score-channel.mark"), GOLDEN["score-channel"]
    data = items(rings)
    channel = mark.channel(data)
    found = np.abs(channel.direction)  # its features include nearly constant units: rounding
    np.testing.assert_allclose(found, golden["direction"], atol=1e-5)
    lean = channel.compare(channel.direction, channel.direction, len(data))
    assert lean.bits() <= 30  # its normal numbers had too few bits for more
    verdict = verify(counts, mark, data=data)
    assert verdict.status == "not shown"


def test_names_that_hid_tensors_are_refused(rings):
    """What format 1 hashed cannot be told apart if an attribute's name may contain anything."""
    mark, data = Watermark.load(HERE / "v1-score-channel.mark"), items(rings)
    data[3]["x;torch.float32;(1,);"] = 1
    with pytest.raises(DataError, match="not an ASCII identifier"):
        mark.channel(data)


def test_a_score_channel_of_two_features_is_refused_with_advice():
    with pytest.raises(FileError, match="rounding can pass for evidence") as caught:
        Watermark.load(HERE / "v1-score-channel-of-two.mark")
    assert "draw and teach the mark anew" in caught.value.advice


def test_sealed_files_open():
    assert bytes(Secret.load(HERE / "v1-sealed.secret", "open sesame")) == bytes([9]) * 32
    mark = Watermark.load(HERE / "v1-sealed.mark", "open sesame")
    assert mark.digest == GOLDEN["graph"]["digest"]


def test_models_give_the_same_scores(rings):
    model = load_model(HERE / "v1-gin.model")
    assert isinstance(model, nn.Module)
    batch = to_batch(rings.take(range(4)))
    with torch.no_grad():
        scores = model(batch.x, batch.edge_index, batch.batch)
    np.testing.assert_allclose(scores.numpy(), GOLDEN["gin scores"], rtol=1e-4, atol=1e-5)
