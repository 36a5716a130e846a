"""Real server processes for tests: `invgnn serve`, and servers that behave badly."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import warnings
from contextlib import contextmanager
from pathlib import Path

INVGNN = Path(sys.executable).with_name("invgnn")


@contextmanager
def served(*arguments, port=0, cwd=None):
    """A process of `invgnn serve`, and the address of its model."""
    with process([INVGNN, "serve", "--port", port, *arguments], cwd=cwd) as (child, line):
        yield child, re.search(r"http://\S+/infer", line).group()


@contextmanager
def forked(app, port=0):
    """The application in a copy of this process; yields its address and its process number."""
    import uvicorn

    held = socket.create_server(("127.0.0.1", port))
    address = f"http://127.0.0.1:{held.getsockname()[1]}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of threads that a copy does not have
        child = os.fork()
    if not child:
        try:
            uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[held])
        finally:
            os._exit(0)
    held.close()
    try:
        yield address, child
    finally:
        end(child)


def end(child, how=signal.SIGKILL):
    """End a copy of this process; once is enough."""
    try:
        os.kill(child, how)
        os.waitpid(child, 0)
    except (ProcessLookupError, ChildProcessError):
        pass


@contextmanager
def process(command, cwd=None):
    """A process whose first line of standard error says that it is ready; it is ended after the block."""
    child = subprocess.Popen(
        [str(word) for word in command],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    try:
        line = child.stderr.readline()
        assert "http" in line, line + child.stderr.read()
        yield child, line
    finally:
        if child.poll() is None:
            child.send_signal(signal.SIGTERM)
        try:
            child.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            child.kill()
            child.communicate()
