"""An engine for tests: all that crosses a boundary goes through JSON, and latencies are shuffled by a seed."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

R = TypeVar("R")


class MemoryEngine:
    """Drives children and steps in this process, as unkindly as a distributed engine might.

    Every payload and outcome makes a round trip through JSON text, so that a live object or a closure that
    crosses the boundary fails here. Before and after each step the loop is given up a random number of times,
    so that two seeds finish concurrent steps in different orders.

    Args:
        seed: Of the latencies.
        spread: Loop rounds that a step is delayed, at most.
    """

    def __init__(self, seed: int = 0, spread: int = 20) -> None:
        self._random = random.Random(seed)  # noqa: S311 - latencies, not secrets
        self._spread = spread
        self.order: list[str] = []
        """Names of the steps in the order in which they finished."""

    async def child(self, topology: str, payload: Any, start: Callable[[str, Any], Awaitable[Any]]) -> Any:
        """Run a node on a copy of its payload."""
        await self._delay()
        outcome = await start(topology, json.loads(json.dumps(payload)))
        await self._delay()
        return json.loads(json.dumps(outcome))

    async def step(self, name: str, perform: Callable[[], Awaitable[R]]) -> R:
        """Do a step's work, delayed."""
        await self._delay()
        result = await perform()
        await self._delay()
        self.order.append(name)
        return result

    async def _delay(self) -> None:
        for _ in range(self._random.randrange(self._spread + 1)):
            await asyncio.sleep(0)
