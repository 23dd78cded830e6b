"""A terminal that is closed while a run goes on: the run ends in good order, or goes on if it was told to."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from romanesco.interfaces.cli import _signals
from romanesco.interfaces.cli._main import BROKEN_PIPE
from romanesco.interfaces.cli._signals import Interrupts
from romanesco.testing import FakeServerProcess
from tests.interfaces.commands import Commands, until
from tests.support import PATIENCE

WORDS = ("--topology", "members", "--param", "members=3", "--id", "r")
_AS_A_SHELL_DOES = """
import fcntl, os, signal, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGHUP, getattr(signal, sys.argv[1]))
os.execv(sys.argv[2], sys.argv[2:])
"""


class OwnTerminal:
    """A command that a terminal belongs to: the kernel tells it when that is closed."""

    def __init__(self, commands: Commands, *words: str, on_hangup: str, err: Path | None = None) -> None:
        self._end, child = pty.openpty()
        errors = child if err is None else os.open(err, os.O_WRONLY | os.O_CREAT)
        self.process = subprocess.Popen(
            [sys.executable, "-c", _AS_A_SHELL_DOES, on_hangup, *commands.line(*words)],
            stdin=child,
            stdout=child,
            stderr=errors,
            env={**commands.env, "TERM": "xterm-256color"},
            cwd=commands.folder,
            start_new_session=True,
        )
        for one in {child, errors}:
            os.close(one)
        commands._started.append(self.process)  # type: ignore[arg-type]

    def shows(self, server: FakeServerProcess, requests: int) -> None:
        """Read it, since a command waits for a full terminal, until so many requests have reached the server."""
        os.set_blocking(self._end, False)

        def enough() -> bool:
            with contextlib.suppress(BlockingIOError):
                os.read(self._end, 65536)
            return len(server.ledger.requests) == requests

        until(enough, f"{requests} requests")

    def close(self) -> None:
        """Close it, as a window is closed."""
        os.close(self._end)

    def wait(self) -> int:
        """Wait for the command; its exit status."""
        return self.process.wait(PATIENCE)


def test_a_run_whose_terminal_is_closed_ends_in_good_order(romanesco: Commands, slow: FakeServerProcess) -> None:
    words = ("run", "Think [slow]", *WORDS, "-m", f"{slow.url}#fake")
    terminal = OwnTerminal(romanesco, *words, on_hangup="SIG_DFL")
    terminal.shows(slow, 3)
    terminal.close()
    assert terminal.wait() == 5
    shown = romanesco("show", "r", "--json").json
    assert (shown["status"], shown["go_on"]) == ("cancelled", "romanesco resume r")
    assert "the terminal was closed (SIGHUP)" in romanesco("show", "r").out
    assert "Interrupted" not in romanesco("runs").err, "it ended in good order"


def test_what_goes_elsewhere_than_to_the_closed_terminal_is_written(
    romanesco: Commands, slow: FakeServerProcess
) -> None:
    words = ("run", "Think [slow]", *WORDS, "-m", f"{slow.url}#fake")
    terminal = OwnTerminal(romanesco, *words, on_hangup="SIG_DFL", err=romanesco.folder / "err")
    terminal.shows(slow, 3)
    terminal.close()
    assert terminal.wait() == 5
    told = (romanesco.folder / "err").read_text()
    assert "the terminal was closed (SIGHUP): stopping; what is done is kept.\n" in told
    assert "Traceback" not in told and "error" not in told


def test_a_run_that_ignores_the_hangup_goes_on_without_its_terminal(
    romanesco: Commands, slow: FakeServerProcess
) -> None:
    """As ``nohup`` starts it. What it can't write to its terminal costs it nothing but the reader."""
    words = ("run", "Think [slow]", *WORDS, "-m", f"{slow.url}#fake")
    terminal = OwnTerminal(romanesco, *words, on_hangup="SIG_IGN", err=romanesco.folder / "err")
    terminal.shows(slow, 3)
    terminal.close()
    terminal.process.send_signal(signal.SIGTERM)  # else it would wait for its answers for ever
    assert terminal.wait() == BROKEN_PIPE
    told = (romanesco.folder / "err").read_text()
    assert "SIGTERM: stopping" in told and "SIGHUP" not in told
    assert "Traceback" not in told and "Exception" not in told
    assert "Stopped: SIGTERM" in romanesco("show", "r").out


async def test_the_shell_and_the_kernel_may_both_tell_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second SIGHUP is not a second Ctrl-C, also after the run has ended; another signal after it is one."""
    left: list[str] = []
    monkeypatch.setattr(_signals, "leave_at_once", left.append)
    monkeypatch.setattr(os, "isatty", lambda stream: False)
    loop, heard, stops, stopping = asyncio.get_running_loop(), asyncio.Event(), list[str](), asyncio.Event()

    async def stop(why: str) -> None:
        stops.append(why)
        await stopping.wait()

    async def say(*signals: signal.Signals) -> None:
        for number in (*signals, signal.SIGUSR1):  # handled in this order
            os.kill(os.getpid(), number)
        await heard.wait()
        heard.clear()

    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    loop.add_signal_handler(signal.SIGUSR1, heard.set)
    try:
        with Interrupts("r", stop, lambda text: None) as interrupts:
            await say(signal.SIGHUP, signal.SIGHUP)
            assert not left
            await say(signal.SIGTERM)
            assert left == ["r"]
            stopping.set()
            assert interrupts._stopping is not None
            await interrupts._stopping
        await say(signal.SIGHUP)
    finally:
        loop.remove_signal_handler(signal.SIGUSR1)
        signal.signal(signal.SIGHUP, before)
    assert stops[0] == "the terminal was closed (SIGHUP)"
