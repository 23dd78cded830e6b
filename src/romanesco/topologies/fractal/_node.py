"""The driver: feeds the automaton, performs its actions, and journals each decision with its numbers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from romanesco._codec import to_json
from romanesco.errors import BudgetExceeded, EmbeddingFailed, IllegalEvent
from romanesco.task import Outcome, Task
from romanesco.topologies.fractal import _defaults as d
from romanesco.topologies.fractal._automaton import step
from romanesco.topologies.fractal._diversity import Round, curve
from romanesco.topologies.fractal._members import Members
from romanesco.topologies.fractal._minutes import Heard, Minutes, backing, best, deliberation
from romanesco.topologies.fractal._outcome import outcome
from romanesco.topologies.fractal._params import params_from_json
from romanesco.topologies.fractal._requests import Requests
from romanesco.topologies.fractal._state import (
    Action,
    Answered,
    Ask,
    Event,
    Exhausted,
    Measure,
    Measured,
    Missing,
    Query,
    Route,
    Started,
    State,
    Switch,
)
from romanesco.topologies.fractal._stopping import needed
from romanesco.topologies.fractal._team import deal, shown_again

if TYPE_CHECKING:
    from romanesco.runtime import Scope


async def deliberate(task: Task, scope: Scope, *, question: str = "") -> Outcome:
    """Run one node to its end.

    Args:
        task: The task.
        scope: The node's scope.
        question: What a person is asked before the first round, "" for nothing.
    """
    params = params_from_json(scope.plan.params)
    requests = Requests(task.goal, params, tuple(source.name for source in task.sources))
    payloads = deal(params, task.sources, params.payload_chars) if params.payload_chars else {}
    minutes = Minutes(params)
    state = State(
        proposers=tuple(persona.id for persona in params.team),
        evaluators=tuple(persona.id for persona in params.judges),
        stop=params.stop,
        queries=1 if question else 0,
    )
    members = Members(task, scope, requests, payloads, shown_again(payloads, params.again_chars), minutes)
    return await Node(scope, members, minutes, state).run(Missing(question) if question else Started())


@dataclass(slots=True)
class Node:
    """One node at work."""

    scope: Scope
    members: Members
    minutes: Minutes
    state: State

    async def run(self, first: Event) -> Outcome:
        """Drive the automaton from its first event to its end.

        Raises:
            IllegalEvent: Nothing is left to do and the node has not ended: it would wait for ever.
        """
        await self._record_ensemble()
        actions = self._feed([first])
        while self.state.end is None:
            if not actions:
                raise IllegalEvent(
                    f"The node waits in phase '{self.state.phase}' for answers that nobody was asked for",
                    value=", ".join(f"{who} {what}".strip() for who, what in self.state.pending) or "nothing",
                    limit="an action after each batch of events, until the node has ended",
                )
            actions = await self._perform(actions)
        await self._record_end()
        ended = outcome(self.minutes, self.state, self.scope.plan)
        if not ended.answer:
            return ended
        shown = await self.scope.hook("after_synthesis", {"answer": ended.answer})
        from romanesco.runtime import with_answer

        return with_answer(ended, shown["answer"])

    def _feed(self, events: Sequence[Event]) -> tuple[Action, ...]:
        actions: tuple[Action, ...] = ()
        for event in events:
            self.state, actions = step(self.state, event)
        return actions

    async def _perform(self, actions: Sequence[Action]) -> tuple[Action, ...]:
        """Perform one batch of actions, and give the next one."""
        events: list[Event] = []
        routes = [action for action in actions if isinstance(action, Route)]
        for action in actions:
            if isinstance(action, Switch):
                await self._record("switched", to_json(action.verdict), key="switched")
            elif isinstance(action, Measure):
                events.append(await self._measure(action.round))
            elif isinstance(action, Query):
                events.append(await self._query(action.question))
        heard = await self._ask_all(routes)
        for route, one in zip(routes, heard, strict=True):
            self.minutes.note(route.member, one, route.round)
        events.extend(one.event for one in heard)
        following = self._feed(events)
        await self._keep(actions)
        return following

    async def _ask_all(self, routes: Sequence[Route]) -> list[Heard]:
        """Ask members side by side; what they say is taken in routing order, whoever is first."""
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self.members.ask(route, self.state)) for route in routes]
        except BaseExceptionGroup as errors:
            from romanesco.runtime import first_error

            raise first_error(errors) from errors
        return [task.result() for task in tasks]

    async def _query(self, question: str) -> Event:
        """Ask a person and wait, durably; the answer enters the ledger with who gave it."""
        # By the questions that are left, so that a resumed run finds the answer to this one and not to another.
        answer = await self.scope.ask(question, key=f"query/{self.state.queries}")
        self.minutes.answered(question, answer, self.state.round)
        return Answered()

    async def _measure(self, round: int) -> Event:
        """Embed what has no vector yet, and compute diversity and ledger gain of the round."""
        proposals = list(self.minutes.proposals.values())
        new = [proposal for proposal in proposals if proposal.id not in self.minutes.vectors]
        if new:
            try:
                vectors = await self.scope.embed([proposal.text for proposal in new], key=f"embed/{round}")
                self.minutes.vectors.update({one.id: vector for one, vector in zip(new, vectors, strict=True)})
            except EmbeddingFailed as error:
                # The instrument failed: diversity stays unknown, which never counts as saturation or agreement.
                self.minutes.failures.append(f"embedder in round {round}: {error}")
            except BudgetExceeded as error:
                self.minutes.refusal = self.minutes.refusal or error
                return Exhausted("embedder", error.account)
        params = self.minutes.params
        rounds = [self._vectors(number) for number in range(1, round + 1)]
        self.minutes.diversity = curve(rounds, switch=params.switch, threshold=params.tau_sat)
        return Measured(self.minutes.diversity[-1].ratio, self.minutes.added.get(round, 0.0))

    def _vectors(self, round: int) -> Round:
        found = [self.minutes.vectors.get(proposal.id) for proposal in self.minutes.of_round(round)]
        known = [vector for vector in found if vector is not None]
        return known if len(known) == len(found) else None

    # ---- records and offers -----------------------------------------------------------------------------------

    async def _record(self, kind: str, data: dict[str, Any], *, key: str) -> None:
        await self.scope.record(f"fractal.{kind}", data, key=key)

    async def _keep(self, actions: Sequence[Action]) -> None:
        """Journal what a finished batch decided, and offer the best answer so far."""
        kinds = {action.ask for action in actions if isinstance(action, Route)}
        if any(isinstance(action, Measure) for action in actions) and self.state.verdicts:
            await self._record_round()
        if kinds & {Ask.GENERATE, Ask.INTEGRATE}:
            await self._offer(f"round/{self.state.round}", f"after round {self.state.round}, before any critique")
        if Ask.CRITICISE in kinds:
            await self._record_matrix()
            await self._offer("critique", "after the critiques, before the decision")

    async def _offer(self, key: str, when: str) -> None:
        chosen = best(self.state)
        if chosen:
            note = f"Best-backed proposal {chosen} {when}."
            record = deliberation(self.minutes, self.state)
            await self.scope.offer(self.minutes.proposals[chosen].text, key=key, note=note, deliberation=record)

    async def _record_ensemble(self) -> None:
        params = self.minutes.params
        known = params.distance is not None
        await self._record(
            "ensemble",
            {
                "proposers": [persona.id for persona in params.team],
                "evaluators": [persona.id for persona in params.judges],
                "distance": params.distance,
                "delta": params.delta,
                "admissible": known and (params.distance or 0.0) >= params.delta,
                "separation": "not applicable" if params.evaluators_propose else "generators and evaluators differ",
                "style": params.style,
            },
            key="ensemble",
        )

    async def _record_round(self) -> None:
        verdict = self.state.verdicts[-1]
        number = verdict.round
        proposals = self.minutes.of_round(number)
        spoke = {proposal.member for proposal in proposals}
        tests = [asdict(test) for test in verdict.tests]
        await self._record(
            "round",
            {
                "round": number,
                "proposals": [
                    {"id": one.id, "member": one.member, "backs": one.backs, "truncated": one.truncated}
                    for one in proposals
                ],
                "silent": [member for member in self.state.proposers if member not in spoke],
                "diversity": to_json(self.minutes.diversity[-1]),
                "ledger_gain": self.state.gains[-1],
                "tests": tests,
                "stop": verdict.reason,
            },
            key=f"round/{number}",
        )
        if number > 1:
            await self._record_consensus(number, len(spoke))

    async def _record_consensus(self, round: int, received: int) -> None:
        eligible = len(self.state.proposers)
        ballots = {
            member: {"named": self.minutes.proposals[self._latest_of(member, round)].backs, "author": author}
            for member, (author, when) in self.state.ballots.items()
            if when == round
        }
        test = self.state.verdicts[-1].tests[0]
        await self._record(
            "consensus",
            {
                "round": round,
                "ballots": ballots,
                "backers": test.value,
                "needed": needed(self.state.stop.quorum, eligible),
                "eligible": eligible,
                "received": len(ballots),
                "failed": eligible - received,
                "reached": test.met,
                "leader": self.state.verdicts[-1].leader,
            },
            key=f"consensus/{round}",
        )

    def _latest_of(self, member: str, round: int) -> str:
        return next(one.id for one in self.minutes.of_round(round) if one.member == member)

    async def _record_matrix(self) -> None:
        asked = len(self.state.alive) * len(self.state.evaluators) * d.CRITIQUES
        await self._record(
            "critique_matrix",
            {
                "proposals": [self.state.latest[member] for member in self.state.alive],
                "evaluators": list(self.state.evaluators),
                "expected": asked,
                "received": len(self.minutes.critiques),
                "critiques": [[one.proposal, one.evaluator, one.index, one.own] for one in self.minutes.critiques],
            },
            key="critique_matrix",
        )

    async def _record_end(self) -> None:
        entries = [to_json(entry) for entry in self.minutes.ledger]
        await self._record("ledger", {"entries": entries}, key="ledger")
        chosen = best(self.state)
        decision = self.minutes.decision
        await self._record(
            "decision",
            {
                "end": str(self.state.end),
                "decision": to_json(decision) if decision else None,
                "best_backed": chosen,
                "backing": backing(self.state),
                "account": self.state.account,
            },
            key="decision",
        )
