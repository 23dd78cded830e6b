"""What is known of a run while it goes on: a fold over its events, without any screen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from romanesco.interfaces.cli._ending import Refusal, refusal_of
from romanesco.runtime import RunEvent
from romanesco.task import Budget, Plan

WAITING, THINKING, DONE, FAILED = "waiting", "thinking", "done", "failed"
_TAIL = 200
_ROUNDS = ("generate", "integrate", "round")
"""First parts of the keys that have the round's number as their second."""


@dataclass(slots=True)
class Member:
    """Somebody who is asked: a role within a node.

    Attributes:
        node: Path of the node.
        role: Persona id or role.
        state: ``waiting``, ``thinking``, ``done`` or ``failed``.
        purpose: What it is asked for, or was asked for last.
        calls: Calls that it made.
        out: Its calls that are out: by key, the end of the text that has arrived.
        pieces: Pieces of text that have arrived for them.
        tail: The end of the text that arrived last.
        error: What went wrong last, if it failed.
    """

    node: str
    role: str
    state: str = WAITING
    purpose: str = ""
    calls: int = 0
    out: dict[str, str] = field(default_factory=dict)
    pieces: int = 0
    tail: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    """A question that waits for a person."""

    id: str
    node: str
    key: str
    text: str
    choices: tuple[str, ...]


@dataclass(slots=True)
class View:
    """A run as it stands.

    Attributes:
        run: The run's id.
        plan: Its plan.
        budget: The user's limits.
        model: Name of the default model.
        mode: ``divergent``, ``convergent`` or "" where the topology has no modes.
        round: The round, 0 where there are none.
        members: By node and role, in the order in which they were first heard of.
        calls: Calls made.
        tokens: Tokens spent.
        usd: Money spent, None if a price is unknown.
        elapsed: Active seconds as the journal last said.
        questions: Pending questions by id.
        status: Outcome's status, once it has ended.
        refusals: What accounts refused.
        calls_out: Role, and what is reserved, by node, key and attempt of the calls that are out.
    """

    run: str
    plan: Plan
    budget: Budget = field(default_factory=Budget)
    model: str = ""
    mode: str = ""
    round: int = 0
    members: dict[tuple[str, str], Member] = field(default_factory=dict)
    calls: int = 0
    tokens: int = 0
    usd: Decimal | None = Decimal(0)
    elapsed: float = 0.0
    questions: dict[str, Question] = field(default_factory=dict)
    status: str = ""
    refusals: list[Refusal] = field(default_factory=list)
    calls_out: dict[tuple[str, str, int], tuple[str, dict[str, Any]]] = field(default_factory=dict)

    def member(self, node: str, role: str) -> Member:
        """A member, new if it was not heard of before."""
        return self.members.setdefault((node, role), Member(node, role))

    def take(self, event: RunEvent) -> None:
        """Take one event in."""
        self.elapsed = max(self.elapsed, float(event.data.get("elapsed", 0.0)))
        handler = _HANDLERS.get(event.kind)
        if handler is not None:
            handler(self, event)

    def session_over(self) -> None:
        """What was out when the process died is out no more, and counts in full: it may have been paid for."""
        for _, reserved in self.calls_out.values():
            self.count(reserved["tokens_in"] + reserved["tokens_out"], reserved["usd"], calls=1)
        self.calls_out.clear()
        for member in self.members.values():
            if member.state == THINKING:
                member.state = WAITING
            member.out.clear()

    def count(self, tokens: int, usd: str | None, *, calls: int) -> None:
        """Count what was spent."""
        self.calls += calls
        self.tokens += tokens
        self.usd = None if self.usd is None or usd is None else self.usd + Decimal(usd)

    def role_of(self, event: RunEvent) -> str | None:
        """Whose call an event is about, None if it is not out."""
        out = self.calls_out.get((event.node, event.key, event.data["attempt"]))
        return None if out is None else out[0]

    def most(self, dimension: str) -> Any:
        """The bound of ``calls``, ``tokens`` or ``usd`` that binds: the bill's or the user's; None for none."""
        billed = getattr(self.plan.bill, dimension) if self.plan.bill.lines else None
        bounds = [bound for bound in (billed, getattr(self.budget, dimension)) if bound is not None]
        return min(bounds, default=None)

    @property
    def rounds(self) -> int | None:
        """Rounds at most, if the topology has any."""
        rounds = self.plan.params.get("rounds")
        return rounds if isinstance(rounds, int) else None


def _started(view: View, event: RunEvent) -> None:
    data = event.data
    member = view.member(event.node, data["role"])
    if member.state != THINKING:
        member.pieces, member.tail = 0, ""
    member.state, member.purpose, member.error = THINKING, data["purpose"], ""
    member.out[event.key] = ""
    view.calls_out[event.node, event.key, data["attempt"]] = (data["role"], data["reserved"])
    phase, _, rest = event.key.partition("/")
    number = rest.partition("/")[0]
    if phase in _ROUNDS and number.isdecimal():
        view.round = max(view.round, int(number))


def _closed(view: View, event: RunEvent) -> Member | None:
    """Count what a call cost, and find who made it."""
    data = event.data
    usage = data["usage"]
    view.count(usage["input"] + usage["output"], data["usd"], calls=1 if data.get("sent", True) else 0)
    role = view.role_of(event)
    if role is None:
        return None
    del view.calls_out[event.node, event.key, data["attempt"]]
    member = view.member(event.node, role)
    member.calls += 1
    member.out.pop(event.key, None)
    return member


def _finished(view: View, event: RunEvent) -> None:
    member = _closed(view, event)
    if member is not None and not member.out:
        member.state = DONE


def _call_failed(view: View, event: RunEvent) -> None:
    member = _closed(view, event)
    if member is not None:
        member.error = str(event.data["error"])
        if not member.out:
            member.state = FAILED


def _token(view: View, event: RunEvent) -> None:
    member = view.member(event.node, event.data["role"])
    member.pieces += 1
    # A member may have several calls out: each one's text stays together.
    member.tail = member.out[event.key] = (member.out.get(event.key, "") + event.data["text"])[-_TAIL:]


def _asked(view: View, event: RunEvent) -> None:
    data = event.data
    choices = tuple(data.get("choices", ()))
    view.questions[data["id"]] = Question(data["id"], event.node, event.key, data["question"], choices)


def _step_finished(view: View, event: RunEvent) -> None:
    for question in list(view.questions.values()):
        if (question.node, question.key) == (event.node, event.key):
            del view.questions[question.id]


def _step_failed(view: View, event: RunEvent) -> None:
    refusal = refusal_of(event.kind, event.data)
    if refusal is not None:
        view.refusals.append(refusal)


def _changed(view: View, event: RunEvent) -> None:
    from romanesco._codec import from_json, to_json

    changed = {**to_json(view.budget), event.data["dimension"]: event.data["value"]}
    view.budget = from_json(Budget, changed)


def _ended(view: View, event: RunEvent) -> None:
    view.status = event.data["status"]


def _resumed(view: View, event: RunEvent) -> None:
    view.status = ""
    view.session_over()


def _ensemble(view: View, event: RunEvent) -> None:
    view.mode = "divergent"
    roles = [*event.data["proposers"], *event.data["evaluators"], "decision-maker"]
    for role in roles:
        view.member(event.node, role)


def _round(view: View, event: RunEvent) -> None:
    view.round = max(view.round, int(event.data["round"]))


def _switched(view: View, event: RunEvent) -> None:
    view.mode = "convergent"


_HANDLERS: dict[str, Callable[[View, RunEvent], None]] = {
    "call.started": _started,
    "call.finished": _finished,
    "call.failed": _call_failed,
    "token": _token,
    "question.asked": _asked,
    "step.finished": _step_finished,
    "step.failed": _step_failed,
    "budget.changed": _changed,
    "run.ended": _ended,
    "run.resumed": _resumed,
    "fractal.ensemble": _ensemble,
    "fractal.round": _round,
    "fractal.switched": _switched,
}
