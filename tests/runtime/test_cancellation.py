"""Cancelled at any moment, once or twice, a run leaves nothing reserved, no slot taken and no task behind."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from romanesco import Outcome, Scope, ScriptedModel, Status, Task
from romanesco.errors import RateLimited, ServerFault
from romanesco.journal import verify
from romanesco.models import ModelPool, ModelRequest
from romanesco.runtime import Parts, RetryPolicy, RunSpec, Topologies, read_events, resume, start
from romanesco.runtime._stops import Stops
from romanesco.task import Budget
from romanesco.testing import Members, MemoryEngine, MemoryStore, NgramEmbedder
from tests.runtime.checks import at_rest, finished_keys, kinds
from tests.runtime.drive import drive
from tests.runtime.topologies import Plain, done, say
from tests.support import config_in, events_of

PARAMS = {"members": 4, "rounds": 2}


def parts_of(store: MemoryStore, model: ScriptedModel) -> Parts:
    pool = ModelPool({})
    pool.add(model)
    return Parts(store, pool, NgramEmbedder(), Topologies([Members()]), engine=MemoryEngine(3, 3))


def troubled() -> ScriptedModel:
    return ScriptedModel({
        "member-0": [ServerFault("down"), RateLimited("slow", retry_after=0.0), "ok", "ok"],
        "member-1": [RateLimited("slow", retry_after=0.001), "ok", "ok"],
        "round/*": "ok",
    })


@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("block", range(4))
async def test_cancelling_at_every_step_of_the_loop(block: int, twice: bool) -> None:
    """Rounds of the loop ``40 * block + 1`` to ``40 * block + 40``."""
    spec = RunSpec(
        "r",
        Task("g", params=PARAMS),
        "members",
        {"default": "scripted:test"},
        # As little as it needs, so that some wait for the budget and for a slot.
        budget=Budget(tokens=700, calls=20),
        concurrency=2,
        retry=RetryPolicy(base=0.0001, cap=0.001),
    )
    for rounds in range(40 * block + 1, 40 * block + 41):
        store, before = MemoryStore(), asyncio.all_tasks()
        session = await start(spec, parts_of(store, troubled()))
        driving = asyncio.ensure_future(session.drive())
        for _ in range(rounds):
            await asyncio.sleep(0)
        driving.cancel()
        if twice:
            await asyncio.sleep(0)
            driving.cancel()
        await asyncio.wait([driving])
        at_rest(session)
        assert asyncio.all_tasks() <= before
        at_kill = await read_events(store, "r")
        outcome = await (again := await resume("r", parts_of(store, ScriptedModel("ok")))).drive()
        at_rest(again)
        assert outcome.status is Status.COMPLETED, (rounds, outcome.note)
        later = {
            (node, key)
            for _, kind, node, key, _ in (await read_events(store, "r"))[len(at_kill) :]
            if kind == "call.started"
        }
        assert later.isdisjoint(finished_keys(at_kill))
        assert (await verify(store, "r")).ok


async def test_a_topology_may_give_up_waiting_for_a_call(tmp_path: Path) -> None:
    both_sent = asyncio.Event()

    async def answer(request: ModelRequest) -> str:
        if "hello" in str(request):
            if len(model.calls) == 2:
                both_sent.set()
            await asyncio.Event().wait()
        return "ok"

    async def solve(task: Task, scope: Scope) -> Outcome:
        async with asyncio.TaskGroup() as group:
            slow = [group.create_task(say(scope, "hello", f"slow/{number}")) for number in range(3)]
            await both_sent.wait()
            for call in slow:
                call.cancel()
        assert all(call.cancelled() for call in slow)
        return done(await say(scope, "after", "after"))

    model = ScriptedModel(answer)
    outcome = await drive(
        tmp_path, model, Plain(solve), budget=Budget(calls=4), config=config_in(tmp_path, concurrency=2)
    )
    assert outcome.status is Status.COMPLETED and outcome.answer == "ok"
    # Two were sent and may have been paid for; the third waited for a slot and was not.
    assert outcome.spend.calls == 3 and outcome.spend.estimated
    failed = kinds(await events_of(config_in(tmp_path), "r"), "call.failed")
    assert [data["error"] for *_, data in failed] == ["interrupted"] * 2


async def test_a_topology_whose_task_group_breaks_ends_its_calls(tmp_path: Path) -> None:
    async def solve(task: Task, scope: Scope) -> Outcome:
        async def bad() -> Any:
            await say(scope, "quick", "quick")
            raise ValueError("a fault of the topology")

        async with asyncio.TaskGroup() as group:
            group.create_task(bad())
            for number in range(3):
                group.create_task(say(scope, "hello", f"slow/{number}"))
        raise AssertionError("never")

    all_sent = asyncio.Event()

    async def answer(request: ModelRequest) -> str:
        if len(model.calls) == 4:
            all_sent.set()
        await (asyncio.Event() if "hello" in str(request) else all_sent).wait()
        return "ok"

    model = ScriptedModel(answer)
    outcome = await drive(tmp_path, model, Plain(solve))
    assert outcome.status is Status.FAILED and "a fault of the topology" in outcome.note
    assert outcome.spend.calls == 4 and model.in_flight == 0


@pytest.mark.parametrize("times", [1, 3])
async def test_a_cancelled_waiter_lets_go_of_its_work_when_that_has_ended(times: int) -> None:
    stops, begun = Stops(), asyncio.Event()
    ended: list[str] = []

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append("work")

    waiter = asyncio.create_task(stops.guard("/", work()))
    await begun.wait()
    for _ in range(times):
        waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    assert ended == ["work"]
    await stops.stop("/", "nothing is left to wait for")
