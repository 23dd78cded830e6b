"""``kill -9`` at any moment, then ``resume`` in another process: what was finished is not asked again."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import romanesco
from romanesco import BudgetExceeded
from romanesco.journal import SQLiteStore
from romanesco.testing import Chain, FakeReply, FakeServer, Fault, Members, Scenario, Tree
from tests.runtime.checks import check_run, finished_keys, kinds, open_keys, prompt_of, verified
from tests.runtime.processes import Child, Forker
from tests.runtime.steer import deserted, requests
from tests.support import config_in, events_of

SHAPES: dict[str, tuple[Any, dict[str, Any]]] = {
    "members": (Members(), {"members": 4, "rounds": 2}),
    "chain": (Chain(), {"length": 8}),
    "tree": (Tree(), {"width": 2, "depth": 2}),
}
# After how many requests, and how many milliseconds later.
MOMENTS = ((1, 0), (2, 3), (3, 0), (4, 8), (5, 1), (6, 15))


class Killer:
    """Answers requests, and kills the client at one of them.

    The client may ask before its parent has heard its pid: then that request, and what comes with it, is not answered
    until the client is dead.
    """

    def __init__(self, at: int, later: float) -> None:
        self.at, self.later = at, later
        self._victim: Child | None = None
        self._reached = self._struck = False

    def aim(self, victim: Child) -> None:
        """Say whom to kill."""
        self._victim = victim
        if self._reached:
            self._strike()

    def again(self, at: int) -> None:
        """Wait for another victim."""
        self.at, self._victim = at, None
        self._reached = self._struck = False

    def _strike(self) -> None:
        assert self._victim is not None
        self._struck = True
        if self.later:
            asyncio.get_running_loop().call_later(self.later, self._victim.kill)
        else:
            self._victim.kill()

    def __call__(self, body: dict[str, Any], number: int) -> FakeReply:
        if number + 1 == self.at:
            self._reached = True
            if self._victim is not None:
                self._strike()
        elif number + 1 > self.at and self._struck:
            return FakeReply(fault=Fault(latency=0.05))
        if self._reached and not self._struck:
            return FakeReply(fault=Fault(stall=float("inf")))
        return FakeReply(fault=Fault(latency=0.002 * (number % 3)))


async def undisturbed(shape: str, folder: Path) -> str:
    topology, params = SHAPES[shape]
    async with FakeServer() as server:
        outcome = await romanesco.run(
            "say something", model=f"{server.url}#fake", topology=topology, params=params, config=config_in(folder)
        )
    return outcome.answer


async def killed(jobs: Forker, server: FakeServer, folder: Path, killer: Killer, job: dict[str, Any]) -> None:
    await shot(await jobs.start("run", folder, url=server.url, **job), server, killer)


async def shot(child: Child, server: FakeServer, killer: Killer) -> None:
    """Let a process be killed, and the server read what it had sent."""
    killer.aim(child)
    assert await child.outcome() is None
    await deserted(server)


@pytest.mark.parametrize("shape", SHAPES)
async def test_br_038_no_finished_call_is_made_again(shape: str, jobs: Forker, tmp_path: Path) -> None:
    expected = await undisturbed(shape, tmp_path / "undisturbed")
    again = 0
    for at, milliseconds in MOMENTS:
        folder = tmp_path / f"at-{at}-{milliseconds}"
        config = config_in(folder)
        killer = Killer(at, milliseconds / 1000)
        async with FakeServer(killer) as server:
            await killed(jobs, server, folder, killer, {"topology": shape, "params": SHAPES[shape][1]})
            at_kill = await events_of(config, "r")
            before = len(server.ledger.requests)
            outcome = await jobs.outcome("resume", folder)
            ledger = server.ledger
        events = await check_run(config, outcome, ledger)
        assert outcome.answer == expected and outcome.status is romanesco.Status.COMPLETED
        finished, in_flight = finished_keys(at_kill), open_keys(at_kill)
        assert outcome.spend.in_doubt == len(in_flight)
        asked = Counter(entry.prompt for entry in ledger.requests)
        for _, _, node, key, data in kinds(events, "call.started"):
            most = 2 if (node, key) in in_flight else 1
            assert 1 <= asked[prompt_of(data)] <= most, (at, key)
        later = kinds(events[len(at_kill) :], "call.started")
        assert finished.isdisjoint({(node, key) for _, _, node, key, _ in later})
        assert {(node, key) for _, _, node, key, data in later if data["again"]} == in_flight
        again += len(in_flight)
        assert len(ledger.requests) - before == len(later)
    assert again > 0  # the moments do hit calls in flight


@pytest.mark.parametrize("at", [1, 4, 9, 15, 21])
async def test_a_killed_deliberation_goes_on_inside_its_bill(at: int, jobs: Forker, tmp_path: Path) -> None:
    config, killer = config_in(tmp_path), Killer(at, 0)
    async with FakeServer(killer) as server:
        await killed(jobs, server, tmp_path, killer, {"topology": "fractal", "params": {"k": 4, "rounds": 3}})
        at_kill = await events_of(config, "r")
        outcome = await jobs.outcome("resume", tmp_path)
        ledger = server.ledger
    events = await check_run(config, outcome, ledger)
    assert outcome.status is romanesco.Status.COMPLETED, outcome.note
    later = {(node, key) for _, kind, node, key, _ in events[len(at_kill) :] if kind == "call.started"}
    assert later.isdisjoint(finished_keys(at_kill))
    in_flight = len(open_keys(at_kill))
    asked = Counter(entry.prompt for entry in ledger.requests)
    assert sum(count - 1 for count in asked.values()) <= in_flight == outcome.spend.in_doubt
    bill, spend = outcome.bill, outcome.spend
    assert bill is not None
    assert spend.calls <= bill.calls and spend.tokens_in <= bill.tokens_in and spend.tokens_out <= bill.tokens_out


async def test_a_run_that_is_killed_again_and_again_comes_to_its_end(jobs: Forker, tmp_path: Path) -> None:
    expected = await undisturbed("chain", tmp_path / "undisturbed")
    folder, config = tmp_path / "r", config_in(tmp_path / "r")
    killer = Killer(2, 0)
    async with FakeServer(killer) as server:
        await killed(jobs, server, folder, killer, {"topology": "chain", "params": SHAPES["chain"][1]})
        for _ in range(3):
            killer.again(len(server.ledger.requests) + 2)
            await shot(await jobs.start("resume", folder), server, killer)
        outcome = await jobs.outcome("resume", folder)
        ledger = server.ledger
    events = await check_run(config, outcome, ledger)
    assert outcome.answer == expected
    assert outcome.spend.in_doubt == 4 == len(kinds(events, "run.resumed"))
    assert len(ledger.requests) == 8 + 4


@pytest.mark.parametrize("topology", ["single"])
async def test_a_call_in_flight_at_the_kill_finds_room_in_the_bill(topology: str, jobs: Forker, tmp_path: Path) -> None:
    folder, config = tmp_path / "r", config_in(tmp_path / "r")
    killer = Killer(1, 0)
    async with FakeServer(killer) as server:
        await killed(jobs, server, folder, killer, {"topology": topology})
        outcome = await jobs.outcome("resume", folder)
        ledger = server.ledger
    await check_run(config, outcome, ledger)
    assert outcome.status is romanesco.Status.COMPLETED
    assert outcome.spend.in_doubt == 1 and outcome.spend.calls == 2 == len(ledger.requests)
    assert outcome.bill is not None and outcome.spend.calls <= outcome.bill.calls


async def test_br_034_spend_before_the_kill_counts_against_the_limit(jobs: Forker, tmp_path: Path) -> None:
    folder, config = tmp_path / "r", config_in(tmp_path / "r")
    killer = Killer(4, 0)
    job = {"topology": "chain", "params": {"length": 6}, "budget": {"calls": 6}}
    async with FakeServer(killer) as server:
        await killed(jobs, server, folder, killer, job)
        outcome = await jobs.outcome("resume", folder)
        assert len(server.ledger.requests) == 6  # the call in flight at the kill may have been paid for
        await check_run(config, outcome, server.ledger)
        assert (outcome.status, outcome.reason) == (romanesco.Status.PARTIAL, romanesco.StopReason.BUDGET)
        whole = await jobs.outcome("resume", folder, budget={"calls": 7})
        await check_run(config, whole, server.ledger)
        assert len(server.ledger.requests) == 7
    assert whole.status is romanesco.Status.COMPLETED


async def test_br_055_a_killed_run_is_not_owned_and_not_ended(jobs: Forker, tmp_path: Path) -> None:
    folder, config = tmp_path / "r", config_in(tmp_path / "r")
    killer = Killer(2, 0)
    async with FakeServer(killer) as server:
        await killed(jobs, server, folder, killer, {"topology": "chain"})
        store = SQLiteStore(config.home() / "journal.db")
        try:
            assert not store.owned("r")
            assert [head.run for head in await store.runs()] == ["r"]
        finally:
            await store.close()
        requests = len(server.ledger.requests)
        other = await jobs.outcome("run", folder, topology="chain", url=server.url, run="other")
        assert other.status is romanesco.Status.COMPLETED
        assert len(server.ledger.requests) == requests + 3  # BR-053: nobody continued the killed run by himself
    await verified(config, "r")


async def test_two_processes_never_pass_the_project(jobs: Forker, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"project__name": "web", "project__calls": 20}

    async def mine(server: FakeServer, run: str) -> romanesco.Outcome:
        return await romanesco.run(
            "say something",
            model=f"{server.url}#fake",
            topology=Members(),
            budget=romanesco.Budget(calls=12),
            config=config_in(tmp_path, **settings),
            run=run,
        )

    async with FakeServer(scenario=Scenario(barrier=99)) as server:
        job = {"topology": "members", "url": server.url, "config": settings, "budget": {"calls": 12}}
        child = await jobs.start("run", tmp_path, run="one", **job)
        await requests(server, 1)
        with pytest.raises(BudgetExceeded, match="project:web"):
            await mine(server, "two")
        server.open_barrier()
        assert await child.outcome() is not None
        assert (await mine(server, "three")).status is romanesco.Status.COMPLETED
        assert len(server.ledger.requests) == 16
    store = SQLiteStore(config_in(tmp_path).home() / "journal.db")
    assert (await store.charged("project:web"))["calls"] == "16"
    await store.close()


async def test_br_059_two_processes_write_to_one_file_at_once(jobs: Forker, tmp_path: Path) -> None:
    quick = Scenario(default=FakeReply(fault=Fault(latency=0.001)))
    params = {"members": 16, "rounds": 6}
    async with FakeServer(scenario=quick) as server:
        job = {"topology": "members", "params": params, "config": {"concurrency": 16}, "url": server.url}
        child = await jobs.start("run", tmp_path, run="theirs", **job)
        async with asyncio.TaskGroup() as group:
            mine = [
                group.create_task(
                    romanesco.run(
                        "say something",
                        model=f"{server.url}#fake",
                        topology=Members(),
                        params=params,
                        config=config_in(tmp_path, concurrency=16),
                        run=f"mine-{number}",
                    )
                )
                for number in range(4)
            ]
        theirs = await child.outcome()
        assert len(server.ledger.requests) == 5 * 96
    assert theirs is not None
    for outcome in [theirs, *(task.result() for task in mine)]:
        assert outcome.status is romanesco.Status.COMPLETED
        await check_run(config_in(tmp_path), outcome, run=outcome.run)
