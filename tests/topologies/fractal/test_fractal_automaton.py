from __future__ import annotations

import itertools
import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from romanesco.errors import IllegalEvent
from romanesco.topologies.fractal import transition_table
from romanesco.topologies.fractal._automaton import TABLE, Arc, step
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
    Mode,
    Phase,
    Proposed,
    Query,
    Route,
    Started,
    State,
    Switch,
    Terminate,
)
from romanesco.topologies.fractal._stopping import StopRules

DOCS = Path(__file__).parents[3] / "docs" / "automaton.md"
EVENTS = (Started, Missing, Answered, Proposed, Failed, Exhausted, Measured, Criticised, Decided)
TEAM = ("a", "b", "c")
JUDGES = ("x", "y")


def start(**changes: object) -> State:
    return replace(State(TEAM, JUDGES), **changes)  # type: ignore[arg-type]


def run(state: State, *events: Event) -> tuple[State, tuple[Action, ...]]:
    actions: tuple[Action, ...] = ()
    for event in events:
        state, actions = step(state, event)
    return state, actions


def proposals(round: int, backs: str | None = None) -> list[Event]:
    return [Proposed(member, f"{member}.{round}", backs) for member in TEAM]


def name(action: Action) -> str:
    return type(action).__name__.lower()


def names(actions: tuple[Action, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name(action) for action in actions))


def test_the_docs_hold_the_table_as_it_is() -> None:
    assert transition_table() in DOCS.read_text(encoding="utf-8")


def test_each_pair_stands_once_and_every_phase_has_a_mode() -> None:
    pairs = [(row.phase, row.event) for row in TABLE]
    assert len(pairs) == len(set(pairs))
    assert set(MODES) == set(Phase)
    assert {row.event for row in TABLE} == set(EVENTS)


def example(kind: type, state: State) -> Event:
    """An event of a kind that somebody waits for in this state."""
    member, target = state.pending[0] if state.pending else (DECISION_MAKER, "")
    samples: dict[type, Event] = {
        Started: Started(),
        Missing: Missing("which market?"),
        Answered: Answered(),
        Proposed: Proposed(member, f"{member}.{state.round}"),
        Failed: Failed(member, target),
        Exhausted: Exhausted(member, "run", target),
        Measured: Measured(0.9, 5.0),
        Criticised: Criticised(member, target),
        Decided: Decided(),
    }
    return samples[kind]


def reached() -> dict[Phase, State]:
    """A state in each phase."""
    ready = start(queries=1)
    proposing, _ = run(ready, Started())
    measuring, _ = run(proposing, *proposals(1))
    criticising, _ = run(replace(measuring, stop=StopRules(r_max=1)), Measured(None, 3.0))
    done = [Criticised(judge, f"{member}.1") for member in TEAM for judge in JUDGES]
    deciding, _ = run(criticising, *done)
    asking, _ = run(deciding, Missing("?"))
    wrapping, _ = run(deciding, Exhausted(DECISION_MAKER, "run"))
    ended, _ = run(deciding, Decided())
    states = (ready, proposing, measuring, criticising, deciding, asking, wrapping, ended)
    return {state.phase: state for state in states}


@pytest.mark.parametrize(("phase", "kind"), list(itertools.product(Phase, EVENTS)))
def test_every_pair_is_defined_or_refused(phase: Phase, kind: type) -> None:
    state = reached()[phase]
    event = example(kind, state)
    row = next((row for row in TABLE if (row.phase, row.event) == (phase, kind)), None)
    if row is None:
        with pytest.raises(IllegalEvent, match=f"in phase '{phase}'"):
            step(state, event)
        return
    following, actions = step(state, event)
    assert any(arc.to is following.phase and arc.actions == names(actions) for arc in row.arcs)


def test_an_answer_that_nobody_waits_for_is_refused() -> None:
    state, _ = run(start(), Started(), Proposed("a", "a.1"))
    for event in (Proposed("a", "a.1"), Failed("nobody"), Exhausted("a", "run")):
        with pytest.raises(IllegalEvent, match="nobody waits for"):
            step(state, event)


def test_a_ballot_for_a_member_without_a_proposal_is_refused() -> None:
    state, _ = run(start(), Started())
    with pytest.raises(IllegalEvent, match="without a proposal"):
        step(state, Proposed("a", "a.1", backs="b"))


def test_generation_asks_every_proposer_and_no_evaluator() -> None:
    state, actions = run(start(), Started())
    assert actions == tuple(Route(member, Ask.GENERATE, 1) for member in TEAM)
    assert state.mode is Mode.DIVERGENT


def test_a_phase_waits_for_all_and_the_order_does_not_matter() -> None:
    results = set()
    for order in itertools.permutations(proposals(1)):
        state, actions = run(start(), Started(), *order[:2])
        assert actions == ()
        state, actions = run(state, order[2])
        assert actions == (Measure(1),)
        results.add((state.phase, tuple(sorted(state.latest.items()))))
    assert len(results) == 1


def test_critiques_are_asked_once_for_each_evaluator_and_proposal() -> None:
    state, _ = run(start(stop=StopRules(r_max=1)), Started(), *proposals(1))
    state, actions = run(state, Measured(None, 3.0))
    assert isinstance(actions[0], Switch)
    assert actions[0].verdict.reason == "r_max"
    asked = [(one.member, one.target) for one in actions[1:] if isinstance(one, Route)]
    assert sorted(asked) == sorted((judge, f"{member}.1") for member in TEAM for judge in JUDGES)


def test_a_member_that_failed_first_is_out_and_one_that_fails_later_keeps_its_proposal() -> None:
    state, _ = run(start(), Started(), Proposed("a", "a.1"), Proposed("b", "b.1"), Failed("c"))
    state, actions = run(state, Measured(0.9, 3.0))
    assert [one.member for one in actions if isinstance(one, Route)] == ["a", "b"]
    state, _ = run(state, Proposed("a", "a.2", backs="b"), Failed("b"))
    assert state.latest == {"a": "a.2", "b": "b.1"}
    state, actions = run(state, Measured(0.9, 3.0))
    assert [one.member for one in actions if isinstance(one, Route)] == ["a", "b"]


def test_nobody_ever_proposed_ends_the_node() -> None:
    state, actions = run(start(), Started(), *(Failed(member) for member in TEAM))
    assert actions == (Terminate(End.NO_PROPOSAL),)
    assert state.end is End.NO_PROPOSAL


def test_a_refusal_lets_the_others_finish_and_then_wraps_up() -> None:
    state, actions = run(start(), Started(), Exhausted("a", "run"), Proposed("b", "b.1"))
    assert actions == ()
    state, actions = run(state, Proposed("c", "c.1"))
    assert actions == (Route(DECISION_MAKER, Ask.WRAP_UP, 1),)
    assert state.account == "run"
    assert run(state, Decided())[1] == (Terminate(End.WRAPPED_UP),)
    assert run(state, Failed(DECISION_MAKER))[1] == (Terminate(End.CUT_SHORT),)


def test_a_question_goes_back_to_where_it_came_from() -> None:
    state, actions = run(start(queries=1), Missing("which market?"))
    assert actions == (Query("which market?"),)
    started = run(start(), Started())[1]
    state, actions = run(state, Answered())
    assert (state.phase, state.queries, actions) == (Phase.PROPOSING, 0, started)
    assert run(start(), Missing("which market?"))[1] == started  # no question is left
    deciding = replace(reached()[Phase.DECIDING], queries=1)
    state, _ = run(deciding, Missing("?"))
    assert (state.phase, state.mode) == (Phase.ASKING, Mode.CONVERGENT)
    state, actions = run(state, Answered())
    assert actions == (Route(DECISION_MAKER, Ask.DECIDE, 1),)
    assert run(state, Missing("again?"))[1] == (Terminate(End.UNDECIDED),)  # or it could ask for ever


def test_only_ballots_of_this_round_make_a_supermajority() -> None:
    state, _ = run(start(stop=StopRules(r_max=9)), Started(), *proposals(1))
    state, _ = run(state, Measured(0.9, 3.0), Proposed("a", "a.2", "b"), Proposed("b", "b.2", "b"), Failed("c"))
    state, actions = run(state, Measured(0.9, 3.0))
    assert names(actions) == ("route",)  # two of three eligible
    assert state.verdicts[-1].tests[0].value == 2
    state, _ = run(state, Failed("a"), Failed("b"), Proposed("c", "c.3", "b"))
    state, _ = run(state, Measured(0.9, 3.0))
    assert state.verdicts[-1].tests[0].value == 1  # the ballots of a and b are a round old
    assert state.ballots["a"] == ("b", 2)


def outcomes(rng: random.Random, state: State, actions: tuple[Action, ...]) -> list[Event]:
    """Whatever could come of a batch of actions, in any order."""
    events: list[Event] = []
    for action in actions:
        if isinstance(action, Measure):
            ratio = rng.choice([None, 0.1, 0.7, 2.0])
            results: list[Event] = [Measured(ratio, 0.0), Measured(ratio, 9.0), Exhausted("embedder", "run")]
            events.append(rng.choice(results))
        elif isinstance(action, Query):
            events.append(Answered())
        elif isinstance(action, Route):
            events.append(_answer(rng, state, action))
    rng.shuffle(events)
    return events


def _answer(rng: random.Random, state: State, route: Route) -> Event:
    failed: Event = Failed(route.member, route.target)
    broke: Event = Exhausted(route.member, "run", route.target)
    good: Event = Decided()
    if route.ask in (Ask.GENERATE, Ask.INTEGRATE):
        backs = rng.choice(sorted(state.latest)) if state.latest else None
        good = Proposed(route.member, f"{route.member}.{route.round}", backs)
    elif route.ask is Ask.CRITICISE:
        good = Criticised(route.member, route.target)
    elif route.ask is Ask.DECIDE and rng.random() < 0.3:
        good = Missing("?")
    return rng.choices([good, failed, broke], [8, rng.choice([1, 8]), rng.choice([0, 1])])[0]


def walk(rng: random.Random) -> set[tuple[Phase, type, Arc]]:
    """One random run: it must end and keep every rule. Gives the arcs that it took."""
    team, judges, rounds = tuple("abcde"[: rng.randint(3, 5)]), ("x", "y"), rng.randint(1, 4)
    if rng.random() < 0.3:
        judges = (team[0], team[1])  # evaluators_propose
    rules = StopRules(r_max=rounds, tau_sat=rng.choice([0.0, 0.65, 5.0]))
    state = State(team, judges, stop=rules, queries=rng.randint(0, 2))
    events: list[Event] = [Missing("?")] if rng.random() < 0.2 else [Started()]
    arcs: set[tuple[Phase, type, Arc]] = set()
    asked: list[Route] = []
    for _ in range(2 * rounds + 12):
        following: tuple[Action, ...] = ()
        for event in events:
            before = state
            state, following = step(state, event)
            row = next(row for row in TABLE if row.phase is before.phase and row.event is type(event))
            arc = next((a for a in row.arcs if (a.to, a.actions) == (state.phase, names(following))), None)
            assert arc is not None, (before.phase, event, state.phase, names(following))
            arcs.add((row.phase, row.event, arc))
        for action in following:
            if isinstance(action, Route):
                _check_route(action, state)
                asked.append(action)
        if state.end is not None:
            break
        events = outcomes(rng, state, following)
    assert state.end is not None
    assert state.round <= rounds
    turns = [(one.member, one.round) for one in asked if one.ask in (Ask.GENERATE, Ask.INTEGRATE)]
    assert len(turns) == len(set(turns))
    pairs = [(one.member, one.target) for one in asked if one.ask is Ask.CRITICISE]
    assert len(pairs) == len(set(pairs))
    assert not pairs or set(pairs) == set(itertools.product(judges, state.latest.values()))
    assert sum(one.ask is Ask.WRAP_UP for one in asked) <= 1
    return arcs


def _check_route(route: Route, state: State) -> None:
    proposes = route.ask in (Ask.GENERATE, Ask.INTEGRATE)
    assert proposes == (state.mode is Mode.DIVERGENT)
    if proposes:
        assert route.member in state.proposers
    elif route.ask is Ask.CRITICISE:
        assert state.mode is Mode.CONVERGENT and route.member in state.evaluators
    else:
        assert route.member == DECISION_MAKER


@given(st.randoms(use_true_random=False))
@settings(deadline=None)
def test_every_run_ends_and_keeps_the_rules(rng: random.Random) -> None:
    walk(rng)


def test_random_runs_take_every_arc_of_the_table_and_no_other() -> None:
    declared = {(row.phase, row.event, arc) for row in TABLE for arc in row.arcs}
    taken = set().union(*(walk(random.Random(seed)) for seed in range(1500)))
    assert {(phase, event.__name__, arc.when) for phase, event, arc in declared - taken} == set()
