"""The command line: results on stdout, all else on stderr, and exit codes a script can trust."""

from __future__ import annotations

import fcntl
import functools
import hashlib
import json
import os
import re
import signal
import stat
import subprocess
import sys
import termios
import traceback
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch_geometric.data import Batch
from typer.testing import CliRunner

from invgnn.cli import VERBS, app, console
from invgnn.errors import FileError
from invgnn.nn.backbones import GIN
from invgnn.nn.model_file import load_model, save_model
from invgnn.nn.weight_scaling import weight_scale
from invgnn.secret import Secret
from invgnn.storage import container
from invgnn.training import tasks
from invgnn.watermark.mark import Watermark

GOLDEN = Path(__file__).parents[1] / "golden"
DOCS = Path(__file__).resolve().parents[2] / "docs" / "reference/cli.md"
INVGNN = Path(sys.executable).with_name("invgnn")
PASSPHRASE = "hunter2 hunter2"
VERDICT = {
    *(
        "status",
        "suspects",
        "reasons",
        "matches",
        "m",
        "threshold",
        "ones",
        "channels",
        "called",
        "wm_acc",
        "alpha",
        "p",
        "log10_p",
        "evidence_bits",
    ),
    *("tests", "statistic", "null", "exact", "access", "reading", "key", "queries", "controls", "digests"),
    *("version", "condition", "explanations", "levels", "columns", "refused", "code", "audit"),
}
THRESHOLD = {
    *(
        "m",
        "alpha",
        "null",
        "rho0",
        "threshold",
        "reachable",
        "true_alpha",
        "key",
        "valid",
        "caveat",
        "power",
    ),
    "smallest_m",
}
INSPECT = {"file", "kind", "version", "sealed", "file_digest", "mark", "body", "tensors"}


@pytest.fixture(scope="module", autouse=True)
def shared():
    """A passphrase in the environment, and one generated task for all."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("INVGNN_PASSPHRASE", PASSPHRASE)
        patch.setattr(tasks, "load_task", functools.cache(tasks.load_task))
        yield


def run(*arguments, code=0):
    """One command in this process, and what it said; a passphrase is never part of it."""
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == code, result.output
    assert PASSPHRASE not in result.output
    assert "Traceback" not in result.output
    return result


def ask(*arguments, code=0, keys):
    """The one JSON object of a command; it must have exactly these keys."""
    result = run(*arguments, "--json", code=code)
    record = json.loads(result.stdout)
    assert result.stdout.count("\n") == 1
    assert set(record) == set(keys)
    return record


def refuse(*arguments, error):
    """The message of a command that cannot be done: in JSON on stdout, in words on stderr."""
    result = run(*arguments, "--json", code=2)
    said = json.loads(result.stdout)
    assert set(said) == {"error", "message", "advice"}
    assert said["error"] == error, said
    assert said["advice"]
    assert result.stderr.endswith(f"error: {said['message']}\nadvice: {said['advice']}\n")
    return said["message"]


def start(*arguments, **options):
    """One command in a process of its own."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | options
    options["env"] = {**os.environ, "OMP_NUM_THREADS": "1"} | options.pop("env", {})
    return subprocess.run([INVGNN, *map(str, arguments)], **options)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with what keygen, carriers and embed make, and what they said about it."""
    folder = tmp_path_factory.mktemp("made")
    said = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Secret, "generate", lambda: Secret(bytes(range(32))))
        said["keygen"] = ask("keygen", "-o", folder / "a.secret", keys=("secret", "fingerprint", "sealed"))
        said["carriers"] = ask(
            *("carriers", "--secret", folder / "a.secret", "--task", "BA-2motif", "-o", folder / "a.mark"),
            keys=("mark", "digest", "context", "refused", "sizes"),
        )
        said["embed"] = ask(
            *("embed", "--mark", folder / "a.mark", "--task", "BA-2motif/GIN", "--epochs", "14"),
            *("-o", folder / "a.model"),
            keys=("model", "mark", "test_accuracy", "best_epoch", "matches", "verdict"),
        )
    save_model(folder / "other.model", tasks.new_model(tasks.load_task("BA-2motif", 41), "GIN", 7))
    return folder, said


# --- help and start


def test_docs_quote_the_help(tmp_path):
    text = DOCS.read_text(encoding="utf-8")

    def quoted(block):
        return f"```text\n$ {block[1]}\n{run(*block[1].split()[1:]).stdout.strip()}\n```"

    real = re.sub(r"```text\n\$ (invgnn.*?--help)\n.*?```", quoted, text, flags=re.DOTALL)
    (tmp_path / "cli.md").write_text(real, encoding="utf-8")
    assert text == real, f"the help has changed; if it reads well: cp {tmp_path}/cli.md {DOCS}"
    assert real.count("$ invgnn") == 1 + len(VERBS) + 1 + len(BENCH)


BENCH = ("bench run", "bench report", "bench check")


@pytest.mark.parametrize("verb", [*(verb.__name__.rpartition(".")[2] for verb in VERBS), *BENCH])
def test_help_fits_and_teaches(verb):
    text = run(*verb.split(), "--help").stdout
    assert max(map(len, text.splitlines())) <= 80
    assert text.isascii()
    assert f"\n    invgnn {verb}" in text
    assert "--json" in text
    assert "..." not in run("--help").stdout.partition("Commands:")[2]


def test_without_arguments_it_helps():
    assert run().stdout == run("--help").stdout


def test_version():
    assert re.fullmatch(r"invgnn \d+\.\d+\.\d+\S*\n", run("--version").stdout)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["bogus"], "bogus"),
        (["keygen"], "--output"),
        (["threshold", "--m", "many"], "--m"),
        (["threshold", "--nul", "exact"], "--null"),
        (["embed", "--mark", "a", "--task", "b", "-o", "c", "--epochs", "0"], "epochs"),
    ],
    ids=["no such verb", "missing option", "no number", "misspelled", "out of range"],
)
def test_usage_errors(arguments, told):
    assert told in refuse(*arguments, error="UsageError")


# --- from a secret to a verdict


def test_what_was_made(made):
    folder, said = made
    assert said["keygen"] == {
        "secret": str(folder / "a.secret"),
        "fingerprint": Secret(bytes(range(32))).fingerprint,
        "sealed": True,
    }
    assert said["carriers"]["context"]["m"] == 128
    assert set(said["embed"]["verdict"]) == VERDICT
    matches = said["embed"]["matches"]
    assert list(matches) == ["embedding", "logits"]
    assert matches[said["embed"]["verdict"]["access"]] == said["embed"]["verdict"]["matches"]
    for name in ("a.secret", "a.mark"):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600
    assert sorted(p.name for p in folder.iterdir() if "tmp" in p.name) == []


def test_verify_owned(made):
    folder, said = made
    verdict = ask("verify", "--mark", folder / "a.mark", "--model", folder / "a.model", keys=VERDICT)
    assert verdict["status"] == "owned"
    assert verdict["digests"]["mark"] == said["carriers"]["digest"]
    assert [level["access"] for level in verdict["levels"]] == ["embedding", "logits"]
    assert all(level["read"] for level in verdict["levels"])
    assert verdict["code"]["foreign"] == []
    words = run("verify", "--mark", folder / "a.mark", "--model", folder / "a.model").stdout
    assert words.startswith("OWNED: ")
    assert max(map(len, words.splitlines())) <= 80
    assert re.search(r"\n  levels     embedding \d+ matches, [\d.]+ bits; logits \d+ matches", words)
    assert "\n  code       invgnn; torch; torch_geometric\n" in words
    assert all(f"{name:<9}  {digest}" in words for name, digest in verdict["digests"].items())


def test_verify_one_level(made):
    folder, _ = made
    suspect = ("verify", "--mark", folder / "a.mark", "--model", folder / "a.model")
    every = ask(*suspect, keys=VERDICT)
    one = ask(*suspect, "--access", every["access"], keys=VERDICT)
    assert [level["access"] for level in one["levels"]] == [every["access"]]
    assert one["evidence_bits"] == every["evidence_bits"]  # one costs as many bits as all


def test_verify_not_shown(made):
    folder, _ = made
    suspect = ("--mark", folder / "a.mark", "--model", folder / "other.model")
    verdict = ask("verify", *suspect, "--answers", code=1, keys=VERDICT | {"answers", "ordinary", "bits"})
    assert verdict["status"] == "not shown"
    assert len(verdict["answers"]) == sum(verdict["bits"]) * 2 == 128


def test_verify_inconclusive_if_a_control_verifies(made):
    folder, _ = made
    suspect = ("--mark", folder / "a.mark", "--model", folder / "a.model")
    both = ("--control", folder / "other.model", "--control", folder / "a.model")
    verdict = ask("verify", *suspect, *both, code=3, keys=VERDICT)
    assert len(verdict["controls"]) == 2


def test_verify_pays_for_every_look(made):
    folder, _ = made
    suspect = ("verify", "--mark", folder / "a.mark", "--model", folder / "a.model")
    once, often = (ask(*suspect, "--suspects", n, keys=VERDICT)["evidence_bits"] for n in (1, 1024))
    assert once - often == pytest.approx(10)


def test_verify_report(made, tmp_path):
    folder, _ = made
    page = tmp_path / "it's [red].html"
    suspect = ("--mark", folder / "a.mark", "--model", folder / "a.model", "--report", page)
    ask("verify", *suspect, keys=VERDICT)  # the page holds the answers, the JSON does not
    words = re.sub("<.*?>", " ", page.read_text()).split()
    assert {"--mark", str(folder / "a.mark"), "--suspects"} <= set(words)
    assert "--code-from" not in words
    before = page.read_bytes()
    assert "exists" in refuse("verify", *suspect, error="ExistingFileError")
    assert page.read_bytes() == before
    run("verify", *suspect, "--overwrite")


NETS = """
import sys
import torch
from invgnn.nn.backbones import GIN
def build():
    print("built")
    return GIN(4, 64, 3, 2)
def narrow():
    return GIN(4, 8, 3, 2)
def leave():
    sys.exit(0)
def fail():
    raise RuntimeError("[/red]")
def number():
    return 3
def hooked():
    model = build()
    model.register_forward_hook(lambda module, inputs, output: output)
    return model
def hoarding():
    model = build()
    model.answers = torch.ones(3)
    return model
class Net(GIN):
    pass
def theirs():
    return Net(4, 64, 3, 2)
"""


@pytest.mark.parametrize("name", ["w.safetensors", "w.pt"])
def test_verify_weights_alone(made, tmp_path, monkeypatch, name):
    folder, _ = made
    weights = load_model(folder / "a.model").state_dict()
    save_file(weights, tmp_path / name) if name == "w.safetensors" else torch.save(weights, tmp_path / name)
    (tmp_path / "nets.py").write_text(NETS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    suspect = ("verify", "--mark", folder / "a.mark", "--model", name)
    assert name in refuse(*suspect, error="FileError")
    ours = ("--control", folder / "other.model")  # which brings its own architecture
    assert ask(*suspect, "--architecture", "nets:build", *ours, keys=VERDICT)["status"] == "owned"
    refuse(*suspect, "--architecture", "nets:narrow", error="FileError")
    for more in ("nets:hooked", "nets:hoarding"):
        told = refuse(*suspect, "--architecture", more, error="SuspectError")
        assert "contains what no weights file replaces" in told
    for wrong in ("nets:leave", "nets:fail", "nets:number", "nets:none", "nets", "no_such:build", ":build"):
        refuse(*suspect, "--architecture", wrong, error="ParameterError")


def test_a_claimants_model_file_is_rebuilt_and_may_be_owned(made):
    folder, _ = made
    suspect = ("verify", "--mark", folder / "a.mark", "--model", folder / "a.model")
    assert ask(*suspect, "--code-from", "claimant", keys=VERDICT)["status"] == "owned"


@pytest.mark.parametrize(("author", "code"), [("auditor", 0), ("claimant", 3)])
def test_verify_names_who_wrote_the_code(made, tmp_path, monkeypatch, author, code):
    folder, _ = made
    save_file(load_model(folder / "a.model").state_dict(), tmp_path / "w.safetensors")
    (tmp_path / "their_nets.py").write_text(NETS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    monkeypatch.delitem(sys.modules, "their_nets", raising=False)
    suspect = ("verify", "--mark", folder / "a.mark", "--model", "w.safetensors")
    suspect += ("--architecture", "their_nets:theirs", "--code-from", author)
    verdict = ask(*suspect, "--report", tmp_path / "page.html", code=code, keys=VERDICT)
    (found,) = verdict["code"]["foreign"]
    source = hashlib.sha256((tmp_path / "their_nets.py").read_bytes()).hexdigest()
    assert found == {"what": "class", "name": "their_nets.Net", "origin": author, "source": source}
    assert (verdict["status"] == "owned") == (author == "auditor")
    assert f"class their_nets.Net from the {author}" in " ".join(run(*suspect, code=code).stdout.split())
    words = set(re.sub("<.*?>", " ", (tmp_path / "page.html").read_text()).split())
    assert ("--code-from" in words) == (author == "claimant")
    refuse(*suspect[:-1], "thief", error="ParameterError")


@pytest.mark.story
def test_a_score_channel_from_the_secret_to_the_page(made, tmp_path):
    folder, _ = made
    common = ("--secret", folder / "a.secret", "--task", "BA-2motif", "--m", "16", "--score-channel", "16")
    run("carriers", *common, "-o", tmp_path / "b.mark")
    embed = ("--task", "BA-2motif/GIN", "--epochs", "1", "-o", tmp_path / "b.model")
    before = (tmp_path / "b.mark").read_bytes()
    wrong = ("--task", "BA-2motif/GIN", "--epochs", "1", "--seed", "42", "-o", tmp_path / "c.model")
    refuse("embed", "--mark", tmp_path / "b.mark", *wrong, error="DataError")  # another split
    assert (tmp_path / "b.mark").read_bytes() == before
    said = run("embed", "--mark", tmp_path / "b.mark", *embed)
    digest = json.loads(run("inspect", "--unseal", tmp_path / "b.mark", "--json").stdout)["body"]["digest"]
    assert digest in said.stdout  # of the mark as it is now
    kept = (tmp_path / "b.mark").read_bytes()
    run("embed", "--mark", tmp_path / "b.mark", *embed[:-1], tmp_path / "c.model")  # teaches it as it is
    assert (tmp_path / "b.mark").read_bytes() == kept != before
    suspect = ("verify", "--mark", tmp_path / "b.mark", "--model", tmp_path / "b.model", "--alpha", "0.999")
    assert "score channel" in refuse(*suspect, error="ParameterError")
    refuse(*suspect, "--task", "BA-2motif", "--seed", "42", error="DataError")  # another split
    page = tmp_path / "page.html"
    done = CliRunner().invoke(
        app, [*map(str, suspect), "--task", "BA-2motif", "--report", str(page), "--json"]
    )
    verdict = json.loads(done.stdout)
    assert verdict["channels"]["score_channel"]["inputs"] == 800
    text = page.read_text(encoding="utf-8")
    assert "Score channel" in text
    assert all(words in text for words in ("--task", "--seed"))  # to check it again


def test_carriers_with_several_readings(made, tmp_path):
    folder, _ = made
    common = ("carriers", "--secret", folder / "a.secret", "--task", "BA-2motif", "--m", "16")
    levels = ("--access", "logits, labels,embedding,logits", "-o", tmp_path / "b.mark")
    said = ask(*common, *levels, keys=("mark", "digest", "context", "refused", "sizes"))
    assert [r["access"] for r in said["context"]["readings"]] == ["logits", "labels", "embedding"]
    suspect = ("verify", "--mark", tmp_path / "b.mark", "--model", folder / "a.model")
    for access in ("logits", "labels", "embedding"):
        verdict = json.loads(
            CliRunner().invoke(app, [*map(str, suspect), "--access", access, "--json"]).stdout
        )
        assert verdict["access"] == access
    refuse(*suspect, "--access", "perception", error="ParameterError")
    for wrong in (
        ("--access", "telepathy"),
        ("--m", "15"),
        ("--key", "x"),
        ("--delta", "2"),
    ):
        refuse(*common, *wrong, "-o", tmp_path / "c.mark", error="ParameterError")
    assert not (tmp_path / "c.mark").exists()


def test_embed_into_a_trained_model(made, tmp_path):
    folder, _ = made
    common = ("embed", "--mark", folder / "a.mark", "--task", "BA-2motif/GIN", "--epochs", "1")
    run(*common, "--start", folder / "other.model", "-o", tmp_path / "b.model")
    run(*common, "--start", folder / "other.model", "-o", tmp_path / "soft.model", "--no-weight-scaling")
    inputs = Batch.from_data_list(tasks.load_task("BA-2motif", 41).graphs[:8])
    sizes = [weight_scale(load_model(tmp_path / f"{name}.model"), inputs) for name in ("b", "soft")]
    assert sizes[0] > 20 > 4 > sizes[1]
    save_model(tmp_path / "wide.model", GIN(7, 64, 3, 2))
    told = refuse(
        *common, "--start", tmp_path / "wide.model", "-o", tmp_path / "c.model", error="ParameterError"
    )
    assert "in_channels 7, not 4" in told
    refuse(*common, "--lr", "0", "-o", tmp_path / "c.model", error="ParameterError")
    refuse(*common, "--start", tmp_path / "none", "-o", tmp_path / "c.model", error="FileError")
    refuse(*common, "-o", tmp_path / "b.model", error="ExistingFileError")
    assert not (tmp_path / "c.model").exists()


def test_a_dry_run_says_what_to_expect_and_writes_nothing(made, tmp_path):
    folder, _ = made
    common = ("embed", "--mark", folder / "a.mark", "--task", "BA-2motif/GIN", "--epochs", "12")
    before = sorted(path.name for path in folder.iterdir())
    keys = ("plan", "pilot", "epochs", "plain", "marked", "bits", "most", "ratio")
    said = ask(*common, "--dry-run", keys=keys)
    assert (said["pilot"], said["epochs"]) == (pytest.approx(1 / 12), 12)
    assert said["plan"]["m"] == 128
    assert said["ratio"] == pytest.approx(said["marked"] / said["plain"])
    assert set(said["bits"]) == {"embedding", "logits"}
    assert max(said["bits"].values()) <= said["most"]
    told = run(*common, "--dry-run").stdout
    assert "times as long as without the mark" in " ".join(told.split())
    assert sorted(path.name for path in folder.iterdir()) == before
    assert "no output file" in refuse(*common, error="ParameterError")


def test_embed_wants_the_task_of_the_mark(rings, tmp_path):
    Watermark.draw(Secret(bytes(32)), rings, m=8).save(tmp_path / "rings.mark", PASSPHRASE)
    common = ("embed", "--mark", tmp_path / "rings.mark", "-o", tmp_path / "c.model")
    assert "another task" in refuse(*common, "--task", "BA-2motif/GIN", error="DataError")
    refuse(*common, "--task", "BA-2motif", error="ParameterError")


def test_demo(tmp_path):
    folder = tmp_path / "shown"
    common = ("demo", "-o", folder, "--m", "16", "--epochs", "1")
    said = ask(*common, keys=("task", "output", "files", "rows", "http"))
    assert sorted(said["files"]) == sorted(path.name for path in folder.iterdir())
    assert [row["model"] for row in said["rows"]][:3] == ["unmarked A", "unmarked B", "marked"]
    assert set(said["rows"][0]) == VERDICT | {"model", "test_accuracy"}
    refuse(*common, error="ExistingFileError")
    refuse("demo", "-o", tmp_path / "no" / "folder", error="FileError")
    refuse("demo", "-o", tmp_path / "odd", "--m", "15", error="ParameterError")
    assert not (tmp_path / "odd").exists()


# --- threshold and inspect


@pytest.mark.parametrize(
    ("null", "taus", "valid"),
    [
        ("exact", [52, 72, 92, 130], True),
        ("binomial", [51, 72, 92, 130], False),
        ("hoeffding", [54, 74, 94, 133], True),
        ("paper", [43, 71, 99, 156], False),
    ],
)
def test_threshold(null, taus, valid):
    said = [
        ask("threshold", "--m", m, "--alpha", "1e-6", "--null", null, keys=THRESHOLD)
        for m in (64, 96, 128, 192)
    ]
    assert [record["threshold"] for record in said] == taus
    assert {record["valid"] for record in said} == {valid}
    assert set(said[0]["power"]) == set(said[0]["smallest_m"]) == {"0.7", "0.8", "0.9", "0.95"}
    assert (said[0]["rho0"] == 7.6e-4) == (null in {"hoeffding", "paper"})
    assert ("Unsound" in run("threshold", "--null", null).stdout) == (null == "paper")
    assert ("NOT VALID" in run("threshold", "--null", null).stdout) == (not valid)
    assert not ask("threshold", "--null", null, "--key", "plain", keys=THRESHOLD)["valid"]


def test_threshold_out_of_reach():
    never = ("threshold", "--null", "hoeffding", "--alpha", "1e-300")
    said = ask(*never, keys=THRESHOLD)
    assert said["smallest_m"]["0.7"] is None
    assert (said["threshold"], said["reachable"], said["true_alpha"]) == (129, False, 0)
    assert re.search(r"70%\s+0.000\s+-$", run(*never).stdout, re.MULTILINE)


@pytest.mark.parametrize("wrong", ["--null=x", "--key=x", "--m=7", "--alpha=0", "--alpha=nan", "--rho0=-1"])
def test_threshold_refuses(wrong):
    refuse("threshold", wrong, error="ParameterError")


def test_inspect(made):
    folder, said = made
    model = ask("inspect", folder / "a.model", keys=INSPECT)
    assert (model["kind"], model["sealed"]) == ("model", False)
    assert model["body"]["architecture"]["name"] == "GIN"
    assert model["tensors"]["head.weight"] == {"dtype": "F32", "shape": [2, 64]}
    mark = ask("inspect", folder / "a.mark", keys=INSPECT)
    assert mark["sealed"]
    assert mark["body"] is mark["tensors"] is mark["file_digest"] is None
    opened = ask("inspect", folder / "a.mark", "--unseal", keys=INSPECT)
    assert opened["body"]["context"] == said["carriers"]["context"]
    assert (model["mark"], mark["mark"]) == (None, None)
    assert opened["version"] == 2
    assert opened["mark"] == {
        "format": 2,
        "levels": ["embedding", "logits"],
        "classes": 2,
        "labels_kept": True,
        "score_channel": None,
        "baseline": False,
    }
    assert "\n  labels_kept: True\n" in run("inspect", folder / "a.mark", "--unseal").stdout
    assert bytes(range(32)).hex() not in json.dumps(opened)
    refuse("inspect", folder / "none", error="FileError")


def test_inspect_a_mark_of_format_1():
    said = ask("inspect", GOLDEN / "v1-graph.mark", keys=INSPECT)
    assert (said["version"], said["mark"]["format"], said["mark"]["labels_kept"]) == (1, 1, False)


@pytest.mark.parametrize("body", [{}, {"context": 3}, {"context": {"readings": 3}}])
def test_inspect_a_mark_of_a_stranger(tmp_path, body):
    container.write(tmp_path / "x.mark", "mark", body, {})
    assert ask("inspect", tmp_path / "x.mark", keys=INSPECT)["mark"]["format"] is None


def test_a_file_cannot_steer_the_terminal(tmp_path):
    container.write(tmp_path / "x.model", "model", {"about": "[red]\x1b[31m\x9b31m"}, {})
    assert r"about: [red]\x1b[31m\x9b31m" in run("inspect", tmp_path / "x.model").stdout


def test_names_are_printed_as_they_are(tmp_path):
    for name in ("[red]a", "[b", "á"):
        assert f"wrote {tmp_path}/{name} (" in run("keygen", "-o", tmp_path / name).stdout


# --- passphrases


def test_passphrase_file(tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes("pässword \r\nnote\n".encode())
    run("keygen", "-o", tmp_path / "a", "--passphrase-file", tmp_path / "file")
    assert bytes(Secret.load(tmp_path / "a", "pässword "))
    for content in (b"", b"\nsecond line", b"\xff"):
        (tmp_path / "file").write_bytes(content)
        result = CliRunner().invoke(
            app, ["keygen", "-o", str(tmp_path / "b"), "--passphrase-file", str(tmp_path / "file")]
        )
        assert result.exit_code == 2
        assert "0xff" not in result.output
    refuse("keygen", "-o", tmp_path / "b", "--passphrase-file", tmp_path / "none", error="FileError")
    monkeypatch.setenv("INVGNN_PASSPHRASE", "")
    assert CliRunner().invoke(app, ["keygen", "-o", str(tmp_path / "b")]).exit_code == 2
    assert not (tmp_path / "b").exists()


def test_wrong_or_no_passphrase(made, monkeypatch):
    folder, _ = made
    monkeypatch.setenv("INVGNN_PASSPHRASE", "wrong")
    suspect = ("verify", "--mark", folder / "a.mark", "--model", folder / "a.model")
    assert CliRunner().invoke(app, [*map(str, suspect)]).exit_code == 2
    monkeypatch.delenv("INVGNN_PASSPHRASE")
    assert "no terminal" in refuse(*suspect, error="PassphraseError")


@pytest.mark.parametrize(
    ("verb", "where", "broken"),
    [
        ("keygen -o {}/x", Secret, "generate"),
        ("carriers --secret {}/a.secret --task BA-2motif -o {}/x", Watermark, "draw"),
        ("embed --mark {}/a.mark --task BA-2motif/GIN -o {}/x", tasks, "load_task"),
        ("verify --mark {}/a.mark --model {}/a.model", Watermark, "load"),
        ("stress --mark {}/a.mark --model {}/a.model --task BA-2motif", tasks, "load_task"),
        ("inspect --unseal {}/a.mark", container, "read"),
    ],
)
@pytest.mark.parametrize("given", ["environment", "file"])
def test_no_local_variable_shows_the_passphrase(
    made, tmp_path, monkeypatch, capsys, verb, where, broken, given
):
    folder, _ = made
    seen = []
    explain = console._explain
    monkeypatch.setattr(console, "_explain", lambda error: seen.append(error) or explain(error))
    monkeypatch.setattr(where, broken, lambda *_, **__: 1 // 0)
    words = verb.replace("{}", str(folder)).split()
    if given == "file":
        monkeypatch.delenv("INVGNN_PASSPHRASE")
        (tmp_path / "words").write_text(PASSPHRASE)
        words += ["--passphrase-file", str(tmp_path / "words")]
    assert CliRunner().invoke(app, words).exit_code == 2
    assert isinstance(seen[0], ZeroDivisionError)
    ours = [f for f in traceback.walk_tb(seen[0].__traceback__) if "invgnn" in f[0].f_code.co_filename]
    text = "".join(traceback.StackSummary.extract(ours, capture_locals=True).format())
    assert "passphrase" in text
    assert PASSPHRASE not in text


def test_a_passphrase_file_that_is_no_text_is_not_shown(tmp_path):
    (tmp_path / "words").write_bytes(PASSPHRASE.encode() + b"\xff")
    with pytest.raises(FileError) as caught:
        console.find_passphrase(tmp_path / "x", tmp_path / "words")
    assert PASSPHRASE.encode() not in caught.value.__context__.object


def test_unsealed_only_by_its_ugly_name(tmp_path):
    said = ask(
        *("keygen", "-o", tmp_path / "clear", "--insecure-no-passphrase"),
        keys=("secret", "fingerprint", "sealed"),
    )
    assert not said["sealed"]
    assert not ask("inspect", tmp_path / "clear", keys=INSPECT)["sealed"]
    assert "secret: U8 [32]" in run("inspect", tmp_path / "clear").stdout


def at_a_keyboard():
    """So that ^C is a signal, and is heeded: tests that run in the background hand down that it is not."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Terminal:
    """A command whose keyboard and errors are a terminal, and whose standard output is not."""

    def __init__(self, *arguments, cwd):
        self.ours, theirs = os.openpty()
        environment = {k: v for k, v in os.environ.items() if k != "INVGNN_PASSPHRASE"}
        self.process = subprocess.Popen(
            [INVGNN, *arguments],
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=theirs,
            cwd=cwd,
            env=environment,
            start_new_session=True,
            preexec_fn=at_a_keyboard,
        )
        os.close(theirs)
        self.shown = b""

    def wait_for(self, text):
        while text not in self.shown:
            self.shown += os.read(self.ours, 1024)

    def type(self, text):
        os.write(self.ours, text)

    def end(self):
        """Standard output and exit code."""
        out, _ = self.process.communicate(timeout=60)
        while True:
            try:
                more = os.read(self.ours, 1024)
            except OSError:  # how Linux says that the other side is closed
                break
            if not more:
                break
            self.shown += more
        os.close(self.ours)
        return out, self.process.returncode


def test_passphrase_from_the_terminal(tmp_path):
    terminal = Terminal("keygen", "-o", "a", "--json", cwd=tmp_path)
    terminal.wait_for(b"New passphrase for a: ")
    terminal.type(b"hunter2\n")
    terminal.wait_for(b"Repeat for confirmation: ")
    terminal.type(b"hunter2\n")
    out, code = terminal.end()
    assert code == 0
    assert set(json.loads(out)) == {"secret", "fingerprint", "sealed"}
    assert b"hunter2" not in terminal.shown + out
    assert bytes(Secret.load(tmp_path / "a", "hunter2"))


def test_interrupted_at_the_prompt(tmp_path):
    terminal = Terminal("keygen", "-o", "a", "--json", cwd=tmp_path)
    terminal.wait_for(b"New passphrase for a: ")
    terminal.type(b"\x03")
    out, code = terminal.end()
    assert code == 130
    assert json.loads(out)["error"] == "Interrupted"
    assert b"error: interrupted" in terminal.shown
    assert b"Traceback" not in terminal.shown
    assert list(tmp_path.iterdir()) == []


# --- ways to end badly


def test_interrupted_at_work(tmp_path, monkeypatch):
    def interrupt():
        raise KeyboardInterrupt

    monkeypatch.setattr(Secret, "generate", interrupt)
    result = run("keygen", "-o", tmp_path / "a", code=130)
    assert (result.stdout, result.stderr) == ("", "error: interrupted\n")
    assert list(tmp_path.iterdir()) == []


def test_a_crash_is_no_verdict(tmp_path, monkeypatch):
    def crash():
        raise ZeroDivisionError("[/]")

    monkeypatch.setattr(Secret, "generate", crash)
    result = CliRunner().invoke(app, ["keygen", "-o", str(tmp_path / "a"), "--json"])
    assert result.exit_code == 2
    assert json.loads(result.stdout)["error"] == "ZeroDivisionError"
    assert "Traceback" in result.stderr
    assert "error: unexpected: [/]" in result.stderr


def test_words_alone_leave_stdout_empty(tmp_path):
    result = run("inspect", tmp_path / "none", code=2)
    assert result.stdout == ""
    assert result.stderr.startswith("error: there is no file")


def test_nothing_is_written_where_it_cannot_be(tmp_path):
    (tmp_path / "there").write_text("mine")
    refuse("keygen", "-o", tmp_path / "there", error="ExistingFileError")
    assert (tmp_path / "there").read_text() == "mine"
    refuse("keygen", "-o", tmp_path / "no" / "a", error="FileError")
    refuse("keygen", "-o", tmp_path, "--overwrite", error="FileError")
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def test_progress_does_not_animate_in_a_log(made):
    folder, _ = made
    common = ("carriers", "--secret", folder / "a.secret", "--task", "BA-2motif", "--m", "16")
    result = run(*common, "-o", folder / "log.mark")
    assert result.stderr == "drawing carriers\n"


# --- in a process of its own


def test_exit_codes_and_streams(made):
    folder, _ = made
    done = start("verify", "--mark", folder / "a.mark", "--model", folder / "other.model", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["status"] == "not shown"
    assert done.stderr == ""
    done = start("verify", "--mark", folder / "none", "--model", folder / "other.model")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: there is no file")


def test_an_ascii_terminal(tmp_path):
    done = start("keygen", "-o", tmp_path / "á", env={"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0
    assert r"\xe1" in done.stdout


@pytest.mark.parametrize("arguments", [["threshold"], ["bogus", "--json"], ["--help"]])
def test_a_closed_pipe(arguments):
    ours, theirs = os.pipe()
    os.close(ours)
    done = start(*arguments, stdout=theirs)
    os.close(theirs)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_closed_standard_streams():
    def closed(stream):
        command = f"{INVGNN} bogus --json {stream}>&-"
        return subprocess.run(["bash", "-c", command], capture_output=True, text=True)

    assert closed(1).returncode == closed(2).returncode == 2
    assert json.loads(closed(2).stdout)["error"] == "UsageError"
