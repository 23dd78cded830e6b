"""Planning a FRACTAL node: style and caps by the window, the ensemble, the payloads, and the bill inside the budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from romanesco.errors import InputError, PlanRefused
from romanesco.models import Message, ModelRequest
from romanesco.personas import Persona, builtin_personas, load_personas
from romanesco.task import Bill, Plan, Task
from romanesco.topologies._billing import (
    FILLER,
    CallBound,
    excess,
    readable,
    room,
    shown,
    told_limit,
    without_pools,
)
from romanesco.topologies.fractal import _defaults as d
from romanesco.topologies.fractal._bill import NodeCalls, bill, integration_bound, node_calls
from romanesco.topologies.fractal._params import Params, Spare, parse_params
from romanesco.topologies.fractal._requests import Requests
from romanesco.topologies.fractal._state import DECISION_MAKER
from romanesco.topologies.fractal._team import SHORTEST_PAYLOAD, best_team, coverage, deal, shown_again, styled

if TYPE_CHECKING:
    from romanesco.runtime import PlanningDesk

NAME = "fractal"


@dataclass(frozen=True, slots=True)
class Draft:
    """A node of one size, with the bounds of its calls and the windows of its models."""

    params: Params
    calls: NodeCalls
    windows: Mapping[str, int]
    reasons: tuple[str, ...]

    def overflow(self) -> tuple[int, CallBound]:
        """By how many tokens the largest call is over its model's window, and that call; 0 or less fits."""
        return max(
            ((call.needs - self.windows[call.model], call) for call in self.calls.each),
            key=lambda pair: pair[0],
        )


def _spare(calls: NodeCalls, windows: Mapping[str, int]) -> Spare:
    """What the fullest prompt of each kind leaves of its model's window; nothing where it does not fit at all."""

    def least(bounds: Sequence[CallBound]) -> int:
        return max(0, min(windows[call.model] - call.needs for call in bounds))

    return Spare(least(calls.integration), least(calls.critique), least([calls.decision]), least([calls.wrap_up]))


async def make_plan(task: Task, desk: PlanningDesk) -> Plan:
    """Plan a node.

    Raises:
        InputError: A parameter is wrong.
        PlanRefused: No node fits the model's window, or the budget can't carry the cheapest one.
        ConfigError: A money limit with an unknown price.
    """
    asked = parse_params(task.params)
    planner = _Planner(task, desk, asked)
    sizes = [asked.k] if "k" in task.params else list(range(asked.k, d.K_MIN - 1, -1))
    await planner.check_goal()
    drafts = await planner.drafts(sizes)
    fitting = [draft for draft in drafts if draft.overflow()[0] <= 0]
    if not fitting:
        raise await planner.too_large(drafts[0])
    reasons = []
    if len(fitting) < len(drafts):
        over, call = drafts[0].overflow()
        reasons.append(
            f"k lowered from {asked.k} to {fitting[0].params.k}: the largest prompt ({call.purpose}) would be {over:,} "
            f"tokens over the window of {call.model}."
        )
    return await _inside_budget(task, planner, fitting, reasons)


async def _inside_budget(task: Task, planner: _Planner, drafts: Sequence[Draft], reasons: list[str]) -> Plan:
    """The first node, rounds lowered first and then k, whose bill is inside the budget."""
    asked, budget = planner.asked, planner.desk.budget
    lowest = asked.rounds if "rounds" in task.params else 1
    first = bill(drafts[0].calls, asked.rounds)
    for draft in drafts:
        for rounds in range(asked.rounds, lowest - 1, -1):
            candidate = bill(draft.calls, rounds)
            if not excess(candidate, budget):
                return _plan(draft, rounds, candidate, [*reasons, *_shrunk(drafts[0], draft, rounds, first, planner)])
    draft = drafts[-1]
    smallest = bill(draft.calls, lowest)
    cheapest = await planner.cheapest(draft)
    if excess(cheapest, budget):
        raise await planner.too_dear(cheapest)
    dimension, value, limit = excess(smallest, budget)[0]
    told = (
        f"The worst case is {shown(dimension, value)} and {told_limit(planner.desk, dimension, limit)}: the run may "
        "end with a labelled partial answer."
    )
    reasons = [*reasons, *_shrunk(drafts[0], draft, lowest, first, planner), told]
    return replace(_plan(draft, lowest, smallest, reasons), fits=False)


def _shrunk(start: Draft, draft: Draft, rounds: int, first: Bill, planner: _Planner) -> list[str]:
    changes = []
    if rounds < planner.asked.rounds:
        changes.append(f"rounds lowered from {planner.asked.rounds} to {rounds}")
    if draft.params.k < start.params.k:
        changes.append(f"k lowered from {start.params.k} to {draft.params.k}")
    if not changes:
        return []
    dimension, value, limit = excess(first, planner.desk.budget)[0]
    bound = f"the worst case would be {shown(dimension, value)}, {told_limit(planner.desk, dimension, limit)}"
    return [f"{' and '.join(changes)}: {bound}."]


def _plan(draft: Draft, rounds: int, worst: Bill, reasons: Sequence[str]) -> Plan:
    params = replace(draft.params, rounds=rounds, spare=_spare(draft.calls, draft.windows))
    size = f"{params.k} members, {rounds} round{'s' if rounds > 1 else ''} at most, 2 x 3 critiques of each proposal."
    return Plan(NAME, worst, params.to_json(), (size, *draft.reasons, *reasons))


@dataclass(slots=True)
class _Planner:
    """Drafts nodes of a task and words its refusals."""

    task: Task
    desk: PlanningDesk
    asked: Params

    async def check_goal(self) -> None:
        """Refuse a goal that fills the window by itself, with one count instead of dozens of a huge text."""
        model = self.desk.model(DECISION_MAKER)
        window = await self.desk.window(model)
        limit = d.UNKNOWN_WINDOW if window is None else window
        request = ModelRequest(model, (Message("user", self.task.goal),), max_output_tokens=1)
        needs = room(request, await self.desk.count(request))
        if needs > limit:
            raise PlanRefused(
                f"The goal alone is larger than the window of {model}",
                value=f"{needs:,} tokens",
                limit=f"{limit:,} tokens",
                advice="Shorten the goal; long texts go into --source files, which are shared out among the members.",
            )

    async def draft(self, k: int) -> Draft:
        """A node with ``k`` proposers, whether or not it fits."""
        params, reasons = self._ensemble(replace(self.asked, k=k))
        windows = await self._windows(params)
        params, why = styled(params, windows)
        requests = Requests(self.task.goal, params, tuple(source.name for source in self.task.sources))
        params, payloads, told = await self._payloads(params, requests, windows)
        params, again, left_out = await self._again(params, replace(requests, params=params), payloads, windows)
        calls = await node_calls(replace(requests, params=params), self.desk, payloads, again)
        unknown = [
            f"The window of {model} is unknown; planned for {d.UNKNOWN_WINDOW:,} tokens."
            for model, window in windows.items()
            if window is None
        ]
        known = {model: d.UNKNOWN_WINDOW if window is None else window for model, window in windows.items()}
        return Draft(params, calls, known, (*reasons, why, *unknown, *told, *left_out))

    async def drafts(self, sizes: Sequence[int]) -> list[Draft]:
        """A node of each size, largest first, as far as the required personas find a seat."""
        drafts = [await self.draft(sizes[0])]
        for k in sizes[1:]:
            try:
                drafts.append(await self.draft(k))
            except InputError:
                break  # required personas need more seats; the sizes asked for before it stand
        return drafts

    async def cheapest(self, draft: Draft) -> Bill:
        """The bill of the cheapest node of this task, if nothing goes wrong.

        It has k = 3, or as many as personas are required, and one round.
        """
        smaller = list(range(draft.params.k, d.K_MIN - 1, -1))
        return without_pools(bill((await self.drafts(smaller))[-1].calls, 1))

    def _ensemble(self, params: Params) -> tuple[Params, list[str]]:
        library = load_personas(params.personas) if params.personas else builtin_personas()
        ensemble = best_team(library, params)
        distance = ensemble.min_distance
        names = ", ".join(persona.id for persona in ensemble.proposers)
        told = "unknown" if distance is None else f"{distance:.2f}"
        verdict = "" if ensemble.admissible else ", which is NOT admissible; the run goes on as configured"
        reasons = [f"Proposers {names}: least declared distance {told}, delta {params.delta:g}{verdict}."]
        for persona in (*ensemble.proposers, *ensemble.evaluators):
            model = self.desk.model(persona.id)
            if persona.model and persona.model != model:
                # Models are configured by role, so that all of them are known before the run; a wish is only told.
                reasons.append(f"{persona.id} prefers {persona.model} and gets {model}, which is configured for it.")
        team = replace(params, team=ensemble.proposers, judges=ensemble.evaluators, distance=distance)
        return team, reasons

    async def _windows(self, params: Params) -> dict[str, int | None]:
        names = [self.desk.model(persona.id) for persona in (*params.team, *params.judges)]
        models = dict.fromkeys([*names, self.desk.model(DECISION_MAKER)])
        return {model: await self.desk.window(model) for model in models}

    async def _payloads(
        self, params: Params, requests: Requests, windows: Mapping[str, int | None]
    ) -> tuple[Params, dict[str, str], list[str]]:
        """Deal the sources into the room that the window leaves to each member's first prompt."""
        sources = self.task.sources
        if not any(source.text.strip() for source in sources):
            return params, {}, []
        chars = readable(sources, min(windows[self.desk.model(one.id)] or d.UNKNOWN_WINDOW for one in params.team))
        while chars >= SHORTEST_PAYLOAD:
            payloads = deal(params, sources, chars)
            worst = min([await self._share_that_fits(requests, one, payloads[one.id], windows) for one in params.team])
            if worst >= 1.0:
                return replace(params, payload_chars=chars), payloads, [coverage(params, sources, chars)]
            longest = max(len(text) for text in payloads.values())
            chars = int(min(chars - 1, longest * worst * 0.97))
        raise PlanRefused(
            "The window leaves no room for the sources beside goal and prompt",
            value=f"goal of {len(self.task.goal)} characters",
            limit=f"{min(w or d.UNKNOWN_WINDOW for w in windows.values()):,} tokens",
            advice="Shorten the goal, leave the sources out, or use a model with a larger window.",
        )

    async def _share_that_fits(
        self, requests: Requests, persona: Persona, payload: str, windows: Mapping[str, int | None]
    ) -> float:
        """Which part of a payload fits beside the rest of the member's first prompt, 0 to 1."""
        request = requests.generation(self.desk.model(persona.id), persona, payload)
        window = windows[request.model] or d.UNKNOWN_WINDOW
        needs = room(request, await self.desk.count(request))
        if needs <= window:
            return 1.0
        bare = requests.generation(request.model, persona, FILLER)
        fixed = room(bare, await self.desk.count(bare))
        return max(0, window - fixed) / max(1, needs - fixed)

    async def _again(
        self,
        params: Params,
        requests: Requests,
        payloads: Mapping[str, str],
        windows: Mapping[str, int | None],
    ) -> tuple[Params, dict[str, str], list[str]]:
        """How much of its own payload each proposer sees again in later rounds: what the window leaves room for."""
        longest = max((len(text) for text in payloads.values()), default=0)
        if not longest or params.rounds == 1:
            return params, {}, []
        if not params.reread:
            return params, {}, ["Later rounds are without the sources, as asked (reread)."]
        chars = longest
        while chars >= SHORTEST_PAYLOAD:
            again = shown_again(payloads, chars)
            share = min([await self._share_again(requests, seat, again, windows) for seat in range(len(params.team))])
            if share >= 1.0:
                told = f"Later rounds show each proposer its own part of the sources again, {min(chars, longest):,} of "
                told += f"at most {longest:,} characters: the window has no room for more."
                return replace(params, again_chars=chars), again, [told] if chars < longest else []
            chars = int(min(chars - 1, chars * share * 0.97))
        return params, {}, ["Later rounds are without the sources: the window has no room for them."]

    async def _share_again(
        self, requests: Requests, seat: int, again: Mapping[str, str], windows: Mapping[str, int | None]
    ) -> float:
        """Which part of what is shown again fits beside the rest of a member's later prompt, 0 to 1."""
        call = await integration_bound(requests, self.desk, seat, again)
        window = windows[call.model] or d.UNKNOWN_WINDOW
        if call.needs <= window:
            return 1.0
        bare = await integration_bound(requests, self.desk, seat, {})
        return max(0, window - bare.needs) / max(1, call.needs - bare.needs)

    async def too_large(self, draft: Draft) -> PlanRefused:
        """The refusal for a window that is too small, with what would fit."""
        over, call = draft.overflow()
        advice = []
        names = ("proposal_tokens", "critique_tokens", "decision_tokens")
        caps = " or ".join(name for name in names if getattr(self.asked, name))
        smaller = draft
        for smaller in await self.drafts(range(draft.params.k, d.K_MIN - 1, -1)):
            if smaller.overflow()[0] <= 0:
                advice.append(f"k = {smaller.params.k} would fit.")
                break
        else:
            goal = max(1, smaller.overflow()[0])
            even = f"Even k = {smaller.params.k} is {goal:,} tokens over:"
            if goal >= len(self.task.goal.encode()):  # no goal is so long: something else fills the window
                what = f"lower {caps}" if caps else "give shorter texts"
                advice.append(f"{even} {what}, or use a model with a larger window.")
                caps = ""
            else:
                advice.append(f"{even} shorten the goal by so many, or use a model with a larger window.")
        if caps:
            advice.append(f"A smaller {caps} would help too.")
        return PlanRefused(
            f"The largest prompt ({call.purpose}, k = {draft.params.k}) with its reply is larger than the window of "
            f"{call.model}",
            value=f"{call.needs:,} tokens at most",
            limit=f"{call.needs - over:,} tokens",
            advice=" ".join(advice),
        )

    async def too_dear(self, cheapest: Bill) -> PlanRefused:
        """The refusal for a budget that can't carry the cheapest node."""
        dimension, value, limit = excess(cheapest, self.desk.budget)[0]
        advice = f"The cheapest node (k = 3, 1 round) needs {shown(dimension, value)} at most."
        if await self._single_fits():
            advice += " The topology 'single' would fit: --topology single."
        account = self.desk.account(dimension)
        whose = f"What the account {account} has left" if account else "The budget"
        return PlanRefused(
            f"{whose} is smaller than the cheapest plan's bill ({dimension})",
            value=shown(dimension, limit),
            limit=f"at least {shown(dimension, value)}",
            advice=advice,
        )

    async def _single_fits(self) -> bool:
        from romanesco.runtime import Topologies  # by name, as topologies never import each other

        try:
            plan = await Topologies()["single"].plan(replace(self.task, params={}), self.desk)
        except InputError:
            return False
        return bool(plan.bill.lines)
