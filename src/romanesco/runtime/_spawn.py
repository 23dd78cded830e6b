"""Children: how a node opens one below it, keeps it inside its limits, and hears how it ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from romanesco._codec import from_json, to_json
from romanesco.budget import seconds_limit
from romanesco.errors import BudgetExceeded, InputError, StopReason
from romanesco.journal import canonical, digest
from romanesco.runtime._desk import Desk
from romanesco.runtime._ends import ended_by
from romanesco.runtime._envelope import Envelope
from romanesco.runtime._registry import plan_with
from romanesco.task import Budget, Outcome, Plan, Status, Task

if TYPE_CHECKING:
    from romanesco.runtime._context import RunContext

LOOK = 0.2
"""Seconds between two looks at the time of a child that has a limit of its own."""


@dataclass(frozen=True, slots=True)
class Order:
    """A child that a node asks for: where, what and with which limits. ``fingerprint`` is of all of it."""

    parent: str
    path: str
    name: str
    topology: str
    task: Task
    budget: Budget | None
    envelope: Envelope
    fingerprint: str

    @classmethod
    def of(
        cls, parent: str, envelope: Envelope, topology: str, task: Task, *, key: str, budget: Budget | None
    ) -> Order:
        """An order, with its path and fingerprint.

        Raises:
            InputError: The key can't be the name of a node.
            TypeError: The task holds what is not JSON; the path of the leaf is named.
            ValueError: Likewise.
        """
        if not key or "/" in key:
            raise InputError("A child's key can't name a node", value=repr(key), limit="text without a slash")
        canonical(task.params)  # stricter than to_json, which takes a set for a list, in whatever order
        what = {"topology": topology, "task": to_json(task), "budget": None if budget is None else to_json(budget)}
        path = f"{parent.rstrip('/')}/{key}"
        below = envelope.below(key, task.goal)
        return cls(parent, path, key, topology, task, budget, below, digest(canonical(what)))


async def run_child(run: RunContext, order: Order) -> Outcome:
    """Open a child below a node, run it and close it. Its failure is its outcome."""
    run.memo.claim(order.parent, f"spawn:{order.name}")
    opened = run.memo.find(order.parent, f"spawn:{order.name}", order.fingerprint)
    if opened is None:
        run.memo.forget(order.path)
    ended = run.memo.steps.get((order.path, "node.ended"))
    if ended is not None and ended.data is not None:
        return from_json(Outcome, ended.data["outcome"])
    run.stops.check(order.parent)
    recorded = opened.data if opened is not None else None
    outcome = await _live(run, order, recorded or {})
    if outcome.status is not Status.COMPLETED and run.stops.mark(order.parent) is not None:
        return outcome  # the stop of its parent is not this child's end: a resumed run goes on in it
    data = {"outcome": to_json(outcome), "fingerprint": order.fingerprint}
    await run.journal.append("node.ended", node=order.path, key="node.ended", data=data)
    return outcome


async def _live(run: RunContext, order: Order, recorded: dict[str, Any]) -> Outcome:
    path, topology = order.path, order.topology
    try:
        account = run.accounts.open_node(path, order.budget)
    except BudgetExceeded as error:
        return Outcome(status=Status.REFUSED, reason=error.reason, note=str(error), topology=topology)
    try:
        try:
            run.accounts.enter(path)
        except BudgetExceeded as error:
            return Outcome(status=Status.REFUSED, reason=error.reason, note=str(error), topology=topology)
        payload = await _opened(run, order, recorded)
        async with _in_time(run, order, payload["elapsed"]):
            ended = await run.engine.child(topology, payload, run.solve)
        return from_json(Outcome, ended)
    except Exception as caught:  # noqa: BLE001 - a child that can't be planned or driven has failed, no more
        return ended_by(path, caught, run.offers.get(path))
    finally:
        run.ledger.close(account)


async def _opened(run: RunContext, order: Order, recorded: dict[str, Any]) -> dict[str, Any]:
    """What the child is started with; a child that was opened before keeps the plan that it had."""
    if "plan" in recorded:
        return recorded
    desk = Desk(run.spec, run.pool, run.prices, order.budget or Budget())

    async def plan() -> Plan:
        return await plan_with(run.topologies[order.topology], order.task, desk)

    payload = {
        "topology": order.topology,
        "path": order.path,
        "task": to_json(order.task),
        "plan": to_json(await run.stops.guard(order.path, plan())),
        "envelope": to_json(order.envelope),
        "fingerprint": order.fingerprint,
        "elapsed": round(run.stopwatch.elapsed, 3),
    }
    await run.journal.append("node.opened", node=order.path, key="node.opened", data=payload)
    return payload


@asynccontextmanager
async def _in_time(run: RunContext, order: Order, since: float) -> AsyncIterator[None]:
    """Stop the child when the active seconds of its own limit are over, counted over all resumes."""
    seconds = None if order.budget is None else seconds_limit(order.budget)
    if seconds is None:
        yield
        return
    watcher = asyncio.ensure_future(_expire(run, order.path, since + seconds, seconds))
    try:
        yield
    finally:
        watcher.cancel()
        await asyncio.wait([watcher])


async def _expire(run: RunContext, path: str, until: float, seconds: float) -> None:
    while (left := until - run.stopwatch.elapsed) > 0:  # noqa: ASYNC110 - nobody sets an event: it is time that passes
        await asyncio.sleep(LOOK if run.stopwatch.paused else min(LOOK, left))
    await run.stops.stop(path, f"The time of {path} is used up: {seconds} s", StopReason.DEADLINE)
