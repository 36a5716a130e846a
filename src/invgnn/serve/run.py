"""Run the application on a port until the process is told to end."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable
from typing import Any

import uvicorn

from invgnn.errors import ParameterError

GRACE = 10
"""Seconds that requests get to end when the server stops."""


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
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, timeout_graceful_shutdown=GRACE, timeout_keep_alive=30
    )
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
