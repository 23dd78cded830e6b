"""A resumed run that asks for something else than it did before is told so, and spends nothing on it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import romanesco
from romanesco import Outcome, Scope, ScriptedModel, Status, StopReason, Task
from romanesco.errors import Diverged
from romanesco.testing import Chain, Members
from tests.runtime.checks import killed_after, kinds, verified
from tests.runtime.drive import again, cut_off, drive, go_on
from tests.runtime.topologies import Plain, done, say
from tests.support import config_in, events_of


def asks(first: str) -> Plain:
    async def solve(task: Task, scope: Scope) -> Outcome:
        await say(scope, first, "first")
        return done(await say(scope, "second", "second"))

    return Plain(solve)


async def cut_at_second(folder: Path, topology: Plain) -> None:
    """A run whose process dies while the second call is in flight."""
    here = asyncio.Event()

    async def reply(_request: object) -> str:
        here.set()
        return str(await asyncio.get_running_loop().create_future())

    await cut_off(folder, ScriptedModel({"first": "one", "second": reply}), topology, here)


async def test_a_changed_prompt_under_the_same_key_is_a_divergence(tmp_path: Path) -> None:
    await cut_at_second(tmp_path, asks("one way"))
    model = ScriptedModel("never asked")
    with pytest.raises(Diverged, match="first") as caught:
        await romanesco.resume("r", model=model, topologies=[asks("another way")], config=config_in(tmp_path))
    assert caught.value.exit_code == 9 and caught.value.reason is StopReason.DIVERGED
    assert not model.calls
    await verified(config_in(tmp_path))
    assert not kinds(await events_of(config_in(tmp_path), "r"), "run.ended")
    outcome = await go_on(tmp_path, ScriptedModel("two"), asks("one way"))  # nothing was lost by trying
    assert outcome.status is Status.COMPLETED and outcome.answer == "two"


@pytest.mark.parametrize("goal", ["another goal", "say something"])
async def test_a_topology_that_catches_its_members_errors_does_not_swallow_a_divergence(
    goal: str, tmp_path: Path
) -> None:
    model = ScriptedModel("ok")
    here = asyncio.Event()

    async def slow(_request: object) -> str:
        here.set()
        return str(await asyncio.get_running_loop().create_future())

    await cut_off(
        tmp_path, ScriptedModel({"round/1/*": "ok", "round/2/*": slow}), Members(), here, params={"rounds": 2}
    )

    class Changed(Members):
        async def solve(self, task: Task, scope: Scope) -> Outcome:
            return await super().solve(Task(goal, params=task.params), scope)

    if goal == "say something":
        assert (await go_on(tmp_path, model, Changed())).status is Status.COMPLETED
        return
    with pytest.raises(Diverged):
        await romanesco.resume("r", model=model, topologies=[Changed()], config=config_in(tmp_path))
    assert not model.calls


async def test_a_key_that_is_used_twice_is_an_error(tmp_path: Path) -> None:
    async def solve(task: Task, scope: Scope) -> Outcome:
        await say(scope, "one", "same")
        return done(await say(scope, "two", "same"))

    model = ScriptedModel("ok")
    with pytest.raises(Diverged, match="one step key twice"):
        await romanesco.run("g", model=model, topology=Plain(solve), config=config_in(tmp_path))
    assert len(model.calls) == 1


async def test_a_child_with_another_task_is_a_divergence(tmp_path: Path) -> None:
    def parent(goal: str) -> Plain:
        async def solve(task: Task, scope: Scope) -> Outcome:
            if scope.node != "/":
                return done(await say(scope, task.goal, "ask"))
            child = await scope.spawn("plain", Task(goal), key="child")
            return done(child.answer + await say(scope, "second", "second"))

        return Plain(solve)

    here = asyncio.Event()

    async def hang(_request: object) -> str:
        here.set()
        return str(await asyncio.get_running_loop().create_future())

    await cut_off(tmp_path, ScriptedModel({"ask": "one", "second": hang}), parent("this"), here)
    model = ScriptedModel("two")
    with pytest.raises(Diverged, match="spawn:child"):
        await romanesco.resume("r", model=model, topologies=[parent("that")], config=config_in(tmp_path))
    assert not model.calls
    assert (await go_on(tmp_path, model, parent("this"))).answer == "onetwo"


async def test_a_resumed_child_keeps_the_plan_that_it_had(tmp_path: Path) -> None:
    class Planned(Plain):
        number = 0

        async def plan(self, task: Task, desk: Any) -> Any:
            Planned.number += 1
            plan = await super().plan(task, desk)
            return romanesco.Plan(plan.topology, plan.bill, {"number": Planned.number})

    async def solve(task: Task, scope: Scope) -> Outcome:
        if scope.node == "/":
            return done((await scope.spawn("plain", task, key="child")).answer)
        await say(scope, f"plan {scope.plan.params['number']}", "first")
        return done(await say(scope, f"plan {scope.plan.params['number']}", "second"))

    await cut_at_second(tmp_path, Planned(solve))
    outcome = await go_on(tmp_path, ScriptedModel("two"), Planned(solve))
    assert outcome.answer == "two"


async def test_replay_gives_the_outcome_again_without_a_model(tmp_path: Path) -> None:
    live = await drive(tmp_path, ScriptedModel("ok"), Chain())
    before = await events_of(config_in(tmp_path), "r")
    replayed = await again(tmp_path, Chain())
    assert (replayed.status, replayed.answer, replayed.spend) == (live.status, live.answer, live.spend)
    assert await events_of(config_in(tmp_path), "r") == before


async def test_replay_of_a_run_whose_last_step_failed_fails_the_same(tmp_path: Path) -> None:
    model = ScriptedModel({"step/0": "one", "step/1": romanesco.ModelError("The server is gone")})
    live = await drive(tmp_path, model, Chain())
    assert live.status is Status.PARTIAL and live.reason is StopReason.MODEL
    replayed = await again(tmp_path, Chain())
    assert (replayed.status, replayed.reason, replayed.answer) == (live.status, live.reason, live.answer)
    assert replayed.note == live.note


async def test_replay_of_a_stopped_run_ends_where_the_run_did(tmp_path: Path) -> None:
    here = asyncio.Event()

    async def hang(_request: object) -> str:
        here.set()
        return str(await asyncio.get_running_loop().create_future())

    async with romanesco.open_run(
        "say something",
        model=ScriptedModel({"step/0": "one", "step/1": hang}),
        topology=Chain(),
        config=config_in(tmp_path),
        run="r",
    ) as run:
        await here.wait()
        await run.stop()
        live = await run.outcome()
    replayed = await again(tmp_path, Chain())
    assert (replayed.status, replayed.reason, replayed.answer, replayed.note) == (
        live.status,
        live.reason,
        live.answer,
        live.note,
    )


async def test_replay_of_a_killed_run_says_to_resume_it(tmp_path: Path) -> None:
    await cut_at_second(tmp_path, asks("one"))
    with pytest.raises(Diverged, match="Resume the run instead"):
        await again(tmp_path, asks("one"))


async def test_a_child_that_ended_is_not_run_again(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    solved: list[str] = []

    async def solve(task: Task, scope: Scope) -> Outcome:
        solved.append(task.goal)
        if task.goal == "below":
            return done(await say(scope, "hello", "call"))
        child = await scope.spawn("plain", Task("below"), key="child")
        await say(scope, "then", "after")
        return done(child.answer)

    topology, model = Plain(solve), ScriptedModel("ok")
    await romanesco.run("g", model=model, topology=topology, config=config, run="r")
    (at,) = [seq for seq, kind, *_ in await events_of(config, "r") if kind == "node.ended"]
    killed_after(config, at)
    outcome = await romanesco.resume("r", model=model, topologies=[topology], config=config)
    assert outcome.answer == "ok" and solved == ["g", "below", "g"]
    assert len(kinds(await events_of(config, "r"), "node.ended")) == 1
