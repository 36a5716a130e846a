"""The wheel, installed into a clean environment without the source tree, does what the README shows."""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from invgnn.court.document_schemas import KINDS

ROOT = Path(__file__).parents[2]
PARTS = ("src", "pyproject.toml", "README.md", "LICENSE")
pytestmark = pytest.mark.story


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel built from a copy of the sources."""
    folder = tmp_path_factory.mktemp("built")
    for name in PARTS:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / name)
    shutil.rmtree(folder / "src" / "invgnn.egg-info", ignore_errors=True)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder / "dist"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    (found,) = (folder / "dist").glob("*.whl")
    return found


@pytest.fixture(scope="module")
def run(wheel, tmp_path_factory):
    """Run a command in an environment of its own: dependencies from here, invgnn from the wheel."""
    home = tmp_path_factory.mktemp("clean")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home / "env"], check=True)
    python = home / "env" / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", "--no-index"]
    subprocess.run([*install, "--disable-pip-version-check", wheel], check=True)
    # Packages are found in a folder of PYTHONPATH; its .pth files (an editable install) are not read.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    environment |= {"PYTHONPATH": sysconfig.get_path("purelib"), "OMP_NUM_THREADS": "1"}

    def run(*command):
        whole = [python.with_name(command[0]), *command[1:]]
        done = subprocess.run(whole, cwd=home, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run.command, run.environment = python.with_name("invgnn"), environment
    return run


def test_the_wheel_holds_the_package_with_its_data_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {"invgnn/py.typed", "invgnn/audit/report/templates/verdict.html.j2"} <= set(names)
    assert {f"invgnn/court/schemas/{kind}.v1.schema.json" for kind in KINDS} <= set(names)
    assert "invgnn/court/templates/judgement.html.j2" in names
    assert not [name for name in names if not re.match(r"invgnn(-[\w.]+\.dist-info)?/", name)]
    sources = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src" / "invgnn").glob("**/*.py")}
    assert sources == {name for name in names if name.endswith(".py")}


def test_the_installed_package_is_the_wheels(run):
    found = Path(run("python", "-c", "import invgnn; print(invgnn.__file__)").strip())
    assert "clean" in str(found)
    assert not found.is_relative_to(ROOT)


def test_the_example_of_the_readme_runs(run, tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    script = tmp_path / "example.py"
    script.write_text("\n".join(blocks))
    assert run("python", str(script)).startswith(("OWNED", "INCONCLUSIVE"))  # a fresh secret every time


def test_a_judge_with_nothing_but_the_wheel_believes_the_owner_and_not_the_forger(run, monkeypatch, capsys):
    path = ROOT / "examples" / "court.py"
    assert len(path.read_text().splitlines()) <= 60
    for name in ("PYTHONPATH", "OMP_NUM_THREADS"):
        monkeypatch.setenv(name, run.environment[name])
    owner, forger = runpy.run_path(str(path))["main"](epochs=8, command=run.command)
    assert "leaked by ['south']" in capsys.readouterr().out
    assert owner["status"] == "owned", owner
    assert [one["outcome"] for one in owner["rivals"]] == ["does not stand"]
    assert {one["check"] for one in owner["checks"] if one["passed"]} >= {
        "regeneration",
        "controls",
        "token",
    }
    assert (forger["status"], forger["reasons"][0]["code"]) == ("not shown", "chance")


def test_the_demo_runs(run, tmp_path):
    record = json.loads(run("invgnn", "demo", "--epochs", "15", "--json", "-o", str(tmp_path / "out")))
    rows = {row["model"]: row for row in record["rows"]}
    assert rows["unmarked A"]["status"] == "not shown"
    assert rows["marked"]["evidence_bits"] > 20  # a fresh secret, and few epochs
    assert (tmp_path / "out" / "report.html").stat().st_size > 10_000
