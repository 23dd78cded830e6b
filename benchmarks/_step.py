"""Wall time of a durable step that has the engine for itself."""

from __future__ import annotations

import time

import romanesco
from benchmarks._probe import Benchmark, Metric, Probe
from benchmarks._work import GOAL, OUTPUT, REPLY, budget_for, check_outcome, config_in, request_for
from romanesco.runtime import PlanningDesk, Scope
from romanesco.task import Bill, Outcome, Plan, Task

WARM_UP = 20
MILLI = 1e3


class LoneSteps:
    """One step after the other: first the clock, which is one commit, then model calls, which are two."""

    name = "lone-steps"

    def __init__(self) -> None:
        self.steps: list[float] = []
        self.calls: list[float] = []

    async def plan(self, task: Task, desk: PlanningDesk) -> Plan:
        """Plan without a bill."""
        return Plan(self.name, Bill(()), dict(task.params))

    async def solve(self, task: Task, scope: Scope) -> Outcome:
        """Take the time of every step."""
        text = ""
        for number in range(scope.plan.params["steps"]):
            started = time.perf_counter()
            await scope.now(key=f"now/{number}")
            self.steps.append(time.perf_counter() - started)
        for number in range(scope.plan.params["calls"]):
            request = request_for(scope.model("member"), f"call/{number}")
            started = time.perf_counter()
            reply = await scope.call(request, key=f"call/{number}", role="member", purpose="answer")
            self.calls.append(time.perf_counter() - started)
            text = reply.text
        return Outcome(romanesco.Status.COMPLETED, romanesco.StopReason.COMPLETED, answer=text)


async def lone(probe: Probe) -> None:
    """Steps under both ways of flushing."""
    model = romanesco.ScriptedModel(REPLY)
    steps, calls = probe.size(220, 22), probe.size(120, 22)
    for synchronous in ("NORMAL", "FULL"):
        topology = LoneSteps()
        outcome = await romanesco.run(
            GOAL,
            model=model,
            topology=topology,
            budget=budget_for(calls),
            params={"steps": steps, "calls": calls},
            config=config_in(probe.folder / synchronous, model.name, synchronous=synchronous),
        )
        check_outcome(probe, outcome, calls, REPLY)
        probe.expect("steps", len(topology.steps), steps)
        name = synchronous.lower()
        probe.add(f"step_{name}", *(seconds * MILLI for seconds in topology.steps[WARM_UP:]))
        probe.add(f"call_{name}", *(seconds * MILLI for seconds in topology.calls[WARM_UP:]))


STEP = Benchmark(
    "step",
    f"wall time of a lone durable step (one commit) and of a lone call (two commits) of {OUTPUT} scripted tokens",
    (
        Metric("step_normal", "lone durable step, NORMAL", "ms", 0.5),
        Metric("step_full", "lone durable step, FULL", "ms", 1.0),
        Metric("call_normal", "  lone model call, NORMAL", "ms"),
        Metric("call_full", "  lone model call, FULL", "ms"),
    ),
    lone,
)
