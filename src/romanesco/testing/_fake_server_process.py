"""The fake server as a process of its own: it outlives the kill -9 of its client."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from romanesco.testing._fake_server import FakeServer
from romanesco.testing._fake_server_ledger import Ledger
from romanesco.testing._fake_server_scenario import Scenario


class FakeServerProcess:
    """Starts ``python -m romanesco.testing.fake_server`` and ends it; a context manager for code that is not async.

    Args:
        folder: Where the scenario and the ledger are written.
        scenario: The scenario as JSON; see ``Scenario``.
    """

    def __init__(self, folder: Path, scenario: dict[str, Any] | None = None) -> None:
        self.ledger_file = folder / "ledger.jsonl"
        self.url = ""
        self._script = folder / "scenario.json"
        self._scenario = scenario or {}
        self._process: subprocess.Popen[str] | None = None

    @property
    def ledger(self) -> Ledger:
        """What has reached the server so far, read from its file."""
        return Ledger.load(self.ledger_file)

    def __enter__(self) -> FakeServerProcess:
        self._script.write_text(json.dumps(self._scenario), encoding="utf-8")
        command = [sys.executable, "-m", "romanesco.testing.fake_server", "--port", "0"]
        command += ["--script", str(self._script), "--ledger", str(self.ledger_file)]
        source = str(Path(__file__).resolve().parents[2])
        path = os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH", "")]))
        self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path}, start_new_session=True
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self.__exit__(None, None, None)
            raise RuntimeError(f"the fake server did not start: {' '.join(command)}")
        self.url = json.loads(line)["url"]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the server until it is terminated; the first line on stdout is its address as JSON."""
    parser = argparse.ArgumentParser(prog="python -m romanesco.testing.fake_server", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1; 0 takes a free one (default)")
    parser.add_argument("--script", type=Path, help="scenario as a JSON file")
    parser.add_argument("--ledger", type=Path, help="file that the ledger is appended to, JSON lines")
    given = parser.parse_args(arguments)
    try:
        data = json.loads(given.script.read_text(encoding="utf-8")) if given.script else {}
        scenario = Scenario.from_json(data)
    except (OSError, ValueError) as error:
        parser.error(f"the scenario can't be used: {error}")
    try:
        asyncio.run(_serve(scenario, given.port, given.ledger))
    except KeyboardInterrupt:
        return 130
    return 0


async def _serve(scenario: Scenario, port: int, ledger: Path | None) -> None:
    async with FakeServer(scenario=scenario, port=port, ledger_file=ledger) as server:
        print(json.dumps({"url": server.url, "port": server.port}), flush=True)
        await asyncio.get_running_loop().create_future()
