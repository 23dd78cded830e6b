"""Runs in processes of their own, which can be killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
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
    ended: asyncio.Future[int]

    def kill(self) -> None:
        """``kill -9``, if it still lives."""
        if not self.ended.done():
            os.kill(self.pid, signal.SIGKILL)

    async def outcome(self) -> Outcome | None:
        """How its run ended, or None if it was killed before."""
        status = await self.ended
        if os.WIFSIGNALED(status):
            return None
        assert os.waitstatus_to_exitcode(status) == 0, "the child failed; its trace is on stderr"
        return from_json(Outcome, json.loads(self.out.read_text(encoding="utf-8")))


class Forker:
    """Starts jobs one after the other; see ``tests.runtime.forker``."""

    def __init__(self, process: asyncio.subprocess.Process, folder: Path) -> None:
        self._process = process
        self._folder = folder
        self._jobs = 0

    async def line(self) -> str:
        assert self._process.stdout is not None
        return (await self._process.stdout.readline()).decode().strip()

    async def start(self, kind: str, folder: Path, **options: Any) -> Child:
        """Start a job; the one before has ended."""
        self._jobs += 1
        out = self._folder / f"out-{self._jobs}.json"
        job = {"kind": kind, "folder": str(folder), "out": str(out), **options}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(job).encode() + b"\n")
        pid = int(await self.line())
        ended = asyncio.ensure_future(self._ended())
        return Child(pid, out, ended)

    async def _ended(self) -> int:
        return int(await self.line())

    async def outcome(self, kind: str, folder: Path, **options: Any) -> Outcome:
        """Do a job to its end."""
        child = await self.start(kind, folder, **options)
        outcome = await child.outcome()
        assert outcome is not None
        return outcome


@asynccontextmanager
async def forker(folder: Path) -> AsyncIterator[Forker]:
    """A forker for the jobs of one test."""
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.runtime.forker",
        cwd=ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
    )
    jobs = Forker(process, folder)
    try:
        assert await jobs.line() == "ready"
        yield jobs
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()
