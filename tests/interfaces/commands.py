"""Drives the real command line in processes of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support import PATIENCE

ROOT = Path(__file__).resolve().parents[2]
_ENTRY_POINTS = """[romanesco.topologies]
members = romanesco.testing:Members
chain = romanesco.testing:Chain
tree = romanesco.testing:Tree
asking = tests.interfaces.asking:Asking
failing = tests.interfaces.asking:Failing
"""


@dataclass(frozen=True, slots=True)
class Done:
    """What a command left: its exit status and what it wrote."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output, which must be one JSON document and nothing else."""
        return json.loads(self.out)

    @property
    def error(self) -> str:
        """The one line of an error."""
        assert "Traceback" not in self.err, self.err
        lines = [line for line in self.err.splitlines() if line.startswith("error: ")]
        assert len(lines) == 1, self.err
        assert self.err.rstrip().endswith(lines[0]), self.err
        return lines[0].removeprefix("error: ")


class Commands:
    """``romanesco`` in a folder, with the test topologies installed and nothing of the machine's configuration."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._started: list[subprocess.Popen[str]] = []
        self.home = folder / "home"
        package = folder / "packages" / "romanesco_test_topologies-1.dist-info"
        package.mkdir(parents=True)
        (package / "METADATA").write_text("Metadata-Version: 2.1\nName: romanesco-test-topologies\nVersion: 1\n")
        (package / "entry_points.txt").write_text(_ENTRY_POINTS)
        kept = {name: os.environ[name] for name in ("PATH", "ROMANESCO_MODELS", "SYSTEMROOT") if name in os.environ}
        self.env = {
            **kept,
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            "PYTHONPATH": os.pathsep.join(map(str, (ROOT / "src", ROOT, package.parent))),
            "ROMANESCO_DEADLINES_FIRST_TOKEN": "600",
            "ROMANESCO_HOME": str(self.home),
            "ROMANESCO_RETRY_BASE": "0.01",
            "ROMANESCO_RETRY_CAP": "0.05",
        }

    def __call__(self, *words: str | Path, stdin: str | bytes = b"", env: Mapping[str, str] | None = None) -> Done:
        """Run a command to its end."""
        given = stdin.encode() if isinstance(stdin, str) else stdin
        done = subprocess.run(
            self.line(*words),
            input=given,
            capture_output=True,
            env={**self.env, **(env or {})},
            cwd=self.folder,
            timeout=PATIENCE,
            check=False,
        )
        return Done(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))

    def start(self, *words: str | Path, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """Start a command. ``finish`` waits for it."""
        process = subprocess.Popen(
            self.line(*words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**self.env, **(env or {})},
            cwd=self.folder,
            text=True,
            encoding="utf-8",
        )
        self._started.append(process)
        return process

    def close(self) -> None:
        """End what still runs, for example after a failed test."""
        for process in self._started:
            if process.poll() is None:
                process.kill()
                process.communicate()

    @staticmethod
    def line(*words: str | Path) -> list[str]:
        """The whole command."""
        return [sys.executable, "-m", "romanesco", *map(str, words)]


def finish(process: subprocess.Popen[str]) -> Done:
    """Wait for a started command; one that does not end is killed, and the test fails."""
    try:
        out, err = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"the command did not end: {out}\n{err}") from None
    return Done(process.returncode, out, err)


def until(condition: Callable[[], object], what: str) -> None:
    """Wait for a condition."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.02)
