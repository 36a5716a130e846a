"""Write the golden transcripts, once: python tests/golden/make_transcripts.py (from the repository root).

They are never written again: a later version has to read these. Bad files are named by their defect.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import invgnn
from _helpers.copies import copy_of
from _helpers.court import golden_people
from invgnn.audit.remote.journal import Journal
from invgnn.audit.remote.session import plan_items
from invgnn.serve.run import serving
from invgnn.storage.container import canonical_json

HERE = Path(__file__).parent
FOLDER = HERE / "transcripts"
COUNTS = ((0, 8), (40, 3))
"""Numbers of decoys and of repeated questions."""
SCORE = rb'(?<="scores":\[\[)[^,]*'


def shown(verdict):
    """What a replay has to find again."""
    return {name: verdict.to_json()[name] for name in ("status", "matches", "ones", "log10_p", "queries")}


def main() -> None:
    FOLDER.mkdir()
    mark, (auditor, _) = invgnn.Watermark.load(HERE / "v2-graph.mark"), golden_people()
    found = {}
    with serving(copy_of(mark)) as base:
        url = f"{base}/v2/models/m"
        for name, how in {"fixed": None, "betting": "betting", "sprt": "sprt"}.items():
            held = invgnn.Endpoint(url, journal=FOLDER / f"v1-{name}.jsonl", signer=auditor)
            found[name] = shown(invgnn.verify(held, mark, access="logits", sequential=how))
        held = invgnn.Endpoint(url, journal=FOLDER / "v1-not-signed.jsonl")
        invgnn.verify(held, mark, access="logits")
    orders = {f"{decoys}, {repeats}": plan_items(mark, decoys, repeats) for decoys, repeats in COUNTS}
    golden = {"signer": auditor.key, "verdicts": found, "orders": orders}
    (FOLDER / "v1.json").write_text(json.dumps(golden, indent=1))
    bad()


def rules_2() -> None:
    """Write a transcript of each sequential method by rules 2, which name themselves in the plan."""
    mark, (auditor, _) = invgnn.Watermark.load(HERE / "v2-graph.mark"), golden_people()
    found = {}
    with serving(copy_of(mark)) as base:
        for how in ("betting", "sprt"):
            path = FOLDER / f"rules-2-{how}.jsonl"
            held = invgnn.Endpoint(f"{base}/v2/models/m", journal=path, signer=auditor)
            few = invgnn.Sequential(how, bits=20)
            found[how] = shown(invgnn.verify(held, mark, access="logits", sequential=few))
    (FOLDER / "rules-2.json").write_text(json.dumps({"signer": auditor.key, "verdicts": found}, indent=1))


def bad() -> None:
    """Write one file for each defect."""
    lines = (FOLDER / "v1-fixed.jsonl").read_bytes().splitlines(keepends=True)
    files = {
        "line-missing": [*lines[:3], *lines[4:]],
        "lines-swapped": [*lines[:2], lines[3], lines[2], *lines[4:]],
        "line-twice": [*lines[:3], *lines[2:]],
        "line-after-the-end": [*lines, lines[2]],
        "plan-missing": lines[1:],
        "plan-altered": [lines[0].replace(b'"alpha":1e-06', b'"alpha":0.01'), *lines[1:]],
        "score-altered": [
            *lines[:2],
            re.sub(SCORE, b"9.5", lines[2], count=1),
            *lines[3:],
        ],
        "not-finished": lines[:-1],
        "newer-version": [lines[0].replace(b"transcript.v1", b"transcript.v2"), *lines[1:]],
        "field-twice": [
            *lines[:2],
            lines[2].replace(b'{"at":', b'{"at":"2020","at":', 1),
            *lines[3:],
        ],
        "with-spaces": [*lines[:2], lines[2].replace(b'":', b'": ', 1), *lines[3:]],
        "signature-altered": [*lines[:-1], chained(lines, signature="00" * 64)],
        "signature-of-another-head": [*lines[:-1], chained(lines, head="00" * 32)],
        "chain-computed-anew": anew(lines),
        "nested-deep": [b"[" * 5000 + b"\n"],
    }
    for name, held in files.items():
        data = b"".join(held)
        assert data != b"".join(lines), name
        (FOLDER / f"v1-{name}.jsonl").write_bytes(data)


def chained(lines: list[bytes], **changes: str) -> bytes:
    """The last line with other values and a chain that fits."""
    journal = Journal()
    for raw in lines[:-1]:
        journal.lines.append(json.loads(raw))
    journal.chain = journal.lines[-1]["chain"]
    last = {name: value for name, value in json.loads(lines[-1]).items() if name != "chain"}
    journal.append({**last, **changes})
    return canonical_json(journal.lines[-1]) + b"\n"


def anew(lines: list[bytes]) -> list[bytes]:
    """The lines with two replies exchanged, the chain computed anew, and the old signature."""
    journal = Journal()
    for number, raw in enumerate(lines):
        line = {name: value for name, value in json.loads(raw).items() if name != "chain"}
        if number == 2:
            line["replies"] = line["replies"][::-1]
        journal.append({**line, "head": journal.chain} if line["type"] == "end" else line)
    return [canonical_json(line) + b"\n" for line in journal.lines]


if __name__ == "__main__":
    main()
    rules_2()
