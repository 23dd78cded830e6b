"""Asking one member: the call, and what its reply means. Failures become events, so that siblings go on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from romanesco.errors import BudgetExceeded, ModelError, OutputInvalid, Refused
from romanesco.models._types import FinishReason, ModelReply, ModelRequest
from romanesco.personas import FRAME_CHALLENGER, Persona
from romanesco.task import Critique, Decision, LedgerEntry, Proposal, Task
from romanesco.topologies.fractal import _defaults as d
from romanesco.topologies.fractal._bill import Texts
from romanesco.topologies.fractal._decision import decision_entries, read_decision
from romanesco.topologies.fractal._ledger import evidence_entries, headline
from romanesco.topologies.fractal._minutes import Heard, Minutes, best, matrix, seats
from romanesco.topologies.fractal._prompts import challenge_text, label
from romanesco.topologies.fractal._requests import CRITIQUE, DECISION, PROPOSAL, WRAP_UP, Requests
from romanesco.topologies.fractal._room import Written
from romanesco.topologies.fractal._sight import Sight
from romanesco.topologies.fractal._state import (
    DECISION_MAKER,
    Ask,
    Criticised,
    Decided,
    Exhausted,
    Failed,
    Proposed,
    Route,
    State,
)

if TYPE_CHECKING:
    from romanesco.runtime import Scope, Structured

PARTS = ("failure_scenario", "alternative_mechanism", "modification")


@dataclass(frozen=True, slots=True)
class Members:
    """Asks the members of a node.

    Attributes:
        task: The task.
        scope: The node's scope.
        requests: Builds the requests.
        payloads: Each proposer's own excerpts, by persona id.
        again: What of them it sees again in later rounds, by persona id.
        minutes: What the node has so far; only read here.
    """

    task: Task
    scope: Scope
    requests: Requests
    payloads: Mapping[str, str]
    again: Mapping[str, str]
    minutes: Minutes

    async def ask(self, route: Route, state: State) -> Heard:
        """Perform one route. Never raises for a member's own failure."""
        try:
            return await self._asked(route, state)
        except BudgetExceeded as error:
            failure = f"{_who(route)}: {error}"
            if _local(error):
                # Without a decision it is the limit of that role that ends the node, not its model.
                ends = error if route.ask is Ask.DECIDE and _of_role(error) else None
                return Heard(Failed(route.member, route.target), failure=failure, refusal=ends)
            return Heard(Exhausted(route.member, error.account, route.target), failure=failure, refusal=error)
        except (ModelError, Refused) as error:
            return Heard(Failed(route.member, route.target), failure=f"{_who(route)}: {error}")

    async def _asked(self, route: Route, state: State) -> Heard:
        match route.ask:
            case Ask.GENERATE:
                return await self._generate(self._persona(route.member))
            case Ask.INTEGRATE:
                return await self._integrate(self._persona(route.member), route.round, state)
            case Ask.CRITICISE:
                return await self._criticise(self._persona(route.member), route.target)
            case Ask.DECIDE:
                return await self._decide(route.round, state)
            case Ask.WRAP_UP:
                return await self._wrap_up(state)

    async def _generate(self, persona: Persona) -> Heard:
        model = self.scope.model(persona.id)
        request = self.requests.generation(model, persona, self.payloads.get(persona.id, ""))
        key = f"generate/1/{persona.id}"
        if request.output is None:
            reply = await self.scope.call(request, key=key, role=persona.id, purpose=PROPOSAL)
            return self._proposed(persona, 1, reply.text, reply, reply.finish is FinishReason.LENGTH)
        found = await self._structured(request, key, persona.id, PROPOSAL)
        return self._from_value(persona, 1, found)

    async def _integrate(self, persona: Persona, round: int, state: State) -> Heard:
        challenger = FRAME_CHALLENGER if FRAME_CHALLENGER in state.latest else None
        model = self.scope.model(persona.id)
        ids = [state.latest[member] for member in state.alive]
        shown = self.sight.proposals(ids, model, self.requests.params.spare.integration)
        own = shown[state.latest[persona.id]]
        challenge = None
        if challenger and challenger != persona.id:
            challenge = shown[state.latest[challenger]]
        others = [shown[state.latest[member]] for member in state.alive if member not in (persona.id, challenger)]
        payload = self.again.get(persona.id, "")
        request = self.requests.integration(model, persona, own, challenge, others, round, payload)
        found = await self._structured(request, f"integrate/{round}/{persona.id}", persona.id, PROPOSAL)
        backs = self._named(state).get(str(found.value["backs"]))
        return self._from_value(persona, round, found, backs)

    def _from_value(self, persona: Persona, round: int, found: Structured, backs: str | None = None) -> Heard:
        value = found.value
        if persona.id != FRAME_CHALLENGER:
            items = value.get("evidence", ())
            heard_text = str(value["proposal"])
            return self._proposed(persona, round, heard_text, found.reply, found.truncated, backs=backs, evidence=items)
        parts = {name: str(value[name]).strip() for name in PARTS}
        left_out = [name for name in PARTS if not parts[name]]
        if left_out:
            return _failed(persona.id, f"the Frame Challenger left out {', '.join(left_out)}")
        if "stance" in value:
            parts["stance"] = str(value["stance"])
        text = challenge_text(parts)
        return self._proposed(persona, round, text, found.reply, found.truncated, backs=backs, challenge=parts)

    def _proposed(
        self,
        persona: Persona,
        round: int,
        text: str,
        reply: ModelReply,
        truncated: bool,
        *,
        backs: str | None = None,
        challenge: Mapping[str, str] | None = None,
        evidence: Any = (),
    ) -> Heard:
        text = text.strip()
        if not text:
            return _failed(persona.id, "the reply was empty")
        seat = seats(self.requests.params.team)[persona.id]
        model = reply.model or self.scope.model(persona.id)
        proposal = Proposal(
            id=f"P{seat}.{round}",
            member=persona.id,
            round=round,
            text=text,
            backs=backs,
            model=model,
            truncated=truncated,
            challenge=dict(challenge or {}),
        )
        entries: list[LedgerEntry] = []
        if challenge:
            risk = challenge["failure_scenario"]
            entries.append(LedgerEntry("risk", risk, persona.id, round, (proposal.id,)))
        else:
            entries.append(headline(text, proposal.id, persona.id, round))
        entries += evidence_entries(evidence, proposal.id, persona.id, round, self.task.sources)
        author = self.minutes.proposals[backs].member if backs in self.minutes.proposals else None
        event = Proposed(persona.id, proposal.id, author)
        written = Written.of(reply, self.scope.model(persona.id))
        return Heard(event, proposal=proposal, entries=tuple(entries), model=model, written=written)

    async def _criticise(self, evaluator: Persona, target: str) -> Heard:
        model = self.scope.model(evaluator.id)
        shown = self.sight.proposals([target], model, self.requests.params.spare.critique)
        request = self.requests.critique(model, evaluator, shown[target])
        key = f"critique/{target}/{evaluator.id}"
        found = await self._structured(request, key, evaluator.id, CRITIQUE)
        texts = [str(text).strip() for text in found.value["critiques"]]
        if len(texts) != d.CRITIQUES or not all(texts):
            return _failed(evaluator.id, f"{len(list(filter(None, texts)))} critiques instead of 3", target)
        model = found.reply.model or model
        own = self.minutes.proposals[target].member == evaluator.id
        critiques = tuple(
            Critique(target, evaluator.id, index, text, model, own) for index, text in enumerate(texts, start=1)
        )
        written = Written.of(found.reply, request.model)
        return Heard(Criticised(evaluator.id, target), critiques=critiques, model=model, written=written)

    async def _decide(self, round: int, state: State) -> Heard:
        form, rows = self.requests.form, matrix(self.minutes, state)
        entries = [f"{entry.kind}: {entry.text}" for entry in self.minutes.ledger]
        decider = self.scope.model(DECISION_MAKER)
        seen, entries = self.sight.matrix(rows, entries, decider, self.requests.params.spare.decision)
        request = self.requests.decision(decider, seen, entries)
        found = await self._structured(request, "decide", DECISION_MAKER, DECISION)
        compact, value = form.compact, dict(found.value)
        if compact:
            named = self._named(state)
            value |= {name: named.get(str(value[name]), value[name]) for name in ("chosen", "absorbed_from")}
        model = found.reply.model or request.model
        decision = read_decision(value, [row.id for row in rows], model=model, compact=compact)
        if not decision.answer or decision.chosen not in self.minutes.proposals:
            raise OutputInvalid("The decision has no answer", advice="The best-backed proposal is taken instead.")
        told = decision_entries(value, decision, round, compact=compact)
        cut = found.truncated and not compact  # there the answer is not the last text
        return Heard(Decided(), decision=decision, entries=tuple(told), model=model, truncated=cut)

    async def _wrap_up(self, state: State) -> Heard:
        decider = self.scope.model(DECISION_MAKER)
        spare = self.requests.params.spare.wrap_up
        rows, _ = self.sight.matrix(matrix(self.minutes, state), (), decider, spare)
        request = self.requests.wrap_up(decider, rows)
        reply = await self.scope.call(request, key="wrap-up", role=DECISION_MAKER, purpose=WRAP_UP)
        model = reply.model or request.model
        if not reply.text.strip():
            return _failed(DECISION_MAKER, "the reply was empty")
        # The engine, not the model, says which proposal this rests on: the call asks for text only.
        decision = Decision(best(state), reply.text.strip(), by="wrap-up", model=model)
        cut = reply.finish is FinishReason.LENGTH
        return Heard(Decided(), decision=decision, model=model, truncated=cut)

    @property
    def sight(self) -> Sight:
        """How texts are shown to other members."""
        return Sight(self.requests, Texts.of(self.requests, self.scope), self.minutes)

    def _named(self, state: State) -> dict[str, str]:
        """Ids of the proposals alive by what prompts call them."""
        return {label(proposal, self.requests.form): proposal for proposal in state.latest.values()}

    async def _structured(self, request: ModelRequest, key: str, role: str, purpose: str) -> Structured:
        return await self.scope.call_structured(request, key=key, role=role, purpose=purpose)

    def _persona(self, member: str) -> Persona:
        params = self.requests.params
        return next(persona for persona in (*params.team, *params.judges) if persona.id == member)


def _failed(member: str, why: str, target: str = "") -> Heard:
    who = f"{member} on {target}" if target else member
    return Heard(Failed(member, target), failure=f"{who}: {why}")


def _who(route: Route) -> str:
    what = f" on {route.target}" if route.target else f" in round {route.round}"
    return f"{route.member}, {route.ask}{what}"


def _local(error: BudgetExceeded) -> bool:
    """Whether only this call can't be made: a pool for repairs or retries is empty, or the role's own limit is met."""
    return error.account.rsplit("/", 1)[-1] in ("line:repair", "line:retry") or _of_role(error)


def _of_role(error: BudgetExceeded) -> bool:
    """Whether it is a role's own limit that is met."""
    return error.account.rsplit("/", 1)[-1].startswith("role:")
