"""Plans and bills as text. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from rich.console import RenderableType

from romanesco._codec import to_json
from romanesco.interfaces.cli._costs import LineCost
from romanesco.interfaces.cli._grid import Grid, Labelled
from romanesco.interfaces.cli._screen import plain
from romanesco.interfaces.cli._text import UNKNOWN, count, money, rounded_up, seconds
from romanesco.runtime import RunSpec
from romanesco.task import Bill, BillLine, Budget, Plan

POOLS = "repair", "retry"
"""Lines of a bill that are spent only where something goes wrong."""


def bill_table(bill: Bill) -> RenderableType:
    """The bill line by line, and its total."""
    if not bill.lines:
        return plain("No bill: this topology makes none, so only your limits bind.")
    numbers = ("calls", "tokens in", "tokens out", "tokens", "usd")
    table = Grid("at most", *numbers, right=numbers)
    for line in bill.lines:
        both, usd = f"{line.tokens_in + line.tokens_out:,}", _price(_most(line.usd))
        table.add_row(line.purpose, f"{line.calls:,}", f"{line.tokens_in:,}", f"{line.tokens_out:,}", both, usd)
    usd = _price(most_usd(bill.lines))
    total = (f"{bill.calls:,}", f"{bill.tokens_in:,}", f"{bill.tokens_out:,}", f"{bill.tokens:,}", usd)
    table.add_section()
    table.add_row("total", *total, style="bold")
    return table


def most_usd(lines: Sequence[BillLine]) -> Decimal | None:
    """Money at most, to be shown: not below the sum of the lines as they are shown; None if a price is unknown."""
    shown = [None if line.usd is None else rounded_up(line.usd) for line in lines]
    known = [usd for usd in shown if usd is not None]
    return rounded_up(sum(known, Decimal(0))) if len(known) == len(shown) else None


def without_text(bill: Bill) -> str:
    """How much of a bill is the plan's own calls; "" for a bill without pools for repairs and retries.

    Most runs come to about this much; the pools make the worst case large.
    """
    own = [line for line in bill.lines if line.purpose not in POOLS]
    if not own or len(own) == len(bill.lines):
        return ""
    calls, tokens = sum(line.calls for line in own), sum(line.tokens_in + line.tokens_out for line in own)
    usd = most_usd(own)
    price = "price unknown" if usd is None else money(usd)
    return f"Without repairs and retries: {count(calls, 'call')}, {count(tokens, 'token')}, {price}."


def limits_text(budget: Budget) -> str:
    """The user's limits in words, time apart; "" for none."""
    told = [
        None if budget.tokens is None else count(budget.tokens, "token"),
        None if budget.tokens_in is None else f"{count(budget.tokens_in, 'token')} in",
        None if budget.tokens_out is None else f"{count(budget.tokens_out, 'token')} out",
        None if budget.usd is None else money(budget.usd),
        None if budget.calls is None else count(budget.calls, "call"),
        None if budget.nodes is None else count(budget.nodes, "node"),
    ]
    return ", ".join(part for part in told if part)


def other_limits(spec: RunSpec) -> str:
    """The limits beside the run's own in words: accounts shared with other runs, and roles; "" for none."""
    told = [f"{account.name} {limits_text(account.limits)}" for account in spec.shared if limits_text(account.limits)]
    told += [f"role {role} {limits_text(limits)}" for role, limits in spec.role_limits.items()]
    return "; ".join(told)


def fits_text(plan: Plan, budget: Budget, others: str = "") -> str:
    """Whether the bill is inside the limits. Time has no worst case: it is only watched."""
    told = _own_limits(plan, budget)
    return f"{told} Limits beside the run's own: {others}." if others else told


def _own_limits(plan: Plan, budget: Budget) -> str:
    limits = limits_text(budget)
    time = "" if budget.seconds is None else f" Time at most: {seconds(budget.seconds)}."
    if not limits:
        unlimited = (
            "The run has no limit of its own: the bill is what binds."
            if plan.bill.lines
            else "The run has no limit of its own."
        )
        return (time or unlimited).strip()
    if not plan.bill.lines:
        return f"Limits: {limits}.{time}"
    if plan.fits:
        return f"The bill fits the limits: {limits}.{time}"
    return f"The bill does NOT fit the limits ({limits}): the run may end with a labelled partial answer.{time}"


def models_text(models: dict[str, str]) -> str:
    """Models by role on one line."""
    others = [f"{role} {name}" for role, name in models.items() if role != "default"]
    return ", ".join([models["default"], *others])


def plan_parts(plan: Plan, budget: Budget, models: dict[str, str], others: str = "") -> list[RenderableType]:
    """A plan: topology, models, reasons, bill, and whether it fits."""
    parts: list[RenderableType] = [plain((plan.topology, "bold"), f" on {models_text(models)}")]
    parts.extend(Labelled("  ", reason) for reason in plan.reasons)
    parts.append(plain(""))
    parts.append(bill_table(plan.bill))
    if without := without_text(plan.bill):
        parts.append(plain(without))
    parts.append(plain((fits_text(plan, budget, others), "bold" if plan.fits else "bold yellow")))
    return parts


def plan_data(plan: Plan, budget: Budget, models: dict[str, str]) -> dict[str, Any]:
    """A plan as one JSON document."""
    bill = plan.bill
    total = {
        "calls": bill.calls,
        "tokens_in": bill.tokens_in,
        "tokens_out": bill.tokens_out,
        "tokens": bill.tokens,
        "usd": None if bill.usd is None else str(bill.usd),
    }
    data = to_json(plan)
    return {
        **data,
        "bill": {**data["bill"], "total": total},
        "models": models,
        "budget": to_json(budget),
        "known_bill": bool(bill.lines),
    }


def cost_table(lines: Sequence[LineCost]) -> RenderableType:
    """What each line of the bill came to, of what at most."""
    numbers = ("calls", "tokens in", "tokens out", "usd")
    table = Grid("line", *numbers, "", right=numbers)
    for line in lines:
        table.add_row(line.purpose, *_cells(line), "estimated in part" if line.estimated else "")
    table.add_section()
    bounds = tuple(line.most for line in lines if line.most)
    known = None if any(line.most is None for line in lines) else Bill(bounds)
    calls, tokens_in, tokens_out = (
        sum(getattr(line, name) for line in lines) for name in ("calls", "tokens_in", "tokens_out")
    )
    prices = [line.usd for line in lines]
    usd = None if None in prices else sum((price for price in prices if price is not None), Decimal(0))
    table.add_row(
        "total",
        _of(calls, known.calls if known else None),
        _of(tokens_in, known.tokens_in if known else None),
        _of(tokens_out, known.tokens_out if known else None),
        _price_of(usd, most_usd(bounds) if known else None),
        "",
        style="bold",
    )
    return table


def _cells(line: LineCost) -> tuple[str, str, str, str]:
    most = line.most
    return (
        _of(line.calls, most.calls if most else None),
        _of(line.tokens_in, most.tokens_in if most else None),
        _of(line.tokens_out, most.tokens_out if most else None),
        _price_of(line.usd, _most(most.usd) if most else None),
    )


def _of(value: int, most: int | None) -> str:
    return f"{value:,}" if most is None else f"{value:,} of {most:,}"


def _price(usd: Decimal | None) -> str:
    return UNKNOWN if usd is None else money(usd)


def _most(usd: Decimal | None) -> Decimal | None:
    return None if usd is None else rounded_up(usd)


def _price_of(usd: Decimal | None, most: Decimal | None) -> str:
    return _price(usd) if usd is None or most is None else f"{money(usd)} of {money(most)}"
