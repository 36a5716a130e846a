"""The court on the command line: from identities to a checked judgement, without a secret anywhere."""

from __future__ import annotations

import base64
import csv
import json
import re
import shlex
import stat
import subprocess
import typing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from _helpers.cluster import cluster
from invgnn.cli import VERBS, app
from invgnn.court.local_authority import LocalAuthority
from invgnn.nn.model_file import load_model, save_model
from invgnn.secret import Secret
from invgnn.storage import container
from invgnn.storage.encryption import Kdf
from invgnn.training import tasks
from invgnn.watermark.mark import Watermark

PASSPHRASE = "hunter2 hunter2"
CASE = "5 O 17/26"
CLAIM = "claim --mark @a.mark --model @a.model --task BA-2motif --key @acme.key"
KINDS = (("carriers", "key"), ("threshold", "key"))  # the kind of a key, in words
PUBLIC = ("identity", "claim", "judgement", "challenge", "revocation")


class Shell:
    """Runs commands in one folder and keeps everything that they print."""

    def __init__(self, folder):
        self.folder, self.printed = folder, ""

    def __call__(self, line, code=0):
        words = [word.replace("@", f"{self.folder}/") for word in shlex.split(line)]
        result = CliRunner().invoke(app, [*words, "--json"])
        self.printed += result.output
        assert result.exit_code == code, result.output
        assert "Traceback" not in result.output
        return json.loads(result.stdout.splitlines()[-1])

    def words(self, line, code=0):
        words = [word.replace("@", f"{self.folder}/") for word in shlex.split(line)]
        result = CliRunner().invoke(app, words)
        self.printed += result.output
        assert result.exit_code == code, result.output
        return result.stdout


@pytest.fixture(scope="module")
def shell(motifs, tmp_path_factory):
    """A folder with all files of a case, made by commands."""
    folder = tmp_path_factory.mktemp("case")
    (folder / "tsa").mkdir()
    small = tasks.new_model
    with pytest.MonkeyPatch.context() as patch, LocalAuthority(folder / "tsa") as tsa:
        patch.setenv("INVGNN_PASSPHRASE", PASSPHRASE)
        for write in (container.write, Secret.save):  # a guess costs less, in tests only
            patch.setitem(write.__kwdefaults__, "_kdf", Kdf(64, 1, 1))
        patch.setattr(tasks, "load_task", lambda name, seed=41: motifs)
        patch.setattr(
            tasks, "new_model", lambda task, name, seed=0, **k: small(task, name, seed, hidden_channels=32)
        )
        run = Shell(folder)
        run.tsa, run.root = tsa.url, tsa.root
        run("identity --name 'Acme Ltd' -o @acme.key")
        run("identity --name 'District Court' -o @judge.key")
        run("keygen -o @a.secret")
        run(f"carriers --secret @a.secret --task BA-2motif --m 128 --tsa {tsa.url} -o @a.mark")
        run("embed --mark @a.mark --task BA-2motif/GIN --epochs 60 -o @a.model")
        run(
            "claim --mark @a.mark --model @a.model --task BA-2motif --key @acme.key "
            f"--tsa {tsa.url} -o @claim.json"
        )
        run(
            "reveal --claim @claim.json --mark @a.mark --key @acme.key --judge @judge.key.pub.json "
            f"--case '{CASE}' -o @a.opening"
        )
        save_model(folder / "other.model", small(motifs, "GIN", 7, hidden_channels=32))
        late = (datetime.now(UTC) + timedelta(minutes=5)).isoformat(timespec="seconds")
        run.judge = (
            f"judge @claim.json @a.opening --task BA-2motif --key @judge.key --case '{CASE}' "
            f"--tsa-root {run.root} "
            f"--suspect-since {late} --requests 1024 --claims 1024"
        )
        run.record = run(
            f"{run.judge} --suspect @a.model --control @other.model -o @judgement.json --report @page.html"
        )
        yield run


def test_the_owner_is_believed_and_anybody_can_check_it(shell):
    assert shell.record["status"] == "owned", shell.record
    found = shell("check @judgement.json --by @judge.key.pub.json")
    assert (found["kind"], found["expected_key"]) == ("judgement", True)
    dated = shell(f"check @claim.json --by @acme.key.pub.json --tsa-root {shell.root}")
    assert dated["dated"] == shell.record["timeline"]["claimed_by"]
    assert "signed by another key" in shell("check @judgement.json --by @acme.key.pub.json", 2)["message"]
    assert "no timestamp" in shell(f"check @judgement.json --tsa-root {shell.root}", 2)["message"]
    words = shell.words("check @claim.json --by @acme.key.pub.json")
    assert "the key of Acme Ltd" in " ".join(words.split())


def test_the_same_command_gives_the_same_judgement(shell, tmp_path):
    line = shell.record["recheck"].replace("--output ", f"--output {tmp_path}/again.json #")
    again = shell(line.partition("#")[0].removeprefix("invgnn "))
    kept = ("status", "claim", "opening", "suspect", "grounds", "checks", "verdict", "voids")
    assert {name: again[name] for name in kept} == {name: shell.record[name] for name in kept}


def test_an_unmarked_model_is_not_shown(shell):
    words = shell.words(f"{shell.judge} --suspect @other.model -o @not.json", 1)
    assert words.startswith("NOT SHOWN")
    assert max(map(len, words.splitlines())) <= 90 or "http" in words


def test_a_challenge_and_a_prefix_are_evidence_and_inconclusive(shell):
    shell(
        f"challenge --claim @claim.json --key @judge.key --case '{CASE}' --carriers 64 -o @challenge.json"
    )
    base = "reveal --claim @claim.json --mark @a.mark --key @acme.key --judge @judge.key.pub.json"
    shell(f"{base} --challenge @challenge.json -o @drawn.opening")
    shell(f"{base} --case '{CASE}' --prefix -o @prefix.opening")
    for form in ("drawn", "prefix"):
        line = shell.judge.replace("@a.opening", f"@{form}.opening")
        found = shell(f"{line} --suspect @a.model -o @{form}.json --report @{form}.html", 3)
        assert found["reasons"][0]["code"] == "partial"
    assert "--case" in shell(f"{base} -o @none.opening", 2)["message"]
    assert not (shell.folder / "none.opening").exists()


def test_a_revoked_claim_is_inconclusive(shell):
    shell("revoke --claim @claim.json --key @acme.key --reason 'secret leaked' -o @revoked.json")
    found = shell(f"{shell.judge} --suspect @a.model --revocation @revoked.json -o @after.json", 3)
    assert found["reasons"][0]["code"] == "revocation"
    shell("identity --name 'Acme Ltd' -o @new.key")
    rotated = shell("revoke --key @acme.key --successor @new.key --reason superseded -o @rotated.json")
    assert rotated["kind"] == "key"
    assert shell("check @rotated.json --by @acme.key.pub.json")["kind"] == "revocation"


def test_rivals(shell, tmp_path):
    line = f"{shell.judge} --suspect @a.model --original @a.model --rival @claim.json,@a.opening,@a.model"
    found = shell(f"{line} -o {tmp_path}/a.json", 3)  # a claim is its own rival: same secret, same date
    assert found["rivals"][0]["outcome"] == "not settled"
    wrong = line.replace("@claim.json,@a.opening,@a.model", "@claim.json")
    assert "rival" in shell(f"{wrong} -o {tmp_path}/b.json", 2)["message"]
    for end in ("", ",", ",,BA-2motif", ",@a.model,BA-2motif"):
        words = line.replace("@a.opening,@a.model", f"@a.opening{end}")
        assert shell(f"{words} -o {tmp_path}/c{len(end)}.json", 3)["rivals"][0]["outcome"] == "not settled"
    more = line.replace(",@a.model", ",,none:data")
    assert "none:data" in shell(f"{more} -o {tmp_path}/d.json", 2)["message"]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("judge @claim.json @a.opening --suspect @a.model --key @judge.key --case 1 -o @x.json", "--task"),
        (
            "judge @claim.json @none --suspect @a.model --task x --key @judge.key --case 1 -o @x.json",
            "no file",
        ),
        (
            "judge @a.opening @a.opening --suspect @a.model --task x --key @judge.key --case 1 -o @x.json",
            "JSON",
        ),
        (
            "judge @claim.json @a.opening --suspect @a.model --task x --key @acme.key --case 1 -o @x.json",
            "judge",
        ),
        ("revoke --claim @claim.json --key @judge.key --reason superseded -o @x.json", "another identity"),
        ("revoke --key @judge.key --reason why -o @x.json", "reason"),
        ("revoke --key @judge.key --reason superseded --since soon -o @x.json", "date"),
        ("identity --name '' -o @x.key", "name"),
        (
            "claim --mark @a.mark --model @a.model --task x --key @acme.key --tsa ftp://a -o @x.json",
            "address",
        ),
        (
            "claim --mark @a.mark --model @a.model --task x --key @acme.key --tsa http://[::1]:9 -o @x.j",
            "no reply",
        ),
        ("check @a.model", "JSON"),
        ("check @claim.json --by @claim.json", "is a claim, not an identity"),
        (f"{CLAIM} -o @x.j --statement @x.j", "two outputs"),
        (f"{CLAIM} -o @x.j --label {900 * chr(121)}", "too long"),
        ("trace --marks @tsa --suspects @a.model", "no mark"),
    ],
)
def test_what_cannot_be_done_is_explained_and_writes_nothing(shell, line, told):
    said = shell(line, 2)
    assert told in said["message"] + said["advice"]
    assert said["advice"]
    assert not [path for path in shell.folder.iterdir() if path.name.startswith("x.")]


def test_a_claim_on_the_model_of_another_mark_is_noticed(shell, tmp_path):
    shell(f"carriers --secret @a.secret --task BA-2motif --m 16 -o {tmp_path}/b.mark")
    line = f"claim --task BA-2motif --key @acme.key --mark {tmp_path}/b.mark --model @a.model"
    words = [word.replace("@", f"{shell.folder}/") for word in shlex.split(f"{line} -o {tmp_path}/b.json")]
    assert "does not carry this mark" in CliRunner().invoke(app, words).stderr
    assert "not bound" in shell(f"{line} --token @a.mark.token -o {tmp_path}/c.json", 2)["message"]


def test_nothing_is_overwritten(shell):
    before = (shell.folder / "claim.json").read_bytes()
    line = "claim --mark @a.mark --model @a.model --task BA-2motif --key @acme.key -o @claim.json"
    assert "exists" in shell(line, 2)["message"]
    assert (shell.folder / "claim.json").read_bytes() == before


def test_inspect_shows_every_kind(shell):
    shell(f"challenge --claim @claim.json --key @judge.key --case '{CASE}' --carriers 9 -o @c9.json")
    shell("revoke --claim @claim.json --key @acme.key --reason superseded -o @r9.json")
    kinds = {
        "acme.key": "identity",
        "acme.key.pub.json": "identity",
        "claim.json": "claim",
        "a.opening": "opening",
        "judgement.json": "judgement",
        "c9.json": "challenge",
        "r9.json": "revocation",
        "a.mark.token": "token",
        "a.mark": "mark",
    }
    for name, kind in kinds.items():
        assert shell(f"inspect @{name}")["kind"] == kind
        assert kind in shell.words(f"inspect @{name}")
    assert "proves" in shell.words("inspect @a.opening")
    assert "hidden" not in shell.words("inspect @claim.json")


def test_modes_of_files(shell):
    modes = {
        path.name: stat.S_IMODE(path.stat().st_mode) for path in shell.folder.iterdir() if path.is_file()
    }
    for name in ("acme.key", "judge.key", "a.opening", "a.mark", "a.secret"):
        assert modes[name] == 0o600, name
    for name in ("claim.json", "judgement.json", "acme.key.pub.json", "page.html"):
        assert modes[name] & 0o044, name


def forms_of_secrets(shell):
    """The ways in which a secret, a key, the bits or the passphrase might be written."""
    secret = bytes(Secret.load(shell.folder / "a.secret", PASSPHRASE))
    mark = Watermark.load(shell.folder / "a.mark", PASSPHRASE)
    held = [secret, mark.bits.astype("u1").tobytes(), mark.bits.astype("<i8").tobytes()]
    for name in ("acme.key", "judge.key"):
        held.append(
            container.read(shell.folder / name, "identity", passphrase=PASSPHRASE).tensors["seed"].tobytes()
        )
    forms = [PASSPHRASE.encode()]
    for value in held:
        forms += [
            value,
            value.hex().encode(),
            base64.b64encode(value)[:40],
            repr(list(value))[1:-1].encode(),
        ]
    forms.append("".join(map(str, mark.bits.tolist())).encode())
    forms.append(json.dumps(mark.bits.tolist()).encode())
    return forms


def test_secrets_are_in_no_output_and_no_file(shell):
    """Openings are encrypted, keys are sealed, public files hold commitments only."""
    forms = forms_of_secrets(shell)
    files = {str(path): path.read_bytes() for path in shell.folder.rglob("*") if path.is_file()}
    assert len(files) > 15
    for name, data in {**files, "output": shell.printed.encode()}.items():
        assert not [form for form in forms if form in data], name


REVEAL = "reveal --claim @claim.json --mark @a.mark --key @acme.key --judge @judge.key.pub.json"
SOUND = {
    "identity": "identity --name Third -o @s.key",
    "keygen": "keygen -o @s.secret",
    "carriers": "carriers --secret @s.secret --task BA-2motif --m 16 -o @s.mark",
    "claim": f"{CLAIM} --statement @s.intoto -o @s.claim",
    "reveal": f"{REVEAL} --case 1 -o @s.opening",
    "challenge": "challenge --claim @claim.json --key @judge.key --case 1 --carriers 8 -o @s.challenge",
    "judge": "JUDGE --suspect @a.model --control @other.model -o @s.json --report @s.html",
    "check": "check @claim.json --by @acme.key.pub.json",
    "revoke": "revoke --key @judge.key --reason superseded -o @s.revoked",
    "trace": "trace --marks @a.mark --suspects @a.model --csv @s.csv --report @s.trace.html",
    "inspect": "inspect @a.opening",
}
BROKEN = {
    "identity": ["identity --name Third -o @none/s.key"],
    "keygen": ["keygen -o @a.secret"],
    "carriers": ["carriers --secret @acme.key --task BA-2motif -o @b.mark"],
    "claim": [
        f"{CLAIM} -o @claim.json",
        f"{CLAIM} --tsa http://127.0.0.1:9 -o @b.claim",
        CLAIM.replace("@a.mark", "@a.secret") + " -o @b.claim",
    ],
    "reveal": [
        f"{REVEAL} --case 1 -o @none/b.opening",
        REVEAL.replace("@acme.key", "@judge.key") + " --case 1 -o @b.opening",
        REVEAL.replace("@claim.json", "@a.opening") + " --case 1 -o @b.opening",
    ],
    "challenge": ["challenge --claim @claim.json --key @judge.key --case 1 --carriers 999 -o @b.json"],
    "judge": [
        "JUDGE --suspect @a.secret -o @b.json",
        "JUDGE --suspect @a.model --tsa-root @acme.key -o @b.json",
        "JUDGE --suspect @a.model --rival @claim.json,@a.mark -o @b.json",
    ],
    "check": ["check @a.opening", "check @acme.key"],
    "revoke": ["revoke --claim @claim.json --key @judge.key --reason superseded -o @b.json"],
    "trace": ["trace --marks @a.secret --suspects @a.model", "trace --marks @a.mark --suspects @acme.key"],
    "inspect": ["inspect @none"],
}


@pytest.mark.story
def test_no_verb_shows_a_secret_whether_it_succeeds_or_fails(shell, monkeypatch, caplog):
    """Not in output, logs or any file that it writes. The set-up runs most of them with --json."""
    caplog.set_level("DEBUG")
    forms, printed = forms_of_secrets(shell), []
    assert set(SOUND) == set(BROKEN)

    def run(line):
        words = shlex.split(line.replace("JUDGE", shell.judge))
        result = CliRunner().invoke(app, [word.replace("@", f"{shell.folder}/") for word in words])
        assert result.exception is None or isinstance(result.exception, SystemExit), line
        printed.append(result.output + result.stderr)
        return result.exit_code

    for line in SOUND.values():
        assert run(line) in {0, 1, 3}, (line, printed[-1])
    for line in (one for lines in BROKEN.values() for one in lines):
        assert run(line) == 2, (line, printed[-1])
    monkeypatch.setenv("INVGNN_PASSPHRASE", PASSPHRASE + "!")
    assert run(f"{REVEAL} --case 1 -o @b.opening") == 2
    written = {path.name: path.read_bytes() for path in shell.folder.glob("[bs].*")}
    for path in map(shell.folder.joinpath, written):
        path.unlink()
    assert {name for name in written if name.startswith("b.")} == set()
    assert len(written) >= 13
    shown = "\n".join([*printed, caplog.text]).encode()
    assert len(shown) > 5_000
    for name, data in {**written, "output": shown}.items():
        assert not [form for form in forms if form in data], name


def test_no_option_takes_a_secret():
    """Other users see the arguments of a process: only files of secrets may be among them."""
    for verb in VERBS:
        name = verb.__name__.rpartition(".")[2]
        for option, kind in typing.get_type_hints(getattr(verb, name)).items():
            if any(word in option for word in ("passphrase", "secret", "key")):
                assert kind in (Path, Path | None, bool) or (name, option) in KINDS, option


def test_the_page_is_for_lawyers(shell):
    text = (shell.folder / "page.html").read_text()
    assert "<script" not in text
    assert not re.findall(r"(?:src|href)=\"(?!#)", text)
    for title in (
        "Owned",
        "What was asked",
        "What was answered",
        "Why it cannot be chance",
        "Timeline",
        "Checks",
    ):
        assert title in text
    for title in ("Controls", "What would void it", "What it does not show", "How to check it again"):
        assert title in text
    assert "invgnn check judgement.json" in text
    assert "--suspect-since" in text


@pytest.fixture(scope="module")
def licensees(shell, motifs):
    """Marks of three licensees; the first one is that of the model."""
    folder = shell.folder / "marks"
    folder.mkdir()
    (folder / "north.mark").write_bytes((shell.folder / "a.mark").read_bytes())
    for number, name in enumerate(("east", "=south")):
        mark = Watermark.draw(Secret(bytes([number]) * 32), motifs.data, m=64)
        mark.save(folder / f"{name}.mark", PASSPHRASE)
    found = shell.folder / "found"
    found.mkdir()
    for name in ("a", "other"):
        save_model(found / f"{name}.model", load_model(shell.folder / f"{name}.model"))
    return folder


def test_trace_names_the_leak(shell, licensees):
    line = "trace --marks @marks --suspects @found --csv @trace.csv --report @trace.html"
    found = shell(line)
    assert found["named"] == {"a.model": ["north"], "other.model": []}
    assert (found["marks"], found["suspects"]) == (3, 2)
    rows = list(csv.DictReader((shell.folder / "trace.csv").read_text().splitlines()))
    assert len(rows) == 6
    assert {row["mark"] for row in rows} == {"north", "east", "'=south"}  # no formula for a spreadsheet
    page = (shell.folder / "trace.html").read_text()
    assert "<script" not in page
    assert "north" in page
    words = shell.words("trace --marks @marks --suspects @found/a.model")
    assert "a.model: north" in words
    assert shell.words("trace --marks @marks --suspects @found/other.model", 1).count("none") == 1


@pytest.mark.slow
def test_trace_on_processes_gives_the_same(shell, licensees):
    alone = shell("trace --marks @marks --suspects @found")
    assert shell("trace --marks @marks --suspects @found --workers 2") == alone


@pytest.mark.slow
def test_trace_on_a_cluster_gives_the_same_and_sees_new_marks(shell, licensees, motifs, tmp_path):
    """Workers live on after a command: what they hold in memory must not outlive the files."""
    line = "trace --marks @marks --suspects @found"
    added = licensees / "west.mark"
    with cluster(tmp_path, workers=1) as address:
        assert shell(f"{line} --cluster {address}") == shell(line)
        Watermark.draw(Secret(bytes([9]) * 32), motifs.data, m=64).save(added, PASSPHRASE)
        try:
            found = shell(f"{line} --cluster {address}")
            assert found["marks"] == 4
            assert found == shell(line)
        finally:
            added.unlink()


@pytest.mark.slow
def test_a_worker_without_a_passphrase_says_so(shell, licensees, tmp_path, monkeypatch):
    (tmp_path / "words").write_text(PASSPHRASE + "\n")
    line = "trace --marks @marks --suspects @found"
    with monkeypatch.context() as patch:
        patch.delenv("INVGNN_PASSPHRASE")
        with cluster(tmp_path, workers=1) as address:
            patch.setenv("INVGNN_PASSPHRASE", PASSPHRASE)
            assert "passphrase" in shell(f"{line} --cluster {address}", 2)["message"]
            patch.delenv("INVGNN_PASSPHRASE")
            more = f"--passphrase-file {tmp_path}/words"
            assert shell(f"{line} --cluster {address} {more}") == shell(f"{line} {more}")


def test_a_passphrase_file_serves_marks_and_keys(shell, tmp_path, monkeypatch):
    monkeypatch.delenv("INVGNN_PASSPHRASE")
    (tmp_path / "words").write_text(PASSPHRASE + "\n")
    line = f"claim --mark @a.mark --model @a.model --task BA-2motif --key @acme.key -o {tmp_path}/b.json"
    assert "passphrase" in shell(line, 2)["message"]
    shell(f"{line} --passphrase-file {tmp_path}/words")
    (tmp_path / "wrong").write_text("wrong\n")
    more = f"--passphrase-file {tmp_path}/words --key-passphrase-file {tmp_path}/wrong --overwrite"
    assert "acme.key" in shell(f"{line} {more}", 2)["message"]


def test_the_help_of_a_process_is_light(shell):
    done = subprocess.run(
        [Path(subprocess.sys.executable).with_name("invgnn"), "judge", "--help"], capture_output=True
    )
    assert done.returncode == 0
