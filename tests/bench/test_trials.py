"""What one trial of a grid measures, on tasks that are small."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import binomtest, hypergeom

from invgnn.bench import marked, released
from invgnn.bench.trials import (
    drift,
    ensembles,
    forged,
    kept,
    removals,
    searches,
    sensitivity,
    uniqueness,
)
from invgnn.bench.trials.marks import counted
from invgnn.bench.trials.measures import MEASURES, identified, perform
from invgnn.bench.trials.objects import code_of, find_change, find_scheme, settings_of
from invgnn.bench.trials.thieves import FRESH, HELD_OUT, SHARES, THIEVES, selects, thief_task
from invgnn.bench.trials.variants import varied
from invgnn.errors import ParameterError
from invgnn.graphs.invariants import INVARIANTS
from invgnn.schemes import COS, TRIG, Keyed

MODEL = {"setting": "BA-2motif/GIN", "seed": 41, "scheme": "TRIG", "epochs": 2, "controls": 1}


@pytest.fixture(autouse=True)
def _invariants():
    """Ensembles that a test registers are known in that test only."""
    before = dict(INVARIANTS)
    yield
    for name in INVARIANTS.keys() - before.keys():
        del INVARIANTS[name]


@pytest.fixture
def small(motifs, monkeypatch, tmp_path):
    """Every task is the small one, and trained models are kept in a folder of the test."""
    monkeypatch.setenv("INVGNN_CACHE", str(tmp_path))
    for module in (marked, released, removals, forged, searches):
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


@pytest.mark.story
@pytest.mark.parametrize(
    ("measure", "more"),
    [
        ("refresh", {"scheme": "ours"}),
        ("uniqueness", {"scheme": "InvGNN-WM (best)"}),
        ("uniqueness", {"scheme": "ours"}),
        ("sensitivity", {"scheme": "ours", "level": "0%"}),
        ("sensitivity", {"scheme": "InvGNN-WM (best)", "level": "10%"}),
        ("search", {"search": "random", "audits": 40}),
        ("variant", {"scheme": "InvGNN-WM (best)", "variant": "invariant=lambda2+triangle_count m=32"}),
    ],
)
def test_the_studies_give_one_row(small, monkeypatch, measure, more):
    monkeypatch.setattr(uniqueness, "DRAWS", 10_000)
    given = {**MODEL, **more}
    kind = MEASURES[measure]
    (row,) = perform(measure, {name: given[name] for name in kind.arguments})
    assert set(row) == set(kind.all_columns)
    assert row["reason"] == ""
    assert all("\n" not in str(value) for value in row.values())
    if measure == "sensitivity":
        assert sum(row[f"{band}_count"] for band in sensitivity.BANDS) == row["asked"] == 128
        assert sum(row[f"{band}_right"] for band in sensitivity.BANDS) == row["matches"]
        assert (row["change"] == 0) == (more["level"] == "0%")
    if measure == "search":
        assert row["after"] == "10 30 40"
        assert len(row["bits"].split()) == 3
    if measure == "variant":
        assert json.loads(row["hyperparameters"])["base"]["beta"] == 10.0  # still tuned for graph tasks
    if measure == "uniqueness":
        assert (row["draws"], row["tau"]) == (10_000, 92)


@pytest.mark.story
def test_rivals_have_no_carriers_to_measure(small):
    for measure, more in (("uniqueness", {}), ("refresh", {}), ("sensitivity", {"level": "1%"})):
        kind = MEASURES[measure]
        given = {**MODEL, **more}
        (row,) = perform(measure, {name: given[name] for name in kind.arguments})
        assert "TRIG" in row["reason"]


def test_strangers_with_keyed_marks_follow_the_exact_law():
    """One model that says 20 ones of 32: T = 2X + 16 - 20 with X hypergeometric."""
    m, tau, draws = 32, 20, 200_000
    said = np.array([[1] * 20 + [0] * 12])
    bits = np.zeros((1, m), dtype=np.int64)  # they are drawn anew
    hits = uniqueness.strangers([said], bits, tau, draws, False, np.random.default_rng(1))
    exact = hypergeom(m, 20, 16).sf((tau - 16 + 20) / 2 - 1)
    assert binomtest(hits, draws, exact).pvalue > 1e-4


def test_strangers_with_plain_marks_draw_half_of_each_bit_from_the_pool():
    """Of 64 ones 48 are right, of 64 zeros 32: T is a sum of two hypergeometric numbers."""
    tau, draws = 44, 200_000
    bits = np.array([[0] * 32 + [1] * 32] * 2)
    said = bits.copy()
    said[:, :16] = 1  # 16 zeros of each mark are wrong
    said[:, 32:40] = 0  # and 8 ones
    hits = uniqueness.strangers([said], bits, tau, draws, True, np.random.default_rng(1))
    zeros, ones = (hypergeom(64, good, 32) for good in (32, 48))
    exact = sum(zeros.pmf(k) * ones.sf(tau - k - 1) for k in range(33))
    assert binomtest(hits, draws, exact).pvalue > 1e-4


def test_bands_tell_a_small_change_from_a_crossing():
    old = np.array([0.9, 0.9, 0.9, 0.1, 0.45, 0.55])
    new = np.array([0.85, 0.7, 0.4, 0.2, 0.52, 0.55])
    assert sensitivity.bands(old, new).tolist() == [0, 1, 2, 0, 2, 0]
    assert sensitivity.share_of("2.5%") == 0.025
    for bad in ("5", "-1%", "101%", "%", "5% "):
        with pytest.raises(ParameterError, match="not a share"):
            sensitivity.share_of(bad)


def test_edits_of_carriers_change_as_many_edges_as_they_say(references):
    graphs = references["graph"].graphs.take(np.arange(20))
    fewer = np.arange(20) % 2 == 0
    made = sensitivity.edited(graphs, fewer, 0.1, np.random.default_rng(0))
    before, after = np.diff(graphs.edge_ptr), np.diff(made.edge_ptr)
    count = np.ceil(0.1 * before)
    assert ((after - before) == np.where(fewer, -count, count)).all()
    assert (made.ptr == graphs.ptr).all()
    assert np.array_equal(made.x, graphs.x) if graphs.x is not None else made.x is None
    for number in range(20):
        old, new = (
            {tuple(edge) for edge in g.edges[g.edge_ptr[number] : g.edge_ptr[number + 1]].tolist()}
            for g in (graphs, made)
        )
        assert (new < old) if fewer[number] else (old < new)
    assert np.array_equal(
        sensitivity.edited(graphs, fewer, 0.0, np.random.default_rng(0)).edges, graphs.edges
    )


def test_drift_is_that_of_the_weights():
    first = torch.nn.Linear(3, 1)
    second = torch.nn.Linear(3, 1)
    with torch.no_grad():
        for model, value in ((first, 1.0), (second, 1.5)):
            for one in model.parameters():
                one.fill_(value)
    assert drift.weight_change(first, second) == pytest.approx(0.5)
    assert drift.weight_change(first, torch.nn.Linear(4, 1)) is None
    assert drift.margin(np.array([0.9, 0.2, 0.55])) == 0.05


def test_an_ensemble_is_the_mean_of_the_normalised_invariants(motifs, references):
    name = ensembles.known_invariant("lambda2+triangle_count", motifs)
    graphs, reference = references["graph"].graphs.take(np.arange(9)), references["graph"]
    parts = [reference.scale(one)(INVARIANTS[one](graphs)) for one in ("lambda2", "triangle_count")]
    assert INVARIANTS[name](graphs) == pytest.approx((parts[0] + parts[1]) / 2)
    assert ensembles.known_invariant("lambda2+triangle_count", motifs) == name
    assert ensembles.known_invariant("lambda2", motifs) == "lambda2"
    with pytest.raises(ParameterError, match="unknown invariant"):
        ensembles.known_invariant("lambda2+colour", motifs)


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
    suited = varied(plain, "m=16").suited(None, motifs)  # what was tuned for graph tasks stays
    assert (suited.changed.m, suited.changed.beta) == (16, plain.suited(None, motifs).beta)
    assert varied(plain, "beta=0.1").suited(None, motifs).changed.beta == 0.1
    assert varied(Keyed(), "beta=0.5").changed.recipe == replace(Keyed().recipe, beta=0.5)
    for scheme, variant in ((Keyed(), "colour=2"), (COS(), "m=16")):
        with pytest.raises(ParameterError):
            varied(scheme, variant)
