"""Accounts that several runs draw on: a run holds its worst case there while it runs, then what it spent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from romanesco._codec import from_json
from romanesco.errors import InputError
from romanesco.journal import Hold, check_charge
from romanesco.runtime._spec import SharedAccount
from romanesco.task import Bill, Budget, CallOverrun, Spend

if TYPE_CHECKING:
    from romanesco.journal import Store
    from romanesco.runtime._recover import Recovery
    from romanesco.runtime._spec import RunSpec

DIMENSIONS = ("calls", "tokens", "usd")
"""What accounts shared by runs can limit."""


async def check_shared(store: Store, spec: RunSpec, bill: Bill) -> None:
    """Refuse a new run that an account could not carry now. Nothing is held, so that nothing need be freed.

    Raises:
        BudgetExceeded: One of them can't carry it.
        InputError: One limits a dimension in which this run has no worst case.
    """
    for hold in worst_holds(spec, bill):
        check_charge(hold.account, spec.run, hold.amount, await store.charged(hold.account), hold.limit)


async def planned_limits(store: Store, spec: RunSpec) -> tuple[Budget, dict[str, str]]:
    """What a new run may plan for: its own limits, or what the accounts that it shares have left where that is less.

    Returns:
        The limits, and by dimension the name of the account that set one.
    """
    budget, accounts = spec.budget, {}
    for account in spec.shared:
        limits = _limits(account.limits)
        held = await store.charged(account.name) if limits else {}
        for dimension, limit in limits.items():
            left = max(Decimal(0), Decimal(limit) - Decimal(held.get(dimension, "0")))
            own = getattr(budget, dimension)
            if own is None or left < own:
                left_of: dict[str, Any] = {dimension: left if dimension == "usd" else int(left)}
                budget = replace(budget, **left_of)
                accounts[dimension] = account.name
    return budget, accounts


async def reserve_shared(
    store: Store, spec: RunSpec, bill: Bill, spent: Mapping[str, Decimal], overruns: Sequence[CallOverrun] = ()
) -> None:
    """Reserve the run's worst case on the accounts that it shares with other runs: all of them, or none.

    What it held of them before stays if one refuses: there is no moment in which another run could take it.

    Args:
        store: Keeps the accounts.
        spec: The run.
        bill: Its bill.
        spent: What it has spent so far, by dimension: it holds no less.
        overruns: What its calls used beyond the bill.

    Raises:
        BudgetExceeded: One of them can't carry it.
        InputError: One limits a dimension in which this run has no worst case.
    """
    holds = worst_holds(spec, bill, spent, overruns)
    if holds:
        await store.charge_all(spec.run, holds)


async def reserve_again(
    store: Store,
    recorded: Sequence[SharedAccount],
    spec: RunSpec,
    bill: Bill,
    spent: Mapping[str, Decimal],
    overruns: Sequence[CallOverrun],
) -> None:
    """Reserve a resumed run's worst case on its accounts of now, and leave what it spent on those that it left.

    Where a limit was lowered since, what the run holds is no right to go on: it lets go of all but what it spent
    before it asks anew. Else there is no moment in which another run could take what it holds.

    Args:
        store: Keeps the accounts.
        recorded: The accounts that the run drew on so far.
        spec: The run, with its accounts of now.
        bill: Its bill.
        spent: What it has spent so far, by dimension.
        overruns: What its calls used beyond the bill.

    Raises:
        BudgetExceeded: One of them can't carry it.
        InputError: One limits a dimension in which this run has no worst case.
    """
    holds = worst_holds(spec, bill, spent, overruns)
    now = {account.name: account for account in spec.shared}
    lowered = [one for one in recorded if one.name in now and _lowered(one.limits, now[one.name].limits)]
    if lowered:
        await store.charge_all(spec.run, [_spent_hold(account, spent) for account in lowered])
    holds += [_spent_hold(account, spent) for account in recorded if account.name not in now]
    if holds:
        await store.charge_all(spec.run, holds)


def accounts_now(
    recorded: Sequence[SharedAccount], configured: Sequence[SharedAccount], spent: Mapping[str, Decimal]
) -> tuple[SharedAccount, ...]:
    """The accounts that a resumed run draws on from now on. Pure.

    A run stays in its project, with the limits that are configured now if that is the configured project. It draws on
    the account of the day on which it goes on, and only with what it still spends.

    Args:
        recorded: The accounts that it drew on so far.
        configured: Those that a new run would draw on now.
        spent: What the run has spent so far, by dimension.
    """
    ready = {account.name: account for account in configured}
    kept = [
        replace(account, limits=ready[account.name].limits) if account.name in ready else account
        for account in recorded
        if account.name in ready or _kind(account) != "day"
    ]
    taken = {account.name for account in kept}
    in_project = any(_kind(account) == "project" for account in kept)
    joined = [
        replace(account, before=dict(spent))
        for account in configured
        if account.name not in taken and not (in_project and _kind(account) == "project")
    ]
    return (*kept, *joined)


async def lower_shared(
    store: Store, spec: RunSpec, bill: Bill, taken: Mapping[str, Decimal], overruns: Sequence[CallOverrun]
) -> None:
    """Hold less, after a limit was lowered; no less than what the run has used and has in flight. Never refused.

    Raises:
        JournalError: The store can't be written.
    """
    holds = [Hold(hold.account, hold.amount) for hold in worst_holds(spec, bill, taken, overruns)]
    if holds:
        await store.charge_all(spec.run, holds)


async def settle_shared(store: Store, spec: RunSpec, spend: Spend) -> None:
    """Hold what the run has spent, in the place of its worst case.

    Raises:
        JournalError: The store can't be written.
    """
    if spec.shared:
        await store.charge_all(spec.run, [_spent_hold(account, figures(spend)) for account in spec.shared])


def worst_holds(
    spec: RunSpec, bill: Bill, spent: Mapping[str, Decimal] | None = None, overruns: Sequence[CallOverrun] = ()
) -> list[Hold]:
    """What a run may come to, in each account that it shares. Pure.

    That is the smaller of its own limit and its bill; what calls used beyond the bill counts beyond it, and what it had
    spent before it joined an account does not count there.

    Raises:
        InputError: An account limits a dimension in which this run has no worst case.
    """
    amount: dict[str, Decimal] = {}
    for dimension in DIMENSIONS:
        bounds = [getattr(spec.budget, dimension)]
        billed = getattr(bill, dimension) if bill.lines else None
        if billed is not None:
            bounds.append(billed + sum((one.by for one in overruns if one.dimension == dimension), Decimal(0)))
        known = [Decimal(bound) for bound in bounds if bound is not None]
        if not known:
            _refuse_unbounded(spec, dimension)
        amount[dimension] = max(min(known, default=Decimal(0)), (spent or {}).get(dimension, Decimal(0)))
    return [Hold(account.name, _since(account, amount), _limits(account.limits)) for account in spec.shared]


def _since(account: SharedAccount, amount: Mapping[str, Decimal]) -> dict[str, str]:
    """The part of an amount that came after the run joined the account."""
    zero = Decimal(0)
    return {name: str(max(zero, number - account.before.get(name, zero))) for name, number in amount.items()}


def _spent_hold(account: SharedAccount, spent: Mapping[str, Decimal]) -> Hold:
    return Hold(account.name, _since(account, spent))


def spent_of_account(account: str, run: Recovery) -> dict[str, Decimal]:
    """What a run has spent of an account that it draws on, or drew on last, by dimension. Pure.

    Args:
        account: The account's name.
        run: The run as its journal tells it.
    """
    drawn = run.created["spec"].get("shared", ()) if run.accounts is None else run.accounts
    spent = figures(run.spent.spend(run.elapsed))
    for one in (from_json(SharedAccount, given) for given in drawn):
        if one.name == account:
            return {name: Decimal(number) for name, number in _since(one, spent).items()}
    return spent  # it left the account when it was resumed, and is charged there for what it had spent by then


def _kind(account: SharedAccount) -> str:
    return account.name.partition(":")[0]


def _lowered(before: Budget, now: Budget) -> bool:
    pairs = [(getattr(before, dimension), getattr(now, dimension)) for dimension in DIMENSIONS]
    return any(new is not None and (old is None or new < old) for old, new in pairs)


def figures(spend: Spend) -> dict[str, Decimal]:
    """What was spent, by dimension of a shared account; money is left out where it is unknown."""
    found = {"calls": Decimal(spend.calls), "tokens": Decimal(spend.tokens_in + spend.tokens_out)}
    return found if spend.usd is None else {**found, "usd": spend.usd}


def _refuse_unbounded(spec: RunSpec, dimension: str) -> None:
    for account in spec.shared:
        if getattr(account.limits, dimension) is not None:
            raise InputError(
                f"The account {account.name} limits {dimension}, and this run has no worst case in it",
                advice=f"Give the run a limit of its own: --{dimension}.",
            )


def _limits(limits: Budget) -> dict[str, str]:
    return {dimension: str(value) for dimension in DIMENSIONS if (value := getattr(limits, dimension)) is not None}
