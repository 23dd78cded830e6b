"""The thread that writes: what is queued goes into one transaction, and all its waiters hear of it at once.

A lone write costs two hand-overs between threads and one commit. Under load the queue fills while a commit
runs, and the next transaction takes it all, so that the cost of a write falls as the load rises and nothing waits
behind more than two commits.
"""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from romanesco.errors import JournalCorrupt, JournalError, JournalUnwritable, RomanescoError
from romanesco.journal._event import GENESIS, Event
from romanesco.journal._place import Place
from romanesco.journal._schema import in_our_words, patiently

Head = tuple[int, str]
_BATCH = 2000
_HEADS = 4096
_INSERT = "INSERT INTO events (run, seq, kind, node, key, at, body, prev, hash) VALUES (?,?,?,?,?,?,?,?,?)"
_INSERT_BLOB = "INSERT OR IGNORE INTO blobs (digest, data) VALUES (?,?)"
_LAST = "SELECT seq, hash FROM events WHERE run=? ORDER BY seq DESC LIMIT 1"


class Job:
    """Something to write, and the future that hears of it. ``outcome`` is a result or an error."""

    __slots__ = ("blobs", "call", "events", "failed", "future", "outcome")

    def __init__(
        self,
        future: asyncio.Future[Any],
        *,
        events: Sequence[Event] = (),
        blobs: Mapping[str, bytes] | None = None,
        call: Callable[[sqlite3.Connection], Any] | None = None,
    ) -> None:
        self.future = future
        self.events = events
        self.blobs = blobs
        self.call = call
        self.outcome: Any = None
        self.failed = False


class Writer:
    """Owns the writing connection and the thread that uses it. The thread starts with the first write."""

    def __init__(self, connection: sqlite3.Connection, path: Path, *, patience: float) -> None:
        self._connection = connection
        self._path = path
        self._patience = patience
        self._place = Place(path)
        self._queue: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._heads: dict[str, Head] = {}

    def put(self, job: Job) -> None:
        """Queue a job. Jobs are written in the order of the calls."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="romanesco-journal", daemon=True)
            self._thread.start()
        self._queue.put(job)

    def close(self) -> None:
        """Write what is queued, end the thread and close the connection. Blocks."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
        self._connection.close()

    def _work(self) -> None:
        last = False
        while not last:
            batch: list[Job] = []
            job = self._queue.get()
            while job is not None:
                batch.append(job)
                if len(batch) >= _BATCH:
                    break
                try:
                    job = self._queue.get_nowait()
                except queue.Empty:
                    break
            last = job is None
            if batch:
                self._write(batch)
                _tell(batch)
            del batch, job  # else the last payloads stay in memory while the thread waits

    def _write(self, batch: Sequence[Job]) -> None:
        """One transaction; every job has its outcome afterwards."""
        lost = self._place.lost()
        if lost is not None:
            for job in batch:
                job.failed, job.outcome = True, lost
            return
        try:
            patiently(lambda: self._connection.execute("BEGIN IMMEDIATE"), self._patience)
            heads = self._apply(batch)
            self._connection.execute("COMMIT")
        except Exception as error:  # noqa: BLE001  # the waiters get it; the thread lives on
            self._roll_back()
            self._heads.clear()
            storage = isinstance(error, sqlite3.OperationalError)
            if len(batch) > 1 and not storage:
                # One bad job (a name that is no UTF-8, a seq that another process took) must not fail the
                # others.
                for job in batch:
                    self._write([job])
                return
            for job in batch:
                job.failed, job.outcome = True, self._failure(error)
        else:
            if len(self._heads) + len(heads) > _HEADS:
                self._heads.clear()
            self._heads.update(heads)

    def _apply(self, batch: Sequence[Job]) -> dict[str, Head]:
        heads: dict[str, Head] = {}
        rows: list[tuple[Any, ...]] = []
        blobs: dict[str, bytes] = {}
        for job in batch:
            job.failed, job.outcome = False, None
            if job.call is not None:
                try:
                    job.outcome = job.call(self._connection)
                except RomanescoError as error:  # refused before it wrote anything
                    job.failed, job.outcome = True, error
                continue
            refusal = self._follow(job.events, heads)
            if refusal is not None:
                job.failed, job.outcome = True, refusal
                continue
            rows.extend(map(_row, job.events))
            if job.blobs:
                blobs.update(job.blobs)
        if blobs:
            self._connection.executemany(_INSERT_BLOB, blobs.items())
        if rows:
            self._connection.executemany(_INSERT, rows)
        return heads

    def _follow(self, events: Sequence[Event], heads: dict[str, Head]) -> JournalError | None:
        """Check that the events follow the last ones of their runs; if they do, move ``heads`` on."""
        moved: dict[str, Head] = {}
        for event in events:
            run = event.run
            head = moved.get(run) or heads.get(run) or self._heads.get(run)
            if head is None:
                head = self._connection.execute(_LAST, (run,)).fetchone() or (0, GENESIS)
                if type(head[0]) is not int:  # SQLite holds a column to no type
                    return JournalCorrupt(
                        f"The last event of run {run} has no number",
                        value=str(self._path),
                        advice="Restore the journal from a copy; `romanesco verify` lists all damage.",
                    )
            if event.seq != head[0] + 1 or event.prev != head[1]:
                return does_not_follow(event, head[0])
            moved[run] = (event.seq, event.hash)
        heads.update(moved)
        return None

    def _roll_back(self) -> None:
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error:
            # SQLite has rolled back by itself when this fails; `in_transaction` is checked by the next BEGIN.
            return

    def _failure(self, error: Exception) -> Exception:
        if isinstance(error, sqlite3.Error):
            failure: Exception = in_our_words(error, self._path, writing=True, waited=self._patience)
            failure.__cause__ = error
            return failure
        return error


def _row(event: Event) -> tuple[Any, ...]:
    """The event's fields as a row."""
    return (
        event.run,
        event.seq,
        event.kind,
        event.node,
        event.key,
        event.at,
        event.body,
        event.prev,
        event.hash,
    )


def does_not_follow(event: Event, last: int) -> JournalUnwritable:
    """The refusal of an event that does not follow the last one of its run."""
    return JournalUnwritable(
        f"Event {event.seq} of run {event.run} does not follow the last one that is written",
        value=f"seq {event.seq}",
        limit=f"seq {last + 1} with the hash of event {last} as prev",
        advice="Another process wrote to this run, or an earlier write failed; open the run again.",
    )


def _tell(batch: Sequence[Job]) -> None:
    """Resolve all futures with one call into each event loop, in nearly all cases one."""
    loops: dict[asyncio.AbstractEventLoop, list[Job]] = {}
    for job in batch:
        loops.setdefault(job.future.get_loop(), []).append(job)
    for loop, jobs in loops.items():
        try:
            loop.call_soon_threadsafe(_resolve, jobs)
        except RuntimeError:
            # The loop was closed while the write ran: what it wrote is durable, and nobody waits for it any
            # more.
            continue


def _resolve(jobs: Sequence[Job]) -> None:
    for job in jobs:
        if job.future.done():  # cancelled by its waiter
            continue
        if job.failed:
            job.future.set_exception(job.outcome)
        else:
            job.future.set_result(job.outcome)
