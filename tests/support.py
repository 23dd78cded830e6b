"""What the tests of runs share: a configuration in a folder of their own, and a run's journal as data."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from romanesco import Config, load_config
from romanesco.journal import SQLiteStore
from romanesco.runtime import FoldedEvent, Recovery, read_events, recover

SRC = str(Path(__file__).parents[1] / "src")
PATIENCE = 240.0
"""Seconds that a test waits for what must happen, however busy the machine is. Less than a test may take in all."""

QUICK_RETRY = {"retry.base": 0.01, "retry.cap": 0.05}


def config_in(folder: Path, **overrides: Any) -> Config:
    """A configuration whose home is in ``folder``; nothing of the machine's or the user's is in it."""
    settings = {name.replace("__", "."): value for name, value in overrides.items()}
    return load_config(Path("/dev/null"), env={}, overrides={"home": str(folder / "home"), **QUICK_RETRY, **settings})


async def events_of(config: Config, run: str) -> list[FoldedEvent]:
    """All events of a run, payloads resolved."""
    store = SQLiteStore(config.home() / "journal.db")
    try:
        return await read_events(store, run)
    finally:
        await store.close()


async def recovered(config: Config, run: str) -> Recovery:
    """A run as its journal tells it."""
    return recover(await events_of(config, run))


@contextmanager
def nobody_there() -> Iterator[str]:
    """Base URL at which nobody answers. The port is taken meanwhile, so that nobody else's server gets it."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}/v1"


def start(code: str, *arguments: str) -> subprocess.Popen[str]:
    """Start a process of its own that runs some Python."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": SRC},
    )
