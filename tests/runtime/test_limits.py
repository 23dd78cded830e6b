"""The limits of runs, nodes and roles, and those that runs share, at work and over resumes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import romanesco
from romanesco import Budget, InputError, Outcome, Scope, ScriptedModel, Status, StopReason, Task
from romanesco.errors import BudgetExceeded
from romanesco.models import ChatModel, ModelPool, ModelReply, ModelRequest, OpenAICompatible, Usage
from romanesco.runtime import Parts, RunSpec, Session, SharedAccount, Topologies, resume, start
from romanesco.testing import Chain, FakeReply, FakeServer, Fault, Members, MemoryStore, NgramEmbedder, Scenario, Tree
from tests.runtime.checks import at_rest, check_run, kinds
from tests.runtime.drive import cut_off, drive, go_on
from tests.runtime.steer import command, deserted, going_on, other_process, questions, requests, until
from tests.runtime.topologies import Plain, done, say
from tests.support import config_in, events_of


async def test_br_068_waiting_parents_hold_no_slot(tmp_path: Path) -> None:
    model = ScriptedModel("ok")
    config = config_in(tmp_path, concurrency=1)
    outcome = await drive(tmp_path, model, Tree(), params={"depth": 5, "width": 2}, config=config)
    assert outcome.status is Status.COMPLETED
    assert len(model.calls) == 63 and model.max_in_flight == 1


@pytest.mark.parametrize("depth", [3, 6])
async def test_br_004_no_more_nodes_than_the_limit(depth: int, tmp_path: Path) -> None:
    model = ScriptedModel("ok")
    outcome = await drive(tmp_path, model, Tree(), params={"depth": depth}, budget=Budget(nodes=10))
    assert len(model.calls) == 10
    assert outcome.status is Status.PARTIAL
    nodes = {node for node, *_ in [event[2:] for event in await events_of(config_in(tmp_path), "r")] if node}
    opened = kinds(await events_of(config_in(tmp_path), "r"), "node.opened")
    assert len(opened) == 9 and len(nodes) >= 9


async def test_a_resumed_run_counts_the_nodes_that_it_had(tmp_path: Path) -> None:
    await drive(tmp_path, ScriptedModel("ok"), Tree(), params={"depth": 3}, budget=Budget(nodes=10))
    model = ScriptedModel("ok")
    same = await go_on(tmp_path, model, Tree())
    assert same.status is Status.PARTIAL and not model.calls
    whole = await go_on(tmp_path, model, Tree(), budget=Budget(nodes=15))
    assert whole.status is Status.COMPLETED and len(model.calls) == 5


async def test_zero_nodes_means_none(tmp_path: Path) -> None:
    model = ScriptedModel("ok")
    outcome = await drive(tmp_path, model, Tree(), budget=Budget(nodes=0))
    assert outcome.reason is StopReason.BUDGET and "nodes" in outcome.note and not model.calls


async def test_br_010_a_child_has_limits_of_its_own_inside_its_parents(tmp_path: Path) -> None:
    async def solve(task: Task, scope: Scope) -> Outcome:
        if scope.node == "/":
            small = await scope.spawn("plain", Task("small"), key="small", budget=Budget(calls=2))
            large = await scope.spawn("plain", Task("large"), key="large", budget=Budget(calls=99))
            after = await say(scope, "after", "after")
            return done(f"{small.reason} {large.status} {after}", small.status, note=large.note)
        for number in range(3):
            await say(scope, task.goal, f"step/{number}")
        return done()

    model = ScriptedModel("ok")
    outcome = await drive(tmp_path, model, Plain(solve), budget=Budget(calls=5))
    assert outcome.answer == "budget refused ok"  # BR-008: one child's limit is not its sibling's
    assert "node:/" in outcome.note or "run" in outcome.note
    assert len(model.calls) == 3


async def test_a_child_has_its_own_time(tmp_path: Path) -> None:
    async def solve(task: Task, scope: Scope) -> Outcome:
        if scope.node == "/":
            slow = await scope.spawn("plain", Task("slow"), key="slow", budget=Budget(seconds=0.1))
            return done(await say(scope, "after", "after"), slow.status, note=slow.note)
        return done(await say(scope, "slow", "slow"))

    model = ScriptedModel({"slow": "late", "after": "ok"}, latency=lambda request: 9.0 if "slow" in str(request) else 0)
    outcome = await drive(tmp_path, model, Plain(solve))
    assert outcome.status is Status.EXPIRED and outcome.answer == "ok" and "0.1 s" in outcome.note


async def test_br_026_a_roles_limit_holds_over_all_nodes_and_resumes(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    config.tables["limits"] = {"member": {"calls": 4}}
    model = ScriptedModel("ok")
    outcome = await drive(tmp_path, model, Tree(), params={"depth": 2}, config=config)
    assert len(model.calls) == 4
    assert outcome.status is Status.PARTIAL
    again = ScriptedModel("ok")
    await go_on(tmp_path, again, Tree(), config=config)
    assert not again.calls


async def asks_then_works(task: Task, scope: Scope) -> Outcome:
    answer = await scope.ask("Which one?", key="which", choices=["a", "b"])
    return done(answer + await say(scope, answer, "work"))


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def parts_of(store: Any, model: ChatModel, clock: Callable[[], float], topology: Any, **more: Any) -> Parts:
    pool = ModelPool({})
    pool.add(model)
    return Parts(store, pool, NgramEmbedder(), Topologies([topology]), clock=clock, **more)


def spec_of(topology: str, **more: Any) -> RunSpec:
    return RunSpec("r", Task("say something"), topology, {"default": "scripted:test"}, **more)


async def finish(session: Session) -> Outcome:
    outcome = await session.drive()
    at_rest(session)
    return outcome


async def test_br_037_time_adds_up_over_resumes(tmp_path: Path) -> None:
    store, clock = MemoryStore(), Clock()

    def answer(seconds: float) -> Callable[[object], str]:
        def reply(_request: object) -> str:
            clock.now += seconds
            return "ok"

        return reply

    async def solve(task: Task, scope: Scope) -> Outcome:
        for number in range(10):
            await scope.offer(await say(scope, "go", f"step/{number}"), key=str(number))
        return done()

    parts = parts_of(store, ScriptedModel(answer(20.0)), clock, Plain(solve))
    session = await start(spec_of("plain", budget=Budget(seconds=100.0)), parts)
    first = await finish(session)
    assert (first.status, first.reason) == (Status.PARTIAL, StopReason.DEADLINE)
    assert first.spend.seconds == 80.0 or first.spend.seconds == 100.0
    made = first.spend.calls
    clock.now += 1000.0  # what passes between two sessions is not the run's
    second = await finish(await resume("r", parts, (("seconds", 150.0),)))
    assert second.reason is StopReason.DEADLINE
    assert second.spend.calls > made and second.spend.seconds <= 160.0
    third = await finish(await resume("r", parts))
    assert third.spend.calls == second.spend.calls and third.spend.seconds == second.spend.seconds


async def test_a_childs_time_counts_from_when_it_was_opened_over_resumes(tmp_path: Path) -> None:
    store, clock, never, waits = MemoryStore(), Clock(), asyncio.Event(), asyncio.Event()

    def model(*, last: str) -> ScriptedModel:
        async def reply(_request: object) -> str:
            if len(made.calls) == 2 and last == "killed":
                waits.set()
                await never.wait()
            clock.now += 20.0
            if last == "expires":
                waits.set()
                await never.wait()
            return "ok"

        made = ScriptedModel(reply)
        return made

    async def solve(task: Task, scope: Scope) -> Outcome:
        if scope.node == "/":
            child = await scope.spawn("plain", Task("slow"), key="slow", budget=Budget(seconds=30.0))
            return done(str(child.reason), child.status)
        for number in range(3):
            await say(scope, "go", f"step/{number}")
        return done("in time")

    first = await start(spec_of("plain"), parts_of(store, model(last="killed"), clock, Plain(solve)))
    driving = asyncio.ensure_future(first.drive())
    await waits.wait()  # 20 seconds of the child's 30 are over
    driving.cancel()
    await asyncio.wait([driving])
    clock.now += 1000.0  # what passes between two sessions is nobody's
    waits.clear()
    second = await resume("r", parts_of(store, model(last="expires"), clock, Plain(solve)))
    async with asyncio.timeout(60):  # with 30 new seconds the child would wait for ever
        outcome = await finish(second)
    assert waits.is_set() and clock.now == 1040.0
    assert (outcome.status, outcome.answer) == (Status.EXPIRED, "deadline")


async def test_waiting_for_a_person_is_outside_the_wall_time(tmp_path: Path) -> None:
    store, clock = MemoryStore(), Clock()
    parts = parts_of(store, ScriptedModel("!"), clock, Plain(asks_then_works))
    session = await start(spec_of("plain", budget=Budget(seconds=60.0)), parts)
    watcher = session.watch()
    driving = asyncio.ensure_future(session.drive())
    async for event in watcher.events():
        if event.kind == "question.asked":
            clock.now += 3600.0
            await session.say("answer", text="a")
    outcome = await driving
    assert outcome.status is Status.COMPLETED and outcome.answer == "a!"
    assert outcome.spend.seconds < 1.0
    at_rest(session)


async def test_a_clock_that_goes_backwards_harms_nothing(tmp_path: Path) -> None:
    clock, wall = Clock(), Clock()
    wall.now = 1_000_000.0

    def reply(_request: object) -> str:
        clock.now -= 50.0
        wall.now -= 5000.0
        return "ok"

    parts = parts_of(MemoryStore(), ScriptedModel(reply), clock, Members(), wall=wall)
    outcome = await finish(await start(spec_of("members", budget=Budget(seconds=10.0)), parts))
    assert outcome.status is Status.COMPLETED and outcome.spend.seconds == 0.0


async def test_limits_are_raised_and_lowered_while_the_run_goes_on(tmp_path: Path) -> None:
    async with FakeServer(scenario=Scenario(barrier=99)) as server, other_process(tmp_path) as store:
        options: dict[str, Any] = {"params": {"rounds": 50, "members": 2}, "budget": Budget(calls=100)}
        async with going_on(server, tmp_path, Members(), **options) as run:
            await requests(server, 2)
            assert (await command(store, "budget", dimension="calls", value=200))["ok"] is True
            lowered = await command(store, "budget", dimension="calls", value=6)
            assert lowered["ok"] is True
            server.open_barrier()
            outcome = await run.outcome()
    assert outcome.reason is StopReason.BUDGET and "limit 6" in outcome.note
    changed = [data for *_, data in kinds(await events_of(config_in(tmp_path), "r"), "budget.changed")]
    assert [change["value"] for change in changed] == [200, 6]


WRONG: list[tuple[str, dict[str, Any]]] = [
    ("budget", {"dimension": "calls", "value": -1}),
    ("budget", {"dimension": "calls", "value": "many"}),
    ("budget", {"dimension": "seconds", "value": "NaN"}),
    ("budget", {"dimension": "courage", "value": 1}),
    ("budget", {}),
    ("answer", {}),
    ("answer", {"text": 5}),
    ("answer", {"question": "nobody asked", "text": "yes"}),
    ("dance", {}),
]


async def test_wrong_commands_are_refused_and_do_no_harm(tmp_path: Path) -> None:
    stalled = Scenario(default=FakeReply(fault=Fault(stall=float("inf"))))
    async with FakeServer(scenario=stalled) as server, other_process(tmp_path) as store:
        async with going_on(server, tmp_path, Members()) as run:
            await requests(server, 8)
            async with asyncio.TaskGroup() as group:
                said = [group.create_task(command(store, verb, **data)) for verb, data in WRONG]
            for task in said:
                assert task.result()["ok"] is False and task.result()["message"]
            await run.stop()
    events = await events_of(config_in(tmp_path), "r")
    assert not kinds(events, "budget.changed")
    options: dict[str, Any] = {"topologies": [Members()], "config": config_in(tmp_path)}
    with pytest.raises(InputError):
        await romanesco.resume("r", budget=Budget(calls=1), **options)  # eight were made
    assert await events_of(config_in(tmp_path), "r") == events  # a wrong limit is not in the way of the next resume


async def test_a_live_limit_of_money_needs_a_price(tmp_path: Path) -> None:
    model = ScriptedModel(default="ok", latency=30, name="acme:m")  # nobody knows what it costs
    config = config_in(tmp_path)
    async with other_process(tmp_path) as store:
        async with romanesco.open_run("g", model=model, topology=Members(), config=config, run="r") as run:
            said = await command(store, "budget", dimension="usd", value="1.50")
            await run.stop()
    assert said["ok"] is False and "price of acme:m is unknown" in said["message"]


def shared(name: str = "project:web", **limits: Any) -> tuple[SharedAccount, ...]:
    return (SharedAccount(name, Budget(**limits)),)


async def test_runs_that_share_an_account_never_pass_it_together(tmp_path: Path) -> None:
    store = MemoryStore()
    parts = parts_of(store, ScriptedModel("ok"), Clock(), Members())
    account = shared(calls=20)
    one = await start(spec_of("members", budget=Budget(calls=12), shared=account), parts)
    other = RunSpec("s", Task("g"), "members", {"default": "scripted:test"}, budget=Budget(calls=12), shared=account)
    with pytest.raises(BudgetExceeded, match="project:web"):
        await start(other, parts)
    await finish(one)
    assert (await store.charged("project:web"))["calls"] == "8"
    assert (await finish(await start(other, parts))).status is Status.COMPLETED
    assert (await store.charged("project:web"))["calls"] == "16"


async def test_a_run_that_one_account_refuses_holds_nothing_of_the_others(tmp_path: Path) -> None:
    store = MemoryStore()
    parts = parts_of(store, ScriptedModel("ok"), Clock(), Members())
    accounts = (*shared("project:web", calls=100), *shared("day:2026-11-30", calls=5))
    with pytest.raises(BudgetExceeded, match="day:2026-11-30"):
        await start(spec_of("members", budget=Budget(calls=10), shared=accounts), parts)
    assert (await store.charged("project:web")).get("calls", "0") == "0"
    assert not await store.read("r")
    fits = (*shared("project:web", calls=100), *shared("day:2026-11-30", calls=50))
    assert (await finish(await start(spec_of("members", budget=Budget(calls=10), shared=fits), parts))).spend.calls == 8


async def test_a_killed_run_holds_its_worst_case_until_it_is_resumed(tmp_path: Path) -> None:
    store = MemoryStore()
    here = asyncio.Event()

    async def hang(_request: object) -> str:
        here.set()
        return str(await asyncio.get_running_loop().create_future())

    parts = parts_of(store, ScriptedModel(hang), Clock(), Members())
    session = await start(spec_of("members", budget=Budget(calls=30), shared=shared(calls=50)), parts)
    driving = asyncio.ensure_future(session.drive())
    await here.wait()
    driving.cancel()
    await asyncio.wait([driving])
    assert (await store.charged("project:web"))["calls"] == "30"
    parts = parts_of(store, ScriptedModel("ok"), Clock(), Members())
    outcome = await finish(await resume("r", parts))
    assert (await store.charged("project:web"))["calls"] == str(outcome.spend.calls)
    once_more = await finish(await resume("r", parts))  # nothing left to do
    assert once_more.spend == outcome.spend


async def test_br_023_a_cap_holds_while_members_fail_and_try_again(tmp_path: Path) -> None:
    from romanesco.errors import ServerFault

    model = ScriptedModel([ServerFault("down")] * 4, default="ok")
    outcome = await drive(tmp_path, model, Members(), budget=Budget(calls=9))
    assert len(model.calls) == 9 == outcome.spend.calls


async def test_br_025_a_hundred_parallel_calls_are_a_hundred(tmp_path: Path) -> None:
    model = ScriptedModel("ok", latency=0.001)
    config = config_in(tmp_path, concurrency=100)
    outcome = await drive(tmp_path, model, Members(), params={"members": 100}, config=config)
    assert outcome.spend.calls == 100 == len(model.calls)


async def test_the_time_that_is_over_ends_calls_in_flight(tmp_path: Path) -> None:
    clock = Clock()
    async with FakeServer(scenario=Scenario(default=FakeReply(fault=Fault(stall=float("inf"))))) as server:
        model = OpenAICompatible(name="scripted:test", model="fake", base_url=server.url)
        parts = parts_of(MemoryStore(), model, clock, Members())
        session = await start(spec_of("members", budget=Budget(seconds=60.0)), parts)
        driving = asyncio.ensure_future(finish(session))
        await requests(server, 8)
        clock.now += 61.0
        outcome = await driving
        await model.close()
        await deserted(server)
        assert all(entry.disconnected for entry in server.ledger.requests)
    assert outcome.reason is StopReason.DEADLINE and outcome.spend.calls == 8


async def test_a_person_can_be_waited_for_with_little_time_left(tmp_path: Path) -> None:
    store, clock = MemoryStore(), Clock()
    parts = parts_of(store, ScriptedModel("!"), clock, Plain(asks_then_works))
    session = await start(spec_of("plain", budget=Budget(seconds=60.0)), parts)
    driving = asyncio.ensure_future(finish(session))

    async def asked() -> bool:
        return bool(session._run.questions.pending)

    await until(asked)
    clock.now += 3600.0
    # Whoever reads the inbox also watches the time, so by now it was looked at.
    assert (await command(store, "answer", text="c"))["ok"] is False  # not one of the choices
    assert (await command(store, "answer", text="b"))["ok"] is True
    outcome = await driving
    assert outcome.status is Status.COMPLETED and outcome.answer == "b!"


async def test_an_answered_question_is_not_asked_again(tmp_path: Path) -> None:
    here = asyncio.Event()

    async def hang(_request: object) -> str:
        here.set()
        return str(await asyncio.get_running_loop().create_future())

    async def answered() -> None:
        async with other_process(tmp_path) as store:
            await questions(tmp_path)
            assert (await command(store, "answer", text="a"))["ok"] is True

    async with asyncio.TaskGroup() as group:
        group.create_task(cut_off(tmp_path, ScriptedModel(hang), Plain(asks_then_works), here))
        group.create_task(answered())
    outcome = await go_on(tmp_path, ScriptedModel("!"), Plain(asks_then_works))
    assert outcome.answer == "a!"
    assert len(kinds(await events_of(config_in(tmp_path), "r"), "question.asked")) == 1


class Held(ScriptedModel):
    """Answers nobody before it is told to."""

    def __init__(self) -> None:
        super().__init__(auto=True)
        self.go = asyncio.Event()

    async def complete(self, request: ModelRequest, **options: Any) -> ModelReply:
        await self.go.wait()
        return await super().complete(request, **options)


@pytest.mark.parametrize("limit", [0, 1, 200])
async def test_a_run_is_replayed_whose_limit_was_lowered_below_its_wrap_up(limit: int, tmp_path: Path) -> None:
    model = Held()
    config = config_in(tmp_path)
    options: dict[str, Any] = {"model": model, "config": config, "embedder": NgramEmbedder()}
    budget = Budget(tokens=200_000)
    async with romanesco.open_run("Name three risks", run="r", budget=budget, **options) as run:
        wrap_up = sum(line.tokens_in + line.tokens_out for line in run.plan.bill.lines if line.purpose == "wrap-up")
        assert wrap_up > limit
        async for event in run.events():
            if event.kind == "call.started":
                break
        await run.limit(tokens=limit)  # nothing is used yet
        model.go.set()
        outcome = await run.outcome()
    assert (outcome.status, outcome.reason, outcome.dimension) == (Status.PARTIAL, StopReason.BUDGET, "tokens")
    made = len(model.calls)
    replayed = await romanesco.replay("r", **options)
    assert len(model.calls) == made
    assert (replayed.status, replayed.answer, replayed.note) == (outcome.status, outcome.answer, outcome.note)
    assert replayed.lines == outcome.lines


async def test_a_run_whose_server_reported_too_much_is_replayed(tmp_path: Path) -> None:
    reply = ModelReply(text="ok", usage=Usage(input=10_000, output=5))
    model = ScriptedModel(lambda _request: reply)
    outcome = await drive(tmp_path, model, Chain())
    assert kinds(await events_of(config_in(tmp_path), "r"), "budget.overrun")
    made = len(model.calls)
    replayed = await romanesco.replay("r", model=model, topologies=[Chain()], config=config_in(tmp_path))
    assert len(model.calls) == made
    assert (replayed.status, replayed.answer, replayed.note) == (outcome.status, outcome.answer, outcome.note)


async def test_a_root_that_the_limit_of_nodes_refused_is_refused_in_a_replay(tmp_path: Path) -> None:
    outcome = await drive(tmp_path, ScriptedModel("ok"), Tree(), budget=Budget(nodes=0))
    replayed = await romanesco.replay("r", topologies=[Tree()], config=config_in(tmp_path))
    assert (replayed.status, replayed.reason, replayed.note) == (outcome.status, outcome.reason, outcome.note)


async def test_embedding_beside_an_open_question_is_active_time(tmp_path: Path) -> None:
    clock = Clock()
    asked, embedded = asyncio.Event(), asyncio.Event()

    class Slow(NgramEmbedder):
        async def embed(self, texts: Sequence[str]) -> list[list[float]]:
            await asked.wait()
            clock.now += 7.0  # with the question open
            return await super().embed(texts)

    async def solve(task: Task, scope: Scope) -> Outcome:
        async def measure() -> None:
            await scope.embed(["a text of words"], key="measured")
            embedded.set()

        async with asyncio.TaskGroup() as group:
            group.create_task(measure())
            answer = group.create_task(scope.ask("Go?", key="question"))
        return done(answer.result())

    parts = parts_of(MemoryStore(), ScriptedModel("ok"), clock, Plain(solve))
    parts.embedder = Slow()
    session = await start(spec_of("plain"), parts)
    watcher = session.watch()
    driving = asyncio.ensure_future(session.drive())
    async for event in watcher.events():
        if event.kind == "question.asked":
            asked.set()
            await embedded.wait()
            clock.now += 3600.0  # the person thinks, and nothing else goes on
            await session.say("answer", text="yes")
    outcome = await driving
    assert outcome.answer == "yes" and 7.0 <= outcome.spend.seconds < 8.0
    at_rest(session)


async def test_each_session_that_meets_a_limit_is_wrapped_up(tmp_path: Path) -> None:
    """The second wrap-up and all that follow are further attempts: on the retry line of the same bill."""
    model = ScriptedModel(auto=True)
    options: dict[str, Any] = {"model": model, "config": config_in(tmp_path), "embedder": NgramEmbedder()}
    params = {"k": 4, "rounds": 6, "tau_sat": 0, "eps": 0}
    first = await romanesco.run("Name three risks", params=params, budget=Budget(calls=12), run="r", **options)
    outcomes = [first, *[await romanesco.resume("r", budget=Budget(calls=most), **options) for most in (20, 33)]]
    for most, outcome in zip((12, 20, 33), outcomes, strict=True):
        assert outcome.status is Status.PARTIAL and outcome.dimension == "calls" and outcome.spend.calls == most
        assert outcome.deliberation is not None and outcome.deliberation.decision is not None
        assert outcome.deliberation.decision.by == "wrap-up"
        assert outcome.bill == first.bill
    lines = {line.purpose: line.calls for line in outcomes[-1].lines}
    assert (lines["wrap-up"], lines["retry"]) == (1, 2)
    asked = [call.context.key for call in model.calls if call.context]
    assert asked.count("wrap-up") == 3
    await check_run(config_in(tmp_path), outcomes[-1])
    whole = await romanesco.resume("r", budget=Budget(calls=60), **options)
    assert whole.status is Status.COMPLETED
