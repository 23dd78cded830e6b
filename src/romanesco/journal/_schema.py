"""The SQLite file of a journal: opening, schema, migrations, and errors in our words."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, TypeVar

from romanesco.errors import JournalCorrupt, JournalError, JournalTooNew, JournalUnwritable

Synchronous = Literal["NORMAL", "FULL"]
Migration = tuple[str, ...]
Way = Literal["mode=rw", "mode=ro", "immutable=1"]
T = TypeVar("T")

APPLICATION_ID = 0x524F4D41
"""``PRAGMA application_id`` of a journal: "ROMA"."""

MIGRATIONS: tuple[Migration, ...] = (
    # 0 -> 1. Version 0 is an empty file, or a draft that had only events and blobs.
    (
        """CREATE TABLE IF NOT EXISTS events (
            run TEXT NOT NULL, seq INTEGER NOT NULL, kind TEXT NOT NULL, node TEXT NOT NULL, key TEXT NOT
            NULL, at REAL NOT NULL, body TEXT NOT NULL, prev TEXT NOT NULL, hash TEXT NOT NULL,
            PRIMARY KEY (run, seq)) WITHOUT ROWID""",
        "CREATE TABLE IF NOT EXISTS blobs (digest TEXT PRIMARY KEY NOT NULL, data BLOB NOT NULL)",
        """CREATE TABLE inbox (
            position INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, run TEXT NOT NULL, node TEXT
            NOT NULL, verb TEXT NOT NULL, data TEXT NOT NULL, posted REAL NOT NULL, answer TEXT)""",
        "CREATE INDEX inbox_waiting ON inbox (run, position) WHERE answer IS NULL",
        """CREATE TABLE charges (
            account TEXT NOT NULL, run TEXT NOT NULL, dimension TEXT NOT NULL, amount TEXT NOT NULL,
            PRIMARY KEY (account, run, dimension)) WITHOUT ROWID""",
        """CREATE TABLE accounts (
            account TEXT NOT NULL, dimension TEXT NOT NULL, total TEXT NOT NULL,
            PRIMARY KEY (account, dimension)) WITHOUT ROWID""",
    ),
)
"""What brings a file of version ``n`` to ``n + 1``, for n = 0, 1, ... ``PRAGMA user_version`` holds the
version."""

_UNWRITABLE = {
    sqlite3.SQLITE_FULL: ("The disk is full", "Free some space."),
    sqlite3.SQLITE_READONLY: (
        "The journal is read-only",
        "Check the permissions of the file and its folder.",
    ),
    sqlite3.SQLITE_CANTOPEN: ("The journal can't be opened", "Check that its folder exists and is writable."),
    sqlite3.SQLITE_PERM: (
        "The journal may not be opened",
        "Check the permissions of the file and its folder.",
    ),
    sqlite3.SQLITE_IOERR: ("The disk did not take or give the data", "Check the disk and its free space."),
    sqlite3.SQLITE_BUSY: ("The journal stayed locked by another process", "End the program that holds it."),
    sqlite3.SQLITE_LOCKED: ("The journal stayed locked", "End the program that holds it."),
}


def primary_code(error: sqlite3.Error) -> int:
    """SQLite's primary result code of an error, 0 if it has none."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return 0 if code is None else code & 0xFF


def in_our_words(error: sqlite3.Error, path: Path, *, writing: bool, waited: float | None = None) -> JournalError:
    """The error of our tree for one of SQLite's.

    Args:
        error: SQLite's error.
        path: The journal's file.
        writing: Whether something was to be written. Decides for errors that could be either.
        waited: Seconds that were waited for a lock, if any.
    """
    code = primary_code(error)
    if code in _UNWRITABLE:
        what, advice = _UNWRITABLE[code]
        limit = f"{waited:g} s of waiting" if waited is not None and code == sqlite3.SQLITE_BUSY else None
        return JournalUnwritable(f"{what} ({error})", value=str(path), limit=limit, advice=advice)
    if writing and code not in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return JournalUnwritable(
            f"The journal refused a write ({error})",
            value=str(path),
            advice="Check the file with `romanesco verify`.",
        )
    return JournalCorrupt(
        f"The journal can't be read ({error})",
        value=str(path),
        advice="Restore it from a copy, or name another file; nothing was changed.",
    )


def prepare_file(path: Path) -> None:
    """Make the journal's folder (0700) and its file (0600) if they are missing.

    Raises:
        JournalUnwritable: They can't be made, or the path is a folder.
    """
    if path.is_dir():
        raise JournalUnwritable(
            "The journal's path is a folder", value=str(path), limit="a file", advice="Name a file in it."
        )
    try:
        for folder in reversed([folder for folder in path.parents if not folder.exists()]):
            folder.mkdir(mode=0o700, exist_ok=True)
        # SQLite gives its side files the permissions of this one.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    except OSError as error:
        raise JournalUnwritable(
            f"The journal's file can't be made or written: {error.strerror}",
            value=str(path),
            advice="Name a place that this user may write to, or free some space.",
        ) from error


def connect(
    path: Path, *, synchronous: Synchronous = "NORMAL", busy: float, reader: bool = False, way: Way = "mode=rw"
) -> sqlite3.Connection:
    """A connection without implicit transactions, usable from any one thread at a time.

    Args:
        path: The journal's file, which must exist.
        synchronous: ``NORMAL`` survives the end of any process, ``FULL`` the loss of power too.
        busy: Seconds that SQLite waits for a lock.
        reader: Refuse to write.
        way: How SQLite opens the file.
    """
    connection = sqlite3.connect(
        f"{path.as_uri()}?{way}", uri=True, timeout=busy, isolation_level=None, check_same_thread=False
    )
    try:
        connection.execute(f"PRAGMA synchronous={synchronous}")
        connection.execute("PRAGMA journal_size_limit=67108864")  # give the disk back after a burst
        if reader:
            connection.execute("PRAGMA query_only=1")
    except BaseException:
        connection.close()
        raise
    return connection


def patiently(action: Callable[[], T], patience: float) -> T:
    """Do something, and again for ``patience`` seconds if SQLite refuses it as busy."""
    deadline = time.monotonic() + patience
    pause = 0.001
    while True:
        try:
            return action()
        except sqlite3.OperationalError as error:
            if primary_code(error) != sqlite3.SQLITE_BUSY or time.monotonic() + pause > deadline:
                raise
        time.sleep(pause)
        pause = min(pause * 2, 0.05)


def migrate(connection: sqlite3.Connection, path: Path, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Bring the file to the newest version, in one transaction a version.

    Raises:
        JournalTooNew: A later version of Romanesco wrote it.
        JournalCorrupt: It is another program's database.
        sqlite3.Error: A statement failed; the file is as it was after the last whole migration.
    """
    while (version := _version(connection, path, len(migrations))) < len(migrations):
        connection.execute("BEGIN IMMEDIATE")
        try:
            # Another process may have done it while this one waited.
            if _version(connection, path, len(migrations)) == version:
                for statement in migrations[version]:
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version={version + 1}")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def _version(connection: sqlite3.Connection, path: Path, newest: int) -> int:
    # One transaction, so that another process that makes the tables now is not seen half-way.
    own = not connection.in_transaction
    if own:
        connection.execute("BEGIN")
    try:
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
        application = int(connection.execute("PRAGMA application_id").fetchone()[0])
        tables = int(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])
    finally:
        if own and connection.in_transaction:
            connection.execute("COMMIT")
    if application != APPLICATION_ID and (tables or version or application):
        raise JournalCorrupt(
            "The file is a database of another program, not a journal",
            value=str(path),
            advice="Name another file; this one was not changed.",
        )
    if version > newest:
        raise JournalTooNew(
            "The journal was written by a later version of Romanesco",
            value=f"schema version {version} in {path}",
            limit=f"schema version {newest}",
            advice="Update Romanesco, or name another file; this one was not changed.",
        )
    return version


def open_writer(path: Path, *, synchronous: Synchronous, patience: float) -> sqlite3.Connection:
    """Make or open the file, migrate it, and give the connection that writes.

    Raises:
        JournalUnwritable, JournalCorrupt, JournalTooNew: As their names say.
    """
    prepare_file(path)
    connection: sqlite3.Connection | None = None
    try:
        connection = connect(path, synchronous=synchronous, busy=min(patience, 5.0))
        opened = connection
        patiently(lambda: _version(opened, path, len(MIGRATIONS)), patience)  # before anything is changed
        mode = patiently(lambda: opened.execute("PRAGMA journal_mode=WAL").fetchone()[0], patience)
        if mode != "wal":
            raise JournalUnwritable(
                "The journal's disk can't be shared between processes as SQLite needs it",
                value=f"journal mode {mode} for {path}",
                limit="wal",
                advice="Name a file on a local disk.",
            )
        patiently(lambda: migrate(opened, path), patience)
    except BaseException as error:
        if connection is not None:
            connection.close()
        if isinstance(error, sqlite3.Error):
            raise in_our_words(error, path, writing=False, waited=patience) from error
        raise
    return connection


def find_reading(path: Path, *, patience: float) -> Way:
    """How a journal that can't be written can be read.

    Raises:
        JournalUnwritable, JournalCorrupt, JournalTooNew: As their names say.
    """
    try:
        return _try_reading(path, "mode=ro", patience)
    except sqlite3.Error as error:
        if _waits_in_side_file(path):
            # Without its side file the journal would read well and lack its last events.
            raise JournalUnwritable(
                f"The journal's last events are in a side file that needs a place to write ({error})",
                value=f"{path}-wal",
                advice="Copy the journal's folder to a place that may be written, and set ROMANESCO_HOME to it.",
            ) from error
    try:
        # Nobody who could write here has it open, so it is taken to be at rest: SQLite then needs no side files.
        return _try_reading(path, "immutable=1", patience)
    except sqlite3.Error as error:
        raise in_our_words(error, path, writing=False) from error


def _try_reading(path: Path, way: Way, patience: float) -> Way:
    connection = connect(path, busy=min(patience, 5.0), reader=True, way=way)
    try:
        if patiently(lambda: _version(connection, path, len(MIGRATIONS)), patience) < len(MIGRATIONS):
            raise JournalUnwritable(
                "The journal is of an earlier version and can't be brought to this one where it is read-only",
                value=str(path),
                advice="Copy its folder to a place that may be written, and set ROMANESCO_HOME to it.",
            )
    finally:
        connection.close()
    return way


def _waits_in_side_file(path: Path) -> bool:
    try:
        return path.with_name(f"{path.name}-wal").stat().st_size > 0
    except FileNotFoundError:
        return False
    except OSError:
        return True


def may_write(path: Path) -> bool:
    """Whether this user may write the file and make side files in its folder."""
    return os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)
