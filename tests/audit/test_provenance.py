"""What stands between an auditor and the weights: every tensor and every piece of foreign code is named."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations
from torch_geometric.nn import GAT, GINConv, global_mean_pool

from invgnn.audit.provenance import digest_model, require_plain, trace
from invgnn.audit.verify import verify
from invgnn.errors import SuspectError
from invgnn.nn.model_file import save_model
from invgnn.secret import Secret
from invgnn.training.tasks import new_model
from invgnn.training.trainer import train
from invgnn.watermark.mark import Watermark


class Own(nn.Module):
    """A user's model, with all that such models keep."""

    def __init__(self):
        super().__init__()
        mlp = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8))
        self.conv, self.head = GINConv(mlp), nn.Linear(8, 2)

    def forward(self, x, edge_index, batch):
        return self.head(global_mean_pool(self.conv(x, edge_index).relu(), batch))


def whisper(module, args):
    return None


@pytest.fixture
def model():
    return Own().eval()


def test_library_models_bring_no_foreign_code(motifs):
    for backbone in ("GIN", "GCN", "GraphSAGE"):
        found = trace(new_model(motifs, backbone, 0, hidden_channels=8))
        assert (found.foreign, found.unsaved, found.unknown) == ((), (), ())
    assert trace(GAT(4, 8, 2, 2, norm="batch_norm", jk="cat")).foreign == ()
    assert trace(nn.LSTM(3, 3)).foreign == ()
    assert trace(parametrizations.weight_norm(nn.Linear(2, 2))).foreign == ()


def test_a_class_of_the_users_is_named_with_its_source(model):
    (code,) = trace(model).foreign
    assert (code.what, code.origin) == ("class", "auditor")
    assert code.name.endswith("test_provenance.Own")
    assert len(code.source) == 64
    assert trace(model, "claimant").foreign[0].origin == "claimant"


def persistent(model):
    model.register_buffer("kept", torch.ones(2))


def unsaved(model):
    model.register_buffer("tip", torch.ones(2), persistent=False)


def attribute(model):
    model.tip = torch.ones(2)


def in_a_list(model):
    model.tips = {"all": [torch.ones(2)]}


def numpy_array(model):
    model.tip = np.ones(2)


def hidden_module(model):
    model.held = (nn.Linear(2, 2),)


def hook(model):
    model.head.register_forward_pre_hook(whisper)


def after_hook(model):
    model.conv.register_forward_hook(lambda *_: None)


def message_hook(model):
    model.conv.register_message_forward_hook(lambda *_: None)


def override(model):
    model.head.forward = lambda rows: rows[:, :2]


def function(model):
    model.squash = lambda rows: rows


def parametrised(model):
    class Double(nn.Module):
        def forward(self, weight):
            return 2 * weight

    nn.utils.parametrize.register_parametrization(model.head, "weight", Double())


CHANGES = [persistent, unsaved, attribute, in_a_list, numpy_array, hidden_module]
CHANGES += [hook, after_hook, message_hook, override, function, parametrised]


@pytest.mark.parametrize("change", CHANGES, ids=lambda one: one.__name__)
def test_the_digest_covers_whatever_a_forward_pass_can_read_or_run(model, change):
    before = digest_model(model)
    assert digest_model(copy.deepcopy(model)) == before
    change(model)
    assert digest_model(model) != before


def test_a_subclass_with_the_same_weights_has_another_digest(model):
    class Knows(Own):
        def forward(self, x, edge_index, batch):
            return super().forward(x, edge_index, batch)

    other = Knows().eval()
    other.load_state_dict(model.state_dict())
    assert trace(other).tensors == trace(model).tensors
    assert digest_model(other) != digest_model(model)


def test_a_value_that_is_read_changes_the_digest(model):
    unsaved(model)
    attribute_of = copy.deepcopy(model)
    attribute_of.tip[0] = 7
    assert digest_model(attribute_of) != digest_model(model)


@pytest.mark.parametrize(
    "change", [unsaved, attribute, in_a_list, numpy_array, hook, after_hook, message_hook, override]
)
def test_an_architecture_with_more_than_weights_is_refused(model, draw, tmp_path, change):
    torch.save(model.state_dict(), tmp_path / "a.pt")
    mark = draw(m=16)
    plain = verify(tmp_path / "a.pt", mark, architecture=Own())
    assert plain.digests["suspect"] == digest_model(model)
    blank = Own()
    change(blank)
    with pytest.raises(SuspectError, match="no weights file replaces") as caught:
        verify(tmp_path / "a.pt", mark, architecture=blank)
    assert caught.value.advice
    require_plain(Own())


def test_hooks_for_every_module_are_seen(model):
    before = digest_model(model)
    handle = nn.modules.module.register_module_forward_pre_hook(whisper)
    try:
        assert digest_model(model) != before
        assert any("every module" in one.name for one in trace(model).foreign)
    finally:
        handle.remove()
    assert digest_model(model) == before


def test_a_library_method_that_was_replaced_is_seen(model, monkeypatch):
    before = digest_model(model)
    monkeypatch.setattr(nn.Linear, "forward", lambda self, rows: rows @ self.weight.T + self.bias)
    assert any(one.what == "override" for one in trace(model).foreign)
    assert digest_model(model) != before


def test_a_class_that_only_claims_to_be_a_librarys_is_foreign(model):
    class Linear(nn.Linear):
        pass

    Linear.__module__, Linear.__qualname__ = "torch.nn.modules.linear", "Linear"
    model.head = Linear(8, 2)
    assert len(trace(model).foreign) == 2


def test_a_verdict_names_the_code_and_who_wrote_it(model, draw):
    mark = draw(m=16)
    model.head.register_forward_pre_hook(whisper)
    verdict = verify(model, mark)
    names = [(one["what"], one["origin"]) for one in verdict.code["foreign"]]
    assert names == [("class", "auditor"), ("hook", "auditor")]
    assert "whisper" in verdict.condition
    assert "test_provenance.Own" in verdict.condition
    other = verify(
        model, mark, code_from="claimant", forward=lambda net, b: net(b.x, b.edge_index, b.batch)
    )
    assert {one["origin"] for one in other.code["foreign"]} == {"claimant"}
    assert [one["what"] for one in other.code["foreign"]] == ["class", "hook", "function"]
    assert other.called == "through a forward function given by the verifier"


def test_caches_of_convolutions_are_no_part_of_a_model(web):
    from torch_geometric.nn import GCNConv

    conv = GCNConv(5, 2, cached=True)
    before = digest_model(conv)
    conv(web.graphs[0].x, web.graphs[0].edge_index)
    assert digest_model(conv) == before


# --- code that hides


def turning(model):
    """A class that turns into an innocent one while it answers."""

    class Turns(type(model)):
        def forward(self, x, edge_index, batch=None):
            scores = super().forward(x, edge_index, batch)
            self.__class__ = type(model)
            return scores

    model.__class__ = Turns


def load_hook(model):
    model.register_load_state_dict_post_hook(lambda module, keys: None)


def fake_parametrisation(model):
    class Fake(type(model)):
        parametrizations = nn.ModuleDict({"a": nn.Identity()})

    model.__class__ = Fake


def stateful_partial(model):
    from functools import partial

    model.squash = partial(torch.nn.functional.l1_loss, target=torch.ones(1), reduction="none")


def bound_method(model):
    model.__dict__["_drop"] = nn.Sequential(nn.Linear(8, 8)).forward


def tensor_subclass(model):
    class Knowing(nn.Parameter):
        pass

    name, held = next(iter(model.head.named_parameters()))
    setattr(model.head, name, Knowing(held.detach().clone()))


def another_setting(model):
    model.convs[0].nn.norms[0].module.eps = 3.0


HIDING = [turning, load_hook, fake_parametrisation, stateful_partial, bound_method, tensor_subclass]


@pytest.mark.parametrize("hide", [*HIDING, another_setting], ids=lambda one: one.__name__)
def test_nothing_hides_under_the_honest_digest(motifs, draw, hide):
    model = new_model(motifs, "GIN", 0, hidden_channels=8)
    before = digest_model(model)
    hide(model)
    assert digest_model(model) != before
    if hide is another_setting:
        return
    assert trace(model).foreign
    verdict = verify(model, draw(m=16), code_from="claimant")
    assert verdict.digests["suspect"] != before
    assert verdict.code["foreign"]


@pytest.fixture(scope="module")
def taught(motifs):
    """A mark, and a model of the library's that carries it."""
    mark = Watermark.draw(Secret(b"p" * 32), motifs.data)
    model = new_model(motifs, "GIN", 1)
    train(model, motifs, mark, epochs=40)
    return mark, model


def test_a_suspect_that_changes_while_it_is_asked_is_never_owned(taught):
    """Weights that answer are not the weights that are shown afterwards."""
    mark, model = taught[0], copy.deepcopy(taught[1])
    assert verify(model, mark).status == "owned"

    class Sheds(type(model)):
        def forward(self, x, edge_index, batch=None):
            scores = super().forward(x, edge_index, batch)
            with torch.no_grad():
                self.head.weight.mul_(0.5)
            return scores

    model.__class__ = Sheds
    verdict = verify(model, mark)
    assert verdict.status == "inconclusive"
    assert "changed while it was queried" in verdict.reasons[0]


def test_of_a_claimant_only_a_file_that_is_rebuilt_is_owned(taught, tmp_path):
    mark, model = taught[0], copy.deepcopy(taught[1])
    save_model(tmp_path / "a.model", model)
    assert verify(tmp_path / "a.model", mark, code_from="claimant").status == "owned"
    assert verify(model, mark, code_from="claimant").status == "inconclusive"  # an object can hide code

    class His(type(model)):
        pass

    model.__class__ = His
    verdict = verify(model, mark, code_from="claimant")
    assert verdict.status == "inconclusive"
    assert "code or objects of the claimant" in verdict.reasons[0]
    assert verify(model, mark).status == "owned"


def test_what_a_closure_holds_is_part_of_the_digest(model):
    def hook_with(value):
        return lambda module, args: print(value) if module is None else None

    digests = set()
    for value in (torch.zeros(3), torch.ones(3), 7):
        twin = copy.deepcopy(model)
        twin.head.register_forward_pre_hook(hook_with(value))
        digests.add(digest_model(twin))
    assert len(digests) == 3


def test_a_wrapper_of_another_class_is_not_unwrapped(motifs):
    model = new_model(motifs, "GIN", 0, hidden_channels=8)

    class TwoFaced(nn.DataParallel):
        pass

    assert digest_model(nn.DataParallel(model)) == digest_model(model)
    assert digest_model(TwoFaced(model)) != digest_model(model)


def test_scripted_code_is_foreign():
    class Plain(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(2, 2)

        def forward(self, x):
            return self.lin(x)

    with pytest.warns(DeprecationWarning, match="torch.jit.script"):
        scripted = torch.jit.script(Plain())
    assert all(one.origin == "auditor" for one in trace(scripted).code)
    assert len(trace(scripted).foreign) == 2


def test_what_serves_a_model_is_no_part_of_the_library(motifs):
    from invgnn.attacks.denial import Serve

    served = Serve(digits=2)(new_model(motifs, "GIN", 0, hidden_channels=8), motifs)
    assert any("Endpoint" in one.name for one in trace(served).foreign)
