"""Checking the hash chain while a journal is read."""

from __future__ import annotations

from romanesco.errors import JournalCorrupt
from romanesco.journal._event import GENESIS, Event, event_hash


def check_chain(events: list[Event], before: Event | None, run: str) -> None:
    """Check that events are what their hashes say and follow each other.

    Args:
        events: Events in the order of the store.
        before: The event before the first, None if it is to be the run's first.
        run: The run's id.

    Raises:
        JournalCorrupt: One is altered, missing or out of place; its ``seq`` is named.
    """
    seq, prev = (before.seq, before.hash) if before else (0, GENESIS)
    for event in events:
        seq += 1
        fault = ""
        if event.seq != seq:
            fault = f"is missing (the next one is {event.seq})"
        elif event.prev != prev:
            fault = "does not follow the one before it"
        elif _hash_of(event) != event.hash:
            fault = "is not what its hash says"
        if fault:
            raise JournalCorrupt(
                f"Event {seq} of run {run} {fault}",
                value=f"seq {seq}",
                advice="Restore the journal from a copy; `romanesco verify` lists all damage.",
            )
        prev = event.hash


def _hash_of(event: Event) -> str:
    try:
        return event_hash(
            run=event.run,
            seq=event.seq,
            kind=event.kind,
            node=event.node,
            key=event.key,
            at=event.at,
            body=event.body,
            prev=event.prev,
        )
    except (TypeError, ValueError):
        return ""
