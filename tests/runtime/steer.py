"""Watching a run against a fake server, and saying something to it as another process does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import romanesco
from romanesco._run import Run
from romanesco.errors import JournalError, UnknownName
from romanesco.journal import Command, SQLiteStore, Store
from romanesco.testing import FakeServer
from tests.runtime.checks import at_rest, check_run, nothing_left_behind
from tests.support import PATIENCE, config_in, events_of


@asynccontextmanager
async def going_on(
    server: FakeServer, folder: Path, topology: Any, *, config: dict[str, Any] | None = None, **options: Any
) -> AsyncIterator[Run]:
    """A run against a server, checked from all sides when it has ended."""
    before = asyncio.all_tasks()
    async with romanesco.open_run(
        "say something",
        model=f"{server.url}#fake",
        topology=topology,
        config=config_in(folder, **(config or {})),
        run="r",
        **options,
    ) as run:
        yield run
    at_rest(run._session)
    await deserted(server)
    nothing_left_behind(before)
    await check_run(config_in(folder), await run.outcome(), server.ledger)


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait until something is so."""
    while not await condition():  # noqa: ASYNC110 - it happens in a server, a file or another process
        await asyncio.sleep(0.005)


async def requests(server: FakeServer, count: int) -> None:
    """Wait until so many requests have reached the server."""

    async def enough() -> bool:
        return len(server.ledger.requests) >= count

    await until(enough)


async def settled(server: FakeServer) -> float:
    """Wait until the server has read whatever was sent to it so far; the moment when it had.

    What a client sent, also one that is gone, may stand in the kernel's buffers. A request of our own comes after it.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"GET /v1/models HTTP/1.1\r\n\r\n")
    assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    writer.close()
    await writer.wait_closed()
    return time.monotonic()


async def deserted(server: FakeServer) -> None:
    """Wait until the server has read whatever its clients sent, and has seen that all of them are gone."""
    await settled(server)

    async def nobody() -> bool:
        return not server.connections

    await until(nobody)
    for _ in range(3):  # the server's own tasks end in the next rounds of the loop
        await asyncio.sleep(0)


async def questions(folder: Path, count: int = 1) -> dict[str, str]:
    """Ids of the questions that were asked, by node, once there are so many."""
    asked: dict[str, str] = {}

    async def enough() -> bool:
        try:
            events = await events_of(config_in(folder), "r")
        except (JournalError, UnknownName):
            return False  # it has not begun
        asked.update({node: data["id"] for _, kind, node, _, data in events if kind == "question.asked"})
        return len(asked) >= count

    await until(enough)
    return asked


async def command(store: Store, verb: str, node: str = "/", **data: Any) -> dict[str, Any]:
    """Say something to a run as another process does, and wait for its answer."""
    name = f"{verb}-{time.monotonic()}"
    await store.post(Command(name, "r", node, verb, data, time.time()))

    async def answered() -> bool:
        return await store.acknowledgement(name) is not None

    async with asyncio.timeout(PATIENCE):
        await until(answered)
    answer = await store.acknowledgement(name)
    assert answer is not None
    return answer


@asynccontextmanager
async def other_process(folder: Path) -> AsyncIterator[SQLiteStore]:
    """A store of its own on the run's file."""
    store = SQLiteStore(config_in(folder).home() / "journal.db")
    try:
        yield store
    finally:
        await store.close()
