"""Large payloads are stored once, by digest, and stand in an event's body as ``{"$blob": DIGEST}``."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from romanesco.errors import JournalCorrupt
from romanesco.journal._event import Event, canonical, digest
from romanesco.journal._store import Store

PAYLOAD_BYTES = 1024
"""A top-level value whose canonical JSON is larger than this, in bytes, is stored apart."""

PAGE = 500
"""Events read at once."""

_MARK = "$blob"


def pack(data: dict[str, Any]) -> tuple[str, dict[str, bytes]]:
    """The body of an event and its payloads by digest.

    A value that looks like a payload's mark is stored apart too, so that a mark always is one.

    Raises:
        ValueError, TypeError: As ``canonical``.
    """
    for value in data.values():
        kind = type(value)
        if (kind is str and len(value) > PAYLOAD_BYTES) or (kind is dict and _MARK in value):
            break
    else:
        body = canonical(data)
        if len(body) <= PAYLOAD_BYTES and (body.isascii() or len(body.encode()) <= PAYLOAD_BYTES):
            return body, {}
    return _pack_apart(data)


def _pack_apart(data: dict[str, Any]) -> tuple[str, dict[str, bytes]]:
    blobs: dict[str, bytes] = {}
    parts: list[str] = []
    try:
        for name in sorted(data):
            value = data[name]
            text = canonical(value)
            raw = text.encode()
            if len(raw) > PAYLOAD_BYTES or (isinstance(value, dict) and _MARK in value):
                mark = digest(raw)
                blobs[mark] = raw
                text = f'{{"{_MARK}":"{mark}"}}'
            parts.append(f"{canonical(name)}:{text}")
    except (TypeError, ValueError):
        canonical(data)  # the same error with the path from the top
        raise
    return "{" + ",".join(parts) + "}", blobs


def payloads(data: Any) -> dict[str, str]:
    """Digests of the payloads stored apart, by the name of the value they stand for."""
    if not isinstance(data, dict):
        return {}
    return {
        name: value[_MARK]
        for name, value in data.items()
        if type(value) is dict and len(value) == 1 and isinstance(value.get(_MARK), str)
    }


def fill(event: Event, data: Any, blobs: Mapping[str, bytes]) -> Any:
    """The event's data with its payloads in place.

    Raises:
        JournalCorrupt: A payload is missing or does not have its digest; the event is named.
    """
    marks = payloads(data)
    if not marks:
        return data
    whole = dict(data)
    for name, mark in marks.items():
        raw = blobs.get(mark)
        if raw is None or digest(raw) != mark:
            raise JournalCorrupt(
                f"The payload {name!r} of event {event.seq} of run {event.run} "
                + ("is missing" if raw is None else "is not what its digest says"),
                value=mark[:12],
                advice="Restore the journal from a copy; `romanesco verify` lists all damage.",
            )
        whole[name] = json.loads(raw)
    return whole


def _parsed(event: Event) -> dict[str, Any]:
    try:
        data = event.data
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict):
        raise JournalCorrupt(
            f"The data of event {event.seq} of run {event.run} is not a JSON object",
            value=event.kind,
            advice="Restore the journal from a copy; `romanesco verify` lists all damage.",
        )
    return data


async def resolve(store: Store, events: Sequence[Event]) -> list[Any]:
    """Data of the events, payloads loaded.

    Raises:
        JournalCorrupt: As ``fill``, and if an event's data is not a JSON object.
    """
    datas = [_parsed(event) for event in events]
    wanted = {mark for data in datas for mark in payloads(data).values()}
    blobs = await store.blobs(wanted) if wanted else {}
    return [fill(event, data, blobs) for event, data in zip(events, datas, strict=True)]


async def entries(store: Store, run: str, after: int = 0) -> AsyncIterator[tuple[Event, Any]]:
    """A run's events with their data, payloads loaded, page by page.

    Args:
        store: Where the journal is.
        run: The run's id. An unknown run has no events.
        after: Only events with a larger ``seq``.

    Yields:
        The event and its data.

    Raises:
        JournalCorrupt: As ``resolve``.
    """
    while page := await store.read(run, after, PAGE):
        for event, data in zip(page, await resolve(store, page), strict=True):
            yield event, data
        after = page[-1].seq
