"""One HTTP exchange after another: time and size limits, retries, a rate limit, no redirects."""

from __future__ import annotations

import asyncio
import os
import random
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

from invgnn.checks import check_number, check_whole
from invgnn.concealed import conceal
from invgnn.errors import EndpointError, ParameterError, SuspectError
from invgnn.storage import encoding

if TYPE_CHECKING:
    import httpx

AGAIN = {408, 425, 429, 502, 503, 504}
"""Statuses of a server that may answer later."""
LOOPBACK = {"localhost", "127.0.0.1", "::1"}
HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
"""Names of headers."""
OWN_HEADERS = {"accept-encoding", "connection", "content-length", "host", "transfer-encoding"}
"""Headers that only the client itself sets."""
LONGEST_WAIT = 60.0
"""Most seconds between two attempts."""
BELIEVED = 4
"""After so many waits in vain, a server that asks to wait is not listened to any more."""

_Result = TypeVar("_Result")


class Refused(SuspectError):
    """The server does not answer this question.

    Attributes:
        status: Status of the response; 0 if there was none, or it was garbage.
        late: Whether there was no response in time.
    """

    def __init__(self, message: str, status: int = 0, late: bool = False) -> None:
        super().__init__(message, "check address, token and form of the requests")
        self.status, self.late = status, late


class TurnedAway(EndpointError):
    """The server answers that it is not available, or with the address of another one.

    Attributes:
        status: Status of the response.
        late: Always False: there was a response in time.
    """

    def __init__(self, message: str, advice: str, status: int) -> None:
        super().__init__(message, advice)
        self.status, self.late = status, False


@dataclass(frozen=True)
class Transport:
    """How requests are sent.

    Attributes:
        url: The address.
        headers: Name of a header, and the environment variable that holds its value.
        token: Environment variable that holds a bearer token, if any.
        timeout: Most seconds of an exchange, from the connection to the last byte.
        attempts: Most attempts of a request.
        backoff: Seconds before the second attempt; doubled for every further one.
        rate: Most requests per second; None for no limit.
        most_bytes: Most bytes of a response.
        insecure_http: Whether to send questions unencrypted to another machine.

    Raises:
        ParameterError: If a value is invalid.
    """

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    token: str | None = None
    timeout: float = 30.0
    attempts: int = 5
    backoff: float = 0.5
    rate: float | None = None
    most_bytes: int = 16 << 20
    insecure_http: bool = False

    def __post_init__(self) -> None:
        check_url(self.url, self.insecure_http)
        for name in self.headers:
            if type(name) is not str or not HEADER.fullmatch(name) or name.lower() in OWN_HEADERS:
                raise ParameterError(
                    f"{str(name)[:60]!r} cannot be the name of a header", "use for example X-Api-Key"
                )
        check_whole("attempts", self.attempts, 1, 100)
        check_whole("most_bytes", self.most_bytes, 1, 1 << 30)
        for name in ("timeout", "backoff", *(() if self.rate is None else ("rate",))):
            check_number(name, getattr(self, name))
            if not 0 < getattr(self, name) <= 86_400:
                raise ParameterError(f"{name} is {getattr(self, name)}", "use a positive number")

    @property
    def shown(self) -> str:
        """The address without its query, which may hold a key."""
        return urlunsplit(urlsplit(self.url)._replace(query="", fragment=""))

    @property
    def query_digest(self) -> str | None:
        """The digest of the query, which may choose one of several models; None without one."""
        query = urlsplit(self.url).query
        return encoding.digest("invgnn/query/1", query) if query else None

    def client(self) -> httpx.AsyncClient:
        """Return a client. It follows no redirect, uses no proxy and no compression."""
        library = httpx_library()
        return library.AsyncClient(  # type: ignore[no-any-return]
            headers={
                "accept": "application/json",
                "accept-encoding": "identity",
                **_secrets(self.headers, self.token),
            },
            follow_redirects=False,
            trust_env=False,
            timeout=self.timeout,
            limits=library.Limits(max_connections=1),
        )

    async def post(
        self,
        client: httpx.AsyncClient,
        pace: Pace,
        body: bytes,
        read: Callable[[bytes], _Result],
        attempts: int,
    ) -> _Result:
        """Send a request until it is answered.

        Args:
            client: What `client` returned.
            pace: The time of the last request, and the number of requests.
            body: The request.
            read: Reads the response; a `SuspectError` means that it is garbage.
            attempts: Most attempts.

        Raises:
            Refused: If the server answers with an error, with garbage every time, or not in time.
            TurnedAway: If the server redirects, or is not available in any attempt.
            EndpointError: If the server cannot be reached.
        """
        library, last = httpx_library(), SuspectError("it was not asked")
        for attempt in range(attempts):
            asked = pace.asked_to_wait if pace.in_vain < BELIEVED else 0.0
            if attempt:
                await asyncio.sleep(_wait(self.backoff, attempt, asked))
            await pace.turn(self.rate)
            try:
                return read(await asyncio.wait_for(self._exchange(client, pace, body), self.timeout))
            except Refused:
                raise
            except (library.ConnectError, library.ConnectTimeout, library.InvalidURL) as error:
                last = EndpointError(f"{self.shown} cannot be reached ({type(error).__name__})", RESUME)
            except (TimeoutError, library.TimeoutException):
                last = Refused("no answer in time", late=True)
                if attempt:
                    break
            except TurnedAway as error:
                last = error
                pace.in_vain += attempt > 0 and asked > 0
                if error.status not in AGAIN:
                    break
            except (SuspectError, library.HTTPError, OSError) as error:
                last = Refused(error.message if isinstance(error, SuspectError) else type(error).__name__)
        raise last

    async def _exchange(self, client: httpx.AsyncClient, pace: Pace, body: bytes) -> bytes:
        """Send a request once and return the body of a successful response."""
        pace.sent += 1
        pace.asked_to_wait = 0.0
        sent = client.build_request(
            "POST", self.url, content=body, headers={"content-type": "application/json"}
        )
        response = await client.send(sent, stream=True)
        try:
            found = await self._checked(response, pace)
        finally:
            await response.aclose()
            client.cookies.clear()  # nothing that a server sends is sent back to it
        return found

    async def _checked(self, response: httpx.Response, pace: Pace) -> bytes:
        """Return the body of a response, or raise the error that its status stands for."""
        status = response.status_code
        if 300 <= status < 400:
            raise TurnedAway(
                f"{self.shown} redirects to another address, which is refused (status {status})",
                "check where it leads, and give that address if you trust it",
                status,
            )
        if status in AGAIN:
            pace.asked_to_wait = _seconds(response.headers.get("retry-after", ""))
            raise TurnedAway(f"{self.shown} is not available (status {status})", RESUME, status)
        if 400 <= status < 500:
            raise Refused(f"status {status}", status)
        if status != 200:
            raise SuspectError(f"status {status}")
        if response.headers.get("content-encoding", "identity").lower() not in ("identity", ""):
            raise SuspectError("the response is compressed, which was not asked for")
        found = bytearray()
        async for part in response.aiter_raw():
            found += part
            if len(found) > self.most_bytes:
                raise SuspectError(f"the response has more than {self.most_bytes} bytes")
        return bytes(found)


RESUME = "all answers so far are in the journal, if there is one: run the same command again to go on"


@dataclass
class Pace:
    """When requests were sent.

    Attributes:
        sent: Number of requests sent so far, repeated ones included.
        last: When the last one was sent, in seconds of a monotonic clock.
        asked_to_wait: Seconds that the server asked to wait.
        in_vain: How often it was not available after a wait that it had asked for.
    """

    sent: int = 0
    last: float = -1e9
    asked_to_wait: float = 0.0
    in_vain: int = 0

    async def turn(self, rate: float | None) -> None:
        """Wait until the next request may be sent."""
        if rate is not None:
            await asyncio.sleep(max(0.0, self.last + 1 / rate - time.monotonic()))
        self.last = time.monotonic()


def httpx_library() -> Any:
    """Return the HTTP library.

    Raises:
        ParameterError: If it is not installed.
    """
    try:
        import httpx
    except ImportError:
        raise ParameterError("asking an endpoint needs httpx", "pip install 'invgnn[remote]'") from None
    return httpx


def check_url(url: str, insecure_http: bool) -> None:
    """Refuse addresses that cannot be asked safely.

    Raises:
        ParameterError: If the address is malformed, contains a password, or is unencrypted and elsewhere.
    """
    parts = urlsplit(url) if type(url) is str and url.isprintable() and " " not in url else None
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        raise ParameterError(
            "the endpoint is no address of HTTP", "give for example https://host/v2/models/NAME"
        )
    if parts.username is not None or parts.password is not None:
        raise ParameterError(
            "the address contains a user name or password", "put it into a header from the environment"
        )
    if parts.scheme == "http" and parts.hostname not in LOOPBACK and not insecure_http:
        raise ParameterError(
            "the address is not encrypted: everybody on the way could read the carriers",
            "use https, or insecure_http=True (--insecure-http) for a trusted network",
        )


def _secrets(headers: Mapping[str, str], token: str | None) -> dict[str, str]:
    """Return the headers with their values from the environment, concealed."""
    found = {name: _variable(variable) for name, variable in headers.items()}
    if token is not None:
        found["authorization"] = conceal("Bearer " + _variable(token))
    return conceal(found)


def _variable(name: str) -> str:
    """Return the value of an environment variable, concealed."""
    value = conceal(os.environ.get(name))
    if not value or not value.isascii() or not value.isprintable():
        raise ParameterError(
            f"the environment variable {name} is not set, or holds no printable ASCII text",
            f"export {name}=...",
        )
    return value


def _wait(backoff: float, attempt: int, asked: float) -> float:
    """Return how long to wait before an attempt: longer every time, by a random part, at most a minute."""
    most = min(LONGEST_WAIT, backoff * 2.0 ** (attempt - 1))
    return max(random.SystemRandom().uniform(most / 2, most), min(asked, LONGEST_WAIT))


def _seconds(text: str) -> float:
    """Return the number of seconds in a header; 0 if it holds none."""
    return float(text) if text.isascii() and text.isdigit() and len(text) < 7 else 0.0
