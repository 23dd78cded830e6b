"""What decides where a run's children and steps are driven. The journal's semantics is the same under all.

The port is kept to names and JSON-able data, so that a durable engine can drive the same topologies in
other processes: ``start`` is looked up by the name ``topology`` there, and ``payload`` is all it gets.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol, TypeVar

R = TypeVar("R")


class Engine(Protocol):
    """Drives children and steps."""

    async def child(self, topology: str, payload: Any, start: Callable[[str, Any], Awaitable[Any]]) -> Any:
        """Drive one node.

        Args:
            topology: Registered name.
            payload: JSON-able data: the node's path, task and envelope.
            start: Runs the topology of a name on a payload and gives its outcome as JSON-able data.
        """
        ...

    def step(self, name: str, perform: Callable[[], Coroutine[Any, Any, R]]) -> Coroutine[Any, Any, R]:
        """Drive one step's work, once.

        Args:
            name: The node's path and the step's key, with a space between them.
            perform: Does the work.
        """
        ...


class LocalEngine:
    """Drives everything in this process and loop."""

    async def child(self, topology: str, payload: Any, start: Callable[[str, Any], Awaitable[Any]]) -> Any:
        """Run the node here."""
        return await start(topology, payload)

    def step(self, name: str, perform: Callable[[], Coroutine[Any, Any, R]]) -> Coroutine[Any, Any, R]:
        """Do the work here."""
        return perform()
