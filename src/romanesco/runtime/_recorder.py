"""Writes a run's events: into its journal, and to whoever watches. In a replay it writes nothing."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Generator
from typing import Any

from romanesco.journal import GENESIS, Event, Journal, Written
from romanesco.runtime._clockwork import Clockwork
from romanesco.runtime._feed import Feed, RunEvent


class Unwritten:
    """Stands for the durability of an event that a replay does not write."""

    def __await__(self) -> Generator[Any, None, None]:
        return
        yield


class Recorder:
    """The one place that a run's events go through. Watchers hear of an event when it is durable, and not before.

    Args:
        journal: The run's journal, or None for a replay.
        feed: The run's watchers.
        clockwork: Adds up where the time goes, on from where a resumed run's journal left it.
    """

    def __init__(self, journal: Journal | None, feed: Feed, clockwork: Clockwork) -> None:
        self.clockwork = clockwork
        self._journal = journal
        self._feed = feed
        self._coming: deque[RunEvent] = deque()
        if journal is not None:
            journal.on_durable = self._show

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
            if self._feed.watched:
                self._feed.publish(RunEvent(kind, node, key, data))
            return Unwritten()
        self.clockwork.take(kind, data)
        return self._write(self._journal, kind, node, key, data)

    async def end(self, data: dict[str, Any]) -> Event:
        """Append the end of the run, and wait for it to be durable.

        Raises:
            JournalError: The journal can't be written.
        """
        assert self._journal is not None, "a replay writes no end"
        return await self._write(self._journal, "run.ended", "", "", data)

    def _write(self, journal: Journal, kind: str, node: str, key: str, data: dict[str, Any]) -> Written:
        written = journal.append(kind, node=node, key=key, data=data)
        if self._feed.watched:
            self._coming.append(RunEvent(kind, node, key, data, written.event.seq))
        return written

    def _show(self, durable: int) -> None:
        while self._coming and self._coming[0].seq <= durable:
            self._feed.publish(self._coming.popleft())

    async def close(self) -> None:
        """Write what is pending and let go of the run."""
        if self._journal is not None:
            await self._journal.close()
