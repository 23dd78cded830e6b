"""What is spent of what at most: of the user's limit where there is one, else of the bill. Pure."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from romanesco.interfaces.cli._text import money, seconds
from romanesco.task import Bill, Budget


def spent_parts(calls: int, tokens: int, usd: Decimal | None, bill: Bill | None, budget: Budget) -> tuple[str, ...]:
    """Calls, tokens and money, each against what binds it.

    ``5 of 31 calls`` is measured against the bill. ``5 of 24 calls (limit; bill 31)`` says that the user's own limit
    is what binds, and what the worst case would have been.
    """
    billed = bill if bill is not None and bill.lines else None
    return (
        _part(f"{calls:,}", budget.calls, billed and billed.calls, "{:,}".format, " call" if calls == 1 else " calls"),
        _part(f"{tokens:,}", budget.tokens, billed and billed.tokens, "{:,}".format, " tokens"),
        money(usd) if usd is None else _part(money(usd), budget.usd, billed and billed.usd, money, ""),
    )


def time_part(spent: float, budget: Budget) -> str:
    """Active seconds, of the user's limit if there is one. A bill says nothing of time."""
    return seconds(spent) if budget.seconds is None else f"{seconds(spent)} of {seconds(budget.seconds)}"


def _part(spent: str, limit: Any, billed: Any, show: Callable[[Any], str], noun: str) -> str:
    if limit is None and billed is None:
        return f"{spent}{noun}"
    noun = noun if noun != " call" else " calls"
    if limit is None or (billed is not None and billed <= limit):
        return f"{spent} of {show(billed)}{noun}"
    told = "limit" if billed is None else f"limit; bill {show(billed)}"
    return f"{spent} of {show(limit)}{noun} ({told})"
