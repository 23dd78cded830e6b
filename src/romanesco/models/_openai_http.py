"""Connections and clocks of the OpenAI-compatible client: what it does to the network, and for how long."""

from __future__ import annotations

import asyncio
import io
import ipaddress
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from romanesco.models._types import Deadlines

if TYPE_CHECKING:
    import aiohttp

MAX_REPLY = 64 * 1024 * 1024
"""Bytes of one reply body; no model writes that much within any cap, so more is a fault."""

MAX_REFUSAL = 64 * 1024
"""Bytes of an error body that are read."""

DRAIN = 1.0
"""Seconds to wait for the end of the response after the end of the reply, to reuse the connection."""

_LARGE = 1 << 20

Slots = tuple["aiohttp.ClientSession", asyncio.Semaphore]
"""A session, and the semaphore that counts its connections."""


class PhaseClock:
    """The deadlines of one call. One timer, set anew at every step to whichever limit comes first.

    Attributes:
        phase: What is being waited for now.
        sent: Whether a connection was obtained, so that bytes may have gone out.
        queue: Seconds spent waiting for a free connection.
        first_token: Seconds until the first token, or None.
    """

    __slots__ = (
        "_after_connect",
        "_due",
        "_limits",
        "_loop",
        "_timeout",
        "first_token",
        "phase",
        "queue",
        "sent",
        "started",
    )

    def __init__(self, limits: Deadlines, *, stream: bool) -> None:
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._timeout: asyncio.Timeout | None = None
        self._after_connect = "first_token" if stream else "total"
        self._due = "total"
        self.started = self._loop.time()
        self.phase = "total"
        self.sent = False
        self.queue = 0.0
        self.first_token: float | None = None

    def elapsed(self) -> float:
        """Seconds since the call began."""
        return self._loop.time() - self.started

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Watch the code inside: TimeoutError leaves it when a limit has passed."""
        async with asyncio.timeout_at(self.started + self._limits.total) as self._timeout:
            yield

    def connecting(self) -> None:
        """A free connection is looked for or made."""
        self.sent = False
        self._enter("connect", self._limits.connect)

    def connected(self) -> None:
        """The request is about to be written. A reply in one piece has only ``total`` from here."""
        self.sent = True
        limit = self._limits.first_token if self._after_connect == "first_token" else self._limits.total
        self._enter(self._after_connect, limit)

    def token(self) -> None:
        """Something that was generated has arrived."""
        if self.first_token is None:
            self.first_token = self.elapsed()
        self._enter("between_tokens", self._limits.between_tokens)

    def draining(self) -> None:
        """The reply is whole; only the end of the response is missing."""
        self._enter("drain", DRAIN)

    def limit(self) -> tuple[str, float]:
        """The phase whose limit passed, and that limit in seconds."""
        return self._due, float(getattr(self._limits, self._due))

    def expired(self) -> bool:
        """Whether one of the limits passed (a socket can time out of its own accord, too)."""
        return self._timeout is not None and self._timeout.expired()

    def _enter(self, phase: str, seconds: float) -> None:
        self.phase = phase
        due = self._loop.time() + seconds
        total = self.started + self._limits.total
        self._due = phase if due < total and phase != "drain" else "total"
        assert self._timeout is not None
        self._timeout.reschedule(min(due, total))


class Pool:
    """Sessions of one adapter, one for each event loop that uses it, made when first needed.

    Args:
        base_url: Where it talks to; decides about proxies.
        headers: Sent with every request. They may hold the key: they are kept here and in the session only.
        max_connections: Connections open at once; further calls wait without their connect deadline running.
    """

    def __init__(self, base_url: str, headers: dict[str, str], max_connections: int) -> None:
        self._base_url = base_url
        self._headers = headers
        self._max = max_connections
        self._sessions: dict[asyncio.AbstractEventLoop, Slots] = {}

    def __repr__(self) -> str:
        return f"Pool(max_connections={self._max})"

    async def session(self) -> Slots:
        """The running loop's session, and the semaphore that counts its connections."""
        loop = asyncio.get_running_loop()
        found = self._sessions.get(loop)
        if found is not None and not found[0].closed:
            return found
        for old in [other for other in self._sessions if other.is_closed()]:
            await self._sessions.pop(old)[0].close()
        made = (self._open(), asyncio.Semaphore(self._max))
        self._sessions[loop] = made
        return made

    def _open(self) -> aiohttp.ClientSession:
        import aiohttp  # 100 ms and more at import: only where a connection is made

        trace = aiohttp.TraceConfig()
        trace.on_connection_create_end.append(_connected)
        trace.on_connection_reuseconn.append(_connected)
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            headers=self._headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
            trace_configs=[trace],
            proxy=proxy_for(self._base_url),
        )

    async def close(self) -> None:
        """Close every connection. Those of another loop are closed by that loop, if it still runs."""
        here = asyncio.get_running_loop()
        sessions, self._sessions = self._sessions, {}
        for loop, (session, _) in sessions.items():
            if loop is here or not loop.is_running():
                await session.close()
            else:
                asyncio.run_coroutine_threadsafe(session.close(), loop)


async def _connected(_session: object, context: Any, _params: object) -> None:
    clock = context.trace_request_ctx
    if clock is not None:
        clock.connected()


def payload(body: bytes) -> bytes | io.BytesIO:
    """The body in the form that aiohttp sends without holding up the loop."""
    return io.BytesIO(body) if len(body) >= _LARGE else body


def is_loopback(host: str) -> bool:
    """Whether a host name or address is this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def proxy_for(base_url: str) -> str | None:
    """The proxy that the environment names for this address (``HTTPS_PROXY``, ``NO_PROXY``, ...), or None.

    This machine is never reached through a proxy, whatever ``NO_PROXY`` says. Read once, when the session is
    made: aiohttp's own ``trust_env`` reads it for every request in a thread, and takes a ``.netrc`` as well.
    """
    parts = urlsplit(base_url)
    host = parts.hostname or ""
    if is_loopback(host) or proxy_bypass(host):
        return None
    proxies = getproxies()
    found = proxies.get(parts.scheme) or proxies.get("all")
    if not found:
        return None
    return found if "://" in found else f"http://{found}"
