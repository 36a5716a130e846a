"""Transcripts of the first version keep replaying, and every defect is found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import invgnn
from invgnn.audit.remote.journal import Journal
from invgnn.audit.remote.session import plan_items
from invgnn.errors import FileError

GOLDEN = Path(__file__).parents[1] / "golden"
FOLDER = GOLDEN / "transcripts"
KNOWN = json.loads((FOLDER / "v1.json").read_text())
RULES_2 = json.loads((FOLDER / "rules-2.json").read_text())
SOUND = {*KNOWN["verdicts"], "not-signed"}
BAD = sorted(path.stem.removeprefix("v1-") for path in FOLDER.glob("v1-*.jsonl"))
BAD = [name for name in BAD if name not in SOUND]


@pytest.fixture(scope="module")
def mark():
    return invgnn.Watermark.load(GOLDEN / "v2-graph.mark")


@pytest.mark.parametrize("name", KNOWN["verdicts"])
def test_old_transcripts_replay(mark, name):
    held = invgnn.Transcript.load(FOLDER / f"v1-{name}.jsonl", KNOWN["signer"])
    how = None if name == "fixed" else name
    verdict = invgnn.verify(held, mark, access="logits", sequential=how).to_json()
    assert {key: verdict[key] for key in KNOWN["verdicts"][name]} == KNOWN["verdicts"][name] | {
        "log10_p": pytest.approx(KNOWN["verdicts"][name]["log10_p"], rel=1e-9)
    }


@pytest.mark.parametrize("name", RULES_2["verdicts"])
def test_transcripts_by_rules_2_replay(mark, name):
    held = invgnn.Transcript.load(FOLDER / f"rules-2-{name}.jsonl", RULES_2["signer"])
    assert held.plan["rules"] == 2
    how = invgnn.Sequential(name, bits=20)
    verdict = invgnn.verify(held, mark, access="logits", sequential=how).to_json()
    assert {key: verdict[key] for key in RULES_2["verdicts"][name]} == RULES_2["verdicts"][name] | {
        "log10_p": pytest.approx(RULES_2["verdicts"][name]["log10_p"], rel=1e-9)
    }


def test_a_transcript_by_unknown_rules_is_refused(mark, tmp_path):
    lines = (FOLDER / "rules-2-betting.jsonl").read_bytes().splitlines(keepends=True)
    journal = Journal(tmp_path / "a.jsonl")
    for raw in lines[:-1]:
        line = {name: value for name, value in json.loads(raw).items() if name not in ("chain", "at")}
        journal.append(line | ({"plan": line["plan"] | {"rules": 3}} if line["type"] == "plan" else {}))
    journal.finish(None)
    held = invgnn.Transcript.load(tmp_path / "a.jsonl")
    with pytest.raises(FileError, match=r"another audit.*rules"):
        invgnn.verify(held, mark, access="logits", sequential=invgnn.Sequential(bits=20))


def test_a_transcript_that_nobody_signed(mark):
    assert invgnn.Transcript.load(FOLDER / "v1-not-signed.jsonl").key is None
    with pytest.raises(FileError, match="not signed with the key"):
        invgnn.Transcript.load(FOLDER / "v1-not-signed.jsonl", KNOWN["signer"])


@pytest.mark.parametrize("counts", KNOWN["orders"])
def test_the_order_of_the_questions_stays(mark, counts):
    decoys, repeats = map(int, counts.split(", "))
    assert [list(item) for item in plan_items(mark, decoys, repeats)] == KNOWN["orders"][counts]


@pytest.mark.parametrize("name", BAD)
def test_defects_are_found(name):
    with pytest.raises(FileError) as caught:
        invgnn.Transcript.load(FOLDER / f"v1-{name}.jsonl", KNOWN["signer"])
    assert caught.value.advice


def test_every_defect_is_there():
    assert len(BAD) == 15


def test_a_journal_goes_on_where_it_was_cut(tmp_path):
    data = (FOLDER / "v1-fixed.jsonl").read_bytes()
    whole = data.splitlines(keepends=True)
    (tmp_path / "a.jsonl").write_bytes(b"".join(whole[:3]) + whole[3][:100])
    journal = Journal(tmp_path / "a.jsonl")
    assert len(journal.lines) == 3
    assert journal.untaken == sum(len(json.loads(line)["questions"]) for line in whole[1:3])
    assert (tmp_path / "a.jsonl").read_bytes() == b"".join(whole[:3])
