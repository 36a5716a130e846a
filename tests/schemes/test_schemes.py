"""The contract of all schemes: they train, verify, refuse, and every change applies to each of them."""

from __future__ import annotations

import math
from dataclasses import replace
from importlib.metadata import EntryPoint

import pytest
import torch

from _helpers.schemes import SCHEMES
from invgnn.attacks import registry as attacks
from invgnn.attacks.denial import FORMS, Format, Refuse, Serve, Serving
from invgnn.attacks.edits import Distil, FineTune, find_edits
from invgnn.attacks.edits import suite as every_edit
from invgnn.attacks.removal import Collude, Extract, FTClean, KDKill, Overwrite, Unlearn
from invgnn.errors import ParameterError, SchemeError, SuspectError
from invgnn.schemes import EXPL, NAT, WGLE, Found, Keyed, find_schemes, pick_schemes, registry, suite
from invgnn.schemes.changed_models import read_changed
from invgnn.secret import Secret
from invgnn.testing import check_scheme, small_task
from invgnn.training.batching import accuracy

LEVELS = ("node", "graph")
TRAINED = [name for name in SCHEMES if name not in ("SS", "literal")]
SLOW = (Distil, FineTune, Extract, KDKill, Overwrite, Unlearn, Refuse, Collude)
QUICK = [c for c in (*every_edit(), *attacks.suite()) if not isinstance(c, SLOW) and "chain" not in repr(c)]
SHORT = [
    *(FineTune(1, 1e-3), FineTune(1, 1e-2, part="last"), Distil(epochs=1), FTClean(1)),
    *(KDKill(epochs=1), Overwrite(m=8, epochs=1), Unlearn(1, 8, epochs=1), Extract(0.5, epochs=1)),
    Refuse("NaN", secrets=1, m=8, epochs=1),
]


def test_the_small_schemes_are_those_of_the_comparison():
    kinds = [type(scheme) for scheme in suite()]
    assert [type(scheme) for scheme in SCHEMES.values()] == kinds
    assert len({scheme.name for scheme in suite()}) == len(kinds)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", TRAINED)
def test_every_scheme_is_embedded(name, level, owned, innocents):
    mark, model, history = owned(name, level)
    found = mark.read(model)
    known = [mark.read(one) for one in innocents[level]]
    assert (found.bits, found.score) > max((one.bits, one.score) for one in known)
    assert not any(one.shows(1e-4) for one in known)
    used = [loss for loss in history.mark_loss if loss > 0]
    assert bool(used) == (name != "NAT")  # which changes the data and has no loss of its own
    assert not used or used[-1] < 0.95 * used[0]  # the loss moves
    task = owned.tasks[level]
    assert accuracy(model, task, task.train) > 1 / task.num_classes + 0.1  # and the task is learnt
    assert not model.training


@pytest.mark.parametrize("level", LEVELS)
def test_the_loss_moves_with_the_literal_weight_too(level, owned):
    _, _, history = owned("literal", level)
    used = [loss for loss in history.mark_loss if loss > 0]
    assert max(used) > 1.05 * min(used)


@pytest.mark.parametrize("level", LEVELS)
def test_schemes_with_an_exact_law_verify_their_own_model(level, owned):
    for name in ("COS", "TRIG", "WGLE", "EXPL", "Keyed"):
        if level == "graph" and name == "WGLE":
            continue
        mark, model, _ = owned(name, level)
        assert mark.read(model).bits > 8, name


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", ["COS", "TRIG", "WGLE", "EXPL", "Keyed"])
def test_the_key_of_a_second_owner_does_not_verify(name, level, owned):
    _, model, _ = owned(name, level)
    task = owned.tasks[level]
    other = SCHEMES[name].suited(model, task).prepare(Secret(b"2" * 32), task)
    assert other.read(model).bits < 12


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", SCHEMES)
def test_reading_leaves_the_suspect_as_it_was(name, level, owned, unchanged):
    mark, model, _ = owned(name, level)
    with unchanged(model.train()):
        first = mark.read(model)
    assert mark.read(model.eval()) == first


@pytest.mark.parametrize("name", SCHEMES)
def test_every_quick_change_applies_to_every_scheme(name, owned):
    level = "graph" if name in ("COS", "Keyed") else "node"  # the slow test has both
    mark, model, _ = owned(name, level)
    task = owned.tasks[level]
    for left, change in zip(read_changed(mark, model, task, QUICK), QUICK, strict=True):
        check_left(left, change, name)


def check_left(left, change, name):
    """A change applies, or says why not; the result is read, or the scheme says why not."""
    assert left.change == repr(change)
    if left.accuracy is None:
        assert left.found is None
        assert left.note
        return
    hidden = name in ("COS", "literal", "Published")  # these read what an endpoint does not show
    if isinstance(change, Serving) and hidden:
        assert left.found is None
        assert "function gives scores only" in left.note
    elif left.found is None:
        assert left.note, (name, change)
    else:
        assert 0 <= left.found.matches <= left.found.asked
        assert left.found.log_p is None or left.found.log_p <= 0


@pytest.mark.parametrize("name", SCHEMES)
def test_every_change_that_trains_applies_to_every_scheme(name, owned):
    mark, model, _ = owned(name, "node")
    task = owned.tasks["node"]
    changes = [*SHORT, Collude(model)]
    for left, change in zip(read_changed(mark, model, task, changes), changes, strict=True):
        assert left.accuracy is not None, left
        check_left(left, change, name)


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", SCHEMES)
def test_every_kind_of_change_applies_to_every_scheme_and_level(name, level, owned):
    mark, model, _ = owned(name, level)
    changes = [*QUICK, *SHORT, Collude(model)]
    registered = [*find_edits(), *attacks.find_attacks(model)]
    kinds = {type(part) for change in registered for part in getattr(change, "edits", [change])}
    assert kinds <= {type(change) for change in changes}  # none is left out
    for left, change in zip(read_changed(mark, model, owned.tasks[level], changes), changes, strict=True):
        check_left(left, change, name)


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", SCHEMES)
def test_the_whole_suite_applies_to_every_scheme(name, level, owned):
    mark, model, _ = owned(name, level)
    changes = [*find_edits(), *attacks.find_attacks(model)]
    for left, change in zip(read_changed(mark, model, owned.tasks[level], changes), changes, strict=True):
        check_left(left, change, name)


@pytest.mark.parametrize("name", ["TRIG", "NAT", "EXPL", "WGLE", "Keyed"])
def test_another_format_reads_the_same(name, owned):
    mark, model, _ = owned(name, "node")
    plain = mark.read(model)
    task = owned.tasks["node"]
    forms = [Format(form) for form in FORMS if "label" not in form and "odds" not in form]
    for left in read_changed(mark, model, task, forms):
        assert left.found is not None
        same = {"TRIG": 0, "NAT": 0}.get(name, plain.asked // 8)
        assert abs(left.found.matches - plain.matches) <= same, left.change


def test_labels_alone_suffice_for_labels(owned):
    for name in ("TRIG", "NAT"):
        mark, model, _ = owned(name, "node")
        (left,) = read_changed(mark, model, owned.tasks["node"], [Serve(top=True)])
        assert left.found.matches == mark.read(model).matches


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scheme", "level", "says"),
    [
        (WGLE(), "graph", "node tasks only"),
        (EXPL(), "graph", "4 features are too few"),
        (EXPL(), "node", "4 features are too few"),
        (NAT(), "node", "4 features"),
        (NAT(nodes=2.0), "graph", "the size of the trigger"),
        (WGLE(m=10_000), "node", "without common ends"),
    ],
)
def test_a_scheme_that_cannot_serve_a_task_says_why(scheme, level, says):
    with pytest.raises(SchemeError, match=says) as caught:
        scheme.prepare(Secret(b"o" * 32), small_task(level))
    assert caught.value.advice


def test_a_task_without_features_is_refused():
    task = small_task("node")
    bare = task.graphs[0].clone()
    bare.x = None
    for scheme in (SCHEMES["EXPL"], SCHEMES["TRIG"], SCHEMES["NAT"]):
        with pytest.raises((SchemeError, TypeError, AttributeError)) as caught:
            scheme.prepare(Secret(b"o" * 32), replace(task, graphs=[bare]))
        assert isinstance(caught.value, SchemeError), scheme


def test_a_function_shows_no_embedding_and_no_head(owned):
    for name in ("COS", "Published"):
        mark, model, _ = owned(name, "node")
        with pytest.raises(SuspectError, match="function"):
            mark.read(lambda batch, model=model: model(batch.x, batch.edge_index))


# --- evidence and selection -----------------------------------------------------------------------


def test_an_empirical_null_is_applied_once_and_never_below_its_limit():
    found = Found(9, 10, 9.0, None, "empirical over unmarked models")
    assert found.bits == 0
    assert not found.shows(0.5)
    judged = found.against([1.0, 2.0, 9.5])
    assert math.exp(judged.log_p) == pytest.approx(2 / 4)
    assert judged.against([0.0] * 99) == judged
    assert found.against([0.0] * 19).shows(0.0501)
    assert not found.against([0.0] * 19).shows(0.0499)


def test_schemes_are_picked_by_the_beginning_of_their_name():
    assert [s.name for s in pick_schemes("trig, ours")] == ["TRIG", "ours"]
    assert len(pick_schemes("all")) == len(suite())
    assert [s.name for s in pick_schemes("invgnn")] == ["InvGNN-WM (beta 1e-4)", "InvGNN-WM (best)"]
    with pytest.raises(ParameterError, match="no scheme named") as caught:
        pick_schemes("trigg")
    assert "TRIG" in caught.value.advice
    with pytest.raises(ParameterError):
        pick_schemes(" , ")


class Named(Keyed):
    name = "another"


def offer(monkeypatch, value):
    class Plugin(EntryPoint):
        def load(self):
            return value

    plugin = Plugin("mine", "package:thing", "invgnn.schemes")
    monkeypatch.setattr(
        registry, "entry_points", lambda group: [plugin] if group == "invgnn.schemes" else []
    )


def test_plug_ins_are_found(monkeypatch):
    offer(monkeypatch, Named)
    assert find_schemes()[-1].name == "another"
    offer(monkeypatch, lambda: [Named()])
    assert pick_schemes("another")[0].name == "another"


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (lambda: 1 / 0, "ZeroDivisionError"),
        (lambda: [3], "not a Scheme"),
        (Keyed, "another scheme named ours"),
    ],
)
def test_bad_plug_ins_are_named(monkeypatch, value, says):
    offer(monkeypatch, value)
    with pytest.raises(SchemeError, match=says) as caught:
        find_schemes()
    assert "check_scheme" in caught.value.advice


# --- the check for authors ------------------------------------------------------------------------


class Global(Keyed):
    """Draws from the global generator: two preparations differ."""

    def prepare(self, secret, task):
        return super().prepare(Secret(torch.randint(256, (32,), dtype=torch.uint8).numpy().tobytes()), task)


class Idle(Keyed):
    """Trains nothing."""

    def prepare(self, secret, task):
        mark = super().prepare(secret, task)
        object.__setattr__(mark, "train", lambda *_: None)
        return mark


class Failing(Keyed):
    """Fails on node tasks instead of refusing them."""

    def prepare(self, secret, task):
        return super().prepare(secret, task if task.level == "graph" else None)


class Changing(Keyed):
    """Changes the data of the task."""

    def prepare(self, secret, task):
        task.graphs[0].x.add_(1)
        return super().prepare(secret, task)


def test_a_decent_scheme_passes_its_check(nodes):
    check_scheme(SCHEMES["Keyed"], nodes, epochs=15)


@pytest.mark.parametrize(
    ("scheme", "says"),
    [(Global(m=16), "two different marks"), (Idle(m=16), "as it was"), (Changing(m=16), "data changed")],
)
def test_a_bad_scheme_is_told_what_is_wrong(scheme, says):
    with pytest.raises(AssertionError, match=says):
        check_scheme(scheme, small_task("graph"), epochs=1)


def test_a_scheme_has_to_be_one_and_to_serve_something():
    with pytest.raises(AssertionError, match="does not derive"):
        check_scheme(object())
    with pytest.raises(
        AssertionError, match=r"fails on a node task with AttributeError: .*raise a SchemeError"
    ):
        check_scheme(Failing(m=16), epochs=10)
    with pytest.raises(AssertionError, match="serves neither"):
        check_scheme(EXPL(), epochs=1)
    with pytest.raises(AssertionError, match="refuses"):
        check_scheme(EXPL(), small_task("graph"), epochs=1)
