"""Every attack works without the owner's mark and leaves the original unchanged."""

from __future__ import annotations

import copy
import inspect
import pkgutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from torch import nn

import invgnn.attacks.denial
import invgnn.attacks.removal
from invgnn.attacks import edits
from invgnn.attacks.attack import Attack, Knowledge
from invgnn.attacks.denial import FORMS, Endpoint, Format, Refuse, Serve, Serving
from invgnn.attacks.denial.refuse import Wary
from invgnn.attacks.edits import FineTune, IdleUnit, PermuteUnits, PruneChannels, RescaleUnits
from invgnn.attacks.own_marks import own_marks, own_secret
from invgnn.attacks.registry import find_attacks, pick, pick_all, slug, suite
from invgnn.attacks.removal import (
    ChannelScrub,
    Collude,
    Extract,
    FTClean,
    KDKill,
    Overwrite,
    Unlearn,
    UnscaleWeights,
    ZeroHead,
    extract,
)
from invgnn.attacks.removal.scrub import use
from invgnn.attacks.removal.unlearn import neutral
from invgnn.audit.verify import verify
from invgnn.errors import EditError, ParameterError, SuspectError
from invgnn.graphs.disjoint_union import Graphs
from invgnn.nn.forward import observe, to_batch
from invgnn.nn.hidden_units import hidden_units
from invgnn.nn.observation import log_scores
from invgnn.nn.perception import attach_head
from invgnn.nn.rng import seeded
from invgnn.readout.reading import Reading, pooled
from invgnn.secret import Secret
from invgnn.stats.evidence import evidence_of
from invgnn.testing import check_edit
from invgnn.training.batching import accuracy, last_layer, scores, some_inputs
from invgnn.training.tasks import new_model
from invgnn.training.trainer import train
from invgnn.watermark.mark import Watermark
from invgnn.watermark.reference import Reference

ATTACKS = [
    *(
        ChannelScrub(0.3),
        ZeroHead(),
        ZeroHead("perception"),
        KDKill(epochs=1),
        FTClean(1),
        UnscaleWeights(1),
    ),
    *(Overwrite(m=8, epochs=1), Unlearn(2, 8, epochs=1)),
    *(Extract(0.5, epochs=1), Extract(1.0, "labels", student="half", epochs=1)),
    *(Serve(digits=2), Serve(top=True), Serve(temperature=10), Serve(noise=0.5, digits=3)),
    *map(Format, FORMS),
    *(Refuse(instead, secrets=1, m=8, epochs=1) for instead in ("NaN", "an error")),
    Collude(nn.Linear(1, 1)),
]
SERVED = [attack for attack in ATTACKS if isinstance(attack, Serving)]


@pytest.fixture(params=["graph", "node"])
def both(request, motifs, web):
    """Run each test on a few graphs and on the nodes of one graph."""
    part = torch.arange(100)
    few = replace(motifs, graphs=motifs.graphs[:100], train=part[:80], val=part[80:90], test=part[90:])
    return {"graph": few, "node": web}[request.param]


def small(task, backbone="GIN", seed=0):
    model = new_model(task, backbone, seed, hidden_channels=8)
    with seeded(seed):
        attach_head(model, 8)
    return model


def changed(before, after):
    """Return the names of the parameters and buffers that differ."""
    return {
        name for name, value in before.state_dict().items() if not value.equal(after.state_dict()[name])
    }


# --- the contract ---------------------------------------------------------------------------------


@pytest.mark.parametrize("attack", ATTACKS, ids=repr)
def test_every_attack_keeps_the_contract_of_edits(attack, both, unchanged):
    if isinstance(attack, Collude):
        attack = Collude(small(both, seed=1))
    model = small(both).train()
    with unchanged(model):
        edited = attack(model, both)
    assert not any(module.training for module in edited.modules())
    if attack.same_architecture:
        assert list(edited.state_dict()) == list(model.state_dict())
    check_edit(attack, model, both)


def kinds():
    for package in (invgnn.attacks.removal, invgnn.attacks.denial):
        for module in pkgutil.iter_modules(package.__path__):
            __import__(f"{package.__name__}.{module.name}")
    held = [value for name, module in sys.modules.items() if name.startswith("invgnn.attacks")
            for value in vars(module).values()]  # fmt: skip
    found = {kind for kind in held if inspect.isclass(kind) and issubclass(kind, Attack)}
    return {kind for kind in found if not inspect.isabstract(kind)}


def test_every_attack_there_is_runs_through_the_contract():
    assert kinds() == {*map(type, ATTACKS)} == {*map(type, suite(nn.Linear(1, 1)))}
    assert {kind.__name__ for kind in kinds()} < {
        *invgnn.attacks.removal.__all__,
        *invgnn.attacks.denial.__all__,
    }


OWNERS = ("Watermark", "Secret", "Carriers", "Graphs", "Answers", "Verdict", "bits")


@pytest.mark.parametrize("kind", sorted(kinds(), key=str), ids=lambda kind: kind.__name__)
def test_no_attack_can_be_given_the_owners_mark(kind):
    """An attack takes a stolen model and a task, and none of its settings refers to the owner."""
    assert list(inspect.signature(kind.apply).parameters) == ["self", "model", "task"]
    assert "__call__" not in vars(kind)
    for setting in inspect.signature(kind.__init__).parameters.values():
        assert setting.kind is not setting.VAR_KEYWORD
        assert not any(word in f"{setting.name} {setting.annotation}" for word in OWNERS)


def test_every_attack_says_what_the_thief_has():
    for attack in ATTACKS:
        assert attack.knows
        assert {*attack.knows} <= {*get_args(Knowledge)}
        assert type(attack).__doc__.splitlines()[0].endswith(".")


def test_names_tell_attacks_and_edits_apart():
    everything = [*edits.suite(), *suite(nn.Linear(1, 1))]
    assert len({slug(edit) for edit in everything}) == len(everything)
    rows = [repr(attack) for attack in suite()]
    for row in ("channel scrub 40%", "zero last layer", "KD-kill", "FT-clean 20 epochs"):  # the paper's
        assert row in rows
    assert [a.share for a in suite() if isinstance(a, Extract)] == [0.1, 0.5, 1, 1]


# --- weights --------------------------------------------------------------------------------------


def test_scrubbing_finds_the_channel_that_sleeps_on_task_inputs(web):
    """The channel of a trigger has the largest weights, and no task input activates it."""
    model = new_model(web, "GCN", 0, hidden_channels=8)
    with torch.no_grad():
        model.convs[0].lin.weight[3].fill_(50)
        model.convs[0].bias[3] = -1e6
    scrubbed, pruned = ChannelScrub(1 / 8)(model, web), PruneChannels(1 / 8)(model, web)
    assert not scrubbed.convs[0].lin.weight[3].any()
    assert int((scrubbed.convs[0].lin.weight == 0).all(1).sum()) == 1
    assert pruned.convs[0].lin.weight[3].any()
    torch.testing.assert_close(scores(scrubbed, web), scores(model, web))  # the task never needed it


def test_use_is_what_the_next_layer_takes_in(web):
    model = new_model(web, "GCN", 0, hidden_channels=8).eval()
    graph = web.graphs[0]
    inside = model.convs[0](graph.x, graph.edge_index).relu().detach().double().numpy().mean(0)
    weights = np.abs(model.convs[1].lin.weight.detach().double().numpy())
    wanted = np.mean([row * inside / (row @ inside) for row in weights], axis=0)
    with torch.no_grad():
        found = use(hidden_units(model, some_inputs(web))[0], model, web)
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-5)


@pytest.mark.parametrize("backbone", ["GCN", "GraphSAGE", "GIN"])
def test_scrubbing_cannot_be_misled_by_scale(backbone, both):
    model = new_model(both, backbone, 0, hidden_channels=8).eval()
    masks = []
    for given in (model, RescaleUnits(50)(model, both)):
        units = hidden_units(ChannelScrub(0.4)(given, both), some_inputs(both))
        masks.append([(layer.makers[0] == 0).all(1).tolist() for layer in units])
    assert masks[0] == masks[1]
    assert all(sum(mask) == max(1, int(0.4 * len(mask))) for mask in masks[0])


def test_a_wiped_last_layer_says_nothing_and_the_embedding_everything(both, draw):
    model, mark = small(both), draw(both.level, access=("embedding", "logits"))
    wiped = ZeroHead()(model, both)
    assert not (scores(wiped, both) - scores(wiped, both)[0]).any()
    assert {name.partition(".")[0] for name in changed(model, wiped)} == (
        {"head"} if both.level == "graph" else {"convs"}
    )
    assert all(not p.any() for p in last_layer(wiped, both).parameters())
    before, after = (mark.read(net, "embedding").carriers for net in (model, wiped))
    np.testing.assert_array_equal(before, after)


def test_a_wiped_perception_head_costs_nothing(both):
    model = small(both)
    wiped = ZeroHead("perception")(model, both)
    assert changed(model, wiped) == {"perception.weight"}  # its bias was zero
    assert scores(model, both).equal(scores(wiped, both))
    assert (wiped.perception(torch.randn(5, 8, generator=torch.Generator().manual_seed(0))) == 0.5).all()
    with pytest.raises(EditError, match="no perception head"):
        ZeroHead("perception")(new_model(both, "GCN", 0, hidden_channels=8), both)


def test_colluders_average_exactly(both):
    copies = [small(both, seed=seed) for seed in (0, 1, 2)]
    mixed = Collude(*copies[1:])(copies[0], both).state_dict()
    for name, value in mixed.items():
        held = [net.state_dict()[name] for net in copies]
        wanted = np.mean([v.double().numpy() for v in held], axis=0) if value.dim() else held[0].numpy()
        np.testing.assert_allclose(value.numpy(), wanted, rtol=1e-5, atol=1e-7)
    with pytest.raises(EditError, match="different parameters"):
        Collude(new_model(both, "GCN", 0))(copies[0], both)


# --- training -------------------------------------------------------------------------------------


def told(model, task):
    return scores(model, task).double().log_softmax(-1)


def distance(one, other, task):
    ours, theirs = told(one, task), told(other, task)
    return float((theirs.exp() * (theirs - ours)).sum(-1).mean())


def test_kd_kill_leads_to_the_clean_teacher(web):
    stolen, teacher = (new_model(web, "GCN", seed, hidden_channels=16) for seed in (0, 1))
    for net, seed in ((stolen, 5), (teacher, 6)):
        train(net, web, epochs=20, seed=seed)
    student = KDKill(teacher, epochs=30)(stolen, web)
    assert distance(student, teacher, web) < distance(stolen, teacher, web) / 2


def test_the_teacher_a_thief_trains_owes_the_stolen_model_nothing(web):
    stolen, other = (new_model(web, "GCN", seed, hidden_channels=8) for seed in (0, 1))
    teachers = []
    for net in (stolen, other):
        with seeded(3):
            teachers.append(KDKill(epochs=2).clean_teacher(net, web))
    assert not changed(*teachers)
    assert changed(teachers[0], stolen)


def test_a_thief_whose_own_mark_is_weak_is_not_warned(web):
    """With 96 carriers a mark could give 80 bits; after one epoch it gives fewer."""
    attacked = Overwrite(m=96, epochs=1)(new_model(web, "GraphSAGE", 0, hidden_channels=8), web)
    mark = Overwrite(m=96).own_mark(attacked, web)
    assert mark.evidence(mark.read(attacked)).bits() < 80


def test_clean_fine_tuning_is_the_papers(web):
    model = small(web)
    assert (FTClean().epochs, FTClean().lr) == (20, 0.01)
    assert not changed(FTClean(2)(model, web), FineTune(2, 0.01)(model, web))
    assert changed(FTClean(2)(model, web), FTClean(2, lr=1e-3)(model, web))


def test_overwriting_embeds_the_thiefs_mark(web):
    model = new_model(web, "GCN", 0, hidden_channels=16)
    train(model, web, epochs=20)
    attack = Overwrite(m=16, epochs=40)
    mark = attack.own_mark(model, web)
    assert mark.secret == own_secret(0) != own_secret(1)
    before, after = (mark.evidence(mark.read(net)).matches for net in (model, attack(model, web)))
    assert before < 14 <= after
    assert [reading.access for reading in mark.readings] == ["embedding", "logits"]
    flat = Overwrite(m=8).own_mark(new_model(web, "SGC", 0), web)
    assert [reading.access for reading in flat.readings] == ["logits"]


def test_what_unlearning_asks_for(web, draw):
    """Wanted answers are the mean of ordinary inputs for carriers, and unchanged for the others."""
    model, mark = new_model(web, "GCN", 0, hidden_channels=8).train(), draw("node")
    graphs, readings = (
        Graphs.concat([mark.carriers, mark.ordinary]),
        [Reading("embedding"), Reading("logits")],
    )
    wanted = neutral(model, graphs, readings, mark.m)
    assert model.training
    with torch.no_grad():
        seen = observe(model.eval(), to_batch(graphs), "auto")
    which = torch.tensor([0, 3, mark.m, mark.m + 5])
    for each in wanted:
        said = pooled(seen, each.reading).double().numpy()
        usual = said[mark.m :]
        target = np.concatenate([np.tile(usual.mean(0), (mark.m, 1)), usual])
        np.testing.assert_allclose(each.rows, target, rtol=1e-4, atol=1e-6)
        far = ((said - target) ** 2).mean() / usual.var(0, ddof=1).mean()
        assert float(each.distance(seen, torch.arange(len(said)))) == pytest.approx(far, rel=1e-4)
        few = to_batch(graphs.take(which.numpy()))
        with torch.no_grad():
            found = each.distance(observe(model, few, "auto"), which)
        wish = ((said[which] - target[which]) ** 2).mean() / usual.var(0, ddof=1).mean()
        assert float(found) == pytest.approx(wish, rel=1e-3)


def test_unlearning_comes_closer_to_it_than_fine_tuning(web):
    model = new_model(web, "GCN", 0, hidden_channels=16)
    train(model, web, epochs=30)
    marks = own_marks(model, web, 2, 16, seed=0)
    graphs = Graphs.concat([*(mark.carriers for mark in marks), *(mark.ordinary for mark in marks)])
    wanted = neutral(model, graphs, [Reading("embedding")], 32)[0]
    far = {}
    for weight in (1e-9, 1.0):  # the first is fine-tuning
        edited = Unlearn(2, 16, weight=weight)(model, web)
        with torch.no_grad():
            far[weight] = float(
                wanted.distance(observe(edited, to_batch(graphs), "auto"), torch.arange(len(graphs)))
            )
    assert far[1.0] < 0.8 * far[1e-9]


# --- an API ---------------------------------------------------------------------------------------


@pytest.fixture
def asked(monkeypatch):
    """Record the inputs that the last extraction sent to its teacher."""
    seen = []

    def watched(teacher, task, share, **options):
        lessons = extract.ask_teacher.__wrapped__(teacher, task, share, **options)
        seen.append(lessons.asked.nonzero().view(-1))
        return lessons

    watched.__wrapped__ = extract.ask_teacher
    monkeypatch.setattr(extract, "ask_teacher", watched)
    return seen


@pytest.mark.parametrize(("share", "replies"), [(0.1, "probabilities"), (0.5, "labels"), (1.0, "labels")])
def test_extraction_uses_the_stated_share_and_no_label(share, replies, both, asked):
    teacher, attack = small(both, "GCN"), Extract(share, replies, epochs=2)
    student = attack(teacher, both)
    assert len(asked[0]) == round(share * len(both.train))
    assert {*asked[0].tolist()} <= {*both.train.tolist()}
    blind = [copy.copy(graph) for graph in both.graphs]
    for place, graph in enumerate(blind):
        graph.y = 1 - graph.y  # true labels must not matter
        if both.level == "graph" and place not in asked[0].tolist():
            graph.x = torch.full_like(graph.x, 100)  # nor inputs that were not asked about
    assert not changed(student, attack(teacher, replace(both, graphs=blind)))
    with torch.no_grad():
        for value in last_layer(teacher, both).parameters():
            value.neg_()  # of a linear map: every answer turns round
    assert changed(student, attack(teacher, both))  # but the answers must


def test_only_answers_leave_the_api(web):
    """A teacher with shuffled hidden units returns the same answers, and gives the same student."""
    teacher = new_model(web, "GCN", 0, hidden_channels=8)
    students = [Extract(1.0, "labels", epochs=3)(t, web) for t in (teacher, PermuteUnits()(teacher, web))]
    assert not changed(*students)


def test_extraction_learns_the_teacher(web):
    teacher = new_model(web, "GCN", 0, hidden_channels=16)
    train(teacher, web, epochs=40)
    student = Extract(epochs=40)(teacher, web)
    agree = (scores(student, web).argmax(-1) == scores(teacher, web).argmax(-1))[web.test]
    assert float(agree.double().mean()) > 0.9


# --- serving --------------------------------------------------------------------------------------


@pytest.mark.parametrize("serving", SERVED, ids=repr)
def test_an_endpoint_gives_scores_and_nothing_else(serving, both, draw):
    model = small(both)
    endpoint, mark = serving(model, both), draw(both.level, access=("embedding", "logits", "labels"))
    assert isinstance(endpoint, Endpoint)
    assert not list(endpoint.parameters())
    assert not list(endpoint.buffers())
    with pytest.raises(SuspectError, match="scores only"):
        mark.read(endpoint.serve, "embedding")
    with pytest.raises(SuspectError):
        mark.read(endpoint, "embedding")
    assert verify(endpoint.serve, mark).access in {"logits", "labels"}
    first, second = (mark.read(endpoint.serve, "logits").carriers for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert 0 <= accuracy(endpoint, both, both.test) <= 1


def test_what_is_blurred(both):
    model = small(both).eval()
    plain = scores(model, both).double()
    rounded, top, warm, noisy = (
        scores(Serve(**how)(model, both), both)
        for how in ({"digits": 2}, {"top": True}, {"temperature": 10}, {"noise": 0.5})
    )
    np.testing.assert_array_equal(rounded, np.round(plain.softmax(-1).numpy(), 2))
    assert top.sum(-1).eq(1).all()
    assert top.max(-1).values.eq(1).all()
    assert top.argmax(-1).equal(plain.argmax(-1))
    np.testing.assert_allclose(warm.log()[:, 0] - warm.log()[:, 1], (plain[:, 0] - plain[:, 1]) / 10)
    odds = noisy.log().diff(dim=-1) - plain.diff(dim=-1)
    assert float(odds.std()) == pytest.approx(0.5 * 2**0.5, rel=0.4)
    other = scores(Serve(noise=0.5, seed=1)(model, both), both)
    assert not other.equal(noisy)


def test_temperature_changes_no_order(motifs, draw):
    """With two classes the projection is one log-odds, and ranks depend on its order alone."""
    model, mark = small(motifs), draw(access="logits")
    plain, warm = (mark.read(net) for net in (model, Serve(temperature=10)(model, motifs).serve))
    assert mark.evidence(warm).log_p == pytest.approx(mark.evidence(plain).log_p)
    assert warm.carriers.std() == pytest.approx(plain.carriers.std() / 10)


# --- answers in a form that nobody expects --------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_customers_who_know_the_form_lose_nothing(form):
    for classes in (2,) if "odds" in form else (2, 3, 7):
        logs = torch.randn(50, classes, generator=torch.Generator().manual_seed(0)).double().log_softmax(-1)
        with seeded(classes):
            wire = FORMS[form](classes)
        read = wire.decode(wire.encode(logs))
        assert read.shape == logs.shape
        assert read.argmax(-1).equal(logs.argmax(-1))
        if "label" not in form:
            ours, theirs = log_scores(read).log_softmax(-1), logs
            torch.testing.assert_close(ours, theirs)


def test_what_the_forms_send():
    p = torch.tensor([[0.1, 0.2, 0.7], [0.5, 0.3, 0.2]]).double()

    def sent(form, given=p):
        with seeded(0):
            return FORMS[form](given.shape[1]).encode(given.log())

    def close(form, wanted, given=p):
        torch.testing.assert_close(sent(form, given), torch.as_tensor(wanted).double())

    close("classes rolled by one", [[0.7, 0.1, 0.2], [0.2, 0.5, 0.3]])
    close("with an empty class in front", [[0, 0.1, 0.2, 0.7], [0, 0.5, 0.3, 0.2]])
    close("with an empty class behind", [[0.1, 0.2, 0.7, 0], [0.5, 0.3, 0.2, 0]])
    close("percentages", 100 * p)
    close("log-probabilities", p.log())
    close(
        "log-odds of class 0", [np.log(4), np.log(1 / 3)], torch.tensor([[0.8, 0.2], [0.25, 0.75]]).double()
    )
    close(
        "log-odds of class 1", [np.log(1 / 4), np.log(3)], torch.tensor([[0.8, 0.2], [0.25, 0.75]]).double()
    )
    shuffled = sent("classes shuffled")
    assert shuffled.sort(-1).values.allclose(p.sort(-1).values)
    assert not (shuffled == p).any()
    names = sent("label names", torch.eye(3).double())
    assert names.dtype.kind == "U"
    assert sorted(names, reverse=True) == names.tolist()
    assert sent("label numbers", torch.eye(3).double()).tolist() == [30, 20, 10]


def coloured(motifs, classes):
    """Return an easy task: every second node of a graph has the colour of its class."""
    rng, graphs = np.random.default_rng(classes), []
    for number, graph in enumerate(motifs.graphs):
        twin, nodes, y = copy.copy(graph), int(graph.num_nodes), number % classes
        colours = np.where(rng.random(nodes) < 0.5, y, rng.integers(4, size=nodes))
        twin.x, twin.y = torch.eye(4)[torch.from_numpy(colours)], torch.tensor([y])
        graphs.append(twin)
    return replace(motifs, graphs=graphs, num_classes=classes)


@pytest.fixture(scope="module", params=[2, 4])
def marked(request, motifs):
    """Return a task with this number of classes, a mark, and a model in which it is embedded.

    Neighbouring classes lie on opposite sides of this secret's direction, so columns in another order
    do not show the mark. Eighty epochs embed all 32 bits, whatever the rounding of the processor. Many
    more epochs would give probabilities below the smallest that is read.
    """
    task = coloured(motifs, request.param)
    mark = Watermark.draw(Secret(b"n" * 32), task.data, m=32)
    direction = mark.direction("logits", task.num_classes)
    assert direction.equal(-direction.roll(1))
    model = new_model(task, "GIN", 0, hidden_channels=16)
    train(model, task, mark, epochs=80)
    return task, mark, model


def bits(suspect, mark):
    return verify(suspect, mark, access="logits").evidence_bits


def unaligned_bits(serve, mark, classes):
    """Read a mark in the former way, from the first columns by position."""
    order, log_probabilities = mark._order, mark.ask(serve).logs[:, :classes].numpy()
    said = np.empty(len(order))
    said[order] = log_probabilities @ mark.direction("logits", classes).numpy()
    return evidence_of(said[: mark.m], mark.bits, mark.context["statistic"], None).bits()


def test_a_form_takes_at_most_the_bit_that_finding_it_costs(marked):
    task, mark, model = marked
    plain, right = bits(model, mark), accuracy(model, task, task.test)
    labels = bits(Serve(top=True)(model, task).serve, mark)
    assert plain > 20
    for form in FORMS:
        if "odds" in form and task.num_classes > 2:
            with pytest.raises(EditError, match="4 classes"):
                Format(form)(model, task)
            continue
        endpoint = Format(form)(model, task)
        whole = labels if "label" in form else plain
        assert whole - 1.001 < bits(endpoint.serve, mark) < whole + 0.001, form
        assert accuracy(endpoint, task, task.test) == right, form


def test_a_reader_who_takes_columns_as_they_come_is_fooled(marked):
    """The forms hide the mark from the former reading; otherwise they would test nothing."""
    task, mark, model = marked
    classes = task.num_classes
    plain = Format("log-probabilities")(model, task).serve
    assert unaligned_bits(plain, mark, classes) > 20
    fooling = ["classes rolled by one", "classes shuffled", "with an empty class in front"]
    for form in [*fooling, "log-odds of class 0"] if classes == 2 else fooling:
        left = unaligned_bits(Format(form)(model, task).serve, mark, classes)
        assert left < (1 if classes == 2 else 14), form  # with two classes every answer is turned round


def test_an_idle_unit_takes_no_evidence(marked):
    task, mark, model = marked
    wide = IdleUnit()(model, task)
    for access in ("embedding", "logits"):
        one, other = (mark.read(net, access) for net in (model, wide))
        assert mark.evidence(other).bits() == pytest.approx(mark.evidence(one).bits())
    assert accuracy(wide, task, task.test) == accuracy(model, task, task.test)


# --- no answer to carriers ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded(motifs):
    """Return a task, a model, an endpoint with a detector of carriers, and the owner's mark."""
    task = coloured(motifs, 2)
    model = new_model(task, "GIN", 0, hidden_channels=16)
    endpoint = Refuse("NaN", m=8, epochs=10)(model, task)
    return task, model, endpoint, Watermark.draw(Secret(b"k" * 32), task.data, m=64)


def test_the_thief_tells_strangers_carriers_from_ordinary_graphs(guarded):
    task, model, endpoint, mark = guarded
    detector, _ = endpoint._guard
    assert detector(to_batch(mark.carriers)).double().mean() > 0.7
    trained = Reference.of(task.data).graphs
    assert detector(to_batch(trained)).double().mean() <= 0.01
    alone = [bool(detector(to_batch(mark.carriers.take([number])))) for number in range(16)]
    assert alone == detector(to_batch(mark.carriers))[:16].tolist()  # a batch changes nothing
    again = Refuse("NaN", m=8, epochs=10)(model, task)._guard[0]
    assert again.threshold == detector.threshold
    assert not changed(again.net, detector.net)


@pytest.mark.parametrize("instead", ["NaN", "an error"])
def test_a_refusal_is_counted_and_named(instead, guarded):
    task, model, endpoint, mark = guarded
    wary = Wary(model, endpoint._guard[0], instead)
    odd = int(endpoint._guard[0](to_batch(mark.carriers)).sum())
    usual = int(endpoint._guard[0](to_batch(mark.ordinary)).sum())
    verdict = verify(wary.serve, mark)
    assert verdict.status == "inconclusive"
    assert f"refused {odd} of 64 carriers and {usual} of 64 ordinary inputs" in verdict.reasons[0]
    assert abs(accuracy(wary, task, task.test) - accuracy(model, task, task.test)) <= 0.051  # one of 20


def test_large_marks_are_refused_alike(guarded):
    task, model, endpoint, _ = guarded
    mark = Watermark.draw(Secret(b"k" * 32), task.data, m=256)
    verdict = verify(Wary(model, endpoint._guard[0], "an error").serve, mark)
    assert verdict.status == "inconclusive"
    assert "of 256 carriers" in verdict.reasons[0]


def test_a_constant_counts_as_a_refusal(guarded):
    _, model, endpoint, mark = guarded
    wary = Wary(model, endpoint._guard[0], "a constant")
    said = wary.serve(to_batch(mark.carriers))
    assert (said == 0.5).all(1).equal(endpoint._guard[0](to_batch(mark.carriers)))
    verdict, flagged = verify(wary.serve, mark), int((said == 0.5).all(1).sum())
    assert flagged > mark.m // 2
    assert (verdict.status, verdict.refused["carriers"]) == ("inconclusive", flagged)
    batch = to_batch(mark.ordinary)
    assert wary(batch).equal(wary.serve(batch))


def test_who_refuses_nodes_refuses_their_graphs(web, draw):
    """In a node task rows are nodes, and its one graph, far larger than a carrier, is never refused."""
    model, mark = new_model(web, "GCN", 0, hidden_channels=8), draw("node", m=32)
    endpoint = Refuse("NaN", m=8, epochs=3)(model, web)
    detector, batch = endpoint._guard[0], to_batch(mark.carriers)
    odd = detector(batch)
    assert odd.double().mean() > 0.5
    assert endpoint.serve(batch).isnan().any(1).equal(odd[batch.batch])
    assert accuracy(endpoint, web, web.test) == accuracy(model, web, web.test)
    verdict = verify(endpoint.serve, mark)
    assert verdict.status == "inconclusive"
    assert f"refused {int(odd.sum())} of 32 carriers" in verdict.reasons[0]


# --- names, plug-ins, senseless arguments ---------------------------------------------------------


def test_names_on_a_command_line():
    everything = [*edits.suite(), *suite()]
    assert repr(pick("ft-clean-20-epochs", everything)) == "FT-clean 20 epochs"
    assert repr(pick("prune 20%", everything)) == "prune 20%"
    assert [repr(e) for e in pick_all(["kd", "prune-2"], everything)] == [
        "prune 20%", "prune 20% of channels", "KD-kill",
    ]  # fmt: skip
    for choose in (pick, lambda name, among: pick_all([name], among)):
        with pytest.raises(ParameterError, match="kd-kil1") as caught:
            choose("kd-kil1", everything)
        assert "kd-kill" in caught.value.advice
    with pytest.raises(ParameterError) as caught:
        pick("%%%", everything)
    assert "--list" in caught.value.advice


PLUGIN = """
from invgnn.attacks.removal import FTClean
from invgnn.attacks.edits import Prune
longer, edit = (lambda: FTClean(500)), Prune(0.1)
"""


def test_plugins_come_after_the_suite(tmp_path, monkeypatch):
    (tmp_path / "thieving.py").write_text(PLUGIN)
    about = tmp_path / "thieving-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: thieving\nVersion: 1.0\n")
    points = about / "entry_points.txt"
    points.write_text("[invgnn.attacks]\na = thieving:longer\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert [repr(a) for a in find_attacks()] == [*map(repr, suite()), "FT-clean 500 epochs"]
    assert "FT-clean 500 epochs" not in map(repr, edits.find_edits())
    points.write_text("[invgnn.attacks]\na = thieving:edit\n")
    with pytest.raises(EditError, match="a Prune, not an Attack") as caught:
        find_attacks()
    assert "invgnn.attacks.attack.Attack" in caught.value.advice
    sys.modules.pop("thieving")


@pytest.mark.parametrize(
    "make",
    [
        lambda: ChannelScrub(0),
        lambda: ChannelScrub(1),
        lambda: ZeroHead("first"),
        lambda: KDKill(epochs=0),
        lambda: KDKill(temperature=0),
        lambda: FTClean(0),
        lambda: Overwrite(m=7),
        lambda: Overwrite(epochs=0),
        lambda: Overwrite(lr=float("nan")),
        lambda: Unlearn(0),
        lambda: Unlearn(weight=-1),
        lambda: Extract(0),
        lambda: Extract(1.5),
        lambda: Extract(1, "gradients"),
        lambda: Extract(1, student="double"),
        Serve,
        lambda: Serve(digits=0),
        lambda: Serve(temperature=0),
        lambda: Serve(noise=-1),
        lambda: Format("in Latin"),
        lambda: Refuse("silence"),
        lambda: Refuse(m=7),
        lambda: Refuse(secrets=0),
        Collude,
        lambda: Collude("another"),
    ],
)
def test_senseless_attacks(make):
    with pytest.raises(ParameterError) as caught:
        make()
    assert caught.value.advice


def test_the_page_on_adding_an_attack_works():
    page = Path(__file__).parents[2] / "docs" / "how-to/add-an-attack.md"
    code = page.read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    space: dict[str, object] = {}
    exec(code, space)  # noqa: S102  # our own page
    check_edit(space["Shake"]())
