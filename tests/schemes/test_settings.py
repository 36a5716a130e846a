"""The tuned settings: where they apply, and that they are those that the study chose."""

from __future__ import annotations

from dataclasses import fields, replace

from invgnn import schemes
from invgnn.schemes import COS, EXPL, Published, settings, suite
from invgnn.schemes.published import literal
from invgnn.schemes.settings import TUNED, tuned
from invgnn.training.tasks import NAMES


def test_the_table_names_schemes_tasks_and_fields():
    for name, places in TUNED.items():
        known = {field.name for field in fields(getattr(schemes, name))}
        assert set(places) <= {*NAMES, "node", "graph"}
        assert all(set(values) <= known for values in places.values())


def test_settings_of_a_task_replace_defaults_and_nothing_else(nodes, graphs):
    wanted = TUNED["COS"]["graph"]
    assert tuned(COS(), COS(), graphs) == COS(**wanted) != COS()
    assert tuned(COS(), COS(), nodes) == COS()
    own = COS(weight=2.0)
    assert own.suited(None, graphs) == own
    assert literal().suited(None, graphs) == literal()
    best = Published("InvGNN-WM (best)")
    assert best in suite()
    assert best.suited(None, graphs) == Published(best.name, **TUNED["Published"]["graph"])


def test_the_name_of_a_task_comes_before_its_level(monkeypatch, nodes):
    table = {"EXPL": {"node": {"weight": 7.0, "margin": 0.5}, "Photo": {"weight": 8.0}}}
    monkeypatch.setattr(settings, "TUNED", table)
    photo = replace(nodes, name="Photo")
    assert EXPL().suited(None, nodes) == EXPL(weight=7.0, margin=0.5)
    assert EXPL().suited(None, photo) == EXPL(weight=8.0, margin=0.5)
    assert EXPL(least=20).suited(None, photo) == EXPL(least=20)
