"""A wrapper of an application that refuses requests that are too large, too slow or too many."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from typing import Any

from invgnn.serve.settings import Limits

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class LimitedApp:
    """An ASGI application behind limits on the size, the duration and the number of requests.

    Args:
        app: The application.
        limits: The limits.
    """

    def __init__(self, app: Any, limits: Limits) -> None:
        self.app, self.limits, self.present, self.answered = app, limits, 0, 0

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Handle one connection event."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if self.present >= self.limits.concurrency:
            await _refuse(send, 503, "too many requests at a time", retry=True)
            return
        self.present += 1
        self.answered += 1
        try:
            await self._received(scope, receive, send)
        finally:
            self.present -= 1

    async def _received(self, scope: Message, receive: Receive, send: Send) -> None:
        """Receive the whole body within the limits, then pass it on."""
        try:
            body = await asyncio.wait_for(_body(scope, receive, self.limits.body), self.limits.seconds)
        except TimeoutError:
            await _refuse(send, 408, "the request took too long to arrive")
            return
        if body is None:
            await _refuse(send, 413, f"a request may have at most {self.limits.body} bytes")
            return
        parts = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def replay() -> Message:
            part = next(parts, None)
            return part if part is not None else await receive()

        async def sent(message: Message) -> None:
            await asyncio.wait_for(send(message), self.limits.seconds)

        with contextlib.suppress(TimeoutError):  # a client that does not read gives its place to others
            await self.app(scope, replay, sent)


async def _body(scope: Message, receive: Receive, most: int) -> bytes | None:
    """Return the body of a request, or None if it is too long."""
    named = dict(scope["headers"]).get(b"content-length", b"0")
    if not named.isdigit() or len(named) > 12 or int(named) > most:
        return None
    body = bytearray()
    while True:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > most:
            return None
        if message["type"] == "http.disconnect" or not message.get("more_body"):
            return bytes(body)


async def _refuse(send: Send, status: int, why: str, retry: bool = False) -> None:
    """Send an error and close the connection."""
    body = json.dumps({"error": why}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    headers += [(b"connection", b"close"), *([(b"retry-after", b"1")] if retry else [])]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
