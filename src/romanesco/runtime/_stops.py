"""Stop means stop: a tree of stop marks, and the work in flight below each.

``stop`` marks a subtree, cancels its work and returns when none of it is left. From the mark on every
``guard`` below refuses to start. So once ``stop`` has returned, no request of that subtree reaches a server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from romanesco.errors import RunStopped, StopReason

T = TypeVar("T")


def covers(path: str, node: str) -> bool:
    """Whether ``node`` is ``path`` or lies below it."""
    return path == "/" or node == path or node.startswith(path.rstrip("/") + "/")


class Stops:
    """The stop marks of one run and the tasks in flight by node.

    Args:
        marks: What was stopped before a resume, by path.
    """

    def __init__(self, marks: Mapping[str, str] = MappingProxyType({})) -> None:
        self._marks = {path: (what, StopReason.STOPPED) for path, what in marks.items()}
        self._tasks: dict[asyncio.Task[Any], str] = {}

    def mark(self, node: str) -> RunStopped | None:
        """The stop that covers a node, as the error to raise, or None."""
        for path, (what, reason) in self._marks.items():
            if covers(path, node):
                return RunStopped(what, stop_reason=reason)
        return None

    def check(self, node: str) -> None:
        """Refuse to go on in a stopped node.

        Raises:
            RunStopped: The node or one above it was stopped.
        """
        if self._marks:
            stopped = self.mark(node)
            if stopped is not None:
                raise stopped

    async def guard(self, node: str, work: Coroutine[Any, Any, T]) -> T:
        """Run work of a node so that a stop can end it.

        Raises:
            RunStopped: The node was stopped before or during the work.
        """
        try:
            self.check(node)
        except RunStopped:
            work.close()
            raise
        task = asyncio.ensure_future(work)
        self._tasks[task] = node
        try:
            return await task
        except asyncio.CancelledError:
            # Who cancels the waiter cancels the work that it awaits, and the waiter hears of it when that has ended.
            stopped = self.mark(node)
            current = asyncio.current_task()
            if stopped is None or (current is not None and current.cancelling()):
                raise
            raise stopped from None
        finally:
            self._tasks.pop(task, None)

    async def stop(self, path: str, what: str, reason: StopReason = StopReason.STOPPED) -> None:
        """Stop a subtree and wait until none of its work is left."""
        self._marks.setdefault(path, (what, reason))
        mine = asyncio.current_task()
        while True:
            tasks = [task for task, node in self._tasks.items() if covers(path, node) and task is not mine]
            if not tasks:
                return
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await asyncio.sleep(0)  # let the waiters take their tasks off the list
