"""The owner's handle on the journal of one run."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Generator
from types import TracebackType
from typing import Any, Self

from romanesco.errors import InputError, JournalError, JournalUnwritable, UnknownName
from romanesco.journal._chain import check_chain
from romanesco.journal._event import GENESIS, Event, make_event
from romanesco.journal._lock import check_run_id
from romanesco.journal._payload import PAGE, pack
from romanesco.journal._store import RunLock, Store

CREATED = "run.created"
RESUMED = "run.resumed"
ENDED = "run.ended"


class Written:
    """An event that is in the journal's order; await it for it to be durable.

    It need not be awaited, and may be awaited more than once. Cancelling the wait does not cancel the write.

    Attributes:
        event: The event.
    """

    __slots__ = ("_journal", "event")

    def __init__(self, event: Event, journal: Journal) -> None:
        self.event = event
        self._journal = journal

    def __await__(self) -> Generator[Any, None, Event]:
        yield from self._journal._durable_at(self.event.seq)
        return self.event


class Journal:
    """The owner's handle on one run: appends in the order of calls.

    Made by ``create`` or ``open``, which take the run's lock; ``close`` frees it. Use it from one event loop.
    Sequence numbers and hashes are given at the call of ``append``, so that concurrent tasks can't reorder
    anything. After a failed write the journal is broken: every later append raises, so that the chain never
    has a hole.

    The first event is ``run.created``. After ``run.ended`` only ``run.resumed`` may follow.

    Attributes:
        run: The run's id.
        on_durable: Called with the number of the last durable event each time that more are, before anybody who
            waits for them goes on.
    """

    def __init__(self, store: Store, run: str, lock: RunLock, clock: Callable[[], float], past: list[Event]) -> None:
        self.run = run
        self.on_durable: Callable[[int], None] | None = None
        self._store = store
        self._lock = lock
        self._clock = clock
        self._past = past
        last = past[-1] if past else None
        self._seq = self._durable = last.seq if last else 0
        self._head = last.hash if last else GENESIS
        self._gate: str | None = CREATED if last is None else RESUMED if last.kind == ENDED else None
        self._pending: list[Event] = []
        self._pending_blobs: dict[str, bytes] = {}
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._failure: BaseException | None = None
        self._closed = False

    @classmethod
    async def create(cls, store: Store, run: str, *, clock: Callable[[], float] = time.time) -> Self:
        """Become the owner of a new run.

        Args:
            store: Where the journal is.
            run: The new run's id.
            clock: Wall-clock time in seconds since 1970. It may go backwards: order never depends on it.

        Raises:
            RunBusy: Another process (or this one) owns a run of that id.
            InputError: There is a run of that id.
        """
        check_run_id(run)
        lock = store.lock(run)
        try:
            if await store.read(run, 0, 1):
                raise InputError(
                    "There is a run of that id already",
                    value=run,
                    advice="Resume it, or give the new run another id.",
                )
        except BaseException:
            lock.release()
            raise
        return cls(store, run, lock, clock, [])

    @classmethod
    async def open(cls, store: Store, run: str, *, clock: Callable[[], float] = time.time) -> Self:
        """Become the owner of a run that is in the store, and check its chain while reading it.

        Args:
            store: Where the journal is.
            run: The run's id.
            clock: As in ``create``.

        Raises:
            UnknownName: There is no such run.
            RunBusy: Another process (or this one) owns it.
            JournalCorrupt: An event is not what its hash says, or one is missing; the first such ``seq`` is
                named.
        """
        lock = store.lock(run)
        try:
            past: list[Event] = []
            while page := await store.read(run, len(past), PAGE):
                check_chain(page, past[-1] if past else None, run)
                past.extend(page)
            if not past:
                raise UnknownName("There is no run of that id", value=run, advice="`romanesco runs` lists them.")
        except BaseException:
            lock.release()
            raise
        return cls(store, run, lock, clock, past)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def seq(self) -> int:
        """Number of the last event appended, durable or not; 0 before the first."""
        return self._seq

    @property
    def head(self) -> str:
        """Hash of the last event appended, durable or not."""
        return self._head

    @property
    def durable(self) -> int:
        """Number of the last event that is durable."""
        return self._durable

    @property
    def broken(self) -> bool:
        """Whether a write failed. What was durable before can still be read."""
        return self._failure is not None

    def take_past(self) -> list[Event]:
        """The events that were read at opening; given once, so that they need not stay in memory."""
        past, self._past = self._past, []
        return past

    def append(self, kind: str, *, node: str = "", key: str = "", data: dict[str, Any] | None = None) -> Written:
        """Append an event. Its place in the order is decided now; await the result for it to be durable.

        Args:
            kind: What happened.
            node: Path of the node, "" for the run itself.
            key: The step's key within the node.
            data: JSON data. Top-level values larger than 1 KiB are stored apart.

        Raises:
            JournalError: The data is not JSON (the path of the bad leaf is named), or the event can't follow
                the last.
            JournalUnwritable: An earlier write failed, or the journal is closed.
        """
        return Written(self.append_nowait(kind, node=node, key=key, data=data), self)

    def append_nowait(self, kind: str, *, node: str = "", key: str = "", data: dict[str, Any] | None = None) -> Event:
        """Append an event that need not be awaited: it is durable no later than the next one that is.

        Arguments and errors are those of ``append``.
        """
        if self._failure is not None or self._closed or (self._gate is not None and kind != self._gate):
            self._refuse(kind)
        try:
            body, blobs = pack(data or {})
            seq = self._seq + 1
            event = make_event(
                run=self.run,
                seq=seq,
                kind=kind,
                node=node,
                key=key,
                at=float(self._clock()),
                body=body,
                prev=self._head,
            )
        except (TypeError, ValueError) as error:
            raise JournalError(
                f"An event {kind} with key {key!r} can't be written as JSON: {error}",
                advice="Give plain data: None, bool, int, float, str, list, dict with text keys.",
            ) from error
        if not self._pending:
            asyncio.get_running_loop().call_soon(self._flush)
        self._pending.append(event)
        if blobs:
            self._pending_blobs.update(blobs)
        self._seq, self._head = seq, event.hash
        self._gate = RESUMED if kind == ENDED else None
        return event

    async def close(self) -> None:
        """Write what is pending and free the run's lock. May be called twice.

        A failed write is not raised here: who awaited the event gets it.
        """
        if self._closed:
            return
        self._closed = True
        cancelled: asyncio.CancelledError | None = None
        # The lock is kept while a write is pending, even if this is cancelled: another owner would begin between the
        # event and its place on disk. A write ends by itself.
        try:
            while self._durable < self._seq and self._failure is None:
                try:
                    with contextlib.suppress(JournalUnwritable):
                        await self._waiter(self._seq)
                except asyncio.CancelledError as error:
                    cancelled = error
        finally:
            self._lock.release()
        if cancelled is not None:
            raise cancelled

    def _refuse(self, kind: str) -> None:
        if self._failure is not None:
            raise self._unwritable()
        if self._closed:
            raise JournalUnwritable(f"The journal of run {self.run} is closed", value=kind, advice="Open it again.")
        raise JournalError(
            f"An event can't follow the last one of run {self.run}",
            value=kind,
            limit=self._gate,
            advice="A journal begins with run.created, and only run.resumed follows run.ended.",
        )

    def _unwritable(self) -> JournalUnwritable:
        """A new error for each that asks, with the first failure as its cause."""
        cause = self._failure
        if isinstance(cause, JournalError):
            error = JournalUnwritable(cause.what, value=cause.value, limit=cause.limit, advice=cause.advice)
        else:
            error = JournalUnwritable(
                f"The journal of run {self.run} can't be written ({cause!r})", advice="Open the run again."
            )
        error.__cause__ = cause
        return error

    def _flush(self) -> None:
        """Hand to the store what was appended since the loop's last round, as one write."""
        events, blobs = self._pending, self._pending_blobs
        self._pending, self._pending_blobs = [], {}
        if self._failure is not None:
            return
        try:
            future = self._store.append(events, blobs)
        except JournalError as error:
            self._fail(error)
            return
        future.add_done_callback(lambda done: self._written(events, done))

    def _written(self, events: list[Event], done: asyncio.Future[None]) -> None:
        if done.cancelled():
            self._fail(JournalUnwritable(f"A write to run {self.run} was cancelled", advice="Open the run again."))
            return
        error = done.exception()
        if error is not None:
            self._fail(error)
            return
        if self._failure is not None:
            return
        self._durable = events[-1].seq
        if self.on_durable is not None:
            self.on_durable(self._durable)
        waiting, self._waiting = self._waiting, []
        for seq, waiter in waiting:
            if seq > self._durable:
                self._waiting.append((seq, waiter))
            elif not waiter.done():
                waiter.set_result(None)

    def _fail(self, error: BaseException) -> None:
        if self._failure is None:
            self._failure = error
        waiting, self._waiting = self._waiting, []
        for _, waiter in waiting:
            if not waiter.done():
                waiter.set_exception(self._unwritable())

    def _durable_at(self, seq: int) -> Generator[Any, None, None]:
        if seq <= self._durable:
            return
        yield from self._waiter(seq)

    def _waiter(self, seq: int) -> asyncio.Future[None]:
        if self._failure is not None:
            raise self._unwritable()
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((seq, waiter))
        return waiter
