"""What a node has so far: proposals, critiques, ledger, measurements. Filled by the driver, in routing order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from romanesco.errors import BudgetExceeded
from romanesco.personas import FRAME_CHALLENGER, Persona
from romanesco.task import (
    Critique,
    Decision,
    Deliberation,
    Dissent,
    DiversityPoint,
    LedgerEntry,
    Proposal,
)
from romanesco.topologies.fractal._ledger import fresh, gain
from romanesco.topologies.fractal._params import Params
from romanesco.topologies.fractal._prompts import Group, MatrixRow
from romanesco.topologies.fractal._room import Written
from romanesco.topologies.fractal._state import DECISION_MAKER, Event, State
from romanesco.topologies.fractal._stopping import leader, tally

PERSON = "person"
"""Author of the ledger entries that a person's answers make."""


@dataclass(frozen=True, slots=True)
class Heard:
    """What came of one route: the event for the automaton, and what it brought."""

    event: Event
    proposal: Proposal | None = None
    entries: tuple[LedgerEntry, ...] = ()
    critiques: tuple[Critique, ...] = ()
    decision: Decision | None = None
    model: str = ""
    truncated: bool = False
    failure: str = ""
    refusal: BudgetExceeded | None = None
    written: Written = Written()


@dataclass(slots=True)
class Minutes:
    """The node's record while it works.

    Attributes:
        proposals: All proposals by id, oldest first.
        critiques: The critique matrix, flat.
        ledger: Ledger entries without duplicates.
        added: Ledger gain of each round.
        vectors: Embedding of each measured proposal by id.
        diversity: The diversity curve.
        decision: The decision, once there is one.
        truncated: Whether the output cap cut the answer.
        failures: One line for each call that gave nothing usable, with what went wrong.
        refusal: The first refusal of the budget.
        models: Name of the model that answered, by role.
        written: What is known of the tokens of a text: by the proposal's id, and by that and the evaluator's for its
            critiques.
    """

    params: Params
    proposals: dict[str, Proposal] = field(default_factory=dict)
    critiques: list[Critique] = field(default_factory=list)
    ledger: list[LedgerEntry] = field(default_factory=list)
    added: dict[int, float] = field(default_factory=dict)
    vectors: dict[str, list[float]] = field(default_factory=dict)
    diversity: tuple[DiversityPoint, ...] = ()
    decision: Decision | None = None
    truncated: bool = False
    failures: list[str] = field(default_factory=list)
    refusal: BudgetExceeded | None = None
    models: dict[str, str] = field(default_factory=dict)
    written: dict[tuple[str, ...], Written] = field(default_factory=dict)

    def note(self, role: str, heard: Heard, round: int) -> None:
        """Write down what came of a route."""
        if heard.proposal:
            self.proposals[heard.proposal.id] = heard.proposal
            self.written[heard.proposal.id,] = heard.written
        for one in heard.critiques:
            self.written[one.proposal, one.evaluator] = heard.written
        new = fresh(self.ledger, heard.entries)
        self.ledger.extend(new)
        self.added[round] = self.added.get(round, 0.0) + gain(new)
        self.critiques.extend(heard.critiques)
        self.decision = heard.decision or self.decision
        self.truncated = self.truncated or (heard.decision is not None and heard.truncated)
        if heard.model:
            self.models[role] = heard.model
        if heard.failure:
            self.failures.append(heard.failure)
        self.refusal = self.refusal or heard.refusal

    def answered(self, question: str, answer: str, round: int) -> None:
        """Write down what a person answered: a fact, because the person who set the goal says so."""
        self.ledger.append(LedgerEntry("fact", f"{question} {answer}".strip(), PERSON, round, (question,)))

    def of_round(self, round: int) -> list[Proposal]:
        """The proposals of one round."""
        return [proposal for proposal in self.proposals.values() if proposal.round == round]


def seats(team: Sequence[Persona]) -> dict[str, int]:
    """Seat number of each proposer: the first number of its proposals' ids."""
    return {persona.id: number for number, persona in enumerate(team, start=1)}


def backing(state: State) -> dict[str, int]:
    """Backers by proposal id: each member's latest ballot, resolved to its author's latest proposal."""
    votes = tally({member: author for member, (author, _round) in state.ballots.items()})
    return {state.latest[author]: votes[author] for author in state.alive if votes.get(author)}


def best(state: State) -> str:
    """Id of the best-backed proposal, "" if there is none.

    Without any ballot, the first in order that is not the Frame Challenger's: a challenge is not an answer.
    """
    votes = tally({member: author for member, (author, _round) in state.ballots.items()})
    found = leader(votes, state.alive)
    if not found:
        found = next((m for m in state.alive if m != FRAME_CHALLENGER), "") or next(iter(state.alive), "")
    return state.latest.get(found, "")


def matrix(minutes: Minutes, state: State) -> list[MatrixRow]:
    """The proposals alive with their critiques, for the decision. Critiques of one's own proposal are left out."""
    votes = backing(state)
    rows = []
    for member in state.alive:
        proposal = state.latest[member]
        weighed = [one for one in minutes.critiques if one.proposal == proposal and not one.own]
        groups = tuple(
            Group(evaluator, tuple(one.text for one in weighed if one.evaluator == evaluator))
            for evaluator in state.evaluators
            if any(one.evaluator == evaluator for one in weighed)
        )
        rows.append(MatrixRow(proposal, minutes.proposals[proposal].text, groups, votes.get(proposal, 0)))
    return rows


def dissent(minutes: Minutes, state: State, chosen: str) -> tuple[Dissent, ...]:
    """Members whose backing did not carry. A member without a ballot backs its own proposal.

    The grounds are the critiques of the chosen proposal: what was said against what the team took.
    """
    if chosen not in minutes.proposals:
        return ()
    grounds = tuple(one.text for one in minutes.critiques if one.proposal == chosen and not one.own)
    positions = []
    for member in state.alive:
        author, _round = state.ballots.get(member, (member, 0))
        backed = state.latest[author]
        if backed != chosen:
            positions.append(Dissent(member, backed, minutes.proposals[backed].text, grounds))
    return tuple(positions)


def missing(minutes: Minutes, state: State) -> tuple[str, ...]:
    """Members that gave nothing: proposers without a proposal, evaluators without a critique they were asked for."""
    silent = [member for member in state.proposers if member not in state.latest] if state.round else []
    if state.verdicts and state.verdicts[-1].stop and not state.pending:
        spoke = {one.evaluator for one in minutes.critiques}
        silent += [one for one in state.evaluators if one not in spoke]
    if state.end is not None and minutes.decision is None:
        silent.append(DECISION_MAKER)
    return tuple(dict.fromkeys(silent))


def deliberation(minutes: Minutes, state: State) -> Deliberation:
    """The whole record as data."""
    people: Mapping[str, None] = dict.fromkeys([*state.proposers, *state.evaluators])
    chosen = minutes.decision.chosen if minutes.decision else ""
    return Deliberation(
        personas=tuple(people),
        rounds=state.round,
        stop=state.verdicts[-1].reason if state.verdicts else "",
        proposals=tuple(minutes.proposals.values()),
        critiques=tuple(minutes.critiques),
        ledger=tuple(minutes.ledger),
        decision=minutes.decision,
        dissent=dissent(minutes, state, chosen),
        diversity=minutes.diversity,
        backing=backing(state),
        missing=missing(minutes, state),
    )
