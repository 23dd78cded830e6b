"""Topologies for the tests of the runtime, made of one function each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from romanesco import Bill, Outcome, Plan, Scope, Status, StopReason, Task
from romanesco.models import Message, ModelRequest
from romanesco.runtime import PlanningDesk

Solve = Callable[[Task, Scope], Awaitable[Outcome]]


class Plain:
    """A topology whose ``solve`` is a function; its parameters are the task's."""

    def __init__(self, solve: Solve, name: str = "plain", bill: Bill | None = None) -> None:
        self.name = name
        self._solve = solve
        self._bill = bill or Bill(())

    async def plan(self, task: Task, desk: PlanningDesk) -> Plan:
        return Plan(self.name, self._bill, dict(task.params))

    async def solve(self, task: Task, scope: Scope) -> Outcome:
        return await self._solve(task, scope)


async def say(
    scope: Scope, text: str, key: str, *, role: str = "member", purpose: str = "answer", cap: int = 16
) -> str:
    """Ask the model; its answer."""
    request = ModelRequest(model=scope.model(role), messages=(Message("user", text),), max_output_tokens=cap)
    return (await scope.call(request, key=key, role=role, purpose=purpose)).text


def done(answer: str = "done", status: Status = Status.COMPLETED, **fields: Any) -> Outcome:
    """An outcome."""
    return Outcome(status, StopReason.COMPLETED, answer=answer, **fields)
