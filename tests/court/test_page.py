"""The page of a judgement: complete, escaped, without script and network, and readable on a phone."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from torch import nn

from _helpers.court import CASE
from invgnn.court.documents import Document
from invgnn.court.judgement import Judgement
from invgnn.court.opening import load_opening, open_prefix
from invgnn.court.page import render_judgement, timeline, write_judgement
from invgnn.nn.forward import call

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")


class Own(nn.Module):
    """An architecture of the judge's own."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x, edge_index, batch=None):
        return self.model(x, edge_index, batch)


@pytest.fixture(scope="module")
def pages(decide, house, people, tomorrow, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "prefix"
    open_prefix(path, house.claim, house.mark, people.owner, people.judge.public(), CASE)
    part = load_opening(path, people.judge)
    return {
        "function": decide(lambda batch: call(house.model, batch)),
        "own code": decide(Own(house.model)),
        "partial": decide(opening=part, controls=[house.other]),
        "partial, chance": decide(house.other, opening=part),
        "owned": decide(suspect_since=tomorrow, controls=[house.other]),
        "not shown": decide(house.other),
        "inconclusive": decide(roots=()),
        "refused": decide(case="another"),
    }


KINDS = [
    "owned",
    "not shown",
    "inconclusive",
    "refused",
    "partial",
    "partial, chance",
    "function",
    "own code",
]


@pytest.mark.parametrize("kind", KINDS)
def test_every_judgement_has_a_page(pages, kind):
    text = render_judgement(pages[kind])
    assert pages[kind].status.capitalize() in text
    assert "<script" not in text
    assert "http" not in text.replace("http-equiv", "")
    for word in ("What was asked", "Timeline", "Checks", "What would void it", "How to check it again"):
        assert word in text
    said = pages[kind].payload
    for digest in (said["claim"]["digest"], said["judge"]["signing"], pages[kind].document.digest):
        assert digest in text
    assert all(check["says"].split("'")[0] in text.replace("&#39;", "'") for check in said["checks"])


def test_what_stands_between_the_judge_and_the_weights_is_on_the_page(pages):
    assert "Own" in render_judgement(pages["own code"])
    assert "Its weights were not examined" in render_judgement(pages["function"])
    assert "Code that answered" not in render_judgement(pages["owned"])


def test_only_the_decisive_reason_is_called_one(pages, people):
    said = pages["inconclusive"].payload
    said["reasons"] = [*said["reasons"], {"code": "evidence", "says": "more"}]
    text = render_judgement(Judgement(Document.sign("judgement", said, people.judge)))
    assert text.count("<p>Reason (") == 1
    assert "<p>Found besides (evidence): more.</p>" in text


def test_a_part_promises_no_more_than_it_proves(pages):
    text = render_judgement(pages["partial"])
    assert "which nobody can check" in text
    assert "determines 32 private" not in text
    assert "determines 64 private" in render_judgement(pages["owned"])
    assert "all are opened.\n<i>b</i>" in text
    assert not any("tokens" in void for void in pages["partial"].payload["voids"])
    assert "because the bits are random" not in text
    assert "because the bits are random" in render_judgement(pages["owned"])
    assert "α = 10⁻⁶" in render_judgement(pages["owned"])
    control = pages["partial"].payload["verdict"]["controls"][0]
    assert control["matches"] < 32
    assert control["digest"][:16] in text


def test_texts_of_parties_are_escaped(pages, people):
    said = pages["owned"].payload
    said["claim"] = {**said["claim"], "owner": "<img src=x onerror=alert(1)>", "label": "\u05d0<b>"}
    said["case"] = "</title><script>alert(1)</script>"
    text = render_judgement(Judgement(Document.sign("judgement", said, people.judge)))
    assert "<img" not in text
    assert "<script" not in text
    assert "<bdi>&lt;img" in text


def test_the_timeline_is_in_order(pages):
    moments = timeline(pages["owned"].payload)
    assert [one.time for one in moments] == sorted(one.time for one in moments)
    assert len(moments) == 4
    unknown = timeline(pages["inconclusive"].payload)
    assert [one.time for one in unknown][-2:] == ["", ""]


def test_nothing_is_overwritten(pages, tmp_path):
    from invgnn.errors import ExistingFileError

    write_judgement(tmp_path / "a.html", pages["owned"])
    with pytest.raises(ExistingFileError):
        write_judgement(tmp_path / "a.html", pages["owned"])


@pytest.mark.skipif(BROWSER is None, reason="no chromium")
@pytest.mark.parametrize("width", [390, 1100])
def test_nothing_is_wider_than_the_window(pages, tmp_path, width):
    """Asked of the browser: a frame of this width, and how wide the page in it becomes."""
    write_judgement(tmp_path / "a.html", pages["owned"])
    page = (tmp_path / "a.html").read_text()
    page = re.sub(r'<meta http-equiv="Content-Security-Policy".*?>', "", page)
    (tmp_path / "b.html").write_text(page)
    frame = (
        f"<iframe id=f src=b.html style='width:{width}px;height:900px;border:0'></iframe>"
        "<p id=o></p><script>"
        "f.onload=()=>{const d=f.contentDocument.documentElement;"
        "o.textContent='wide '+d.scrollWidth+' of '+d.clientWidth}</script>"
    )
    (tmp_path / "c.html").write_text(frame)
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files"]
    command = [
        BROWSER,
        *options,
        "--virtual-time-budget=4000",
        "--dump-dom",
        (tmp_path / "c.html").as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    wide, room = map(int, re.search(r"wide (\d+) of (\d+)", done.stdout).groups())
    assert wide <= room
    assert width - 20 < room <= width  # a scroll bar
