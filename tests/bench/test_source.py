"""The code that a trial can run: nothing that matters is missed, and nothing else invalidates a row."""

from __future__ import annotations

import io
import sys
import threading
import token
import tokenize
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from invgnn.bench.source import DISPATCH, ROOT, SourceTree, stripped


@pytest.fixture
def tree(tmp_path):
    """A package with a lazy import, a re-export, one for type checkers, and a registry."""

    def write(name, text):
        path = tmp_path / "pack" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    write("__init__.py", "from pack.low import floor\nfrom pack.other import thing\n")
    write("low.py", "def floor(): return 1\n")
    write("other.py", "thing = 2\n")
    write("typed.py", "T = 3\n")
    write("lazy.py", "import json\nfrom . import low\n")
    write("registry.py", "from pack import other\n")
    write(
        "top.py",
        "from typing import TYPE_CHECKING\nfrom pack import floor, registry\n"
        "if TYPE_CHECKING:\n    from pack.typed import T\n"
        "def work():\n    from pack import lazy\n    return lazy\n",
    )
    return write, lambda: SourceTree({"pack": tmp_path / "pack"}, {"pack.registry"})


def test_imports_are_followed_to_what_they_use(tree):
    _, fresh = tree
    assert fresh().reachable(["pack.top"]) == {"pack.top", "pack.low", "pack.lazy"}
    assert fresh().reachable(["pack.other", "numpy"]) == {"pack.other"}
    assert fresh().reachable(["pack"]) == {"pack", "pack.low", "pack.other"}


def test_a_name_that_is_found_when_it_is_used_brings_all_that_it_may_be(tree):
    write, fresh = tree
    write("late/__init__.py", 'HOMES = {"A": "a", "B": "pack.other"}\ndef __getattr__(name): ...\n')
    write("late/a.py", "A = 1\n")
    write("user.py", "from pack.late import A\n")
    assert fresh().reachable(["pack.user"]) == {"pack.user", "pack.late", "pack.late.a", "pack.other"}


def test_a_digest_changes_with_the_code_and_with_nothing_else(tree, tmp_path):
    from invgnn.bench import source

    write, fresh = tree

    def digest():
        for cached in (source._text, source._code, source._tree, source._bindings, source._texts):
            cached.cache_clear()
        return fresh().digest(["pack.top"])

    first = digest()
    write("low.py", '"""What it is."""\n\n# a remark\ndef floor(): return 1  # one\n')
    write("other.py", "thing = 9\n")
    write("typed.py", "T = 9\n")
    write("registry.py", "x = 1\n")
    assert digest() == first
    write("low.py", "def floor(): return 2\n")
    assert digest() != first


TEXTS = st.text(
    st.characters(codec="utf-8", exclude_characters="\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"), max_size=12
)


@given(TEXTS, TEXTS, st.text("# x\n'", max_size=10))
def test_comments_and_docstrings_do_not_count_and_texts_do(said, remark, text):
    remark = remark.replace("\n", " ").replace("\0", "")
    bare = f"def f():\n    return {text!r}\nX = 1\n"
    told = f"# {remark}\ndef f():\n\n    {said!r}\n    return {text!r}\nX = 1  # {remark}\n"
    assert stripped(told) == stripped(bare)
    assert stripped(bare) != stripped(bare.replace(f"return {text!r}", f"return {text + '#'!r}"))


def test_a_text_of_several_lines_counts_as_it_stands():
    code = 'X = """a\n\n# b\n"""\n'
    assert stripped(code) != stripped(code.replace("# b", "# c"))
    assert stripped(code) != stripped(code.replace("a\n\n", "a\n"))


def test_every_name_and_number_of_the_schemes_is_left():
    """Asked of the tokens: only texts that are statements, comments and layout are gone."""
    for path in sorted(ROOT.glob("schemes/*.py")):
        wanted = [
            t.string for t in tokens(path.read_text()) if t.type in (token.NAME, token.NUMBER, token.OP)
        ]
        left = [
            t.string
            for t in tokens(stripped(path.read_text()))
            if t.type in (token.NAME, token.NUMBER, token.OP)
        ]
        assert left == wanted, path


def tokens(code):
    """The tokens of code whose functions may have lost their only statement."""
    found = []
    try:
        for one in tokenize.generate_tokens(io.StringIO(code).readline):
            found.append(one)
    except IndentationError:
        pass
    return found


def test_a_changed_scheme_changes_only_its_own_rows():
    tree = SourceTree()
    reach = {n: tree.reachable(["invgnn.bench.trials.marks", f"invgnn.schemes.{n}"]) for n in SCHEMES}
    for name in ("cosine", "explanations", "edge_signs", "backdoor", "published"):
        assert [n for n, found in reach.items() if f"invgnn.schemes.{name}" in found] == [name]
    assert {n for n, found in reach.items() if "invgnn.schemes.random_graphs" in found} == {
        "random_graphs",
        "backdoor",  # it uses its trigger
    }
    assert not any(found & DISPATCH for found in reach.values())
    assert all("invgnn.training.trainer" in found for found in reach.values())


SCHEMES = ("ss", "cosine", "random_graphs", "backdoor", "explanations", "edge_signs", "published", "keyed")


@pytest.mark.story
def test_no_module_runs_that_the_digest_leaves_out(motifs, web, monkeypatch, tmp_path):
    """The definition is sound: every function of the library that a trial calls is in a module it names."""
    from invgnn.bench import marked, released
    from invgnn.bench.trials import kept, removals
    from invgnn.bench.trials.measures import MEASURES, perform
    from invgnn.bench.trials.objects import _modules, changes, find_change, find_scheme, schemes

    monkeypatch.setenv("INVGNN_CACHE", str(tmp_path))
    tree = SourceTree()
    assert changes()  # finding an object by its name constructs all of them, once
    assert schemes()
    for task, setting in ((motifs, "BA-2motif/GIN"), (web, "Cora/GCN")):
        for module in (marked, released, removals):
            monkeypatch.setattr(module, "load_task", lambda *_, one=task: one)
        for scheme in schemes():
            for measure, more in (("mark", {}), ("change", {"change": "prune 40%", "thief": "10%"})):
                arguments = {"setting": setting, "seed": 41, "scheme": scheme, "epochs": 1, "controls": 1}
                kept.kept.cache_clear()
                ran = called(lambda m=measure, a=arguments | more: perform(m, a))
                things = [find_scheme(scheme), *([find_change("prune 40%")] if more else [])]
                starts = [MEASURES[measure].work.__module__, *(m for t in things for m in _modules(t))]
                named = {tree.path(m) for m in tree.reachable(starts)} | {tree.path(m) for m in DISPATCH}
                beyond = {str(path.relative_to(ROOT)) for path in ran - named}
                assert beyond <= {"bench/source.py"}, (scheme, measure)  # it names the cache and no result


def called(work):
    """The files of the library in which a function was called."""
    seen = set()

    def watch(frame, event, _):
        if event == "call" and frame.f_code.co_name != "<module>":
            seen.add(frame.f_code.co_filename)

    threading.setprofile(watch)
    sys.setprofile(watch)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    inside = (Path(name) for name in seen if name.startswith(str(ROOT)))
    return {path for path in inside if path.parts[-2:-1] != ("schemes",) or path.name != "__init__.py"}
