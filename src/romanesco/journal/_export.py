"""A run's journal as JSON lines."""

from __future__ import annotations

from collections.abc import AsyncIterator

from romanesco.errors import UnknownName
from romanesco.journal._event import canonical
from romanesco.journal._payload import entries, payloads
from romanesco.journal._store import Store

FORMAT = "romanesco.journal"
VERSION = 1


async def export(store: Store, run: str) -> AsyncIterator[str]:
    """The journal of a run as lines of canonical JSON, always the same for the same journal.

    The first line is ``{"format": "romanesco.journal", "run": ..., "version": 1}``. Each other line is an
    event: ``seq``, ``kind``, ``node``, ``key``, ``at``, ``prev``, ``hash`` and ``data`` with all payloads in
    place. If some were stored apart, ``payloads`` gives their digests by name: with ``{"$blob": DIGEST}`` put
    back in their place, the canonical JSON of ``data`` is the body that the hash was taken over.

    Args:
        store: Where the journal is.
        run: The run's id.

    Yields:
        Lines.

    Raises:
        UnknownName: There is no such run.
        JournalCorrupt: A payload is missing or altered; the event is named.
    """
    empty = True
    async for event, data in entries(store, run):
        if empty:
            yield canonical({"format": FORMAT, "version": VERSION, "run": run})
            empty = False
        line = {
            "seq": event.seq,
            "kind": event.kind,
            "node": event.node,
            "key": event.key,
            "at": event.at,
            "prev": event.prev,
            "hash": event.hash,
            "data": data,
        }
        if apart := payloads(event.data):
            line["payloads"] = apart
        yield canonical(line)
    if empty:
        raise UnknownName("There is no run of that id", value=run, advice="`romanesco runs` lists them.")
