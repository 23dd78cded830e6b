"""What must be true of every run, whatever happened to it."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

from romanesco import Config, Outcome
from romanesco.journal import SQLiteStore, Verification, verify
from romanesco.runtime import FoldedEvent
from romanesco.testing import Ledger
from tests.support import events_of


async def verified(config: Config, run: str = "r") -> Verification:
    """The run's journal as the independent check sees it; no property may be violated."""
    store = SQLiteStore(config.home() / "journal.db")
    try:
        found = await verify(store, run)
    finally:
        await store.close()
    assert found.ok, [finding for finding in found.findings if finding.verdict == "violated"]
    return found


def kinds(events: list[FoldedEvent], *wanted: str) -> list[FoldedEvent]:
    """The events of these kinds."""
    return [event for event in events if event[1] in wanted]


def finished_keys(events: list[FoldedEvent]) -> set[tuple[str, str]]:
    """Steps whose call is finished: node and key."""
    return {(node, key) for _, kind, node, key, _ in events if kind == "call.finished"}


def open_keys(events: list[FoldedEvent]) -> set[tuple[str, str]]:
    """Steps of which an attempt was started and has no end."""
    opened: Counter[tuple[str, str]] = Counter()
    for _, kind, node, key, _ in events:
        if kind == "call.started":
            opened[node, key] += 1
        elif kind in ("call.finished", "call.failed"):
            opened[node, key] -= 1
    return {step for step, count in opened.items() if count}


def prompt_of(data: dict[str, Any]) -> str:
    """The text that an attempt sent."""
    return "\n".join(message["content"] for message in data["request"]["messages"])


async def check_run(
    config: Config, outcome: Outcome, ledger: Ledger | None = None, run: str = "r"
) -> list[FoldedEvent]:
    """Check a run that has ended: its journal, its end, its totals, and the server's ledger if there is one."""
    found = await verified(config, run)
    events = await events_of(config, run)
    assert events[-1][1] == "run.ended"
    resumed = len(kinds(events, "run.resumed"))
    assert len(kinds(events, "run.ended")) <= resumed + 1
    assert outcome.head == found.head
    spend = outcome.spend
    assert (spend.calls, spend.tokens_in, spend.tokens_out) == (
        found.totals.calls,
        found.totals.tokens_in,
        found.totals.tokens_out,
    )
    if ledger is not None:
        # A call that was cancelled may have been on its way to the server: nobody can know, so it counts.
        cancelled = sum(data["error"] == "interrupted" and data["sent"] for *_, data in kinds(events, "call.failed"))
        assert spend.calls - spend.in_doubt - cancelled <= len(ledger.requests) <= spend.calls
        assert spend.tokens_in >= ledger.tokens_in and spend.tokens_out >= ledger.tokens_out
    return events


def at_rest(session: Any) -> None:
    """Nothing is reserved, waiting, in flight or asked any more in a run that has ended."""
    run = session._run
    for name, account in run.ledger.snapshot().items():
        assert not any(Decimal(str(value)) for value in account["reserved"].values()), name
    assert run.ledger.waiting == 0
    for limiter in run.limiters.by_endpoint.values():
        assert limiter.in_flight == 0 and not limiter._waiting
    assert not run.stops._tasks
    assert not run.questions.pending


def nothing_left_behind(before: set[asyncio.Task[Any]]) -> None:
    """No task of a run lives longer than the run."""
    left = {task for task in asyncio.all_tasks() if not task.done()} - before
    assert not left, left


def quiet(tmp_path: Path) -> Path:
    """A folder of its own for a second run of the same test."""
    folder = tmp_path / "other"
    folder.mkdir()
    return folder


def killed_after(config: Config, seq: int) -> None:
    """Leave the journal as a kill would right after that event."""
    with sqlite3.connect(config.home() / "journal.db") as journal:
        journal.execute("DELETE FROM events WHERE seq > ?", (seq,))
    journal.close()
