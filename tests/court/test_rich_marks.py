"""Marks with further tensors, with a transform and of real-valued outputs before a judge and a tracer."""

from __future__ import annotations

import copy
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric import transforms as T
from torch_geometric.data import Data
from torch_geometric.nn import GINConv, GINEConv, global_add_pool

from _helpers.chords import chords
from _helpers.court import CASE, resigned
from invgnn.audit.verify import verify
from invgnn.court.bound import draw_bound
from invgnn.court.challenge import Challenge
from invgnn.court.claim import Claim
from invgnn.court.exhibits import Exhibits
from invgnn.court.judging import judge
from invgnn.court.opening import load_opening, open_drawn, open_fully, open_prefix
from invgnn.court.partial import _revealed
from invgnn.court.regeneration import ROUNDING, difference, reference_for
from invgnn.court.tracing import named, trace_suspect
from invgnn.errors import ParameterError
from invgnn.graphs.attributed import Attributed
from invgnn.secret import Secret
from invgnn.watermark.mark import Watermark
from invgnn.watermark.reference import Reference

DATA = [chords(number) for number in range(60)]
REAL = [Data(**{**d.to_dict(), "y": torch.tensor([0.1 * d.num_nodes + 0.01])}) for d in DATA]
DEGREES = T.LocalDegreeProfile()
"""A transform of integers and exact fractions alone: the same bytes on every machine."""


class Bonds(nn.Module):
    """A GINE whose edge attributes are a required argument."""

    def __init__(self, features=3, out=3, hidden=48):
        super().__init__()
        sizes = (features, hidden), (hidden, hidden)
        maps = (nn.Sequential(nn.Linear(*size), nn.LayerNorm(hidden), nn.ReLU()) for size in sizes)
        self.first, self.second = (GINEConv(one, edge_dim=2) for one in maps)
        self.head = nn.Linear(hidden, out)

    def forward(self, x, edge_index, edge_attr, batch):
        h = self.second(self.first(x, edge_index, edge_attr), edge_index, edge_attr)
        return self.head(global_add_pool(h, batch))


class Profiles(nn.Module):
    """A GIN on node features and the degree profile that the transform appends."""

    def __init__(self, hidden=48):
        super().__init__()
        sizes = (8, hidden), (hidden, hidden)
        maps = (nn.Sequential(nn.Linear(*size), nn.LayerNorm(hidden), nn.ReLU()) for size in sizes)
        self.first, self.second = map(GINConv, maps)
        self.head = nn.Linear(hidden, 3)

    def forward(self, x, edge_index, batch):
        return self.head(global_add_pool(self.second(self.first(x, edge_index), edge_index), batch))


def taught(model, mark, steps=200):
    """The model with the mark in it; its task does not matter here."""
    torch.manual_seed(0)
    model = copy.deepcopy(model).train()
    optimiser = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(steps):
        optimiser.zero_grad()
        mark.loss(model).backward()
        optimiser.step()
    return model.eval()


def build(kind, seed=0):
    torch.manual_seed(seed)
    return kind()


@pytest.fixture(scope="module")
def cases(people, authority):
    """One marked model and its claim for each kind of rich mark."""
    real = {"access": ("embedding", "values")}
    made = {}
    for name, kind, data, options in (
        ("edges", Bonds, DATA, {}),
        ("some", Bonds, DATA, {"tensors": ("edge_attr",)}),
        ("transform", Profiles, DATA, {"tensors": (), "transform": DEGREES}),
        ("values", lambda: Bonds(out=8), REAL, real),
    ):
        mark = Watermark.draw(Secret(bytes([1]) * 32), data, m=64, **options)
        model = taught(build(kind), mark)
        named_ones = options.get("tensors")
        claim = Claim.make(mark, model, people.owner, data, tensors=named_ones, alpha=1e-3)
        claim = claim.dated(authority.url, people.owner)
        made[name] = SimpleNamespace(
            mark=mark, model=model, claim=claim, data=data, other=build(kind, 9).eval(), kind=kind
        )
    return made


@pytest.fixture
def decide(people, tmp_path, roots, tomorrow):
    dates = {"roots": roots, "suspect_since": tomorrow, "claims": 2**10, "alpha": 1e-3}

    def run(case, suspect=None, *, write=open_fully, change=None, claim=None, **options):
        path, claim = tmp_path / f"{len(list(tmp_path.iterdir()))}.o", claim or case.claim
        write(path, claim, case.mark, people.owner, people.judge.public(), CASE)
        opened = load_opening(path, people.judge)
        opened = opened if change is None else change(opened)
        exhibits = Exhibits(suspect or case.model, case.data, controls=[case.other], **dates | options)
        return judge(claim, opened, exhibits, people.judge, CASE)

    return run


def says(found, check):
    return next((one for one in found.payload["checks"] if one["check"] == check), None)


@pytest.mark.parametrize("name", ["edges", "some", "transform", "values"])
def test_a_judge_regenerates_and_decides(cases, decide, name):
    case = cases[name]
    found = decide(case)
    assert found.payload["verdict"]["evidence_bits"] > 40, found.payload["reasons"]
    assert {one["check"]: one["passed"] for one in found.payload["checks"]}.items() >= {
        ("commitment", True),
        ("regeneration", True),
        ("key", True),
        ("controls", True),
    }
    assert found.status == "owned"
    assert decide(case, case.other).status == "not shown"
    assert ("inputs" in case.claim.payload) == (name in {"some", "transform"})


@pytest.mark.parametrize("name", ["edges", "transform", "values"])
def test_partial_openings_show_what_the_suspect_is_shown(cases, people, decide, name, tmp_path):
    case = cases[name]
    found = decide(case, write=open_prefix)
    assert found.codes[0] == "partial", found.payload["reasons"]
    assert decide(case, case.other, write=open_prefix).status == "not shown"
    challenge = Challenge.draw(case.claim, people.judge, CASE, 32)

    def drawn(path, claim, mark, owner, public, _):
        open_drawn(path, claim, mark, owner, public, challenge)

    assert decide(case, write=drawn).codes[0] == "partial"
    accesses = {one["access"] for one in case.claim.context["readings"]}
    assert found.payload["verdict"]["access"] in accesses


def test_the_judges_own_transform_is_compared(cases, decide):
    case = cases["transform"]
    unseen = decide(case)
    check = says(unseen, "transform")
    assert not check["passed"]
    assert not check["fatal"]
    assert "not regenerated" in check["says"]
    same = says(decide(case, transform=T.LocalDegreeProfile()), "transform")
    assert same["passed"]
    assert same["says"].endswith("exactly")
    other = decide(case, transform=T.Compose([DEGREES, T.NormalizeFeatures()]))
    assert (other.status, other.codes[0]) == ("inconclusive", "transform")
    rounded = decide(case, transform=T.Compose([DEGREES, _shaken]))
    assert "rounding" in says(rounded, "transform")["says"]
    assert says(decide(cases["edges"], transform=DEGREES), "transform") is None


def _shaken(data):
    data.x = data.x * (1 + 1e-6)
    return data


def test_no_code_of_the_claimant_runs(cases, decide, people):
    def bomb(data):
        raise AssertionError("a transform ran")

    case = cases["transform"]
    mark = replace(case.mark, forward=bomb)
    found = decide(SimpleNamespace(**{**vars(case), "mark": mark}))
    assert found.payload["verdict"]["evidence_bits"] > 40


def test_inputs_other_than_those_claimed_are_refused(cases, decide):
    case = cases["transform"]

    def other(opened):
        shown = opened.shown.record()
        shown["node"]["x"] = shown["node"]["x"].copy()
        shown["node"]["x"][0, 0] += 1
        return replace(opened, shown=Attributed.recall(shown))

    assert decide(case, change=other).codes[0] == "regeneration"
    assert decide(case, change=lambda opened: replace(opened, shown=None)).codes[0] == "regeneration"
    edges = cases["edges"]
    added = decide(edges, change=lambda opened: replace(opened, shown=edges.mark.shown))
    assert added.codes[0] == "regeneration"


def test_a_claim_that_misstates_its_inputs_is_refused(cases, decide, people):
    def judged(case, inputs):
        claim = resigned(case.claim, people.owner, lambda said: said.update(inputs=inputs))
        return decide(case, claim=claim).codes[0]

    hidden = {"tensors": None, "transformed": False}
    assert judged(cases["transform"], hidden) == "regeneration"
    assert judged(cases["edges"], {"tensors": ["edge_attr"], "transformed": False}) != "evidence"
    assert judged(cases["some"], {"tensors": ["nothing"], "transformed": False}) == "reference"


def test_a_token_says_nothing_about_a_transform(people, authority, decide):
    """Whoever may choose a transform after the token gets new bits without a request."""
    options = {"m": 32, "tensors": (), "transform": DEGREES}
    mark, token = draw_bound(Secret(bytes([5]) * 32), DATA, authority.url, **options)
    model = build(Profiles).eval()
    claim = Claim.make(mark, model, people.owner, DATA, token=token, tensors=())
    case = SimpleNamespace(mark=mark, model=model, claim=claim, data=DATA, other=build(Profiles, 1).eval())
    found = decide(case)
    ground = next(one for one in found.payload["grounds"] if one["ground"] == "bound to a token")
    assert not ground["available"]
    assert "transform" in ground["says"]


def test_directed_graphs(people, decide):
    data = [chords(number, directed=True) for number in range(60)]
    mark = Watermark.draw(Secret(bytes([8]) * 32), data, m=64)
    model = taught(build(Bonds), mark, 60)
    claim = Claim.make(mark, model, people.owner, data)
    case = SimpleNamespace(mark=mark, model=model, claim=claim, data=data, other=build(Bonds, 9).eval())
    found = decide(case)
    assert {one["check"] for one in found.payload["checks"] if one["passed"]} >= {"regeneration", "key"}


def test_tracing_reads_rich_marks_as_verify_does(cases):
    for name in ("edges", "values", "transform"):
        case = cases[name]
        options = {"access": ("embedding", "values")} if name == "values" else {}
        options |= {"tensors": (), "transform": DEGREES} if name == "transform" else {}
        first, second = (
            Watermark.draw(Secret(bytes([40 + i]) * 32), case.data, m=16, **options) for i in range(2)
        )
        marks = {"a": first, "leaked": case.mark, "b": second}
        rows = trace_suspect("leak", case.model, marks)
        assert named(rows) == {"leak": ["leaked"]}
        for row in rows:
            alone = verify(case.model, marks[row.mark], suspects=3)
            assert row.log10_p == pytest.approx(alone.log10_p, rel=0.05, abs=0.05)


def test_reference_for_finds_the_tensors_that_were_bound():
    whole, some, plain = (Reference.of(DATA, tensors=names) for names in (None, ("edge_attr",), ()))
    assert reference_for(DATA, whole.digest).digest == whole.digest
    assert reference_for(DATA, plain.digest).digest == plain.digest
    assert reference_for(DATA, some.digest, ["edge_attr"]).digest == some.digest
    assert reference_for(DATA, some.digest, ["unknown"]).digest == whole.digest
    assert reference_for(DATA, "0" * 64, ["edge_attr"]).digest == whole.digest
    assert reference_for(some, whole.digest) is some


def test_difference_is_infinite_unless_only_real_numbers_differ():
    base = Reference.of(DATA).tensors
    record = base.record()
    assert difference(base, base) == 0.0

    def changed(kind, name, value):
        return Attributed.recall({**record, kind: {**record[kind], name: value}})

    weights = record["edge"]["edge_attr"]
    near = changed("edge", "edge_attr", weights + np.float32(1e-6))
    assert 0 < difference(base, near) < ROUNDING
    assert difference(base, changed("edge", "edge_attr", weights * 2)) == pytest.approx(0.5)
    assert difference(base, changed("node", "z", record["node"]["z"] + 1)) == float("inf")
    assert difference(base, changed("node", "more", record["node"]["z"])) == float("inf")
    assert difference(base, base.take(np.arange(len(base) - 1))) == float("inf")


def test_a_leaf_that_shows_two_carriers_is_refused(cases, people, tmp_path, decide):
    case = cases["edges"]
    open_prefix(tmp_path / "o", case.claim, case.mark, people.owner, people.judge.public(), CASE)
    opened = load_opening(tmp_path / "o", people.judge)
    values = [leaf.value for leaf in opened.leaves]
    both = [Attributed.recall(one["shown"]) for one in values[:2]]
    values[0]["shown"] = Attributed.concat(both).record()
    with pytest.raises(ParameterError, match="one carrier"):
        _revealed(case.claim, values, case.claim.rule["prefix"])
