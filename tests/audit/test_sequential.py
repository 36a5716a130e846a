"""A sequential audit: fewer questions, the same verdicts, resumable, and sound whatever the server does."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import invgnn
from _helpers import hostile
from _helpers.answers import answers_for
from invgnn.audit.remote.journal import Journal
from invgnn.audit.remote.reply import Reply
from invgnn.audit.remote.session import Session
from invgnn.audit.sequential import Sequential, examine_sequentially
from invgnn.audit.votes import votes_of
from invgnn.court.identity import Identity
from invgnn.errors import EndpointError, ParameterError


class Local:
    """Replies from a function in this process, in place of a server."""

    shown, decoys, repeats, batch = "here", 0, 4, 16

    def __init__(self, answer):
        self.answer, self.journal = answer, Journal()
        self.journal.append({"type": "plan", "plan": {"decoys": 0, "repeats": 4}})
        self.journal.begin = lambda plan: None

    def replies(self, graphs):
        return [Reply(self.answer(graphs.take([place]))) for place in range(len(graphs))]


def course(mark, answer, how="betting", bits=20.0, access="logits", **options):
    """The finding of a sequential audit of a function."""
    session = Session(Local(answer), mark, None, {})
    session.finish = lambda early=False: None
    return examine_sequentially(
        mark, session, Sequential(how), alpha=1e-6, suspects=1, bits=bits, access=access, **options
    )


def known(table, mark):
    """A function that answers as a table does."""
    return lambda graph: np.array([table[hostile.key_of(graph.x.tolist(), graph.directed().T.tolist())][0]])


@pytest.mark.parametrize("how", ["betting", "sprt"])
@pytest.mark.parametrize(("table", "access"), [("copy", "logits"), ("labels", "labels")])
def test_a_copy_is_found_with_few_carriers(remote_mark, tables, how, table, access):
    found = course(remote_mark, known(tables[table], remote_mark), how, access=access)
    assert found.stop == "enough"
    assert found.log_p <= math.log(1e-6)
    assert found.best.evidence.m <= 30  # 22 if all matched
    assert found.best.evidence.matches >= found.best.evidence.m - 2
    assert found.best.access == access


def carriers_needed(draw, marks, audits, matches):
    """Mean number of carriers until p <= 1e-6, for two declared levels, one of which is read."""
    found = []
    for seed in range(marks):
        mark = draw(m=128, access=("embedding", "logits"), seed=100 + seed)
        for number in range(audits):
            table = answers_for(mark, "logits", matches, 100 * seed + number)
            found.append(course(mark, known(table, mark), access=None).best.evidence.m)
    return np.mean(found)


@pytest.mark.parametrize(("matches", "most"), [(128, 24), (122, 34)])
def test_an_audit_needs_few_carriers(draw, matches, most):
    assert carriers_needed(draw, 3, 1, matches) <= most


@pytest.mark.story
@pytest.mark.parametrize(("matches", "marks", "most"), [(116, 80, 40), (104, 20, 79.0)])
def test_an_audit_needs_as_few_carriers_as_promised(draw, matches, marks, most):
    """At most 40 of 128 carriers from 116 matches on, below that 1.2 x 20 / (1 - H(T / m))."""
    assert carriers_needed(draw, marks, 1, matches) <= most


@pytest.mark.parametrize("how", ["betting", "sprt"])
def test_an_innocent_is_given_up(remote_mark, tables, how):
    found = course(remote_mark, known(tables["innocent"], remote_mark), how)
    assert found.stop in ("hopeless", "all")
    assert found.log_p > math.log(1e-3)


def test_columns_in_another_order_are_found(remote_mark, tables):
    honest = known(tables["copy"], remote_mark)
    found = course(remote_mark, lambda graph: honest(graph)[:, ::-1])
    assert found.stop == "enough"
    assert found.aligned
    assert found.columns == (1, 0)


def test_carriers_that_are_all_above_the_ordinary_threshold(remote_mark, tables):
    """A shift of all answers to carriers hides nothing: their own median and ranks are used as well."""
    signs = remote_mark.direction("logits", 2).numpy()
    honest = known(tables["copy"], remote_mark)
    kinds = {key: row[-1] for key, row in tables["copy"].items()}

    def shifted(graph):
        kind = kinds[hostile.key_of(graph.x.tolist(), graph.directed().T.tolist())]
        return np.log(honest(graph)) + (20 * signs if kind == "carrier" else 0)

    found = course(remote_mark, shifted)
    assert found.stop == "enough"
    assert found.best.evidence.m < 90


def test_missing_answers_are_not_bet_on(remote_mark, tables):
    honest, seen = known(tables["copy"], remote_mark), []

    def half(graph):
        seen.append(graph)
        return None if len(seen) % 2 else honest(graph)

    found = course(remote_mark, half)
    assert found.stop == "enough"
    assert found.best.answers.refused_carriers > 10
    assert course(remote_mark, lambda graph: np.array([[0.5, 0.5]])).log_p == 0


@pytest.mark.parametrize("seed", range(3))
def test_innocent_servers_that_adapt_stay_below_the_level(remote_mark, seed):
    """Over many secrets' worth of bits, no strategy that sees only the questions gains anything."""
    draws, signs = np.random.default_rng(seed), remote_mark.direction("logits", 2).numpy()
    answer = lambda graph: (draws.normal(size=2) * 3 + signs * draws.choice([0, 2]))[None]  # noqa: E731
    found = course(remote_mark, answer, bits=80)
    assert found.log_p > math.log(1e-3)


def test_votes_do_not_depend_on_scale_and_ignore_gaps():
    values = np.array([1.0, 2.0, 3.0, 4.0, np.nan, np.inf, 2.5, 2.5])
    carriers = np.array([1, 1, 1, 1, 1, 0, 0, 0], dtype=bool)
    votes = votes_of(values, carriers, False)
    assert votes[0].tolist() == [-1, -1, 1, 1, 0, 0, 0, 0]
    assert votes[1].tolist() == [-1, -1, 1, 1, 0, 0, 0, 0]
    assert votes[2].tolist() == [-0.75, -0.25, 0.25, 0.75, 0, 0, 0, 0]
    assert np.array_equal(votes, votes_of(1000 * values, carriers, False))
    assert votes_of(np.array([0.0, 1.0, np.nan]), np.ones(3, dtype=bool), True)[0].tolist() == [-1, 1, 0]


def test_clusters_are_seen_in_a_few_unbalanced_answers():
    """The median of carriers is wrong where most of the first bits are equal; the border is not."""
    few = np.array([-1.2, 0.8, 1.1, 0.9, 1.0, 1.2, -0.9, 0.7])
    every = np.ones(8, dtype=bool)
    right = [-1, 1, 1, 1, 1, 1, -1, 1]
    assert votes_of(few, every, False)[3].tolist() == right
    assert votes_of(few, every, False)[1].tolist() != right
    for value in (1e20, -1e20, 1e308):  # one absurd answer changes none of the others
        votes = votes_of(np.append(few, value), np.ones(9, dtype=bool), False)[3]
        assert votes.tolist() == [*right, np.sign(value)]


@pytest.mark.parametrize(
    "values",
    [
        [0.3],
        [0.3, 0.3, 0.3],
        [1e308, -1e308, 1e308, -1e308],
        [1.5e308] * 4,
        [np.nan, np.nan],
        [1.0, np.nan],
    ],
)
def test_where_there_are_no_clusters(values):
    votes = votes_of(np.array(values), np.ones(len(values), dtype=bool), False)
    assert np.isfinite(votes).all()
    assert np.abs(votes).max() <= 1


@pytest.mark.parametrize("options", [{"method": "luck"}, {"rate": 0.5}, {"miss": 0}, {"bits": -1.0}])
def test_senseless_settings(options):
    with pytest.raises(ParameterError):
        Sequential(**options)


def test_only_servers_are_asked_question_by_question(remote_mark, motifs):
    with pytest.raises(ParameterError, match="behind HTTP"):
        invgnn.verify(lambda batch: np.zeros((1, 2)), remote_mark, sequential="betting")


def test_a_plain_mark_is_not_audited_in_steps(draw, endpoint):
    with pytest.raises(ParameterError, match="bits that come from the secret") as caught:
        invgnn.verify(endpoint("http://127.0.0.1:9/v2/models/m"), draw(key="plain"), sequential="sprt")
    assert "keyed" in caught.value.advice


# -- over HTTP -----------------------------------------------------------------------------------------


def requests(log):
    with open(log) as file:
        return [json.loads(line)["keys"] for line in file]


def asked(log):
    return [key for keys in requests(log) for key in keys]


@pytest.mark.parametrize("how", ["betting", "sprt"])
def test_from_the_server_to_the_judge(remote_mark, server, endpoint, tmp_path, how):
    path, events = tmp_path / "a.jsonl", []
    method = Sequential(how, bits=20.0)
    with server() as (url, _, log):
        held = endpoint(url, journal=path, signer=Identity.generate("auditor"), price=0.5, repeats=2)
        verdict = invgnn.verify(
            held, remote_mark, access="logits", sequential=method, progress=events.append
        )
        questions = asked(log)
    assert verdict.p <= 1e-6
    assert verdict.status == "inconclusive"  # 20 bits are not 80
    assert verdict.m == verdict.audit["carriers"] <= 48
    assert len(questions) == verdict.audit["questions"] == verdict.queries < 110
    assert verdict.audit["cost"] == 0.5 * len(questions)
    assert verdict.statistic == how
    assert not verdict.exact
    assert [event["questions"] for event in events] == sorted(event["questions"] for event in events)
    assert events[-1]["evidence_bits"] == pytest.approx(verdict.evidence_bits, abs=1e-6)
    again = invgnn.verify(invgnn.Transcript.load(path), remote_mark, access="logits", sequential=method)
    assert (again.log10_p, again.matches, again.status) == (
        verdict.log10_p,
        verdict.matches,
        verdict.status,
    )
    assert "ended because the evidence was enough" in str(verdict)


def test_the_verdict_of_the_fixed_test(remote_mark, server, endpoint):
    for table, status in (("copy", "owned"), ("innocent", "not shown")):
        with server(table) as (url, _, _):
            verdict = invgnn.verify(endpoint(url), remote_mark, access="logits", sequential="betting")
        assert verdict.status == status
        assert verdict.queries <= 200
    assert any("given up after" in reason for reason in verdict.reasons)


def test_a_crash_in_the_middle_asks_nothing_twice(remote_mark, server, endpoint, tmp_path):
    path, how = tmp_path / "a.jsonl", Sequential(bits=40.0)
    with server(behaviour="dies") as (url, child, log):
        with pytest.raises(EndpointError):
            invgnn.verify(
                endpoint(url, journal=path, repeats=0), remote_mark, access="logits", sequential=how
            )
        child.wait(10)
    lost = requests(log)[-1]
    with server(port=int(url.split(":")[2].split("/")[0]), log=log):
        verdict = invgnn.verify(
            endpoint(url, journal=path, repeats=0), remote_mark, access="logits", sequential=how
        )
    questions = asked(log)
    assert len(questions) == len(set(questions)) + len(lost)  # only the lost request was sent again
    assert sorted(key for key in set(questions) if questions.count(key) > 1) == sorted(lost)
    with server() as (url, _, _):
        whole = invgnn.verify(endpoint(url, repeats=0), remote_mark, access="logits", sequential=how)
    assert (whole.log10_p, whole.matches, whole.m) == (verdict.log10_p, verdict.matches, verdict.m)


def test_a_budget_ends_the_audit_and_its_evidence_counts(remote_mark, server, endpoint, tmp_path):
    path = tmp_path / "a.jsonl"
    with server() as (url, _, log):
        held = endpoint(url, journal=path, max_queries=60, signer=Identity.generate("auditor"))
        verdict = invgnn.verify(held, remote_mark, access="logits", sequential="betting")
    assert len(asked(log)) <= 60
    assert verdict.audit["stop"] == "budget"
    assert verdict.status == "inconclusive"
    assert verdict.evidence_bits > 5
    again = invgnn.verify(invgnn.Transcript.load(path), remote_mark, access="logits", sequential="betting")
    assert again.log10_p == verdict.log10_p
    assert again.audit["stop"] == "budget"
