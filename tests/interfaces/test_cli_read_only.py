"""Commands that only read, on a journal that can't be written."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from romanesco.testing import FakeServerProcess
from tests.interfaces.commands import ROOT, Commands
from tests.support import PATIENCE

# Permissions don't bind root, until the right to pass over them (CAP_DAC_OVERRIDE) is dropped for what comes next.
_BOUND_BY_PERMISSIONS = """
import ctypes, os, sys
if os.getuid() == 0:
    assert ctypes.CDLL(None).prctl(24, 1, 0, 0, 0) == 0
os.execv(sys.executable, [sys.executable, "-m", "romanesco", *sys.argv[1:]])
"""


class Locked:
    """The command line where nothing in the journal's folder may be written."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "src"), "LANG": "C.UTF-8"}
        return subprocess.run(
            [sys.executable, "-c", _BOUND_BY_PERMISSIONS, *words],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
            cwd="/",
            env={**env, "HOME": "/", "ROMANESCO_HOME": str(self.home)},
        )

    def lock(self) -> None:
        """Take the right to write away."""
        for path in (self.home, *self.home.rglob("*")):
            path.chmod(0o555 if path.is_dir() else 0o444)

    def unlock(self) -> None:
        """Give it back."""
        for path in (self.home, *self.home.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)


@pytest.fixture
def locked(romanesco: Commands, server: FakeServerProcess) -> Iterator[Locked]:
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        home = Path(name) / "home"
        words = ("run", "Hi", "--topology", "single", "-m", f"{server.url}#fake", "--id", "r")
        assert romanesco(*words, env={"ROMANESCO_HOME": str(home)}).code == 0
        there = Locked(home)
        there.lock()
        yield there
        there.unlock()


def test_a_journal_that_cannot_be_written_is_read(locked: Locked) -> None:
    before = sorted(locked.home.rglob("*"))
    for words in (("runs", "--json"), ("show", "r"), ("verify", "last"), ("export", "r"), ("replay", "r")):
        done = locked(*words)
        assert (done.returncode, "error:" in done.stderr) == (0, False), (words, done.stderr)
        assert done.stdout
    assert [one["run"] for one in json.loads(locked("runs", "--json").stdout)] == ["r"]
    assert sorted(locked.home.rglob("*")) == before


def test_a_run_and_a_command_there_fail_and_say_so(locked: Locked) -> None:
    for words in (("run", "Hi", "--topology", "single"), ("stop", "r"), ("resume", "r")):
        done = locked(*words)
        assert done.returncode == 8, (words, done.stderr)
        assert done.stderr.count("error: ") == 1 and "can't be made or written" in done.stderr


def test_events_in_a_side_file_that_cannot_be_read_are_not_left_out(locked: Locked) -> None:
    locked.unlock()
    side = locked.home / "journal.db-wal"
    assert not side.exists()
    code = f"""
import os, sqlite3
c = sqlite3.connect({str(locked.home / "journal.db")!r}, isolation_level=None)
c.execute("UPDATE events SET at = at + 1")
os._exit(0)  # as a kill leaves it: the last events are only in the side file
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=PATIENCE)
    assert side.stat().st_size > 0
    shared = locked.home / "journal.db-shm"
    locked.lock()
    assert locked("runs").returncode == 0  # both side files are there: all is read
    locked.unlock()
    shared.unlink()
    locked.lock()
    done = locked("runs")
    assert done.returncode == 8
    assert "last events are in a side file" in done.stderr and "Copy the journal's folder" in done.stderr


def test_a_journal_of_an_earlier_version_that_cannot_be_brought_to_this_one_is_not_read(locked: Locked) -> None:
    locked.unlock()
    connection = sqlite3.connect(locked.home / "journal.db")
    connection.execute("PRAGMA user_version=0")
    connection.close()
    locked.lock()
    for words in (("runs",), ("show", "r")):
        done = locked(*words)
        assert done.returncode == 8, (words, done.stderr)
        assert "of an earlier version and can't be brought to this one" in done.stderr
