"""Opening a run: new, from where its journal left off, or once more from its journal alone."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

from romanesco._codec import from_json, to_json
from romanesco.budget import Amount, Ledger, Limits, Price, Stopwatch, bill_accounts, hold_again, require_prices
from romanesco.errors import (
    BudgetExceeded,
    InputError,
    JournalCorrupt,
    JournalError,
    PlanRefused,
    StopReason,
    UnknownName,
)
from romanesco.journal import Journal, entries, resolve
from romanesco.runtime._accounts import Accounts, Past
from romanesco.runtime._context import RunContext
from romanesco.runtime._desk import Desk
from romanesco.runtime._feed import Feed
from romanesco.runtime._memo import Memo
from romanesco.runtime._nodes import solve_node
from romanesco.runtime._questions import Questions
from romanesco.runtime._recorder import Recorder
from romanesco.runtime._recover import FoldedEvent, Recovery, recover
from romanesco.runtime._refold import memo_from
from romanesco.runtime._registry import plan_with
from romanesco.runtime._resend import room_for_doubts, with_raises
from romanesco.runtime._session import Parts, Session, end_data
from romanesco.runtime._shared import (
    accounts_now,
    check_shared,
    figures,
    planned_limits,
    reserve_again,
    reserve_shared,
    settle_shared,
)
from romanesco.runtime._spec import RunSpec, SharedAccount, refuse_passed, with_changes
from romanesco.runtime._stops import Stops
from romanesco.task import Bill, Outcome, Plan, Spend, Status, Task

if TYPE_CHECKING:
    from romanesco.journal import Store


async def plan_run(spec: RunSpec, parts: Parts) -> Plan:
    """Plan a run without starting it; nothing is generated, nothing is journaled.

    Raises:
        InputError: The goal, a parameter or the topology's name is wrong; ``PlanRefused`` if nothing fits.
        BudgetExceeded: An account shared by runs could not carry the plan as it stands.
        ModelError: A model's endpoint did not answer.
    """
    check_task(spec.task)
    if spec.budget.seconds is not None and spec.budget.seconds <= 0:
        raise PlanRefused(
            "The run has no time", value=f"{spec.budget.seconds} s", advice="Give it some with --minutes."
        )
    prices = parts.prices_of(spec)
    if all(price is None for price in prices.values()):
        require_prices(prices, Bill(()), spec.budget)  # before any server is asked: no plan could change it
    budget, accounts = await planned_limits(parts.store, spec)
    desk = Desk(spec, parts.pool, prices, budget, accounts)
    plan = await plan_with(parts.topologies[spec.topology], spec.task, desk)
    unknown = desk.unknown_roles()
    if unknown:
        known = ", ".join(sorted(desk.roles))
        told = f"NOT used: {', '.join(unknown)}, which {spec.topology} has no role for; its roles are {known}."
        plan = replace(plan, reasons=(*plan.reasons, told))
    asked = {spec.model(role) for role in desk.roles} or set(prices)
    require_prices({name: prices[name] for name in sorted(asked)}, plan.bill, spec.budget)
    await check_shared(parts.store, spec, plan.bill)  # no plan, and no bill, of a run that could not start now
    return plan


def check_task(task: Task) -> None:
    """Refuse a goal that nobody can work on.

    Raises:
        InputError: The goal is empty, or is not text.
    """
    if not task.goal.strip():
        raise InputError("The goal is empty", advice="Say what you want in a sentence.")
    if "\x00" in task.goal:
        raise InputError("The goal is not text", value="a NUL character", advice="Give a text file.")


def new_run_id(wall: Callable[[], float]) -> str:
    """A new run's id: sorts by time of creation and is short enough to type."""
    stamp = time.strftime("%y%m%d-%H%M%S", time.gmtime(wall()))
    return f"{stamp}-{os.urandom(3).hex()}"


async def start(spec: RunSpec, parts: Parts, plan: Plan | None = None) -> Session:
    """Open a new run: plan it, reserve it, journal both. Nothing is spent yet.

    Raises:
        InputError: See ``plan_run``.
        BudgetExceeded: An account shared by runs can't carry this run's worst case.
        JournalError: The journal can't be written.
    """
    if plan is None:
        plan = await plan_run(spec, parts)
    prices = parts.prices_of(spec, plan)
    journal = await Journal.create(parts.store, spec.run, clock=parts.wall)
    try:
        run = _wire(spec, plan, parts, journal, Recovery(), prices)
        await check_shared(parts.store, spec, plan.bill)  # a run that is refused leaves no journal
        created = journal.append("run.created", data={"spec": to_json(spec), "guards": parts.hooks.names()})
        if spec.shared:
            await created  # nothing is held for a run that nobody can find and free after a kill
        async with _held_if_opened(spec, parts, Spend()):
            await reserve_shared(parts.store, spec, plan.bill, {})
            await journal.append("run.planned", data={"plan": to_json(plan)})
    except BudgetExceeded as error:
        if journal.seq:  # another run took the room since it was looked at; the journal must not wait for a resume
            refused = Outcome(Status.REFUSED, error.reason, note=str(error), run=spec.run, topology=spec.topology)
            refused = replace(refused, dimension=error.dimension, account=error.account)
            journal.append_nowait("run.ended", data=end_data(refused))
        await journal.close()
        raise
    except BaseException:
        await journal.close()
        raise
    return Session(run, parts)


@contextlib.asynccontextmanager
async def _held_if_opened(spec: RunSpec, parts: Parts, spent: Spend) -> AsyncIterator[None]:
    """Leave a run that could not be opened with nothing but what it has spent on the accounts that it shares."""
    try:
        yield
    except (BudgetExceeded, InputError):
        raise  # nothing was changed
    except BaseException:
        with contextlib.suppress(JournalError):  # if this can't be written either, the first error counts
            await settle_shared(parts.store, spec, spent)
        raise


async def resume(
    run_id: str, parts: Parts, changes: tuple[tuple[str, Any], ...] = (), *, resend: bool = False
) -> Session:
    """Open a run from where its journal left off.

    Args:
        run_id: The run.
        parts: What it is made of now; models are looked up by the recorded names.
        changes: New limits: ``(dimension, value)``. A completed run has nothing left to do and stays as it is.
        resend: Let the bill carry the calls that were in doubt once more; see ``Session.raised``.

    Raises:
        BudgetExceeded: An account shared by runs, as it is limited now, can't carry what the run may still come to.
        InputError: A new limit is below what the run has used; nothing is written.
        RunBusy: Another process owns the run.
        UnknownName: No such run.
        JournalCorrupt: The journal is damaged.
    """
    journal = await Journal.open(parts.store, run_id, clock=parts.wall)
    try:
        events = await _past_events(journal, parts.store)
        recovered = recover(events)
        if recovered.created and recovered.planned is None:
            return await _resume_unplanned(recovered, parts, journal)
        spec, plan = spec_and_plan(run_id, recovered)
        if recovered.ended is not None and recovered.ended["status"] == "completed":
            run = _wire(spec, plan, parts, journal, recovered, parts.prices_of(spec, plan))
            return Session(run, parts, ended=recovered.ended)
        await _refuse_stale_commands(parts.store, run_id)
        recorded = spec.shared
        coming: list[tuple[str, dict[str, Any]]] = [
            ("run.resumed", {"from": recovered.seq, "guards": parts.hooks.names()}),
            *_other_accounts(recorded, parts, recovered),
            *(("budget.changed", {"dimension": dimension, "value": value}) for dimension, value in changes),
        ]
        raised = room_for_doubts(recovered) if resend and plan.bill.lines else None
        if raised is not None:
            coming.append(("bill.raised", to_json(raised)))
        # Folded and wired as it will stand, before it is journaled: a limit that can't be in force must not stay in
        # the way of every resume.
        foreseen = [(seq, kind, "", "", data) for seq, (kind, data) in enumerate(coming, recovered.seq + 1)]
        recovered = recover([*events, *foreseen])
        spec, plan = spec_and_plan(run_id, recovered)
        spec = with_changes(spec, recovered.budget)
        check_limits(spec, recovered)
        run = _wire(spec, plan, parts, journal, recovered, parts.prices_of(spec, plan))
        spent = recovered.spent.spend(recovered.elapsed)
        async with _held_if_opened(spec, parts, spent):
            await reserve_again(parts.store, recorded, spec, plan.bill, figures(spent), recovered.overruns)
            for kind, data in coming:
                await journal.append(kind, data=data)
    except BaseException:
        await journal.close()
        raise
    return Session(run, parts, raised=raised)


def _other_accounts(
    recorded: tuple[SharedAccount, ...], parts: Parts, recovered: Recovery
) -> list[tuple[str, dict[str, Any]]]:
    """The event that tells of the accounts that a run draws on from now on; none if they are what they were."""
    if parts.accounts is None:
        return []
    spent = figures(recovered.spent.spend(recovered.elapsed))
    now = accounts_now(recorded, parts.accounts(), spent)
    return [("accounts.changed", {"accounts": [to_json(account) for account in now]})] if now != recorded else []


async def _resume_unplanned(recovered: Recovery, parts: Parts, journal: Journal) -> Session:
    """A run whose process died before it was planned: it has nothing to go on with, so it is ended on record.

    Driving it frees what it may hold of accounts that runs share.
    """
    spec = from_json(RunSpec, recovered.created["spec"])
    if recovered.ended is None:
        note = "The run was never planned: its process died before anything was done. Start it again as a new run."
        outcome = Outcome(Status.CANCELLED, StopReason.INTERRUPTED, note=note, run=spec.run, topology=spec.topology)
        recovered.ended = end_data(outcome)
        await journal.append("run.ended", data=recovered.ended)
    _, plan = spec_and_plan(spec.run, recovered)
    run = _wire(spec, plan, parts, journal, recovered, {})
    return Session(run, parts, ended=recovered.ended)


async def replay(run_id: str, parts: Parts) -> Session:
    """Run a run again from its journal alone: no call is made and nothing is written.

    Raises:
        UnknownName: No such run.
        JournalCorrupt: The journal is damaged.
    """
    events = await read_events(parts.store, run_id)
    recovered = recover(events)
    spec, plan = spec_and_plan(run_id, recovered)
    if recovered.planned is None:
        raise InputError("The run was never planned, so it has nothing to replay", value=run_id)
    spec = with_changes(spec, recovered.budget)
    recovered.steps = memo_from(events)  # failures as they were: a replay tries nothing again
    run = _wire(spec, plan, parts, None, recovered, dict.fromkeys(spec.models.values()))
    return Session(run, parts, recorded=recovered.ended)


async def _past_events(journal: Journal, store: Store) -> list[FoldedEvent]:
    """The events that opening the journal has read and checked, with their payloads; it does not keep them."""
    past = journal.take_past()
    return [(e.seq, e.kind, e.node, e.key, data) for e, data in zip(past, await resolve(store, past), strict=True)]


async def read_events(store: Store, run_id: str) -> list[FoldedEvent]:
    """A run's events with their payloads resolved.

    Raises:
        UnknownName: No such run.
    """
    read = [(e.seq, e.kind, e.node, e.key, data) async for e, data in entries(store, run_id)]
    if not read:
        raise UnknownName("No such run", value=run_id, advice="See: romanesco runs.")
    return read


def spec_and_plan(run_id: str, recovered: Recovery) -> tuple[RunSpec, Plan]:
    """What the journal says the run was asked to be, and its plan with the bill as it stands.

    Raises:
        JournalCorrupt: It says neither: the process died before the run was planned, and nobody has ended it since.
    """
    if not recovered.created or (recovered.planned is None and recovered.ended is None):
        raise JournalCorrupt(
            "The run was never planned: its process died before anything was done",
            value=run_id,
            advice=f"Nothing was spent. End it: romanesco stop {run_id} --abandon; then start it again.",
        )
    if recovered.planned is None:
        spec = from_json(RunSpec, recovered.created["spec"])
        return spec, Plan(spec.topology, Bill(()), {})
    plan = with_raises(from_json(Plan, recovered.planned["plan"]), recovered.raises)
    spec = from_json(RunSpec, recovered.created["spec"])
    if recovered.accounts is not None:
        spec = replace(spec, shared=tuple(from_json(SharedAccount, account) for account in recovered.accounts))
    return spec, plan


def check_limits(spec: RunSpec, recovered: Recovery) -> None:
    """Refuse to go on with limits that the run has passed already.

    Raises:
        InputError: One of them is below what was used.
    """
    spent = recovered.spent
    used: dict[str, Decimal | float] = {
        "tokens": spent.tokens_in + spent.tokens_out,
        "tokens_in": spent.tokens_in,
        "tokens_out": spent.tokens_out,
        "usd": spent.usd,
        "calls": spent.calls,
        "seconds": recovered.elapsed,
    }
    for dimension, value in used.items():
        refuse_passed(dimension, value, spec.budget)


async def _refuse_stale_commands(store: Store, run_id: str) -> None:
    for command in await store.take(run_id):
        said = "The run was not running when this was said; say it again."
        await store.acknowledge(command.id, {"ok": False, "message": said})


def _wire(
    spec: RunSpec,
    plan: Plan,
    parts: Parts,
    journal: Journal | None,
    recovered: Recovery,
    prices: dict[str, Price | None],
) -> RunContext:
    """Put a run's parts together: its accounts as they stood, its memory of finished steps, its watchers."""
    ledger = Ledger()
    past = Past()
    for attempt in recovered.attempts:
        spent = attempt.spent
        amount = Amount(tokens_in=spent.tokens_in, tokens_out=spent.tokens_out, calls=spent.calls, usd=spent.usd)
        past.add(attempt.node, attempt.role, attempt.line, attempt.call_line, amount)
    for node in recovered.opened:
        past.open(node)
    # A replay spends nothing, so that limits which were lowered since the calls were made have nothing to refuse in it.
    # Only how many nodes there may be is asked anew: a root that was refused stands on no record.
    live = journal is not None
    run_account = ledger.open("run", limits=Limits.of(spec.budget) if live else Limits(nodes=spec.budget.nodes))
    lines = bill_accounts(ledger, run_account, plan.bill, spent=past.lines)
    ledger.restore(run_account, past.run)
    hold_again(ledger, run_account, lines, plan.bill)
    if recovered.overrun and live:
        ledger.stop(run_account, recovered.overrun)
    feed = Feed()
    run = RunContext(
        spec=spec,
        plan=plan,
        journal=Recorder(journal, feed, recovered.clockwork),
        memo=Memo(recovered.steps, live=live),
        ledger=ledger,
        accounts=Accounts(ledger, run_account, lines, past=past, role_limits=spec.role_limits),
        stopwatch=Stopwatch(parts.clock, base=recovered.elapsed),
        pool=parts.pool,
        prices=prices,
        limiters=parts.limiters,
        embedder=parts.embedder,
        topologies=parts.topologies,
        engine=parts.engine,
        feed=feed,
        questions=Questions(),
        stops=Stops(recovered.stops),
        hooks=parts.hooks,
        clock=parts.clock,
        wall=parts.wall,
        spent=recovered.spent,
        overruns=recovered.overruns,
        offers=dict(recovered.offers),
        answers=recovered.answers,
        seconds=spec.budget.seconds,
    )
    run.solve = partial(solve_node, run)
    return run
