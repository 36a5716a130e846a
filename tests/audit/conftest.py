"""A mark, and servers that know an answer to each of its questions."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from _helpers import hostile
from _helpers.answers import answers_for
from _helpers.servers import process
from invgnn.audit.remote import Endpoint


@pytest.fixture(scope="session")
def remote_mark(draw):
    """A mark of 128 carriers that may be read from scores and from labels."""
    return draw(m=128, access=("logits", "labels"))


@pytest.fixture(scope="session")
def tables(remote_mark):
    """Tables of a copy, of a weaker copy and of an innocent model, by name."""
    made = {
        "copy": answers_for(remote_mark, "logits", 126, 1),
        "labels": answers_for(remote_mark, "labels", 126, 2),
        "weak": answers_for(remote_mark, "logits", 112, 3),
        "innocent": answers_for(remote_mark, "logits", 64, 4),
    }
    both = {key: [row[0], made["innocent"][key][0], row[-1]] for key, row in made["copy"].items()}
    return {**made, "several": both}


@pytest.fixture(scope="session")
def server(tables, tmp_path_factory):
    """Starts a server process with a table and a behaviour; yields address, process and log."""

    @contextmanager
    def start(table="copy", behaviour="good", port=0, log=None, **more):
        folder = tmp_path_factory.mktemp("server")
        (folder / "table.json").write_text(json.dumps({**tables[table], **more}))
        log = log or folder / "log.jsonl"
        script = Path(hostile.__file__)
        command = [sys.executable, script, folder / "table.json", behaviour, log, port]
        with process(command) as (child, line):
            yield line.strip(), child, log

    return start


@pytest.fixture(scope="session")
def endpoint():
    """An endpoint that waits as little as tests can afford."""

    def made(url, **options):
        return Endpoint(url, **{"backoff": 0.01, "timeout": 5.0, "attempts": 3, **options})

    return made
