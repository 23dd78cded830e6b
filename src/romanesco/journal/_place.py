"""Whether a journal's path still leads to the file that was opened there.

An open file goes on after it was renamed, deleted or replaced: everything that is written into it seems to be kept, and
nobody finds it under the journal's path. SQLite does not look.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from romanesco.errors import JournalUnwritable

LOOK_EVERY = 1.0
"""Seconds between two looks: one costs a few microseconds, and there may be thousands of commits in a second."""


class Place:
    """The file that is open, and where it should be. Made right after it was opened; used from one thread.

    Args:
        path: The journal's path.
        clock: Monotonic seconds.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._opened = _identity(path)
        self._looked = clock()

    def lost(self) -> JournalUnwritable | None:
        """Why nothing should be written any more, if a look is due and finds it so. One is due while it is lost."""
        now = self._clock()
        if now - self._looked < LOOK_EVERY:
            return None
        try:
            found = _identity(self._path)
        except OSError:
            return None  # it can't be seen, which does not mean that it is gone: the write will tell
        if found == self._opened:
            self._looked = now
            return None
        return JournalUnwritable(
            "The journal's file was renamed, deleted or replaced while it was in use",
            value=f"{'no file' if found is None else 'another file'} at {self._path}",
            limit="the file that was opened there",
            advice=f"Put it back under that name, beside {self._path.name}-wal, before anything else uses the journal.",
        )


def _identity(path: Path) -> tuple[int, int] | None:
    """What tells files apart; None if there is no file.

    Raises:
        OSError: Whether there is one can't be seen.
    """
    try:
        seen = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return seen.st_dev, seen.st_ino
