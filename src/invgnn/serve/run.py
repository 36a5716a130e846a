"""Run the application on a port until the process is told to end."""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from invgnn.errors import ParameterError
from invgnn.serve.connection import TimedConnection

GRACE = 10
"""Seconds that requests get to end when the server stops."""
IDLE = 30
"""Seconds until the head of a request must have arrived."""


def run_app(app: Any, host: str, port: int, ready: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM; requests in progress are answered first.

    Args:
        app: The ASGI application.
        host: The address to listen on.
        port: The port; 0 for any that is free.
        ready: Called with the base URL as soon as the port is open.

    Raises:
        ParameterError: If the port cannot be opened.
    """
    held = _listen(host, port)
    config = _config(app, timeout_graceful_shutdown=GRACE)
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        shown = f"[{host}]" if ":" in host else host
        ready(f"http://{shown}:{held.getsockname()[1]}")
        # uvicorn restores the handlers above and raises the signal again once it has stopped.
        uvicorn.Server(config).run(sockets=[held])
    finally:
        held.close()
        for number, one in before.items():
            signal.signal(number, one)


@contextmanager
def serving(app: Any) -> Iterator[str]:
    """Serve in a thread of this process for a block, on a free port of this machine.

    Args:
        app: The ASGI application.

    Yields:
        The base URL.
    """
    held = _listen("127.0.0.1", 0)
    server = uvicorn.Server(_config(app))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [held]}, name="server")
    thread.start()
    try:
        while not server.started and thread.is_alive():
            time.sleep(0.01)
        yield f"http://127.0.0.1:{held.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        held.close()


def _config(app: Any, **more: Any) -> uvicorn.Config:
    """Return the settings of a server."""
    quiet: dict[str, Any] = {"log_level": "warning", "access_log": False}
    return uvicorn.Config(app, http=TimedConnection, timeout_keep_alive=IDLE, **quiet, **more)


def _listen(host: str, port: int) -> socket.socket:
    """Return a listening socket."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        held = socket.socket(family, kind, proto)
        try:
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            held.bind(address)
            held.listen(1024)
        except OSError:
            held.close()
            raise
    except OSError as error:
        raise ParameterError(
            f"cannot listen on {host}:{port} ({error.strerror or error})",
            "choose another port, or 0 for a free one",
        ) from None
    return held
