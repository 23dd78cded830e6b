"""How many calls an endpoint gets at once: additive increase, multiplicative decrease, one queue for all.

One limiter serves everybody who uses the same endpoint and key. A 429 lowers the limit for all of them, pauses
all of them for as long as the server asks, and then lets them in one after another with a distance in time: a
server that counts requests a second refuses a burst however few are in flight. Successes raise the limit and
shorten the distance again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

DECREASE = 0.7
"""What a 429 leaves of the limit."""

COOLDOWN = 1.0
"""Seconds during which further 429s belong to the same burst and lower nothing."""


LONGEST_PACE = 1.0
"""Most seconds between two starts, however long a server asks to wait once."""

RELAX = 0.9
"""What a success leaves of the pace."""


class Limiter:
    """Slots of one endpoint.

    Args:
        limit: Calls in flight to start with, and the most there will ever be.
        clock: Monotonic seconds.
    """

    def __init__(self, limit: int, clock: Callable[[], float]) -> None:
        self._most = max(1, limit)
        self._limit = float(self._most)
        self._clock = clock
        self._in_flight = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._paused_until = 0.0
        self._pace = 0.0
        self._lowered_at = -COOLDOWN
        self._waker: asyncio.TimerHandle | None = None

    @property
    def limit(self) -> int:
        """Calls in flight that are permitted now."""
        return max(1, int(self._limit))

    @property
    def in_flight(self) -> int:
        """Calls in flight now."""
        return self._in_flight

    async def acquire(self) -> None:
        """Wait for a slot, first come first served."""
        if not self._waiting and self._free():
            self._let_in()
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        self._wake()
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._in_flight -= 1  # the slot had been handed over already: pass it on
            elif waiter in self._waiting:  # somebody else's release may have dropped it already
                self._waiting.remove(waiter)
            self._wake()
            raise

    def release(self) -> None:
        """Give the slot back."""
        self._in_flight -= 1
        self._wake()

    def succeeded(self) -> None:
        """A call went through: raise the limit a little if it was the limit that held others back."""
        self._pace = self._pace * RELAX if self._pace > 0.001 else 0.0
        if self._limit < self._most and self._in_flight >= self.limit:
            self._limit = min(float(self._most), self._limit + 1.0 / self._limit)

    def limited(self, pause: float) -> None:
        """The server said 429: lower the limit once a burst, and let nobody in for ``pause`` seconds."""
        now = self._clock()
        if now - self._lowered_at >= COOLDOWN:
            self._lowered_at = now
            self._limit = max(1.0, self._limit * DECREASE)
        self._pace = min(LONGEST_PACE, max(pause, self._pace / RELAX, 0.01))
        self._paused_until = max(self._paused_until, now + pause)

    def _let_in(self) -> None:
        self._in_flight += 1
        if self._pace:
            self._paused_until = max(self._paused_until, self._clock() + self._pace)

    def _free(self) -> bool:
        return self._in_flight < self.limit and self._clock() >= self._paused_until

    def _wake(self) -> None:
        while self._waiting and self._free():
            waiter = self._waiting.popleft()
            if not waiter.done():
                self._let_in()
                waiter.set_result(None)
        if self._waiting and self._waker is None:
            pause = self._paused_until - self._clock()
            if pause > 0:
                self._waker = asyncio.get_running_loop().call_later(pause, self._resume)

    def _resume(self) -> None:
        self._waker = None
        self._wake()
