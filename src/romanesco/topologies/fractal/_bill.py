"""The bill of a FRACTAL node: the worst case of every call it may make, from the real prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from romanesco.models._types import ModelRequest
from romanesco.personas import FRAME_CHALLENGER, Persona
from romanesco.task import Bill
from romanesco.topologies._billing import FILLER, CallBound, bound, make_bill
from romanesco.topologies.fractal import _defaults as d
from romanesco.topologies.fractal._prompts import MatrixRow, Shown, label
from romanesco.topologies.fractal._requests import CRITIQUE, DECISION, PROPOSAL, WRAP_UP, Requests
from romanesco.topologies.fractal._state import DECISION_MAKER

if TYPE_CHECKING:
    from romanesco.runtime import PlanningDesk


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


async def node_calls(requests: Requests, desk: PlanningDesk, payloads: Mapping[str, str]) -> NodeCalls:
    """Bound every call of a node.

    Args:
        requests: Builds the requests, with the parameters of the plan.
        desk: Counts tokens, knows models and prices.
        payloads: The members' payloads as they will be sent, by persona id.
    """
    params = requests.params
    caps = params.caps
    team = params.team
    seats = range(1, len(team) + 1)
    shown = [Shown(label(f"P{seat}.{params.rounds}", requests.form), FILLER) for seat in seats]
    generation = [
        await bound(
            desk,
            requests.generation(desk.model(persona.id), persona, payloads.get(persona.id, "")),
            (),
            purpose=PROPOSAL,
        )
        for persona in team
    ]
    integration = [
        await bound(
            desk,
            _integration(requests, desk.model(persona.id), team, shown, seat),
            [caps.proposal] * len(team),
            purpose=PROPOSAL,
        )
        for seat, persona in enumerate(team)
    ]
    critique = [
        await bound(desk, requests.critique(desk.model(judge.id), judge, shown[0]), [caps.proposal], purpose=CRITIQUE)
        for judge in params.judges
    ]
    decider = desk.model(DECISION_MAKER)
    matrix = [MatrixRow(one.id, FILLER, ((FILLER,) * d.CRITIQUES,) * len(params.judges), 9) for one in shown]
    pieces = [caps.proposal] * len(team) + [caps.critiques] * len(team) * len(params.judges)
    if params.style == "full":
        pieces.append(caps.decision)  # the ledger
    decision = await bound(desk, requests.decision(decider, matrix, [FILLER]), pieces, purpose=DECISION)
    wrap_up = await bound(desk, requests.wrap_up(decider, shown), [caps.proposal] * len(team), purpose=WRAP_UP)
    return NodeCalls(tuple(generation), tuple(integration), tuple(critique), decision, wrap_up)


def _integration(
    requests: Requests, model: str, team: Sequence[Persona], shown: Sequence[Shown], seat: int
) -> ModelRequest:
    challenger = next((i for i, persona in enumerate(team) if persona.id == FRAME_CHALLENGER), None)
    challenge = shown[challenger] if challenger is not None and challenger != seat else None
    others = [one for i, one in enumerate(shown) if i not in (seat, challenger)]
    return requests.integration(model, team[seat], shown[seat], challenge, others, requests.params.rounds)


def bill(calls: NodeCalls, rounds: int) -> Bill:
    """The worst case of a node: what it prints, reserves and never exceeds.

    Args:
        calls: The bounds of its calls.
        rounds: Divergent rounds at most.
    """
    return make_bill(calls.of(rounds))
