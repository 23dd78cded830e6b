"""What accounts shared by runs have used, hold and have left: those that a new run would draw on now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from rich.console import RenderableType

from romanesco.errors import JournalError
from romanesco.interfaces.cli._grid import Grid, Labelled
from romanesco.interfaces.cli._text import money
from romanesco.journal import SQLiteStore
from romanesco.journal._sqlite import holdings
from romanesco.runtime import SharedAccount, read_events, recover, spent_of_account

ENDED = "run.ended"
DIMENSIONS = ("calls", "tokens", "usd")
_ZERO = Decimal(0)

Holdings = Mapping[str, Mapping[str, Decimal]]
"""Amounts by dimension, by run."""


@dataclass(frozen=True, slots=True)
class Standing:
    """One dimension of an account.

    Attributes:
        account: ``project:web`` or ``day:2026-11-30``.
        dimension: ``calls``, ``tokens`` or ``usd``.
        used: What runs have spent; a call in flight or in doubt counts at its worst case.
        held: What runs that have not ended may still come to.
        limit: The limit that is configured now, None for none.
        left: What a new run could take, None without a limit.
    """

    account: str
    dimension: str
    used: Decimal
    held: Decimal
    limit: Decimal | None
    left: Decimal | None


@dataclass(frozen=True, slots=True)
class Holder:
    """A run that has not ended and holds something; one whose process is dead holds it until somebody acts."""

    account: str
    run: str
    alive: bool


async def standings(store: SQLiteStore, accounts: Iterable[SharedAccount]) -> tuple[list[Standing], list[Holder]]:
    """How accounts stand, and the runs that hold something of them."""
    going = {head.run for head in await store.runs() if head.kind != ENDED}
    found: list[Standing] = []
    holders: list[Holder] = []
    for account in accounts:
        charged = await holdings(store, account.name)
        spent = {run: await _spent(store, account, run) if run in going else held for run, held in charged.items()}
        found += stand(account, charged, spent)
        holders += [Holder(account.name, run, store.owned(run)) for run in charged if run in going]
    return found, holders


async def _spent(store: SQLiteStore, account: SharedAccount, run: str) -> Mapping[str, Decimal]:
    """What a run that has not ended has spent of an account; nothing where that can't be read: all of it is held."""
    try:
        return spent_of_account(account.name, recover(await read_events(store, run)))
    except (JournalError, KeyError, TypeError, ValueError, IndexError):
        return {}


def stand(account: SharedAccount, charged: Holdings, spent: Holdings) -> list[Standing]:
    """How an account stands in each dimension that is limited or drawn on. Pure.

    Args:
        account: The account, with the limits that are configured now.
        charged: What the runs are charged for.
        spent: What of it they have spent.
    """
    found = []
    for dimension in DIMENSIONS:
        total = sum((amounts.get(dimension, _ZERO) for amounts in charged.values()), _ZERO)
        used = sum(
            (min(amounts.get(dimension, _ZERO), spent[run].get(dimension, _ZERO)) for run, amounts in charged.items()),
            _ZERO,
        )
        given = getattr(account.limits, dimension)
        if given is None and not total:
            continue
        limit = None if given is None else Decimal(given)
        left = None if limit is None else max(_ZERO, limit - total)
        found.append(Standing(account.name, dimension, used, total - used, limit, left))
    return found


def accounts_data(found: Iterable[Standing], holders: Iterable[Holder]) -> dict[str, Any]:
    """How accounts stand, as data; dollars are text."""
    rows = [
        {
            "account": one.account,
            "dimension": one.dimension,
            **{name: _plain(one, getattr(one, name)) for name in ("used", "held", "limit", "left")},
        }
        for one in found
    ]
    return {
        "accounts": rows,
        "holders": [{"account": one.account, "run": one.run, "alive": one.alive} for one in holders],
    }


def accounts_table(found: list[Standing], holders: Iterable[Holder]) -> list[RenderableType]:
    """How accounts stand, as text."""
    if not found:
        return []
    numbers = ("used", "held", "limit", "left")
    table = Grid("account", "of", *numbers, right=numbers, whole=("of",))
    for one in found:
        table.add_row(one.account, one.dimension, *(_shown(one, getattr(one, name)) for name in numbers))
    dead = sorted({one.run for one in holders if not one.alive})
    told = "An interrupted run holds its share until it is resumed or ended: "
    return [table, *(Labelled(told, f"romanesco stop {run} --abandon", style="", whole=True) for run in dead)]


def _shown(one: Standing, amount: Decimal | None) -> str:
    if amount is None:
        return "no limit"
    return money(amount) if one.dimension == "usd" else f"{int(amount):,}"


def _plain(one: Standing, amount: Decimal | None) -> int | str | None:
    if amount is None:
        return None
    return f"{amount:f}" if one.dimension == "usd" else int(amount)
