"""What a run holds of accounts that runs share: never less than it may come to, and nothing that nobody can free."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import romanesco
from romanesco import Bill, Budget, InputError, Outcome, Scope, ScriptedModel, Status, StopReason, Task
from romanesco.errors import BudgetExceeded, JournalUnwritable
from romanesco.journal import Event, Hold
from romanesco.models import ModelReply, Usage
from romanesco.runtime import Parts, RunSpec, SharedAccount, Topologies, read_events, resume, start
from romanesco.task import BillLine
from romanesco.testing import Members, MemoryStore, NgramEmbedder
from tests.runtime.checks import at_rest, kinds
from tests.runtime.topologies import Plain, done, say
from tests.support import config_in

WEB = "project:web"


def shared(*accounts: tuple[str, int]) -> tuple[SharedAccount, ...]:
    return tuple(SharedAccount(name, Budget(calls=calls)) for name, calls in accounts or ((WEB, 20),))


def spec_of(run: str = "r", topology: str = "members", **more: Any) -> RunSpec:
    more.setdefault("shared", shared())
    return RunSpec(run, Task("say something"), topology, {"default": "scripted:test"}, **more)


def parts_of(store: MemoryStore, model: Any, *topologies: Any) -> Parts:
    from romanesco.models import ModelPool

    pool = ModelPool({})
    pool.add(model)
    return Parts(store, pool, NgramEmbedder(), Topologies([*topologies, Members()]))


async def calls_of(store: MemoryStore, account: str = WEB) -> int:
    return int((await store.charged(account)).get("calls", "0"))


class Watched(MemoryStore):
    """Notes what is held of the project after each change, and lets another run try to take room at that moment."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[int] = []
        self.other_got_room = False

    async def charge_all(self, run: str, holds: Sequence[Hold]) -> None:
        try:
            await super().charge_all(run, holds)
        finally:
            self.held.append(await calls_of(self))
            if run == "r":
                await self._other()

    async def _other(self) -> None:
        try:
            await super().charge_all("other", [Hold(WEB, {"calls": "9"}, {"calls": "20"})])
        except BudgetExceeded:
            return
        self.other_got_room = True


class Gate:
    """A model whose answers wait until it is opened."""

    def __init__(self, calls: int) -> None:
        self.asked, self.opened = asyncio.Event(), asyncio.Event()
        self.model = ScriptedModel(self._answer)
        self._calls = calls

    async def _answer(self, _request: object) -> str:
        if len(self.model.calls) >= self._calls:
            self.asked.set()
        await self.opened.wait()
        return "ok"


# ---- while it goes on -----------------------------------------------------------------------------------------


async def test_a_refused_raise_never_lets_go_of_what_the_run_holds(tmp_path: Path) -> None:
    store, gate = Watched(), Gate(8)
    task = Task("say something", params={"members": 12})
    session = await start(
        RunSpec(
            "r",
            task,
            "members",
            {"default": "scripted:test"},
            budget=Budget(calls=12),
            shared=shared((WEB, 20), ("day:2026-11-30", 15)),
        ),
        parts_of(store, gate.model),
    )
    driving = asyncio.ensure_future(session.drive())
    await gate.asked.wait()
    with pytest.raises(BudgetExceeded, match="day:2026-11-30"):
        await session.say("budget", dimension="calls", value=16)
    assert await calls_of(store) == 12 == await calls_of(store, "day:2026-11-30")
    gate.opened.set()
    outcome = await driving
    at_rest(session)
    assert outcome.spend.calls == 12
    assert store.held[0] == 12 and min(store.held) == 12 and not store.other_got_room


async def test_after_a_lowered_limit_a_run_holds_what_it_has_in_flight(tmp_path: Path) -> None:
    store, gate = Watched(), Gate(8)
    task = Task("say something", params={"members": 8})
    session = await start(
        RunSpec("r", task, "members", {"default": "scripted:test"}, budget=Budget(calls=12), shared=shared()),
        parts_of(store, gate.model),
    )
    driving = asyncio.ensure_future(session.drive())
    await gate.asked.wait()
    await session.say("budget", dimension="calls", value=2)
    assert await calls_of(store) - (9 if store.other_got_room else 0) == 8
    gate.opened.set()
    assert (await driving).spend.calls == 8


async def test_a_run_holds_the_smaller_of_its_limit_and_its_bill(tmp_path: Path) -> None:
    async def solve(task: Task, scope: Scope) -> Outcome:
        held.append(await calls_of(store))
        return done(await say(scope, "hello", "one"))

    bill = Bill((BillLine("answer", 6, 60_000, 600, Decimal(0)), BillLine("retry", 3, 30_000, 300, Decimal(0))))
    held: list[int] = []
    for limit in (4, None, 100):
        store = MemoryStore()
        topology = Plain(solve, bill=bill)
        session = await start(
            spec_of(topology="plain", budget=Budget(calls=limit)), parts_of(store, ScriptedModel("ok"), topology)
        )
        assert (await session.drive()).status is Status.COMPLETED
        assert await calls_of(store) == 1
    assert held == [4, 9, 9]


async def test_a_run_that_went_beyond_its_bill_holds_what_it_may_still_come_to(tmp_path: Path) -> None:
    async def solve(task: Task, scope: Scope) -> Outcome:
        await say(scope, "hello", "one")
        held.append(int((await store.charged(WEB))["tokens"]))
        return done(await say(scope, "hello", "two"))

    held: list[int] = []
    store, bill = MemoryStore(), Bill((BillLine("answer", 2, 1000, 100, Decimal(0)),))
    account = (SharedAccount(WEB, Budget(tokens=10_000)),)
    spec = spec_of(topology="plain", budget=Budget(tokens_out=2000), shared=account)
    model = ScriptedModel([ModelReply("ok", usage=Usage(2, 1016))], default="ok")
    parts = parts_of(store, model, Plain(solve, bill=bill))
    first = await (await start(spec, parts)).drive()
    assert first.reason is StopReason.BUDGET and held == [1100]
    await (await resume("r", parts, (("tokens_out", 3000),))).drive()
    assert held == [1100, 2100]


# ---- at its beginning -----------------------------------------------------------------------------------------


class Killed(BaseException):
    """The end of a process: nobody gets to clean up."""


class Dying(MemoryStore):
    """A store whose process is killed as soon as it holds something, or before it does."""

    def __init__(self) -> None:
        super().__init__()
        self.known: list[bool] = []
        self.alive = False

    async def charge_all(self, run: str, holds: Sequence[Hold]) -> None:
        if self.alive:
            await super().charge_all(run, holds)
            return
        if not self.known:
            self.known.append(bool(await self.read(run)))
            await super().charge_all(run, holds)
        raise Killed


async def test_a_run_that_was_killed_before_it_was_planned_can_be_found_and_freed(tmp_path: Path) -> None:
    store = Dying()
    parts = parts_of(store, ScriptedModel("ok"))
    with pytest.raises(Killed):
        await start(spec_of(budget=Budget(calls=12)), parts)
    assert store.known == [True], "its journal was there before it held anything"
    assert await calls_of(store) == 12 and [head.run for head in await store.runs()] == ["r"]
    store.alive = True
    outcome = await (await resume("r", parts)).drive()
    assert (outcome.status, outcome.reason) == (Status.CANCELLED, StopReason.INTERRUPTED)
    assert "never planned" in outcome.note and await calls_of(store) == 0
    assert [kind for _, kind, *_ in await read_events(store, "r")] == ["run.created", "run.ended"]
    once_more = await (await resume("r", parts)).drive()
    assert (once_more.status, once_more.head) == (outcome.status, outcome.head)
    with pytest.raises(InputError, match="nothing to replay"):
        await romanesco.replay("r", store=store, config=config_in(tmp_path))


class Full(MemoryStore):
    """A store that can't write events of one kind."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def append(self, events: Sequence[Event], blobs: Mapping[str, bytes]) -> asyncio.Future[None]:
        if any(event.kind == self.kind for event in events):
            raise JournalUnwritable("The disk is full")
        return super().append(events, blobs)


@pytest.mark.parametrize("kind", ["run.created", "run.planned"])
async def test_a_run_whose_beginning_can_not_be_written_holds_nothing(kind: str, tmp_path: Path) -> None:
    store = Full(kind)
    with pytest.raises(JournalUnwritable, match="disk is full"):
        await start(spec_of(budget=Budget(calls=12)), parts_of(store, ScriptedModel("ok")))
    assert await calls_of(store) == 0
    store.lock("r").release()


async def test_a_resume_that_can_not_be_written_holds_what_was_spent(tmp_path: Path) -> None:
    store = Full("run.resumed")
    parts = parts_of(store, ScriptedModel("ok"))
    session = await start(spec_of(budget=Budget(calls=5)), parts)
    assert (await session.drive()).reason is StopReason.BUDGET
    with pytest.raises(JournalUnwritable, match="disk is full"):
        await resume("r", parts, (("calls", 12),))
    assert await calls_of(store) == 5


async def test_a_run_that_another_one_leaves_no_room_is_ended_on_record(tmp_path: Path) -> None:
    """The other takes the room between the look at the account and the hold."""

    class Taken(MemoryStore):
        async def charge_all(self, run: str, holds: Sequence[Hold]) -> None:
            if run == "r" and not await calls_of(self):
                await super().charge_all("other", [Hold(WEB, {"calls": "15"})])
            await super().charge_all(run, holds)

    store = Taken()
    with pytest.raises(BudgetExceeded, match=WEB):
        await start(spec_of(budget=Budget(calls=12)), parts_of(store, ScriptedModel("ok")))
    ended = kinds(await read_events(store, "r"), "run.ended")
    assert [(data["status"], data["reason"]) for *_, data in ended] == [("refused", "budget")]
    assert await calls_of(store) == 15
    store.lock("r").release()


async def test_a_resume_that_a_shared_account_refuses_leaves_what_the_killed_run_holds(tmp_path: Path) -> None:
    store, gate = MemoryStore(), Gate(8)
    accounts = shared((WEB, 100), ("day:2026-11-30", 15))
    session = await start(spec_of(budget=Budget(calls=12), shared=accounts), parts_of(store, gate.model))
    driving = asyncio.ensure_future(session.drive())
    await gate.asked.wait()
    driving.cancel()  # as a killed process does, it ends without a word
    await asyncio.wait([driving])
    parts = parts_of(store, ScriptedModel("ok"))
    with pytest.raises(BudgetExceeded, match="day:2026-11-30"):
        await resume("r", parts, (("calls", 16),))
    assert [await calls_of(store, account.name) for account in accounts] == [12, 12]
    outcome = await (await resume("r", parts, (("calls", 15),))).drive()
    assert [await calls_of(store, account.name) for account in accounts] == [outcome.spend.calls] * 2


# ---- resumed under other accounts than before -----------------------------------------------------------------


async def killed_after(store: MemoryStore, calls: int, spec: RunSpec) -> int:
    """Start a run, and end it as a kill does once it has made so many calls; gives what it has spent by then."""
    gate = Gate(calls)
    session = await start(spec, parts_of(store, gate.model))
    driving = asyncio.ensure_future(session.drive())
    await gate.asked.wait()
    driving.cancel()
    await asyncio.wait([driving])
    return session.spend().calls


YESTERDAY, TODAY = "day:2026-11-29", "day:2026-11-30"


async def test_a_run_of_yesterday_is_charged_today_with_what_it_spends_today() -> None:
    store = MemoryStore()
    spec = spec_of(budget=Budget(calls=12), shared=shared((WEB, 100), (YESTERDAY, 40)))
    before = await killed_after(store, 3, spec)
    assert before and await calls_of(store, YESTERDAY) == 12
    now = shared((WEB, 100), (TODAY, 40))
    parts = replace(parts_of(store, ScriptedModel("ok")), accounts=lambda: now)
    session = await resume("r", parts)
    assert await calls_of(store, YESTERDAY) == before, "it will spend no more of that day"
    assert await calls_of(store, TODAY) == 12 - before
    outcome = await session.drive()
    assert outcome.spend.calls > before
    assert await calls_of(store, YESTERDAY) == before
    assert await calls_of(store, TODAY) == outcome.spend.calls - before
    assert await calls_of(store) == outcome.spend.calls
    changes = kinds(await read_events(store, "r"), "accounts.changed")
    assert [[one["name"] for one in data["accounts"]] for *_, data in changes] == [[WEB, TODAY]]


async def test_a_run_that_is_resumed_twice_in_a_day_stays_charged_with_that_days_part() -> None:
    store = MemoryStore()
    before = await killed_after(store, 3, spec_of(budget=Budget(calls=12), shared=shared((YESTERDAY, 40))))
    gate = Gate(2)
    parts = replace(parts_of(store, gate.model), accounts=lambda: shared((TODAY, 40)))
    session = await resume("r", parts)
    driving = asyncio.ensure_future(session.drive())
    await gate.asked.wait()
    driving.cancel()
    await asyncio.wait([driving])
    gate.opened.set()
    outcome = await (await resume("r", parts)).drive()
    assert await calls_of(store, TODAY) == outcome.spend.calls - before
    assert len(kinds(await read_events(store, "r"), "accounts.changed")) == 1


async def test_a_day_that_has_no_room_refuses_a_run_of_yesterday_and_it_can_be_resumed_later() -> None:
    store = MemoryStore()
    before = await killed_after(store, 3, spec_of(budget=Budget(calls=12), shared=shared((YESTERDAY, 40))))
    await store.charge(TODAY, "other", {"calls": "39"}, {})
    parts = replace(parts_of(store, ScriptedModel("ok")), accounts=lambda: shared((TODAY, 40)))
    written = len(await read_events(store, "r"))
    with pytest.raises(BudgetExceeded, match=TODAY):
        await resume("r", parts)
    assert len(await read_events(store, "r")) == written
    await store.charge(TODAY, "other", {"calls": "20"}, {})
    outcome = await (await resume("r", parts)).drive()
    assert await calls_of(store, TODAY) == 20 + outcome.spend.calls - before


async def test_the_limits_that_are_set_now_hold_for_a_resumed_run() -> None:
    store = MemoryStore()
    before = await killed_after(store, 3, spec_of(budget=Budget(calls=12), shared=shared((WEB, 100))))
    parts = parts_of(store, ScriptedModel("ok"))
    with pytest.raises(BudgetExceeded, match=f"{WEB}.*12 calls.*limit 6"):
        await resume("r", replace(parts, accounts=lambda: shared((WEB, 6))))
    assert await calls_of(store) == before, "a run that may not go on holds nothing but what it spent"
    outcome = await (await resume("r", replace(parts, accounts=lambda: shared((WEB, 12))))).drive()
    assert outcome.spend.calls == await calls_of(store) <= 12


async def test_a_limit_that_was_raised_lets_a_refused_raise_through() -> None:
    store = MemoryStore()
    parts = parts_of(store, ScriptedModel("ok"))
    session = await start(spec_of(budget=Budget(calls=5), shared=shared((WEB, 6))), parts)
    assert (await session.drive()).reason is StopReason.BUDGET
    with pytest.raises(BudgetExceeded, match=WEB):
        await resume("r", parts, (("calls", 12),))
    raised = replace(parts, accounts=lambda: shared((WEB, 20)))
    assert (await (await resume("r", raised, (("calls", 12),))).drive()).status is Status.COMPLETED


async def test_a_run_stays_in_its_project_and_joins_one_if_it_had_none() -> None:
    store = MemoryStore()
    await killed_after(store, 3, spec_of(budget=Budget(calls=12), shared=shared((WEB, 100))))
    other = shared(("project:other", 1))
    outcome = await (await resume("r", replace(parts_of(store, ScriptedModel("ok")), accounts=lambda: other))).drive()
    assert await calls_of(store) == outcome.spend.calls and await calls_of(store, "project:other") == 0
    store = MemoryStore()
    before = await killed_after(store, 3, spec_of(budget=Budget(calls=12), shared=()))
    joined = replace(parts_of(store, ScriptedModel("ok")), accounts=lambda: shared((WEB, 100)))
    outcome = await (await resume("r", joined)).drive()
    assert await calls_of(store) == outcome.spend.calls - before


async def test_the_configuration_of_now_is_in_force_for_a_resume(tmp_path: Path) -> None:
    """Through the package's own functions: a project whose limit was lowered between a run and its resume."""
    store, model = MemoryStore(), ScriptedModel("ok")
    config = config_in(tmp_path, project__name="web", project__calls=100)
    given: dict[str, Any] = {"store": store, "model": model, "topologies": [Members()]}
    outcome = await romanesco.run("Why?", config=config, topology="members", run="r", budget=Budget(calls=5), **given)
    assert outcome.reason is StopReason.BUDGET
    lowered = config_in(tmp_path, project__name="web", project__calls=outcome.spend.calls + 1)
    more = Budget(calls=90)
    with pytest.raises(BudgetExceeded, match=WEB):
        await romanesco.resume("r", config=lowered, budget=more, **given)
    assert len(model.calls) == outcome.spend.calls == 5
    ended = await romanesco.resume("r", config=config, budget=more, **given)
    assert ended.status is Status.COMPLETED and await calls_of(store) == ended.spend.calls


# ---- at its end -----------------------------------------------------------------------------------------------


async def test_a_completed_run_that_was_killed_before_it_let_go_is_settled_by_a_resume(tmp_path: Path) -> None:
    class Locked(MemoryStore):
        """Can't be charged once a run has ended."""

        fails = True

        async def charge_all(self, run: str, holds: Sequence[Hold]) -> None:
            if self.fails and (await self.read(run))[-1].kind == "run.ended":
                raise JournalUnwritable("The disk is full")
            await super().charge_all(run, holds)

    store = Locked()
    parts = parts_of(store, ScriptedModel("ok"))
    session = await start(spec_of(budget=Budget(calls=12)), parts)
    assert (await session.drive()).spend.calls == 8
    assert await calls_of(store) == 12
    store.fails = False
    outcome = await (await resume("r", parts)).drive()
    assert outcome.status is Status.COMPLETED and await calls_of(store) == 8
