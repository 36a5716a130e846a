"""Models and data of one's own on the command line: from a checkpoint to a verdict and a stress test."""

import json

import pytest
import torch
from typer.testing import CliRunner

from invgnn.cli import app

NETS = """
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GIN, global_add_pool


def graphs():
    draw = torch.Generator().manual_seed(0)
    items = []
    for number in range(60):
        size = 9 + number % 6
        ring = torch.stack([torch.arange(size), (torch.arange(size) + 1) % size])
        chord = torch.randint(size, (2, 4), generator=draw)
        pairs = torch.cat([ring, chord], dim=1)
        x = torch.randn(size, 4, generator=draw) + number % 2
        both = torch.cat([pairs, pairs.flip(0)], dim=1)
        items.append(Data(x=x, edge_index=both, y=torch.tensor([number % 2])))
    return items


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.out = GIN(4, 16, 2), torch.nn.Linear(16, 2)

    def forward(self, x, edge_index, batch):
        return self.out(global_add_pool(self.body(x, edge_index), batch))


def metric(model):
    return 0.5


def numbers():
    items = graphs()
    for item in items:
        item.y = item.x.mean().view(1)
    return items


def nothing():
    return None
"""


def run(*arguments, code=0):
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("INVGNN_PASSPHRASE", "own models")
    (tmp_path / "own_nets_for_tests.py").write_text(NETS)
    return tmp_path


@pytest.mark.filterwarnings("ignore::invgnn.errors.WeakMarkWarning")  # few steps embed little
def test_from_a_checkpoint_to_a_verdict(folder):
    nets = "own_nets_for_tests"
    run("keygen", "-o", "a.secret")
    run("carriers", "--secret", "a.secret", "--data", f"{nets}:graphs", "--m", 16, "-o", "a.mark")
    import own_nets_for_tests as module

    state = {f"model.{name}": value for name, value in module.Net().state_dict().items()}
    torch.save({"state_dict": state, "epoch": 1}, "trained.ckpt")
    own = ["--architecture", f"{nets}:Net", "--data", f"{nets}:graphs"]
    embedded = run(
        "embed", "--mark", "a.mark", *own, "--start", "trained.ckpt", "--steps", 5,
        "--metric", f"{nets}:metric",
        "-o", "a.safetensors", "--json",
    )  # fmt: skip
    record = json.loads(embedded.stdout)
    assert record["before"] == record["after"] == 0.5
    assert set(record["bits"]) == {"embedding", "logits"}
    verdict = CliRunner().invoke(
        app, ["verify", "--mark", "a.mark", "--model", "a.safetensors", *own[:2], "--json"]
    )
    assert verdict.exit_code in {1, 3}  # sixteen carriers prove nothing
    assert json.loads(verdict.stdout)["m"] == 16
    rows = json.loads(
        run(
            "stress", "--mark", "a.mark", "--model", "a.safetensors", *own, "--only", "prune", "--json"
        ).stdout
    )["rows"]
    assert len(rows) > 1
    assert all(row["accuracy"] is not None for row in rows)


def test_real_targets_declare_values(folder):
    run("keygen", "-o", "a.secret")
    data = ["--data", "own_nets_for_tests:numbers", "--m", 16]
    drawn = json.loads(run("carriers", "--secret", "a.secret", *data, "-o", "a.mark", "--json").stdout)
    assert [r["access"] for r in drawn["context"]["readings"]] == ["embedding", "values"]
    refused = run("carriers", "--secret", "a.secret", *data, "--access", "logits", "-o", "b.mark", code=2)
    assert "values" in refused.output


def test_a_model_of_ones_own_is_calibrated(folder):
    own = ["--architecture", "own_nets_for_tests:Net", "--data", "own_nets_for_tests:graphs"]
    few = ["--epochs", 3, "--checkpoints", 2, "--marked", 1, "--graphs", 2, "--grid", "1", "--m", 16]
    found = json.loads(run("calibrate", *own, *few, "--json").stdout)
    assert found["setting"] == "own_nets_for_tests:graphs/own_nets_for_tests:Net"
    assert [trial["beta"] for trial in found["trials"]] == [1.0]
    assert "built-in" in run("calibrate", *own, *few, "--access", "perception", code=2).output
    assert "belong together" in run("calibrate", *own[2:], code=2).output
    assert "either --task or --data" in run("calibrate", code=2).output


def test_what_is_missing_is_said(folder):
    run("keygen", "-o", "a.secret")
    assert (
        "either --task or --data" in run("carriers", "--secret", "a.secret", "-o", "a.mark", code=2).output
    )
    for name, said in (
        ("nothing", "returned None"),
        ("absent", "does not return graphs"),
        ("metric", "TypeError"),
    ):
        found = run(
            "carriers",
            "--secret",
            "a.secret",
            "--data",
            f"own_nets_for_tests:{name}",
            "-o",
            "a.mark",
            code=2,
        )
        assert said in found.output
    (folder / "a.mark").touch()
    assert "--start" in run("embed", "--mark", "a.mark", "--data", "x:y", "-o", "b", code=2).output
    both = run("stress", "--mark", "a.mark", "--model", "a.mark", "--data", "x:y", code=2)
    assert "belong together" in both.output
