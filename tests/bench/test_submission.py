"""A scheme of somebody else, in a single file under the entry point, takes part in a grid."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "add-a-scheme.md"
GRID = """
settings = ["BA-2motif/GIN"]
seeds = [41]
epochs = 2
controls = 1
[[part]]
measure = "mark"
schemes = ["rings", "COS"]
"""


@pytest.mark.story
def test_a_scheme_in_one_file_takes_part(tmp_path):
    """The example of the page, installed as one file; its rows, and no others, depend on that file."""
    code = "".join(re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL))
    (tmp_path / "my_scheme.py").write_text(code)
    about = tmp_path / "my_scheme-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: my-scheme\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[invgnn.schemes]\nrings = my_scheme:Rings\n")
    (tmp_path / "mine.toml").write_text(GRID)

    def bench(*arguments):
        command = [Path(sys.executable).with_name("invgnn"), "bench", "run", "mine.toml", "--json"]
        environment = os.environ | {"PYTHONPATH": str(tmp_path), "INVGNN_CACHE": str(tmp_path / "cache")}
        options = {"cwd": tmp_path, "env": environment, "capture_output": True, "text": True}
        done = subprocess.run([*command, "--results", "rows", *arguments], **options)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    assert bench()["left"] == 0
    (text,) = (path.read_text() for path in tmp_path.glob("rows/*/mark.csv"))
    rings = next(line for line in text.splitlines() if ",rings," in line)
    assert "not possible" not in rings
    (tmp_path / "my_scheme.py").write_text(code.replace("size, count = 6, 32", "size, count = 7, 32"))
    found = bench("--dry-run")
    assert (found["missing"], found["stale"]) == (1, 1)  # that of COS stands
