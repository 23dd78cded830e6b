"""What goes on beside a run's work: its inbox is read, its time is watched, its active seconds are kept."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from romanesco._codec import to_json
from romanesco.budget import require_prices
from romanesco.errors import InputError, JournalError, RomanescoError, StopReason
from romanesco.journal import digest
from romanesco.runtime._recover import stop_text
from romanesco.runtime._shared import DIMENSIONS, lower_shared, reserve_shared
from romanesco.runtime._spec import limit_of, refuse_passed, with_changes

if TYPE_CHECKING:
    from romanesco.journal import Command, Store
    from romanesco.runtime._context import RunContext

POLL = 0.2
"""Seconds between two looks into the inbox."""

GRACE = 5.0
"""Seconds that the topology of a stopped run gets to end by itself. No request is made in them."""

TICK = 5.0
"""Active seconds after which a run that journals nothing else writes down how long it has been active."""


async def supervise(run: RunContext, store: Store, over: asyncio.Event, abandon: Callable[[], object]) -> None:
    """Watch over a run until it is over. A run that can't be watched over any more is stopped.

    Args:
        run: The run.
        store: Where its inbox is.
        over: Set when the run's work is done; commands that came too late are answered then.
        abandon: Ends a topology that was stopped and goes on waiting for something of its own.
    """
    try:
        await _watch(run, store, over, abandon)
    except Exception as error:
        reason = error.reason if isinstance(error, RomanescoError) else StopReason.INTERNAL
        await run.stops.stop("/", f"Nobody can stop or watch this run any more: {error}", reason)
        raise


async def _watch(run: RunContext, store: Store, over: asyncio.Event, abandon: Callable[[], object]) -> None:
    ticked = run.stopwatch.elapsed
    stopped_at: float | None = None
    while True:
        last = over.is_set()
        for command in await store.take(run.spec.run):
            await store.acknowledge(command.id, LATE if last else await obey(run, store, command))
        if last:
            return
        left = run.time_left(wrap_up=True)
        if left is not None and left <= 0:
            what = f"The run's time is used up: {run.stopwatch.elapsed:.1f} s of {run.seconds} s"
            await run.stops.stop("/", what, StopReason.DEADLINE)
        if stopped_at is None and run.stops.mark("/") is not None:
            stopped_at = run.clock()
        if stopped_at is not None and run.clock() - stopped_at >= GRACE:
            abandon()
        elapsed = run.stopwatch.elapsed
        if elapsed - ticked >= TICK:
            ticked = elapsed
            await run.journal.append("run.tick", data={"elapsed": round(elapsed, 3)})
        standing = left is None or left <= 0 or run.stopwatch.paused
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(POLL if left is None or standing else min(POLL, left)):
                await over.wait()


LATE = {"ok": False, "message": "The run had ended when this was read."}


async def obey(run: RunContext, store: Store, command: Command) -> dict[str, Any]:
    """Carry out one command from the inbox and say what came of it."""
    try:
        said = await steer(run, store, command)
    except JournalError:
        raise
    except RomanescoError as error:
        return {"ok": False, "message": str(error)}
    return {"ok": True, "message": said}


async def steer(run: RunContext, store: Store, command: Command) -> str:
    """Carry out one command. It stands in the journal before it takes effect.

    Raises:
        InputError: It can't be done.
        BudgetExceeded: An account shared with other runs can't carry a new limit; nothing is changed.
    """
    if command.verb == "stop":
        _check_node(run, command.node)
    await run.journal.append(
        "command.received",
        node=command.node,
        key=f"command:{command.id}",
        data={"id": command.id, "verb": command.verb, "data": command.data},
    )
    return await _carry_out(run, store, command)


def _check_node(run: RunContext, node: str) -> None:
    known = {"/", *run.accounts.nodes}
    if node not in known:
        raise InputError("The run has no such node", value=node, limit=", ".join(sorted(known)))


async def _carry_out(run: RunContext, store: Store, command: Command) -> str:
    data = command.data
    if command.verb == "stop":
        await run.stops.stop(command.node, stop_text(data))
        what = "The run" if command.node == "/" else command.node
        return f"{what} is stopped; no request of it reaches a server any more."
    if command.verb == "answer":
        text = data.get("text")
        if not isinstance(text, str):
            raise InputError("The answer has no text", advice="Say: romanesco answer RUN ID TEXT.")
        return await answer_question(run, data.get("question"), text)
    if command.verb == "budget":
        async with run.steering:
            return await change_budget(run, store, str(data.get("dimension")), data.get("value"))
    raise InputError("No such command", value=command.verb, limit="stop, answer, budget")


async def answer_question(run: RunContext, question_id: str | None, text: str) -> str:
    """Give a person's answer to a question that waits. It is on record before whoever gave it hears of it.

    Args:
        run: The run.
        question_id: The question's id; None where only one waits.
        text: The answer.

    Raises:
        InputError: See ``Questions.find``.
    """
    question = run.questions.find(question_id, text)
    written = run.journal.append(
        "question.answered",
        node=question.node,
        key=question.key,
        data={"id": question.id, "digest": digest(question.text), "text": text},
    )
    question.answer.set_result(text)
    await written
    return f"Question {question.id} is answered."


async def change_budget(run: RunContext, store: Store, dimension: str, value: Any) -> str:
    """Raise or lower one limit of a running run.

    Args:
        run: The run.
        store: Keeps the accounts that it shares with other runs.
        dimension: A field of ``Budget``.
        value: The new limit; None removes it.

    Raises:
        InputError: That is no limit, one of money where a price is unknown, or below what the run has used.
        BudgetExceeded: An account shared with other runs can't carry the new worst case; nothing is changed.
    """
    limit = limit_of(dimension, value)
    require_prices(run.prices, run.plan.bill, limit)
    used = run.stopwatch.elapsed if dimension == "seconds" else run.accounts.run.used(dimension)
    refuse_passed(dimension, used, limit)
    change = {"dimension": dimension, "value": to_json(limit)[dimension]}
    spec, bill = with_changes(run.spec, [change]), run.plan.bill
    lowers = _lowers(getattr(run.spec.budget, dimension), getattr(limit, dimension))
    if not lowers:
        await reserve_shared(store, spec, bill, _taken(run), run.overruns)
    run.spec = spec
    written = run.journal.append("budget.changed", data=change)
    # In force from its place in the journal on, not from when that is on disk: what is started in between stands
    # after it, and a lowered limit must hold for all that stands after it.
    if dimension == "seconds":
        run.seconds = limit.seconds
    else:
        run.ledger.set_limit(run.accounts.run, dimension, getattr(limit, dimension))
    await written
    if lowers:
        # Only now: until the limit is in force, calls may still be started that it would refuse.
        await lower_shared(store, spec, bill, _taken(run), run.overruns)
    return _told(dimension, getattr(limit, dimension))


def _told(dimension: str, limit: Decimal | float | None) -> str:
    """What became of a limit, in words."""
    if limit is None:
        return f"There is no limit of {'time' if dimension == 'seconds' else dimension} now."
    if dimension == "seconds":
        return (
            f"The limit of time is {limit:,g} s now."
            if limit < 60
            else f"The limit of time is {limit / 60:,g} min now."
        )
    return f"The limit of {dimension} is {limit:,} now."


def _lowers(before: Decimal | float | None, after: Decimal | float | None) -> bool:
    return after is not None and (before is None or after < before)


def _taken(run: RunContext) -> dict[str, Decimal]:
    """What the run has used and has in flight: it may come to this, whatever its limits are now."""
    account = run.accounts.run
    return {dimension: Decimal(account.used(dimension) + account.reserved(dimension)) for dimension in DIMENSIONS}
