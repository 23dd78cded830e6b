"""Deadlines and cancellation of the client: each limit on its own, and the server sees that nobody listens."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from romanesco.errors import ConnectionCut, DeadlineExceeded, ReplyUnreadable
from romanesco.models._openai import OpenAICompatible
from romanesco.models._openai_events import MAX_EVENT
from romanesco.models._types import Deadlines, Message, ModelRequest
from romanesco.testing._fake_server import FakeServer
from romanesco.testing._fake_server_reply import FakeReply, Fault
from tests.support import PATIENCE

LONG = PATIENCE
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def client(url: str, *, stream: bool = True) -> AsyncIterator[OpenAICompatible]:
    model = OpenAICompatible(name="acme:fake", model="fake", base_url=url, stream=stream)
    try:
        yield model
    finally:
        await model.close()


@asynccontextmanager
async def raw_server(serve: Serve) -> AsyncIterator[str]:
    """A server that reads a request and then does as it likes."""

    running = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        running.add(asyncio.current_task())
        try:
            await reader.readuntil(b"\r\n\r\n")
            await serve(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    finally:
        server.close()
        if running:
            await asyncio.wait([task for task in running if task is not None])


def ask(**limits: float) -> ModelRequest:
    fields = {"connect": LONG, "first_token": LONG, "between_tokens": LONG, "total": LONG, **limits}
    return ModelRequest("acme:fake", (Message("user", "hi"),), max_output_tokens=64, deadlines=Deadlines(**fields))


def stalling(after: int = 0, **fault: float) -> Callable[[object, int], FakeReply]:
    return lambda body, number: FakeReply("0123" * 8, fault=Fault(stall=math.inf, stall_after=after, **fault))  # type: ignore[arg-type]


async def expires(model: OpenAICompatible, request: ModelRequest) -> DeadlineExceeded:
    with pytest.raises(DeadlineExceeded) as caught:
        await model.complete(request)
    assert f"{LONG:g} s" not in str(caught.value), "the limit that passed is the short one"
    assert caught.value.retryable
    return caught.value


async def gone(server: FakeServer) -> None:
    """Until the server has noticed that its only client went away, whose request it may not have read yet."""
    async with asyncio.timeout(PATIENCE):
        while not any(entry.disconnected for entry in server.ledger.requests):  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def test_br_076_first_token() -> None:
    async with FakeServer(stalling()) as server, client(server.url) as model:
        error = await expires(model, ask(first_token=0.1))
        assert error.phase == "first_token"
        assert error.sent
        assert "first token" in str(error)
        assert "0.1 s" in str(error)
        await gone(server)


async def test_between_tokens() -> None:
    async with FakeServer(stalling(after=3)) as server, client(server.url) as model:
        pieces: list[str] = []
        with pytest.raises(DeadlineExceeded) as caught:
            await model.complete(ask(between_tokens=0.1), on_token=pieces.append)
        assert caught.value.phase == "between_tokens"
        assert pieces == ["0123"] * 3
        await gone(server)
        assert server.ledger.tokens_out == 3


async def test_total_while_tokens_flow() -> None:
    fault = Fault(interval=0.03)
    async with FakeServer(lambda body, number: FakeReply("0123" * 40, fault=fault)) as server:
        async with client(server.url) as model:
            assert (await expires(model, ask(total=0.3))).phase == "total"


@pytest.mark.parametrize("after", [0, 3])
async def test_a_reply_in_one_piece_has_no_first_token_to_wait_for(after: int) -> None:
    async with FakeServer(stalling(after=after)) as server, client(server.url, stream=False) as model:
        error = await expires(model, ask(total=0.3, first_token=0.05))
        assert error.phase == "total"


async def test_a_slow_reply_within_its_limits_is_fine() -> None:
    fault = Fault(latency=0.15, interval=0.02)
    async with FakeServer(lambda body, number: FakeReply("0123" * 8, fault=fault)) as server:
        async with client(server.url) as model:
            reply = await model.complete(ask(first_token=LONG / 3, between_tokens=LONG / 3))
            assert reply.text == "0123" * 8
            assert reply.timing.first_token > 0.15


async def test_br_079_connect() -> None:
    async def no_handshake(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    # The handshake belongs to connecting: before it is done no byte of the request can go out.
    async with raw_server(no_handshake) as url, client(url.replace("http:", "https:")) as model:
        error = await expires(model, ask(connect=0.2))
    assert error.phase == "connect"
    assert not error.sent, "nothing was sent, so nothing can be owed"


async def test_br_079_a_server_that_accepts_and_never_answers() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with raw_server(silent) as url, client(url) as model:
        assert (await expires(model, ask(first_token=0.1))).phase == "first_token"


async def test_br_080_heartbeats_are_not_progress() -> None:
    async def beating(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
        writer.write(b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n')
        while not writer.is_closing():
            writer.write(b": still here\n\n")
            await writer.drain()
            await asyncio.sleep(0.01)

    async with raw_server(beating) as url, client(url) as model:
        assert (await expires(model, ask(first_token=0.2))).phase == "first_token"


@pytest.mark.parametrize("end", [b"data: [DONE]\n\n", b""])
async def test_a_whole_reply_is_kept_whatever_the_connection_does(end: bytes) -> None:
    async def lingering(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
        writer.write(b'data: {"choices":[{"index":0,"delta":{"content":"yes"},"finish_reason":"stop"}]}\n\n' + end)
        await reader.read()

    async with raw_server(lingering) as url, client(url) as model:
        reply = await model.complete(ask(between_tokens=0.2))
        assert reply.text == "yes"


async def test_a_whole_reply_is_kept_when_the_connection_breaks_after_it() -> None:
    async def breaking(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 9999\r\n\r\n")
        writer.write(b'data: {"choices":[{"index":0,"delta":{"content":"yes"},"finish_reason":"stop"}]}\n\n')

    async with raw_server(breaking) as url, client(url) as model:
        assert (await model.complete(ask())).text == "yes"


async def test_the_last_event_without_an_empty_line_counts() -> None:
    async def terse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
        writer.write(b'data: {"choices":[{"index":0,"delta":{"content":"yes"},"finish_reason":"stop"}]}')

    async with raw_server(terse) as url, client(url) as model:
        assert (await model.complete(ask())).text == "yes"


async def test_half_an_event_at_the_end_is_a_cut() -> None:
    async def half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
        writer.write(b'data: {"choices":[{"index":0,"delta":{"content":"y"}}]}\n\ndata: {"choi')

    async with raw_server(half) as url, client(url) as model:
        with pytest.raises(ConnectionCut):
            await model.complete(ask())


@pytest.mark.parametrize(("server_header", "cuts"), [(b"server: llama.cpp\r\n", 0), (b"", 1)])
async def test_a_server_that_closes_after_each_stream_without_saying_so(server_header: bytes, cuts: int) -> None:
    async def closing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"}")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n" + server_header)
        writer.write(b"keep-alive: timeout=5\r\ntransfer-encoding: chunked\r\n\r\n")
        event = b'data: {"choices":[{"index":0,"delta":{"content":"yes"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
        writer.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(event), event))
        await writer.drain()
        await reader.read(1)  # until the next request has left, or the client

    failed = 0
    async with raw_server(closing) as url, client(url) as model:
        for _ in range(5):
            try:
                assert (await model.complete(ask())).text == "yes"
            except ConnectionCut:
                failed += 1
    assert failed == cuts, "at most one request is lost before the habit is known"


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-hello\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\nhello, I am a web site",
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: {broken\n\n",
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: [DONE]\n\n",
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: " + b"x" * (MAX_EVENT + 2),
    ],
)
async def test_what_is_not_the_protocol(answer: bytes) -> None:
    async def other(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        await writer.drain()

    async with raw_server(other) as url, client(url) as model:
        with pytest.raises(ReplyUnreadable, match="base URL"):
            await model.complete(ask())


@pytest.mark.parametrize("after", [0, 3])
@pytest.mark.parametrize("stream", [True, False])
async def test_br_089_cancelling_closes_the_connection(after: int, stream: bool) -> None:
    async with FakeServer(stalling(after=after)) as server, client(server.url, stream=stream) as model:
        task = asyncio.create_task(model.complete(ask()))
        async with asyncio.timeout(PATIENCE):
            while not server.ledger.requests:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await gone(server)
        assert server.connections == 0


async def test_cancelling_while_waiting_for_a_connection_sends_nothing() -> None:
    async with FakeServer(stalling()) as server:
        model = OpenAICompatible(name="acme:fake", model="fake", base_url=server.url, max_connections=1)
        first = asyncio.create_task(model.complete(ask()))
        async with asyncio.timeout(PATIENCE):
            while not server.ledger.requests:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        second = asyncio.create_task(model.complete(ask()))
        await asyncio.sleep(0.05)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        await model.close()
        assert len(server.ledger.requests) == 1
