"""Every store of journals passes one suite; what needs real processes is tested on the file."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from romanesco.errors import BudgetExceeded, RunBusy
from romanesco.journal import Event, RunHead, SQLiteStore, Store
from romanesco.testing._store import MemoryData, MemoryStore
from romanesco.testing._store_conformance import STORE_CHECKS, Check, Place, chain, store_conformance
from tests.support import PATIENCE, start


def memory_place() -> Place:
    data = MemoryData()
    return lambda: MemoryStore(data)


@pytest.fixture(params=["memory", "sqlite", "sqlite-full"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "memory":
        return memory_place()
    if request.param == "sqlite":
        return lambda: SQLiteStore(tmp_path / "journal.db")
    return lambda: SQLiteStore(tmp_path / "journal.db", synchronous="FULL")


@pytest.mark.parametrize("check", STORE_CHECKS, ids=lambda check: check.__name__)
async def test_store(check: Check, place: Place) -> None:
    await check(place)


async def test_the_suite_runs_as_one_call() -> None:
    await store_conformance(memory_place)


class Forgetful(MemoryStore):
    """Says that events are durable and drops every second one of a call."""

    def append(self, events: Sequence[Event], blobs: Mapping[str, bytes]) -> asyncio.Future[None]:
        return super().append(events[:1], blobs)


class Generous(MemoryStore):
    """Knows no limits."""

    async def charge(self, account: str, run: str, amount: Mapping[str, str], limit: Mapping[str, str]) -> None:
        await super().charge(account, run, amount, {})


class Shared(MemoryStore):
    """Lets everybody own a run."""

    def lock(self, run: str) -> object:  # type: ignore[override]
        self.data.owned.discard(run)
        return super().lock(run)


class Vague(MemoryStore):
    """Says of every run that it began, not how it stands."""

    async def runs(self) -> list[RunHead]:
        return [replace(head, kind="run.created") for head in await super().runs()]


@pytest.mark.parametrize(
    ("kind", "check"),
    [(Forgetful, "events_are_read"), (Generous, "charges_replace"), (Shared, "one_owner"), (Vague, "runs_are_listed")],
)
async def test_the_suite_finds_a_bad_store(kind: Callable[[MemoryData], Store], check: str) -> None:
    def new_place() -> Place:
        data = MemoryData()
        return lambda: kind(data)

    with pytest.raises(AssertionError, match=check):
        await store_conformance(new_place)


APPEND_FOR_EVER = """
    import asyncio, sys
    from romanesco.journal import SQLiteStore
    from romanesco.testing._store_conformance import chain
    async def main():
        store = SQLiteStore(sys.argv[1])
        store.lock("r")
        last = None
        while True:
            [last] = chain("r", 1, after=last)
            await store.append([last], {})
            sys.stdout.write(f"{last.seq}\\n")
            sys.stdout.flush()
    asyncio.run(main())
"""


async def test_what_append_returned_survives_kill_9(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    process = start(APPEND_FOR_EVER, str(path))
    assert process.stdout is not None
    while int(process.stdout.readline()) < 50:
        pass
    process.send_signal(signal.SIGKILL)
    told = [int(line) for line in process.communicate()[0].split("\n")[:-1]]
    async with SQLiteStore(path) as store:
        events = await store.read("r")
        assert len(events) >= max(told, default=50)
        assert events == chain("r", len(events))
        assert not store.owned("r"), "the kernel frees the lock of a dead process"


async def test_a_run_that_another_process_owns_is_busy_and_others_are_free(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    process = start(APPEND_FOR_EVER, str(path))
    assert process.stdout is not None
    process.stdout.readline()
    async with SQLiteStore(path) as store:
        assert store.owned("r")
        with pytest.raises(RunBusy, match=f"process {process.pid} on .*romanesco stop r"):
            store.lock("r")
        lock = store.lock("another")
        await store.append(chain("another", 3), {})
        lock.release()
        process.kill()
        process.communicate()
        store.lock("r").release()


CHARGE = """
    import asyncio, sys
    from romanesco.errors import BudgetExceeded
    from romanesco.journal import SQLiteStore
    async def main():
        path, name = sys.argv[1:]
        accepted = []
        async def ask(run):
            try:
                await store.charge("day", run, {"usd": "0.3"}, {"usd": "10"})
            except BudgetExceeded:
                return
            accepted.append(run)
        async with SQLiteStore(path) as store, asyncio.TaskGroup() as group:
            for index in range(30):
                group.create_task(ask(f"{name}{index}"))
        print(len(accepted))
    asyncio.run(main())
"""


async def test_two_processes_never_pass_an_account(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    processes = [start(CHARGE, str(path), name) for name in ("a", "b")]
    accepted = [int(process.communicate(timeout=PATIENCE)[0]) for process in processes]
    async with SQLiteStore(path) as store:
        assert await store.charged("day") == {"usd": "9.9"}
    assert sum(accepted) == 33


WRITE_RUNS = """
    import asyncio, sys
    from romanesco.journal import SQLiteStore
    from romanesco.testing._store_conformance import chain
    async def write(store, run):
        for event in chain(run, 20):
            await store.append([event], {})
    async def main():
        async with SQLiteStore(sys.argv[1]) as store, asyncio.TaskGroup() as group:
            for index in range(16):
                group.create_task(write(store, f"{sys.argv[2]}{index}"))
    asyncio.run(main())
"""


async def test_br_059_32_writers_in_2_processes_are_never_locked_out(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    processes = [start(WRITE_RUNS, str(path), name) for name in ("a", "b")]
    for process in processes:
        process.communicate(timeout=PATIENCE)
    assert [process.returncode for process in processes] == [0, 0]
    async with SQLiteStore(path) as store:
        heads = await store.runs()
        assert len(heads) == 32
        assert {head.seq for head in heads} == {20}


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c"]),
        st.dictionaries(
            st.sampled_from(["usd", "calls"]), st.decimals(0, 9, places=3).map(lambda number: f"{number:f}")
        ),
    ),
    max_size=30,
)


@given(steps=STEPS)
@settings(max_examples=60, deadline=None)
def test_any_sequence_of_charges_keeps_the_limit_and_adds_up(steps: list[tuple[str, dict[str, str]]]) -> None:
    limit = {"usd": "12.5", "calls": "11"}
    held: dict[str, dict[str, str]] = {}

    async def main() -> None:
        store = MemoryStore()
        for run, amount in steps:
            try:
                await store.charge("day", run, amount, limit)
                held[run] = amount
            except BudgetExceeded as error:
                assert error.limit == limit[error.dimension]
            charged = await store.charged("day")
            for dimension, text in limit.items():
                total = sum((Decimal(amounts.get(dimension, "0")) for amounts in held.values()), Decimal(0))
                assert Decimal(charged.get(dimension, "0")) == total <= Decimal(text)

    asyncio.run(main())


async def test_the_file_and_the_memory_charge_alike(tmp_path: Path) -> None:
    memory = MemoryStore()
    async with SQLiteStore(tmp_path / "journal.db") as file:
        for number in range(200):
            run, amount = f"r{number % 7}", {"usd": f"{number * 7 % 11}.{number % 13}"}
            refused = []
            for store in (memory, file):
                try:
                    await store.charge("day", run, amount, {"usd": "40"})
                except BudgetExceeded as error:
                    refused.append(str(error))
            assert len(set(refused)) in (0, 1)
            assert len(refused) in (0, 2)
            assert json.dumps(await memory.charged("day")) == json.dumps(await file.charged("day"))
