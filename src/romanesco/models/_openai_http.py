"""Connections and clocks of the OpenAI-compatible client: what it does to the network, and for how long."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from romanesco._hosts import is_loopback
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
        reused: Whether that connection had served another request before.
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
        "reused",
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
        self.reused = False
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

    def connected(self, *, reused: bool) -> None:
        """The request is about to be written. A reply in one piece has only ``total`` from here."""
        self.sent = True
        self.reused = reused
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

    Attributes:
        reuse: Whether connections are used more than once. Some servers (llama.cpp) close a connection after a
            streamed reply without having said so, and would lose the next request: with them it is turned off.
    """

    def __init__(self, base_url: str, headers: dict[str, str], max_connections: int) -> None:
        self._base_url = base_url
        self._headers = headers
        self._max = max_connections
        self._sessions: dict[tuple[asyncio.AbstractEventLoop, bool], Slots] = {}
        self.reuse = True

    def __repr__(self) -> str:
        return f"Pool(max_connections={self._max})"

    async def session(self) -> Slots:
        """The running loop's session, and the semaphore that counts its connections."""
        loop = asyncio.get_running_loop()
        found = self._sessions.get((loop, self.reuse))
        if found is not None and not found[0].closed:
            return found
        for other in [other for other in self._sessions if other[0].is_closed()]:
            await self._sessions.pop(other)[0].close()
        before = self._sessions.get((loop, True))
        # Sessions of one loop share the count; the first may still be reading when the second is made.
        semaphore = asyncio.Semaphore(self._max) if before is None else before[1]
        made = (self._open(), semaphore)
        self._sessions[loop, self.reuse] = made
        return made

    def notice(self, headers: Mapping[str, str]) -> None:
        """Learn from a response's headers whether connections can be used again."""
        if "llama.cpp" in headers.get("Server", ""):
            self.reuse = False

    def _open(self) -> aiohttp.ClientSession:
        import aiohttp  # 100 ms and more at import: only where a connection is made

        trace = aiohttp.TraceConfig()
        trace.on_connection_create_end.append(_created)
        trace.on_connection_reuseconn.append(_reused)
        if self.reuse:
            connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=keep_alive(self._base_url))
        else:
            connector = aiohttp.TCPConnector(limit=0, force_close=True)
        return aiohttp.ClientSession(
            connector=connector,
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
        for (loop, _), (session, _) in sessions.items():
            if loop is here or not loop.is_running():
                await session.close()
            else:
                asyncio.run_coroutine_threadsafe(session.close(), loop)


async def _created(_session: object, context: Any, _params: object) -> None:
    context.trace_request_ctx.connected(reused=False)


async def _reused(_session: object, context: Any, _params: object) -> None:
    context.trace_request_ctx.connected(reused=True)


def keep_alive(base_url: str) -> float:
    """Seconds that an idle connection is kept for reuse.

    Local servers close idle ones after 5 s (uvicorn, cpp-httplib, node), so without TLS we give up first: a
    request that crosses the server's closing on the wire is lost, and nobody can say whether it was read.
    Hosted ones keep them for a minute and more, and a new TLS handshake is dear.
    """
    return 15.0 if urlsplit(base_url).scheme == "https" else 4.0


def payload(body: bytes) -> bytes | io.BytesIO:
    """The body in the form that aiohttp sends without holding up the loop."""
    return io.BytesIO(body) if len(body) >= _LARGE else body


async def read_all(content: aiohttp.StreamReader) -> bytes:
    """A whole body, of which no more than ``MAX_REPLY`` bytes and one chunk are kept."""
    chunks: list[bytes] = []
    size = 0
    while size <= MAX_REPLY and (chunk := await content.readany()):
        chunks.append(chunk)
        size += len(chunk)
    return b"".join(chunks)


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
