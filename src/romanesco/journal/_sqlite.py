"""A store in one SQLite file, shared by any number of processes on one machine."""

from __future__ import annotations

import asyncio
import json
import math
import queue
import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from romanesco.errors import JournalCorrupt, JournalUnwritable, UnknownName
from romanesco.journal import _charges
from romanesco.journal._event import Event, canonical, digest
from romanesco.journal._lock import FileLock, acquire, is_owned
from romanesco.journal._schema import Synchronous, Way, connect, find_reading, in_our_words, may_write, open_writer
from romanesco.journal._store import Command, Hold, RunHead
from romanesco.journal._writer import Job, Writer

T = TypeVar("T")
_READERS = 4
_CHUNK = 500

_EVENTS = """SELECT run, seq, kind, node, key, at, body, prev, hash FROM events
    WHERE run=? AND seq>? ORDER BY seq LIMIT ?"""
# The distinct runs by jumping along the primary key, so that the cost is one a run and not one an event.
_RUNS = """WITH RECURSIVE names(run) AS (
        SELECT min(run) FROM events
        UNION ALL SELECT (SELECT min(run) FROM events WHERE run > names.run) FROM names WHERE names.run IS NOT
        NULL)
    SELECT names.run, last.seq, last.hash, first.at, last.at, last.kind FROM names
    JOIN events AS first ON first.run = names.run AND first.seq = (SELECT min(seq) FROM events WHERE run =
    names.run) JOIN events AS last ON last.run = names.run AND last.seq = (SELECT max(seq) FROM events WHERE
    run = names.run) ORDER BY first.at DESC, names.run DESC"""


class SQLiteStore:
    """A store in one SQLite file (WAL), with one writer thread and group commit.

    The file and missing folders are made with permissions for the owner only. The constructor opens the file,
    so it blocks for some milliseconds; it holds nothing of an event loop. Use it from one loop at a time, and
    don't fork.

    Args:
        path: The journal's file.
        synchronous: ``NORMAL``: what is written survives the end of any process. ``FULL``: it survives the
            loss of power too, for one flush of the disk a commit.
        patience: Seconds to wait for another process that holds the file's lock.
        read_only: The file is only to be read. Nothing is made: it must exist. It can be where nothing may be
            written, such as a read-only disk; then whatever would write raises ``JournalUnwritable``.

    Raises:
        UnknownName: It is only to be read, and is not there.
        JournalUnwritable: The folder can't be written, the path is a folder, the disk is full, the file
            stayed locked.
        JournalCorrupt: The file is not a journal, or damaged.
        JournalTooNew: A later version of Romanesco wrote it.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        synchronous: Synchronous = "NORMAL",
        patience: float = 30.0,
        read_only: bool = False,
    ) -> None:
        self.path = Path(path).expanduser().absolute()
        self._locks = self.path.with_name(self.path.name + ".locks")
        self._patience = patience
        self._way: Way = "mode=rw"
        self._writer: Writer | None = None
        if read_only:
            require_journal(self.path)
        if read_only and not may_write(self.path):
            self._way = find_reading(self.path, patience=patience)
        else:
            connection = open_writer(self.path, synchronous=synchronous, patience=patience)
            self._writer = Writer(connection, self.path, patience=patience)
        self._threads = ThreadPoolExecutor(_READERS, thread_name_prefix="romanesco-journal-reader")
        self._idle: queue.SimpleQueue[sqlite3.Connection] = queue.SimpleQueue()
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"SQLiteStore({str(self.path)!r})"

    def append(self, events: Sequence[Event], blobs: Mapping[str, bytes]) -> asyncio.Future[None]:
        """See ``Store.append``."""
        writer = self._check_writable()
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        writer.put(Job(future, events=events, blobs=blobs))
        return future

    async def read(self, run: str, after: int = 0, limit: int | None = None) -> list[Event]:
        """See ``Store.read``."""
        values = (run, after, -1 if limit is None else limit)
        return await self._read(lambda c: [_event(row) for row in c.execute(_EVENTS, values)])

    async def blob(self, digest: str) -> bytes:
        """See ``Store.blob``."""
        data = (await self.blobs([digest])).get(digest)
        return checked_blob(digest, data)

    async def blobs(self, digests: Collection[str]) -> dict[str, bytes]:
        """See ``Store.blobs``."""
        wanted = list(digests)
        if not wanted:
            return {}

        def load(connection: sqlite3.Connection) -> dict[str, bytes]:
            found: dict[str, bytes] = {}
            for start in range(0, len(wanted), _CHUNK):
                chunk = wanted[start : start + _CHUNK]
                marks = ",".join("?" * len(chunk))
                # Bytes, whatever type a damaged row has: the digest tells whether they are the right ones.
                query = f"SELECT digest, CAST(data AS BLOB) FROM blobs WHERE digest IN ({marks})"  # noqa: S608
                found.update(connection.execute(query, chunk))
            return found

        return await self._read(load)

    async def runs(self) -> list[RunHead]:
        """See ``Store.runs``."""
        return await self._read(lambda c: [_head(row) for row in c.execute(_RUNS)])

    def lock(self, run: str) -> FileLock:
        """See ``Store.lock``."""
        return acquire(self._locks, run)

    def owned(self, run: str) -> bool:
        """See ``Store.owned``."""
        return is_owned(self._locks, run)

    async def post(self, command: Command) -> None:
        """See ``Store.post``."""
        row = (command.id, command.run, command.node, command.verb, canonical(command.data), command.posted)
        insert = "INSERT OR IGNORE INTO inbox (id, run, node, verb, data, posted) VALUES (?,?,?,?,?,?)"
        await self._call(lambda c: c.execute(insert, row).close())

    async def take(self, run: str) -> list[Command]:
        """See ``Store.take``."""
        query = """SELECT id, run, node, verb, data, posted FROM inbox
            WHERE run=? AND answer IS NULL ORDER BY position"""

        def load(connection: sqlite3.Connection) -> list[Command]:
            rows = connection.execute(query, (run,)).fetchall()
            return [Command(id, run, node, verb, json.loads(data), at) for id, run, node, verb, data, at in rows]

        return await self._read(load)

    async def acknowledge(self, command_id: str, answer: dict[str, Any]) -> None:
        """See ``Store.acknowledge``."""
        text = canonical(answer)

        def write(connection: sqlite3.Connection) -> None:
            known = connection.execute("SELECT 1 FROM inbox WHERE id=?", (command_id,)).fetchone()
            if known is None:
                raise no_such_command(command_id)
            connection.execute("UPDATE inbox SET answer=? WHERE id=? AND answer IS NULL", (text, command_id))

        await self._call(write)

    async def acknowledgement(self, command_id: str) -> dict[str, Any] | None:
        """See ``Store.acknowledgement``."""
        query = "SELECT answer FROM inbox WHERE id=? AND answer IS NOT NULL"
        row = await self._read(lambda c: c.execute(query, (command_id,)).fetchone())
        if row is None:
            return None
        answer: dict[str, Any] = json.loads(row[0])
        return answer

    async def charge(self, account: str, run: str, amount: Mapping[str, str], limit: Mapping[str, str]) -> None:
        """See ``Store.charge``."""
        await self.charge_all(run, [Hold(account, amount, limit)])

    async def charge_all(self, run: str, holds: Sequence[Hold]) -> None:
        """See ``Store.charge_all``."""
        wanted = [
            (hold.account, _charges.parse(hold.amount, hold.account), _charges.parse(hold.limit, hold.account))
            for hold in holds
        ]

        def write(connection: sqlite3.Connection) -> None:
            # All are decided before anything is written: what is refused must leave nothing behind.
            charges = [(account, _charge(connection, account, run, amount, limit)) for account, amount, limit in wanted]
            for account, new in charges:
                connection.execute("DELETE FROM charges WHERE account=? AND run=?", (account, run))
                connection.executemany(
                    "INSERT INTO charges VALUES (?,?,?,?)",
                    [(account, run, name, _charges.plain(value)) for name, value in new.held.items() if value],
                )
                connection.executemany(
                    "INSERT OR REPLACE INTO accounts VALUES (?,?,?)",
                    [(account, name, _charges.plain(value)) for name, value in new.totals.items()],
                )

        await self._call(write)

    async def charged(self, account: str) -> dict[str, str]:
        """See ``Store.charged``."""
        totals = await self._read(lambda c: _totals(c, account))
        return {name: _charges.plain(value) for name, value in _charges.parse(totals, account).items() if value}

    async def close(self) -> None:
        """See ``Store.close``."""
        if self._closed:
            return
        self._closed = True
        await asyncio.get_running_loop().run_in_executor(None, self._close)

    def _close(self) -> None:
        self._threads.shutdown()
        while not self._idle.empty():
            self._idle.get().close()
        if self._writer is not None:
            self._writer.close()

    def _check_writable(self) -> Writer:
        self._check_open()
        if self._writer is None:
            raise JournalUnwritable(
                "The journal was opened where it can only be read",
                value=str(self.path),
                advice="Use a journal in a folder that this user may write to.",
            )
        return self._writer

    def _check_open(self) -> None:
        if self._closed:
            raise JournalUnwritable(
                "The journal is closed", value=str(self.path), advice="Open it again before using it."
            )

    async def _call(self, action: Callable[[sqlite3.Connection], T]) -> T:
        """Do something in the writer's next transaction."""
        writer = self._check_writable()
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        writer.put(Job(future, call=action))
        return await future

    async def _read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Read in a thread with a connection of its own, so that neither the loop nor the writer waits."""
        self._check_open()

        def work() -> T:
            try:
                connection = self._connection()
                try:
                    return query(connection)
                finally:
                    self._idle.put(connection)
            except (sqlite3.Error, ValueError, TypeError, RecursionError) as error:
                if isinstance(error, sqlite3.Error):
                    raise in_our_words(error, self.path, writing=False) from error
                raise JournalCorrupt(
                    f"The journal holds something that it can't have written ({error})", value=str(self.path)
                ) from error

        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def _connection(self) -> sqlite3.Connection:
        try:
            return self._idle.get_nowait()
        except queue.Empty:
            return connect(self.path, busy=min(self._patience, 5.0), reader=True, way=self._way)


async def holdings(store: SQLiteStore, account: str) -> dict[str, dict[str, Decimal]]:
    """What each run is charged for of an account that runs share, by run and dimension."""
    query = "SELECT run, dimension, amount FROM charges WHERE account=? ORDER BY run"
    rows = await store._read(lambda c: c.execute(query, (account,)).fetchall())
    found: dict[str, dict[str, str]] = {}
    for run, dimension, amount in rows:
        found.setdefault(run, {})[dimension] = amount
    return {run: _charges.parse(amounts, account) for run, amounts in found.items()}


def require_journal(path: Path) -> None:
    """Refuse to read a journal that is not there: making one would say that there were no runs.

    Raises:
        UnknownName: There is none.
        JournalUnwritable: Whether there is can't be seen.
    """
    try:
        path.stat()
    except FileNotFoundError:
        raise UnknownName(
            "There is no journal", value=str(path), advice="The first run makes one; 'romanesco config' shows where."
        ) from None
    except OSError as error:
        raise JournalUnwritable(
            f"The journal can't be looked for: {error.strerror}",
            value=str(path),
            advice="Check the permissions of its folder.",
        ) from error


def _event(row: Sequence[Any]) -> Event:
    """The event in a row. SQLite holds a column to no type, so each is checked.

    Raises:
        ValueError: A column holds what no event has.
    """
    run, seq, kind, node, key, at, body, prev, mark = row
    texts = {"run": run, "kind": kind, "node": node, "key": key, "body": body, "prev": prev, "hash": mark}
    _check(f"event {seq!r:.20} of run {run!r:.80}", texts, {"seq": seq}, {"at": at})
    return Event(run, seq, kind, node, key, at, body, prev, mark)


def _head(row: Sequence[Any]) -> RunHead:
    """The head in a row, checked likewise."""
    run, seq, mark, created, updated, kind = row
    texts = {"run": run, "hash": mark, "kind": kind}
    _check(f"run {run!r:.80}", texts, {"seq": seq}, {"created": created, "updated": updated})
    return RunHead(run, seq, mark, created, updated, kind)


def _check(what: str, texts: Mapping[str, Any], numbers: Mapping[str, Any], times: Mapping[str, Any]) -> None:
    wrong = [name for name, value in texts.items() if type(value) is not str]
    wrong += [name for name, value in numbers.items() if type(value) is not int]
    wrong += [name for name, value in times.items() if type(value) is not float or not math.isfinite(value)]
    if wrong:
        raise ValueError(f"{what}: {', '.join(wrong)} of a wrong type")


def _charge(
    connection: sqlite3.Connection,
    account: str,
    run: str,
    amount: Mapping[str, Decimal],
    limit: Mapping[str, Decimal],
) -> _charges.Charge:
    """What a charge comes to; nothing is written."""
    query = "SELECT dimension, amount FROM charges WHERE account=? AND run=?"
    held = _charges.parse(dict(connection.execute(query, (account, run))), account)
    totals = _charges.parse(_totals(connection, account), account)
    return _charges.charge(account=account, run=run, amount=amount, held=held, totals=totals, limit=limit)


def _totals(connection: sqlite3.Connection, account: str) -> dict[str, str]:
    with closing(connection.execute("SELECT dimension, total FROM accounts WHERE account=?", (account,))) as rows:
        return dict(rows)


def checked_blob(mark: str, data: bytes | None) -> bytes:
    """The payload, if it is there and has its digest.

    Raises:
        JournalCorrupt: It is missing or altered.
    """
    if data is None or digest(data) != mark:
        raise JournalCorrupt(
            f"The payload {mark[:12]} {'is missing' if data is None else 'is not what its digest says'}",
            advice="Restore the journal from a copy; `romanesco verify` lists all damage.",
        )
    return data


def no_such_command(command_id: str) -> UnknownName:
    """The refusal of an answer to a command that was never posted."""
    return UnknownName("No command has that id", value=command_id, advice="Answer only commands that `take` returned.")
