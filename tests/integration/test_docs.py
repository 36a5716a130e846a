"""The pages of the documentation: the tutorial runs as written, and every relative link leads somewhere."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PAGES = sorted([*(ROOT / "docs").glob("**/*.md"), *ROOT.glob("*.md")])


def anchors(page):
    """The anchors that headings of a page get, as mkdocs makes them."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    titles = re.findall(r"(?m)^#+ (.+)$", text)
    named = re.findall(r"\{ *#([\w-]+)", text) + re.findall(r'id="([\w-]+)"', text)
    plain = (re.sub(r"\{.*?\}|[`*]|\[|\]\(.*?\)", "", title).strip().lower() for title in titles)
    return {*named, *(re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", title)).strip("-") for title in plain)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_lead_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", link):
            continue
        place, _, anchor = link.partition("#")
        target = (page.parent / place).resolve() if place else page
        assert target.exists(), link
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{link}: {sorted(anchors(target))}"


def test_every_page_is_in_the_navigation():
    class Loader(yaml.SafeLoader):
        """Tags of mkdocs plug-ins are of no interest here."""

    Loader.add_multi_constructor("", lambda loader, suffix, node: None)
    nav = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader)["nav"]  # noqa: S506 - safe
    named = set(re.findall(r"[\w/-]+\.md", str(nav)))
    assert named == {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").glob("**/*.md")}


@pytest.mark.story
def test_the_tutorial_runs_as_written(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(os, "urandom", lambda size: bytes(range(size)))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    text = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    space: dict = {"__name__": "tutorial"}
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(compile(block, "tutorial.md", "exec"), space)  # noqa: S102 - the tutorial's own code
    said = capsys.readouterr().out
    assert "OWNED" in said
    assert "not shown" in said.lower()
    assert {path.name for path in space["folder"].iterdir()} >= {"acme.mark", "report.html"}
