"""What the checks of a journal count with: faults, totals, and the amounts that a journal states."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

BIGGEST = 10**18
"""No call reads so many tokens or costs so many dollars; beyond it sums would overflow."""


class Faults:
    """Faults found in one property: how many, and the first."""

    def __init__(self, checked: str) -> None:
        self.checked = checked
        self.count = 0
        self.first = ""
        self.seq: int | None = None

    def add(self, text: str, seq: int | None) -> None:
        """Note a fault."""
        if not self.count:
            self.first, self.seq = text, seq
        self.count += 1


@dataclass(slots=True)
class Totals:
    """What a run spent, as counted from its events.

    Attributes:
        calls: Attempts that were started.
        tokens_in: Tokens read; for attempts of which it is not known, what was reserved.
        tokens_out: Tokens generated; likewise.
        cached: Part of ``tokens_in`` that a server read from its cache.
        reasoning: Part of ``tokens_out`` that was reasoning.
        usd: Money in US dollars, or None if a price is unknown.
        estimated: Whether some of the tokens are upper bounds.
        unknown: Attempts of which the cost is not known and the reserved amount was counted.
    """

    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cached: int = 0
    reasoning: int = 0
    usd: Decimal | None = Decimal(0)
    estimated: bool = False
    unknown: int = 0

    def __add__(self, other: Totals) -> Totals:
        return Totals(
            self.calls + other.calls,
            self.tokens_in + other.tokens_in,
            self.tokens_out + other.tokens_out,
            self.cached + other.cached,
            self.reasoning + other.reasoning,
            None if self.usd is None or other.usd is None else self.usd + other.usd,
            self.estimated or other.estimated,
            self.unknown + other.unknown,
        )


def over(amount: Totals, limit: Totals, where: str = "on the bill", done: str = "spent") -> list[str]:
    """How an amount is more than a limit, in words; empty if it isn't."""
    faults = [
        f"{name} {getattr(amount, name)} {done}, {getattr(limit, name)} {where}"
        for name in ("calls", "tokens_in", "tokens_out")
        if getattr(amount, name) > getattr(limit, name)
    ]
    if limit.usd is not None:
        if amount.usd is None:
            faults.append(f"usd unknown, {limit.usd} {where}")
        elif amount.usd > limit.usd:
            faults.append(f"usd {amount.usd} {done}, {limit.usd} {where}")
    return faults


def read_bill(bill: Any) -> dict[str, Totals] | None:
    """The lines of a bill by purpose; None if it can't be read."""
    return read_lines(bill.get("lines")) if isinstance(bill, dict) else None


def read_lines(given: Any) -> dict[str, Totals] | None:
    """Lines by purpose, as in a bill or in what it came to; None if they can't be read."""
    lines: dict[str, Totals] = {}
    for line in given if isinstance(given, list) else [None]:
        if not isinstance(line, dict) or not isinstance(line.get("purpose"), str) or "usd" not in line:
            return None
        usd = None if line["usd"] is None else read_decimal(line["usd"])
        calls, read, wrote = (read_count(line.get(name)) for name in ("calls", "tokens_in", "tokens_out"))
        if calls is None or read is None or wrote is None or (usd is None and line["usd"] is not None):
            return None
        amount = Totals(calls, read, wrote, usd=usd)
        lines[line["purpose"]] = lines.get(line["purpose"], Totals()) + amount
    return lines


def read_count(value: Any) -> int | None:
    """A number of calls or tokens; None if it is none that can be counted with."""
    return value if type(value) is int and 0 <= value < BIGGEST else None


def read_decimal(value: Any) -> Decimal | None:
    """An amount of money, which a journal keeps as text; None if it is none that can be counted with."""
    try:
        amount = Decimal(value) if isinstance(value, str) else None
    except InvalidOperation:
        return None
    return amount if amount is not None and amount.is_finite() and 0 <= amount < BIGGEST else None
