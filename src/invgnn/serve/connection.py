"""An HTTP connection that is closed if the head of a request does not arrive in time."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol


class TimedConnection(H11Protocol):
    """A connection whose client must send the head of each request within the keep-alive time.

    The limits of `LimitedApp` begin with a complete head. Without this one, a client could hold any number
    of connections open by sending a byte now and then.
    """

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Expect a request."""
        super().connection_made(transport)
        self._expect()

    def data_received(self, data: bytes) -> None:
        """Pass data on, and expect the rest of the head unless a request is in progress."""
        super().data_received(data)
        if self._busy:
            self._relax()
        elif self._deadline is None:
            self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        """Expect nothing more."""
        self._relax()
        super().connection_lost(exc)

    @property
    def _busy(self) -> bool:
        """Whether a request is in progress."""
        return self.cycle is not None and not self.cycle.response_complete

    def _expect(self) -> None:
        """Close the connection unless a request begins in time."""
        self._deadline = self.loop.call_later(self.timeout_keep_alive, self._late)

    def _relax(self) -> None:
        """Forget the deadline."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _late(self) -> None:
        """End the connection if no request is in progress, also if the client reads nothing."""
        self._deadline = None
        if not self._busy:
            self.transport.abort()
