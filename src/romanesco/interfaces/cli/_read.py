"""Reads runs from the journal for the screens."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from romanesco._codec import from_json, to_json
from romanesco._config import load_config
from romanesco.errors import InputError, JournalCorrupt, RomanescoError, UnknownName
from romanesco.interfaces.cli._costs import LineCost, line_costs
from romanesco.journal import RunHead, SQLiteStore, Store, resolve
from romanesco.runtime import FoldedEvent, Recovery, RunSpec, read_events, recover, spec_and_plan
from romanesco.task import Deliberation, Outcome, Plan, Spend

INTERRUPTED = "interrupted"
RUNNING = "running"


@asynccontextmanager
async def open_store() -> AsyncIterator[SQLiteStore]:
    """The configured journal, closed afterwards."""
    config = load_config()
    store = SQLiteStore(config.home() / "journal.db", synchronous=config["synchronous"])
    try:
        yield store
    finally:
        await store.close()


async def find_run(store: Store, name: str) -> str:
    """The id of the run that a name means: an id, the start of one, or ``last``.

    Raises:
        UnknownName: None.
        InputError: More than one.
    """
    known = [head.run for head in await store.runs()]
    if name in known:
        return name
    if name == "last" and known:
        return known[0]
    found = [run for run in known if run.startswith(name)] if name else []
    if len(found) > 1:
        shown = ", ".join(found[:5]) + (", ..." if len(found) > 5 else "")
        raise InputError(f"{len(found)} runs start with {name}", limit=shown, advice="Give more of the id.")
    if not found:
        raise UnknownName("No such run", value=name or "nothing", advice="'romanesco runs' lists them.")
    return found[0]


@dataclass(frozen=True, slots=True)
class Listed:
    """A run in the list of runs."""

    run: str
    status: str
    reason: str
    goal: str
    topology: str
    spend: Spend
    created: float
    updated: float


async def list_runs(store: Store, *, interrupted: bool, limit: int) -> tuple[list[Listed], int]:
    """Runs, newest first, at most ``limit`` (0: all), and how many more there are."""
    listed: list[Listed] = []
    more = 0
    for head in await store.runs():
        ended, status = await _state(store, head)
        if interrupted and status != INTERRUPTED:
            continue
        if limit and len(listed) >= limit:
            more += 1
            continue
        listed.append(await _listed(store, head, ended, status))
    return listed, more


async def _state(store: Store, head: RunHead) -> tuple[dict[str, Any] | None, str]:
    owned = store.owned(head.run)  # before the events: a run that ends in between is seen as ended
    last = await store.read(head.run, head.seq - 1)
    if last and last[-1].kind == "run.ended":
        data = last[-1].data
        return data, str(data.get("status", "ended"))
    return None, RUNNING if owned else INTERRUPTED


async def _listed(store: Store, head: RunHead, ended: dict[str, Any] | None, status: str) -> Listed:
    goal = topology = ""
    spend = Spend()
    try:
        first = await store.read(head.run, 0, 1)
        spec = (await resolve(store, first))[0]["spec"]
        goal, topology = spec["task"]["goal"], spec["topology"]
        if ended is not None:
            spend = from_json(Spend, ended["spend"])
        else:
            state = recover(await read_events(store, head.run))
            spend = state.spent.spend(state.elapsed)
    except (JournalCorrupt, KeyError, IndexError, TypeError, ValueError):
        status = "damaged"  # one damaged run must not hide the others; `verify` says what is wrong with it
    reason = str(ended.get("reason", "")) if ended else ""
    return Listed(head.run, status, reason, goal, topology, spend, head.created, head.updated)


@dataclass(frozen=True, slots=True)
class Record:
    """All that a journal says about one run.

    Attributes:
        head: Its place in the store.
        status: A ``Status``, ``running`` or ``interrupted``.
        state: The fold of its events.
        spec: What was asked.
        plan: The plan with its bill.
        outcome: The outcome; for a run without one, the best answer so far, with an empty note.
        ended: Whether the outcome is final.
        lines: Costs by line of the bill.
    """

    head: RunHead
    status: str
    state: Recovery
    spec: RunSpec
    plan: Plan
    outcome: Outcome
    ended: bool
    lines: tuple[LineCost, ...]

    @property
    def run(self) -> str:
        """The run's id."""
        return self.head.run

    @property
    def deliberation(self) -> Deliberation | None:
        """What the team did, final or so far."""
        return self.outcome.deliberation

    @property
    def questions(self) -> list[dict[str, Any]]:
        """Questions that wait for an answer."""
        return [] if self.ended else [one for one in self.state.questions.values() if "answer" not in one]


async def load_record(store: Store, run: str) -> Record:
    """Read all of a run.

    Raises:
        JournalCorrupt: The journal is damaged.
    """
    owned = store.owned(run)
    head = next(head for head in await store.runs() if head.run == run)
    try:
        return make_record(head, await read_events(store, run), owned=owned)
    except RomanescoError:
        raise
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise JournalCorrupt(
            f"The journal of the run can't be read ({type(error).__name__})",
            value=run,
            advice=f"'romanesco verify {run}' lists the damage.",
        ) from error


def make_record(head: RunHead, events: list[FoldedEvent], *, owned: bool) -> Record:
    """Fold a run's events into what is shown of it. Pure."""
    state = recover(events)
    spec, plan = spec_and_plan(head.run, state)
    if state.ended is not None:
        status = str(state.ended["status"])
        outcome = replace(from_json(Outcome, state.ended["outcome"]), head=head.hash)
    else:
        status = RUNNING if owned else INTERRUPTED
        outcome = _so_far(head, state, spec, plan)
    return Record(
        head,
        status,
        state,
        spec,
        plan,
        outcome,
        state.ended is not None,
        line_costs(plan.bill, state.attempts),
    )


def _so_far(head: RunHead, state: Recovery, spec: RunSpec, plan: Plan) -> Outcome:
    """What there is of a run that has not ended: its last offer."""
    from romanesco.errors import StopReason
    from romanesco.task import Status

    offer = state.offers.get("/", {})
    told = offer.get("deliberation")
    return Outcome(
        Status.PARTIAL,
        StopReason.INTERRUPTED,
        answer=offer.get("answer", ""),
        note=offer.get("note", ""),
        deliberation=None if told is None else from_json(Deliberation, told),
        run=head.run,
        topology=spec.topology,
        spend=state.spent.spend(state.elapsed),
        times=state.clockwork.times(),
        bill=plan.bill,
        head=head.hash,
        models=dict(spec.models),
    )


def record_data(record: Record) -> dict[str, Any]:
    """A record as one JSON document."""
    return {
        "run": record.run,
        "status": record.status,
        "ended": record.ended,
        "goal": record.spec.task.goal,
        "created": record.head.created,
        "updated": record.head.updated,
        "events": record.head.seq,
        "head": record.head.hash,
        "spec": to_json(record.spec),
        "plan": to_json(record.plan),
        "outcome": to_json(record.outcome),
        "spend": to_json(record.outcome.spend),
        "lines": [to_json(line) for line in record.lines],
        "times": to_json(record.outcome.times),
        "questions": record.questions,
        "guards": record.state.created.get("guards", {}),
    }
