"""The client against the fake server, through real sockets."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any, NoReturn

import pytest

from romanesco._hosts import is_loopback
from romanesco.errors import (
    ConfigError,
    ConnectionCut,
    ConnectionFailed,
    ContextOverflow,
    KeyMissing,
    ModelError,
    RateLimited,
    ReplyUnreadable,
    RequestRejected,
    ServerFault,
)
from romanesco.models._openai import OpenAICompatible
from romanesco.models._openai_http import proxy_for
from romanesco.models._protocol import ChatModel
from romanesco.models._types import (
    Capabilities,
    FinishReason,
    Message,
    ModelReply,
    ModelRequest,
    OutputSchema,
    ToolCall,
    ToolSpec,
)
from romanesco.testing._fake_server import FakeServer
from romanesco.testing._fake_server_reply import FakeReply, Fault
from romanesco.testing._fake_server_scenario import Scenario
from tests.support import nobody_there

OUTPUT = OutputSchema(
    "answer",
    {
        "type": "object",
        "properties": {"backs": {"enum": ["P1", "P2"]}, "why": {"type": "string"}},
        "required": ["backs"],
    },
)
TOOL = ToolSpec("look", "Looks.", {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]})

Make = Callable[..., OpenAICompatible]
both = pytest.mark.parametrize("stream", [True, False])


@pytest.fixture
async def make() -> AsyncIterator[Make]:
    made: list[OpenAICompatible] = []

    def build(server: FakeServer | str, **changes: Any) -> OpenAICompatible:
        url = server if isinstance(server, str) else server.url
        fields: dict[str, Any] = {"name": "acme:fake", "model": "fake", "base_url": url}
        made.append(OpenAICompatible(**{**fields, **changes}))
        return made[-1]

    yield build
    for model in made:
        await model.close()


def ask(text: str = "hi", **changes: Any) -> ModelRequest:
    fields: dict[str, Any] = {"model": "acme:fake", "messages": (Message("user", text),), "max_output_tokens": 64}
    return ModelRequest(**{**fields, **changes})


def saying(**reply: Any) -> Callable[[dict[str, Any], int], FakeReply]:
    return lambda body, number: FakeReply(**reply)


async def fails(model: ChatModel, request: ModelRequest | None = None) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await model.complete(request or ask())
    return caught.value


@both
async def test_a_plain_reply_counts_as_the_server_does(make: Make, stream: bool) -> None:
    async with FakeServer(saying(text="grüße 🥦 from here", cached=2)) as server:
        model = make(server, stream=stream)
        assert isinstance(model, ChatModel)
        pieces: list[str] = []
        reply = await model.complete(ask(), on_token=pieces.append)
    assert reply.text == "grüße 🥦 from here"
    assert reply.model == "fake"
    assert reply.finish is FinishReason.STOP
    assert reply.usage is not None
    assert (reply.usage.input, reply.usage.output) == (server.ledger.tokens_in, server.ledger.tokens_out)
    assert reply.usage.cached == 2
    assert "".join(pieces) == (reply.text if stream else "")
    assert 0 <= reply.timing.queue <= reply.timing.first_token <= reply.timing.total


@both
async def test_a_reply_cut_by_the_cap_says_length(make: Make, stream: bool) -> None:
    async with FakeServer(saying(text="0123456789" * 10)) as server:
        reply = await make(server, stream=stream).complete(ask(max_output_tokens=3))
    assert (reply.text, reply.finish) == ("012345678901", FinishReason.LENGTH)
    assert server.ledger.tokens_out == 3


@both
async def test_tool_calls_in_parallel(make: Make, stream: bool) -> None:
    calls = (ToolCall("a", "look", '{"q":"one two"}'), ToolCall("b", "look", '{"q":"ü"}'))
    async with FakeServer(saying(tool_calls=calls)) as server:
        reply = await make(server, stream=stream).complete(ask(tools=(TOOL,)))
    assert reply.tool_calls == calls
    assert reply.finish is FinishReason.TOOL_CALLS
    assert reply.text == ""


@both
@pytest.mark.parametrize("way", ["grammar", "json_schema", "tools"])
async def test_a_schema_in_each_way_gives_the_value_as_text(make: Make, way: str, stream: bool) -> None:
    seen: list[dict[str, Any]] = []

    def reply(body: dict[str, Any], number: int) -> FakeReply:
        seen.append(body)
        return FakeReply()

    ways = {"grammar": False, "json_schema": False, "tools": False, way: True}
    async with FakeServer(reply) as server:
        answer = await make(server, stream=stream, capabilities=Capabilities(**ways)).complete(ask(output=OUTPUT))
    assert json.loads(answer.text)["backs"] in ("P1", "P2")
    assert answer.tool_calls == ()
    assert answer.finish is FinishReason.STOP
    field = {"grammar": "grammar", "json_schema": "response_format", "tools": "tools"}[way]
    assert {"grammar", "response_format", "tools"} & seen[0].keys() == {field}


@both
async def test_br_101_reasoning_is_kept_and_sent_back(make: Make, stream: bool) -> None:
    scenario = Scenario(require_reasoning=True)
    async with FakeServer(saying(text="yes", reasoning="hm hm", fields={"mood": "calm"}), scenario=scenario) as server:
        model = make(server, stream=stream)
        first = await model.complete(ask())
        assert first.reasoning == "hm hm"
        assert first.opaque == {"reasoning_content": "hm hm", "mood": "calm"}
        assert first.usage is not None
        assert first.usage.reasoning == 2
        said = Message("assistant", first.text, opaque=first.opaque)
        again = ask(messages=(Message("user", "hi"), said, Message("user", "and?")))
        assert (await model.complete(again)).text == "yes"
        forgotten = ask(messages=(Message("user", "hi"), Message("assistant", "yes"), Message("user", "and?")))
        assert isinstance(await fails(model, forgotten), RequestRejected)


@both
@pytest.mark.parametrize("usage", ["missing", "zero"])
async def test_br_029_br_031_usage_missing_or_zero_is_unknown(make: Make, stream: bool, usage: Any) -> None:
    async with FakeServer(saying(text="yes", fault=Fault(usage=usage))) as server:
        assert (await make(server, stream=stream).complete(ask())).usage is None


async def test_br_029_the_usage_chunk_is_asked_for(make: Make) -> None:
    seen: list[dict[str, Any]] = []

    def reply(body: dict[str, Any], number: int) -> FakeReply:
        seen.append(body)
        return FakeReply(text="yes")

    async with FakeServer(reply) as server:
        reply_ = await make(server).complete(ask())
        unasked = await make(server, capabilities=Capabilities(usage_in_stream=False)).complete(ask())
    assert seen[0]["stream_options"] == {"include_usage": True}
    assert reply_.usage is not None
    assert unasked.usage is None


async def test_br_149_over_and_under_reports_come_through_as_reported(make: Make) -> None:
    for usage, factor in (("over", 10.0), ("under", 0.5)):
        async with FakeServer(saying(text="0123" * 8, fault=Fault(usage=usage))) as server:  # type: ignore[arg-type]
            reply = await make(server).complete(ask())
        assert reply.usage is not None
        assert reply.usage.output == server.ledger.tokens_out * factor


@pytest.mark.parametrize("field", ["stream_options", "temperature", "seed", "max_tokens"])
async def test_a_field_that_is_not_supported_is_left_out_from_then_on(make: Make, field: str) -> None:
    async with FakeServer(saying(text="yes"), scenario=Scenario(reject=frozenset({field}))) as server:
        model = make(server)
        refused = await fails(model, ask(temperature=0.5, seed=1))
        assert isinstance(refused, RequestRejected) and refused.retryable
        for _ in range(3):
            assert (await model.complete(ask(temperature=0.5, seed=1))).text == "yes"
    assert [entry.status for entry in server.ledger.requests] == [400, 200, 200, 200]


async def test_several_unsupported_fields_and_one_that_cannot_be_helped(make: Make) -> None:
    fields = frozenset({"stream_options", "temperature", "seed", "max_tokens"})
    async with FakeServer(saying(text="yes"), scenario=Scenario(reject=fields)) as server:
        model = make(server)
        for _ in fields:
            assert (await fails(model, ask(temperature=0.5, seed=1))).retryable
        assert (await model.complete(ask(temperature=0.5, seed=1))).text == "yes"
        assert len(server.ledger.requests) == 5, "one call is one request"
    fields = frozenset({"max_completion_tokens", "max_tokens"})
    async with FakeServer(saying(text="yes"), scenario=Scenario(reject=fields)) as server:
        model = make(server)
        assert (await fails(model)).retryable
        last = await fails(model)
        assert isinstance(last, RequestRejected) and not last.retryable


@both
@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (Fault(status=429, retry_after=2), RateLimited),
        (Fault(status=500), ServerFault),
        (Fault(status=503, message="overloaded"), ServerFault),
        (Fault(status=404, message="no such model"), RequestRejected),
        (Fault(status=302), RequestRejected),
        (Fault(garbage="<html>hello</html>"), ReplyUnreadable),
        (Fault(garbage='{"choices":'), ReplyUnreadable),
        (Fault(garbage='{"choices":[]}'), ReplyUnreadable),
        (Fault(garbage="[]"), ReplyUnreadable),
        (Fault(garbage=""), ReplyUnreadable),
        (Fault(garbage='{"error":{"message":"boom"}}'), ServerFault),
        (Fault(cut="before_headers"), ConnectionCut),
        (Fault(cut="after_headers"), ConnectionCut),
        (Fault(cut="middle"), ConnectionCut),
    ],
)
async def test_faults(make: Make, fault: Fault, kind: type[ModelError], stream: bool) -> None:
    async with FakeServer(saying(text="some words to be cut", fault=fault)) as server:
        error = await fails(make(server, stream=stream))
    assert type(error) is kind
    assert error.sent
    assert len(server.ledger.requests) == 1, "one call is one request, whatever becomes of it"


async def test_a_stream_that_ends_without_saying_so_is_a_cut(make: Make) -> None:
    async with FakeServer(saying(text="some words", fault=Fault(no_end=True))) as server:
        assert type(await fails(make(server))) is ConnectionCut


async def test_an_error_event_inside_a_stream(make: Make) -> None:
    event = {"message": "too many requests", "code": 429}
    async with FakeServer(saying(text="words and words", fault=Fault(error_event=event))) as server:
        assert type(await fails(make(server))) is ServerFault, "tokens came before it, so it is charged"
    async with FakeServer(saying(text="", fault=Fault(error_event=event))) as server:
        assert type(await fails(make(server))) is RateLimited


async def test_br_103_br_104_a_prompt_beyond_the_window(make: Make) -> None:
    async with FakeServer(scenario=Scenario(context_limit=100)) as server:
        assert isinstance(await fails(make(server), ask("x" * 4000)), ContextOverflow)


async def test_a_refused_key_names_the_variable(make: Make) -> None:
    async with FakeServer(scenario=Scenario(api_key="right")) as server:
        error = await fails(make(server, api_key="wrong-key-of-somebody"))
        assert isinstance(error, KeyMissing)
        assert "ACME_API_KEY" in str(error)
        assert "MY_KEY" in str(await fails(make(server, key_variable="MY_KEY")))
        assert (await make(server, api_key=" right\n").complete(ask())).text


async def test_nobody_there(make: Make) -> None:
    with nobody_there() as url:
        error = await fails(make(url))
    assert isinstance(error, ConnectionFailed)
    assert not error.sent
    assert "Start the server" in str(error)


async def test_a_name_that_does_not_resolve(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> NoReturn:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)  # the machine's own resolver may take its time to say so
    error = await fails(make("http://nobody.invalid/v1"))
    assert isinstance(error, ConnectionFailed)


async def test_connections_are_reused_and_bounded(make: Make) -> None:
    async with FakeServer(saying(text="yes", fault=Fault(latency=0.02)), scenario=Scenario(barrier=3)) as server:
        model = make(server, max_connections=3)
        async with asyncio.TaskGroup() as group:
            for number in range(12):
                group.create_task(model.complete(ask(str(number))))
        assert server.ledger.max_in_flight == 3
        assert len({entry.connection for entry in server.ledger.requests}) == 3


async def test_waiting_for_a_connection_is_queue_time(make: Make) -> None:
    async with FakeServer(saying(text="yes", fault=Fault(latency=0.1))) as server:
        model = make(server, max_connections=1)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(model.complete(ask(str(number)))) for number in range(2)]
        queues = sorted(task.result().timing.queue for task in tasks)
    assert queues[1] > 0.05, "the second waits for as long as the first is answered"
    assert queues[0] < queues[1]


async def test_a_server_that_restarts_between_calls(make: Make) -> None:
    async with FakeServer(saying(text="yes")) as server:
        model = make(server)
        await model.complete(ask())
        server.drop_connections()
        while server.connections:  # noqa: ASYNC110
            await asyncio.sleep(0)
        for _ in range(20):  # the client sees it in the next rounds of the loop
            await asyncio.sleep(0)
        assert (await model.complete(ask())).text == "yes"
        assert len(server.ledger.requests) == 2


async def test_close_twice_and_use_again(make: Make) -> None:
    async with FakeServer(saying(text="yes")) as server:
        model = make(server)
        await model.close()
        await model.complete(ask())
        await model.close()
        await model.close()
        assert (await model.complete(ask())).text == "yes"


async def test_a_prompt_of_several_megabytes(make: Make) -> None:
    async with FakeServer(saying(text="yes")) as server:
        assert (await make(server).complete(ask("x" * 3_000_000))).text == "yes"
    assert server.ledger.requests[0].tokens_in == 750_004


async def test_two_event_loops_use_one_adapter(make: Make) -> None:
    async with FakeServer(saying(text="yes")) as server:
        model = make(server)
        await model.complete(ask())
        replies: list[ModelReply] = []

        async def elsewhere() -> None:
            replies.append(await model.complete(ask()))
            await model.close()

        thread = threading.Thread(target=lambda: asyncio.run(elsewhere()))
        thread.start()
        while thread.is_alive():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        thread.join()
        assert replies[0].text == "yes"
        assert (await model.complete(ask())).text == "yes"


async def test_a_listener_that_fails_is_not_the_servers_fault(make: Make) -> None:
    def closed_pipe(piece: str) -> None:
        raise BrokenPipeError("closed")

    async with FakeServer(saying(text="yes")) as server:
        with pytest.raises(BrokenPipeError):
            await make(server).complete(ask(), on_token=closed_pipe)


@pytest.mark.parametrize("flavour", ["llamacpp", "vllm"])
async def test_tokens_are_counted_exactly_where_the_server_can(make: Make, flavour: Any) -> None:
    async with FakeServer(scenario=Scenario(flavour=flavour, context_limit=2048)) as server:
        model = make(server)
        assert (await model.capabilities()).window == 2048
        request = (
            ask("some words to count", output=OUTPUT) if flavour == "llamacpp" else ask("some words", tools=(TOOL,))
        )
        reply = await model.complete(request)
        count = await model.count(request)  # once a way was taken; before, for the largest way that may be
    assert count.exact
    assert reply.usage is not None
    assert count.tokens == reply.usage.input


async def test_without_a_tokenizer_the_count_is_an_upper_bound(make: Make) -> None:
    async with FakeServer() as server:
        model = make(server)
        count = await model.count(ask("some words", output=OUTPUT))
        assert not count.exact
        reply = await model.complete(ask("some words", output=OUTPUT))
        assert reply.usage is not None
        assert count.tokens >= reply.usage.input
        wrong = make(server, capabilities=Capabilities(tokenizer=True))
        assert not (await wrong.count(ask())).exact
    assert not (await make("http://127.0.0.1:1/v1").count(ask())).exact, "the bound needs no server"


async def test_what_the_server_says_is_read_once_and_costs_nothing(make: Make) -> None:
    async with FakeServer() as server:
        model = make(server)
        await model.complete(ask())
        assert not server.ledger.free, "plain text needs no look at the server"
        for _ in range(2):
            await model.complete(ask(output=OUTPUT))
            await model.capabilities()
        assert server.ledger.free == {"/v1/models": 1}


def test_the_endpoint_shows_neither_user_nor_query_nor_key() -> None:
    def endpoint(url: str, key: str | None = None) -> str:
        return OpenAICompatible(name="a:b", model="b", base_url=url, api_key=key).endpoint

    plain = endpoint("https://api.acme.example/v1/")
    assert plain == "https://api.acme.example/v1"
    first, same, other = (endpoint("https://api.acme.example/v1", key) for key in ("k-one", "k-one", "k-two"))
    assert first == same != other
    assert first.startswith(f"{plain}#")
    hidden = endpoint("https://user:secret@api.acme.example/v1?api-key=hush&api-version=3")
    assert hidden.startswith(f"{plain}#")
    assert hidden != endpoint("https://user:other@api.acme.example/v1?api-key=hush&api-version=3")


@pytest.mark.parametrize(
    "changes",
    [
        {"base_url": "ftp://x/v1"},
        {"base_url": "nonsense"},
        {"base_url": "http://"},
        {"base_url": "http://x:notaport/v1"},
        {"api_key": "with\nnewline"},
        {"api_key": "naïve"},
        {"max_connections": 0},
        {"extra_body": {"n": 3}},
        {"extra_body": {"x": object()}},
    ],
)
def test_settings_that_cannot_be_used(changes: dict[str, Any]) -> None:
    fields: dict[str, Any] = {"name": "a:b", "model": "b", "base_url": "http://127.0.0.1/v1"}
    with pytest.raises(ConfigError) as caught:
        OpenAICompatible(**{**fields, **changes})
    assert "newline" not in str(caught.value)
    assert "naïve" not in str(caught.value)


async def test_user_and_query_of_the_base_url_are_sent(make: Make) -> None:
    seen: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append((await reader.readuntil(b"\r\n\r\n")).decode())
        writer.write(b"HTTP/1.1 500 no\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        await fails(make(f"http://me:pass%20word@127.0.0.1:{port}/v1?api-version=7"))
    assert seen[0].startswith("POST /v1/chat/completions?api-version=7 HTTP/1.1\r\n")
    assert "authorization: basic bwu6cgfzcyb3b3jk\r\n" in seen[0].lower()


def test_proxies_of_the_environment_never_apply_to_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    assert proxy_for("https://api.acme.example/v1") is None
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    monkeypatch.setenv("http_proxy", "proxy.example:3128")
    monkeypatch.setenv("no_proxy", "inside.example")
    assert proxy_for("https://api.acme.example/v1") == "http://proxy.example:3128"
    assert proxy_for("http://api.acme.example/v1") == "http://proxy.example:3128"
    assert proxy_for("https://inside.example/v1") is None
    for host in ("127.0.0.1", "127.8.8.8", "localhost", "my.localhost", "[::1]"):
        assert proxy_for(f"http://{host}:8080/v1") is None
    assert not is_loopback("10.0.0.1")


async def test_a_proxy_that_is_down_is_nobody_there(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://user:proxypass@127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "")
    error = await fails(make("http://api.acme.example/v1"))
    assert isinstance(error, ConnectionFailed)
    assert "proxypass" not in str(error)
