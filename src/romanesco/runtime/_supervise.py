"""What goes on beside a run's work: its inbox is read, its time is watched, its active seconds are kept."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from romanesco.errors import InputError, RomanescoError, StopReason
from romanesco.task import Budget

if TYPE_CHECKING:
    from romanesco.journal import Command, Store
    from romanesco.runtime._context import RunContext

POLL = 0.2
"""Seconds between two looks into the inbox."""

TICK = 5.0
"""Active seconds after which a run that journals nothing else writes down how long it has been active."""


async def supervise(run: RunContext, store: Store) -> None:
    """Watch over a run until cancelled."""
    ticked = run.stopwatch.elapsed
    while True:
        left = run.time_left(wrap_up=True)
        if left is not None and left <= 0:
            what = f"The run's time is used up: {run.stopwatch.elapsed:.1f} s of {run.seconds} s"
            await run.stops.stop("/", what, StopReason.DEADLINE)
            return
        for command in await store.take(run.spec.run):
            await store.acknowledge(command.id, await obey(run, command))
        elapsed = run.stopwatch.elapsed
        if elapsed - ticked >= TICK:
            ticked = elapsed
            await run.journal.append("run.tick", data={"elapsed": round(elapsed, 3)})
        await asyncio.sleep(POLL if left is None else max(0.0, min(POLL, left)))


async def obey(run: RunContext, command: Command) -> dict[str, Any]:
    """Carry out one command and say what came of it. The command stands in the journal before it takes effect."""
    await run.journal.append(
        "command.received",
        node=command.node,
        key=f"command:{command.id}",
        data={"id": command.id, "verb": command.verb, "data": command.data},
    )
    try:
        said = await _carry_out(run, command)
    except RomanescoError as error:
        return {"ok": False, "message": str(error)}
    return {"ok": True, "message": said}


async def _carry_out(run: RunContext, command: Command) -> str:
    data = command.data
    if command.verb == "stop":
        why = data.get("why") or "a person stopped it"
        await run.stops.stop(command.node, f"Stopped: {why}")
        return f"{command.node} is stopped; no request of it reaches a server any more."
    if command.verb == "answer":
        question = run.questions.answer(data.get("question"), str(data["text"]))
        return f"Question {question} is answered."
    if command.verb == "budget":
        return await change_budget(run, data["dimension"], data["value"])
    raise InputError("No such command", value=command.verb, limit="stop, answer, budget")


async def change_budget(run: RunContext, dimension: str, value: Any) -> str:
    """Raise or lower one limit of a running run.

    Args:
        run: The run.
        dimension: A field of ``Budget``.
        value: The new limit; None removes it.
    """
    if dimension not in Budget.__dataclass_fields__:
        raise InputError("No such dimension", value=dimension, limit=", ".join(Budget.__dataclass_fields__))
    await run.journal.append("budget.changed", data={"dimension": dimension, "value": value})
    if dimension == "seconds":
        run.seconds = None if value is None else float(value)
    else:
        run.ledger.set_limit(run.accounts.run, dimension, value)
    return f"The limit of {dimension} is {value} now."
