"""The fences: which module may import which, and what stays out of memory until it is needed."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEAVY = {"torch", "torch_geometric", "scipy", "matplotlib", "numpy", "cryptography", "jinja2", "rich"}
WITHOUT_TORCH = (
    *("errors", "version", "secret", "graphs.disjoint_union", "graphs.statistics", "graphs.wl_hash"),
    *("graphs.rewiring", "graphs.invariants", "stats.rank_sum", "stats.laws", "stats.null", "bench.sweep"),
    *("storage.atomic", "storage.encryption", "storage.container", "storage.tables", "watermark.carriers"),
)


def loaded_after(code):
    """Every module in a fresh interpreter after running the code."""
    code += "\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_imports_only_go_down():
    command = [Path(sys.executable).with_name("lint-imports"), "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_fences_are_the_ones_promised():
    kept = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    assert not kept["exclude_type_checking_imports"]
    *layers, blind, verdict = kept["contracts"]
    assert all(contract["exhaustive"] for contract in layers)
    packages = {path.parent for path in (ROOT / "src" / "invgnn").rglob("__init__.py")}
    named = {".".join(path.relative_to(ROOT / "src").parts) for path in packages}
    assert named == {name for contract in layers for name in contract["containers"]}
    assert blind["source_modules"] == ["invgnn.attacks.edits"]
    assert {"invgnn.watermark", "invgnn.secret"} <= set(blind["forbidden_modules"])
    assert not any(contract.get("allow_indirect_imports") for contract in (blind, verdict))
    assert not any(contract.get("ignore_imports") for contract in kept["contracts"])


def test_what_needs_no_torch_loads_none():
    names = ", ".join(f"invgnn.{name}" for name in WITHOUT_TORCH)
    assert {"torch", "torch_geometric"}.isdisjoint(loaded_after(f"import {names}"))


@pytest.mark.parametrize(
    "code",
    [
        "import invgnn",
        "import invgnn; dir(invgnn); invgnn.InvgnnError",
        "import invgnn.cli",
        "from invgnn.cli import app\ntry:\n    app(['--help'])\nexcept SystemExit:\n    pass",
        "from invgnn.cli import app\ntry:\n    app(['verify', '--help'])\nexcept SystemExit:\n    pass",
        "from invgnn.cli import app\ntry:\n    app(['--version'])\nexcept SystemExit:\n    pass",
    ],
    ids=["library", "library's names", "command", "help", "help of a verb", "version"],
)
def test_starting_is_light(code):
    assert HEAVY.isdisjoint(loaded_after(code))


def test_a_mark_is_out_of_reach_of_edits():
    seen = loaded_after("import invgnn.attacks.edits")
    assert "invgnn.attacks.edits.finetune" in seen
    assert not [name for name in seen if name.startswith(("invgnn.watermark", "invgnn.secret"))]
