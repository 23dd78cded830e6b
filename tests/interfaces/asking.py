"""A topology that asks a person, and one that fails."""

from __future__ import annotations

from romanesco.errors import StopReason
from romanesco.runtime import PlanningDesk, Scope
from romanesco.task import Bill, Outcome, Plan, Status, Task


class Asking:
    """Asks ``params.questions`` questions (default 1) one after the other, and answers with the answers."""

    name = "asking"

    async def plan(self, task: Task, desk: PlanningDesk) -> Plan:
        """Plan without a bill."""
        return Plan(self.name, Bill(()), {"questions": 1, **task.params})

    async def solve(self, task: Task, scope: Scope) -> Outcome:
        """Ask."""
        said = [
            await scope.ask(f"Question {number}?", key=f"ask/{number}", choices=("yes", "no"))
            for number in range(scope.plan.params["questions"])
        ]
        return Outcome(Status.COMPLETED, StopReason.COMPLETED, answer=", ".join(said))


class Failing(Asking):
    """Has a fault of its own."""

    name = "failing"

    async def solve(self, task: Task, scope: Scope) -> Outcome:
        """Fail."""
        raise ZeroDivisionError("the topology's own fault")
