"""invgnn attack and invgnn stress: what they write, refuse and say."""

from __future__ import annotations

import csv
import functools
import json
import re
import stat
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from invgnn.attacks import denial, edits, forgery, removal
from invgnn.attacks.edits import Prune
from invgnn.attacks.registry import slug
from invgnn.cli import app
from invgnn.nn.backbones import GIN
from invgnn.nn.model_file import load_model, save_model
from invgnn.secret import Secret
from invgnn.stress_test.run import every_change
from invgnn.training import tasks
from invgnn.watermark.mark import Watermark

RECORD = {"model", "change", "accuracy_before", "accuracy"}
STRESS = {"task", "alpha", "page", "csv", "rows", "outcomes"}


@pytest.fixture(scope="module", autouse=True)
def shared(motifs):
    """One small task for all names."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tasks, "load_task", functools.cache(lambda name, seed=41: motifs))
        yield


def run(*arguments, code=0):
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result


def ask(*arguments, keys):
    result = run(*arguments, "--json")
    assert result.stdout.count("\n") == 1
    record = json.loads(result.stdout)
    assert set(record) == set(keys)
    return record


def refuse(*arguments, error):
    said = json.loads(run(*arguments, "--json", code=2).stdout)
    assert said["error"] == error, said
    assert said["advice"]
    return said["message"]


@pytest.fixture(scope="module")
def made(tmp_path_factory, motifs):
    """A mark, a model that never learnt it, and a second copy."""
    folder = tmp_path_factory.mktemp("made")
    Watermark.draw(Secret(bytes(range(32))), motifs.data, m=16).save(
        folder / "a.mark", insecure_no_passphrase=True
    )
    for name, seed in (("a.model", 0), ("b.model", 1)):
        save_model(folder / name, tasks.new_model(motifs, "GCN", seed, hidden_channels=8))
    return folder


@pytest.mark.parametrize("verb", ["attack", "stress"])
def test_help_fits_and_teaches(verb):
    text = run(verb, "--help").stdout
    assert max(map(len, text.splitlines())) <= 80
    assert text.isascii()
    assert f"\n    invgnn {verb}" in text


# --- attack


def test_the_list_names_everything():
    said = ask("attack", "--list", keys=("changes",))["changes"]
    assert [row["name"] for row in said] == [slug(change) for change in every_change()]
    assert {"name", "knows", "does"} == {*said[0]}
    kill = next(row for row in said if row["name"] == "kd-kill")
    assert kill["knows"] == "the weights, task data, a clean teacher"
    words = run("attack", "--list").stdout
    assert max(map(len, words.splitlines())) <= 80
    flat = " ".join(words.split())
    assert {row["name"] for row in said} < {*words.splitlines()}
    assert all(row["does"] in flat and row["knows"] in flat for row in said)
    assert "average-of-2-copies" in words


def test_an_attack_writes_the_attacked_model(made, motifs, tmp_path):
    common = ("--model", made / "a.model", "--task", "BA-2motif", "-o", tmp_path / "out.model")
    said = ask("attack", "prune-50", *common, keys=RECORD)
    assert said["change"] == "prune 50%"
    wanted = Prune(0.5)(load_model(made / "a.model"), motifs).state_dict()
    found = load_model(tmp_path / "out.model").state_dict()
    assert all(wanted[name].equal(value) for name, value in found.items())
    before = (tmp_path / "out.model").read_bytes()
    assert "exists" in refuse("attack", "prune-20", *common, error="ExistingFileError")
    assert (tmp_path / "out.model").read_bytes() == before
    assert "zero last layer" in run("attack", "zero-last-layer", *common, "--overwrite").stdout
    assert not load_model(tmp_path / "out.model").head.weight.any()


def test_colluders_need_a_second_copy(made, tmp_path):
    common = ("average-of-2-copies", "--model", made / "a.model", "--task", "BA-2motif/GCN")
    out = tmp_path / "out.model"
    refuse("attack", *common, "-o", out, error="ParameterError")
    run("attack", *common, "--second", made / "b.model", "-o", out)
    ours, theirs, mixed = (load_model(p).head.weight for p in (made / "a.model", made / "b.model", out))
    torch.testing.assert_close(mixed, (ours + theirs) / 2)


def test_attacks_that_cannot_be_made(made, motifs, tmp_path):
    common = ("--model", made / "a.model", "--task", "BA-2motif", "-o", tmp_path / "out.model")
    assert refuse("attack", error="ParameterError") == "missing: NAME, --model, --task, -o"
    assert refuse("attack", "kd-kill", *common[:4], error="ParameterError") == "missing: -o"
    assert "kd-kil'" in refuse("attack", "kd-kil", *common, error="ParameterError")
    for served in ("serve-top-class-only", "serve-classes-rolled-by-one", "refuse-carriers-with-nan"):
        assert "no model to write" in refuse("attack", served, *common, error="ParameterError")
    assert "no batch norm" in refuse("attack", "re-estimate-norms", *common, error="EditError")
    refuse("attack", "prune-20", "--model", tmp_path / "none", *common[2:], error="FileError")
    save_model(tmp_path / "wide.model", GIN(7, 8, 3, 2))
    told = refuse(
        "attack", "prune-20", "--model", tmp_path / "wide.model", *common[2:], error="ParameterError"
    )
    assert "in_channels 7, not 4" in told
    assert not (tmp_path / "out.model").exists()


def test_the_threat_model_names_attacks_that_exist():
    page = (Path(__file__).resolve().parents[2] / "docs" / "explanation/threat-model.md").read_text(
        encoding="utf-8"
    )
    named = set(re.findall(r"`([A-Z]\w+)`", page))
    known = {name for module in (denial, edits, forgery, removal) for name in module.__all__}
    assert {"TwinInputs", "RoundCosine", "SignOfZero", "ClaimantCode", "Format", "Refuse"} <= named
    assert sorted(named - known) == []


# --- stress


def test_a_stress_test_from_end_to_end(made, tmp_path):
    rows, page = tmp_path / "rows.csv", tmp_path / "page.html"
    common = ("stress", "--mark", made / "a.mark", "--model", made / "a.model", "--task", "BA-2motif")
    files = ("--csv", rows, "-o", page)
    said = ask(*common, "--only", "prune,re-est,serve-round", *files, keys=STRESS)
    names = [row["change"] for row in said["rows"]]
    assert names == [
        "as released", "prune 20%", "prune 40%", "prune 50%", "prune 20% of channels",
        "prune 40% of channels", "re-estimate norms", "serve rounded to 2 digits",
    ]  # fmt: skip
    assert said["rows"][1]["embedding.m"] == 16
    assert said["rows"][6]["accuracy"] is None
    assert [outcome["access"] for outcome in said["outcomes"]] == ["embedding", "logits"]
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    words = set(re.sub("<.*?>", " ", page.read_text()).split())
    assert {"--only", "prune,re-est,serve-round", "BA-2motif"} <= words
    with rows.open(newline="") as file:
        assert [line["change"] for line in csv.DictReader(file)] == names
    assert "exists" in refuse(*common, "-o", page, error="ExistingFileError")


def test_a_stress_test_goes_on_where_it_ended(made, tmp_path):
    common = ("stress", "--mark", made / "a.mark", "--model", made / "a.model", "--task", "BA-2motif")
    common += ("--csv", tmp_path / "rows.csv", "--only", "prune-20,fp16")
    first = ask(*common, keys=STRESS)["rows"]
    whole = (tmp_path / "rows.csv").read_text()
    (tmp_path / "rows.csv").write_text(whole[: whole.index("fp16")])
    result = run(*common)
    assert "3 rows are done already" in result.stderr
    assert "prune 20%: accuracy" not in result.stderr
    assert "fp16: accuracy" in result.stderr
    table = result.stdout.splitlines()
    assert [line.split("  ")[0] for line in table[1:5]] == [row["change"] for row in first]
    told = " ".join(result.stdout.split())
    shown = r"at embedding (the mark shows after \d of 3 changes|the released model does not show the mark)"
    assert re.search(shown, told)
    strange = ("--model", made / "b.model", "--csv", tmp_path / "rows.csv")
    refuse("stress", "--mark", made / "a.mark", "--task", "BA-2motif", *strange, error="FileError")


def test_a_quick_test_trains_nothing(made):
    common = ("stress", "--mark", made / "a.mark", "--model", made / "a.model", "--task", "BA-2motif")
    said = ask(*common, "--quick", "--second", made / "b.model", keys=STRESS)
    names = [row["change"] for row in said["rows"]]
    assert {"prune 20%", "permute units", "channel scrub 40%", "average of 2 copies"} <= {*names}
    assert not any("fine-tune" in name or "KD" in name or "extract" in name for name in names)
    refused = {row["change"] for row in said["rows"] if row["accuracy"] is None}
    assert refused == {"re-estimate norms", "zero perception head"}
    assert "quick" in refuse(*common, "--quick", "--only", "kd-kill", error="ParameterError")
    refuse(*common, "--only", "prune,prunt", error="ParameterError")
    refuse(*common, "--alpha", "2", error="ParameterError")
