"""Guards at the five hook points: what they see, change and refuse, and what stays of it on resume."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import romanesco
from romanesco import HookPoint, Hooks, Outcome, Scope, ScriptedModel, Status, StopReason, Task
from romanesco.errors import Refused
from romanesco.models import FinishReason, ModelReply, ToolCall
from romanesco.testing import Members, NgramEmbedder
from tests.runtime.checks import kinds
from tests.runtime.drive import cut_off, drive, go_on
from tests.runtime.topologies import Plain, done, say
from tests.support import config_in, events_of

FIELD = {
    HookPoint.BEFORE_DECOMPOSE: "goal",
    HookPoint.BEFORE_AGENT: "messages",
    HookPoint.AFTER_MODEL: "text",
    HookPoint.AFTER_SYNTHESIS: "answer",
    HookPoint.BEFORE_UPDATE_PARENT: "answer",
}
POINTS = list(HookPoint)


async def whole(task: Task, scope: Scope) -> Outcome:
    """A topology that passes all five points."""
    answer = await say(scope, task.goal, "ask")
    return done((await scope.hook(HookPoint.AFTER_SYNTHESIS, {"answer": answer}))["answer"])


class Guard:
    """Notes what it sees, and changes or refuses it."""

    def __init__(self, point: HookPoint, act: str) -> None:
        self.point, self.act = point, act
        self.seen: list[dict[str, Any]] = []

    async def __call__(self, data: dict[str, Any], scope: Any) -> dict[str, Any]:
        self.seen.append(data)
        if self.act == "refuse":
            raise Refused("This must not go on", advice="Ask for something else.")
        if self.act == "look":
            return data
        if self.point is HookPoint.BEFORE_AGENT:
            messages = [{**message, "content": message["content"] + " CHANGED"} for message in data["messages"]]
            return {**data, "messages": messages}
        data[FIELD[self.point]] += " CHANGED"  # in place: a change all the same
        return data


def hooks_of(*guards: Guard) -> Hooks:
    hooks = Hooks()
    for number, guard in enumerate(guards):
        hooks.add(guard.point, f"guard-{number}", guard)
    return hooks


@pytest.mark.parametrize("point", POINTS)
async def test_a_guard_sees_what_passes(point: HookPoint, tmp_path: Path) -> None:
    guard = Guard(point, "look")
    outcome = await drive(tmp_path, ScriptedModel("ok"), Plain(whole), hooks=hooks_of(guard))
    assert outcome.answer == "ok"
    assert len(guard.seen) == 1 and guard.seen[0][FIELD[point]]
    events = await events_of(config_in(tmp_path), "r")
    assert kinds(events, "run.created")[0][4]["guards"] == {point.value: ["guard-0"]}
    assert not kinds(events, "hook.acted")


@pytest.mark.parametrize("point", POINTS)
async def test_a_guard_changes_what_passes_and_the_journal_says_so(point: HookPoint, tmp_path: Path) -> None:
    model = ScriptedModel(lambda request: f"echo {request.messages[0].content}")
    two = (Guard(point, "change"), Guard(point, "change"))
    outcome = await drive(tmp_path, model, Plain(whole), hooks=hooks_of(*two))
    assert outcome.answer.count("CHANGED") == 2  # each guard works on what the one before returned
    acted = [data for *_, data in kinds(await events_of(config_in(tmp_path), "r"), "hook.acted")]
    assert [(data["point"], data["guard"]) for data in acted] == [(point, "guard-0"), (point, "guard-1")]


@pytest.mark.parametrize("point", POINTS)
async def test_what_a_guard_refused_stays_refused_on_resume(point: HookPoint, tmp_path: Path) -> None:
    model = ScriptedModel("ok")
    outcome = await drive(tmp_path, model, Plain(whole), hooks=hooks_of(Guard(point, "refuse")))
    assert (outcome.status, outcome.reason, outcome.answer) == (Status.REFUSED, StopReason.REFUSED, "")
    assert "must not go on" in outcome.note
    made = len(model.calls)
    assert made == (0 if point in (HookPoint.BEFORE_DECOMPOSE, HookPoint.BEFORE_AGENT) else 1)
    changed_its_mind = Guard(point, "look")
    resumed = await go_on(tmp_path, model, Plain(whole), hooks=hooks_of(changed_its_mind))
    assert resumed.status is Status.REFUSED and len(model.calls) == made
    assert not changed_its_mind.seen


async def test_no_guards_are_on_record_as_none(tmp_path: Path) -> None:
    await drive(tmp_path, ScriptedModel("ok"), Plain(whole))
    events = await events_of(config_in(tmp_path), "r")
    assert kinds(events, "run.created")[0][4]["guards"] == {}


async def test_a_resume_without_the_guards_is_on_record(tmp_path: Path) -> None:
    here = asyncio.Event()

    async def hang(_request: object) -> str:
        here.set()
        return str(await asyncio.get_running_loop().create_future())

    hooks = hooks_of(Guard(HookPoint.AFTER_MODEL, "look"))
    await cut_off(tmp_path, ScriptedModel(hang), Plain(whole), here, hooks=hooks)
    await go_on(tmp_path, ScriptedModel("ok"), Plain(whole))
    events = await events_of(config_in(tmp_path), "r")
    assert kinds(events, "run.resumed")[0][4]["guards"] == {}


async def test_a_refused_member_costs_its_own_answer_only(tmp_path: Path) -> None:
    class OnlyOne(Guard):
        async def __call__(self, data: dict[str, Any], scope: Any) -> dict[str, Any]:
            if data["role"] == "member-3":
                raise Refused("Not this one")
            return data

    model = ScriptedModel("ok")
    outcome = await drive(tmp_path, model, Members(), hooks=hooks_of(OnlyOne(HookPoint.BEFORE_AGENT, "")))
    assert outcome.status is Status.PARTIAL and len(model.calls) == 7
    assert "round/1/3: (refused)" in outcome.answer


async def test_br_017_an_answer_that_was_cut_short_passes_the_guards_too(tmp_path: Path) -> None:
    async def solve(task: Task, scope: Scope) -> Outcome:
        await scope.offer("a draft with a secret", key="draft")
        raise ValueError("a fault")

    refusing = Guard(HookPoint.BEFORE_UPDATE_PARENT, "refuse")
    outcome = await drive(tmp_path, ScriptedModel("ok"), Plain(solve), hooks=hooks_of(refusing))
    assert refusing.seen[0]["answer"] == "a draft with a secret"
    assert outcome.status is Status.REFUSED and outcome.answer == ""


async def test_the_same_synthesis_may_be_shown_to_the_guards_twice(tmp_path: Path) -> None:
    async def solve(task: Task, scope: Scope) -> Outcome:
        for _ in range(2):
            for text in ("one", "two"):
                shown = await scope.hook(HookPoint.AFTER_SYNTHESIS, {"answer": text})
        return done(shown["answer"])

    hooks = hooks_of(Guard(HookPoint.AFTER_SYNTHESIS, "change"))
    outcome = await drive(tmp_path, ScriptedModel("ok"), Plain(solve), hooks=hooks)
    assert outcome.answer == "two CHANGED"


async def test_a_guard_may_ask_a_model_through_the_scope(tmp_path: Path) -> None:
    async def judge(data: dict[str, Any], scope: Any) -> dict[str, Any]:
        if await say(scope, f"Is {data['answer']} good?", "judge") != "yes":
            raise Refused("It is not good")
        return data

    hooks = Hooks()
    hooks.add(HookPoint.AFTER_SYNTHESIS, "judge", judge)
    # The judge's own call passes no guard of this point, and is paid from the same budget.
    model = ScriptedModel({"ask": "fine", "judge": "yes"})
    outcome = await drive(tmp_path, model, Plain(whole), hooks=hooks)
    assert outcome.answer == "fine" and outcome.spend.calls == 2


@pytest.mark.parametrize("point", [HookPoint.BEFORE_AGENT, HookPoint.AFTER_MODEL])
async def test_what_a_guard_asks_passes_every_guard_but_itself(point: HookPoint, tmp_path: Path) -> None:
    def judge(name: str) -> Any:
        async def ask(data: dict[str, Any], scope: Any) -> dict[str, Any]:
            await say(scope, f"Is it good that {data['key']} is asked?", f"{name} of {data['key']}")
            return data

        return ask

    look, hooks = Guard(point, "look"), Hooks()
    for name, guard in (("a", judge("a")), ("look", look), ("b", judge("b"))):
        hooks.add(point, name, guard)
    outcome = await drive(tmp_path, ScriptedModel("ok"), Plain(whole), hooks=hooks)
    assert outcome.answer == "ok" and outcome.spend.calls == 5
    seen = sorted(data["key"] for data in look.seen)
    assert seen == ["a of ask", "a of b of ask", "ask", "b of a of ask", "b of ask"]


@pytest.mark.parametrize("topology", ["single", "fractal"])
async def test_every_shipped_topology_passes_all_five_points(topology: str, tmp_path: Path) -> None:
    guards = [Guard(point, "look") for point in POINTS]
    guards.append(Guard(HookPoint.AFTER_SYNTHESIS, "change"))
    outcome = await romanesco.run(
        "Sell bread",
        model=ScriptedModel(auto=True),
        topology=topology,
        hooks=hooks_of(*guards),
        embedder=NgramEmbedder(),
        config=config_in(tmp_path),
    )
    assert outcome.status is Status.COMPLETED
    assert outcome.answer.endswith(" CHANGED")
    assert all(guard.seen for guard in guards)


async def test_what_a_guard_refused_is_not_the_best_answer_so_far(tmp_path: Path) -> None:
    # The decision fails, so that the answer is the best-backed proposal, which was offered before.
    outcome = await romanesco.run(
        "Sell bread",
        model=ScriptedModel({"decision-maker": "no JSON at all"}, auto=True),
        hooks=hooks_of(Guard(HookPoint.AFTER_SYNTHESIS, "refuse")),
        embedder=NgramEmbedder(),
        config=config_in(tmp_path),
    )
    assert (outcome.status, outcome.reason, outcome.answer) == (Status.REFUSED, StopReason.REFUSED, "")
    assert outcome.deliberation is None


@pytest.mark.parametrize("point", [HookPoint.AFTER_SYNTHESIS, HookPoint.BEFORE_UPDATE_PARENT])
async def test_a_changed_answer_is_changed_wherever_it_stands(point: HookPoint, tmp_path: Path) -> None:
    outcome = await romanesco.run(
        "Sell bread",
        model=ScriptedModel(auto=True),
        hooks=hooks_of(Guard(point, "change")),
        embedder=NgramEmbedder(),
        config=config_in(tmp_path),
    )
    assert outcome.deliberation is not None and outcome.deliberation.decision is not None
    assert outcome.answer.endswith(" CHANGED")
    assert outcome.deliberation.decision.answer == outcome.answer


async def test_br_122_a_guard_sees_a_value_that_came_as_a_tool_call(tmp_path: Path) -> None:
    call = ToolCall("1", "answer", '{"answer": "SECRET"}')
    model = ScriptedModel(ModelReply("", tool_calls=(call,), finish=FinishReason.TOOL_CALLS))
    guard = Guard(HookPoint.AFTER_MODEL, "look")
    schema = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}
    await romanesco.run(
        "Say it",
        model=model,
        topology="single",
        params={"schema": schema},
        hooks=hooks_of(guard),
        config=config_in(tmp_path),
    )
    assert "SECRET" in guard.seen[0]["text"]
