"""What a journal says about its run: a pure fold over the events, used by resume, replay and every screen."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from romanesco.runtime._clockwork import Clockwork
from romanesco.runtime._memo import Recorded, StepId
from romanesco.runtime._overruns import call_overruns
from romanesco.runtime._refold import memo_from
from romanesco.task import CallOverrun, Spend

FoldedEvent = tuple[int, str, str, str, dict[str, Any]]
"""``(seq, kind, node, key, data)`` of an event, payloads resolved."""


@dataclass(slots=True)
class Spent:
    """What the journal's calls add up to, in flight ones at their worst case."""

    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cached: int = 0
    reasoning: int = 0
    usd: Decimal = Decimal(0)
    priced: bool = True
    estimated: bool = False
    in_doubt: int = 0

    def add(self, usage: dict[str, Any], usd: str | None, *, calls: int) -> None:
        """Count one attempt."""
        self.calls += calls
        self.tokens_in += usage["input"]
        self.tokens_out += usage["output"]
        self.cached += usage.get("cached", 0)
        self.reasoning += usage.get("reasoning", 0)
        self.estimated = self.estimated or usage.get("estimated", False)
        if usd is None:
            self.priced = False
        else:
            self.usd += Decimal(usd)

    def spend(self, seconds: float) -> Spend:
        """As the record that outcomes carry."""
        return Spend(
            calls=self.calls,
            tokens_in=self.tokens_in,
            tokens_out=self.tokens_out,
            usd=self.usd if self.priced else None,
            seconds=round(seconds, 3),
            estimated=self.estimated,
            cached=self.cached,
            reasoning=self.reasoning,
            in_doubt=self.in_doubt,
        )


@dataclass(slots=True)
class Attempted:
    """One attempt of the journal: where it was charged and what it came to."""

    node: str
    key: str
    role: str
    line: str
    call_line: str
    attempt: int
    spent: Spent
    open: bool


@dataclass(slots=True)
class Recovery:
    """A run as its journal tells it.

    Attributes:
        created: Data of ``run.created``.
        planned: Data of ``run.planned``, None if it never got so far.
        steps: Recorded steps.
        attempts: All attempts, in order.
        spent: Their total.
        elapsed: Active seconds so far.
        clockwork: Where they went.
        offers: Best answer so far by node.
        ended: Data of the last ``run.ended``, None if the run was not ended or was resumed since.
        budget: Changes of limits by a person, in order.
        accounts: The accounts shared by runs that it draws on since a resume, None if they are as they were.
        raises: What was added to the bill's retries for calls in doubt, in order.
        questions: Questions by id: pending ones have no answer.
        answers: What people answered, by the question's id.
        opened: Paths of the children that were opened.
        stops: Nodes that a person stopped since the run was last ended, and how the stop is told; none for a stop
            of the whole run, which a resume takes back.
        topology_events: ``(seq, kind, node, key, data)`` that topologies recorded.
        seq: Position of the last event.
    """

    created: dict[str, Any] = field(default_factory=dict)
    planned: dict[str, Any] | None = None
    steps: dict[StepId, Recorded] = field(default_factory=dict)
    attempts: list[Attempted] = field(default_factory=list)
    spent: Spent = field(default_factory=Spent)
    elapsed: float = 0.0
    clockwork: Clockwork = field(default_factory=Clockwork)
    offers: dict[str, dict[str, Any]] = field(default_factory=dict)
    ended: dict[str, Any] | None = None
    budget: list[dict[str, Any]] = field(default_factory=list)
    accounts: list[dict[str, Any]] | None = None
    raises: list[dict[str, Any]] = field(default_factory=list)
    questions: dict[str, dict[str, Any]] = field(default_factory=dict)
    answers: dict[str, dict[str, Any]] = field(default_factory=dict)
    opened: set[str] = field(default_factory=set)
    stops: dict[str, str] = field(default_factory=dict)
    topology_events: list[FoldedEvent] = field(default_factory=list)
    seq: int = 0
    overrun: str = ""
    """Why the run's account is stopped, "" if it isn't: a server reported too much and no limit was raised since."""
    overruns: list[CallOverrun] = field(default_factory=list)
    """All that calls used beyond what was reserved for them."""


def recover(events: Iterable[FoldedEvent]) -> Recovery:
    """Fold a run's events."""
    listed = list(events)
    state = Recovery(steps=memo_from(listed, coming=True))
    open_attempts: dict[tuple[str, str, int], Attempted] = {}
    for seq, kind, node, key, data in listed:
        state.seq = seq
        state.elapsed = max(state.elapsed, data.get("elapsed", 0.0))
        state.clockwork.take(kind, data)
        if kind.startswith("call."):
            _fold_call(state, open_attempts, kind, node, key, data)
        elif kind == "budget.changed":
            if _gives_more(state, data):
                state.overrun = ""  # a person has looked at it
            state.budget.append(data)
        elif kind == "budget.overrun":
            state.overrun = f"a server reported more than was reserved for the call {key}"
            state.overruns += call_overruns(node, key, data["accounts"])
        elif kind == "bill.raised":
            state.raises.append(data)
        elif kind.startswith(("run.", "accounts.")):
            _fold_run(state, kind, data)
        elif not _fold_node(state, kind, node, key, data) and key.startswith("record:"):
            state.topology_events.append((seq, kind, node, key, data))
    for attempt in open_attempts.values():
        attempt.open = True
        attempt.spent.in_doubt = 1
    _answer_questions(state)
    state.spent = total(state.attempts)
    return state


def _gives_more(state: Recovery, change: dict[str, Any]) -> bool:
    """Whether a change gave more of what servers report; a limit where there was none says how much more, too."""
    dimension, value = change["dimension"], change["value"]
    if dimension not in ("tokens", "tokens_in", "tokens_out", "usd", "calls"):
        return False
    before = state.created["spec"]["budget"].get(dimension)
    for earlier in state.budget:
        if earlier["dimension"] == dimension:
            before = earlier["value"]
    return before is None or value is None or Decimal(str(value)) > Decimal(str(before))


def _fold_run(state: Recovery, kind: str, data: dict[str, Any]) -> None:
    if kind == "run.created":
        state.created = data
    elif kind == "run.planned":
        state.planned = data
    elif kind == "run.ended":
        state.ended = data
        state.stops.clear()
    elif kind == "run.resumed":
        state.ended = None
    elif kind == "accounts.changed":
        state.accounts = data["accounts"]


def _fold_node(state: Recovery, kind: str, node: str, key: str, data: dict[str, Any]) -> bool:
    """Fold an event of a node; whether it was one that the runtime writes."""
    if kind == "question.asked":
        state.questions[data["id"]] = {**data, "node": node, "key": key}
    elif kind == "question.answered":
        state.answers[data["id"]] = data
    elif kind == "offer":
        state.offers[node] = data
    elif kind == "node.opened":
        state.opened.add(node)
    elif kind == "command.received":
        if data["verb"] == "stop" and node != "/":
            state.stops.setdefault(node, stop_text(data["data"]))
    else:
        return False
    return True


def _fold_call(
    state: Recovery,
    open_attempts: dict[tuple[str, str, int], Attempted],
    kind: str,
    node: str,
    key: str,
    data: dict[str, Any],
) -> None:
    place = (node, key, data["attempt"])
    if kind == "call.started":
        reserved = data["reserved"]
        worst = Spent()
        usage = {"input": reserved["tokens_in"], "output": reserved["tokens_out"], "estimated": True}
        worst.add(usage, reserved["usd"], calls=1)
        attempt = Attempted(
            node, key, data["role"], data["line"], data["call_line"], data["attempt"], worst, open=False
        )
        state.attempts.append(attempt)
        open_attempts[place] = attempt
        return
    attempt = open_attempts.pop(place)
    attempt.spent = Spent()
    attempt.spent.add(data["usage"], data["usd"], calls=1 if data.get("sent", True) else 0)


def stop_text(data: dict[str, Any]) -> str:
    """How a stop that a person asked for is told."""
    return f"Stopped: {data.get('why') or 'a person stopped it'}"


def _answer_questions(state: Recovery) -> None:
    for question in state.questions.values():
        given = state.answers.get(question["id"])
        if given is not None and given["digest"] == question["digest"]:
            question["answer"] = given["text"]
        recorded = state.steps.get((question["node"], question["key"]))
        if recorded is not None and recorded.data is not None:
            question["answer"] = recorded.data["result"]


def total(attempts: Iterable[Attempted]) -> Spent:
    """The sum of attempts."""
    sum_ = Spent()
    for attempt in attempts:
        spent = attempt.spent
        sum_.calls += spent.calls
        sum_.tokens_in += spent.tokens_in
        sum_.tokens_out += spent.tokens_out
        sum_.cached += spent.cached
        sum_.reasoning += spent.reasoning
        sum_.usd += spent.usd
        sum_.priced = sum_.priced and spent.priced
        sum_.estimated = sum_.estimated or spent.estimated
        sum_.in_doubt += spent.in_doubt
    return sum_
