"""What one trial of a grid measures, on tasks that are small."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from invgnn.bench import marked, released
from invgnn.bench.trials import forged, kept, removals
from invgnn.bench.trials.marks import counted
from invgnn.bench.trials.measures import MEASURES, identified, perform
from invgnn.bench.trials.objects import code_of, find_change, find_scheme, settings_of
from invgnn.bench.trials.thieves import FRESH, HELD_OUT, SHARES, THIEVES, selects, thief_task
from invgnn.bench.trials.variants import varied
from invgnn.errors import ParameterError
from invgnn.schemes import COS, TRIG, Keyed

MODEL = {"setting": "BA-2motif/GIN", "seed": 41, "scheme": "TRIG", "epochs": 2, "controls": 1}


@pytest.fixture
def small(motifs, monkeypatch, tmp_path):
    """Every task is the small one, and trained models are kept in a folder of the test."""
    monkeypatch.setenv("INVGNN_CACHE", str(tmp_path))
    for module in (marked, released, removals, forged):
        monkeypatch.setattr(module, "load_task", lambda *_: motifs)
    kept.kept.cache_clear()
    yield
    kept.kept.cache_clear()


@pytest.mark.parametrize("thief", THIEVES)
def test_a_thief_has_nothing_else(motifs, web, thief):
    for task in (motifs, web):
        own, again = thief_task(task, thief, 1), thief_task(task, thief, 1)
        assert torch.equal(own.train, again.train)
        had = set(task.train.tolist()) if thief in SHARES else set(task.test.tolist())
        used = {*own.train.tolist(), *own.val.tolist()}
        assert used <= had
        assert not used & set(own.test.tolist())  # accuracy is measured on what nobody trained on
        assert not set(own.test.tolist()) & set(task.train.tolist())
        if thief in SHARES:
            assert len(used) == max(2, round(SHARES[thief] * len(task.train)))
        else:
            assert len(used) == len(task.test) // 2
            assert not used & {*task.train.tolist(), *task.val.tolist()}  # the owner never had it
        assert selects(own) == (len(used) // 10 >= HELD_OUT)


def test_all_thieves_are_measured_on_the_same_inputs(motifs):
    tests = [thief_task(motifs, thief, 3).test.tolist() for thief in THIEVES]
    assert all(one == tests[0] for one in tests)
    assert thief_task(motifs, FRESH, 4).test.tolist() != tests[0]
    with pytest.raises(ParameterError, match="no thief"):
        thief_task(motifs, "2%", 1)


def test_a_large_share_holds_a_tenth_out(motifs):
    import dataclasses

    whole = dataclasses.replace(motifs, train=torch.arange(200), test=torch.arange(200, 240))
    own = thief_task(whole, "100%", 1)
    assert (len(own.train), len(own.val)) == (180, 20)
    assert not set(own.train.tolist()) & set(own.val.tolist())
    assert selects(own)


def test_settings_and_code_identify_a_trial():
    settings, code = identified("change", {"scheme": "COS", "change": "prune 40%"})
    assert settings["change"] == {"share": 0.4} or 0.4 in settings["change"].values()
    assert settings["scheme"]["weight"] == COS().weight
    assert code != identified("mark", {"scheme": "COS"})[1]
    assert settings_of(Keyed())["recipe"]["beta"] == 1.0
    json.dumps(settings_of(find_change("distil")))
    assert code_of([], [COS()]) == code_of([], [COS(weight=9)]) != code_of([], [TRIG()])


def test_arguments_and_figures_have_names_of_their_own():
    """A row is one line of a file, so a figure must not take the place of an argument."""
    for kind in MEASURES.values():
        names = [*kind.arguments, *kind.all_columns]
        assert len(set(names)) == len(names), kind.name
        assert {"seed", "setting"} <= set(kind.arguments)


@pytest.mark.story
def test_a_model_is_trained_once_and_is_the_same_from_disk(small):
    arguments = [MODEL[name] for name in ("setting", "seed", "scheme", "epochs")]
    first = kept.kept(*arguments)
    kept.kept.cache_clear()
    second = kept.kept(*arguments)
    assert second.model is not first.model
    for name, value in first.model.state_dict().items():
        assert torch.equal(value, second.model.state_dict()[name])
    assert second.seconds == first.seconds  # it was not trained again
    assert second.mark.read(second.model) == first.mark.read(first.model)


@pytest.mark.story
@pytest.mark.parametrize(
    ("measure", "more"),
    [
        ("mark", {}),
        ("change", {"change": "FT-clean 20 epochs", "thief": "10%"}),
        ("scratch", {"thief": "fresh"}),
        ("variant", {"scheme": "ours", "variant": "m=32 beta=2"}),
        ("forgery", {"forgery": "transcribe answers"}),
    ],
)
def test_every_kind_of_trial_gives_one_row(small, measure, more):
    given = {**MODEL, **more}
    kind = MEASURES[measure]
    (row,) = perform(measure, {name: given[name] for name in kind.arguments})
    assert set(row) == set(kind.all_columns)
    assert row["reason"] == ""
    assert all("\n" not in str(value) for value in row.values())
    if measure == "change":
        assert row["labels"] == 16
        assert json.loads(row["hyperparameters"])["weight"] == 1.0
    if measure == "variant":
        assert (row["asked"], row["tau"]) == (32, 30)
    if measure == "forgery":
        assert row["naive_passes"] == 1
        assert row["succeeds"] == 0
    if measure == "mark":
        assert row["questions"] == 128 + 64


@pytest.mark.story
def test_a_scheme_that_cannot_serve_a_task_gives_a_reason(small):
    (row,) = perform("mark", {**MODEL, "scheme": "EXPL"})
    assert "too few" in row["reason"]
    assert row["bits"] == ""
    (row,) = perform("forgery", {**MODEL, "forgery": "overlapping sets"})
    assert "does not apply" in row["reason"]


def test_questions_are_counted(motifs):
    from torch_geometric.data import Batch

    from invgnn.training.tasks import new_model

    model = new_model(motifs, "GIN", 0, hidden_channels=8).eval()
    with counted(model) as shown:
        for size in (3, 1):
            batch = Batch.from_data_list(motifs.graphs[:size])
            model(batch.x, batch.edge_index, batch.batch)
    assert shown == [3, 1]
    model(batch.x, batch.edge_index, batch.batch)
    assert len(shown) == 2


def test_variants_change_what_they_name(references, motifs):
    from invgnn.secret import Secret

    plain = find_scheme("InvGNN-WM (best)")
    mark = (
        varied(plain, "m=16 invariant=spectral_radius delta=0.05").prepare(Secret(bytes(32)), motifs).mark
    )
    assert (mark.m, mark.context["invariant"], mark.context["sampler"]["delta"]) == (
        16,
        "spectral_radius",
        0.05,
    )
    assert mark.context["key"] == "plain"
    assert mark.recipe == plain.prepare(Secret(bytes(32)), motifs).mark.recipe
    assert varied(Keyed(), "beta=0.5").changed.recipe == replace(Keyed().recipe, beta=0.5)
    for scheme, variant in ((Keyed(), "colour=2"), (COS(), "m=16")):
        with pytest.raises(ParameterError):
            varied(scheme, variant)
