"""One process owns a run: a kernel lock on a small file beside the journal.

The lock is ``flock`` on ``JOURNAL.locks/RUN.lock``. The kernel frees it when the owner's file descriptor
goes, however the process ends, so that no lease, heartbeat or clean-up is needed. The descriptor is closed in
a program that the owner starts (``O_CLOEXEC``); a forked copy of the owner would keep the lock, so don't fork
one.

The owner removes the file when it releases. Whoever takes the lock checks afterwards that the file at the
path is still the one it locked, and begins again if not: otherwise two processes could each hold a lock on a
different file of the same name. A file that a killed owner left behind is harmless and is used again.

``owned`` takes a shared lock for a moment and gives it back. A process that wants to become the owner in that
moment tries again: for a few milliseconds while somebody has the whole lock, and for longer while it can be
shared, because then nobody owns the run, and who only asked may have lost the processor in that moment.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import socket
import time
from pathlib import Path

from romanesco.errors import InputError, JournalUnwritable, RunBusy

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")
_PAUSE = 0.004
_TRIES = 2400
_OWNED = 300
"""So many tries is one worth in which somebody had the whole lock."""


def check_run_id(run: str) -> None:
    """Refuse an id that can't be part of a file's name: locks and certificates are files.

    Raises:
        InputError: It can't.
    """
    if not _NAME.fullmatch(run):
        raise InputError(
            "A run's id is not usable",
            value=repr(run[:80]),
            limit="1 to 200 letters, digits, '_', '-' and '.', not beginning with '.' or '-'",
            advice="`romanesco runs` lists the ids of all runs.",
        )


class FileLock:
    """The ownership of a run, held until ``release`` or the end of the process."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor: int | None = descriptor

    def release(self) -> None:
        """Free the lock and remove its file. May be called twice."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        with contextlib.suppress(OSError):  # a file that can't be removed is harmless
            self._path.unlink()
        os.close(descriptor)


def lock_path(folder: Path, run: str) -> Path:
    """Where a run's lock file is.

    Raises:
        InputError: The run's id can't be a file name.
    """
    check_run_id(run)
    return folder / f"{run}.lock"


def acquire(folder: Path, run: str) -> FileLock:
    """Become the owner of a run.

    Args:
        folder: Folder of the lock files; made if it is missing.
        run: The run's id.

    Raises:
        RunBusy: A process owns it already, perhaps this one.
        JournalUnwritable: The lock file can't be made.
    """
    path = lock_path(folder, run)
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        left = _TRIES
        while left > 0:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                left -= 1 if _can_be_shared(descriptor) else _OWNED
                os.close(descriptor)
                time.sleep(_PAUSE)
                continue
            except BaseException:
                os.close(descriptor)
                raise
            if _same_file(path, descriptor):
                _sign(descriptor)
                return FileLock(path, descriptor)
            os.close(descriptor)
            left -= _OWNED
    except OSError as error:
        raise JournalUnwritable(
            f"The lock file of run {run} can't be made: {error.strerror}",
            value=str(path),
            advice="Check the folder's permissions and free space; it must be on a local disk.",
        ) from error
    raise _busy(path, run)


def is_owned(folder: Path, run: str) -> bool:
    """Whether any process owns the run now.

    Raises:
        JournalUnwritable: The lock file can't be opened.
    """
    path = lock_path(folder, run)
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise JournalUnwritable(
            f"The lock file of run {run} can't be read: {error.strerror}",
            value=str(path),
            advice="Check the permissions of the journal's folder.",
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _can_be_shared(descriptor: int) -> bool:
    """Whether nobody has the whole lock: those that have it only asked."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _same_file(path: Path, descriptor: int) -> bool:
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    here = os.fstat(descriptor)
    return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)


def _sign(descriptor: int) -> None:
    """Write who owns the run; only for people to read."""
    who = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.time()}
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(who).encode(), 0)
    except OSError:
        os.close(descriptor)
        raise


def _busy(path: Path, run: str) -> RunBusy:
    try:
        who = json.loads(path.read_bytes())
        owner = f"process {int(who['pid'])} on {str(who['host'])[:100]}"
    except (OSError, ValueError, KeyError, TypeError):
        owner = "another process"
    return RunBusy(
        f"Run {run} is owned by {owner}",
        value=run,
        limit="one owner at a time",
        advice=f"Wait until it ends, send it a command (`romanesco stop {run}`), or work on another run.",
    )
