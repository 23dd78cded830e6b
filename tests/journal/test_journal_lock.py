"""One owner a run, by a lock of the kernel."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from romanesco.errors import InputError, JournalUnwritable, RunBusy
from romanesco.journal._lock import acquire, is_owned, lock_path


def test_the_file_says_who_owns_the_run_and_goes_with_the_lock(tmp_path: Path) -> None:
    lock = acquire(tmp_path / "locks", "r")
    path = tmp_path / "locks" / "r.lock"
    assert json.loads(path.read_bytes())["pid"] == os.getpid()
    assert is_owned(tmp_path / "locks", "r")
    lock.release()
    lock.release()
    assert not path.exists()
    assert not is_owned(tmp_path / "locks", "r")


def test_asking_who_owns_a_run_changes_nothing(tmp_path: Path) -> None:
    assert not is_owned(tmp_path / "none", "r")
    assert list(tmp_path.iterdir()) == []


def test_the_same_process_can_not_own_a_run_twice(tmp_path: Path) -> None:
    lock = acquire(tmp_path, "r")
    with pytest.raises(RunBusy, match=f"process {os.getpid()} on .*one owner at a time.*romanesco stop r"):
        acquire(tmp_path, "r")
    other = acquire(tmp_path, "s")
    other.release()
    lock.release()
    acquire(tmp_path, "r").release()


def test_a_file_that_a_dead_owner_left_is_used_again(tmp_path: Path) -> None:
    (tmp_path / "r.lock").write_text('{"pid": 1, "host": "gone", "more": "and longer than the new text"}')
    assert not is_owned(tmp_path, "r")
    lock = acquire(tmp_path, "r")
    assert json.loads((tmp_path / "r.lock").read_bytes())["pid"] == os.getpid()
    lock.release()


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"[]", b'{"pid": "x", "host": 1}'])
def test_a_lock_file_without_a_readable_owner_still_gives_a_clear_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "r.lock"
    path.write_bytes(content)
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(RunBusy, match="owned by another process"):
            acquire(tmp_path, "r")


def test_a_lock_is_not_inherited_by_programs_that_the_owner_starts(tmp_path: Path) -> None:
    lock = acquire(tmp_path, "r")
    child = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE, close_fds=False
    )
    lock.release()
    acquire(tmp_path, "r").release()
    child.communicate(b"")


def test_who_only_asks_and_is_held_up_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "r.lock").touch()
    pauses: list[float] = []
    with (tmp_path / "r.lock").open("rb") as asking:
        fcntl.flock(asking, fcntl.LOCK_SH)

        def pause(seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) == 100:
                asking.close()

        monkeypatch.setattr("romanesco.journal._lock.time.sleep", pause)
        acquire(tmp_path, "r").release()
    assert len(pauses) == 100


def test_of_many_that_want_a_run_one_gets_it_while_others_only_ask(tmp_path: Path) -> None:
    owners = 0
    most = 0
    taken = 0
    guard = threading.Lock()
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            is_owned(tmp_path, "r")

    def want() -> None:
        nonlocal owners, most, taken
        for _ in range(40):
            try:
                lock = acquire(tmp_path, "r")
            except RunBusy:
                continue
            with guard:
                owners += 1
                taken += 1
                most = max(most, owners)
            with guard:
                owners -= 1
            lock.release()

    asking = threading.Thread(target=ask)
    asking.start()
    wanting = [threading.Thread(target=want) for _ in range(4)]
    for thread in wanting:
        thread.start()
    for thread in wanting:
        thread.join()
    stop.set()
    asking.join()
    assert most == 1
    assert taken > 0


@pytest.mark.parametrize("run", ["", ".", "../x", "a/b", "-rf", ".hidden", "a\0b", "é", "x" * 201, "a b"])
def test_a_run_id_that_can_not_be_a_file_name_is_refused(tmp_path: Path, run: str) -> None:
    with pytest.raises(InputError, match="run's id is not usable"):
        acquire(tmp_path, run)
    with pytest.raises(InputError):
        is_owned(tmp_path, run)
    assert list(tmp_path.iterdir()) == []


def test_usable_run_ids(tmp_path: Path) -> None:
    for run in ("r", "2026-11-30_a.b", "x" * 200):
        assert lock_path(tmp_path, run).parent == tmp_path


def test_a_folder_that_can_not_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(JournalUnwritable, match="lock file of run r can't be made"):
        acquire(tmp_path / "file" / "locks", "r")
    with pytest.raises(JournalUnwritable, match="lock file of run r can't be read"):
        is_owned(tmp_path / "file", "r")


def test_a_lock_on_a_file_that_is_no_longer_there_is_no_ownership(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner before removes its file between our opening it and our locking it; a third one may make it anew."""
    path, real = tmp_path / "r.lock", fcntl.flock
    taken: list[int] = []

    def flock(file: int, operation: int) -> None:
        if not taken:
            path.unlink()
            third = os.open(path, os.O_RDWR | os.O_CREAT)
            taken.append(third)
            real(third, fcntl.LOCK_EX)
        real(file, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(RunBusy):
        acquire(tmp_path, "r")
    os.close(taken[0])
    lock = acquire(tmp_path, "r")
    with pytest.raises(RunBusy):
        acquire(tmp_path, "r")
    lock.release()
