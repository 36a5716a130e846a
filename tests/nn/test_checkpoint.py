"""Checkpoints as people save them are opened; what does not fit gets advice that does."""

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.optim.swa_utils import AveragedModel

from invgnn.errors import FileError, ParameterError
from invgnn.nn.checkpoint import fitted
from invgnn.nn.model_file import load_model


class Net(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.body, self.norm, self.out = nn.Linear(3, width), nn.BatchNorm1d(width), nn.Linear(width, 2)

    def forward(self, data):
        return self.out(self.norm(self.body(data.x)))


class Task(nn.Module):
    """What Lightning users write: the net inside a module with other parts."""

    def __init__(self, net):
        super().__init__()
        self.net, self.weighting = net, nn.Linear(1, 1)


@pytest.fixture
def net():
    return Net()


def renamed(net, prefix):
    return {f"{prefix}{name}": value for name, value in net.state_dict().items()}


def same(loaded, net):
    assert all(value.equal(net.state_dict()[name]) for name, value in loaded.state_dict().items())
    assert not loaded.training


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".ckpt", ".bin"])
@pytest.mark.parametrize(
    "wrap",
    [
        dict,
        lambda state: {"state_dict": state, "epoch": 3, "optimizer_states": [{"lr": 0.1}]},
        lambda state: {"model": state, "optimizer": {"state": {}}},
        lambda state: {"model_state_dict": state, "optimizer_state_dict": {"state": {}}},
        lambda state: {"weights": state, "step": 7},
    ],
)
def test_wrapped_state_dicts_are_opened(wrap, suffix, net, tmp_path):
    torch.save(wrap(net.state_dict()), tmp_path / f"net{suffix}")
    same(load_model(tmp_path / f"net{suffix}", Net), net)


@pytest.mark.parametrize(
    "prefix", ["module.", "_orig_mod.", "model.", "module._orig_mod.", "_orig_mod.module.net."]
)
def test_prefixes_of_wrappers_are_removed(prefix, net, tmp_path):
    save_file(renamed(net, prefix), tmp_path / "net.safetensors")
    same(load_model(tmp_path / "net.safetensors", lambda: Net()), net)


def test_other_parts_of_a_wrapper_are_left_out(net, tmp_path):
    torch.save({"state_dict": Task(net).state_dict()}, tmp_path / "task.ckpt")
    same(load_model(tmp_path / "task.ckpt", Net), net)
    torch.save(AveragedModel(net).state_dict(), tmp_path / "averaged.pt")
    same(load_model(tmp_path / "averaged.pt", Net), net)


def test_a_compiled_part_is_found_and_a_prefix_may_be_missing(net):
    found = fitted({"body._orig_mod.weight": 1}, ["body.weight"])
    assert found == {"body.weight": 1}
    assert fitted({"body.weight": 1}, ["net.body.weight"]) == {"net.body.weight": 1}


def test_a_checkpoint_of_two_such_models_is_not_guessed(net, tmp_path):
    torch.save(renamed(net, "student.") | renamed(net, "teacher."), tmp_path / "two.pt")
    with pytest.raises(FileError, match=r"student\.body\.bias(.|\n)*no name is the same"):
        load_model(tmp_path / "two.pt", Net)


def test_advice_fits_the_failure(net, tmp_path):
    torch.save(net.state_dict(), tmp_path / "net.pt")
    with pytest.raises(FileError, match=r"body\.weight is \[4, 3\], not \[5, 3\](.|\n)*with the widths"):
        load_model(tmp_path / "net.pt", lambda: Net(5))
    with pytest.raises(FileError, match=r"unknown norm\.(.|\n)*norms and biases"):
        load_model(tmp_path / "net.pt", nn.ModuleDict({"body": nn.Linear(3, 4), "out": nn.Linear(4, 2)}))
    with pytest.raises(ParameterError, match="lambda: Linear"):
        load_model(tmp_path / "net.pt", nn.Linear)
    with pytest.raises(FileError, match="pass architecture="):
        load_model(tmp_path / "net.pt")
    with pytest.raises(FileError, match="no file") as absent:
        load_model(tmp_path / "absent.pt")
    assert "architecture" not in str(absent.value)


def test_python_objects_are_never_loaded(net, tmp_path):
    torch.save(net, tmp_path / "whole.pt")
    with pytest.raises(FileError, match=r"Python object [\w.]*Net, which is never loaded"):
        load_model(tmp_path / "whole.pt", Net)
    torch.save({"epoch": 3, "lr": 0.1}, tmp_path / "empty.ckpt")
    with pytest.raises(FileError, match="no state dict, but the entries epoch, lr"):
        load_model(tmp_path / "empty.ckpt", Net)
    (tmp_path / "text.pt").write_text("no weights")
    with pytest.raises(FileError, match="not"):
        load_model(tmp_path / "text.pt", Net)
    with pytest.raises(FileError, match="no file"):
        load_model(tmp_path / "none.pt", Net)
