"""Writes a run's events: into its journal, and to whoever watches. In a replay it writes nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Generator
from typing import Any

from romanesco.journal import GENESIS, Event, Journal
from romanesco.runtime._clockwork import Clockwork
from romanesco.runtime._feed import Feed, RunEvent


class Unwritten:
    """Stands for the durability of an event that a replay does not write."""

    def __await__(self) -> Generator[Any, None, None]:
        return
        yield


class Recorder:
    """The one place that a run's events go through.

    Args:
        journal: The run's journal, or None for a replay.
        feed: The run's watchers.
        clockwork: Adds up where the time goes, on from where a resumed run's journal left it.
    """

    def __init__(self, journal: Journal | None, feed: Feed, clockwork: Clockwork) -> None:
        self.clockwork = clockwork
        self._journal = journal
        self._feed = feed

    @property
    def seq(self) -> int:
        """Number of the last event."""
        return self._journal.seq if self._journal is not None else 0

    @property
    def head(self) -> str:
        """Hash of the last event."""
        return self._journal.head if self._journal is not None else GENESIS

    @property
    def broken(self) -> bool:
        """Whether nothing can be written any more."""
        return self._journal is not None and self._journal.broken

    def append(self, kind: str, *, node: str = "", key: str = "", data: dict[str, Any]) -> Awaitable[Event | None]:
        """Append an event: its place is decided now; await the result for it to be durable.

        Raises:
            JournalError: The journal can't be written.
        """
        if self._journal is None:
            self._publish(kind, node, key, data, 0)
            return Unwritten()
        self.clockwork.take(kind, data)
        written = self._journal.append(kind, node=node, key=key, data=data)
        self._publish(kind, node, key, data, written.event.seq)
        return written

    async def end(self, data: dict[str, Any]) -> Event:
        """Append the end of the run. Watchers hear of it when it is durable: there is none before.

        Raises:
            JournalError: The journal can't be written.
        """
        assert self._journal is not None, "a replay writes no end"
        event = await self._journal.append("run.ended", data=data)
        self._publish(event.kind, "", "", data, event.seq)
        return event

    def _publish(self, kind: str, node: str, key: str, data: dict[str, Any], seq: int) -> None:
        if self._feed.watched:
            self._feed.publish(RunEvent(kind, node, key, data, seq))

    async def close(self) -> None:
        """Write what is pending and let go of the run."""
        if self._journal is not None:
            await self._journal.close()
