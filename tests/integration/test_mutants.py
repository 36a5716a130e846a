"""The tool that breaks the core on purpose: what it changes, what it leaves alone, and what it counts."""

from __future__ import annotations

import csv

import pytest

import mutants

SOURCE = '''"""A label: never changed."""


def grow(x: int = 1, *, label: str = "grow") -> int:
    """Here neither."""
    if x < 0 and label:
        raise ValueError(f"{x - 1} is below 0", "wrong")
    return [x][:x] and x + 2


class Box:
    def __repr__(self) -> str:
        return "box" + "y"
'''
TEST = """from invgnn.tiny import grow


def test_grow():
    assert grow(3) == 5
"""


def test_changes_are_small_and_leave_alone_what_only_speaks_to_people():
    found = [m.mutation for m in mutants.mutants("tiny", SOURCE)]
    assert sorted(found) == sorted([
        "x: int=1, *, label: str='grow' → x: int=2, *, label: str='grow'",
        "x: int=1, *, label: str='grow' → x: int=0, *, label: str='grow'",
        "x: int=1, *, label: str='grow' → x: int=1, *, label: str='growx'",
        "x < 0 and label → x < 0 or label",
        "x < 0 → x <= 0",
        "x < 0 → x >= 0",
        "x < 0 → x < 1",
        "x < 0 → x < -1",
        "raise ValueError(f'{x - 1} is below 0', 'wrong') → pass",
        "return [x][:x] and x + 2 → return 0",
        "[x][:x] and x + 2 → [x][:x] or x + 2",
        ":x → :x + 1",
        ":x → :x - 1",
        "x + 2 → x - 2",
        "x + 2 → x + 3",
        "x + 2 → x + 1",
    ])  # fmt: skip


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a = b[f(c):]", {"a = b[f(c) + 1:]", "a = b[f(c) - 1:]"}),
        ("a = 'of a thing'; b'of a thing'", set()),
        ("a = b'x/1'", {"a = b'x/1x'"}),
        ("a = 0.5", {"a = 1.0"}),
        ("a = 1e-09", set()),
        ("a = True", {"a = False"}),
        ("a: int | None = not b", {"a: int | None = b"}),
        ("a += b", {"a -= b", "pass"}),
        ("f(a)", {"pass"}),
        ("a = b if c else d", {"a = b if not c else d"}),
        ("a = b @ c // d", {"a = b * c // d", "a = b @ c * d"}),
        ("a = b is None", {"a = b is not None"}),
        ("def f() -> float:\n    return 0.0", {"def f() -> float:\n    return 1.0"}),
    ],
)
def test_each_kind_of_change(before, after):
    assert {m.source() for m in mutants.mutants("tiny", before)} == after


@pytest.fixture
def project(tmp_path):
    """A package of the same name with one module."""
    files = {"src/invgnn/__init__.py": "", "src/invgnn/tiny.py": SOURCE, "tests/test_tiny.py": TEST}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.slow
def test_of_a_tiny_module_one_mutant_dies_and_one_lives(project, monkeypatch, capsys):
    chosen = ["x + 2 → x + 3", "x < 0 → x < 1"]
    every = {
        ("tiny", "", m.mutation): "" for m in mutants.mutants("tiny", SOURCE) if m.mutation not in chosen
    }
    monkeypatch.setattr(mutants, "IGNORED", every)
    table = {"tiny": "tiny none", "absent": "tiny"}
    for again in (False, True):
        mutants.main(["--jobs", "1"], project, table)
        said = capsys.readouterr().out.splitlines()
        assert said[-3:] == [
            "1 of 2 mutants killed, drawn from 2: 50.0%",
            "95 % Clopper-Pearson interval: 1.3% to 98.7%",
            "survived  src/invgnn/tiny.py:6  x < 0 → x < 1",
        ]
        assert len(said) == (3 if again else 6)  # the module as it is, and both; nothing is tried twice
    text = (project / "benchmarks" / "results" / "mutants.csv").read_text()
    rows = csv.DictReader(text.splitlines())
    assert {(row["line"], row["mutation"], row["result"]) for row in rows} == {
        ("8", chosen[0], "killed"),
        ("6", chosen[1], "survived"),
        ("0", "none", "survived"),
    }
    assert (project / "src" / "invgnn" / "tiny.py").read_text() == SOURCE
    monkeypatch.setattr(mutants, "IGNORED", {})
    mutants.main(["--list", "--only", "tiny", "--sample", "3"], project, table)
    assert len(capsys.readouterr().out.splitlines()) == 3


@pytest.mark.slow
def test_tests_that_fail_by_themselves_kill_nobody(project):
    (project / "tests" / "test_tiny.py").write_text(TEST.replace("5", "6"))
    with pytest.raises(SystemExit, match="fail without any mutant"):
        mutants.main(["--jobs", "1"], project, {"tiny": "tiny"})
