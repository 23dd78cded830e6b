"""The fake server's side of HTTP/1.1: one asyncio protocol a connection, keep-alive, nothing buffered."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 429: "Too Many Requests"}
MAX_HEAD = 64 * 1024


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request: method, path without query, headers with lower-case names, body."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


def response(status: int, body: bytes, headers: dict[str, str] | None = None, *, declared: int | None = None) -> bytes:
    """A whole response with a JSON body.

    Args:
        status: HTTP status.
        body: Its bytes.
        headers: Further headers.
        declared: Length to declare, if it shall differ from the body's (a cut body).
    """
    more = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
    length = len(body) if declared is None else declared
    head = (
        f"HTTP/1.1 {status} {_REASONS.get(status, 'Status')}\r\n"
        f"content-type: application/json\r\n{more}content-length: {length}\r\n\r\n"
    )
    return head.encode("latin-1") + body


STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
STREAM_END = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    """One HTTP chunk."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(payload: Any) -> bytes:
    """One server-sent event."""
    return b"data: %s\n\n" % json.dumps(payload, separators=(",", ":")).encode()


class Connection(asyncio.Protocol):
    """One client connection. Requests are handled one after another.

    Args:
        number: Its number.
        handle: Called with each request; calls ``answered`` when it is done.
        opened: Called with this connection when it opens.
        closed: Called with this connection when it is gone.
    """

    def __init__(
        self,
        number: int,
        handle: Callable[[Connection, HttpRequest], None],
        opened: Callable[[Connection], None],
        closed: Callable[[Connection], None],
    ) -> None:
        self.number = number
        self.transport: asyncio.Transport | None = None
        self.task: asyncio.Task[None] | None = None
        self.current: Any = None
        self._handle = handle
        self._opened = opened
        self._closed = closed
        self._buffer = b""
        self._busy = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed(self)
        self.transport = None

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if not self._busy:
            self._next()

    @property
    def alive(self) -> bool:
        """Whether the client is still there, as far as is known."""
        return self.transport is not None and not self.transport.is_closing()

    def write(self, data: bytes) -> None:
        """Send bytes, if the client is still there."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    def close(self) -> None:
        """Close the connection after what was written."""
        if self.transport is not None:
            self.transport.close()

    def answered(self) -> None:
        """The request is done with; take the next."""
        self._busy = False
        self.current = None
        self.task = None
        if self._buffer:
            self._next()

    def _next(self) -> None:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > MAX_HEAD:
                self.close()
            return
        lines = self._buffer[:end].decode("latin-1").split("\r\n")
        method, _, rest = lines[0].partition(" ")
        headers = {
            name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])
        }
        length = headers.get("content-length", "0")
        if "transfer-encoding" in headers or not length.isdigit():
            self.write(response(411, b"{}", {"connection": "close"}))
            self.close()
            return
        stop = end + 4 + int(length)
        if len(self._buffer) < stop:
            return
        body, self._buffer = self._buffer[end + 4 : stop], self._buffer[stop:]
        self._busy = True
        path = rest.partition(" ")[0].partition("?")[0]
        self._handle(self, HttpRequest(method, path, headers, body))
