"""The owner's handle on a run: order, durability, faults, subscribers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from romanesco.errors import InputError, JournalCorrupt, JournalError, JournalUnwritable, RunBusy, UnknownName
from romanesco.journal import GENESIS, Event, Journal, SQLiteStore, Store, event_hash, resolve
from romanesco.journal._chain import check_chain
from romanesco.testing._store import MemoryStore


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    opened: Store = MemoryStore() if request.param == "memory" else SQLiteStore(tmp_path / "journal.db")
    yield opened
    await opened.close()


async def begun(store: Store, run: str = "r") -> Journal:
    journal = await Journal.create(store, run)
    await journal.append("run.created", data={"spec": {"goal": "g"}})
    return journal


async def test_events_have_their_order_at_the_call(store: Store) -> None:
    async with await begun(store) as journal:
        first = journal.append("call.started", node="/", key="a", data={"x": 1})
        second = journal.append_nowait("note", key="b")
        assert (first.event.seq, second.seq, journal.seq) == (2, 3, 3)
        assert second.prev == first.event.hash
        assert journal.head == second.hash
        assert journal.durable == 1, "nothing is durable before the loop has run"
        assert await first == first.event
        assert await first == first.event, "it may be awaited again"
        third = await journal.append("note", key="c")
        assert journal.durable == third.seq == 4
    events = await store.read("r")
    check_chain(events, None, "r")
    assert [(event.kind, event.key) for event in events] == [
        ("run.created", ""),
        ("call.started", "a"),
        ("note", "b"),
        ("note", "c"),
    ]


async def test_br_062_parallel_appends_lose_nothing_and_are_in_call_order(store: Store) -> None:
    called: list[str] = []

    async def member(journal: Journal, number: int) -> None:
        for step in range(5):
            called.append(f"{number}/{step}")
            event = await journal.append("note", key=f"{number}/{step}")
            assert journal.durable >= event.seq
            await asyncio.sleep(0)

    async with await begun(store) as journal:
        async with asyncio.TaskGroup() as group:
            for number in range(100):
                group.create_task(member(journal, number))
    events = await store.read("r")
    check_chain(events, None, "r")
    assert [event.key for event in events[1:]] == called


async def test_close_writes_what_was_not_awaited_and_frees_the_run(store: Store) -> None:
    journal = await begun(store)
    for number in range(10):
        journal.append_nowait("note", key=str(number))
    assert store.owned("r")
    await journal.close()
    await journal.close()
    assert not store.owned("r")
    assert len(await store.read("r")) == 11
    with pytest.raises(JournalUnwritable, match="is closed"):
        journal.append_nowait("note")


async def test_a_run_goes_on_where_it_was(store: Store) -> None:
    async with await begun(store) as journal:
        await journal.append("note", key="a")
        head = journal.head
    async with await Journal.open(store, "r") as journal:
        assert (journal.seq, journal.durable, journal.head) == (2, 2, head)
        past = journal.take_past()
        assert [event.seq for event in past] == [1, 2]
        assert journal.take_past() == []
        event = await journal.append("run.resumed")
        assert (event.seq, event.prev) == (3, head)


async def test_a_run_has_one_owner(store: Store) -> None:
    async with await begun(store):
        with pytest.raises(RunBusy, match="r"):
            await Journal.open(store, "r")
        with pytest.raises(RunBusy):
            await Journal.create(store, "r")
        async with await begun(store, "other"):
            pass


async def test_creating_twice_and_opening_nothing_are_errors_and_leave_no_lock(store: Store) -> None:
    await (await begun(store)).close()
    with pytest.raises(InputError, match="There is a run of that id already"):
        await Journal.create(store, "r")
    with pytest.raises(UnknownName, match="no run of that id"):
        await Journal.open(store, "unknown")
    assert not store.owned("r")
    assert not store.owned("unknown")


async def test_br_128_nothing_but_a_resume_follows_the_end(store: Store) -> None:
    journal = await Journal.create(store, "r")
    with pytest.raises(JournalError, match=r"got note; limit run\.created"):
        journal.append_nowait("note")
    journal.append_nowait("run.created")
    with pytest.raises(JournalError, match="can't follow"):
        journal.append_nowait("run.ended")
        journal.append_nowait("note")
    await journal.close()
    async with await Journal.open(store, "r") as journal:
        with pytest.raises(JournalError, match=r"limit run\.resumed"):
            journal.append_nowait("call.started")
        journal.append_nowait("run.resumed")
        journal.append_nowait("note", key="again")
        await journal.append("run.ended")
    assert [event.kind for event in await store.read("r")][-3:] == ["run.resumed", "note", "run.ended"]


async def test_large_values_are_stored_apart_and_come_back(store: Store) -> None:
    data = {"request": {"messages": ["word " * 1000]}, "line": "proposal", "again": "é" * 2000}
    async with await begun(store) as journal:
        event = await journal.append("call.started", key="a", data=data)
        assert len(event.body) < 300
        assert event.data["line"] == "proposal"
        assert set(event.data["request"]) == {"$blob"}
        assert await resolve(store, [event]) == [data]
        assert await store.blob(event.data["again"]["$blob"]) == ('"' + "é" * 2000 + '"').encode()


async def test_what_looks_like_a_payload_mark_is_data(store: Store) -> None:
    data = {"reply": {"$blob": "0" * 64}}
    async with await begun(store) as journal:
        assert await resolve(store, [await journal.append("note", data=data)]) == [data]


async def test_br_056_bad_data_is_refused_at_the_call_and_leaves_no_hole(store: Store) -> None:
    async with await begun(store) as journal:
        with pytest.raises(JournalError, match=r"call\.finished with key 'a/b'.*\$\.reply\.x\[1\] is of type lock"):
            journal.append("call.finished", key="a/b", data={"reply": {"x": [1, threading.Lock()]}})
        with pytest.raises(JournalError, match="surrogates"):
            journal.append_nowait("note", key="\ud800")
        assert (await journal.append("note", data={"reply": "half \ud83d"})).seq == 2
        assert (await store.read("r", 1))[0].data == {"reply": "half \ud83d"}


async def test_a_clock_that_goes_backwards_changes_no_order(store: Store) -> None:
    times = iter([50.0, 40.0, -3.5, 60])
    async with await Journal.create(store, "r", clock=lambda: next(times)) as journal:
        for kind in ("run.created", "note", "note", "note"):
            journal.append_nowait(kind)
    async with await Journal.open(store, "r") as journal:
        assert [(event.seq, event.at) for event in journal.take_past()] == [
            (1, 50.0),
            (2, 40.0),
            (3, -3.5),
            (4, 60.0),
        ]


@pytest.mark.parametrize("edit", ["body", "missing", "swap"])
async def test_opening_a_damaged_run_names_the_event_and_leaves_no_lock(edit: str) -> None:
    store = MemoryStore()
    async with await begun(store) as journal:
        for number in range(700):
            journal.append_nowait("note", key=str(number))
    events = store.data.events["r"]
    if edit == "body":
        event = events[600]
        values = {name: getattr(event, name) for name in Event.__slots__}
        events[600] = Event(**{**values, "body": '{"edited":1}'})
    elif edit == "missing":
        del events[600]
    else:
        events[600], events[601] = events[601], events[600]
    with pytest.raises(JournalCorrupt, match="Event 601 of run r"):
        await Journal.open(store, "r")
    assert not store.owned("r")


def full_disk() -> JournalUnwritable:
    return JournalUnwritable("The disk is full", value="j.db", limit="0 bytes free", advice="Free some space.")


async def broken(journal: Journal) -> None:
    """Wait until a write has failed."""
    while not journal.broken:  # noqa: ASYNC110 - nobody tells when it happens
        await asyncio.sleep(0)


async def test_after_a_failed_write_nothing_more_is_accepted() -> None:
    store = MemoryStore()
    journal = await begun(store)
    store.failure = full_disk()
    waiting = [journal.append("note", key=str(number)) for number in range(3)]
    for written in waiting:
        with pytest.raises(JournalUnwritable, match=r"The disk is full; got j\.db; limit 0 bytes.*Free some"):
            await written
    assert journal.broken
    store.failure = None
    for attempt in (lambda: journal.append("note"), lambda: journal.append_nowait("note")):
        with pytest.raises(JournalUnwritable, match="disk is full"):
            attempt()
    await journal.close()
    assert not store.owned("r")
    async with await Journal.open(store, "r") as journal:
        assert journal.seq == 1, "nothing of the failed write is there"
        await journal.append("run.resumed")


async def test_a_write_that_was_not_awaited_fails_the_next_append() -> None:
    store = MemoryStore()
    journal = await begun(store)
    store.failure = full_disk()
    journal.append_nowait("note")
    await broken(journal)
    with pytest.raises(JournalUnwritable, match="disk is full"):
        journal.append_nowait("note")
    await journal.close()


async def test_a_store_closed_too_early_breaks_the_journal_and_hangs_nobody() -> None:
    store = MemoryStore()
    journal = await begun(store)
    written = journal.append("note")
    await store.close()
    with pytest.raises(JournalUnwritable, match="closed"):
        await written
    await journal.close()


async def test_closing_with_a_full_disk_does_not_hang() -> None:
    store = MemoryStore()
    journal = await begun(store)
    store.failure = full_disk()
    journal.append_nowait("note")
    await journal.close()
    assert journal.broken


async def cancelled_wait(journal: Journal, store: MemoryStore) -> None:
    """An append whose waiter is cancelled while it is being written; then the write ends."""
    store.latency = 3600.0

    async def wait() -> None:
        await journal.append("note", key="a")

    task = asyncio.create_task(wait())
    while not store._in_flight:  # noqa: ASYNC110 - nobody tells when it happens
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    store.latency = 0.0
    (writing,) = store._in_flight
    if store.failure is None:
        writing.set_result(None)
    else:
        writing.set_exception(store.failure)


async def test_a_cancelled_wait_does_not_cancel_the_write() -> None:
    store = MemoryStore()
    journal = await begun(store)
    await cancelled_wait(journal, store)
    assert (await journal.append("note", key="b")).seq == 3
    await journal.close()
    assert [event.key for event in await store.read("r")] == ["", "a", "b"]


async def test_a_cancelled_wait_does_not_hide_a_failure() -> None:
    store = MemoryStore()
    journal = await begun(store)
    store.failure = full_disk()
    await cancelled_wait(journal, store)
    await broken(journal)
    await journal.close()


@pytest.mark.parametrize("fails", [False, True], ids=["written", "unwritable"])
async def test_a_cancelled_close_keeps_the_lock_until_what_was_appended_is_written(fails: bool) -> None:
    store = MemoryStore()
    journal = await begun(store)
    store.latency, store.failure = 0.02, full_disk() if fails else None
    journal.append_nowait("note", key="a")
    closing = asyncio.create_task(journal.close())
    for _ in range(3):  # more than once: each cancellation is kept for later
        await asyncio.sleep(0)
        closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert not store.owned("r")
    assert (journal.broken, journal.durable) == (fails, 1 if fails else 2)
    assert [event.key for event in await store.read("r")] == ([""] if fails else ["", "a"])
    await journal.close()


def test_a_store_serves_one_loop_after_another(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "journal.db")

    async def one(run: str) -> None:
        async with await begun(store, run) as journal:
            await journal.append("note")

    asyncio.run(one("a"))
    asyncio.run(one("b"))

    async def last() -> list[str]:
        heads = await store.runs()
        await store.close()
        return sorted(head.run for head in heads)

    assert asyncio.run(last()) == ["a", "b"]


DATA = st.dictionaries(st.text(max_size=4), st.integers() | st.text(max_size=30), max_size=4)


@given(st.lists(st.tuples(st.text(st.characters(codec="utf-8"), max_size=6), DATA), max_size=15))
@settings(max_examples=50, deadline=None)
def test_any_events_make_a_valid_chain(events: list[tuple[str, dict[str, Any]]]) -> None:
    async def main() -> list[Event]:
        store = MemoryStore()
        async with await begun(store) as journal:
            for key, data in events:
                journal.append_nowait("note", key=key, data=data)
        return await store.read("r")

    prev = GENESIS
    stored = asyncio.run(main())
    for position, event in enumerate(stored):
        fields = {name: getattr(event, name) for name in Event.__slots__ if name != "hash"}
        assert event.seq == position + 1
        assert event.prev == prev
        assert event.hash == event_hash(**fields)
        prev = event.hash
    assert [(event.key, event.data) for event in stored[1:]] == events
