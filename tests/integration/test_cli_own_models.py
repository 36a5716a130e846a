"""Models and data of one's own on the command line: from a checkpoint to a verdict and a stress test."""

import json

import pytest
import torch
from typer.testing import CliRunner

from invgnn.cli import app

NETS = """
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import GIN, GINEConv, SAGEConv, global_add_pool


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


class Wordy(Net):
    def forward(self, data):
        return {"scores": super().forward(data.x, data.edge_index, data.batch)}


def asked(model, batch):
    return model(batch)["scores"]


def encode(graph):
    graph = graph.clone()
    graph.pe = torch.bincount(graph.edge_index[1], minlength=graph.num_nodes).view(-1, 1).float()
    return graph


def encoded():
    return [encode(graph) for graph in graphs()]


class Encoded(Net):
    def forward(self, x, pe, edge_index, batch):
        return super().forward(x + pe, edge_index, batch)


def bonds():
    items = graphs()
    for item in items:
        item.edge_attr = (item.x[item.edge_index[0]] + item.x[item.edge_index[1]])[:, :2]
    return items


class Bonds(torch.nn.Module):
    def __init__(self):
        super().__init__()
        inner = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU())
        self.conv, self.hidden = GINEConv(inner, edge_dim=2), torch.nn.Linear(16, 16)
        self.out = torch.nn.Linear(16, 2)

    def forward(self, x, edge_index, edge_attr, batch):
        return self.out(self.hidden(global_add_pool(self.conv(x, edge_index, edge_attr), batch)).relu())


def typed():
    draw = torch.Generator().manual_seed(0)
    items = []
    for number in range(40):
        data = HeteroData(y=torch.tensor([number % 2]))
        data["author"].x = torch.randn(5, 2, generator=draw)
        data["paper"].x = torch.randn(8, 3, generator=draw) + number % 2
        written = (torch.rand(5, 8, generator=draw) < 0.4).nonzero().t()
        data["author", "writes", "paper"].edge_index = written
        items.append(data)
    return items


class Typed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.out = SAGEConv((2, 3), 16), torch.nn.Linear(16, 2)

    def forward(self, x_dict, edge_index_dict, batch_dict):
        edges = edge_index_dict["author", "writes", "paper"]
        papers = self.conv((x_dict["author"], x_dict["paper"]), edges).relu()
        return self.out(global_add_pool(papers, batch_dict["paper"]))
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
    said = " ".join(embedded.stderr.split())
    assert "warning: the mark has only" in said
    assert "--steps 20" in said  # and no advice about Python
    assert "mark.embed" not in said
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


KINDS = {  # model, its data, the data that carriers are drawn from, further options
    "edge attributes": ("Bonds", "bonds", "bonds", [], []),
    "a transform": ("Encoded", "encoded", "graphs", ["--transform", "encode"], []),
    "an unusual call": ("Wordy", "graphs", "graphs", [], ["--forward", "asked"]),
    "typed graphs": ("Typed", "typed", "typed", [], []),
}


@pytest.mark.story
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore::invgnn.errors.WeakMarkWarning")  # few steps embed little
def test_models_of_every_kind_go_all_the_way(kind, folder):
    def named(words):
        return [word if word.startswith("--") else f"own_nets_for_tests:{word}" for word in words]

    net, data, source, drawing, calling = KINDS[kind]
    run("keygen", "-o", "a.secret")
    run("carriers", "--secret", "a.secret", *named(["--data", source, *drawing]), "--m", 16, "-o", "a.mark")
    import own_nets_for_tests as module

    torch.save(getattr(module, net)().state_dict(), "trained.pt")
    own = named(["--architecture", net, "--data", data, *calling])
    files = ["--mark", "a.mark", "--model", "a.pt.safetensors"]
    embedded = ["embed", "--mark", "a.mark", *own, "--start", "trained.pt", "--steps", 30]
    bits = json.loads(run(*embedded, "-o", "a.pt.safetensors", "--json").stdout)["bits"]
    assert set(bits) == {"embedding", "logits"}
    verdict = CliRunner().invoke(app, ["verify", *files, *own, "--json"])
    assert json.loads(verdict.stdout)["m"] == 16, verdict.output
    some = ["--only", "prune-50,fine-tune-20-epochs-at-0.001,serve-rounded", "--json"]
    rows = json.loads(run("stress", *files, *own, *some).stdout)["rows"]
    assert len(rows) >= 4
    assert all(row["accuracy"] is not None for row in rows)
    few = ["--epochs", 2, "--checkpoints", 2, "--marked", 1, "--graphs", 2, "--grid", "1", "--m", 16]
    assert json.loads(run("calibrate", *own, *few, "--json").stdout)["trials"]


def test_options_that_would_be_ignored_are_refused(folder):
    (folder / "a.mark").touch()
    own = ["--architecture", "x:y", "--data", "x:y"]
    start = ["embed", "--mark", "a.mark", "-o", "b", "--start", "a.mark"]
    assert "--steps N" in run(*start, *own, "--epochs", 3, code=2).output
    for option in (["--steps", 5], ["--metric", "x:y"], ["--forward", "x:y"]):
        assert option[0] in run(*start, "--task", "BA-2motif/GIN", *option, code=2).output
    for verb in (["stress", "--mark", "a.mark", "--model", "a.mark"], ["calibrate"]):
        assert "--forward" in run(*verb, "--task", "BA-2motif/GIN", "--forward", "x:y", code=2).output
    run("keygen", "-o", "a.secret")
    draw = ["carriers", "--secret", "a.secret", "-o", "b.mark", "--transform", "x:y"]
    assert "--transform" in run(*draw, "--task", "BA-2motif", code=2).output


def test_typed_models_without_their_types_are_told_what_to_pass(folder):
    data = ["--data", "own_nets_for_tests:typed", "--m", 8]
    run("keygen", "-o", "a.secret")
    run("carriers", "--secret", "a.secret", *data, "-o", "a.mark")
    import own_nets_for_tests as module

    torch.save(module.Typed().state_dict(), "a.pt")
    model = ["--model", "a.pt", "--architecture", "own_nets_for_tests:Typed"]
    assert "--data on the command line" in " ".join(
        run("verify", "--mark", "a.mark", *model, code=2).output.split()
    )
    wrong = run("verify", "--mark", "a.mark", *model, "--forward", "own_nets_for_tests:KINDS", code=2)
    assert "KINDS" in wrong.output
