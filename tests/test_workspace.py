"""Many runs side by side share a journal, connections, and the slots of every endpoint."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import romanesco
from romanesco import Budget, InputError, Outcome, ScriptedModel, Status
from romanesco.runtime import Hooks
from romanesco.testing import Chain, FakeReply, FakeServer, Fault, Members, MemoryStore
from tests.runtime.checks import verified
from tests.support import config_in, events_of


def space(folder: Path, **config: Any) -> Any:
    return romanesco.open_workspace(config=config_in(folder, **config))


async def side_by_side(space: romanesco.Workspace, count: int, **options: Any) -> list[Outcome]:
    async with asyncio.TaskGroup() as group:
        runs = [group.create_task(space.run("say something", run=f"r{i}", **options)) for i in range(count)]
    return [run.result() for run in runs]


async def test_an_endpoint_gets_no_more_calls_at_once_than_one_run_may_make(tmp_path: Path) -> None:
    slow = FakeReply(fault=Fault(latency=0.01))
    async with FakeServer(lambda body, number: slow) as server, space(tmp_path, concurrency=3) as work:
        outcomes = await side_by_side(work, 4, model=f"{server.url}#fake", topology=Members())
        assert [outcome.status for outcome in outcomes] == [Status.COMPLETED] * 4
        assert server.ledger.max_in_flight == 3
    for number in range(4):
        await verified(config_in(tmp_path), f"r{number}")


async def test_what_one_run_hears_of_a_rate_limit_holds_the_others_back(tmp_path: Path) -> None:
    refused = FakeReply(fault=Fault(status=429, retry_after=1))
    async with FakeServer(lambda body, number: refused if number == 0 else FakeReply()) as server:
        async with space(tmp_path, concurrency=1) as work:
            await side_by_side(work, 3, model=f"{server.url}#fake", topology="single")
        first, *others = server.ledger.requests
    assert len(others) == 3
    assert first.ended is not None and all(other.arrived - first.ended >= 0.9 for other in others)


async def test_connections_outlive_a_run(tmp_path: Path) -> None:
    async with FakeServer() as server, space(tmp_path) as work:
        for number in range(3):
            await work.run("hello", model=f"{server.url}#fake", topology="single", run=f"r{number}")
        assert len({entry.connection for entry in server.ledger.requests}) == 1


async def test_runs_of_a_workspace_are_planned_watched_resumed_and_replayed(tmp_path: Path) -> None:
    model = ScriptedModel("ok")
    options: dict[str, Any] = {"model": model, "topology": "chain", "params": {"length": 4}}
    async with romanesco.open_workspace(config=config_in(tmp_path), topologies=[Chain()]) as work:
        assert (await work.plan("g", **options)).topology == "chain"
        async with work.open_run("g", budget=Budget(calls=2), run="r", **options) as run:
            seen = [event.kind async for event in run.events()]
        assert seen[-1] == "run.ended"
        outcome = await work.resume("r", budget=Budget(calls=10))
        assert outcome.status is Status.COMPLETED and outcome.spend.calls == 4
        assert (await work.replay("r")).answer == outcome.answer
        async with work.open_resumed("r") as again:
            assert (await again.outcome()).answer == outcome.answer
    assert len(model.calls) == 4
    assert (await events_of(config_in(tmp_path), "r"))[-1][1] == "run.ended"


async def test_two_models_of_one_name_are_refused(tmp_path: Path) -> None:
    one, other = ScriptedModel("one"), ScriptedModel("other")
    async with space(tmp_path) as work:
        assert (await work.run("g", model=one, topology="single")).answer == "one"
        assert (await work.run("g", model=one, topology="single")).answer == "one"
        with pytest.raises(InputError, match="Two models of one name"):
            await work.run("g", model=other, topology="single")


async def test_an_option_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    wrong: dict[str, Any] = {"stor": None}
    with pytest.raises(TypeError, match="did you mean 'store'"):
        async with romanesco.open_workspace(**wrong):
            pass
    wrong = {"modle": None}
    async with space(tmp_path) as work:
        with pytest.raises(TypeError, match="did you mean 'model'"):
            await work.run("g", **wrong)


async def test_a_run_takes_none_of_the_options_of_its_workspace(tmp_path: Path) -> None:
    async with space(tmp_path) as work:
        for option in ({"store": MemoryStore()}, {"hooks": Hooks()}, {"config": None}):
            given: dict[str, Any] = dict(option)
            with pytest.raises(TypeError, match=next(iter(option))):
                await work.run("g", **given)
