"""Calibration end to end on a small task, compared with independent computations."""

from __future__ import annotations

import json
import math
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from invgnn.cli import app
from invgnn.cli.calibrate import _words
from invgnn.errors import ParameterError
from invgnn.theory import calibration
from invgnn.theory.calibration import calibrate
from invgnn.theory.imperceptibility import beta_max
from invgnn.theory.outcome import Plan

SMALL = Plan(epochs=5, checkpoints=4, marked=2, graphs=4, m=16, grid=(1.0, 0.1), alpha=1e-4)


@pytest.fixture(scope="module")
def found(motifs):
    stages = {}

    @contextmanager
    def stage(label, total):
        stages[label] = [total, 0]

        def tick(done):
            stages[label][1] += done

        yield tick

    return calibrate("BA-2motif/GIN", SMALL, task=motifs, stage=stage), stages


def test_every_stage_tells_all_its_work(found):
    assert len(found[1]) == 5
    assert all(total == done for total, done in found[1].values())


def test_the_constants_and_the_weights_belong_together(found):
    result = found[0]
    bend, steep = result.curvature, result.lipschitz
    assert bend.points == 8
    assert result.certified == beta_max(bend.envelope, SMALL.eps, 1.12 * steep.measured)
    assert result.chosen.beta <= result.certified
    assert [trial.beta for trial in result.trials] == [0.1, 1.0]
    assert result.control.beta == 0
    for trial in (result.control, *result.trials, result.chosen):
        assert trial.embedded == (trial.bits >= math.log2(1e4))
        assert trial.theorem.radius == result.radius > 0
        assert trial.theorem.pull == pytest.approx(2 * trial.beta * steep.value)
        failed = any(given.holds is False for given in trial.theorem.assumptions)
        assert (trial.theorem.standing == "vacuous") == (failed or trial.beta > result.certified)


def test_the_control_has_no_mark_and_repeats(motifs, found):
    again = calibrate("BA-2motif/GIN", replace(SMALL, grid=(1.0,)), task=motifs)
    assert again.control == found[0].control
    assert again.trials[0] == found[0].trials[1]


def test_rows_and_record_are_plain(found):
    record, rows = found[0].record(), found[0].rows()
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    assert [row["run"] for row in rows] == ["control", "grid", "grid", "chosen"]
    assert len({tuple(row) for row in rows}) == 1  # one header serves all
    assert not any(isinstance(value, dict | list) for row in rows for value in row.values())
    assert (
        record["assumptions"]["the task loss is one function of the parameters: no running statistics"]
        is False
    )


@pytest.mark.parametrize("access", ["perception", "logits"])
def test_other_readings(motifs, access):
    plan = replace(SMALL, access=access, grid=(0.5,), epochs=4)
    result = calibrate("BA-2motif/GCN", plan, task=motifs)
    assert (result.chosen.bits is None) == (access == "perception")  # a plain key has no exact null
    assert 0 < result.certified < math.inf
    assert result.chosen.theorem.assumptions[3].holds is True  # no batch normalisation, no buffers


def test_a_node_task(web):
    result = calibrate("Cora/GCN", replace(SMALL, grid=(0.5,)), task=web)
    assert 0 < result.certified < math.inf


# --- choosing


def trial_at(template, beta, *, inside=True, val_acc=0.9, bits=0.0):
    theorem = replace(template.theorem, beta=beta, distance=0.0 if inside else math.inf)
    return replace(template, theorem=theorem, val_acc=val_acc, bits=bits)


def choose(found, seen, control_inside, retries=3):
    """Run `reduced` with trials that stay inside the neighbourhood only up to beta 0.3."""

    def trial(beta, tick):
        seen.append(beta)
        return trial_at(found.control, beta, inside=beta <= 0.3)

    work = SimpleNamespace(plan=replace(SMALL, retries=retries), stage=calibration.quiet, trial=trial)
    control = trial_at(found.control, 0.0, inside=control_inside)
    return calibration._Work.reduced(work, 1.0, control)


def test_the_weight_is_halved_until_training_stays_inside(found):
    seen = []
    assert choose(found[0], seen, control_inside=True).beta == 0.25
    assert seen == [1.0, 0.5, 0.25]
    seen.clear()
    assert not choose(found[0], seen, control_inside=True, retries=1).theorem.inside
    assert seen == [1.0, 0.5]


def test_no_weight_is_halved_where_training_leaves_by_itself(found):
    seen = []
    assert choose(found[0], seen, control_inside=False).beta == 1.0
    assert seen == [1.0]


def graded(result):
    """Return four trials: one keeps accuracy only, two also embed, one embeds and loses accuracy."""
    base, figures = result.control, [(0.01, 0.9, 0), (0.1, 0.89, 14), (1.0, 0.885, 20), (10.0, 0.5, 20)]
    trials = tuple(trial_at(base, beta, val_acc=acc, bits=bits) for beta, acc, bits in figures)
    return replace(result, control=trial_at(base, 0.0), trials=trials, chosen=trial_at(base, 1e-4))


def test_the_accurate_and_the_useful_weight(found):
    result = graded(found[0])
    assert result.accurate.beta == 1.0
    assert result.useful.beta == 0.1
    none = replace(result, trials=result.trials[-1:])
    assert none.accurate is none.useful is None
    assert none.record()["beta_val"] is None


def test_a_plain_key_counts_matches(found):
    plain = replace(found[0].control, bits=None, m=128, alpha=1e-6)
    assert [replace(plain, matches=t).embedded for t in (91, 92)] == [False, True]
    assert "no exact null" in _words(replace(found[0], chosen=plain))


def test_words_say_what_embeds(found):
    result = graded(found[0])
    said = _words(result)
    assert "embeds nothing" in said
    assert "useful weight is 0.1" in " ".join(said.split())
    assert "unsound" in said
    assert max(map(len, said.splitlines())) <= 80
    enough = _words(replace(result, chosen=trial_at(result.control, 1e-4, bits=14)))
    assert "embeds the mark" in enough
    nothing = " ".join(_words(replace(result, trials=result.trials[-1:])).split())
    assert "No weight tried embeds the mark and keeps the accuracy" in nothing
    assert "no weight tried keeps the validation accuracy" in nothing
    assert "too little" in _words(replace(result, chosen=trial_at(result.control, 1e-4, bits=8)))


# --- the verb


def test_the_verb(motifs, monkeypatch):
    monkeypatch.setattr(calibration, "load_task", lambda name, seed: motifs)
    options = (
        "--task BA-2motif/GCN --epochs 3 --checkpoints 9 --marked 2 --graphs 4 --m 16 --grid 0.5 --json"
    )
    done = CliRunner().invoke(app, ["calibrate", *options.split()])
    assert done.exit_code == 0, done.stderr
    record = json.loads(done.stdout)
    assert record["setting"] == "BA-2motif/GCN"
    assert record["points"] == 6  # as many checkpoints as there are epochs
    assert "training without the mark" in done.stderr


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("--task PROTEINS", "TASK/BACKBONE"),
        ("--task PROTEINS/GIN --grid a,b", "not a list of numbers"),
        ("--task PROTEINS/GIN --grid 0", "above 0"),
        ("--task PROTEINS/GIN --access labels", "no gradient"),
        ("--task PROTEINS/GIN --eps 0", "eps"),
    ],
)
def test_the_verb_refuses(options, told):
    done = CliRunner().invoke(app, ["calibrate", *options.split()])
    assert done.exit_code == 2
    assert told in done.stderr


def test_the_help_fits_and_teaches():
    text = CliRunner().invoke(app, ["calibrate", "--help"]).stdout
    assert max(map(len, text.splitlines())) <= 80
    assert "\n    invgnn calibrate" in text


@pytest.mark.parametrize(
    "wrong", [{"grid": ()}, {"checkpoints": 1}, {"checkpoints": 6}, {"retries": -1}, {"lr": 0.0}]
)
def test_a_plan_that_cannot_be(wrong):
    with pytest.raises(ParameterError):
        replace(SMALL, **wrong)
