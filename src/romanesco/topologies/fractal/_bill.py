"""The bill of a FRACTAL node: the worst case of every call it may make, from the real prompts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from romanesco.personas import FRAME_CHALLENGER
from romanesco.task import Bill
from romanesco.topologies._billing import FILLER, CallBound, Piece, bound, make_bill
from romanesco.topologies._text import byte_cap
from romanesco.topologies.fractal import _defaults as d
from romanesco.topologies.fractal._prompts import Group, MatrixRow, Shown, critique_bytes, label
from romanesco.topologies.fractal._requests import CRITIQUE, DECISION, PROPOSAL, WRAP_UP, Requests
from romanesco.topologies.fractal._state import DECISION_MAKER

if TYPE_CHECKING:
    from romanesco.runtime import PlanningDesk, Scope


@dataclass(frozen=True, slots=True)
class NodeCalls:
    """The worst case of each call of a node, by kind.

    Attributes:
        generation: One for each proposer.
        integration: One for each proposer; made again in each round after the first.
        critique: One for each evaluator; made for each proposal.
        decision: The decision.
        wrap_up: The held-back call.
    """

    generation: tuple[CallBound, ...]
    integration: tuple[CallBound, ...]
    critique: tuple[CallBound, ...]
    decision: CallBound
    wrap_up: CallBound

    @property
    def each(self) -> tuple[CallBound, ...]:
        """Every kind of call once."""
        return (*self.generation, *self.integration, *self.critique, self.decision, self.wrap_up)

    def of(self, rounds: int) -> tuple[CallBound, ...]:
        """All calls of a node with so many rounds at most."""
        return (
            *self.generation,
            *self.integration * (rounds - 1),
            *self.critique * len(self.generation),
            self.decision,
            self.wrap_up,
        )


async def node_calls(
    requests: Requests, desk: PlanningDesk, payloads: Mapping[str, str], again: Mapping[str, str]
) -> NodeCalls:
    """Bound every call of a node.

    Args:
        requests: Builds the requests, with the parameters of the plan.
        desk: Counts tokens, knows models and prices.
        payloads: The members' payloads as they will be sent in round 1, by persona id.
        again: What of them is sent again in each later round, by persona id.
    """
    params = requests.params
    team = params.team
    texts = Texts.of(requests, desk)
    generation = [
        await bound(
            desk,
            requests.generation(desk.model(persona.id), persona, payloads.get(persona.id, "")),
            (),
            purpose=PROPOSAL,
        )
        for persona in team
    ]
    integration = [await integration_bound(requests, desk, seat, again) for seat in range(len(team))]
    # Whose proposal is the dearest to read goes by the reader: each evaluator is bounded on all of them.
    critique = [
        max(
            [
                await bound(desk, requests.critique(desk.model(judge.id), judge, one), [text], purpose=CRITIQUE)
                for one, text in zip(_shown(requests), texts.proposals, strict=True)
            ],
            key=lambda call: (call.tokens_in, call.needs),
        )
        for judge in params.judges
    ]
    decider = desk.model(DECISION_MAKER)
    groups = tuple(Group(judge.id, (FILLER,) * d.CRITIQUES) for judge in params.judges)
    matrix = [MatrixRow(one.id, FILLER, groups, d.K_MAX) for one in _shown(requests)]
    pieces = [*texts.proposals, *texts.critiques * len(team)]
    asked = requests.decision(decider, matrix, [FILLER])
    decision = await bound(desk, asked, [*pieces, *texts.ledger], purpose=DECISION)
    wrap_up = await bound(desk, requests.wrap_up(decider, matrix), pieces, purpose=WRAP_UP)
    return NodeCalls(tuple(generation), tuple(integration), tuple(critique), decision, wrap_up)


@dataclass(frozen=True, slots=True)
class Texts:
    """What members write, as it stands in others' prompts: each proposer's, each evaluator's critiques, the ledger."""

    proposals: tuple[Piece, ...]
    critiques: tuple[Piece, ...]
    ledger: tuple[Piece, ...]

    @classmethod
    def of(cls, requests: Requests, desk: PlanningDesk | Scope) -> Texts:
        """By the caps that the calls have, and not only those that their writers are told."""
        params, caps, compact = requests.params, requests.params.caps, requests.form.compact
        proposal, critique = caps.proposal + params.reasoning_tokens, requests.critiques_cap + params.reasoning_tokens
        size = critique_bytes(caps, compact=compact)
        return cls(
            tuple(Piece(byte_cap(caps.proposal), proposal, desk.model(persona.id)) for persona in params.team),
            tuple(Piece(size, critique, desk.model(judge.id)) for judge in params.judges),
            () if compact else (Piece(byte_cap(caps.decision)),),
        )


async def integration_bound(requests: Requests, desk: PlanningDesk, seat: int, again: Mapping[str, str]) -> CallBound:
    """The worst case of a later round of one member."""
    team, shown = requests.params.team, _shown(requests)
    persona = team[seat]
    challenger = next((i for i, one in enumerate(team) if one.id == FRAME_CHALLENGER), None)
    challenge = shown[challenger] if challenger is not None and challenger != seat else None
    others = [one for i, one in enumerate(shown) if i not in (seat, challenger)]
    payload = again.get(persona.id, "")
    request = requests.integration(
        desk.model(persona.id), persona, shown[seat], challenge, others, requests.params.rounds, payload
    )
    return await bound(desk, request, Texts.of(requests, desk).proposals, purpose=PROPOSAL)


def _shown(requests: Requests) -> list[Shown]:
    params = requests.params
    ids = [f"P{seat}.{params.rounds}" for seat in range(1, len(params.team) + 1)]
    return [Shown(label(one, requests.form), FILLER) for one in ids]


def bill(calls: NodeCalls, rounds: int) -> Bill:
    """The worst case of a node: what it prints, reserves and never exceeds.

    Args:
        calls: The bounds of its calls.
        rounds: Divergent rounds at most.
    """
    return make_bill(calls.of(rounds))
