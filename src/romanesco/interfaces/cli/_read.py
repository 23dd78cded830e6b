"""Reads runs from the journal for the screens."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from romanesco._codec import from_json, to_json
from romanesco._config import load_config
from romanesco._prepare import LAST
from romanesco.errors import InputError, JournalCorrupt, RomanescoError, UnknownName
from romanesco.interfaces.cli._costs import LineCost, line_costs
from romanesco.interfaces.cli._ending import Refusal, cut_by, refusal_of, way_on
from romanesco.journal import RunHead, SQLiteStore, Store
from romanesco.journal._sqlite import require_journal
from romanesco.runtime import FoldedEvent, Recovery, RunSpec, read_events, recover, spec_and_plan
from romanesco.runtime._spec import with_changes
from romanesco.task import Deliberation, Outcome, Plan

INTERRUPTED = "interrupted"
RUNNING = "running"


@asynccontextmanager
async def open_store(*, read_only: bool = True) -> AsyncIterator[SQLiteStore]:
    """The configured journal, closed afterwards. It must exist, and may lie where it can only be read.

    Raises:
        UnknownName: There is none.
        JournalError: It can't be read, or not written if it is to be.
    """
    config = load_config()
    path = config.home() / "journal.db"
    require_journal(path)
    store = SQLiteStore(path, synchronous=config["synchronous"], read_only=read_only)
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
    if name == LAST and known:
        return known[0]
    found = [run for run in known if run.startswith(name)] if name else []
    if len(found) > 1:
        shown = ", ".join(found[:5]) + (", ..." if len(found) > 5 else "")
        raise InputError(f"{len(found)} runs start with {name}", limit=shown, advice="Give more of the id.")
    if not found:
        raise UnknownName("No such run", value=name or "nothing", advice="'romanesco runs' lists them.")
    return found[0]


@dataclass(frozen=True, slots=True)
class Record:
    """All that a journal says about one run.

    Attributes:
        head: Its place in the store.
        status: A ``Status``, ``running`` or ``interrupted``.
        state: The fold of its events.
        spec: What was asked, with the limits that hold now.
        plan: The plan with its bill.
        outcome: The outcome; for a run without one, the best answer so far, with an empty note.
        ended: Whether the outcome is final.
        lines: Costs by line of the bill.
        in_flight: Calls that a living process has out; the spend holds them at their worst case.
        refusal: The limit that cut the run short, None if none did.
    """

    head: RunHead
    status: str
    state: Recovery
    spec: RunSpec
    plan: Plan
    outcome: Outcome
    ended: bool
    lines: tuple[LineCost, ...]
    in_flight: int
    refusal: Refusal | None

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
    spec = with_changes(spec, state.budget)
    in_flight = state.clockwork.out if owned and state.ended is None else 0
    if state.ended is not None:
        status = str(state.ended["status"])
        outcome = replace(from_json(Outcome, state.ended["outcome"]), head=head.hash)
    else:
        status = RUNNING if owned else INTERRUPTED
        outcome = _so_far(head, state, spec, plan, in_flight)
    refusals = [one for _, kind, _, _, data in events if (one := refusal_of(kind, data)) is not None]
    return Record(
        head,
        status,
        state,
        spec,
        plan,
        outcome,
        state.ended is not None,
        line_costs(plan.bill, state.attempts),
        in_flight,
        cut_by(outcome, refusals) if state.ended is not None else None,
    )


def _so_far(head: RunHead, state: Recovery, spec: RunSpec, plan: Plan, in_flight: int) -> Outcome:
    """What there is of a run that has not ended: its last offer."""
    from romanesco.errors import StopReason
    from romanesco.task import Status

    offer = state.offers.get("/", {})
    told = offer.get("deliberation")
    spend = state.spent.spend(state.elapsed)
    return Outcome(
        Status.PARTIAL,
        StopReason.INTERRUPTED,
        answer=offer.get("answer", ""),
        note=offer.get("note", ""),
        deliberation=None if told is None else from_json(Deliberation, told),
        run=head.run,
        topology=spec.topology,
        spend=replace(spend, in_doubt=spend.in_doubt - in_flight),
        times=state.clockwork.times(),
        bill=plan.bill,
        budget=spec.budget,
        head=head.hash,
        models=dict(spec.models),
        overruns=tuple(state.overruns),
    )


def record_data(record: Record) -> dict[str, Any]:
    """A record as one JSON document."""
    way = None if record.status == RUNNING else way_on(record.outcome, record.refusal)
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
        "in_flight": record.in_flight,
        "cut_by": None if record.refusal is None else to_json(record.refusal),
        "go_on": "" if way is None else way.command,
        "lines": [to_json(line) for line in record.lines],
        "times": to_json(record.outcome.times),
        "questions": record.questions,
        "guards": record.state.created.get("guards", {}),
    }
