"""What a run's calls cost by line of its bill. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from romanesco.runtime import Attempted
from romanesco.task import Bill, BillLine


@dataclass(frozen=True, slots=True)
class LineCost:
    """One line of the bill: at most so much, and what it came to.

    Attributes:
        purpose: The line.
        most: The worst case, or None for a plan without a bill.
        calls: Calls made.
        tokens_in: Tokens read.
        tokens_out: Tokens generated.
        usd: Money, or None if a price is unknown.
        estimated: Whether some of it are upper bounds.
    """

    purpose: str
    most: BillLine | None
    calls: int
    tokens_in: int
    tokens_out: int
    usd: Decimal | None
    estimated: bool


@dataclass(slots=True)
class _Sum:
    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    usd: Decimal | None = Decimal(0)
    estimated: bool = False


def line_costs(bill: Bill, attempts: Iterable[Attempted]) -> tuple[LineCost, ...]:
    """Costs by line, in the bill's order; lines that the bill does not name come last."""
    sums: dict[str, _Sum] = {line.purpose: _Sum() for line in bill.lines}
    for attempt in attempts:
        spent = attempt.spent
        sum_ = sums.setdefault(attempt.line, _Sum())
        sum_.tokens_in += spent.tokens_in
        sum_.tokens_out += spent.tokens_out
        sum_.usd = None if sum_.usd is None or not spent.priced else sum_.usd + spent.usd
        sum_.estimated = sum_.estimated or spent.estimated
        sums.setdefault(attempt.call_line, _Sum()).calls += spent.calls
    most = {line.purpose: line for line in bill.lines}
    return tuple(
        LineCost(purpose, most.get(purpose), one.calls, one.tokens_in, one.tokens_out, one.usd, one.estimated)
        for purpose, one in sums.items()
    )
