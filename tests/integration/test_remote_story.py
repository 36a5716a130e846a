"""The whole story of a remote audit, as the example tells it, and on the command line."""

from __future__ import annotations

import json
import os
import runpy
from pathlib import Path

import pytest
from typer.testing import CliRunner

import invgnn
from _helpers.servers import forked, served
from invgnn.audit.remote.journal import Journal
from invgnn.cli import app
from invgnn.errors import EndpointError
from invgnn.nn.backbones import GIN
from invgnn.nn.model_file import load_model
from invgnn.secret import Secret
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


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A mark, and the files of a marked and of an unmarked model."""
    folder = tmp_path_factory.mktemp("models")
    task = invgnn.load_task("BA-2motif")
    mark = invgnn.Watermark.draw(
        Secret(bytes(range(32))), task.data, access=("logits", "labels"), classes=task.num_classes
    )
    for name, what in {"marked": mark, "unmarked": None}.items():
        model = invgnn.new_model(task, "GIN", seed=0)
        invgnn.train(model, task, what, epochs=40 if what else 5)
        invgnn.save_model(folder / f"{name}.model", model)
    return mark, folder


@pytest.mark.story
@pytest.mark.filterwarnings("ignore::invgnn.errors.InvgnnWarning")
@pytest.mark.parametrize("access", ["logits", "labels"])
@pytest.mark.parametrize("name", ["marked", "unmarked"])
def test_the_same_verdicts_over_http_as_in_process(models, access, name, tmp_path):
    """Two models, two levels, all questions or few, and a server that is killed in the middle."""
    mark, folder = models
    file = folder / f"{name}.model"
    serve = ("--model", file)
    here = invgnn.verify(load_model(file), mark, access=access)
    assert here.status == ("owned" if name == "marked" else "not shown")
    with served(*serve) as (_, url):
        whole = invgnn.verify(invgnn.Endpoint(url), mark, access=access)
        for how in ("betting", "sprt"):
            few = invgnn.Sequential(how, bits=20)
            brief = invgnn.verify(invgnn.Endpoint(url), mark, access=access, sequential=few)
            assert (brief.p <= 1e-6) == (here.p <= 1e-6), how
            assert brief.audit["carriers"] < 128 or name == "unmarked", how
    # A second server is killed after the first answers. A third one takes its place, and is killed in the
    # middle of a sequential audit, which the last one ends.
    full, part, few = tmp_path / "a.jsonl", tmp_path / "b.jsonl", invgnn.Sequential(bits=20)
    with served(*serve) as (child, url):
        killed(child, url, mark, full, access=access)
    before, port = Journal(full).sent, int(url.split(":")[2].split("/")[0])
    with served(*serve, port=port) as (child, again):
        assert again == url
        resumed = invgnn.verify(invgnn.Endpoint(url, journal=full), mark, access=access)
        killed(child, url, mark, part, access=access, sequential=few)
    with served(*serve, port=port):
        ended = invgnn.verify(invgnn.Endpoint(url, journal=part), mark, access=access, sequential=few)
    for there in (whole, resumed):
        assert (there.status, there.matches, there.ones) == (here.status, here.matches, here.ones)
    assert 0 < before < 200
    assert resumed.audit["sent"] < before + 200  # what was answered is not asked again
    assert (ended.p <= 1e-6) == (here.p <= 1e-6)
    assert ended.audit["sent"] < ended.queries + 40  # one request was lost


def killed(child, url, mark, path, **options):
    """An audit whose server is killed after the first answers."""
    held = invgnn.Endpoint(url, journal=path, attempts=2, backoff=0.01)
    with pytest.raises(EndpointError, match="cannot be reached"):
        invgnn.verify(held, mark, **options, progress=lambda _: child.kill())
    child.wait(10)


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
