"""The list of runs and what verification found, as text and as data. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import RenderableType

from romanesco._codec import to_json
from romanesco.interfaces.cli._grid import Grid, Labelled
from romanesco.interfaces.cli._list import Listed
from romanesco.interfaces.cli._read import INTERRUPTED
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
    table = Grid(
        *("run", "status", "topology", "calls", "tokens", "usd", "goal"),
        right=("calls", "tokens", "usd"),
        whole=("status", "topology"),
        spare=("usd", "topology", "calls", "tokens"),
        cut=("goal",),
    )
    for one in runs:
        spend = one.spend
        table.add_row(
            one.run,
            plain((_status(one), _STATUS.get(one.status, "red"))),
            one.topology,
            f"{spend.calls:,}",
            f"{spend.tokens_in + spend.tokens_out:,}",
            UNKNOWN if spend.usd is None else money(spend.usd),
            one_line(one.goal, _GOAL),
        )
    return [table]


def _status(one: Listed) -> str:
    """The status, and what is not settled: calls that are out, or that nobody waits for any more."""
    if one.in_flight:
        return f"{one.status} ({one.in_flight:,} in flight)"
    if one.status == INTERRUPTED and one.spend.in_doubt:
        return f"{one.status} ({one.spend.in_doubt:,} in doubt)"
    return one.status if one.reason in ("", one.status, "completed") else f"{one.status} ({one.reason})"


def listing_advice(runs: Sequence[Listed]) -> RenderableType | None:
    """How to go on with what was interrupted; None if nothing was."""
    dead = [one.run for one in runs if one.status == INTERRUPTED and not one.reason]
    if not dead:
        return None
    if len(dead) == 1:
        return Labelled("Interrupted; go on: ", f"romanesco resume {dead[0]}", style="", whole=True)
    told = f"{len(dead):,} runs were interrupted; go on with one of them, for example the newest: "
    return Labelled(told, f"romanesco resume {dead[0]}", style="", whole=True)


def listing_data(runs: Sequence[Listed]) -> list[dict[str, Any]]:
    """The list of runs as data."""
    return [to_json(one) for one in runs]


def verification(found: Verification, certificate: Path | None) -> list[RenderableType]:
    """What verification found."""
    table = Grid("property", "verdict", "detail", whole=("verdict",))
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
        Labelled("totals  ", f"{count(totals.calls, 'call')}, {tokens}, {', '.join(rest)}"),
        Labelled("event   ", f"{found.seq:,} is the last one"),
        Labelled("head    ", found.head or "none", whole=True),
    ]
    if certificate is not None:
        parts.append(Labelled("cert    ", str(certificate), whole=True))
    return [*parts, verdict]


def verification_data(found: Verification, certificate: Path | None) -> dict[str, Any]:
    """What verification found, as data."""
    return {**to_json(found), "ok": found.ok, "certificate": None if certificate is None else str(certificate)}
