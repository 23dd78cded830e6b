"""What a run lets its watchers see while it happens: journaled events, and tokens as they arrive.

Each watcher has its own queue; a slow one loses token notices, never events. There is no bus shared by runs.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

MOST_TOKENS_WAITING = 1000
"""Token notices that wait for a watcher at most; further ones are dropped until it catches up."""


@dataclass(frozen=True, slots=True)
class RunEvent:
    """One thing that happened in a run.

    Attributes:
        kind: As in the journal (``run.planned``, ``call.started``, ``fractal.switched``, ...), or ``token``:
            a piece of text that is arriving, which is not journaled.
        node: Path of the node.
        key: The step's key.
        data: The event's data, with those payloads too that the journal stores apart.
        seq: Position in the journal; 0 for ``token``.
    """

    kind: str
    node: str
    key: str
    data: dict[str, Any]
    seq: int = 0


class Watcher:
    """One watcher's queue. Made by ``Feed.watch``; what is not taken from it is kept until the watcher leaves."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._items: deque[RunEvent | None] = deque()
        self._tokens = 0
        self._ready = asyncio.Event()

    def put(self, event: RunEvent | None) -> None:
        """Add an event; None ends the iteration."""
        if event is not None and event.kind == "token":
            if self._tokens >= MOST_TOKENS_WAITING:
                return
            self._tokens += 1
        self._items.append(event)
        self._ready.set()

    async def events(self) -> AsyncGenerator[RunEvent, None]:
        """Events until the run ends. Called once; a reader that breaks off and lets go of it has left."""
        try:
            while True:
                while self._items:
                    event = self._items.popleft()
                    if event is None:
                        return
                    if event.kind == "token":
                        self._tokens -= 1
                    yield event
                self._ready.clear()
                await self._ready.wait()
        finally:
            self.leave()

    def leave(self) -> None:
        """Watch no longer, and keep nothing. May be called twice."""
        self._feed.remove(self)
        self._items.clear()
        self._tokens = 0


class Feed:
    """The watchers of one run."""

    def __init__(self) -> None:
        self._watchers: list[Watcher] = []
        self._ended = False

    @property
    def watched(self) -> bool:
        """Whether anybody is watching."""
        return bool(self._watchers)

    def watch(self) -> Watcher:
        """A new watcher, which sees what happens from now on."""
        watcher = Watcher(self)
        self._watchers.append(watcher)
        if self._ended:
            watcher.put(None)
        return watcher

    def remove(self, watcher: Watcher) -> None:
        """Show no more to a watcher."""
        if watcher in self._watchers:
            self._watchers.remove(watcher)

    def publish(self, event: RunEvent) -> None:
        """Show an event to all watchers."""
        for watcher in self._watchers:
            watcher.put(event)

    def end(self) -> None:
        """No more events."""
        self._ended = True
        for watcher in self._watchers:
            watcher.put(None)
