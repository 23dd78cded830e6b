"""A full disk: a labelled partial result at once, nothing that was written is lost, and the run can be resumed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import romanesco
from romanesco import Status, StopReason
from romanesco.errors import JournalUnwritable
from romanesco.journal import Command, Event, SQLiteStore
from romanesco.testing import Chain, FakeReply, FakeServer, Fault, Members, Scenario
from tests.runtime.checks import at_rest, check_run, finished_keys, nothing_left_behind, verified
from tests.runtime.processes import Forker
from tests.runtime.steer import deserted
from tests.support import PATIENCE, config_in, events_of


class Full(SQLiteStore):
    """A store whose disk is full once so many writes were made."""

    room = 10_000

    def append(self, events: Sequence[Event], blobs: Mapping[str, bytes]) -> asyncio.Future[None]:
        self.room -= 1
        if self.room < 0:
            failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            failed.set_exception(JournalUnwritable("The disk is full", advice="Make room and resume the run."))
            return failed
        return super().append(events, blobs)


@pytest.mark.parametrize("room", [1, 2, 3, 4, 5, 6, 7])
@pytest.mark.parametrize("topology", [Chain(), Members()], ids=["chain", "members"])
async def test_a_full_disk_ends_the_run_at_once_and_it_resumes(
    topology: Chain | Members, room: int, tmp_path: Path
) -> None:
    config = config_in(tmp_path)
    config.home().mkdir(parents=True)
    params = {"rounds": 3, "members": 3} if isinstance(topology, Members) else {"length": 5}
    before = asyncio.all_tasks()
    async with FakeServer(scenario=Scenario(default=FakeReply(fault=Fault(latency=0.002)))) as server:
        store = Full(config.home() / "journal.db")
        store.room = room
        async with asyncio.timeout(PATIENCE):
            async with romanesco.open_run(
                "say something", model=f"{server.url}#fake", topology=topology, params=params, config=config,
                run="r", store=store,
            ) as run:  # fmt: skip
                outcome = await run.outcome()
        at_rest(run._session)
        await deserted(server)
        nothing_left_behind(before)
        await store.close()
        assert outcome.reason is StopReason.STORAGE and outcome.status in (Status.FAILED, Status.PARTIAL)
        assert "disk is full" in outcome.note and not outcome.head
        assert (outcome.status is Status.PARTIAL) == bool(outcome.answer)
        await verified(config)
        kept = await events_of(config, "r")
        before_resume = len(server.ledger.requests)
        whole = await romanesco.resume("r", topologies=[topology], config=config)
        events = await check_run(config, whole, server.ledger)
        assert whole.status is Status.COMPLETED
        later = {(node, key) for _, kind, node, key, _ in events[len(kept) :] if kind == "call.started"}
        assert later.isdisjoint(finished_keys(kept))
        assert len(server.ledger.requests) - before_resume == len(later)


async def test_a_disk_that_was_full_before_the_run_began_is_an_error_and_costs_nothing(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    config.home().mkdir(parents=True)
    store = Full(config.home() / "journal.db")
    store.room = 0
    model = romanesco.ScriptedModel("ok")
    with pytest.raises(JournalUnwritable, match="disk is full"):
        await romanesco.run("g", model=model, topology=Chain(), config=config, run="r", store=store)
    assert not model.calls
    await store.close()


async def test_a_file_that_may_not_grow_is_the_same(jobs: Forker, tmp_path: Path) -> None:
    async with FakeServer() as server:
        job = {"topology": "members", "params": {"members": 8, "rounds": 40}, "url": server.url}
        outcome = await jobs.outcome("run", tmp_path, file_limit=600_000, **job)
        assert outcome.reason is StopReason.STORAGE
        assert outcome.status is Status.PARTIAL and outcome.answer
        await verified(config_in(tmp_path))
        whole = await jobs.outcome("resume", tmp_path)
        await check_run(config_in(tmp_path), whole, server.ledger)
    assert whole.status is Status.COMPLETED and whole.answer.count("round/") == 320


async def test_a_run_whose_end_can_not_be_written_is_not_told_as_complete(tmp_path: Path) -> None:
    """The last write fails: the answer is there, its end is not on record, and nobody is told of an end."""
    config = config_in(tmp_path)
    config.home().mkdir(parents=True)
    model = romanesco.ScriptedModel("ok")
    seen: list[str] = []
    for room in range(1, 20):
        store = Full(config.home() / "journal.db")
        store.room = room
        options: dict[str, Any] = {"config": config, "run": f"r{room}", "store": store, "params": {"length": 1}}
        async with romanesco.open_run("g", model=model, topology=Chain(), **options) as run:
            seen = [event.kind async for event in run.events()]
            outcome = await run.outcome()
        await store.close()
        if outcome.reason is StopReason.COMPLETED:
            break
        assert "run.ended" not in seen
        assert outcome.status is not Status.COMPLETED and "disk is full" in outcome.note
        written = [kind for _, kind, *_ in await events_of(config, f"r{room}")]
        assert "run.ended" not in written
    assert outcome.status is Status.COMPLETED and seen[-1] == "run.ended"


@pytest.mark.parametrize("room", [2, 3, 4, 5, 6])
async def test_nobody_sees_an_event_that_is_not_kept(room: int, tmp_path: Path) -> None:
    """Its number is given to another one when the run goes on."""
    config = config_in(tmp_path)
    config.home().mkdir(parents=True)
    store = Full(config.home() / "journal.db")
    store.room = room
    options: dict[str, Any] = {"config": config, "run": "r", "store": store, "params": {"members": 3, "rounds": 3}}
    async with romanesco.open_run("g", model=romanesco.ScriptedModel("ok"), topology=Members(), **options) as run:
        seen = [(event.seq, event.kind) async for event in run.events() if event.kind != "token"]
        outcome = await run.outcome()
    await store.close()
    assert outcome.reason is StopReason.STORAGE
    kept = [(seq, kind) for seq, kind, *_ in await events_of(config, "r")]
    assert seen == kept[-len(seen) :] if seen else kept[-1][1] == "run.planned"


class Deaf(SQLiteStore):
    """A store whose inbox can't be read after a while."""

    looks = 2

    async def take(self, run: str) -> list[Command]:
        self.looks -= 1
        if self.looks < 0:
            raise JournalUnwritable("The inbox can't be read")
        return await super().take(run)


async def test_a_run_that_nobody_can_stop_any_more_stops_by_itself(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    config.home().mkdir(parents=True)
    store = Deaf(config.home() / "journal.db")
    async with FakeServer(scenario=Scenario(default=FakeReply(fault=Fault(stall=float("inf"))))) as server:
        async with asyncio.timeout(PATIENCE):
            outcome = await romanesco.run(
                "g", model=f"{server.url}#fake", topology=Members(), config=config, run="r", store=store
            )
        await deserted(server)
        assert server.ledger.in_flight == 0
    await store.close()
    assert outcome.reason is StopReason.STORAGE and "Nobody can stop" in outcome.note
    await verified(config)
