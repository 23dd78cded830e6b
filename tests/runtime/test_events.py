"""What watchers of a run see, and runs beside each other."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

import romanesco
from romanesco import Outcome, RunEvent, Scope, ScriptedModel, Status, Task
from romanesco.errors import Diverged, RunBusy
from romanesco.models import ModelRequest
from romanesco.runtime._feed import MOST_TOKENS_WAITING
from romanesco.testing import Chain, FakeServer, Members, MemoryStore, NgramEmbedder, Scenario
from tests.runtime.checks import nothing_left_behind
from tests.runtime.topologies import Plain, done, say
from tests.support import config_in, events_of


async def watched(
    folder: Path, run: str, model: ScriptedModel, topology: romanesco.Topology
) -> tuple[list[RunEvent], Outcome]:
    async with romanesco.open_run("g", model=model, topology=topology, config=config_in(folder), run=run) as going:
        events = [event async for event in going.events()]
        return events, await going.outcome()


@pytest.mark.parametrize("answer", ["ok", romanesco.ModelError("No answer")])
async def test_br_128_exactly_one_terminal_event_and_it_is_the_last(answer: object, tmp_path: Path) -> None:
    events, outcome = await watched(tmp_path, "r", ScriptedModel(answer), Chain())
    ends = [event for event in events if event.kind == "run.ended"]
    assert len(ends) == 1 and events[-1] is ends[0]
    assert ends[0].data["status"] == outcome.status
    journaled = await events_of(config_in(tmp_path), "r")
    seen = [event.seq for event in events if event.seq]
    assert seen == sorted(set(seen))  # BR-127: each once, in order
    assert set(seen) <= {seq for seq, *_ in journaled} and journaled[-1][0] == seen[-1]


async def test_br_136_two_runs_in_one_process_see_only_their_own_events(tmp_path: Path) -> None:
    models = {name: ScriptedModel(name, name=f"scripted:{name}", latency=0.001) for name in ("one", "two")}
    async with asyncio.TaskGroup() as group:
        tasks = {name: group.create_task(watched(tmp_path, name, model, Members())) for name, model in models.items()}
    for name, task in tasks.items():
        events, outcome = task.result()
        texts = {event.data["reply"]["text"] for event in events if event.kind == "call.finished"}
        assert texts == {name}
        assert {event.data["text"] for event in events if event.kind == "token"} <= {name}
        assert outcome.run == name


async def test_breaking_off_the_events_does_not_stop_the_run(tmp_path: Path) -> None:
    before = asyncio.all_tasks()
    async with romanesco.open_run(
        "g", model=ScriptedModel("ok", latency=0.005), topology=Chain(), config=config_in(tmp_path)
    ) as going:
        async for event in going.events():
            if event.kind == "call.started":
                break
        outcome = await going.outcome()
    assert outcome.status is Status.COMPLETED
    nothing_left_behind(before)


async def test_a_value_that_the_journal_keeps_apart_stands_in_its_event(tmp_path: Path) -> None:
    long = "word " * 1000
    options: dict[str, Any] = {
        "topology": Chain(),
        "params": {"max_output_tokens": 2000},
        "config": config_in(tmp_path),
    }
    async with romanesco.open_run("g", model=ScriptedModel(long), **options) as going:
        told = [event.data async for event in going.events() if event.kind == "call.finished"]
    assert {data["reply"]["text"] for data in told} == {long}


async def test_what_happens_after_its_reader_has_left_is_kept_for_nobody(tmp_path: Path) -> None:
    model = ScriptedModel("ok", latency=0.001)
    async with romanesco.open_run("g", model=model, topology=Members(), config=config_in(tmp_path)) as going:
        async for event in going.events():
            assert going._session._run.feed.watched
            if event.kind == "call.started":
                break
        await going.outcome()
        assert not going._session._run.feed.watched


async def test_the_events_have_one_reader_who_may_go_on(tmp_path: Path) -> None:
    async with romanesco.open_run(
        "g", model=ScriptedModel("ok"), topology=Chain(), config=config_in(tmp_path)
    ) as going:
        events = going.events()
        first = [event.seq async for event in until_started(events)]
        with pytest.raises(romanesco.InputError, match=r"asked for before.*Keep the iterator"):
            going.events()
        rest = [event.seq async for event in events if event.seq]
        with pytest.raises(romanesco.InputError, match="asked for before"):
            going.events()  # of a run that has ended, too
    assert first and rest and [*first, *rest] == list(range(first[0], rest[-1] + 1))


class Chatty(ScriptedModel):
    """Writes more pieces than are kept for a watcher, at once; from the second call on it waits to be heard first."""

    heard: asyncio.Event

    async def complete(
        self, request: ModelRequest, *, on_token: Callable[[str], None] | None = None
    ) -> romanesco.ModelReply:
        if self.calls:
            await self.heard.wait()
        assert on_token is not None
        for _ in range(MOST_TOKENS_WAITING + 500):
            on_token("x")
        return await super().complete(request)


async def test_a_slow_reader_loses_pieces_of_text_and_no_events_until_it_catches_up(tmp_path: Path) -> None:
    model = Chatty("ok")
    model.heard = asyncio.Event()
    options: dict[str, Any] = {"topology": Chain(), "params": {"length": 2}, "config": config_in(tmp_path)}
    heard: list[str] = []
    async with romanesco.open_run("g", model=model, run="r", **options) as going:
        async for event in going.events():
            heard.append(event.kind)
            if event.kind == "call.finished":
                model.heard.set()
        await going.outcome()
    first = heard[: heard.index("call.finished")]
    assert first.count("token") == MOST_TOKENS_WAITING
    assert heard.count("token") == 2 * MOST_TOKENS_WAITING
    journaled = [kind for _, kind, *_ in await events_of(config_in(tmp_path), "r")]
    assert [kind for kind in heard if kind != "token"] == journaled[2:]


async def until_started(events: AsyncIterator[RunEvent]) -> AsyncIterator[RunEvent]:
    async for event in events:
        if event.seq:
            yield event
        if event.kind == "call.started":
            return


async def repeats_itself(task: Task, scope: Scope) -> Outcome:
    for _ in range(2):
        await scope.record("seen", {"a": 1}, key="twice")
    return done()


async def test_a_run_that_failed_unheard_is_told_to_who_leaves_it(tmp_path: Path) -> None:
    options: dict[str, Any] = {"model": ScriptedModel("ok"), "topology": Plain(repeats_itself)}
    with pytest.raises(Diverged, match="one step key twice"):
        async with romanesco.open_run("g", config=config_in(tmp_path / "a"), **options) as going:
            assert [event.kind async for event in going.events()]
    # Who has heard of it is not told again, and who fails in another way hears of both.
    async with romanesco.open_run("g", config=config_in(tmp_path / "b"), **options) as going:
        with pytest.raises(Diverged):
            await going.outcome()
    with pytest.raises(ZeroDivisionError) as caught:
        async with romanesco.open_run("g", config=config_in(tmp_path / "c"), run="r", **options) as going:
            assert [event.kind async for event in going.events()]
            raise ZeroDivisionError
    assert "The run r had failed as well" in caught.value.__notes__[0]


async def test_br_137_the_sync_function_works_inside_a_running_loop(tmp_path: Path) -> None:
    outcome = romanesco.run_sync("g", model=ScriptedModel("ok"), topology=Chain(), config=config_in(tmp_path))
    assert outcome.status is Status.COMPLETED and outcome.answer == "ok"


def test_the_sync_function_raises_what_the_run_raises(tmp_path: Path) -> None:
    with pytest.raises(romanesco.InputError, match="empty"):
        romanesco.run_sync("  ", model=ScriptedModel("ok"), topology=Chain(), config=config_in(tmp_path))


async def test_a_run_is_owned_once(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    released = asyncio.Event()

    async def held(_request: object) -> str:
        await released.wait()
        return "ok"

    async with romanesco.open_run("g", model=ScriptedModel(held), topology=Chain(), config=config, run="r") as going:
        with pytest.raises(RunBusy):
            await romanesco.resume("r", model=ScriptedModel("ok"), topologies=[Chain()], config=config)
        other = await romanesco.run("g", model=ScriptedModel("ok"), topology=Chain(), config=config, run="s")
        assert other.status is Status.COMPLETED
        released.set()
        assert (await going.outcome()).status is Status.COMPLETED


async def test_a_run_that_is_complete_is_given_again_for_nothing(tmp_path: Path) -> None:
    model = ScriptedModel("ok")
    first = await romanesco.run("g", model=model, topology=Chain(), config=config_in(tmp_path), run="r")
    before = await events_of(config_in(tmp_path), "r")
    again = await romanesco.resume("r", model=model, topologies=[Chain()], config=config_in(tmp_path))
    assert (again.status, again.answer, again.spend, again.head) == (
        first.status,
        first.answer,
        first.spend,
        first.head,
    )
    assert len(model.calls) == 3 and await events_of(config_in(tmp_path), "r") == before


async def test_br_059_thirty_two_runs_write_to_one_file_at_once(tmp_path: Path) -> None:
    async def one(number: int) -> Outcome:
        model = ScriptedModel("ok", name=f"scripted:{number}")
        return await romanesco.run(
            "g", model=model, topology=Members(), config=config_in(tmp_path), run=f"r{number}", embedder=NgramEmbedder()
        )

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(number)) for number in range(32)]
    assert all(task.result().status is Status.COMPLETED for task in tasks)


async def test_a_memory_store_serves_a_run_as_well(tmp_path: Path) -> None:
    store = MemoryStore()
    outcome = await romanesco.run(
        "g", model=ScriptedModel("ok"), topology=Chain(), config=config_in(tmp_path), store=store, run="r"
    )
    assert outcome.status is Status.COMPLETED
    assert (await store.read("r"))[-1].hash == outcome.head


async def test_time_and_chance_are_recorded_and_given_again(tmp_path: Path) -> None:
    seen: list[tuple[float, float]] = []

    async def solve(task: Task, scope: Scope) -> Outcome:
        seen.append((await scope.now(key="now"), (await scope.random(key="dice")).random()))
        return done()

    config = config_in(tmp_path)
    await romanesco.run("g", model=ScriptedModel("ok"), topology=Plain(solve), config=config, run="r")
    await romanesco.replay("r", topologies=[Plain(solve)], config=config)
    assert seen[0] == seen[1] and abs(seen[0][0] - time.time()) < 3600


async def test_br_125_a_key_is_nowhere_in_what_a_run_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    canary = "sk-canary-0123456789abcdef"
    monkeypatch.setenv("CANARY_API_KEY", canary)
    config = config_in(tmp_path)
    async with FakeServer(scenario=Scenario(api_key="another")) as server:
        config.tables["models"] = {"canary": {"base_url": server.url, "model": "fake", "key_env": "CANARY_API_KEY"}}
        outcome = await romanesco.run("g", model="custom:canary", topology=Members(), config=config, run="r")
        assert all(entry.status == 401 for entry in server.ledger.requests) and server.ledger.requests
    assert outcome.status is Status.PARTIAL and outcome.spend.tokens_in == 0
    left = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"canary" in left and canary.encode() not in left
    assert canary not in repr(outcome) and canary not in caplog.text


async def test_ask_and_say_in_one_node(tmp_path: Path) -> None:
    async def solve(task: Task, scope: Scope) -> Outcome:
        vectors = await scope.embed(["one", "two"], key="embed")
        return done(await say(scope, str(len(vectors)), "ask"))

    outcome = await romanesco.run(
        "g", model=ScriptedModel("ok"), topology=Plain(solve), config=config_in(tmp_path), embedder=NgramEmbedder()
    )
    assert outcome.status is Status.COMPLETED
