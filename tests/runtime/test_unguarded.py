"""Guards of the runtime, each by what goes wrong without it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import romanesco
from romanesco import Bill, Budget, Outcome, Scope, ScriptedModel, Status, StopReason, Task
from romanesco._run import Run
from romanesco.errors import ConfigError, ModelError, RateLimited, RunStopped, ServerFault
from romanesco.journal import Command, Event
from romanesco.models import ModelReply, ModelRequest, Usage
from romanesco.runtime import first_error, read_events
from romanesco.runtime._stops import Stops
from romanesco.task import BillLine
from romanesco.testing import Chain, Members, MemoryStore
from tests.runtime.checks import kinds
from tests.runtime.drive import drive
from tests.runtime.steer import until
from tests.runtime.topologies import Plain, done, say
from tests.support import PATIENCE, config_in, events_of


class HoldingStore(MemoryStore):
    """A store that is slow to say that a finished call is durable: not before it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.holding = asyncio.Event()
        self.released = asyncio.Event()

    def append(self, events: Sequence[Event], blobs: Mapping[str, bytes]) -> asyncio.Future[None]:
        written = super().append(events, blobs)
        if self.released.is_set() or not any(event.kind == "call.finished" for event in events):
            return written
        self.holding.set()

        async def later() -> None:
            await written
            await self.released.wait()

        return asyncio.ensure_future(later())


class Gate:
    """A model whose answers wait until it is opened."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.model = ScriptedModel(self._answer)

    async def _answer(self, _request: ModelRequest) -> str:
        await self.opened.wait()
        return "ok"

    async def asked(self, count: int) -> None:
        """Wait until so many requests are there."""

        async def enough() -> bool:
            return len(self.model.calls) >= count

        await until(enough)


@asynccontextmanager
async def opened(folder: Path, store: MemoryStore, model: Any, topology: Any, **options: Any) -> AsyncIterator[Run]:
    config = options.pop("config", None) or config_in(folder)
    async with romanesco.open_run(
        "say something", model=model, topology=topology, store=store, config=config, run="r", **options
    ) as run:
        yield run


async def ask(store: MemoryStore, verb: str, **data: Any) -> dict[str, Any]:
    """Leave a command in the run's inbox and wait for the answer."""
    await store.post(Command("asked", "r", "/", verb, data, 0.0))

    async def answered() -> bool:
        return await store.acknowledgement("asked") is not None

    async with asyncio.timeout(PATIENCE):
        await until(answered)
    answer = await store.acknowledgement("asked")
    assert answer is not None
    return answer


# ---- what is used, and when -----------------------------------------------------------------------------------


async def test_a_result_is_durable_before_anybody_uses_it(tmp_path: Path) -> None:
    used: list[str] = []

    async def solve(task: Task, scope: Scope) -> Outcome:
        used.append(await say(scope, "one", "one"))
        used.append(await say(scope, "two", "two"))
        return done()

    store, model = HoldingStore(), ScriptedModel("ok")
    async with opened(tmp_path, store, model, Plain(solve)) as run:
        await store.holding.wait()
        for _ in range(200):
            await asyncio.sleep(0)
        assert not used and len(model.calls) == 1
        assert (await store.read("r"))[-1].kind == "call.finished"
        store.released.set()
        outcome = await run.outcome()
    assert outcome.status is Status.COMPLETED and used == ["ok", "ok"]


async def test_a_purpose_that_the_bill_does_not_name_may_spend_nothing(tmp_path: Path) -> None:
    async def solve(task: Task, scope: Scope) -> Outcome:
        await say(scope, "in the bill", "known")
        return done(await say(scope, "not in the bill", "unknown", purpose="luxury"))

    bill = Bill((BillLine("answer", 5, 100_000, 1000, None),))
    model = ScriptedModel("ok")
    outcome = await drive(tmp_path, model, Plain(solve, bill=bill))
    assert [call.context.key for call in model.calls if call.context] == ["known"]
    assert outcome.reason is StopReason.BUDGET and "line:luxury" in outcome.note


# ---- what an adapter reports ----------------------------------------------------------------------------------

UNBELIEVABLE = {
    "zeros beside text": ModelReply("ok", usage=Usage(0, 0)),
    "no output beside text": ModelReply("ok", usage=Usage(1, 0)),
    "no input": ModelReply("ok", usage=Usage(0, 1)),
    "nothing": ModelReply("ok"),
    "no output beside reasoning": ModelReply("", reasoning="let me think", usage=Usage(1, 0)),
}


@pytest.mark.parametrize("name", UNBELIEVABLE)
async def test_a_report_that_can_not_be_true_counts_as_the_worst_case(name: str, tmp_path: Path) -> None:
    async def solve(task: Task, scope: Scope) -> Outcome:
        return done(await say(scope, "hello", "one", cap=16))

    model = ScriptedModel([UNBELIEVABLE[name]], default="ok")
    outcome = await drive(tmp_path, model, Plain(solve))
    assert outcome.status is Status.COMPLETED and outcome.answer == "ok" and outcome.spend.estimated
    events = await events_of(config_in(tmp_path), "r")
    reserved = kinds(events, "call.started")[0][-1]["reserved"]
    usage = kinds(events, "call.finished")[0][-1]["usage"]
    assert usage["estimated"] and usage["output"] == 16
    assert usage["input"] == reserved["tokens_in"] > 0


@pytest.mark.parametrize("where", ["text", "reasoning"])
async def test_a_text_far_beyond_the_cap_is_an_overrun_if_nothing_is_reported(where: str, tmp_path: Path) -> None:
    long = "ä" * 2000
    reply = ModelReply(long) if where == "text" else ModelReply("ok", reasoning=long)
    model = ScriptedModel([reply], default="ok")
    outcome = await drive(tmp_path, model, Chain(), budget=Budget(tokens=1_000_000))
    assert len(model.calls) == 1  # the account was stopped
    assert (outcome.status, outcome.reason) == (Status.PARTIAL, StopReason.BUDGET)
    assert outcome.spend.tokens_out >= 4000 and outcome.spend.estimated
    assert kinds(await events_of(config_in(tmp_path), "r"), "budget.overrun")


# ---- what a person says to a run ------------------------------------------------------------------------------


async def test_commands_for_a_run_that_nobody_owned_are_refused_and_not_obeyed(tmp_path: Path) -> None:
    store = MemoryStore()
    async with opened(tmp_path, store, ScriptedModel("ok"), Chain(), budget=Budget(calls=1)) as run:
        assert (await run.outcome()).reason is StopReason.BUDGET
    await store.post(Command("late-stop", "r", "/", "stop", {}, 0.0))
    await store.post(Command("late-limit", "r", "/", "budget", {"dimension": "calls", "value": 0}, 0.0))
    slow = ScriptedModel("ok", latency=0.3)
    outcome = await romanesco.resume(
        "r", model=slow, topologies=[Chain()], store=store, config=config_in(tmp_path), budget=Budget(calls=9)
    )
    assert outcome.status is Status.COMPLETED and outcome.spend.calls == 3
    for command in ("late-stop", "late-limit"):
        answer = await store.acknowledgement(command)
        assert answer is not None and answer["ok"] is False and "not running" in answer["message"]
    assert not kinds(await read_events(store, "r"), "command.received")


async def test_a_limit_lowered_below_what_waiting_calls_have_reserved_holds_them_back(tmp_path: Path) -> None:
    store, gate = MemoryStore(), Gate()
    config = config_in(tmp_path, concurrency=2)
    options: dict[str, Any] = {"params": {"members": 30}, "budget": Budget(calls=100), "config": config}
    async with opened(tmp_path, store, gate.model, Members(), **options) as run:
        await gate.asked(2)
        assert (await ask(store, "budget", dimension="calls", value=0))["ok"] is True
        gate.opened.set()
        outcome = await run.outcome()
    assert len(gate.model.calls) == 2 == outcome.spend.calls
    assert outcome.status is Status.PARTIAL and outcome.reason is StopReason.BUDGET
    assert outcome.answer.count("(budget") == 28


async def test_a_live_limit_below_what_is_used_is_refused_as_a_resume_refuses_it(tmp_path: Path) -> None:
    store, two_done, goes_on = MemoryStore(), asyncio.Event(), asyncio.Event()

    async def solve(task: Task, scope: Scope) -> Outcome:
        await say(scope, "one", "one")
        await say(scope, "two", "two")
        two_done.set()
        await goes_on.wait()
        await say(scope, "three", "three")
        return done()

    async with opened(tmp_path, store, ScriptedModel("ok"), Plain(solve), budget=Budget(calls=9)) as run:
        await two_done.wait()
        refused = await ask(store, "budget", dimension="calls", value=1)
        goes_on.set()
        outcome = await run.outcome()
    assert refused["ok"] is False
    for told in ("below what the run has used already", "2 used", "limit 1", "--calls", "Nothing was changed"):
        assert told in refused["message"]
    assert outcome.status is Status.COMPLETED and outcome.spend.calls == 3
    assert not kinds(await read_events(store, "r"), "budget.changed")


async def test_a_raise_that_a_shared_account_can_not_carry_changes_nothing(tmp_path: Path) -> None:
    store, gate = MemoryStore(), Gate()
    config = config_in(tmp_path, **{"day.calls": 15})
    options: dict[str, Any] = {"params": {"members": 12}, "budget": Budget(calls=10), "config": config}
    async with opened(tmp_path, store, gate.model, Members(), **options) as run:
        (account,) = (shared.name for shared in run._session.spec.shared)
        await gate.asked(8)
        refused = await ask(store, "budget", dimension="calls", value=30)
        assert refused["ok"] is False and account in refused["message"]
        assert (await store.charged(account))["calls"] == "10"
        gate.opened.set()
        outcome = await run.outcome()
    assert len(gate.model.calls) == 10 == outcome.spend.calls
    assert outcome.reason is StopReason.BUDGET and "limit 10" in outcome.note
    assert not kinds(await read_events(store, "r"), "budget.changed")
    assert (await store.charged(account))["calls"] == "10"


# ---- what a run may still do ----------------------------------------------------------------------------------


async def test_the_repair_of_a_wrap_up_stays_inside_the_held_back_share(tmp_path: Path) -> None:
    async def solve(task: Task, scope: Scope) -> Outcome:
        await say(scope, "work", "work")
        return done(await say(scope, "wrap it up", "wrap", purpose="wrap-up"))

    lines = (("answer", 1), ("wrap-up", 2), ("repair", 0), ("retry", 0))
    bill = Bill(tuple(BillLine(line, calls, 10_000 * calls, 100 * calls, None) for line, calls in lines))
    model = ScriptedModel(["worked", "", "the end"])
    outcome = await drive(tmp_path, model, Plain(solve, bill=bill), budget=Budget(calls=3))
    assert outcome.status is Status.COMPLETED and outcome.answer == "the end"
    started = kinds(await events_of(config_in(tmp_path), "r"), "call.started")
    assert [data["line"] for *_, data in started] == ["answer", "wrap-up", "wrap-up"]


@pytest.mark.parametrize(
    ("given", "lifted"),
    [
        (None, False),
        (Budget(tokens=200_000), True),
        (Budget(tokens=90_000), False),
        (Budget(tokens=100_000), False),
        (Budget(seconds=3600), False),
        (Budget(calls=100), True),
    ],
    ids=["nothing", "raised", "lowered", "the same", "time", "a first limit of calls"],
)
async def test_after_a_servers_overrun_a_resume_sends_nothing_unless_a_limit_was_raised(
    given: Budget | None, lifted: bool, tmp_path: Path
) -> None:
    over, store = ModelReply("ok", usage=Usage(10, 500)), MemoryStore()
    options: dict[str, Any] = {"params": {"length": 3, "max_output_tokens": 16}, "budget": Budget(tokens=100_000)}
    async with opened(tmp_path, store, ScriptedModel([over]), Chain(), **options) as run:
        cut = await run.outcome()
    assert (cut.reason, cut.spend.calls) == (StopReason.BUDGET, 1)
    later = ScriptedModel("ok")
    outcome = await romanesco.resume(
        "r",
        model=later,
        topologies=[Chain()],
        store=store,
        config=config_in(tmp_path),
        budget=given,
    )
    assert len(later.calls) == (2 if lifted else 0)
    assert outcome.status is (Status.COMPLETED if lifted else Status.PARTIAL)


@pytest.mark.parametrize("word", ["TERMINATE", "FINAL ANSWER", "<done>", "[DONE]"])
async def test_br_016_a_quoted_stop_word_ends_nothing(word: str, tmp_path: Path) -> None:
    text = f'He said "{word}" and went on.\n{word}\n{word}: 42'
    quoting = ScriptedModel(text)
    outcome = await drive(tmp_path, quoting, Members(), params={"rounds": 3, "members": 2, "max_output_tokens": 64})
    assert outcome.status is Status.COMPLETED and len(quoting.calls) == 6
    assert outcome.answer.count(text) == 6


# ---- the attempts of a call -----------------------------------------------------------------------------------


async def one_call(task: Task, scope: Scope) -> Outcome:
    return done(await say(scope, "hello", "one"))


@pytest.mark.parametrize(
    ("fault", "line"),
    [(RateLimited("slow down"), "answer"), (ServerFault("down"), "retry")],
    ids=["429", "503"],
)
async def test_the_tokens_of_a_further_attempt_are_paid_by_the_line_that_still_has_them(
    fault: ModelError, line: str, tmp_path: Path
) -> None:
    """A 429 gave the step's own tokens back; what may have been paid for did not."""
    bill = Bill((BillLine("answer", 1, 10_000, 16, None), BillLine("retry", 1, 10_000, 16, None)))
    outcome = await drive(tmp_path, ScriptedModel([fault], default="ok"), Plain(one_call, bill=bill))
    assert outcome.status is Status.COMPLETED
    first, second = (data for *_, data in kinds(await events_of(config_in(tmp_path), "r"), "call.started"))
    assert (first["line"], first["call_line"]) == ("answer", "answer")
    assert (second["line"], second["call_line"]) == (line, "retry")


async def test_an_attempt_that_finds_no_tokens_gives_its_call_back(tmp_path: Path) -> None:
    """The retry line has requests left and no tokens; whoever was turned away with 429 needs only a request."""
    bill = Bill((BillLine("answer", 2, 10_000, 32, None), BillLine("retry", 1, 0, 0, None)))

    async def solve(task: Task, scope: Scope) -> Outcome:
        try:
            await say(scope, "first", "first")
        except ServerFault:
            return done(await say(scope, "second", "second"))
        return done("nothing failed")

    model = ScriptedModel([ServerFault("down"), RateLimited("slow down"), "ok"])
    outcome = await drive(tmp_path, model, Plain(solve, bill=bill))  # it looks that nothing stays reserved
    assert (outcome.status, outcome.answer) == (Status.COMPLETED, "ok")
    assert len(model.calls) == 3


async def test_a_pause_that_nobody_waits_for_holds_no_other_call_back(tmp_path: Path) -> None:
    """A quota of the day is used up for one call; the server's other calls go on."""

    async def solve(task: Task, scope: Scope) -> Outcome:
        try:
            await say(scope, "first", "first")
        except RateLimited:
            return done(await say(scope, "second", "second"))
        return done("nothing failed")

    model = ScriptedModel([RateLimited("come back tomorrow", retry_after=80_000.0), "ok"])
    async with asyncio.timeout(PATIENCE):
        outcome = await drive(tmp_path, model, Plain(solve))
    assert (outcome.status, outcome.answer) == (Status.COMPLETED, "ok")


# ---- what was stopped -----------------------------------------------------------------------------------------


async def test_a_node_that_was_stopped_before_a_kill_stays_stopped_after_a_resume(tmp_path: Path) -> None:
    out, killed = asyncio.Event(), asyncio.Event()

    async def solve(task: Task, scope: Scope) -> Outcome:
        if scope.node != "/":
            return done(await say(scope, task.goal, "work"))
        child = await scope.spawn("plain", Task("work"), key="child")
        killed.set()
        return done(await say(scope, f"the child was {child.status}", "after"))

    async def hang(_request: ModelRequest) -> str:
        out.set()
        return str(await asyncio.get_running_loop().create_future())

    store, config = MemoryStore(), config_in(tmp_path)
    async with opened(tmp_path, store, ScriptedModel(hang), Plain(solve), config=config) as run:
        await out.wait()
        # As if the process was killed between the order's place in the journal and the end of the node.
        run._session._run.stops = Stops()
        await run._session._run.journal.append(
            "command.received",
            node="/child",
            key="command:stop",
            data={"id": "stop", "verb": "stop", "data": {"why": "enough"}},
        )
        run._task.cancel()
        await asyncio.wait([run._task])
    model = ScriptedModel("ok")
    outcome = await romanesco.resume("r", model=model, topologies=[Plain(solve)], store=store, config=config)
    assert [call.context.key for call in model.calls if call.context] == ["after"]
    assert outcome.status is Status.COMPLETED
    (ended,) = [data for *_, data in kinds(await read_events(store, "r"), "node.ended")]
    assert ended["outcome"]["status"] == "cancelled" and "enough" in ended["outcome"]["note"]


def test_a_stop_counts_before_what_failed_beside_it() -> None:
    failed, stopped = ModelError("down"), RunStopped("Stopped: enough", stop_reason=StopReason.STOPPED)
    inner = BaseExceptionGroup("children", [ServerFault("down"), stopped])
    assert first_error(BaseExceptionGroup("members", [failed, inner])) is stopped
    assert first_error(BaseExceptionGroup("members", [failed, ServerFault("down")])) is failed
    assert first_error(failed) is failed


# ---- money ----------------------------------------------------------------------------------------------------


async def test_a_role_that_a_topology_does_not_have_needs_no_price(tmp_path: Path) -> None:
    model, unpriced = ScriptedModel("ok"), ScriptedModel("ok", name="acme:m")
    models = {"default": model, "decision-maker": unpriced}
    options: dict[str, Any] = {
        "model": models,
        "topology": "single",
        "config": config_in(tmp_path),
        "store": MemoryStore(),
    }
    outcome = await romanesco.run("hi", budget=Budget(usd=Decimal(1)), **options)
    assert outcome.status is Status.COMPLETED and len(model.calls) == 1


async def test_a_call_whose_price_is_unknown_is_refused_where_money_is_limited(tmp_path: Path) -> None:
    """The bill is for a model with a price; the topology asks another one."""

    async def solve(task: Task, scope: Scope) -> Outcome:
        return done(await say(scope, "hello", "one", role="other"))

    config, dear = config_in(tmp_path), ScriptedModel("ok", name="acme:m")
    bill = Bill((BillLine("answer", 1, 10_000, 16, Decimal(0)),))
    models: dict[str, Any] = {"default": ScriptedModel("ok"), "other": dear}
    outcome = await romanesco.run(
        "hi",
        model=models,
        topology=Plain(solve, bill=bill),
        budget=Budget(usd=Decimal(1)),
        config=config,
        store=MemoryStore(),
    )
    assert not dear.calls and "price of acme:m is unknown" in outcome.note
    without = Plain(solve, name="unbilled")
    with pytest.raises(ConfigError, match="price of acme:m is unknown"):
        await romanesco.plan("hi", model=models, topology=without, budget=Budget(usd=Decimal(1)), config=config)
