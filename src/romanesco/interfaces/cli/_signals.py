"""Ctrl-C once ends a run in good order; twice leaves at once. SIGTERM counts like Ctrl-C.

So does SIGHUP, the word that the terminal was closed, but never as the second time: the kernel and the shell may both
send it. A process that ignores it (``nohup``) goes on ignoring it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any

from romanesco.errors import EXIT_CODES, StopReason

_NAMES = {
    signal.SIGINT: "Ctrl-C",
    signal.SIGTERM: "SIGTERM",
    signal.SIGHUP: "the terminal was closed (SIGHUP)",
}
_SHOW_CURSOR = "\x1b[?25h"


class Interrupts:
    """While entered, signals stop a run.

    Args:
        run: The run's id.
        stop: Stops the run in good order.
        note: Tells the user.
    """

    def __init__(self, run: str, stop: Callable[[str], Coroutine[Any, Any, None]], note: Callable[[str], None]) -> None:
        self._run = run
        self._stop = stop
        self._note = note
        self._stopping: asyncio.Task[None] | None = None
        self._signals: list[signal.Signals] = []
        self._terminals: list[int] = []
        self._hung_up = False

    def __enter__(self) -> Interrupts:
        loop = asyncio.get_running_loop()
        self._signals = [one for one in _NAMES if one is not signal.SIGHUP or signal.getsignal(one) != signal.SIG_IGN]
        self._terminals = [stream for stream in (1, 2) if os.isatty(stream)]  # nobody can tell once it is closed
        for number in self._signals:
            loop.add_signal_handler(number, self._hit, number)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        loop = asyncio.get_running_loop()
        for number in self._signals:
            loop.remove_signal_handler(number)
        if self._hung_up:
            signal.signal(signal.SIGHUP, signal.SIG_IGN)  # what comes once more must not cost the ending

    def _hit(self, number: signal.Signals) -> None:
        if number is signal.SIGHUP:
            self._hung_up = True
            self._leave_terminal()
            if self._stopping is not None:
                return
        name = _NAMES[number]
        if self._stopping is not None:
            leave_at_once(self._run)
        again = "" if number is signal.SIGHUP else " Once more leaves at once."
        self._note(f"{name}: stopping; what is done is kept.{again}")
        self._stopping = asyncio.ensure_future(self._stop(name))

    def _leave_terminal(self) -> None:
        """Let what would be written to a closed terminal go nowhere: there it fails, and the ending with it."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in self._terminals:
            os.dup2(nowhere, stream)
        os.close(nowhere)


def leave_at_once(run: str) -> None:
    """End the process now. The journal holds all that was finished; what is in flight runs again on resume."""
    if sys.stderr.isatty():
        os.write(2, _SHOW_CURSOR.encode())
    # By its id: the newest run may be another one by now.
    with contextlib.suppress(OSError):  # nobody may read it any more
        os.write(2, f"\nInterrupted at once. Go on: romanesco resume {run}\n".encode())
    os._exit(EXIT_CODES[StopReason.INTERRUPTED])
