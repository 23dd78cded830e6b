"""What any store of journals must do: run these checks against yours.

A check gets a *place*: a function that opens a store, each time on the same data, as another process would (for a file,
``lambda: SQLiteStore(path)``). What needs real processes (``kill -9``, two writers) is tested where the store is.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from decimal import Decimal

from romanesco.errors import (
    BudgetExceeded,
    InputError,
    JournalCorrupt,
    JournalUnwritable,
    RomanescoError,
    RunBusy,
    UnknownName,
)
from romanesco.journal._event import GENESIS, Event, digest, make_event
from romanesco.journal._store import Command, Hold, Store

Place = Callable[[], Store]
"""Opens a store, each time on the same data."""

Check = Callable[[Place], Awaitable[None]]


def chain(run: str, count: int, *, after: Event | None = None, body: str = "{}") -> list[Event]:
    """Events that follow each other, for tests of stores.

    Args:
        run: The run's id.
        count: How many.
        after: The event before the first, None to begin a run.
        body: Body of each.
    """
    events: list[Event] = []
    for _ in range(count):
        before = events[-1] if events else after
        seq = before.seq + 1 if before else 1
        events.append(
            make_event(
                run=run,
                seq=seq,
                kind="run.created" if seq == 1 else "note",
                node="",
                key=f"k{seq}",
                at=1000.0 + seq,
                body=body,
                prev=before.hash if before else GENESIS,
            )
        )
    return events


async def store_conformance(new_place: Callable[[], Place]) -> None:
    """Run every check, each in a new place.

    Args:
        new_place: Gives an empty place.

    Raises:
        AssertionError: A check failed; it is named.
    """
    for check in STORE_CHECKS:
        try:
            await check(new_place())
        except (AssertionError, RomanescoError) as error:
            raise AssertionError(f"{check.__name__}: {error}") from error


@asynccontextmanager
async def _opened(place: Place) -> AsyncIterator[Store]:
    store = place()
    try:
        yield store
    finally:
        await store.close()


def _require(condition: bool, text: str) -> None:
    if not condition:
        raise AssertionError(text)


async def events_are_read_in_order(place: Place) -> None:
    """Events come back as they were written, from any position, in pages, and by another store on the same data."""
    events = chain("r", 7, body='{"text":"\u00e9\u4e2d\U0001f966 \\u0000"}')
    async with _opened(place) as store, _opened(place) as other:
        await store.append(events[:3], {})
        await store.append(events[3:], {})
        _require(await store.read("r") == events, "read does not give what was appended")
        _require(await other.read("r") == events, "another store on the same data does not see the events")
        _require(await store.read("r", 5) == events[5:], "`after` is not honoured")
        _require(await store.read("r", 2, 2) == events[2:4], "`limit` is not honoured")
        _require(await store.read("r", 7) == [], "there is nothing after the last event")
        _require(await store.read("unknown") == [], "an unknown run has no events")


async def order_is_that_of_the_calls(place: Place) -> None:
    """Appends that are not awaited between are written in the order of the calls."""
    events = chain("r", 50)
    async with _opened(place) as store:
        futures = [store.append([event], {}) for event in events]
        await futures[-1]
        _require(await store.read("r") == events, "later appends overtook earlier ones")
        _require(all(future.done() for future in futures), "an earlier append was durable after a later one")


async def events_outlive_the_store(place: Place) -> None:
    """What was appended before ``close`` is there when the data is opened again."""
    events = chain("r", 3)
    async with _opened(place) as store:
        futures = [store.append([event], {}) for event in events]
    _require(all(future.done() for future in futures) or await _settled(futures), "close left a write pending")
    async with _opened(place) as store:
        _require(await store.read("r") == events, "events were lost by closing")


async def _settled(futures: Sequence[asyncio.Future[None]]) -> bool:
    _, pending = await asyncio.wait(futures, timeout=60)
    return not pending


async def an_append_is_all_or_nothing(place: Place) -> None:
    """If one event is refused, neither the others of the call nor its payloads are kept; the store goes on."""
    first, second, third = chain("r", 3)
    raw = b'"payload"'
    async with _opened(place) as store:
        await store.append([first], {})
        await _refused(store, [second, second], {digest(raw): raw})
        _require(await store.read("r") == [first], "a part of a refused append was kept")
        _require(await store.blobs([digest(raw)]) == {}, "a payload of a refused append was kept")
        await store.append([second, third], {})
        _require(await store.read("r") == [first, second, third], "the store does not go on after a refusal")


async def only_the_next_event_is_accepted(place: Place) -> None:
    """A ``seq`` that is taken, a gap, and an event that names another one as the last are refused."""
    first, second, third = chain("r", 3)
    fork = chain("r", 2, body='{"other":1}')
    async with _opened(place) as store, _opened(place) as other:
        await store.append([first, second], {})
        await _refused(store, [second], {})
        await _refused(store, [fork[1]], {})
        await _refused(other, [first], {})
        await _refused(store, chain("s", 2)[1:], {})
        await other.append([third], {})
        await _refused(store, [third], {})
        _require(await store.read("r") == [first, second, third], "a refused event was written")


async def a_refusal_does_not_touch_other_runs(place: Place) -> None:
    """Appends of other runs at the same moment succeed although one is refused."""
    async with _opened(place) as store:
        good = [chain(f"good{index}", 2) for index in range(20)]
        futures = [store.append(events, {}) for events in good[:10]]
        bad = store.append(chain("bad", 2)[1:], {})
        futures += [store.append(events, {}) for events in good[10:]]
        await _fails(bad)
        for events, future in zip(good, futures, strict=True):
            await future
            _require(await store.read(events[0].run) == events, "another run's events were lost")


async def payloads_are_kept_by_digest(place: Place) -> None:
    """Payloads come back whole; one that is there already is left as it is; a missing one is an error."""
    raw, other = b"\x00\xff" * 5000, b"[1]"
    events = chain("r", 2)
    async with _opened(place) as store:
        await store.append(events[:1], {digest(raw): raw})
        await store.append(events[1:], {digest(raw): raw, digest(other): other})
        _require(await store.blob(digest(raw)) == raw, "the payload is not what was written")
        found = await store.blobs([digest(raw), digest(other), digest("missing")])
        _require(found == {digest(raw): raw, digest(other): other}, "blobs gives something else than it holds")
        _require(await store.blobs([]) == {}, "no digests, no payloads")
        try:
            await store.blob(digest("missing"))
        except JournalCorrupt:
            return
    raise AssertionError("a missing payload is not an error")


async def runs_are_listed_newest_first(place: Place) -> None:
    """Every run once, with its last event and that one's kind, and the times of its first and last."""
    async with _opened(place) as store:
        _require(await store.runs() == [], "an empty store lists runs")
        for index, run in enumerate(("b", "c", "a")):
            first = make_event(
                run=run, seq=1, kind="run.created", node="", key="", at=100.0 + index, body="{}", prev=GENESIS
            )
            await store.append([first, *chain(run, 2, after=first)], {})
        heads = await store.runs()
        _require([head.run for head in heads] == ["a", "c", "b"], "runs are not listed newest first")
        last = (await store.read("a"))[-1]
        head = heads[0]
        _require((head.seq, head.hash) == (last.seq, last.hash), "the head is not the last event")
        _require((head.created, head.updated) == (102.0, last.at), "the times are not those of the events")
        _require(head.kind == last.kind != "run.created", "the kind is not that of the last event")


async def one_owner_a_run(place: Place) -> None:
    """A run has one owner, also within a process; other runs are free; a released lock can be taken again."""
    async with _opened(place) as store, _opened(place) as other:
        _require(not store.owned("r"), "a run that nobody locked is owned")
        lock = store.lock("r")
        for asked in (store, other):
            _require(asked.owned("r"), "an owned run is not")
            try:
                asked.lock("r")
            except RunBusy as error:
                _require("r" in str(error) and bool(error.advice), "the error does not say which run or what to do")
            else:
                raise AssertionError("a run has two owners")
        second = other.lock("s")
        second.release()
        lock.release()
        lock.release()
        _require(not other.owned("r"), "a released run is owned")
        other.lock("r").release()


async def the_inbox_keeps_commands(place: Place) -> None:
    """Commands reach the owner in order, once each, until they are acknowledged; answers can be read by anyone."""
    commands = [Command(f"id{index}", "r", "/", "tell", {"n": index, "t": "\u00e9"}, 5.0) for index in range(3)]
    async with _opened(place) as sender, _opened(place) as owner:
        for command in commands:
            await sender.post(command)
        await sender.post(commands[0])
        await sender.post(Command("other", "s", "/a", "stop", {}, 6.0))
        _require(await owner.take("r") == commands, "commands are lost, doubled or out of order")
        _require(await owner.take("unknown") == [], "a run without commands has some")
        _require(await sender.acknowledgement("id1") is None, "a command is answered before it is")
        await owner.acknowledge("id1", {"accepted": True})
        await owner.acknowledge("id1", {"accepted": False})
        _require(await sender.acknowledgement("id1") == {"accepted": True}, "the first answer does not stay")
        _require(await owner.take("r") == [commands[0], commands[2]], "an acknowledged command comes again")
        try:
            await owner.acknowledge("nobody", {})
        except UnknownName:
            return
    raise AssertionError("an answer to no command is accepted")


async def charges_replace_and_free(place: Place) -> None:
    """A charge replaces what the run held; less is never refused; empty frees; the numbers are exact."""
    async with _opened(place) as store, _opened(place) as other:
        await store.charge("day", "a", {"usd": "0.1", "tokens": "100"}, {"usd": "0.3"})
        await other.charge("day", "b", {"usd": "0.2"}, {"usd": "0.3"})
        _require(await store.charged("day") == {"usd": "0.3", "tokens": "100"}, "0.1 + 0.2 is not 0.3")
        await _exceeds(store, "day", "c", {"usd": "0.000000000000000000000000000001"}, {"usd": "0.3"}, "usd")
        await _exceeds(store, "day", "a", {"usd": "0", "tokens": "101"}, {"tokens": "100"}, "tokens")
        _require(await other.charged("day") == {"usd": "0.3", "tokens": "100"}, "a refused charge changed something")
        await store.charge("day", "a", {"usd": "0.05"}, {"usd": "0"})
        _require(await other.charged("day") == {"usd": "0.25"}, "a smaller charge does not replace the larger one")
        await store.charge("day", "b", {}, {})
        await store.charge("day", "a", {}, {})
        _require(await store.charged("day") == {}, "an empty charge does not free")
        for wrong in ("-1", "NaN", "Infinity", "one", ""):
            try:
                await store.charge("day", "a", {"usd": wrong}, {})
            except InputError:
                continue
            raise AssertionError(f"the amount {wrong!r} is accepted")


async def concurrent_charges_never_pass_a_limit(place: Place) -> None:
    """Of 40 runs that want 3 of 50 each at once, 16 get it."""
    accepted: list[str] = []

    async def ask(store: Store, run: str) -> None:
        try:
            await store.charge("project", run, {"calls": "3"}, {"calls": "50"})
        except BudgetExceeded:
            return
        accepted.append(run)

    async with _opened(place) as one, _opened(place) as two, asyncio.TaskGroup() as group:
        for index in range(40):
            group.create_task(ask(one if index % 2 else two, f"r{index}"))
    async with _opened(place) as store:
        charged = Decimal((await store.charged("project"))["calls"])
    _require(len(accepted) == 16 and charged == 48, f"{len(accepted)} charges accepted, {charged} of 50 held")


async def charges_of_several_accounts_are_all_or_nothing(place: Place) -> None:
    """One account that refuses, or an amount that is no number, leaves all of them as they were."""
    async with _opened(place) as store, _opened(place) as other:
        await store.charge_all("a", [Hold("day", {"calls": "3"}), Hold("project", {"calls": "3"}, {"calls": "5"})])
        _require(await other.charged("day") == await other.charged("project") == {"calls": "3"}, "they hold nothing")
        for wrong in ({"calls": "6"}, {"calls": "-1"}):
            try:
                await store.charge_all("a", [Hold("day", {"calls": "4"}), Hold("project", wrong, {"calls": "5"})])
            except (BudgetExceeded, InputError):
                continue
            raise AssertionError(f"{wrong} is accepted in an account with a limit of 5 calls")
        _require(await other.charged("day") == {"calls": "3"}, "a refusal by one account changed another")
        _require(await other.charged("project") == {"calls": "3"}, "a refused charge changed something")
        await store.charge_all("a", [Hold("project", {})])
        _require(await other.charged("project") == {}, "an empty charge does not free")
        _require(await other.charged("day") == {"calls": "3"}, "an account that is not named was changed")


async def a_closed_store_refuses(place: Place) -> None:
    """Closing twice is fine; a closed store says so instead of hanging."""
    store = place()
    await store.append(chain("r", 1), {})
    await store.close()
    await store.close()
    try:
        store.append(chain("r", 1), {})
    except JournalUnwritable:
        return
    raise AssertionError("a closed store accepts events")


async def _refused(store: Store, events: Sequence[Event], blobs: dict[str, bytes]) -> None:
    await _fails(store.append(events, blobs))


async def _fails(future: Awaitable[None]) -> None:
    try:
        await future
    except JournalUnwritable as error:
        _require(bool(error.advice), "the error does not say what to do")
        return
    raise AssertionError("an event that does not follow the last one is accepted")


async def _exceeds(
    store: Store, account: str, run: str, amount: dict[str, str], limit: dict[str, str], dimension: str
) -> None:
    try:
        await store.charge(account, run, amount, limit)
    except BudgetExceeded as error:
        _require((error.account, error.dimension) == (account, dimension), "the error names another account")
        _require(error.limit == limit[dimension], "the error does not name the limit")
        return
    raise AssertionError(f"an account holds more than its limit of {dimension}")


STORE_CHECKS: tuple[Check, ...] = (
    events_are_read_in_order,
    order_is_that_of_the_calls,
    events_outlive_the_store,
    an_append_is_all_or_nothing,
    only_the_next_event_is_accepted,
    a_refusal_does_not_touch_other_runs,
    payloads_are_kept_by_digest,
    runs_are_listed_newest_first,
    one_owner_a_run,
    the_inbox_keeps_commands,
    charges_replace_and_free,
    concurrent_charges_never_pass_a_limit,
    charges_of_several_accounts_are_all_or_nothing,
    a_closed_store_refuses,
)
"""All checks, by name in their ``__name__``."""
