"""Topologies for tests: many members at once, a chain, a tree. They plan no bill, so only the user's limits bind."""

from __future__ import annotations

import asyncio
from typing import Any

from romanesco.errors import RomanescoError, RunStopped, StopReason
from romanesco.models import Message, ModelRequest
from romanesco.runtime import PlanningDesk, Scope
from romanesco.task import Bill, Outcome, Plan, Status, Task


def _request(scope: Scope, text: str, max_output_tokens: int) -> ModelRequest:
    return ModelRequest(
        model=scope.model("member"), messages=(Message("user", text),), max_output_tokens=max_output_tokens
    )


class Members:
    """``members`` agents (default 8) answer at the same time, for ``rounds`` rounds (default 1).

    Its answer lists, a line each, what every member said, or why it said nothing. It is ``completed`` if all
    answered in every round, else ``partial`` with the first failure's reason.
    """

    name = "members"

    async def plan(self, task: Task, desk: PlanningDesk) -> Plan:
        """Plan without a bill."""
        params = {"members": 8, "rounds": 1, "max_output_tokens": 16, **task.params}
        return Plan(self.name, Bill(()), params, reasons=("a test topology: it has no bill",))

    async def solve(self, task: Task, scope: Scope) -> Outcome:
        """Ask every member once a round."""
        params = scope.plan.params
        said: dict[str, str] = {}
        failures: list[RomanescoError] = []

        async def member(number: int, round_: int) -> None:
            key = f"round/{round_}/{number}"
            request = _request(scope, f"[{key}] {task.goal}", params["max_output_tokens"])
            try:
                reply = await scope.call(request, key=key, role=f"member-{number}", purpose="answer")
            except RunStopped:
                raise
            except RomanescoError as error:
                failures.append(error)
                said[key] = f"({error.code})"
            else:
                said[key] = reply.text

        for round_ in range(1, params["rounds"] + 1):
            async with asyncio.TaskGroup() as group:
                for number in range(params["members"]):
                    group.create_task(member(number, round_))
            await scope.offer(_lines(said), key=f"round/{round_}", note=f"{round_} of {params['rounds']} rounds")
        if failures:
            reason = failures[0].reason
            dimension = getattr(failures[0], "dimension", "")
            return Outcome(Status.PARTIAL, reason, answer=_lines(said), note=str(failures[0]), dimension=dimension)
        return Outcome(Status.COMPLETED, StopReason.COMPLETED, answer=_lines(said))


class Chain:
    """``length`` calls (default 3), each of which reads the answer of the one before."""

    name = "chain"

    async def plan(self, task: Task, desk: PlanningDesk) -> Plan:
        """Plan without a bill."""
        return Plan(self.name, Bill(()), {"length": 3, "max_output_tokens": 16, **task.params})

    async def solve(self, task: Task, scope: Scope) -> Outcome:
        """Ask one after the other."""
        text = task.goal
        for number in range(scope.plan.params["length"]):
            request = _request(scope, f"[{number}] {text}", scope.plan.params["max_output_tokens"])
            reply = await scope.call(request, key=f"step/{number}", role="member", purpose="answer")
            text = reply.text
            await scope.offer(text, key=f"step/{number}")
        return Outcome(Status.COMPLETED, StopReason.COMPLETED, answer=text)


class Tree:
    """A node of a tree: one call, then ``width`` children (default 2) at once down to ``depth`` (default 1)."""

    name = "tree"

    async def plan(self, task: Task, desk: PlanningDesk) -> Plan:
        """Plan without a bill."""
        return Plan(self.name, Bill(()), {"width": 2, "depth": 1, **task.params})

    async def solve(self, task: Task, scope: Scope) -> Outcome:
        """Answer, then let the children answer."""
        params: dict[str, Any] = scope.plan.params
        request = _request(scope, f"[{scope.node}] {task.goal}", 16)
        reply = await scope.call(request, key="answer", role="member", purpose="answer")
        children: dict[int, Outcome] = {}

        async def child(number: int) -> None:
            below = Task(f"{task.goal}/{number}", params={**params, "depth": params["depth"] - 1})
            children[number] = await scope.spawn(self.name, below, key=f"child-{number}")

        if params["depth"] > 0:
            async with asyncio.TaskGroup() as group:
                for number in range(params["width"]):
                    group.create_task(child(number))
        states = [children[number].status for number in sorted(children)]
        whole = all(state is Status.COMPLETED for state in states)
        answers = "".join(f"\n{children[number].answer}" for number in sorted(children))
        return Outcome(
            Status.COMPLETED if whole else Status.PARTIAL, StopReason.COMPLETED, answer=f"{reply.text}{answers}"
        )


def _lines(said: dict[str, str]) -> str:
    return "\n".join(f"{key}: {said[key]}" for key in sorted(said))
