"""Drives the real command line on a terminal."""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
import time

from tests.interfaces.commands import Commands
from tests.support import PATIENCE


class Terminal:
    """A command on a pseudo terminal of 40 lines, 100 columns wide if nothing else is said."""

    def __init__(self, commands: Commands, *words: str, env: dict[str, str] | None = None, columns: int = 100) -> None:
        self._end, child = pty.openpty()
        fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        environment = {**commands.env, "TERM": "xterm-256color", **(env or {})}
        self.process = subprocess.Popen(
            commands.line(*words),
            stdin=child,
            stdout=child,
            stderr=child,
            env=environment,
            cwd=commands.folder,
            start_new_session=True,
        )
        os.close(child)
        os.set_blocking(self._end, False)
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._closed = False
        self.text = ""

    def read(self) -> str:
        """All that was written so far."""
        try:
            while piece := os.read(self._end, 65536):
                self.text += self._decoder.decode(piece)
            self._closed = True
        except BlockingIOError:
            pass  # nothing more for now
        except OSError:
            self._closed = True  # all that had the other end are gone
        return self.text

    @property
    def lines(self) -> list[str]:
        """What was written, without colours and without what moves the cursor."""
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.text).replace("\r", "\n").replace("\n\n", "\n").split("\n")

    def finish(self) -> int:
        """Read to the end; gives the exit status."""
        end = time.monotonic() + PATIENCE
        try:
            while not self._closed:
                self.read()
                assert time.monotonic() < end, self.text
                time.sleep(0.02)
            self.process.wait(PATIENCE)
        finally:
            self.process.kill()
            self.process.wait()
            os.close(self._end)
        return self.process.returncode
