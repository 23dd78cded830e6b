"""The arithmetic of accounts shared by runs, exact and without I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Context, Decimal, Inexact, InvalidOperation

from romanesco.errors import BudgetExceeded, InputError

_EXACT = Context(prec=100, traps=[Inexact, InvalidOperation])
ZERO = Decimal(0)


@dataclass(frozen=True, slots=True)
class Charge:
    """What a run holds of an account after a charge, and what all runs hold of it, by dimension.

    Both name only the dimensions that the charge touches; zero means that nothing is held.
    """

    held: dict[str, Decimal]
    totals: dict[str, Decimal]


def parse(amount: Mapping[str, str], account: str) -> dict[str, Decimal]:
    """Decimal numbers from text.

    Raises:
        InputError: One is not a finite decimal number, negative, or longer than 60 digits.
    """
    parsed: dict[str, Decimal] = {}
    for dimension, text in amount.items():
        try:
            number = Decimal(text)
        except (InvalidOperation, TypeError, ValueError):
            number = Decimal("NaN")
        if not number.is_finite() or number < 0 or len(format(number, "f")) > 60:
            raise InputError(
                f"An amount of {dimension} for the account {account} is not usable",
                value=str(text)[:80],
                limit="a decimal number, 0 or more, of at most 60 digits",
                advice="Give a plain number such as 0.25.",
            )
        parsed[dimension] = number
    return parsed


def check_charge(
    account: str, run: str, amount: Mapping[str, str], totals: Mapping[str, str], limit: Mapping[str, str]
) -> None:
    """Refuse what an account could not carry as it stands, for a run that holds nothing of it. Nothing is changed.

    Raises:
        BudgetExceeded: A dimension would pass its limit.
        InputError: See ``parse``.
    """
    wanted, all_runs, limits = parse(amount, account), parse(totals, account), parse(limit, account)
    charge(account=account, run=run, amount=wanted, held={}, totals=all_runs, limit=limits)


def add(left: Decimal, right: Decimal) -> Decimal:
    """The exact sum, or difference if one is negative."""
    return _EXACT.add(left, right)


def plain(number: Decimal) -> str:
    """A decimal number as text without an exponent and without zeros at its end."""
    return format(number.normalize(_EXACT), "f")


def charge(
    *,
    account: str,
    run: str,
    amount: Mapping[str, Decimal],
    held: Mapping[str, Decimal],
    totals: Mapping[str, Decimal],
    limit: Mapping[str, Decimal],
) -> Charge:
    """Replace what a run holds of an account.

    Args:
        account: The account's name.
        run: The run.
        amount: What it is to hold.
        held: What it holds now.
        totals: What all runs hold now, this one included.
        limit: Limits by dimension.

    Raises:
        BudgetExceeded: A dimension that grows would pass its limit.
    """
    new_held: dict[str, Decimal] = {}
    new_totals: dict[str, Decimal] = {}
    for dimension in sorted({*amount, *held}):
        before, after = held.get(dimension, ZERO), amount.get(dimension, ZERO)
        total = add(totals.get(dimension, ZERO), add(after, -before))
        if after > before and dimension in limit and total > limit[dimension]:
            raise BudgetExceeded(
                f"The account {account} can't carry run {run}: all runs would hold {plain(total)} {dimension}",
                account=account,
                dimension=dimension,
                value=plain(total),
                limit=plain(limit[dimension]),
                advice="Raise the account's limit, give this run less, or wait until another run has ended.",
            )
        new_held[dimension] = after
        new_totals[dimension] = total
    return Charge(new_held, new_totals)
