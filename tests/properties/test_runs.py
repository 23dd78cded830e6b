"""Random trees, faults, limits and kills: every run ends inside its limits, and its journal tells it all."""

from __future__ import annotations

import asyncio
from collections import Counter
from decimal import Decimal
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from romanesco import Budget, Outcome, Plan, RomanescoError, RunStopped, Scope, Status, StopReason, Task
from romanesco.budget import Account
from romanesco.errors import ConnectionFailed, RateLimited, RequestRejected, ServerFault
from romanesco.journal import verify
from romanesco.models import ModelPool, ModelReply, ModelRequest, ScriptedModel
from romanesco.models._types import FinishReason
from romanesco.runtime import (
    Parts,
    PlanningDesk,
    RetryPolicy,
    RunSpec,
    Session,
    Topologies,
    read_events,
    recover,
    replay,
    resume,
    start,
)
from romanesco.runtime._stops import covers
from romanesco.task import Bill
from romanesco.testing import MemoryEngine, MemoryStore, NgramEmbedder
from tests.runtime.checks import at_rest
from tests.runtime.topologies import say
from tests.support import PATIENCE

PRICES = {"scripted:test": {"input": "1", "output": "2"}}
ANSWERS = ("ok", "fault", "limited", "rejected", "unsent", "bug", "no usage", "empty", "long")

answers = st.lists(st.sampled_from(ANSWERS), max_size=4)
leaves = st.fixed_dictionaries({
    "calls": st.lists(answers, max_size=3),
    "children": st.just([]),
    "budget": st.none() | st.fixed_dictionaries({"calls": st.integers(0, 4)}),
    "raises": st.sampled_from([False, False, False, True]),
})
trees = st.recursive(
    leaves,
    lambda below: st.fixed_dictionaries({
        "calls": st.lists(answers, max_size=3),
        "children": st.lists(below, max_size=3),
        "budget": st.none() | st.fixed_dictionaries({"calls": st.integers(0, 9), "tokens": st.integers(0, 900)}),
        "raises": st.sampled_from([False, False, False, True]),
    }),
    max_leaves=5,
)
budgets = st.fixed_dictionaries({
    "calls": st.none() | st.integers(0, 25),
    "tokens": st.none() | st.integers(0, 3000),
    "usd": st.none() | st.decimals(0, Decimal("0.003"), places=6),
    "nodes": st.none() | st.integers(1, 6),
})


class Wild:
    """Does what its tree says: calls at once, then children at once, then one last call with what came of them."""

    name = "wild"

    async def plan(self, task: Task, desk: PlanningDesk) -> Plan:
        return Plan(self.name, Bill(()), dict(task.params))

    async def solve(self, task: Task, scope: Scope) -> Outcome:
        tree = scope.plan.params
        said: dict[str, str] = {}

        async def member(number: int) -> None:
            key = f"call/{number}"
            try:
                said[key] = await say(scope, f"{scope.node} {key}", key, role=f"member-{number}")
            except RunStopped:
                raise
            except RomanescoError as error:
                said[key] = f"({error.code})"

        async def child(number: int) -> None:
            below = tree["children"][number]
            budget = None if below["budget"] is None else Budget(**below["budget"])
            key = f"child-{number}"
            outcome = await scope.spawn(self.name, Task(key, params=below), key=key, budget=budget)
            said[key] = f"{outcome.status}:{outcome.answer}"

        async with asyncio.TaskGroup() as group:
            for number in range(len(tree["calls"])):
                group.create_task(member(number))
        await scope.offer(told(said), key="calls")
        async with asyncio.TaskGroup() as group:
            for number in range(len(tree["children"])):
                group.create_task(child(number))
        if tree["raises"]:
            raise ValueError("the topology is at fault")
        last = await say(scope, f"{scope.node} last {told(said)}", "last", role="last")
        whole = all(("(" not in text and "completed" in text) or ":" not in text for text in said.values())
        return Outcome(Status.COMPLETED if whole else Status.PARTIAL, StopReason.COMPLETED, answer=told(said) + last)


def told(said: dict[str, str]) -> str:
    return ";".join(f"{key}={said[key]}" for key in sorted(said))


class Server:
    """Answers every step by its own script, attempt by attempt, and keeps its own books."""

    def __init__(self, tree: dict[str, Any], *, kill_at: int | None = None) -> None:
        self.scripts: dict[str, list[str]] = {}
        self._read("/", tree)
        self.attempts: Counter[str] = Counter()
        self.finished: Counter[str] = Counter()
        self.tokens = 0
        self.requests = 0
        self.prompts: list[str] = []
        self.kill_at = kill_at
        self.kill = asyncio.Event()
        self.model = ScriptedModel(self.answer)

    def _read(self, node: str, tree: dict[str, Any]) -> None:
        for number, script in enumerate(tree["calls"]):
            self.scripts[f"{node} call/{number}"] = script
        for number, child in enumerate(tree["children"]):
            self._read(f"{node.rstrip('/')}/child-{number}", child)

    async def answer(self, request: ModelRequest) -> ModelReply:
        prompt = request.messages[0].content
        step = " ".join(prompt.split(" ")[:2])
        script = self.scripts.get(step, [])
        what = script[self.attempts[step]] if self.attempts[step] < len(script) else "ok"
        if what == "unsent":
            self.attempts[step] += 1
            raise ConnectionFailed("Nobody is there")
        self.requests += 1
        self.prompts.append(prompt)
        if self.requests == self.kill_at:
            self.kill.set()
            await asyncio.get_running_loop().create_future()
        self.attempts[step] += 1
        await asyncio.sleep(0)
        read = len(prompt) // 4
        if what == "fault":
            self.tokens += read
            raise ServerFault("down")
        if what == "limited":
            raise RateLimited("slow down", retry_after=0.0005)
        if what == "rejected":
            raise RequestRejected("no")
        if what == "bug":
            raise LookupError("an adapter's fault")
        self.finished[step] += 1
        text = {"empty": "", "long": "w" * 64}.get(what, "fine")
        self.tokens += read + len(text) // 4
        usage = None
        if what != "no usage":
            from romanesco.models import Usage

            usage = Usage(input=max(1, read), output=len(text) // 4)
        return ModelReply(text=text, finish=FinishReason.STOP, usage=usage, model="test")


def parts_of(store: MemoryStore, server: Server | None, seed: int) -> Parts:
    pool = ModelPool({})
    pool.add(server.model if server is not None else ScriptedModel(AssertionError("a replay asks nobody")))
    return Parts(store, pool, NgramEmbedder(), Topologies([Wild()]), engine=MemoryEngine(seed, 3), prices=PRICES)


def spec_of(tree: dict[str, Any], budget: dict[str, Any]) -> RunSpec:
    return RunSpec(
        "r",
        Task("a goal", params=tree),
        "wild",
        {"default": "scripted:test"},
        budget=Budget(**budget),
        concurrency=3,
        retry=RetryPolicy(attempts=3, rate_limited=4, base=0.0001, cap=0.001),
    )


def books_add_up(session: Session) -> None:
    """What a node used is what its roles and its children used, in every dimension; and the run is its root."""
    ledger = session._run.ledger
    below: dict[str, list[Account]] = {}
    for account in ledger._accounts.values():
        if account.parent is not None:
            below.setdefault(account.parent.name, []).append(account)
    for name, children in below.items():
        if name == "run" or not name.rpartition("/")[2].startswith("node:"):
            continue
        for dimension in ("tokens_in", "tokens_out", "usd", "calls"):
            parts = sum((Decimal(child.used(dimension)) for child in children), Decimal(0))
            assert parts == ledger.account(name).used(dimension), (name, dimension)


def inside(outcome: Outcome, budget: dict[str, Any]) -> None:
    spend = outcome.spend
    assert budget["calls"] is None or spend.calls <= budget["calls"]
    assert budget["tokens"] is None or spend.tokens_in + spend.tokens_out <= budget["tokens"]
    assert budget["usd"] is None or (spend.usd is not None and spend.usd <= budget["usd"])


async def checked(session: Session, store: MemoryStore, server: Server, budget: dict[str, Any]) -> Outcome:
    before = asyncio.all_tasks()
    async with asyncio.timeout(PATIENCE):
        outcome = await session.drive()
    assert asyncio.all_tasks() <= before
    at_rest(session)
    books_add_up(session)
    inside(outcome, budget)
    events = await read_events(store, "r")
    found = await verify(store, "r")
    assert found.ok, found
    recovery = recover(events)
    assert recovery.spent.spend(outcome.spend.seconds) == outcome.spend
    assert outcome.spend.calls - outcome.spend.in_doubt <= server.requests <= outcome.spend.calls
    assert outcome.spend.tokens_in + outcome.spend.tokens_out >= server.tokens
    nodes = {node for _, kind, node, _, _ in events if kind == "node.opened"}
    assert budget["nodes"] is None or len(nodes) + 1 <= budget["nodes"]
    again = await (await replay("r", parts_of(store, None, 1))).drive()
    assert (again.status, again.reason, again.answer, again.note) == (
        outcome.status,
        outcome.reason,
        outcome.answer,
        outcome.note,
    )
    return outcome


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(tree=trees, budget=budgets, seed=st.integers(0, 99))
def test_every_run_ends_inside_its_limits(tree: dict[str, Any], budget: dict[str, Any], seed: int) -> None:
    async def main() -> None:
        store, server = MemoryStore(), Server(tree)
        session = await start(spec_of(tree, budget), parts_of(store, server, seed))
        first = await checked(session, store, server, budget)
        finished = server.finished.copy()
        second = await checked(await resume("r", parts_of(store, server, seed + 1)), store, server, budget)
        if first.status is Status.COMPLETED:
            assert second == first
        for step, count in finished.items():
            if step.endswith("last"):
                continue  # asked anew where something before it was tried again
            assert server.finished[step] == count, step

    asyncio.run(main())


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(tree=trees, budget=budgets, seed=st.integers(0, 99), kill_at=st.integers(1, 12))
def test_every_killed_run_ends_inside_its_limits(
    tree: dict[str, Any], budget: dict[str, Any], seed: int, kill_at: int
) -> None:
    async def main() -> None:
        store, server = MemoryStore(), Server(tree, kill_at=kill_at)
        session = await start(spec_of(tree, budget), parts_of(store, server, seed))
        driving = asyncio.ensure_future(session.drive())
        dying = asyncio.ensure_future(server.kill.wait())
        await asyncio.wait([driving, dying], return_when=asyncio.FIRST_COMPLETED)
        killed = not driving.done()
        dying.cancel()
        driving.cancel()
        await asyncio.wait([driving, dying])
        at_rest(session)
        server.kill_at = None
        at_kill = await read_events(store, "r")
        kept = {(node, key) for _, kind, node, key, _ in at_kill if kind == "call.finished"}
        await checked(await resume("r", parts_of(store, server, seed + 1)), store, server, budget)
        after = (await read_events(store, "r"))[len(at_kill) :]
        if killed:
            assert kept.isdisjoint((node, key) for _, kind, node, key, _ in after if kind == "call.started")

    asyncio.run(main())


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    tree=trees,
    budget=budgets,
    seed=st.integers(0, 99),
    stop_at=st.integers(1, 8),
    where=st.sampled_from(["/", "/", "/child-0", "/child-1", "/child-0/child-0"]),
)
def test_every_stop_is_a_barrier(
    tree: dict[str, Any], budget: dict[str, Any], seed: int, stop_at: int, where: str
) -> None:
    async def main() -> None:
        store, server = MemoryStore(), Server(tree, kill_at=stop_at)
        parts = parts_of(store, server, seed)
        session = await start(spec_of(tree, budget), parts)
        checking = asyncio.ensure_future(checked(session, store, server, budget))
        reached = asyncio.ensure_future(server.kill.wait())
        await asyncio.wait([checking, reached], return_when=asyncio.FIRST_COMPLETED)
        reached.cancel()
        server.kill_at = None
        if not checking.done():
            await session._run.stops.stop(where, "Stopped: somebody said so")
            made = server.requests
            mark = {prompt for prompt in server.prompts if covers(where, prompt.split(" ")[0])}
            if where != "/":
                # What hangs elsewhere is stopped by the whole.
                await asyncio.sleep(0.01)
                assert mark == {p for p in server.prompts if covers(where, p.split(" ")[0])}
                await session.stop("enough")
                made = server.requests
            outcome = await checking
            assert server.requests == made
            assert outcome.status is not Status.COMPLETED
            assert where != "/" or outcome.reason is StopReason.STOPPED
        await checking
        await checked(await resume("r", parts_of(store, server, seed + 1)), store, server, budget)

    asyncio.run(main())
