"""The list of runs and what verification found, as text and as data. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import RenderableType

from romanesco._codec import to_json
from romanesco.interfaces.cli._bill import make_table
from romanesco.interfaces.cli._read import Listed
from romanesco.interfaces.cli._screen import plain
from romanesco.interfaces.cli._text import UNKNOWN, clean, count, money, one_line
from romanesco.journal import Verdict, Verification

_STATUS = {"completed": "green", "running": "cyan", "partial": "yellow", "interrupted": "bold yellow"}
_VERDICT = {Verdict.HELD: "green", Verdict.VIOLATED: "bold red", Verdict.NOT_APPLICABLE: "dim"}
_GOAL = 120


def listing(runs: Sequence[Listed]) -> list[RenderableType]:
    """The list of runs."""
    if not runs:
        return []
    rows = [_row(one) for one in runs]
    table = make_table("run", "status", "topology", "calls", "tokens", "usd", "goal", right=("calls", "tokens", "usd"))
    for column, cells in zip(table.columns[:-1], zip(*rows, strict=True), strict=False):
        width = max(map(len, (str(column.header), *cells)))
        column.no_wrap, column.min_width = True, width  # only the goal gives way
    table.columns[-1].no_wrap, table.columns[-1].overflow = True, "ellipsis"
    for one, cells in zip(runs, rows, strict=True):
        style = _STATUS.get(one.status, "red")
        table.add_row(cells[0], plain((cells[1], style)), *cells[2:6], plain(cells[6]))
    return [table]


def _row(one: Listed) -> tuple[str, ...]:
    spend = one.spend
    return (
        one.run,
        one.status if one.reason in ("", one.status, "completed") else f"{one.status} ({one.reason})",
        one.topology,
        f"{spend.calls:,}",
        f"{spend.tokens_in + spend.tokens_out:,}",
        UNKNOWN if spend.usd is None else money(spend.usd),
        one_line(one.goal, _GOAL),
    )


def listing_data(runs: Sequence[Listed]) -> list[dict[str, Any]]:
    """The list of runs as data."""
    return [to_json(one) for one in runs]


def verification(found: Verification, certificate: Path | None) -> list[RenderableType]:
    """What verification found."""
    table = make_table("property", "verdict", "detail")
    table.columns[0].no_wrap = table.columns[1].no_wrap = True
    for one in found.findings:
        table.add_row(one.property, plain((one.verdict.value, _VERDICT[one.verdict])), clean(one.detail))
    totals = found.totals
    rest = [money(totals.usd)]
    if totals.estimated:
        rest.append("estimated in part")
    if totals.unknown:
        rest.append(f"{count(totals.unknown, 'call')} of unknown cost counted at what was reserved")
    violated = sum(one.verdict is Verdict.VIOLATED for one in found.findings)
    verdict = (
        plain((f"VIOLATED: {count(violated, 'property', 'properties')}", "bold red"))
        if violated
        else plain(("All properties hold.", "bold green"))
    )
    tokens = f"{totals.tokens_in:,} tokens in, {totals.tokens_out:,} out"
    parts: list[RenderableType] = [
        table,
        plain(("totals  ", "dim"), f"{count(totals.calls, 'call')}, {tokens}, {', '.join(rest)}"),
        plain(("head    ", "dim"), f"{found.head or 'none'} (event {found.seq})"),
    ]
    if certificate is not None:
        parts.append(plain(("cert    ", "dim"), str(certificate)))
    return [*parts, verdict]


def verification_data(found: Verification, certificate: Path | None) -> dict[str, Any]:
    """What verification found, as data."""
    return {**to_json(found), "ok": found.ok, "certificate": None if certificate is None else str(certificate)}
