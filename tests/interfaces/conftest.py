"""Fixtures of the command line's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from romanesco.testing import FakeServerProcess
from tests.interfaces.commands import Commands


@pytest.fixture
def romanesco(tmp_path: Path) -> Iterator[Commands]:
    """The command line in a folder of its own."""
    commands = Commands(tmp_path)
    yield commands
    commands.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FakeServerProcess]:
    """A fake server that answers at once."""
    with FakeServerProcess(tmp_path) as running:
        yield running


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[FakeServerProcess]:
    """A fake server that thinks for ever about every prompt that says so."""
    waits = {"rules": [{"match": "[slow]", "reply": "auto", "fault": {"stall": "inf"}}]}
    with FakeServerProcess(tmp_path, waits) as running:
        yield running
