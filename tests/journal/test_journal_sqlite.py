"""The journal's file: permissions, versions, damage, and that readers don't hold up the writer."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import sqlite3
import stat
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any

import pytest

from romanesco.errors import JournalCorrupt, JournalTooNew, JournalUnwritable
from romanesco.journal import Journal, SQLiteStore, digest, entries, verify
from romanesco.journal._schema import APPLICATION_ID, MIGRATIONS, migrate
from romanesco.testing._store_conformance import chain
from tests.support import PATIENCE, SRC


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def test_folder_and_file_are_the_owners_only(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "journal.db"
    async with SQLiteStore(path) as store:
        lock = store.lock("r")
        await store.append(chain("r", 1), {})
        assert [mode(folder) for folder in (path.parent, path.parent.parent)] == [0o700, 0o700]
        for name in ("journal.db", "journal.db-wal", "journal.db-shm", "journal.db.locks/r.lock"):
            assert mode(path.parent / name) == 0o600
        assert mode(path.parent / "journal.db.locks") == 0o700
        lock.release()


async def test_it_is_in_wal_mode_and_says_its_version(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with SQLiteStore(path):
        connection = sqlite3.connect(path)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
        assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
        connection.close()


async def test_the_path_may_be_relative_and_the_working_folder_may_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = SQLiteStore("odd name #1?%20.db")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    await store.append(chain("r", 2), {})
    assert len(await store.read("r")) == 2
    await store.close()
    assert (tmp_path / "odd name #1?%20.db").exists()
    assert list((tmp_path / "elsewhere").iterdir()) == []


def draft(path: Path) -> None:
    """A file of version 0: the first draft, which had events and payloads only."""
    connection = sqlite3.connect(path)
    events, blobs = MIGRATIONS[0][:2]
    connection.execute(events.replace("IF NOT EXISTS", ""))
    connection.execute(blobs.replace("IF NOT EXISTS", ""))
    connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
    rows = [tuple(getattr(event, name) for name in event.__slots__) for event in chain("old", 3)]
    connection.executemany("INSERT INTO events VALUES (?,?,?,?,?,?,?,?,?)", rows)
    connection.commit()
    connection.close()


async def test_a_file_of_version_0_is_migrated_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    draft(path)
    async with SQLiteStore(path) as store:
        assert await store.read("old") == chain("old", 3)
        async with await Journal.open(store, "old") as journal:
            assert (await journal.append("note")).seq == 4
        await store.charge("day", "old", {"usd": "1"}, {})
        assert await store.take("old") == []
        assert (await verify(store, "old")).findings[2].verdict == "held"
    async with SQLiteStore(path) as store:
        assert len(await store.read("old")) == 4


LATER = (*MIGRATIONS, ("CREATE TABLE later (x)", "INSERT INTO later VALUES (1)"))


def test_each_migration_is_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    draft(path)
    connection = sqlite3.connect(path, isolation_level=None)
    broken = (*LATER, ("CREATE TABLE latest (x)", "INSERT INTO no_such_table VALUES (1)"))
    with pytest.raises(sqlite3.OperationalError, match="no_such_table"):
        migrate(connection, path, broken)
    assert connection.execute("PRAGMA user_version").fetchone() == (2,)
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    assert "later" in tables
    assert "latest" not in tables
    migrate(connection, path, LATER)
    migrate(connection, path, LATER)
    assert connection.execute("SELECT count(*) FROM later").fetchone() == (1,)
    connection.close()


def test_a_later_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    draft(path)
    connection = sqlite3.connect(path, isolation_level=None)
    migrate(connection, path, LATER)
    connection.close()
    before = path.read_bytes()
    with pytest.raises(JournalTooNew, match=r"schema version 2 in .*limit schema version 1.*Update"):
        SQLiteStore(path)
    assert path.read_bytes() == before


def test_the_database_of_another_program_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE photos (x)")
    connection.commit()
    connection.close()
    before = path.read_bytes()
    with pytest.raises(JournalCorrupt, match="another program"):
        SQLiteStore(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "content", [b"hello, this is a text file\n" * 300, b"\x00" * 5000, random.Random(7).randbytes(9000)]
)
def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "journal.db"
    path.write_bytes(content)
    with pytest.raises(JournalCorrupt, match=r"can't be read.*Restore"):
        SQLiteStore(path)
    assert path.read_bytes() == content


def test_a_file_that_is_refused_is_held_open_by_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[sqlite3.Connection] = []
    connect = sqlite3.connect

    def watched(*arguments: Any, **options: Any) -> sqlite3.Connection:
        opened.append(connect(*arguments, **options))
        return opened[-1]

    monkeypatch.setattr(sqlite3, "connect", watched)
    path = tmp_path / "journal.db"
    path.write_bytes(b"hello, this is a text file\n" * 300)
    with pytest.raises(JournalCorrupt, match="can't be read"):
        SQLiteStore(path)
    assert opened
    for connection in opened:
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            connection.execute("SELECT 1")


async def filled(path: Path) -> None:
    async with SQLiteStore(path) as store:
        await store.append(chain("r", 400, body='{"x":"' + "y" * 500 + '"}'), {})


@pytest.mark.parametrize("keep", [50, 600, 4096, 0.5, 0.9])
async def test_a_truncated_file_is_named_as_damaged(tmp_path: Path, keep: float) -> None:
    path = tmp_path / "journal.db"
    await filled(path)
    size = path.stat().st_size
    os.truncate(path, keep if isinstance(keep, int) else int(size * keep))
    with pytest.raises(JournalCorrupt, match=r"journal\.db|Event \d+ of run r"):
        async with SQLiteStore(path) as store:
            await Journal.open(store, "r")


async def test_overwritten_pages_are_found_and_nothing_crashes(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    await filled(path)
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 8192 * 4096)
        file.write(b"\xff" * 8192)
    async with SQLiteStore(path) as store:
        with pytest.raises(JournalCorrupt):
            await Journal.open(store, "r")
        assert not store.owned("r")
        found = await verify(store, "r")
        assert not found.ok


DAMAGE = {
    "seq": "'5x'",
    "kind": "x'00ff'",
    "node": "CAST(x'ff' AS TEXT)",
    "key": "x'6b'",
    "at": "'noon'",
    "body": "CAST(x'7bff7d' AS TEXT)",
    "prev": "x'ff'",
    "hash": "x'ff'",
}


def damage(path: Path, statement: str) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute(statement)
        connection.commit()


@pytest.mark.parametrize("column", DAMAGE)
async def test_a_column_of_a_wrong_type_is_damage(column: str, tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    await filled(path)
    damage(path, f"UPDATE events SET {column} = {DAMAGE[column]} WHERE seq = 400")
    async with SQLiteStore(path) as store:
        with pytest.raises(JournalCorrupt, match=r"journal\.db"):
            await store.read("r")
        with pytest.raises(JournalCorrupt, match=r"journal\.db|Event \d+ of run r"):
            await Journal.open(store, "r")
        found = await verify(store, "r")
        assert (found.seq, found.findings[0].property, found.findings[0].verdict) == (399, "readable", "violated")
        if column in ("seq", "at", "hash"):
            with pytest.raises(JournalCorrupt, match=r"journal\.db"):
                await store.runs()


@pytest.mark.parametrize("body", ["[1]", "null", "{oops", "[" * 50_000])
async def test_data_that_is_no_object_is_damage(body: str, tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    await filled(path)
    damage(path, f"UPDATE events SET body = '{body}' WHERE seq = 7")
    async with SQLiteStore(path) as store:
        with pytest.raises(JournalCorrupt, match="event 7 of run r is not a JSON object"):
            async for _ in entries(store, "r"):
                pass


async def test_a_write_after_an_event_without_a_number_is_refused_as_damage(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    await filled(path)
    damage(path, "UPDATE events SET seq = 'x' WHERE seq = 400")
    async with SQLiteStore(path) as store:
        with pytest.raises(JournalCorrupt, match="has no number"):
            await store.append(chain("r", 401)[400:], {})


@pytest.mark.parametrize("data", ["CAST(x'ff' AS TEXT)", "'text'", "5"])
async def test_a_payload_of_a_wrong_type_is_damage(data: str, tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    mark = digest(b"[]")
    async with SQLiteStore(path) as store:
        await store.append(chain("r", 1), {mark: b"[]"})
        damage(path, f"UPDATE blobs SET data = {data}")
        with pytest.raises(JournalCorrupt, match="not what its digest says"):
            await store.blob(mark)


def test_br_bad_input_a_folder_as_path(tmp_path: Path) -> None:
    with pytest.raises(JournalUnwritable, match=r"path is a folder.*Name a file"):
        SQLiteStore(tmp_path)


def test_a_file_as_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(JournalUnwritable, match=r"can't be made or written.*file/journal\.db"):
        SQLiteStore(tmp_path / "file" / "journal.db")


def test_an_unwritable_folder_and_file() -> None:
    code = """
        import os, sys
        from pathlib import Path
        from romanesco.errors import JournalUnwritable
        from romanesco.journal import SQLiteStore
        folder = Path(sys.argv[1])
        if os.getuid() == 0:
            os.setuid(65534)  # permissions don't bind root
        for name in ("new/journal.db", "journal.db", "read-only.db"):
            try:
                SQLiteStore(folder / name)
            except JournalUnwritable as error:
                print(error)
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "read-only.db").touch()
        (folder / "read-only.db").chmod(0o444)
        folder.chmod(0o555)
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code), name],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=True,
            env={**os.environ, "PYTHONPATH": SRC},
        )
        folder.chmod(0o755)
    lines = done.stdout.splitlines()
    assert len(lines) == 3, done.stdout
    for line in lines:
        assert line.startswith("The journal's file can't be made or written: Permission denied; got ")
        assert "Name a place that this user may write to" in line


async def test_a_file_that_stays_locked_is_an_error_that_says_how_long_it_waited(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    first, second = chain("r", 2)
    async with SQLiteStore(path, patience=0.2) as store:
        await store.append([first], {})
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(JournalUnwritable, match=r"stayed locked .*limit 0\.2 s of waiting.*End the program"):
            await store.append([second], {})
        assert await store.read("r") == [first], "reading goes on while another process writes"
        other.execute("ROLLBACK")
        await store.append([second], {})
        other.execute("BEGIN EXCLUSIVE")
        other.close()
        assert await store.read("r") == [first, second]


async def test_a_writer_waits_for_another_that_is_slow(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with SQLiteStore(path) as store:
        other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        other.execute("BEGIN IMMEDIATE")
        future = store.append(chain("r", 1), {})
        await asyncio.sleep(0.1)
        assert not future.done()
        other.execute("COMMIT")
        other.close()
        await future


async def test_a_long_read_does_not_hold_up_the_writer_nor_the_loop(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with SQLiteStore(path) as store:
        await store.append(chain("r", 1), {})
        reader = sqlite3.connect(path, isolation_level=None)
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM events").fetchone() == (1,)
        await store.append(chain("s", 50), {})
        assert reader.execute("SELECT count(*) FROM events").fetchone() == (1,)
        reader.close()
        assert len(await store.read("s")) == 50


async def test_many_concurrent_reads(tmp_path: Path) -> None:
    async with SQLiteStore(tmp_path / "journal.db") as store:
        await store.append(chain("r", 100), {})
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(store.read("r", after)) for after in range(100)]
        assert [len(task.result()) for task in tasks] == list(range(100, 0, -1))


async def test_a_loop_that_is_gone_does_not_stop_the_writer(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "journal.db")
    first, second = chain("r", 2)

    async def leave() -> None:
        blocker = sqlite3.connect(store.path, isolation_level=None)
        blocker.execute("BEGIN IMMEDIATE")
        store.append([first], {})
        await asyncio.sleep(0.02)
        blocker.close()

    await asyncio.to_thread(lambda: asyncio.run(leave()))
    async with asyncio.timeout(PATIENCE):
        while not await store.read("r"):  # noqa: ASYNC110 - it happens in the store's own thread
            await asyncio.sleep(0.01)
    await store.append([second], {})
    await store.close()


async def test_a_bad_name_fails_its_own_write_only(tmp_path: Path) -> None:
    bad = chain("r", 1)
    object.__setattr__(bad[0], "key", "\ud800")
    async with SQLiteStore(tmp_path / "journal.db") as store:
        good = [chain(f"g{index}", 3) for index in range(6)]
        futures = [store.append(events, {}) for events in good[:3]]
        wrong = store.append(bad, {})
        futures += [store.append(events, {}) for events in good[3:]]
        with pytest.raises(UnicodeEncodeError):
            await wrong
        for future in futures:
            await future
        assert len(await store.runs()) == 6


async def test_two_stores_that_write_the_same_run_can_not_fork_it(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    events = chain("r", 4)
    async with SQLiteStore(path) as one, SQLiteStore(path) as two:
        await one.append(events[:1], {})
        await two.append(events[1:2], {})
        good = [one.append(chain(f"g{index}", 1), {}) for index in range(3)]
        stale = one.append(events[1:2], {})
        with pytest.raises(JournalUnwritable, match="does not follow"):
            await stale
        for future in good:
            await future
        await one.append(events[2:], {})
        assert await two.read("r") == events


def test_opening_a_new_file_from_two_processes_at_once(tmp_path: Path) -> None:
    code = """
        import sys, time
        from romanesco.journal import SQLiteStore
        print("ready", flush=True)
        sys.stdin.readline()
        for index in range(30):
            SQLiteStore(f"{sys.argv[1]}/{index}.db")
    """
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": SRC},
        )
        for _ in range(2)
    ]
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        process.communicate(timeout=PATIENCE)
    assert [process.returncode for process in processes] == [0, 0]
