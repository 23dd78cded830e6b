"""Every topology against the one contract, and the suite against topologies that break it."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from romanesco.errors import StopReason
from romanesco.models import Message, ModelRequest
from romanesco.runtime import PlanningDesk, Scope, Topology
from romanesco.task import Bill, BillLine, Outcome, Plan, Source, Status, Task
from romanesco.testing import Chain, Members, Tree, topology_conformance
from romanesco.topologies.fractal import Fractal
from romanesco.topologies.single import Single

SOURCES = (
    Source("orders.txt", "Orders rose by a third after the shop took them by telephone. " * 4),
    Source("survey.txt", "Two of five customers say that they come for the smell of bread. " * 4),
)


@pytest.mark.parametrize(
    ("topology", "params", "sources"),
    [
        (Single(), {}, ()),
        (Single(), {"answer_tokens": 100}, SOURCES),
        (Fractal(), {"k": 3, "rounds": 2}, ()),
        (Fractal(), {"k": 4, "rounds": 2, "evaluators_propose": True}, SOURCES),
        (Members(), {"members": 5, "rounds": 2}, ()),
        (Chain(), {}, ()),
        (Tree(), {"width": 2, "depth": 2}, ()),
    ],
    ids=["single", "single-sources", "fractal", "fractal-sources", "members", "chain", "tree"],
)
async def test_topology(topology: Topology, params: dict[str, Any], sources: tuple[Source, ...]) -> None:
    await topology_conformance(topology, params=params, sources=sources)


class Faulty:
    """One call, done wrong in one way."""

    name = "faulty"

    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.plans = 0

    async def plan(self, task: Task, desk: PlanningDesk) -> Plan:
        self.plans += 1
        lines = (BillLine("answer", 9, 9_000, 900, None), BillLine("retry", 9, 9_000, 900, None))
        name = "another" if self.fault == "another name" else self.name
        params: dict[str, Any] = {"number": self.plans} if self.fault == "two plans" else {}
        if self.fault == "not JSON":
            params = {"members": (1, 2)}
        return Plan(name, Bill(lines), params)

    async def solve(self, task: Task, scope: Scope) -> Outcome:
        texts = ["1", "2", "3", "4"] if self.fault == "order" else ["1"]
        heard: list[str] = []

        async def ask(text: str) -> None:
            prompt = f"{time.monotonic_ns()}" if self.fault == "clock" else text
            request = ModelRequest(scope.model("agent"), (Message("user", prompt),), max_output_tokens=16)
            heard.append((await scope.call(request, key=f"ask/{text}", role="agent", purpose="answer")).text)

        async with asyncio.TaskGroup() as group:
            for text in texts:
                group.create_task(ask(text))
        if self.fault == "fails":
            return Outcome(Status.FAILED, StopReason.MODEL)
        if self.fault == "crashes":
            raise KeyError("a fault")
        return Outcome(Status.COMPLETED, StopReason.COMPLETED, answer=" ".join(heard))


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("another name", "names the topology"),
        ("two plans", "two plans"),
        ("not JSON", "do not survive JSON"),
        ("order", "gives another outcome|order of answers changes the outcome"),
        ("clock", "a replay ends with an error"),
        ("fails", "ends as failed"),
        ("crashes", "ends as failed"),
    ],
)
async def test_the_suite_finds(fault: str, said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        await topology_conformance(Faulty(fault))
