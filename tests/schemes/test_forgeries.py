"""Forgeries: each passes the check it is made for, and none is accepted by the rules of the scheme."""

from __future__ import annotations

import copy
import math

import pytest

from _helpers.schemes import SCHEMES
from invgnn.schemes.forgeries import ChanceNull, Grind, OverlapSets, Transcribe, forge_all, suite

LEVEL = {"NAT": "graph"}


@pytest.mark.parametrize("name", SCHEMES)
def test_no_forgery_succeeds(name, innocents, nodes, graphs):
    level = LEVEL.get(name, "node")
    task, models = {"node": nodes, "graph": graphs}[level], innocents[level]
    found = forge_all(SCHEMES[name], models[0], task, models[1:])
    wanted = [repr(forgery) for forgery in suite() if forgery.applies(SCHEMES[name])]
    assert [one.forgery for one in found] == wanted
    assert wanted  # every scheme's claim is put before some forgery
    assert not any(one.succeeds() for one in found)


def test_transcribed_answers_pass_for_a_key(innocents, nodes):
    forged = Transcribe().forge(SCHEMES["TRIG"], innocents["node"][0], nodes, [])
    assert forged.naive == pytest.approx(-16 * math.log(4))
    assert forged.found.bits < 12


def test_overlapping_sets_pass_the_theoretical_null_and_are_refused(innocents, nodes):
    forged = OverlapSets().forge(SCHEMES["EXPL"], innocents["node"][0], nodes, [])
    assert forged.naive < math.log(1e-6)
    assert "overlap" in forged.refusal
    assert not forged.succeeds()


def test_a_null_of_one_over_c_accepts_an_innocent_model(innocents, graphs):
    models = [copy.deepcopy(model) for model in innocents["graph"]]
    for model in models:
        model.head.bias.data[0] += 100  # innocent models that favour a class
    forged = ChanceNull().forge(SCHEMES["NAT"], models[0], graphs, models[1:])
    assert forged.naive < math.log(1e-2)
    assert not forged.succeeds(0.05)


def test_tries_are_paid_for(innocents, nodes):
    forged = Grind(4).forge(SCHEMES["COS"], innocents["node"][0], nodes, [])
    assert forged.tried == 4
    assert not forged.succeeds(0.01)
