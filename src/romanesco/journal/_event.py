"""An event of a run's journal, canonical JSON and the hash chain over events."""

from __future__ import annotations

import hashlib
import json
import math
import re
from dataclasses import dataclass
from typing import Any

GENESIS = "0" * 64
"""The ``prev`` of a run's first event."""

_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
_HEADER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a run's journal.

    Attributes:
        run: The run's id.
        seq: 1, 2, 3, ... without a gap within the run.
        kind: What happened, dotted: ``run.created``, ``call.started``, ``fractal.switched``, ...
        node: Path of the node it happened in: ``/`` for the root, ``/a/b`` below it, "" for the run itself.
        key: The step's key within the node, or "".
        at: Wall-clock time, seconds since 1970. Information only: order is ``seq``.
        body: Canonical JSON text of the event's data. A payload stored apart stands in it as ``{"$blob":
            DIGEST}``.
        prev: Hash of the event before, or ``GENESIS``.
        hash: Hash of this event, over all of the above.
    """

    run: str
    seq: int
    kind: str
    node: str
    key: str
    at: float
    body: str
    prev: str
    hash: str

    @property
    def data(self) -> Any:
        """The event's data, parsed; payloads stored apart are still ``{"$blob": DIGEST}``."""
        return json.loads(self.body)


def canonical(value: Any) -> str:
    """Canonical JSON text: sorted keys, no spaces, no NaN, characters beyond ASCII as they are.

    The text can always be written as UTF-8: half of a surrogate pair, which models do send, is escaped.

    Raises:
        ValueError: For NaN, infinity, a circular or too deeply nested value; it names the path of the leaf.
        TypeError: For a value that JSON can't hold; it names the path and the type, never the value.
    """
    try:
        text = _CANONICAL.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(_bad_leaf(value) or f"$ can't be written as JSON ({type(error).__name__})") from None
    return text if text.isascii() else _writable(text)


def _writable(text: str) -> str:
    """The text with surrogates joined to characters where they are pairs, and escaped where they are not."""
    try:
        text.encode()
    except UnicodeEncodeError:
        joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        return _SURROGATE.sub(lambda half: f"\\u{ord(half.group()):04x}", joined)
    return text


def _bad_leaf(value: Any) -> str:
    """Path and type of the first leaf that JSON can't hold, or ""."""
    stack: list[tuple[str, Any, int]] = [("$", value, 0)]
    while stack:
        path, item, depth = stack.pop()
        if depth > 500:
            return f"{path[:200]} is nested more than 500 levels deep, or contains itself"
        if isinstance(item, dict):
            for name in item:
                if not isinstance(name, str):
                    return f"{path} has a key of type {type(name).__name__}; keys must be text"
            stack.extend((f"{path}.{name}", inner, depth + 1) for name, inner in reversed(item.items()))
        elif isinstance(item, (list, tuple)):
            found = [(f"{path}[{index}]", inner, depth + 1) for index, inner in enumerate(item)]
            stack.extend(reversed(found))
        elif isinstance(item, float):
            if not math.isfinite(item):
                return f"{path} is {item}, which JSON can't hold"
        elif item is not None and not isinstance(item, (str, int)):
            return f"{path} is of type {type(item).__name__}, which JSON can't hold"
    return ""


def digest(text: str | bytes) -> str:
    """SHA-256 of a text (as UTF-8) or of bytes, in hexadecimal."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text).hexdigest()


def event_hash(*, run: str, seq: int, kind: str, node: str, key: str, at: float, body: str, prev: str) -> str:
    """The hash of an event.

    It is the SHA-256 of a header and the body with a newline between them, as UTF-8. The header is the JSON
    list ``[run, seq, kind, node, key, at, prev]`` without spaces. Neither part can contain a newline, so that
    no two events share one text; and the body is not escaped a second time.

    Raises:
        ValueError: A name holds half of a surrogate pair, or ``at`` is not finite.
    """
    header = _HEADER.encode((run, seq, kind, node, key, at, prev))
    return hashlib.sha256(f"{header}\n{body}".encode()).hexdigest()


def make_event(*, run: str, seq: int, kind: str, node: str, key: str, at: float, body: str, prev: str) -> Event:
    """An event with its hash.

    Raises:
        ValueError: As ``event_hash``.
    """
    mark = event_hash(run=run, seq=seq, kind=kind, node=node, key=key, at=at, body=body, prev=prev)
    return Event(run, seq, kind, node, key, at, body, prev, mark)
