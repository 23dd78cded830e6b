"""Hook points where guards attach: typed, ordered, the same for every topology.

A guard is ``async def guard(data, scope) -> data``: it may return the data as it is, return it changed, or raise
``Refused``. Guards run in the order in which they were added, each on what the one before returned. Like a
topology, a guard is deterministic given its data and its own steps, so it runs again on resume and reaches
the same verdict; a guard that asks a model does so through ``scope``. What it asks passes every guard but itself
and those that wait for it.
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from romanesco.runtime._topology import Scope

Guard = Callable[[dict[str, Any], "Scope"], Awaitable[dict[str, Any]]]


class HookPoint(enum.StrEnum):
    """Where guards attach, in the order in which a node passes them.

    Attributes:
        BEFORE_DECOMPOSE: Before a node works on its task. Data: ``goal``, ``topology``, ``path``.
        BEFORE_AGENT: Before a model is asked. Data: ``role``, ``key``, ``purpose``, ``messages``.
        AFTER_MODEL: After a model answered. Data: ``role``, ``key``, ``purpose``, ``text``.
        AFTER_SYNTHESIS: Between a node's synthesis and its use; the topology passes it, since it knows what its
            synthesis is. Data: ``answer``.
        BEFORE_UPDATE_PARENT: Before a node's outcome reaches its parent, or the caller: whether it may be passed on,
            as the guards before left it. Data: ``status``, ``answer``, ``path``.
    """

    BEFORE_DECOMPOSE = "before_decompose"
    BEFORE_AGENT = "before_agent"
    AFTER_MODEL = "after_model"
    AFTER_SYNTHESIS = "after_synthesis"
    BEFORE_UPDATE_PARENT = "before_update_parent"


@dataclass(slots=True)
class Hooks:
    """The guards of a run by hook point."""

    guards: dict[HookPoint, list[tuple[str, Guard]]] = field(default_factory=dict)

    def add(self, point: HookPoint, name: str, guard: Guard) -> None:
        """Attach a guard behind those already there.

        Args:
            point: Where it attaches.
            name: How the journal names it.
            guard: ``async def guard(data, scope) -> data``: gives the data, changed or not, or raises ``Refused``.
        """
        self.guards.setdefault(point, []).append((name, guard))

    def at(self, point: HookPoint) -> list[tuple[str, Guard]]:
        """The guards of a point, in order."""
        return self.guards.get(point, [])

    def names(self) -> dict[str, list[str]]:
        """Which guards are on, for the record."""
        return {point.value: [name for name, _ in guards] for point, guards in self.guards.items() if guards}
