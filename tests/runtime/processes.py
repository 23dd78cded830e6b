"""Runs in processes of their own, which can be killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from romanesco import Outcome
from romanesco._codec import from_json

ROOT = Path(__file__).parents[2]


@dataclass
class Child:
    """A process that runs a job."""

    pid: int
    out: Path
    ended: asyncio.Future[str]

    def kill(self) -> None:
        """``kill -9``, if it still lives."""
        if not self.ended.done():
            os.kill(self.pid, signal.SIGKILL)

    async def outcome(self) -> Outcome | None:
        """How its run ended, or None if it was killed before."""
        status = int(await self.ended)
        if os.WIFSIGNALED(status):
            return None
        assert os.waitstatus_to_exitcode(status) == 0, "the child failed; its trace is on stderr"
        return from_json(Outcome, json.loads(self.out.read_text(encoding="utf-8")))


class Forker:
    """Starts jobs one after the other; see ``tests.runtime.forker``. A context manager."""

    def __enter__(self) -> Forker:
        self._folder = tempfile.TemporaryDirectory()
        self._jobs = 0
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.runtime.forker"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            env={**os.environ, "PYTHONPATH": path},
        )
        assert self._line() == "ready"
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()
        self._folder.cleanup()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    async def start(self, kind: str, folder: Path, **options: Any) -> Child:
        """Start a job; the one before has ended."""
        self._jobs += 1
        out = Path(self._folder.name) / f"{self._jobs}.json"
        job = {"kind": kind, "folder": str(folder), "out": str(out), **options}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        pid = int(await asyncio.to_thread(self._line))
        ended = asyncio.ensure_future(asyncio.to_thread(self._line))
        return Child(pid, out, ended)

    async def outcome(self, kind: str, folder: Path, **options: Any) -> Outcome:
        """Do a job to its end."""
        child = await self.start(kind, folder, **options)
        outcome = await child.outcome()
        assert outcome is not None
        return outcome
