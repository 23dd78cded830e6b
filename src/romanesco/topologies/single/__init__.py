"""One agent with the same bounds, journal and interfaces as a team: the baseline and the fallback."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from romanesco.runtime import PlanningDesk, Scope
    from romanesco.task import Outcome, Plan, Task

__all__ = ["Single"]


class Single:
    """One call to one model. Its work is loaded when it is first used."""

    name = "single"

    async def plan(self, task: Task, desk: PlanningDesk) -> Plan:
        """Fit goal and sources into the window and price the worst case.

        Raises:
            InputError: A parameter is wrong.
            PlanRefused: The goal does not fit the window, or the budget can't carry the call.
            ConfigError: A money limit with an unknown price.
        """
        from romanesco.topologies.single._plan import make_plan

        return await make_plan(task, desk)

    async def solve(self, task: Task, scope: Scope) -> Outcome:
        """Ask."""
        from romanesco.topologies.single._solve import answer

        return await answer(task, scope)
