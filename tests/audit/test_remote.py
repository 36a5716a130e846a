"""A model behind HTTP: the same verdict as in process, from servers of every kind, and nothing is lost."""

from __future__ import annotations

import json
import os
import stat

import numpy as np
import pytest

import invgnn
from _helpers import hostile
from invgnn.audit.remote.journal import Journal
from invgnn.audit.remote.session import plan_items
from invgnn.court.identity import Identity
from invgnn.errors import BudgetError, EndpointError, FileError, ParameterError, SuspectError


def questions(log):
    """Every question that a server was asked, in order."""
    if not os.path.exists(log):
        return []
    with open(log) as file:
        return [key for line in file for key in json.loads(line)["keys"]]


def direct(table):
    """The same answers as a function in this process."""

    def suspect(batch):
        rows = []
        for graph in batch.to_data_list():
            key = hostile.key_of(graph.x.tolist(), graph.edge_index.T.tolist())
            rows.append(table[key][0])
        return np.array(rows)

    return suspect


@pytest.mark.parametrize("access", ["logits", "labels"])
@pytest.mark.parametrize("table", ["copy", "labels", "innocent"])
def test_the_same_verdict_as_in_process(remote_mark, tables, server, endpoint, access, table):
    here = invgnn.verify(direct(tables[table]), remote_mark, access=access)
    with server(table) as (url, _, log):
        there = invgnn.verify(endpoint(url), remote_mark, access=access)
    assert there.status == here.status
    assert (there.matches, there.ones, there.log10_p) == (here.matches, here.ones, here.log10_p)
    asked = questions(log)
    assert len(asked) == 128 + 64 + 8 == there.audit["questions"] == there.queries
    assert len(set(asked)) == 192
    assert there.audit["differing"] == 0
    assert there.code["foreign"] == []
    assert url in there.condition
    assert json.loads(json.dumps(there.to_json())) == there.to_json() | {
        name: list(value) for name, value in there.to_json().items() if isinstance(value, tuple)
    }


def test_an_endpoint_is_a_suspect_like_any_other(remote_mark, server, endpoint):
    with server() as (url, _, _):
        answers = remote_mark.read(endpoint(url), "logits")
        assert remote_mark.evidence(answers).matches == 126
        graphs, _ = remote_mark.asked
        from invgnn.nn.forward import to_batch

        rows = endpoint(url)(to_batch(graphs.take(range(3))))
    assert rows.shape == (3, 2)


# -- what is asked -------------------------------------------------------------------------------------


def test_the_order_does_not_depend_on_the_bits(remote_mark, draw):
    items = plan_items(remote_mark, 5, 8)
    count = len(remote_mark.order)
    assert sorted(item.place for item in items if not item.again) == list(range(count + 5))
    seen = set()
    for item in items:
        assert (item.place in seen) == item.again
        seen.add(item.place)
    carriers = [
        n for n, item in enumerate(items) if item.place < count and remote_mark.order[item.place] < 128
    ]
    assert carriers[0] >= 16
    # a mark with other bits and the same context and secret has the same order
    other = draw(m=128, access=("logits", "labels"), seed=1)
    assert plan_items(other, 5, 8) != items
    bits = remote_mark.bits[[remote_mark.order[items[n].place] for n in carriers]]
    assert 40 < bits[:64].sum() + (1 - bits[64:]).sum() < 88  # neither half is favoured


def test_decoys_hide_carriers(remote_mark, tables, server, endpoint, motifs):
    from invgnn.watermark.reference import Reference

    more = {}
    for number in range(len(motifs.data)):
        graph = Reference.of(motifs.data).graphs.take([number])
        more[hostile.key_of(graph.x.tolist(), graph.directed().T.tolist())] = [[0.5, 0.5], "decoy"]
    kept = {key: row for key, row in more.items() if key not in tables["copy"]}
    with server(**kept) as (url, _, log):
        verdict = invgnn.verify(
            endpoint(url, decoys=300, repeats=0), remote_mark, data=motifs.data, access="logits"
        )
    assert verdict.status == "owned"
    assert len(questions(log)) == 128 + 64 + 300
    assert verdict.matches == 126
    with pytest.raises(ParameterError, match="no data"):
        invgnn.verify(endpoint(url, decoys=3), remote_mark)


def test_nothing_but_questions_is_sent(remote_mark, server, endpoint, monkeypatch, tmp_path):
    monkeypatch.setenv("SUPER_TOKEN", "s3cret-t0ken")
    path = tmp_path / "a.jsonl"
    with server(behaviour="wants a token") as (url, _, _):
        verdict = invgnn.verify(
            endpoint(url, token="SUPER_TOKEN", journal=path), remote_mark, access="logits"
        )
        assert verdict.status == "owned"
        with pytest.raises(EndpointError, match="401"):
            invgnn.verify(endpoint(url), remote_mark)
        monkeypatch.delenv("SUPER_TOKEN")
        with pytest.raises(ParameterError, match="SUPER_TOKEN"):
            invgnn.verify(endpoint(url, token="SUPER_TOKEN"), remote_mark)
    held = path.read_text() + json.dumps(verdict.to_json())
    assert "s3cret" not in held
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert bytes(remote_mark.secret).hex() not in held


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("ftp://host/x", "no address of HTTP"),
        ("nonsense", "no address of HTTP"),
        ("http://example.com/v2/models/m", "not encrypted"),
        ("https://me:secret@example.com/v2/models/m", "password"),
        ("http://127.0.0.1\n/x", "no address of HTTP"),
    ],
)
def test_addresses_that_are_refused(url, told):
    with pytest.raises(ParameterError, match=told) as caught:
        invgnn.Endpoint(url)
    assert "secret" not in str(caught.value)


def test_a_key_in_the_address_is_not_shown(endpoint):
    held = endpoint("https://example.com/v2/models/m?key=hush")
    assert "hush" not in repr(held) + held.shown
    assert held.transport.url == "https://example.com/v2/models/m/infer?key=hush"


@pytest.mark.parametrize(
    "options",
    [
        *({"batch": 0}, {"rate": -1.0}, {"timeout": 0}, {"attempts": 0}, {"budget": 5.0}, {"decoys": -1}),
        *({"price": -1.0}, {"max_queries": 0}, {"mapping": {"graph": {}}}),
    ],
    ids=str,
)
def test_senseless_settings(options):
    with pytest.raises(ParameterError):
        invgnn.Endpoint("https://example.com/v2/models/m", **options)


def test_another_json_shape(remote_mark, tables, server, endpoint, tmp_path):
    graphs, _ = remote_mark.asked
    other = []
    for place in range(len(graphs)):
        graph = graphs.take([place])
        edges = graph.directed().T.tolist()
        other.append([tables["copy"][hostile.key_of(graph.x.tolist(), edges)][0], edges])
    mapping = {
        "graph": {"features": "$x", "links": "$adjacency", "size": "$num_nodes"},
        "request": {"model": "gold", "graph": "$graph"},
        "reply": "result.scores",
    }
    (tmp_path / "map.json").write_text(json.dumps(mapping))
    with server(other=other) as (url, _, _):
        verdict = invgnn.verify(endpoint(url, mapping=tmp_path / "map.json"), remote_mark, access="logits")
    assert verdict.status == "owned"
    assert verdict.matches == 126
    for wrong in ({"request": {}}, {"reply": "a b"}, {"request": "$graphs"}, {"graph": {"x": "$weights"}}):
        with pytest.raises((ParameterError, SuspectError)):
            invgnn.verify(endpoint(url, mapping={**mapping, **wrong}), remote_mark)


# -- servers that behave badly -------------------------------------------------------------------------

FINE = ["busy at first", "out of order", "truncated", "rounds", "temperature", "caches"]
FINE += ["wants to recognise clients"]


@pytest.mark.parametrize("behaviour", FINE)
def test_servers_that_make_it_hard_and_give_a_verdict(remote_mark, server, endpoint, behaviour):
    with server(behaviour=behaviour) as (url, _, _):
        verdict = invgnn.verify(endpoint(url, attempts=6), remote_mark, access="logits")
    assert verdict.status == "owned"
    assert verdict.audit["differing"] == 0


@pytest.mark.parametrize("behaviour", ["nan", "huge numbers", "other shapes"])
def test_servers_that_spoil_some_answers(remote_mark, server, endpoint, behaviour):
    with server(behaviour=behaviour) as (url, _, _):
        verdict = invgnn.verify(endpoint(url), remote_mark, access="logits")
    assert verdict.evidence_bits > 10
    assert verdict.p <= 1


def test_the_top_label_alone(remote_mark, server, endpoint):
    with server("labels", "top 1") as (url, _, _):
        verdict = invgnn.verify(endpoint(url), remote_mark, access="labels")
    assert verdict.status == "owned"


@pytest.mark.parametrize(
    "behaviour",
    [
        *("refuses carriers", "garbage on carriers", "busy on carriers", "redirects carriers"),
        *("surrogates on carriers", "odd names on carriers"),
    ],
)
@pytest.mark.parametrize("batch", [1, 16])
def test_servers_that_refuse_carriers_are_seen(remote_mark, server, endpoint, behaviour, batch, tmp_path):
    """Also if no batch of questions is without a carrier, so that at first no request is answered."""
    path = tmp_path / "a.jsonl"
    with (
        server("innocent") as (safe, _, log),
        server(behaviour=behaviour, elsewhere=safe) as (url, _, _),
    ):
        held = endpoint(url, attempts=1, batch=batch, journal=path)
        verdict = invgnn.verify(held, remote_mark, access="logits")
    assert verdict.status == "inconclusive"
    assert verdict.refused["carriers"] == 128
    assert verdict.refused["ordinary"] == 0
    assert not questions(log), "a redirect was followed"
    assert path.stat().st_size < 400_000  # long messages of a server are cut


@pytest.mark.story
def test_a_server_that_asks_to_wait_for_nothing_is_not_believed(remote_mark, server, endpoint):
    """Otherwise one second for each of 128 carriers, or one minute, would be added to the audit."""
    import time

    with server(behaviour="puts off carriers") as (url, _, _):
        start = time.monotonic()
        verdict = invgnn.verify(endpoint(url, attempts=2), remote_mark, access="logits")
    assert verdict.refused["carriers"] == 128
    assert 3 < time.monotonic() - start < 60


def test_two_audits_at_a_time_do_not_share_a_journal(remote_mark, server, endpoint, tmp_path):
    """The second one ends as soon as it notices, before it asks, and the first loses nothing."""
    path, events = tmp_path / "a.jsonl", []

    def meanwhile(state):
        events.append(state)
        if len(events) == 1:
            late.append(endpoint(url, journal=path))
        elif len(events) == 2:
            before = len(questions(log))
            with pytest.raises(FileError, match="another audit") as caught:
                invgnn.verify(late[0], remote_mark, access="logits")
            assert "run the same command again" in caught.value.advice
            assert len(questions(log)) == before

    late = []
    with server() as (url, _, log):
        held = endpoint(url, journal=path)
        verdict = invgnn.verify(held, remote_mark, access="logits", progress=meanwhile)
        assert len(events) >= 2
        assert verdict.status == "owned"
        again = invgnn.verify(endpoint(url, journal=path), remote_mark, access="logits")
    assert again.log10_p == verdict.log10_p


def test_a_line_that_does_not_fit_on_the_disk_leaves_the_journal_as_it_was(tmp_path, monkeypatch):
    import os

    journal, write = Journal(tmp_path / "a.jsonl"), os.write
    journal.begin({"a": 1})
    whole = (tmp_path / "a.jsonl").read_bytes()

    def full(held, data):
        if len(data) < 40:
            raise OSError(28, "No space left on device")
        return write(held, data[:-39])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(FileError, match="No space left"):
        journal.append({"type": "failure", "sent": 1, "requests": 1})
    monkeypatch.undo()
    assert (tmp_path / "a.jsonl").read_bytes() == whole
    journal.append({"type": "failure", "sent": 1, "requests": 1})
    assert len(Journal(tmp_path / "a.jsonl").lines) == 2


def test_a_server_that_is_busy_for_a_while_is_asked_again(remote_mark, server, endpoint):
    with server(behaviour="busy for a while") as (url, _, _):
        verdict = invgnn.verify(endpoint(url, attempts=2, batch=1), remote_mark, access="logits")
    assert (verdict.status, verdict.matches) == ("owned", 126)
    assert verdict.refused is None


def test_several_models_are_noticed(remote_mark, server, endpoint):
    with server("several", "several models") as (url, _, _):
        verdict = invgnn.verify(endpoint(url, repeats=16), remote_mark, access="logits")
    assert verdict.audit["differing"] > 2
    assert any("several models" in reason for reason in verdict.reasons)
    assert verdict.status == "inconclusive"


@pytest.mark.parametrize(
    ("behaviour", "error", "told"),
    [
        ("garbage", SuspectError, "no JSON"),
        ("html", SuspectError, "Please log in|html"),
        ("deep", SuspectError, "no JSON"),
        ("too few rows", SuspectError, "shape"),
        ("bomb", SuspectError, "compressed"),
        ("huge body", SuspectError, "more than"),
        ("long labels", SuspectError, "too long|too many"),
        ("drips", EndpointError, "in time"),
        ("redirects", EndpointError, "redirects"),
    ],
)
def test_servers_without_an_answer(remote_mark, server, endpoint, behaviour, error, told):
    import resource

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    options = {"timeout": 0.3} if behaviour == "drips" else {}
    with server("innocent") as (safe, _, log), server(behaviour=behaviour, elsewhere=safe) as (url, _, _):
        with pytest.raises(error, match=told) as caught:
            invgnn.verify(endpoint(url, attempts=2, most_bytes=1 << 20, **options), remote_mark)
        assert not questions(log), "a redirect was followed"
    assert caught.value.advice
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kilobytes


def test_late_answers_are_waited_for_within_the_limit(remote_mark, server, endpoint):
    with server(behaviour="late") as (url, _, _):
        verdict = invgnn.verify(endpoint(url, timeout=1.0), remote_mark, access="logits")
    assert verdict.status == "owned"


def test_a_dead_server_loses_nothing(remote_mark, server, endpoint, tmp_path):
    path = tmp_path / "a.jsonl"
    with server(behaviour="dies") as (url, child, log):
        with pytest.raises(EndpointError, match="cannot be reached") as caught:
            invgnn.verify(endpoint(url, journal=path), remote_mark, access="logits")
        assert "go on" in caught.value.advice
        child.wait(10)
    before = questions(log)
    assert len(before) == 64  # three requests were answered, one was lost
    with open(path, "ab") as file:
        file.write(b'{"cut off by a cra')
    port = int(url.split(":")[2].split("/")[0])
    with server(port=port, log=log) as (again, _, _):
        assert again == url
        verdict = invgnn.verify(endpoint(url, journal=path), remote_mark, access="logits")
    assert verdict.status == "owned"
    after = questions(log)[64:]
    assert len(after) == 200 - 48  # and only what was missing is asked
    assert verdict.audit["sent"] >= 200 + 16  # what was sent in vain is counted, too
    again = invgnn.verify(endpoint(url, journal=path), remote_mark, access="logits")  # the server is gone
    assert again.log10_p == verdict.log10_p


def test_budgets(remote_mark, server, endpoint):
    with server() as (url, _, log):
        with pytest.raises(BudgetError, match="beyond the budget"):
            invgnn.verify(endpoint(url, max_queries=100), remote_mark, access="logits")
        with pytest.raises(BudgetError, match="beyond the budget"):
            invgnn.verify(endpoint(url, price=0.01, budget=1.0), remote_mark, access="logits")
        assert not questions(log)  # known before the first question
        verdict = invgnn.verify(endpoint(url, price=0.01, budget=2.0), remote_mark, access="logits")
    assert verdict.audit["cost"] == pytest.approx(2.0)


def test_the_rate_is_kept(remote_mark, server, endpoint):
    import time

    with server() as (url, _, _):
        start = time.monotonic()
        invgnn.verify(endpoint(url, rate=20.0, batch=50), remote_mark, access="logits")
    assert time.monotonic() - start >= 3 / 20


# -- transcripts ---------------------------------------------------------------------------------------


@pytest.fixture
def audited(remote_mark, server, endpoint, tmp_path):
    """The verdict of an audit, and its signed transcript."""
    path = tmp_path / "signed.jsonl"
    with server() as (url, _, _):
        signer = Identity.generate("auditor")
        verdict = invgnn.verify(endpoint(url, journal=path, signer=signer), remote_mark, access="logits")
    return verdict, path, signer


def test_a_judge_replays_the_audit(remote_mark, audited, draw):
    verdict, path, signer = audited
    stranger = invgnn.verify(invgnn.Transcript.load(path), remote_mark, access="logits")
    assert stranger.status == "inconclusive"  # a claimant could have signed answers of their own
    with pytest.raises(FileError, match="not signed with the key"):
        invgnn.Transcript.load(path, Identity.generate("somebody else").key)
    transcript = invgnn.Transcript.load(path, signer.key)
    assert transcript.key == signer.key
    again = invgnn.verify(transcript, remote_mark, access="logits")
    assert (again.status, again.log10_p, again.matches) == (
        verdict.status,
        verdict.log10_p,
        verdict.matches,
    )
    assert signer.key in again.condition
    assert (
        invgnn.verify(transcript, remote_mark, access="logits", code_from="claimant").status
        == "inconclusive"
    )
    with pytest.raises(FileError, match=r"another audit.*alpha"):
        invgnn.verify(transcript, remote_mark, 1e-3, access="logits")
    with pytest.raises(FileError, match=r"another audit.*access"):
        invgnn.verify(transcript, remote_mark)
    with pytest.raises(FileError, match=r"another audit.*mark"):
        invgnn.verify(transcript, draw(m=128, access=("logits", "labels"), seed=1), access="logits")


def test_a_transcript_without_a_signature_is_not_enough(remote_mark, server, endpoint, tmp_path):
    with server() as (url, _, _):
        invgnn.verify(endpoint(url, journal=tmp_path / "a.jsonl"), remote_mark, access="logits")
    again = invgnn.verify(invgnn.Transcript.load(tmp_path / "a.jsonl"), remote_mark, access="logits")
    assert again.status == "inconclusive"
    assert "nobody has signed" in again.reasons[0]


def lines_of(path):
    return path.read_bytes().splitlines(keepends=True)


def rewritten(lines, change):
    """The lines with one of them changed, and the whole chain computed anew: what a forger would do."""
    journal = Journal()
    for number, raw in enumerate(lines):
        line = json.loads(raw)
        line = change(number, line)
        if line is None:
            continue
        held = {k: v for k, v in line.items() if k not in ("chain", "at")}
        if held["type"] == "end":
            held["head"] = journal.chain
        journal.append(held)
    return [
        json.dumps(line, sort_keys=True, separators=(",", ":")).encode() + b"\n" for line in journal.lines
    ]


ALTERED = {
    "a line removed": lambda lines: lines[:3] + lines[4:],
    "lines swapped": lambda lines: [*lines[:2], lines[3], lines[2], *lines[4:]],
    "a digit changed": lambda lines: [*lines[:2], lines[2].replace(b"0.1", b"0.9", 1), *lines[3:]],
    "a line twice": lambda lines: [*lines[:3], lines[2], *lines[3:]],
    "unfinished": lambda lines: lines[:-1],
    "lines after the end": lambda lines: [*lines, lines[1]],
    "no plan": lambda lines: lines[1:],
    "chain computed anew": lambda lines: rewritten(
        lines, lambda n, line: {**line, "replies": line["replies"][::-1]} if n == 2 else line
    ),
    "a request left out, chain anew": lambda lines: rewritten(
        lines, lambda n, line: None if n == 3 else line
    ),
    "another form": lambda lines: [b"[1, 2]\n"],
    "nested": lambda lines: [b"[" * 100_000 + b"\n"],
    "empty": lambda lines: [],
}


@pytest.mark.parametrize("name", ALTERED)
def test_altered_transcripts(remote_mark, audited, name):
    _, path, _ = audited
    path.write_bytes(b"".join(ALTERED[name](lines_of(path))))
    with pytest.raises(FileError):
        invgnn.verify(invgnn.Transcript.load(path), remote_mark, access="logits")


def test_answers_cannot_be_left_out_even_by_the_signer(remote_mark, audited):
    """Whoever may sign can write any answer, but the questions are those of the mark: all of them."""
    _, path, signer = audited
    lines = rewritten(lines_of(path), lambda n, line: None if n == 3 else line)
    path.write_bytes(b"".join(lines[:-1]))
    Journal(path).finish(signer)
    with pytest.raises(FileError, match="not in the transcript"):
        invgnn.verify(invgnn.Transcript.load(path), remote_mark, access="logits")


def test_a_journal_of_another_audit_is_not_used(remote_mark, audited, endpoint):
    _, path, _ = audited
    with pytest.raises(FileError, match="another audit"):
        invgnn.verify(
            endpoint("http://127.0.0.1:9/v2/models/x", journal=path), remote_mark, access="logits"
        )


def test_a_journal_of_another_model_at_the_same_address_is_not_used(
    remote_mark, server, endpoint, tmp_path
):
    """The query of an address may choose the model. It is not shown, but it belongs to the record."""
    path = tmp_path / "a.jsonl"
    with server() as (url, _, _):
        held = endpoint(f"{url}?model=a&key=hush", journal=path)
        first = invgnn.verify(held, remote_mark, access="logits")
        assert "hush" not in path.read_text()
        with pytest.raises(FileError, match=r"another audit.*query"):
            invgnn.verify(endpoint(f"{url}?model=b&key=hush", journal=path), remote_mark, access="logits")
        with pytest.raises(FileError, match=r"another audit.*query"):
            invgnn.verify(endpoint(url, journal=path), remote_mark, access="logits")
    again = invgnn.verify(invgnn.Transcript.load(path), remote_mark, access="logits")
    assert again.log10_p == first.log10_p


def test_a_journal_that_cannot_be_written(endpoint, tmp_path, remote_mark, server):
    with server() as (url, _, log):
        held = endpoint(url, journal=tmp_path / "no folder" / "a.jsonl")
        with pytest.raises(FileError, match="cannot be used"):
            invgnn.verify(held, remote_mark, access="logits")
        assert not questions(log)
