"""What a run does after a call used more than was reserved for it: nothing more is sent, and it is told.

The fake usage here is a server's false or true word; what it does to the accounts alone is tested with the budget.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import romanesco
from romanesco import Bill, Budget, Outcome, Scope, ScriptedModel, Status, StopReason, Task
from romanesco.errors import BudgetExceeded, RateLimited, ServerFault
from romanesco.journal import Event, verify
from romanesco.models import Capabilities, ModelReply, ModelRequest, Usage, current_call
from romanesco.models._openai import OpenAICompatible
from romanesco.runtime import read_events
from romanesco.task import BillLine, CallOverrun
from romanesco.testing import Chain, Members, MemoryStore
from tests.runtime.checks import at_rest, kinds
from tests.runtime.steer import until
from tests.runtime.topologies import Plain, done, say
from tests.support import PATIENCE, config_in

OVER = ModelReply("ok", usage=Usage(10, 1_000_000))


def key_of_call() -> str:
    context = current_call.get()
    assert context is not None
    return context.key


async def run_r(folder: Path, store: MemoryStore, model: Any, topology: Any, **options: Any) -> Outcome:
    """The run ``r``; whatever came of it, nothing stays reserved."""
    config = options.pop("config", None) or config_in(folder)
    async with romanesco.open_run(
        "say something", model=model, topology=topology, store=store, config=config, run="r", **options
    ) as run:
        outcome = await run.outcome()
    at_rest(run._session)
    return outcome


async def both(task: Task, scope: Scope) -> Outcome:
    """Two calls side by side; whoever fails is told in the answer."""

    async def one(key: str) -> str:
        try:
            return await say(scope, key, key)
        except BudgetExceeded as error:
            return f"{key}: {error}"

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(key)) for key in ("a", "b")]
    return done("\n".join(task.result() for task in tasks))


# ---- nothing more is sent -------------------------------------------------------------------------------------


async def test_calls_that_wait_for_a_slot_are_not_sent_after_an_overrun(tmp_path: Path) -> None:
    """Their worst case was reserved before it; without limits there is nothing that could be passed."""
    store, model = MemoryStore(), ScriptedModel([OVER], default="ok")
    config = config_in(tmp_path, concurrency=1)
    outcome = await run_r(tmp_path, store, model, Members(), params={"members": 6}, config=config)
    assert len(model.calls) == 1 == outcome.spend.calls
    assert (outcome.status, outcome.reason) == (Status.PARTIAL, StopReason.BUDGET)
    events = await read_events(store, "r")
    refused = [data["what"] for *_, data in kinds(events, "step.failed")]
    assert len(refused) == 5
    assert all("is stopped: the server reported" in text and "lowered" not in text for text in refused)


async def test_a_call_on_its_way_into_the_journal_is_not_sent_after_an_overrun(tmp_path: Path) -> None:
    class Slow(MemoryStore):
        """Says that the start of ``b`` is durable only when the overrun of ``a`` is on record."""

        def __init__(self) -> None:
            super().__init__()
            self.waits, self.overran = asyncio.Event(), asyncio.Event()

        def append(self, events: Sequence[Event], blobs: Mapping[str, bytes]) -> asyncio.Future[None]:
            written = super().append(events, blobs)
            if any(event.kind == "budget.overrun" for event in events):
                self.overran.set()
            if not any((event.kind, event.key) == ("call.started", "b") for event in events):
                return written

            async def later() -> None:
                await written
                self.waits.set()
                await self.overran.wait()

            return asyncio.ensure_future(later())

    store = Slow()

    async def one_after_the_other(task: Task, scope: Scope) -> Outcome:
        first = asyncio.ensure_future(say(scope, "a", "a"))
        await asked.wait()
        text = ""
        try:
            await say(scope, "b", "b")
        except BudgetExceeded as error:
            text = str(error)
        return done(f"{await first} {text}", Status.PARTIAL if text else Status.COMPLETED)

    asked = asyncio.Event()

    async def answer(_request: ModelRequest) -> ModelReply:
        asked.set()
        await store.waits.wait()
        return OVER

    model = ScriptedModel(answer)
    outcome = await run_r(tmp_path, store, model, Plain(one_after_the_other))
    assert [call.context.key for call in model.calls if call.context] == ["a"]
    assert "is stopped: the server reported" in outcome.answer
    assert outcome.spend.calls == 1
    (failed,) = [data for *_, data in kinds(await read_events(store, "r"), "call.failed")]
    assert failed["sent"] is False and failed["usage"]["output"] == 0
    later = ScriptedModel("ok")
    resumed = await romanesco.resume(
        "r",
        model=later,
        topologies=[Plain(one_after_the_other)],
        store=store,
        config=config_in(tmp_path),
        budget=Budget(tokens=3_000_000),
    )
    assert resumed.status is Status.COMPLETED and (resumed.spend.calls, len(later.calls)) == (2, 1)


async def test_a_call_that_waits_for_its_next_attempt_is_not_sent_after_an_overrun(tmp_path: Path) -> None:
    store = MemoryStore()

    async def failed() -> bool:
        return any(event.kind == "call.failed" for event in await store.read("r"))

    async def answer(_request: ModelRequest) -> ModelReply:
        if key_of_call() == "a":
            raise RateLimited("slow down", retry_after=5.0)  # far longer than all that happens meanwhile
        await until(failed)
        for _ in range(50):  # until the next attempt of the other has reserved its worst case
            await asyncio.sleep(0)
        return OVER

    model = ScriptedModel(answer)
    outcome = await run_r(tmp_path, store, model, Plain(both))
    assert sorted(call.context.key for call in model.calls if call.context) == ["a", "b"]
    assert "a: account run is stopped: the server reported" in outcome.answer


async def test_a_limit_that_was_lowered_is_still_said_to_be_lowered(tmp_path: Path) -> None:
    asked, goes_on = asyncio.Event(), asyncio.Event()

    async def answer(_request: ModelRequest) -> str:
        asked.set()
        await goes_on.wait()
        return "ok"

    config = config_in(tmp_path, concurrency=1)
    async with romanesco.open_run(
        "g",
        model=ScriptedModel(answer),
        topology=Plain(both),
        store=MemoryStore(),
        config=config,
        budget=Budget(calls=9),
    ) as run:
        await asked.wait()
        await run.limit(calls=1)
        goes_on.set()
        outcome = await run.outcome()
    assert "b: the limit of calls of account run was lowered while this waited" in outcome.answer


# ---- none is lost ---------------------------------------------------------------------------------------------

BILL = Bill((BillLine("answer", 1, 10_000, 16, Decimal(0)), BillLine("retry", 1, 10_000, 16, Decimal(0))))


async def once(task: Task, scope: Scope) -> Outcome:
    return done(await say(scope, "hello", "only"))


async def test_an_overrun_of_the_last_call_is_told_by_the_outcome_and_by_every_later_look_at_it(tmp_path: Path) -> None:
    store, topology, config = MemoryStore(), Plain(once, bill=BILL), config_in(tmp_path)
    outcome = await run_r(tmp_path, store, ScriptedModel([OVER]), topology)
    assert (outcome.status, outcome.reason, outcome.answer) == (Status.COMPLETED, StopReason.COMPLETED, "ok")
    assert CallOverrun("/", "only", "tokens_out", Decimal(1_000_000 - 16)) in outcome.overruns
    assert "only, " in outcome.note and "999,984 tokens_out more" in outcome.note
    found = await verify(store, "r")
    assert "bill" in {finding.property for finding in found.findings if finding.verdict == "violated"}
    again = await romanesco.resume("r", model=ScriptedModel("ok"), topologies=[topology], store=store, config=config)
    replayed = await romanesco.replay("r", topologies=[topology], store=store, config=config)
    assert (again.overruns, again.note) == (outcome.overruns, outcome.note)
    assert replayed.overruns == outcome.overruns


async def test_an_overrun_is_still_told_when_a_higher_limit_has_let_the_run_go_on(tmp_path: Path) -> None:
    store, config = MemoryStore(), config_in(tmp_path)
    cut = await run_r(tmp_path, store, ScriptedModel([OVER]), Chain(), budget=Budget(tokens=100_000))
    assert cut.reason is StopReason.BUDGET and cut.overruns
    whole = await romanesco.resume(
        "r",
        model=ScriptedModel("ok"),
        topologies=[Chain()],
        store=store,
        config=config,
        budget=Budget(tokens=3_000_000),
    )
    assert whole.status is Status.COMPLETED and whole.overruns == cut.overruns
    assert "tokens_out more" in whole.note


async def test_a_run_that_kept_to_its_bill_tells_of_no_overrun(tmp_path: Path) -> None:
    outcome = await run_r(tmp_path, MemoryStore(), ScriptedModel("ok"), Plain(once, bill=BILL))
    assert (outcome.overruns, outcome.note) == ((), "")


async def test_an_overrun_of_a_failed_call_is_on_record_and_holds_over_a_resume(tmp_path: Path) -> None:
    fault = ServerFault("broke off")
    fault.usage, fault.retryable = Usage(10, 50_000), False
    store = MemoryStore()
    outcome = await run_r(tmp_path, store, ScriptedModel([fault]), Plain(once))
    assert outcome.spend.tokens_out == 50_000
    assert CallOverrun("/", "only", "tokens_out", Decimal(50_000 - 16)) in outcome.overruns
    order = [kind for _, kind, *_ in await read_events(store, "r")]
    assert order.index("budget.overrun") == order.index("call.failed") + 1
    later = ScriptedModel("ok")
    resumed = await romanesco.resume(
        "r", model=later, topologies=[Plain(once)], store=store, config=config_in(tmp_path)
    )
    assert resumed.reason is StopReason.BUDGET and not later.calls


HALVES: dict[str, tuple[ModelReply, int | None, int]] = {
    "much was generated, nothing was read": (ModelReply("ok", usage=Usage(0, 50_000)), None, 50_000),
    "much was read, nothing was generated": (ModelReply("ok", usage=Usage(90_000, 0)), 90_000, 16),
    "less than the bound was generated": (ModelReply("ok", usage=Usage(0, 3)), None, 16),
    "the adapter knows only what was read": (ModelReply("", usage=Usage(90_000, 0, estimated=True)), 90_000, 16),
    "nothing, beside a text of nine bytes a token": (ModelReply("a" * 9 * 16), None, 9 * 16),
    "nothing, beside a text of eight bytes a token": (ModelReply("a" * 8 * 16), None, 16),
}
"""Replies to a call with a cap of 16 tokens, and what counts as read (None: the upper bound) and as generated."""


@pytest.mark.parametrize("name", HALVES)
async def test_a_report_of_which_half_is_missing_counts_as_no_less_than_the_other_half(
    name: str, tmp_path: Path
) -> None:
    reply, read, wrote = HALVES[name]
    store = MemoryStore()
    outcome = await run_r(tmp_path, store, ScriptedModel([reply]), Plain(once))
    events = await read_events(store, "r")
    ((*_, started),) = kinds(events, "call.started")
    bound = started["reserved"]["tokens_in"]
    assert outcome.spend.tokens_in == (bound if read is None else read)
    assert outcome.spend.tokens_out == wrote and outcome.spend.estimated
    over = {(one.dimension, one.reported) for one in outcome.overruns if one.dimension != "tokens"}
    said = reply.usage is not None
    expected = {("tokens_out", said)} if wrote > 16 else {("tokens_in", said)} if read else set()
    assert over == expected
    assert bool(kinds(events, "budget.overrun")) is bool(expected)


@pytest.mark.parametrize(("reported", "wrote"), [(4, 9 * 16), (5, 5)])
async def test_a_report_of_far_less_than_what_arrived_is_not_believed(
    reported: int, wrote: int, tmp_path: Path
) -> None:
    """144 bytes under a cap of 16: 4 tokens can't have been so long, 5 may have been."""
    reply = ModelReply("a" * 9 * 16, usage=Usage(1, reported))
    outcome = await run_r(tmp_path, MemoryStore(), ScriptedModel([reply]), Plain(once))
    assert outcome.spend.tokens_out == wrote
    assert outcome.spend.estimated is (wrote > 16)
    assert bool(outcome.overruns) is (wrote > 16)


async def test_of_a_reply_that_ignores_its_cap_only_so_much_is_kept(tmp_path: Path) -> None:
    model = ScriptedModel(ModelReply("word " * 600_000, usage=Usage(30, 600_000)))
    options: dict[str, Any] = {"model": model, "config": config_in(tmp_path), "store": MemoryStore()}
    outcome = await romanesco.run("Say hello", topology="single", params={"answer_tokens": 75}, run="r", **options)
    assert (outcome.status, outcome.reason) == (Status.PARTIAL, StopReason.LENGTH)
    assert 0 < len(outcome.answer) <= 32 * 75 + 4096
    assert outcome.spend.tokens_out == 600_000, "what was generated counts, kept or not"


BEYOND: dict[str, tuple[ModelReply, int | None, int]] = {
    "both": (ModelReply("ok", usage=Usage(10**30, 10**40)), None, 16),
    "both, beside a long text": (ModelReply("a" * 9 * 16, usage=Usage(10**30, 10**40)), None, 9 * 16),
    "what was generated": (ModelReply("ok", usage=Usage(1, 10**12 + 1)), None, 16),
    "what was read": (ModelReply("ok", usage=Usage(10**12 + 1, 3)), None, 16),
}
"""Replies to a call with a cap of 16 tokens and impossible reports, and what counts, as in ``HALVES``."""


@pytest.mark.parametrize("name", BEYOND)
async def test_a_report_beyond_all_numbers_counts_as_none(name: str, tmp_path: Path) -> None:
    reply, read, wrote = BEYOND[name]
    config = config_in(tmp_path)
    config.tables["prices"] = {"acme:m": {"input": 1, "output": 100}}
    store = MemoryStore()
    outcome = await run_r(tmp_path, store, ScriptedModel([reply], name="acme:m"), Plain(once), config=config)
    ((*_, started),) = kinds(await read_events(store, "r"), "call.started")
    assert outcome.spend.tokens_in == (started["reserved"]["tokens_in"] if read is None else read)
    assert outcome.spend.tokens_out == wrote and outcome.spend.estimated
    assert all(not one.reported for one in outcome.overruns) and bool(outcome.overruns) is (wrote > 16)
    assert (await verify(store, "r")).ok  # no bill is violated for ever by a word that means nothing


READ: dict[str, tuple[str, Usage, bool]] = {
    "one token for a long prompt": ("word " * 4_000, Usage(1, 3), False),
    "the least that a prompt can be": ("=" * 128 * 100, Usage(100, 3), True),
    "less than that": ("=" * 128 * 101, Usage(100, 3), False),
    "what was read from a cache apart": ("=" * 128 * 500, Usage(100, 3, cached=400), True),
    "a prompt of blanks that a template trims": (" \n" * 20_000, Usage(1, 3), True),
    "a prompt that the server cut to its window": ("word " * 100_000, Usage(512, 3), True),
}
"""A prompt, what was reported, and whether that can be."""


@pytest.mark.parametrize("name", READ)
async def test_a_report_of_far_less_than_what_was_sent_is_not_believed(name: str, tmp_path: Path) -> None:
    prompt, usage, credible = READ[name]
    store = MemoryStore()

    async def ask(task: Task, scope: Scope) -> Outcome:
        return done(await say(scope, prompt, "only"))

    model = ScriptedModel([ModelReply("ok", usage=usage)], window=10**6)
    outcome = await run_r(tmp_path, store, model, Plain(ask))
    ((*_, started),) = kinds(await read_events(store, "r"), "call.started")
    assert outcome.spend.tokens_in == (usage.input if credible else started["reserved"]["tokens_in"])
    assert outcome.spend.estimated is not credible and not outcome.overruns


async def test_what_an_adapter_did_not_keep_of_a_reply_counts(tmp_path: Path) -> None:
    reply = ModelReply("a" * 100, usage=Usage(1, 5), received=80_000)
    outcome = await run_r(tmp_path, MemoryStore(), ScriptedModel([reply]), Plain(once))
    assert (outcome.spend.tokens_out, outcome.spend.estimated) == (80_000, True)


async def test_reasoning_beyond_the_cap_leaves_the_answer_whole(tmp_path: Path) -> None:
    """A server whose cap does not hold for reasoning says what it used; the answer was paid for, and is whole."""
    model = ScriptedModel(ModelReply("Hello.", reasoning="hm, " * 20_000, usage=Usage(30, 20_000)))
    options: dict[str, Any] = {"model": model, "config": config_in(tmp_path), "store": MemoryStore()}
    outcome = await romanesco.run("Say hello", topology="single", params={"answer_tokens": 75}, **options)
    assert (outcome.status, outcome.answer, outcome.spend.tokens_out) == (Status.COMPLETED, "Hello.", 20_000)
    assert outcome.overruns


async def test_a_stream_that_never_ends_is_left_when_its_text_is_far_beyond_the_cap(tmp_path: Path) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
    piece = {"choices": [{"index": 0, "delta": {"content": "no end "}}]}
    events = b"".join([b"data: " + json.dumps(piece).encode() + b"\n\n"] * 1000)
    left = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head)
        with contextlib.suppress(OSError):
            while True:
                writer.write(events)
                await writer.drain()
        left.set()
        writer.close()

    async with await asyncio.start_server(talk, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        model = OpenAICompatible(
            name="acme:fake",
            model="fake",
            base_url=f"http://{host}:{port}/v1",
            capabilities=Capabilities(window=100_000),
        )
        options: dict[str, Any] = {"model": model, "config": config_in(tmp_path), "store": MemoryStore()}
        outcome = await romanesco.run("Hi", topology="single", params={"answer_tokens": 75}, **options)
        await model.close()
        async with asyncio.timeout(PATIENCE):
            await left.wait()  # the server sees that nobody listens
    assert outcome.reason is StopReason.LENGTH
    assert 75 * 32 <= len(outcome.answer) <= 75 * 32 + 4096
    assert outcome.spend.tokens_out > len(outcome.answer) and outcome.spend.estimated
    assert "more by our estimate" in outcome.note
