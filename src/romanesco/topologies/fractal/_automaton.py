"""The orchestrator of a node: a finite automaton as a pure function.

``step(state, event) -> (state, actions)`` does no I/O, reads no clock, draws no random number and calls no model.
A driver performs the actions and feeds their results back as events. ``TABLE`` holds every legal (phase, event) pair
with all that may follow; any other pair raises ``IllegalEvent``.

Phases lie in the paper's two modes, ``q_div`` and ``q_conv``, and an end mode. A phase that routes to several members
is a barrier: it ends when each of them has answered, failed or was refused by the budget, in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from romanesco.errors import IllegalEvent
from romanesco.topologies.fractal._state import (
    DECISION_MAKER,
    MODES,
    Action,
    Answered,
    Ask,
    Criticised,
    Decided,
    End,
    Event,
    Exhausted,
    Failed,
    Measure,
    Measured,
    Missing,
    Phase,
    Proposed,
    Query,
    Route,
    Started,
    State,
    Switch,
    Terminate,
)
from romanesco.topologies.fractal._stopping import judge

Result = tuple[State, tuple[Action, ...]]


def step(state: State, event: Event) -> Result:
    """Move on one event.

    Args:
        state: Where the node is.
        event: What happened.

    Returns:
        The next state and the actions to perform. No actions: the phase still waits for other members.

    Raises:
        IllegalEvent: The phase does not accept this event, or nobody waits for this member's answer.
    """
    row = _ROWS.get((state.phase, type(event)))
    if row is None:
        legal = sorted(kind.__name__ for phase, kind in _ROWS if phase is state.phase)
        raise IllegalEvent(
            f"The automaton takes no such event in phase '{state.phase}'",
            value=type(event).__name__,
            limit=", ".join(legal) or "none: the node has ended",
        )
    return row.act(state, event)


# ---- what each event does -------------------------------------------------------------------------------------


def _start(state: State, event: Event) -> Result:
    routes = tuple(Route(member, Ask.GENERATE, 1) for member in state.proposers)
    return replace(state, phase=Phase.PROPOSING, round=1, pending=_waiting(routes)), routes


def _ask(state: State, event: Event) -> Result:
    assert isinstance(event, Missing)
    if state.queries > 0:
        asking = replace(state, phase=Phase.ASKING, resume=state.phase, queries=state.queries - 1)
        return asking, (Query(event.question),)
    # Without a question left the node must still move on: asking for the same thing again could go on for ever.
    return _start(state, event) if state.phase is Phase.READY else _end(state, End.UNDECIDED)


def _answer(state: State, event: Event) -> Result:
    back = replace(state, phase=state.resume or Phase.READY, resume=None)
    return _decide(back) if back.phase is Phase.DECIDING else _start(back, event)


def _propose(state: State, event: Event) -> Result:
    assert isinstance(event, Proposed)
    if event.backs is not None and event.backs not in state.latest:
        raise IllegalEvent("A ballot for a member without a proposal", value=event.backs, limit=", ".join(state.latest))
    state = _answered(state, event.member)
    state = replace(state, latest={**state.latest, event.member: event.proposal})
    if event.backs is not None:
        state = replace(state, ballots={**state.ballots, event.member: (event.backs, state.round)})
    return _proposed(state)


def _no_proposal(state: State, event: Event) -> Result:
    assert isinstance(event, Failed)
    return _proposed(_answered(state, event.member))


def _no_budget_to_propose(state: State, event: Event) -> Result:
    assert isinstance(event, Exhausted)
    return _proposed(_refused(state, event))


def _proposed(state: State) -> Result:
    if state.pending:
        return state, ()
    if state.account:
        return _wrap_up(state)
    if not state.latest:
        return _end(state, End.NO_PROPOSAL)
    return replace(state, phase=Phase.MEASURING), (Measure(state.round),)


def _measured(state: State, event: Event) -> Result:
    assert isinstance(event, Measured)
    gains = (*state.gains, event.ledger_gain)
    ballots = {member: author for member, (author, round_) in state.ballots.items() if round_ == state.round}
    verdict = judge(
        state.stop,
        round=state.round,
        ratio=event.ratio,
        ledger_gains=gains,
        ballots=ballots,
        order=state.proposers,
    )
    state = replace(state, gains=gains, verdicts=(*state.verdicts, verdict))
    if verdict.stop:
        routes = tuple(
            Route(evaluator, Ask.CRITICISE, state.round, state.latest[member])
            for member in state.alive
            for evaluator in state.evaluators
        )
        return replace(state, phase=Phase.CRITICISING, pending=_waiting(routes)), (Switch(verdict), *routes)
    routes = tuple(Route(member, Ask.INTEGRATE, state.round + 1) for member in state.alive)
    return replace(state, phase=Phase.PROPOSING, round=state.round + 1, pending=_waiting(routes)), routes


def _no_budget(state: State, event: Event) -> Result:
    assert isinstance(event, Exhausted)
    return _wrap_up(replace(state, account=event.account))


def _criticise(state: State, event: Event) -> Result:
    assert isinstance(event, Criticised | Failed)
    return _criticised(_answered(state, event.member, event.target))


def _no_budget_to_criticise(state: State, event: Event) -> Result:
    assert isinstance(event, Exhausted)
    return _criticised(_refused(state, event))


def _criticised(state: State) -> Result:
    if state.pending:
        return state, ()
    return _wrap_up(state) if state.account else _decide(state)


def _decide(state: State) -> Result:
    return replace(state, phase=Phase.DECIDING), (Route(DECISION_MAKER, Ask.DECIDE, state.round),)


def _decided(state: State, event: Event) -> Result:
    return _end(state, End.DECIDED)


def _undecided(state: State, event: Event) -> Result:
    return _end(state, End.UNDECIDED)


def _wrap_up(state: State) -> Result:
    return replace(state, phase=Phase.WRAPPING), (Route(DECISION_MAKER, Ask.WRAP_UP, state.round),)


def _wrapped_up(state: State, event: Event) -> Result:
    return _end(state, End.WRAPPED_UP)


def _cut_short(state: State, event: Event) -> Result:
    return _end(state, End.CUT_SHORT)


def _end(state: State, end: End) -> Result:
    return replace(state, phase=Phase.ENDED, end=end), (Terminate(end),)


def _waiting(routes: Sequence[Route]) -> tuple[tuple[str, str], ...]:
    return tuple((route.member, route.target) for route in routes)


def _answered(state: State, member: str, target: str = "") -> State:
    """Take one answer off the waiting list: each is accepted exactly once."""
    if (member, target) not in state.pending:
        raise IllegalEvent(
            "An answer that nobody waits for",
            value=f"{member} {target}".strip(),
            limit=", ".join(f"{who} {what}".strip() for who, what in state.pending),
        )
    return replace(state, pending=tuple(item for item in state.pending if item != (member, target)))


def _refused(state: State, event: Exhausted) -> State:
    state = _answered(state, event.member, event.target)
    return replace(state, account=state.account or event.account)


# ---- the table ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Arc:
    """One way on: under which condition, to which phase, with which actions (by name, in order)."""

    when: str
    to: Phase
    actions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """A legal (phase, event) pair: the function that handles it and every way on it can take."""

    phase: Phase
    event: type
    act: Callable[[State, Event], Result]
    arcs: tuple[Arc, ...]


_WAIT = "others are still awaited"
_REFUSED = "all answered, the budget refused some call"
_WRAP = Arc(_REFUSED, Phase.WRAPPING, ("route",))
_PROPOSING = (
    Arc(_WAIT, Phase.PROPOSING),
    Arc("all answered", Phase.MEASURING, ("measure",)),
    _WRAP,
)
_CRITICISING = (
    Arc(_WAIT, Phase.CRITICISING),
    Arc("all answered", Phase.DECIDING, ("route",)),
    _WRAP,
)


def _ended(when: str = "always") -> Arc:
    return Arc(when, Phase.ENDED, ("terminate",))


TABLE: tuple[Row, ...] = (
    Row(Phase.READY, Started, _start, (Arc("always", Phase.PROPOSING, ("route",)),)),
    Row(
        Phase.READY,
        Missing,
        _ask,
        (
            Arc("a question is left", Phase.ASKING, ("query",)),
            Arc("no question is left", Phase.PROPOSING, ("route",)),
        ),
    ),
    Row(
        Phase.ASKING,
        Answered,
        _answer,
        (Arc("asked when ready", Phase.PROPOSING, ("route",)), Arc("asked when deciding", Phase.DECIDING, ("route",))),
    ),
    Row(Phase.PROPOSING, Proposed, _propose, _PROPOSING),
    Row(Phase.PROPOSING, Failed, _no_proposal, (*_PROPOSING, _ended("all answered, nobody ever proposed"))),
    Row(Phase.PROPOSING, Exhausted, _no_budget_to_propose, (_PROPOSING[0], _WRAP)),
    Row(
        Phase.MEASURING,
        Measured,
        _measured,
        (
            Arc("no stopping test is met", Phase.PROPOSING, ("route",)),
            Arc("a stopping test is met", Phase.CRITICISING, ("switch", "route")),
        ),
    ),
    Row(Phase.MEASURING, Exhausted, _no_budget, (Arc("always", Phase.WRAPPING, ("route",)),)),
    Row(Phase.CRITICISING, Criticised, _criticise, _CRITICISING),
    Row(Phase.CRITICISING, Failed, _criticise, _CRITICISING),
    Row(Phase.CRITICISING, Exhausted, _no_budget_to_criticise, (_CRITICISING[0], _WRAP)),
    Row(Phase.DECIDING, Decided, _decided, (_ended(),)),
    Row(Phase.DECIDING, Failed, _undecided, (_ended(),)),
    Row(Phase.DECIDING, Exhausted, _no_budget, (Arc("always", Phase.WRAPPING, ("route",)),)),
    Row(
        Phase.DECIDING,
        Missing,
        _ask,
        (Arc("a question is left", Phase.ASKING, ("query",)), _ended("no question is left")),
    ),
    Row(Phase.WRAPPING, Decided, _wrapped_up, (_ended(),)),
    Row(Phase.WRAPPING, Failed, _cut_short, (_ended(),)),
    Row(Phase.WRAPPING, Exhausted, _cut_short, (_ended(),)),
)
"""Every legal (phase, event) pair. What is not here is refused."""

_ROWS = {(row.phase, row.event): row for row in TABLE}


def transition_table() -> str:
    """The transition table as a Markdown table, as it stands in ``docs/automaton.md``."""
    lines = ["| mode | phase | event | when | actions | next phase |", "| --- | --- | --- | --- | --- | --- |"]
    for row in TABLE:
        # A question may come from either mode and goes back to it.
        mode = "either" if row.phase is Phase.ASKING else MODES[row.phase].value
        for arc in row.arcs:
            actions = ", ".join(arc.actions) or "-"
            event = row.event.__name__.lower()
            lines.append(f"| {mode} | {row.phase} | {event} | {arc.when} | {actions} | {arc.to} |")
    return "\n".join(lines) + "\n"
