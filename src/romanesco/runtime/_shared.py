"""Accounts that several runs draw on: a run holds its worst case there while it runs, then what it spent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from romanesco.errors import InputError
from romanesco.journal import Hold, check_charge
from romanesco.task import Bill, Budget, CallOverrun, Spend

if TYPE_CHECKING:
    from romanesco.journal import Store
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
    amount = {dimension: str(number) for dimension, number in figures(spend).items()}
    if spec.shared:
        await store.charge_all(spec.run, [Hold(account.name, amount) for account in spec.shared])


def worst_holds(
    spec: RunSpec, bill: Bill, spent: Mapping[str, Decimal] | None = None, overruns: Sequence[CallOverrun] = ()
) -> list[Hold]:
    """What a run may come to, in each account that it shares. Pure.

    That is the smaller of its own limit and its bill; what calls used beyond the bill counts beyond it.

    Raises:
        InputError: An account limits a dimension in which this run has no worst case.
    """
    amount: dict[str, str] = {}
    for dimension in DIMENSIONS:
        bounds = [getattr(spec.budget, dimension)]
        billed = getattr(bill, dimension) if bill.lines else None
        if billed is not None:
            bounds.append(billed + sum((one.by for one in overruns if one.dimension == dimension), Decimal(0)))
        known = [Decimal(bound) for bound in bounds if bound is not None]
        if not known:
            _refuse_unbounded(spec, dimension)
        amount[dimension] = str(max(min(known, default=Decimal(0)), (spent or {}).get(dimension, Decimal(0))))
    return [Hold(account.name, amount, _limits(account.limits)) for account in spec.shared]


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
