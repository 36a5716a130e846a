"""The whole story of a remote audit, as the example tells it, and on the command line."""

from __future__ import annotations

import json
import os
import runpy
from pathlib import Path

import pytest
from typer.testing import CliRunner

from _helpers.servers import forked
from invgnn.cli import app
from invgnn.nn.backbones import GIN
from invgnn.serve.app import make_app
from invgnn.serve.settings import Returned

ROOT = Path(__file__).parents[2]


@pytest.mark.story
@pytest.mark.filterwarnings("ignore::invgnn.errors.InvgnnWarning")
def test_the_example(monkeypatch, capsys):
    monkeypatch.setattr(os, "urandom", lambda size: bytes(range(size)))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    path = ROOT / "examples" / "remote_audit.py"
    assert len(path.read_text().splitlines()) <= 60
    whole, resumed = runpy.run_path(str(path))["main"](epochs=40)
    assert whole.status == resumed.status == "owned"
    assert resumed.audit["sent"] < 300  # answers from before the crash were not asked again
    assert "cannot be reached" in capsys.readouterr().out


def run(*arguments, code):
    done = CliRunner().invoke(app, [str(word) for word in arguments])
    assert done.exit_code == code, done.output
    assert "Traceback" not in done.output
    return done


@pytest.fixture(scope="module")
def mark_file(draw, tmp_path_factory):
    path = tmp_path_factory.mktemp("mark") / "a.mark"
    draw(m=128, access=("logits", "labels")).save(path, None, insecure_no_passphrase=True)
    return path


def test_the_command_line(mark_file, tmp_path, motifs):
    model = GIN(motifs.graphs[0].x.shape[1], 8, 2, 2)
    journal, events = tmp_path / "a.jsonl", tmp_path / "events.jsonl"
    with forked(make_app(model, "m", Returned(digits=4))) as (base, _):
        common = ("verify", "--mark", mark_file, "--endpoint", f"{base}/v2/models/m")
        fixed = run(*common, "--access", "logits", "--json", code=1)
        few = run(
            *(*common, "--access", "logits", "--sequential", "betting", "--price", "0.01", "--budget", "3"),
            *("--journal", journal, "--events", events, "--json"),
            code=1,
        )
        run(*common, "--max-queries", "5", code=2)
    record = json.loads(few.stdout)
    assert json.loads(fixed.stdout)["status"] == record["status"] == "not shown"
    assert record["audit"]["cost"] == pytest.approx(0.01 * record["audit"]["sent"])
    steps = [json.loads(line) for line in events.read_text().splitlines()]
    assert steps[-1]["questions"] == record["queries"]
    assert "asked 16 questions" in few.stderr
    again = json.loads(run("verify", "--mark", mark_file, "--transcript", journal, "--json", code=1).stdout)
    assert again["log10_p"] == record["log10_p"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ((), "one suspect"),
        (("--endpoint", "http://127.0.0.1:9/v2/models/m", "--model", "x"), "one suspect"),
        (("--endpoint", "http://example.com/v2/models/m"), "not encrypted"),
        (("--endpoint", "http://127.0.0.1:9/v2/models/m", "--header", "a b=c"), "NAME=VAR"),
        (("--endpoint", "http://127.0.0.1:9/v2/models/m", "--attempts", "1"), "cannot be reached"),
        (("--endpoint", "http://127.0.0.1:9/v2/models/m", "--sequential", "luck"), "unknown method"),
        (("--transcript", "nothing.jsonl"), "no file"),
        (("--endpoint", "http://127.0.0.1:9/v2/models/m", "--key", "a.key"), "--journal"),
    ],
    ids=str,
)
def test_what_cannot_be_done_is_explained(mark_file, options, told):
    done = run("verify", "--mark", mark_file, *options, code=2)
    assert told in done.stderr
    assert "advice:" in done.stderr
