"""Server-sent events and the JSON in them. No I/O: bytes in, data out."""

from __future__ import annotations

import json
import math
from typing import Any

MAX_EVENT = 16 * 1024 * 1024
"""Bytes of one event; a server that sends more without an end of line is not speaking the protocol."""

MAX_DEPTH = 100
"""Lists and objects inside each other; whatever walks through a reply by recursion stays far from its limit."""


class ProtocolError(ValueError):
    """The bytes are not a chat completion; the text says why, without quoting them."""


class EventStream:
    """Splits a byte stream into the data of its events.

    Works on bytes, so a character cut in two by the network is never decoded in halves. Comments (the
    keep-alives of some gateways) and empty events yield nothing.
    """

    __slots__ = ("_carriage", "_data", "_rest")

    def __init__(self) -> None:
        self._rest = bytearray()  # grows in place: a line may come in very many pieces
        self._data: list[bytes] = []
        self._carriage = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """Data of the events that this chunk completes.

        Raises:
            ProtocolError: An event is larger than ``MAX_EVENT``.
        """
        if self._carriage or b"\r" in chunk:
            chunk = self._line_feeds(chunk)
        self._rest += chunk
        lines: list[bytes] = []
        if b"\n" in chunk:
            lines = bytes(self._rest).split(b"\n")
            self._rest = bytearray(lines.pop())
        if len(self._rest) > MAX_EVENT:
            raise ProtocolError(f"an event is larger than {MAX_EVENT} bytes")
        events: list[bytes] = []
        for line in lines:
            if not line:
                if self._data:
                    events.append(b"\n".join(self._data))
                    self._data = []
            elif line.startswith(b"data:"):
                self._data.append(line[6:] if line[5:6] == b" " else line[5:])
        return events

    def rest(self) -> bytes:
        """Data of the event that was not ended by an empty line, when the stream is over."""
        if self._rest.startswith(b"data:"):
            self._data.append(bytes(self._rest[5:].lstrip(b" ")))
        data, self._data, self._rest = b"\n".join(self._data), [], bytearray()
        return data

    def _line_feeds(self, chunk: bytes) -> bytes:
        # A carriage return alone ends a line too; one at the end of a chunk waits for what follows it.
        if self._carriage:
            chunk = b"\r" + chunk
        self._carriage = chunk.endswith(b"\r")
        if self._carriage:
            chunk = chunk[:-1]
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def parse_json(data: bytes, what: str) -> Any:
    """The JSON value in these bytes. Numbers that are not finite become null: no journal can hold them.

    Raises:
        ProtocolError: They hold none, or an integer of thousands of digits, or one nested deeper than ``MAX_DEPTH``.
    """
    fault = "is not JSON"
    try:
        value = _DECODER.decode(data.decode(json.detect_encoding(data), "surrogatepass"))
    except (ValueError, RecursionError):
        # ValueError covers both broken JSON and broken UTF-8; its text quotes the data, so it is not kept.
        pass
    else:
        if data.count(b"[") + data.count(b"{") <= MAX_DEPTH or not _is_deep(value):
            return value
        fault = f"is nested more than {MAX_DEPTH} deep"
    raise ProtocolError(f"{what} {fault}")


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for outer in level
            if isinstance(outer, list | dict)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
    return any(isinstance(value, list | dict) for value in level)


def _finite(text: str) -> float | None:
    number = float(text)
    return number if math.isfinite(number) else None


_DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=lambda _: None)
