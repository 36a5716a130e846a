"""The four backbones and their files."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch_geometric.data import Batch
from torch_geometric.nn import SAGEConv, SGConv

from invgnn.audit.provenance import digest_model
from invgnn.errors import FileError, ParameterError
from invgnn.nn.backbones import BACKBONES, SGC, build
from invgnn.nn.model_file import load_model, save_model
from invgnn.nn.perception import attach_head
from invgnn.storage import container
from invgnn.training.tasks import new_model


@pytest.fixture(params=["graph", "node"])
def either(request, motifs, web):
    return {"graph": motifs, "node": web}[request.param]


@pytest.mark.parametrize("backbone", BACKBONES)
@torch.no_grad()
def test_renumbering_nodes_changes_nothing(either, backbone):
    model, data = new_model(either, backbone, 0, hidden_channels=8).eval(), either.graphs[0]
    order = torch.randperm(data.num_nodes, generator=torch.Generator().manual_seed(0))
    place = torch.argsort(order)
    scores, moved = model(data.x, data.edge_index), model(data.x[order], place[data.edge_index])
    expected = scores[order] if either.level == "node" else scores
    assert scores.shape == (data.num_nodes if either.level == "node" else 1, either.num_classes)
    torch.testing.assert_close(moved, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("backbone", "pygs"), [("GraphSAGE", SAGEConv), ("SGC", partial(SGConv, K=2))])
def test_mapping_first_is_the_same_function(web, backbone, pygs):
    ours, data = new_model(web, backbone, 0, hidden_channels=2).convs[0], web.graphs[0]
    assert type(ours) not in {SAGEConv, SGConv}  # wide to narrow: the map comes first
    theirs = pygs(ours.in_channels, ours.out_channels)
    theirs.load_state_dict(ours.state_dict())
    edges = data.edge_index[:, data.edge_index.min(0).values > 3]  # so that some have no neighbour
    for conv in (ours, theirs):
        conv(data.x, edges).square().sum().backward()
    torch.testing.assert_close(ours(data.x, edges), theirs(data.x, edges))
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad)


@pytest.mark.parametrize("backbone", BACKBONES)
@torch.no_grad()
def test_graphs_in_a_batch_do_not_see_each_other(motifs, backbone):
    model = new_model(motifs, backbone, 0, hidden_channels=8).eval()
    batch = Batch.from_data_list(motifs.graphs[:5])
    together = model(batch.x, batch.edge_index, batch.batch)
    alone = torch.cat([model(g.x, g.edge_index) for g in motifs.graphs[:5]])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("backbone", BACKBONES)
def test_models_come_from_their_seed_and_from_their_file(either, backbone, tmp_path):
    state = torch.get_rng_state()
    model = new_model(either, backbone, 3, hidden_channels=8)
    assert torch.get_rng_state().equal(state)
    assert digest_model(new_model(either, backbone, 3, hidden_channels=8)) == digest_model(model)
    assert digest_model(new_model(either, backbone, 4, hidden_channels=8)) != digest_model(model)
    save_model(tmp_path / "a.model", model, note="mine")
    back = load_model(tmp_path / "a.model")
    assert type(back) is type(model)
    assert back.architecture == model.architecture
    assert digest_model(back) == digest_model(model)
    assert all(p.requires_grad and p.device.type == "cpu" for p in back.parameters())
    assert not back.training
    save_model(tmp_path / "b.model", model.to(torch.bfloat16))
    assert digest_model(load_model(tmp_path / "b.model")) == digest_model(model)  # precision and all
    assert torch.get_rng_state().equal(state)
    assert container.peek(tmp_path / "a.model")["body"]["about"] == {"note": "mine"}
    before = digest_model(model)
    model.reset_parameters()
    assert digest_model(model) != before


def test_weights_from_other_files(motifs, tmp_path):
    model = new_model(motifs, "GIN", 3, hidden_channels=8)
    torch.save(model.state_dict(), tmp_path / "a.pt")
    save_file(model.state_dict(), tmp_path / "a.safetensors")
    save_model(tmp_path / "a.model", model)
    for name in ("a.pt", "a.safetensors", "a.model"):
        blank = new_model(motifs, "GIN", 0, hidden_channels=8)
        before, back = digest_model(blank), load_model(tmp_path / name, blank)
        assert digest_model(back) == digest_model(model)
        assert digest_model(blank) == before  # the caller's own stays as it is
        assert blank.training
        assert not back.training


@pytest.mark.parametrize("options", [{}, {"nu": None, "clip": 0.2}, {"nu": 2.0, "non_negative": True}])
@torch.no_grad()
def test_a_head_travels_with_its_model(either, tmp_path, options):
    model = new_model(either, "GIN", 3, hidden_channels=8).eval()
    head = attach_head(model, 8, **options)
    save_model(tmp_path / "a.model", model)
    back = load_model(tmp_path / "a.model")
    assert back.perception.record() == head.record()
    assert digest_model(back) == digest_model(model)
    rows = torch.randn(5, 8, generator=torch.Generator().manual_seed(0))
    assert back.perception(rows).equal(head(rows))
    assert "perception" not in model.architecture


@pytest.mark.parametrize("model", [nn.Linear(2, 2), type("Mine", (SGC,), {})(3, 8, 1, 2)])
def test_what_cannot_be_rebuilt_is_not_saved(tmp_path, model):
    with pytest.raises(ParameterError, match="cannot be rebuilt") as caught:
        save_model(tmp_path / "a.model", model)
    assert "safetensors" in caught.value.advice
    assert not list(tmp_path.iterdir())


def whole_model(path, model):
    torch.save(model, path)


def garbage(path, model):
    path.write_bytes(b"not a model")


def bare_tensors(path, model):
    torch.save(list(model.state_dict().values()), path)


def numbered(path, model):
    torch.save(dict(enumerate(model.state_dict().values())), path)


def odd_head(path, model):
    plan = model.architecture | {"perception": {"width": 10**12, "nu": -1}}
    container.write(path, "model", {"architecture": plan}, dict(model.state_dict()))


def nothing(path, model):
    path.unlink(missing_ok=True)


def no_architecture(path, model):
    container.write(path, "model", {"about": {}}, dict(model.state_dict()))


def odd_architecture(path, model):
    container.write(path, "model", {"architecture": {"name": "GIN", "depth": 3}}, {})


def vast_architecture(path, model):
    vast = model.architecture | {"hidden_channels": 10**12}
    container.write(path, "model", {"architecture": vast}, dict(model.state_dict()))


def deep_architecture(path, model):
    deep = model.architecture | {"num_layers": 10**12}
    container.write(path, "model", {"architecture": deep}, dict(model.state_dict()))


MADE = [whole_model, garbage, nothing, no_architecture, odd_architecture]
MADE += [vast_architecture, deep_architecture, odd_head, bare_tensors, numbered]


@pytest.mark.parametrize("suffix", ["pt", "model"])
@pytest.mark.parametrize("make", MADE)
def test_what_is_no_model_is_a_file_error(motifs, tmp_path, make, suffix):
    model, path = new_model(motifs, "GIN", 3, hidden_channels=8), tmp_path / f"a.{suffix}"
    make(path, model)
    with pytest.raises(FileError) as caught:
        load_model(path, model if suffix == "pt" else None)
    assert caught.value.advice


def test_weights_of_another_width_are_refused(motifs, tmp_path):
    save_model(tmp_path / "a.model", new_model(motifs, "GIN", 3, hidden_channels=8))
    with pytest.raises(FileError, match="do not fit"):
        load_model(tmp_path / "a.model", new_model(motifs, "GIN", 3, hidden_channels=9))


@pytest.mark.parametrize("architecture", [{"name": "GAT"}, {}, {"name": None}])
def test_unknown_backbones(architecture):
    with pytest.raises(ParameterError) as caught:
        build(architecture)
    assert "GIN" in caught.value.advice


def test_sgc_has_one_layer():
    with pytest.raises(ParameterError, match="one layer"):
        SGC(3, 8, 2, 2)


def test_dropout_only_in_training(motifs):
    model, data = new_model(motifs, "GIN", 0, hidden_channels=32), motifs.graphs[0]
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d):
            module.eval()
    twice = [model(data.x, data.edge_index) for _ in range(2)]
    assert not twice[0].equal(twice[1])
    twice = [model.eval()(data.x, data.edge_index) for _ in range(2)]
    assert twice[0].equal(twice[1])


def test_an_architecture_may_be_a_function_that_builds_it(tmp_path, motifs, draw):
    model = new_model(motifs, "GIN", 0, hidden_channels=8)
    save_file(model.state_dict(), tmp_path / "w.safetensors")
    again = load_model(tmp_path / "w.safetensors", lambda: new_model(motifs, "GIN", 1, hidden_channels=8))
    for ours, theirs in zip(model.state_dict().values(), again.state_dict().values(), strict=True):
        assert torch.equal(ours, theirs)
    for wrong in (3, lambda: 3, "GIN"):
        with pytest.raises(ParameterError, match="not a model") as caught:
            load_model(tmp_path / "w.safetensors", wrong)
        assert "function without arguments" in caught.value.advice
