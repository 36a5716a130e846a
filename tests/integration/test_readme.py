"""What the README and the examples show is executed, and gives what they promise."""

import os
import re
import runpy
from pathlib import Path

import pytest

from invgnn.audit.verdict import Verdict

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
# Enough epochs to see evidence, few enough for a fast suite.
EPOCHS = {"own_graph_model": 8, "own_node_model": 60, "edge_attributes": 20, "trained_model": 8, "gat": 20}
EPOCHS |= {"encodings": 4, "regression": 25, "link_prediction": 8}
NEEDS = {"edge_attributes": "MUTAG", "regression": "MUTAG", "link_prediction": "Cora"}
EPOCHS |= {"typed_graphs": 6, "monitored_loop": 12, "random_node_loader": 10, "lightning_callback": 15}
EPOCHS["ddp"] = 6  # here one process; with two in test_distributed
EPOCHS |= {"fast_loop": 8, "multi_label": 8, "command_line": 6}
LONG = {"trained_model", "lightning_callback", "typed_graphs", "gat", "fast_loop", "command_line"}


@pytest.fixture(autouse=True)
def same_secret(monkeypatch):
    """A fixed secret."""
    monkeypatch.setattr(os, "urandom", lambda size: bytes(range(size)))


def test_readme_runs_as_written(capsys):
    space: dict = {}
    for block in BLOCKS:
        exec(compile(block, "README.md", "exec"), space)  # noqa: S102 - the README's own code
    assert capsys.readouterr().out.startswith("OWNED")
    assert space["loss"].requires_grad


def test_readme_quickstart_has_six_lines():
    assert len([line for line in BLOCKS[0].splitlines() if line.strip()]) == 6


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.stem)
def test_an_example_does_something_if_it_is_run(path):
    assert re.search(r'^if __name__ == "__main__":\n    .*main\(', path.read_text(), re.MULTILINE)


def test_every_example_is_run():
    played = {"court", "remote_audit"}  # in test_wheel, and in test_remote_story
    assert {path.stem for path in (ROOT / "examples").glob("*.py")} == set(EPOCHS) | played


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.story] if name in LONG else []) for name in EPOCHS]
)
@pytest.mark.filterwarnings("ignore::invgnn.errors.InvgnnWarning")  # few epochs embed little
@pytest.mark.filterwarnings("ignore:::lightning")
@pytest.mark.filterwarnings(
    "ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"
)  # torch.compile
def test_example(name):
    path = ROOT / "examples" / f"{name}.py"
    folder = Path(os.environ.get("INVGNN_DATA", "")) / NEEDS.get(name, "")
    if name in NEEDS and not (os.environ.get("INVGNN_DATA") and folder.is_dir()):
        pytest.skip(f"no data: INVGNN_DATA holds no {NEEDS[name]}")
    assert len(path.read_text().splitlines()) <= 60
    result = runpy.run_path(str(path))["main"](epochs=EPOCHS[name])
    verdicts = [result] if isinstance(result, Verdict) else result
    assert all(v.evidence_bits > 20 for v in verdicts), [v.evidence_bits for v in verdicts]
