"""Topologies by name: built in, installed by other packages, or given by the caller."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

from romanesco.errors import InputError, RomanescoError, UnknownName

if TYPE_CHECKING:
    from romanesco.runtime._topology import PlanningDesk, Topology
    from romanesco.task import Plan, Task

ENTRY_POINT_GROUP = "romanesco.topologies"
"""Entry-point group under which an installed package offers topologies."""

BUILT_IN: Mapping[str, str] = {
    "single": "romanesco.topologies.single:Single",
    "fractal": "romanesco.topologies.fractal:Fractal",
}
"""Dotted places of the topologies that ship, imported when first asked for."""


class Topologies(Mapping[str, "Topology"]):
    """Looks topologies up by name, and imports one only when it is asked for.

    Args:
        extra: Topologies of the caller's, by their own ``name``; they may not take a built-in name. Kept as ``own``.

    Raises:
        InputError: Two topologies claim one name.
    """

    def __init__(self, extra: Iterable[Topology] = ()) -> None:
        self.own = tuple(extra)
        self._extra: dict[str, Topology] = {}
        for topology in self.own:
            if topology.name in BUILT_IN or topology.name in self._extra:
                raise InputError("Two topologies have one name", value=topology.name, advice="Give yours another name.")
            self._extra[topology.name] = topology
        self._loaded: dict[str, Topology] = {}

    def _installed(self) -> dict[str, str]:
        from importlib.metadata import entry_points  # slow to import, and only names that are not built in need it

        return {entry.name: entry.value for entry in entry_points(group=ENTRY_POINT_GROUP)}

    def __getitem__(self, name: str) -> Topology:
        if name in self._extra:
            return self._extra[name]
        if name not in self._loaded:
            place = BUILT_IN.get(name) or self._installed().get(name)
            if place is None:
                raise UnknownName(
                    "No topology of that name",
                    value=name,
                    limit=", ".join(sorted(self)),
                    advice="Use one of these, or install the package that offers it.",
                )
            module, _, attribute = place.partition(":")
            self._loaded[name] = getattr(import_module(module), attribute)()
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        yield from {*self._extra, *BUILT_IN, *self._installed()}

    def __len__(self) -> int:
        return len(set(self))


async def plan_with(topology: Topology, task: Task, desk: PlanningDesk) -> Plan:
    """The plan of a topology, which may be anybody's code.

    Raises:
        RomanescoError: It gave something else than a plan.
    """
    from romanesco.task import Plan

    plan: object = await topology.plan(task, desk)
    if not isinstance(plan, Plan):
        raise RomanescoError(
            f"The topology {topology.name} gave no plan",
            value=type(plan).__name__,
            limit="a Plan",
            advice="This is a fault of the topology, not of your input.",
        )
    return plan
