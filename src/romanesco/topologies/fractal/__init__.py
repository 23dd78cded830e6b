"""FRACTAL: a team that diverges blindly, integrates a challenge, is criticised, and decides, inside a printed bill."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from romanesco.runtime import PlanningDesk, Scope
    from romanesco.task import Outcome, Plan, Task

__all__ = ["Fractal", "transition_table"]


class Fractal:
    """One FRACTAL node. Its work is loaded when it is first used, so that naming it costs nothing."""

    name = "fractal"

    async def plan(self, task: Task, desk: PlanningDesk) -> Plan:
        """Size the team for budget and window, and price its worst case.

        Raises:
            InputError: A parameter is wrong.
            PlanRefused: No node fits the window or the budget.
            ConfigError: A money limit with an unknown price.
        """
        from romanesco.topologies.fractal._plan import make_plan

        return await make_plan(task, desk)

    async def solve(self, task: Task, scope: Scope) -> Outcome:
        """Deliberate. Members' failures and refusals of the budget become part of the outcome."""
        from romanesco.topologies.fractal._node import deliberate

        return await deliberate(task, scope)


def transition_table() -> str:
    """The orchestrator's transition table as Markdown."""
    from romanesco.topologies.fractal._automaton import transition_table as table

    return table()
