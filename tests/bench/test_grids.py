"""Grids: what they name is what runs, and what they cannot name is refused."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from invgnn.bench.grids.grid import chosen, command, load_grid
from invgnn.bench.report.check import flattened
from invgnn.bench.trials.measures import MEASURES
from invgnn.bench.trials.objects import find_scheme, told
from invgnn.errors import FileError, ParameterError

GRIDS = Path(__file__).parents[2] / "benchmarks" / "grids"
SMALL = """
about = "two parts"
settings = ["BA-2motif/GIN", "Cora/GCN"]
seeds = [2, 1]
epochs = 3

[[part]]
measure = "mark"
schemes = ["SS", "COS"]

[[part]]
measure = "scratch"
seeds = [1, 5]
thieves = ["1%"]
epochs = 7

[[differs]]
scheme = "ours"
field = "access"
why = "because"
"""


SCRATCH = 'measure = "scratch"\nseeds = [1, 5]\nthieves = ["1%"]'
SENSITIVITY = 'measure = "sensitivity"\nschemes = ["ours"]\n'


@pytest.fixture
def small(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return load_grid(path)


def test_seeds_come_in_turn_and_every_trial_once(small):
    found = [(m.name, a["seed"], a["setting"], a.get("scheme", a.get("thief"))) for m, a in small.trials()]
    assert len(found) == len(set(found)) == 2 * 2 * 2 + 2 * 2
    assert [seed for _, seed, *_ in found] == [2] * 4 + [1] * 6 + [5] * 2
    assert found[0] == ("mark", 2, "BA-2motif/GIN", "SS")
    assert {a["epochs"] for m, a in small.trials() if m.name == "mark"} == {3}
    assert {a["epochs"] for m, a in small.trials() if m.name == "scratch"} == {7}
    assert {a["controls"] for m, a in small.trials() if m.name == "mark"} == {19}
    assert small.differences[0].why == "because"


def test_a_plan_identifies_every_trial(small):
    planned = small.planned()
    assert len({one.id for one in planned}) == len({one.slot for one in planned}) == len(planned)
    ss, cos = (
        next(one for one in planned if one.arguments.get("scheme") == name) for name in ("SS", "COS")
    )
    assert ss.settings["scheme"]["keyed"]["m"] == cos.settings["scheme"]["m"] == 128
    assert ss.code != cos.code
    assert cos.command == command(small.path, "mark", cos.arguments)
    assert chosen(planned, [cos.command.split('"')[1]]) == [cos]  # the command names this trial alone


def test_a_selection_fits_all_of_its_conditions(small):
    planned = small.planned()
    assert len(chosen(planned, ["measure=mark; scheme=COS"])) == 4
    assert len(chosen(planned, ["scheme=COS; seed=1", "measure=scratch"])) == 6
    assert chosen(planned, []) == planned
    for bad in ("", "scheme", "scheme=none"):
        with pytest.raises(ParameterError, match="fits no trial"):
            chosen(planned, [bad])


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('measure = "mark"', 'measure = "marks"', "unknown measure"),
        ('"Cora/GCN"', '"Cora/GNC"', "not of the form"),
        ('thieves = ["1%"]', 'thieves = ["2%"]', "no thief"),
        ('thieves = ["1%"]', 'schemes = ["SS"]', "has the key 'schemes'"),
        (SCRATCH, f'{SENSITIVITY}levels = ["1"]', "not a share of the edges"),
        (SCRATCH, 'measure = "search"\nsearches = ["luck"]', "no search"),
        ('thieves = ["1%"]', "", "no key 'thieves'"),
        ("seeds = [2, 1]", 'seeds = ["a"]', "not a list of int"),
        ("epochs = 3", "epochs = 0", "positive whole number"),
        ("epochs = 3", "epoch = 3", "has the key 'epoch'"),
        ("why = ", "reason = ", "not a difference"),
        ("[[part]]", "[[parts]]", "has no part"),
    ],
)
def test_what_a_grid_cannot_name_is_refused_with_advice(tmp_path, old, new, said):
    path = tmp_path / "bad.toml"
    path.write_text(SMALL.replace(old, new))
    with pytest.raises(ParameterError, match=said) as caught:
        load_grid(path)
    assert caught.value.advice


def test_a_scheme_that_does_not_exist_is_refused_before_anything_runs(tmp_path):
    path = tmp_path / "bad.toml"
    path.write_text(SMALL.replace('"COS"', '"COSS"'))
    with pytest.raises(ParameterError, match="no scheme named 'COSS'"):
        load_grid(path).planned()


@pytest.mark.parametrize("text", ["= no toml", "\xff"])
def test_what_is_no_grid_is_refused(tmp_path, text):
    path = tmp_path / "bad.toml"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(FileError, match="cannot be read as a grid"):
        load_grid(path)
    with pytest.raises(FileError):
        load_grid(tmp_path / "none.toml")


def test_the_grids_of_the_repository_name_what_exists():
    sizes = {}
    for path in sorted(GRIDS.glob("*.toml")):
        grid = load_grid(path)
        sizes[grid.name] = len(grid.planned())
        assert grid.about
    assert sizes["main"] == 13 * 9 * 3
    assert set(sizes) == {"smoke", "main", "robustness", "ablations", "forgers"}
    smoke = load_grid(GRIDS / "smoke.toml")
    assert {part.measure.name for part in smoke.parts} == set(MEASURES)  # CI sees every kind of trial


def test_what_the_tuned_schemes_differ_in_is_written_down_before_anything_runs():
    """`bench check` sees it in the rows; this sees it in the settings."""
    kinds = {"Cora": "node", "PubMed": "node", "Photo": "node", "PROTEINS": "graph", "NCI1": "graph"}
    for path in sorted(GRIDS.glob("*.toml")):
        grid = load_grid(path)
        reported = [part for part in grid.parts if "hyperparameters" in part.measure.columns]
        settings = {one for part in reported for one in part.values["setting"]}
        tasks = {one.partition("/")[0] for one in settings} & kinds.keys()
        for name in {one for part in reported for one in part.values.get("scheme", ())} - {"SS", "ours"}:
            flat = [
                dict(
                    flattened(
                        json.loads(
                            told(find_scheme(name).suited(None, SimpleNamespace(name=t, level=kinds[t])))
                        )
                    )
                )
                for t in tasks
            ]
            differing = {key for one in flat for key in one if len({other.get(key) for other in flat}) > 1}
            assert differing <= {one.field for one in grid.differences if one.scheme == name}, (path, name)
