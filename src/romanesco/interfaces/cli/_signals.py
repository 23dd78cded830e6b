"""Ctrl-C once ends a run in good order; twice leaves at once. SIGTERM counts like Ctrl-C."""

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

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
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

    def __enter__(self) -> Interrupts:
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._hit, number)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.remove_signal_handler(number)

    def _hit(self, number: signal.Signals) -> None:
        name = "Ctrl-C" if number is signal.SIGINT else number.name
        if self._stopping is not None:
            leave_at_once(self._run)
        self._note(f"{name}: stopping; what is done is kept. Once more leaves at once.")
        self._stopping = asyncio.ensure_future(self._stop(name))


def leave_at_once(run: str) -> None:
    """End the process now. The journal holds all that was finished; what is in flight runs again on resume."""
    if sys.stderr.isatty():
        os.write(2, _SHOW_CURSOR.encode())
    # By its id: the newest run may be another one by now.
    with contextlib.suppress(OSError):  # nobody may read it any more
        os.write(2, f"\nInterrupted at once. Go on: romanesco resume {run}\n".encode())
    os._exit(EXIT_CODES[StopReason.INTERRUPTED])
