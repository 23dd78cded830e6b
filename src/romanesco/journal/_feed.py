"""Durable events of a journal for its subscribers, as they come."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable
from itertools import islice

from romanesco.errors import JournalError
from romanesco.journal._event import Event
from romanesco.journal._payload import PAGE
from romanesco.journal._store import Store

_TAIL = 256


class Feed:
    """Tells any number of subscribers of the events of one run, each event once and in order.

    A subscriber is a position in the journal, not a queue: the newest events are kept in one short list for
    all, and who is further behind reads from the store. So a slow subscriber costs no memory and holds nobody
    up.

    Args:
        store: Where the journal is.
        run: The run's id.
        durable: Number of the last durable event.
    """

    def __init__(self, store: Store, run: str, durable: int) -> None:
        self.durable = durable
        self._store = store
        self._run = run
        self._subscribers = 0
        self._tail: deque[Event] = deque(maxlen=_TAIL)
        self._listening: set[asyncio.Future[None]] = set()
        self._over = False
        self._failure: Callable[[], JournalError] | None = None

    def publish(self, events: list[Event]) -> None:
        """Tell of events that are durable now and follow the last ones told of."""
        self.durable = events[-1].seq
        if self._subscribers:
            self._tail.extend(events)
        if self._listening:
            self._wake()

    def end(self, failure: Callable[[], JournalError] | None = None) -> None:
        """Say that no more events will come; ``failure`` makes the error that subscribers get at the end."""
        self._over = True
        self._failure = self._failure or failure
        self._wake()

    async def stream(self, after: int, last: Callable[[Event], bool]) -> AsyncGenerator[Event, None]:
        """Events with ``seq > after``, until one of which ``last`` is true, or ``end``.

        Raises:
            JournalError: The failure given to ``end``, after all durable events.
        """
        self._subscribers += 1
        try:
            while True:
                for event in await self._next(after):
                    after = event.seq
                    yield event
                    if last(event):
                        return
                if after < self.durable:
                    continue
                if self._failure is not None:
                    raise self._failure()
                if self._over:
                    return
                await self._change()
        finally:
            self._subscribers -= 1
            if not self._subscribers:
                self._tail.clear()

    async def _next(self, after: int) -> list[Event]:
        if after >= self.durable:
            return []
        tail = self._tail
        if tail and tail[0].seq <= after + 1:
            return list(islice(tail, after + 1 - tail[0].seq, None))
        page = await self._store.read(self._run, after, PAGE)
        return [event for event in page if event.seq <= self.durable]

    async def _change(self) -> None:
        listener: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._listening.add(listener)
        try:
            await listener
        finally:
            self._listening.discard(listener)

    def _wake(self) -> None:
        listening, self._listening = self._listening, set()
        for listener in listening:
            if not listener.done():
                listener.set_result(None)
