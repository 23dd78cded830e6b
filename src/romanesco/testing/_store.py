"""A store in memory, for tests."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from romanesco.errors import JournalCorrupt, JournalError, JournalUnwritable, RunBusy, UnknownName
from romanesco.journal import _charges
from romanesco.journal._event import GENESIS, Event, canonical, digest
from romanesco.journal._store import Command, Hold, RunHead


@dataclass(slots=True)
class MemoryData:
    """What a ``MemoryStore`` holds. Several stores may share it, as several processes share a file."""

    events: dict[str, list[Event]] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    inbox: dict[str, Command] = field(default_factory=dict)
    answers: dict[str, dict[str, Any]] = field(default_factory=dict)
    held: dict[str, dict[str, dict[str, Decimal]]] = field(default_factory=dict)
    owned: set[str] = field(default_factory=set)


class MemoryStore:
    """A store in memory, for tests: the same behaviour as ``SQLiteStore``, and faults on demand.

    Args:
        data: What it holds; give the same to a second store to reopen the first, or to play another process.

    Attributes:
        data: What it holds. Tests may read it and damage it.
        failure: While it is set, every append fails with it, as a full disk would make it.
        latency: Seconds from a call of ``append`` until its events are durable.
    """

    def __init__(self, data: MemoryData | None = None) -> None:
        self.data = data if data is not None else MemoryData()
        self.failure: JournalError | None = None
        self.latency = 0.0
        self._closed = False
        self._in_flight: set[asyncio.Future[None]] = set()

    def append(self, events: Sequence[Event], blobs: Mapping[str, bytes]) -> asyncio.Future[None]:
        """See ``Store.append``."""
        self._check_open()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        error = self.failure or self._write(events, blobs)
        if self.latency:
            self._in_flight.add(future)
            future.add_done_callback(self._in_flight.discard)
            loop.call_later(self.latency, _resolve, future, error)
        else:
            loop.call_soon(_resolve, future, error)
        return future

    def _write(self, events: Sequence[Event], blobs: Mapping[str, bytes]) -> JournalError | None:
        heads: dict[str, tuple[int, str]] = {}
        for event in events:
            stored = self.data.events.get(event.run)
            before = (stored[-1].seq, stored[-1].hash) if stored else (0, GENESIS)
            seq, prev = heads.get(event.run, before)
            if event.seq != seq + 1 or event.prev != prev:
                return JournalUnwritable(
                    f"Event {event.seq} of run {event.run} does not follow the last one that is written",
                    value=f"seq {event.seq}",
                    limit=f"seq {seq + 1}",
                    advice="Open the run again.",
                )
            heads[event.run] = (event.seq, event.hash)
        for event in events:
            self.data.events.setdefault(event.run, []).append(event)
        for mark, data in blobs.items():
            self.data.blobs.setdefault(mark, data)
        return None

    async def read(self, run: str, after: int = 0, limit: int | None = None) -> list[Event]:
        """See ``Store.read``."""
        self._check_open()
        found = [event for event in self.data.events.get(run, ()) if event.seq > after]
        return found if limit is None else found[:limit]

    async def blob(self, mark: str) -> bytes:
        """See ``Store.blob``."""
        self._check_open()
        data = self.data.blobs.get(mark)
        if data is None or digest(data) != mark:
            raise JournalCorrupt(f"The payload {mark[:12]} is missing or altered", advice="Restore the journal.")
        return data

    async def blobs(self, digests: Collection[str]) -> dict[str, bytes]:
        """See ``Store.blobs``."""
        self._check_open()
        return {mark: self.data.blobs[mark] for mark in digests if mark in self.data.blobs}

    async def runs(self) -> list[RunHead]:
        """See ``Store.runs``."""
        self._check_open()
        heads = [
            RunHead(run, events[-1].seq, events[-1].hash, events[0].at, events[-1].at, events[-1].kind)
            for run, events in self.data.events.items()
        ]
        return sorted(heads, key=lambda head: (head.created, head.run), reverse=True)

    def lock(self, run: str) -> MemoryLock:
        """See ``Store.lock``."""
        if run in self.data.owned:
            raise RunBusy(f"Run {run} is owned already", value=run, limit="one owner at a time", advice="Wait.")
        self.data.owned.add(run)
        return MemoryLock(self.data, run)

    def owned(self, run: str) -> bool:
        """See ``Store.owned``."""
        return run in self.data.owned

    async def post(self, command: Command) -> None:
        """See ``Store.post``."""
        self._check_open()
        canonical(command.data)
        self.data.inbox.setdefault(command.id, command)

    async def take(self, run: str) -> list[Command]:
        """See ``Store.take``."""
        self._check_open()
        waiting = [command for command in self.data.inbox.values() if command.id not in self.data.answers]
        return [command for command in waiting if command.run == run]

    async def acknowledge(self, command_id: str, answer: dict[str, Any]) -> None:
        """See ``Store.acknowledge``."""
        self._check_open()
        if command_id not in self.data.inbox:
            raise UnknownName("No command has that id", value=command_id, advice="Answer what `take` returned.")
        self.data.answers.setdefault(command_id, answer)

    async def acknowledgement(self, command_id: str) -> dict[str, Any] | None:
        """See ``Store.acknowledgement``."""
        self._check_open()
        return self.data.answers.get(command_id)

    async def charge(self, account: str, run: str, amount: Mapping[str, str], limit: Mapping[str, str]) -> None:
        """See ``Store.charge``."""
        await self.charge_all(run, [Hold(account, amount, limit)])

    async def charge_all(self, run: str, holds: Sequence[Hold]) -> None:
        """See ``Store.charge_all``."""
        self._check_open()
        charges = [
            _charges.charge(
                account=hold.account,
                run=run,
                amount=_charges.parse(hold.amount, hold.account),
                held=self.data.held.get(hold.account, {}).get(run, {}),
                totals=self._totals(hold.account),
                limit=_charges.parse(hold.limit, hold.account),
            )
            for hold in holds
        ]
        for hold, new in zip(holds, charges, strict=True):
            runs = self.data.held.setdefault(hold.account, {})
            runs[run] = {name: value for name, value in new.held.items() if value}

    async def charged(self, account: str) -> dict[str, str]:
        """See ``Store.charged``."""
        self._check_open()
        return {name: _charges.plain(value) for name, value in self._totals(account).items() if value}

    async def close(self) -> None:
        """See ``Store.close``."""
        self._closed = True
        if self._in_flight:
            await asyncio.wait(self._in_flight)

    def _totals(self, account: str) -> dict[str, Decimal]:
        totals: dict[str, Decimal] = {}
        for held in self.data.held.get(account, {}).values():
            for name, value in held.items():
                totals[name] = _charges.add(totals.get(name, _charges.ZERO), value)
        return totals

    def _check_open(self) -> None:
        if self._closed:
            raise JournalUnwritable("The journal is closed", advice="Open it again before using it.")


class MemoryLock:
    """The ownership of a run in a ``MemoryStore``."""

    def __init__(self, data: MemoryData, run: str) -> None:
        self._data: MemoryData | None = data
        self._run = run

    def release(self) -> None:
        """Free the lock. May be called twice."""
        data, self._data = self._data, None
        if data is not None:
            data.owned.discard(self._run)


def _resolve(future: asyncio.Future[None], error: JournalError | None) -> None:
    if future.done():  # cancelled by its waiter
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
