"""Accounts that several runs draw on: a run holds its worst case there while it runs, then what it spent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from romanesco.errors import InputError
from romanesco.task import Bill, Budget, Spend

if TYPE_CHECKING:
    from romanesco.journal import Store
    from romanesco.runtime._spec import RunSpec


async def reserve_shared(store: Store, spec: RunSpec, bill: Bill, spent: Spend) -> None:
    """Reserve the run's worst case on the accounts that it shares with other runs: all of them, or none.

    Args:
        store: Keeps the accounts.
        spec: The run.
        bill: Its bill.
        spent: What it has spent so far, which it keeps holding if an account refuses.

    Raises:
        BudgetExceeded: One of them can't carry it.
        InputError: One limits a dimension in which this run has no worst case.
    """
    worst = {"calls": spec.budget.calls, "tokens": spec.budget.tokens, "usd": spec.budget.usd}
    if bill.lines:
        billed = {"calls": bill.calls, "tokens": bill.tokens, "usd": bill.usd}
        worst = {
            dimension: min((x for x in (worst[dimension], billed[dimension]) if x is not None), default=None)
            for dimension in worst
        }
    amount = {dimension: str(value) for dimension, value in worst.items() if value is not None}
    limits = {account.name: _limits(account.limits) for account in spec.shared}
    for name, caps in limits.items():
        for dimension in caps:
            if worst[dimension] is None:
                raise InputError(
                    f"The account {name} limits {dimension}, and this run has no worst case in it",
                    advice=f"Give the run a limit of its own: --{dimension}.",
                )
    try:
        for name, caps in limits.items():
            await store.charge(name, spec.run, amount, caps)
    except BaseException:
        await settle_shared(store, spec, spent)
        raise


def _limits(limits: Budget) -> dict[str, str]:
    return {
        dimension: str(value)
        for dimension in ("calls", "tokens", "usd")
        if (value := getattr(limits, dimension)) is not None
    }


async def settle_shared(store: Store, spec: RunSpec, spend: Spend) -> None:
    """Hold what the run has spent, in the place of its worst case.

    Raises:
        JournalError: The store can't be written.
    """
    amount = {"calls": str(spend.calls), "tokens": str(spend.tokens_in + spend.tokens_out)}
    if spend.usd is not None:
        amount["usd"] = str(spend.usd)
    for account in spec.shared:
        await store.charge(account.name, spec.run, amount, {})
