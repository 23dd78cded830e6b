"""Guards of the wire: where a request may go, and whom a server's wish to wait concerns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import romanesco
from romanesco import Status, StopReason
from romanesco.testing import Chain, FakeReply, FakeServer, Fault, Members, Rule, Scenario
from tests.support import PATIENCE, config_in


@asynccontextmanager
async def redirecting(status: int, target: str) -> AsyncIterator[str]:
    """Base URL of a server that sends every request on to the same path of another."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        lines = head.split("\r\n")
        sizes = [int(line.split(":")[1]) for line in lines if line.lower().startswith("content-length:")]
        await reader.readexactly(sum(sizes))
        path = lines[0].split(" ")[1].removeprefix("/v1")
        answer = (
            f"HTTP/1.1 {status} Moved\r\nlocation: {target}{path}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        )
        writer.write(answer.encode())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    finally:
        server.close()
        await server.wait_closed()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed(status: int, tmp_path: Path) -> None:
    async with FakeServer() as other, redirecting(status, other.url) as url:
        outcome = await romanesco.run(
            "a secret", model=f"{url}#fake", topology=Chain(), config=config_in(tmp_path), params={"length": 1}
        )
        assert not other.ledger.requests and not other.ledger.free
    assert outcome.status is not Status.COMPLETED and outcome.reason is StopReason.MODEL
    assert "redirects" in outcome.note


async def test_a_wish_to_wait_for_a_day_fails_that_call_and_halts_nobody_else(tmp_path: Path) -> None:
    quota = Rule(match="[round/1/0]", reply=FakeReply(fault=Fault(status=429, retry_after=86_400)))
    async with FakeServer(scenario=Scenario(rules=(quota,))) as server, asyncio.timeout(PATIENCE):
        outcome = await romanesco.run(
            "say something",
            model=f"{server.url}#fake",
            topology=Members(),
            params={"members": 4},
            config=config_in(tmp_path, concurrency=1),
        )
        assert len(server.ledger.requests) == 4
    assert outcome.status is Status.PARTIAL
    answers = outcome.answer.splitlines()
    assert "(rate-limited)" in answers[0] and not any("(" in line for line in answers[1:])
