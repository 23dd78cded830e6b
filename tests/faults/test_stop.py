"""Stop is a barrier: after its acknowledgement no request of what was stopped reaches a server."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

import romanesco
from romanesco import Budget, Outcome, Scope, ScriptedModel, Status, StopReason, Task
from romanesco._run import Run
from romanesco.journal import Command
from romanesco.models import ModelRequest, TokenCount
from romanesco.runtime import _supervise
from romanesco.testing import FakeReply, FakeServer, Fault, Members, Rule, Scenario, Tree
from tests.runtime.checks import check_run, kinds, nothing_left_behind
from tests.runtime.processes import Forker
from tests.runtime.steer import command, deserted, going_on, other_process, questions, requests, settled, until
from tests.runtime.topologies import Plain, done, say
from tests.support import config_in, events_of

STREAMING = Scenario(default=FakeReply(text="word " * 12, fault=Fault(interval=0.02)))
MIDWAY = Scenario(default=FakeReply(text="word " * 12, fault=Fault(stall=float("inf"), stall_after=3)))
STALLED = Scenario(default=FakeReply(fault=Fault(stall=float("inf"))))
LATER = 0.15
"""Seconds that are waited for a request that must not come."""


async def none_after(server: FakeServer, moment: float, match: str = "") -> None:
    """No request with this text came after a moment (see ``settled``), nor comes."""
    await asyncio.sleep(LATER)
    assert not [entry for entry in server.ledger.requests if entry.arrived > moment and match in entry.prompt]


async def test_br_089_a_stop_in_the_middle_of_streams_closes_the_connections(tmp_path: Path) -> None:
    async def streaming() -> bool:
        return sum(entry.tokens_out > 0 for entry in server.ledger.requests) == 8

    async with FakeServer(scenario=MIDWAY) as server:
        async with going_on(server, tmp_path, Members()) as run:
            await until(streaming)
            await run.stop()
            stopped = await settled(server)
            outcome = await run.outcome()
            await none_after(server, stopped)
        await deserted(server)
        assert server.ledger.in_flight == 0
        assert all(entry.disconnected for entry in server.ledger.requests)
    assert (outcome.status, outcome.reason) == (Status.CANCELLED, StopReason.STOPPED)
    assert outcome.spend.calls == 8 and outcome.spend.estimated
    events = await events_of(config_in(tmp_path), "r")
    assert {data["error"] for *_, data in kinds(events, "call.failed")} == {"interrupted"}  # BR-041


async def test_a_stop_before_the_first_call_lets_nothing_out(tmp_path: Path) -> None:
    async with FakeServer() as server:
        async with going_on(server, tmp_path, Members()) as run:
            await run.stop()
            outcome = await run.outcome()
        assert not server.ledger.requests
    assert outcome.status is Status.CANCELLED and outcome.spend.calls == 0


async def test_two_stops_at_once_both_mean_it(tmp_path: Path) -> None:
    async with FakeServer(scenario=STREAMING) as server:
        async with going_on(server, tmp_path, Members(), params={"rounds": 3}) as run:
            await requests(server, 8)
            async with asyncio.TaskGroup() as group:
                group.create_task(run.stop("one"))
                group.create_task(run.stop("two"))
            stopped = await settled(server)
            outcome = await run.outcome()
            await run.stop("three")
            await none_after(server, stopped)
    assert outcome.note.startswith("Stopped: one")


@pytest.mark.parametrize("moment", range(0, 24, 3))
async def test_a_stop_at_any_moment_is_a_barrier_and_the_run_resumes(moment: int, tmp_path: Path) -> None:
    over = False

    def answer(body: dict[str, Any], number: int) -> FakeReply:
        # The last answer keeps the run from ending before it is stopped.
        return FakeReply(fault=Fault(latency=0.003, stall=float("inf") if number == 14 and not over else 0.0))

    async with FakeServer(answer) as server:
        async with going_on(server, tmp_path, Tree(), params={"depth": 3}, config={"concurrency": 3}) as run:
            await asyncio.sleep(0)
            if moment:
                await requests(server, 1)
                await asyncio.sleep(moment / 1000)
            await run.stop()
            stopped = await settled(server)
            outcome = await run.outcome()
            await none_after(server, stopped)
        over = True
        assert outcome.status is not Status.COMPLETED
        assert outcome.reason is StopReason.STOPPED
        finished = {entry.prompt for entry in server.ledger.finished()}
        kept = kinds(await events_of(config_in(tmp_path), "r"), "call.finished")
        before = len(server.ledger.requests)
        whole = await romanesco.resume("r", topologies=[Tree()], config=config_in(tmp_path))
        assert whole.status is Status.COMPLETED
        assert len(whole.answer.splitlines()) == 15
        again = [entry.prompt for entry in server.ledger.requests[before:] if entry.prompt in finished]
        assert len(finished) - len(kept) >= len(again)  # only what had no finished event yet
        await check_run(config_in(tmp_path), whole, server.ledger)


async def test_br_088_a_stalled_stream_is_stopped_and_the_next_run_works(tmp_path: Path) -> None:
    async with FakeServer(scenario=STALLED) as server:
        async with going_on(server, tmp_path, Members(), params={"members": 2}) as run:
            await requests(server, 2)
            await run.stop()
            outcome = await run.outcome()
    assert outcome.status is Status.CANCELLED
    async with FakeServer() as server:
        again = await romanesco.run(
            "say something", model=f"{server.url}#fake", topology=Members(), config=config_in(tmp_path), run="next"
        )
    assert again.status is Status.COMPLETED


async def test_br_085_a_watcher_stops_the_run_from_its_callback(tmp_path: Path) -> None:
    async with FakeServer(scenario=MIDWAY) as server:
        async with going_on(server, tmp_path, Members(), params={"rounds": 2}) as run:
            stopped = 0.0
            async for event in run.events():
                if event.kind == "token" and not stopped and len(server.ledger.requests) == 8:
                    await run.stop()
                    stopped = await settled(server)
            await none_after(server, stopped)
            outcome = await run.outcome()
        assert len(server.ledger.requests) == 8
    assert outcome.reason is StopReason.STOPPED


async def test_br_085_another_thread_stops_the_run(tmp_path: Path) -> None:
    async def elsewhere() -> dict[str, Any]:
        async with other_process(tmp_path) as store:
            return await command(store, "stop", why="a thread says so")

    async with FakeServer(scenario=STREAMING) as server:
        async with going_on(server, tmp_path, Members(), params={"rounds": 5000}) as run:
            await requests(server, 8)
            answer = await asyncio.to_thread(lambda: asyncio.run(elsewhere()))
            stopped = await settled(server)
            await none_after(server, stopped)
            outcome = await run.outcome()
    assert answer["ok"] is True
    assert outcome.reason is StopReason.STOPPED and "a thread says so" in outcome.note


async def test_another_process_stops_the_run_and_reads_the_acknowledgement(jobs: Forker, tmp_path: Path) -> None:
    async with FakeServer(scenario=STREAMING) as server:
        child = await jobs.start("run", tmp_path, topology="members", params={"rounds": 5000}, url=server.url)
        await requests(server, 8)
        async with other_process(tmp_path) as store:
            answer = await command(store, "stop")
            stopped = await settled(server)
        outcome = await child.outcome()
        await none_after(server, stopped)
        assert answer["ok"] is True and outcome is not None
        assert outcome.reason is StopReason.STOPPED
        await check_run(config_in(tmp_path), outcome, server.ledger)


async def test_br_086_a_stopped_child_is_no_success_and_its_siblings_go_on(tmp_path: Path) -> None:
    slow = Rule(match="[/child-0]", attempts=(0,), reply=FakeReply(fault=Fault(stall=float("inf"))))
    async with FakeServer(scenario=Scenario(rules=(slow,))) as server:
        async with going_on(server, tmp_path, Tree(), params={"depth": 2}) as run, other_process(tmp_path) as store:
            await requests(server, 5)
            answer = await command(store, "stop", "/child-0")
            stopped = await settled(server)
            outcome = await run.outcome()
            await none_after(server, stopped, "[/child-0")
        assert not [entry for entry in server.ledger.requests if "[/child-0/" in entry.prompt]
        assert answer["ok"] is True
        assert outcome.status is Status.PARTIAL
        ended = {
            node: data["outcome"]
            for _, kind, node, _, data in await events_of(config_in(tmp_path), "r")
            if kind == "node.ended"
        }
        assert ended["/child-0"]["status"] == "cancelled" and ended["/child-0"]["reason"] == "stopped"
        assert ended["/child-1"]["status"] == "completed"
        whole = await romanesco.resume("r", topologies=[Tree()], config=config_in(tmp_path))
        await check_run(config_in(tmp_path), whole, server.ledger)
        assert whole.status is Status.COMPLETED and len(whole.answer.splitlines()) == 7
        assert len(server.ledger.requests) == 7 + 1


async def test_a_stopped_child_stays_stopped_when_the_process_dies(jobs: Forker, tmp_path: Path) -> None:
    stall = FakeReply(fault=Fault(stall=float("inf")))
    rules = (Rule(match="[/child-0]", reply=stall), Rule(match="[/child-1]", attempts=(0,), reply=stall))
    async with FakeServer(scenario=Scenario(rules=rules)) as server:
        child = await jobs.start("run", tmp_path, topology="tree", url=server.url)
        await requests(server, 3)
        async with other_process(tmp_path) as store:
            assert (await command(store, "stop", "/child-0"))["ok"] is True
            stopped = await settled(server)
        child.kill()
        assert await child.outcome() is None
        await deserted(server)
        outcome = await jobs.outcome("resume", tmp_path)
        await none_after(server, stopped, "[/child-0]")
        await check_run(config_in(tmp_path), outcome, server.ledger)
    assert outcome.status is Status.PARTIAL
    assert len(server.ledger.requests) == 4  # the other child was in flight at the kill


@pytest.mark.parametrize("where", ["back-off", "queue for a slot", "queue for the budget"])
async def test_a_stop_ends_those_that_wait(where: str, tmp_path: Path) -> None:
    refused = FakeReply(fault=Fault(status=429, retry_after=60))
    scenario = Scenario(default=refused) if where == "back-off" else STALLED
    config = {"concurrency": 1 if where == "queue for a slot" else 8}
    budget = Budget(tokens=200) if where == "queue for the budget" else None
    async with FakeServer(scenario=scenario) as server:
        async with going_on(server, tmp_path, Members(), config=config, budget=budget) as run:
            await requests(server, 1)
            await asyncio.sleep(0.05)  # the others wait by now, or will not begin to
            await run.stop()
            stopped = await settled(server)
            began = len(server.ledger.requests)
            outcome = await run.outcome()
            await none_after(server, stopped)
        assert outcome.reason is StopReason.STOPPED
        assert began == len(server.ledger.requests)
        if where != "back-off":
            assert began < 8


async def test_a_stop_of_a_node_that_is_not_there_says_so(tmp_path: Path) -> None:
    async with FakeServer(scenario=STALLED) as server:
        async with going_on(server, tmp_path, Members()) as run, other_process(tmp_path) as store:
            answer = await command(store, "stop", "/nobody")
            assert answer["ok"] is False and "/nobody" in answer["message"]
            assert (await command(store, "stop"))["ok"] is True
            assert (await run.outcome()).reason is StopReason.STOPPED


async def asking(task: Task, scope: Scope) -> Outcome:
    """Two children that each ask a person."""
    if scope.node == "/":
        children: list[Outcome] = []

        async def child(name: str) -> None:
            children.append(await scope.spawn("plain", Task(name), key=name))

        async with asyncio.TaskGroup() as group:
            group.create_task(child("one"))
            group.create_task(child("two"))
        whole = all(outcome.status is Status.COMPLETED for outcome in children)
        return done(
            ",".join(sorted(outcome.answer for outcome in children)), Status.COMPLETED if whole else Status.PARTIAL
        )
    return done(await scope.ask(f"{task.goal}?", key="question"))


async def test_br_119_a_late_answer_to_a_stopped_node_is_refused(tmp_path: Path) -> None:
    async with FakeServer() as server:
        async with going_on(server, tmp_path, Plain(asking)) as run, other_process(tmp_path) as store:
            ids = await questions(tmp_path, 2)
            unnamed = await command(store, "answer", text="yes")
            assert unnamed["ok"] is False and "several are pending" in unnamed["message"]  # BR-118
            assert (await command(store, "stop", "/one"))["ok"] is True
            late = await command(store, "answer", question=ids["/one"], text="yes")
            assert late["ok"] is False and "No such question" in late["message"]
            assert (await command(store, "answer", question=ids["/two"], text="no"))["ok"] is True
            outcome = await run.outcome()
    assert outcome.status is Status.PARTIAL and outcome.answer == ",no"


async def test_what_is_said_at_the_end_is_answered_not_swallowed(tmp_path: Path) -> None:
    said = asyncio.Event()

    async def ends(task: Task, scope: Scope) -> Outcome:
        await said.wait()
        return done("done")

    async with FakeServer() as server, other_process(tmp_path) as store:
        async with going_on(server, tmp_path, Plain(ends)) as run:
            await store.post(Command("late", "r", "/", "stop", {}, time.time()))
            said.set()
            outcome = await run.outcome()
        assert outcome.reason in (StopReason.COMPLETED, StopReason.STOPPED)  # the beginning may be late too
        answer = await store.acknowledgement("late")
    assert answer is not None


async def test_a_topology_that_hangs_by_itself_ends_with_the_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_supervise, "GRACE", 0.05)
    hanging = asyncio.Event()

    async def hangs(task: Task, scope: Scope) -> Outcome:
        await scope.offer(await say(scope, "hello", "first"), key="first")
        hanging.set()
        await asyncio.get_running_loop().create_future()
        raise AssertionError("never")

    async with FakeServer() as server:
        async with going_on(server, tmp_path, Plain(hangs)) as run:
            await hanging.wait()
            await run.stop()
            outcome = await run.outcome()
    assert (outcome.status, outcome.reason) == (Status.PARTIAL, StopReason.STOPPED)
    assert outcome.answer


async def test_leaving_the_context_stops_the_run(tmp_path: Path) -> None:
    async with FakeServer(scenario=STALLED) as server:
        async with going_on(server, tmp_path, Members()):
            await requests(server, 8)
        await deserted(server)
        assert server.ledger.in_flight == 0


async def test_cancelling_the_caller_stops_the_run_and_waits_for_it(tmp_path: Path) -> None:
    before = asyncio.all_tasks()
    async with FakeServer(scenario=STALLED) as server:
        caller = asyncio.ensure_future(
            romanesco.run(
                "say something", model=f"{server.url}#fake", topology=Members(), config=config_in(tmp_path), run="r"
            )
        )
        await requests(server, 8)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        stopped = await settled(server)
        await none_after(server, stopped)
        await deserted(server)
        nothing_left_behind(before)
        assert server.ledger.in_flight == 0
    ended = kinds(await events_of(config_in(tmp_path), "r"), "run.ended")
    assert len(ended) == 1 and ended[0][4]["reason"] == "stopped"


class StopsIt(ScriptedModel):
    """Stops the run while it is asked how large a request is: in the very task that is about to send it."""

    run: Run | None = None

    async def count(self, request: ModelRequest) -> TokenCount:
        if self.run is not None:
            await self.run.stop("enough")
        return await super().count(request)


async def test_a_call_that_stops_its_own_run_is_not_sent(tmp_path: Path) -> None:
    model, known = StopsIt("ok"), asyncio.Event()

    async def solve(task: Task, scope: Scope) -> Outcome:
        await known.wait()
        return done(await say(scope, "hello", "one"))

    async with romanesco.open_run("g", model=model, topology=Plain(solve), config=config_in(tmp_path), run="r") as run:
        model.run = run
        known.set()
        outcome = await run.outcome()
    assert outcome.reason is StopReason.STOPPED and not model.calls
    assert outcome.spend.calls == 0
    await check_run(config_in(tmp_path), outcome)
