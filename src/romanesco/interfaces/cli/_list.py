"""Reads the list of runs: of each run no more than the list shows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from romanesco._codec import from_json
from romanesco.errors import JournalCorrupt
from romanesco.interfaces.cli._read import INTERRUPTED, RUNNING
from romanesco.journal import RunHead, Store, resolve
from romanesco.runtime import FoldedEvent, Recovery, recover
from romanesco.task import Spend

ENDED = "run.ended"
DAMAGED = "damaged"
NEVER_PLANNED = "never planned"


@dataclass(frozen=True, slots=True)
class Listed:
    """A run in the list of runs.

    Attributes:
        run: Its id.
        status: A ``Status``, ``running``, ``interrupted`` or ``damaged``.
        reason: Why it ended, "" if it has not; ``never planned`` for one that died before it could begin.
        goal: Its goal.
        topology: Its topology.
        spend: What it has spent.
        in_flight: Calls that a living process has out; ``spend`` holds them at their worst case.
        created: Time of its first event.
        updated: Time of its last event.
    """

    run: str
    status: str
    reason: str
    goal: str
    topology: str
    spend: Spend
    in_flight: int
    created: float
    updated: float


async def list_runs(store: Store, *, interrupted: bool, limit: int) -> tuple[list[Listed], int]:
    """Runs, newest first, at most ``limit`` (0: all), and how many more there are."""
    # A run that ends between the look at the heads and the look at its owner is found to be ended below.
    found: list[RunHead] = []
    for head in await store.runs():
        if not interrupted or (head.kind != ENDED and not store.owned(head.run)):
            found.append(head)
    shown = found[:limit] if limit else found
    listed = [await _listed(store, head) for head in shown]
    if interrupted:
        listed = [one for one in listed if one.status in (INTERRUPTED, DAMAGED)]
    return listed, len(found) - len(shown)


async def _listed(store: Store, head: RunHead) -> Listed:
    goal = topology = reason = ""
    spend, in_flight = Spend(), 0
    owned = store.owned(head.run)  # before the events: a run that ends in between is seen as ended
    status = RUNNING if owned else INTERRUPTED
    try:
        spec = (await resolve(store, await store.read(head.run, 0, 1)))[0]["spec"]
        goal, topology = spec["task"]["goal"], spec["topology"]
        ended = await _end(store, head)
        if ended is not None:
            status, reason = str(ended["status"]), str(ended.get("reason", ""))
            spend = from_json(Spend, ended["spend"])
        else:
            state, in_flight = await _so_far(store, head.run, owned=owned)
            spend = state.spent.spend(state.elapsed)
            spend = replace(spend, in_doubt=spend.in_doubt - in_flight)
            reason = NEVER_PLANNED if state.planned is None and not owned else ""
    except (JournalCorrupt, KeyError, IndexError, TypeError, ValueError):
        status = DAMAGED  # one damaged run must not hide the others; `verify` says what is wrong with it
    return Listed(head.run, status, reason, goal, topology, spend, in_flight, head.created, head.updated)


async def _end(store: Store, head: RunHead) -> dict[str, Any] | None:
    """Data of the run's end, None if it has not ended. Its outcome, which can be large, is not loaded."""
    last = await store.read(head.run, head.seq - 1)
    if not last or last[-1].kind != ENDED:
        return None
    data: dict[str, Any] = last[-1].data
    return data


async def _so_far(store: Store, run: str, *, owned: bool) -> tuple[Recovery, int]:
    """What there is of a run that has not ended, and how many calls are out."""
    # What a call cost stands in the event itself, never in a payload beside it: no payload is loaded.
    events: list[FoldedEvent] = [(e.seq, e.kind, e.node, e.key, e.data) for e in await store.read(run)]
    state = recover(events)
    return state, state.clockwork.out if owned else 0
