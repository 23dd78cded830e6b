"""An endpoint that does not take a schema in one way is asked in the next, and only the first caller finds out."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from romanesco.errors import RequestRejected
from romanesco.models import Capabilities, Message, ModelReply, ModelRequest, OpenAICompatible, OutputSchema, ToolSpec
from romanesco.models._ladder import first_rung, prepare
from romanesco.models._openai_errors import Refusal
from romanesco.models._openai_ways import Ways, refuses
from romanesco.models._openai_wire import OutputMode
from romanesco.models._probe import probe
from romanesco.testing import FakeReply, FakeServer, Fault, Scenario

OUTPUT = OutputSchema("answer", {"type": "object", "properties": {"risk": {"type": "string"}}, "required": ["risk"]})
ASK = ModelRequest("acme:fake", (Message("user", "Name a risk."),), 64, output=OUTPUT)


@asynccontextmanager
async def client(server: FakeServer, **changes: Any) -> AsyncIterator[OpenAICompatible]:
    model = OpenAICompatible(**{"name": "acme:fake", "model": "fake", "base_url": server.url, **changes})
    try:
        yield model
    finally:
        await model.close()


async def climb(model: OpenAICompatible, request: ModelRequest = ASK) -> tuple[ModelReply, int]:
    """Ask as the runtime does: on the strongest rung that is left, again after a refusal. The reply, and the tries."""
    for tries in range(1, 6):
        try:
            return await model.complete(prepare(request, first_rung(await model.capabilities()))), tries
        except RequestRejected as error:
            assert error.retryable, error
    raise AssertionError("no rung was taken")


def statuses(server: FakeServer) -> list[int]:
    return [entry.status for entry in server.ledger.requests]


def openai(message: str, **fields: Any) -> bytes:
    return json.dumps({"error": {"message": message, "type": "invalid_request_error", **fields}}).encode()


SCHEMA, TOOL, GRAMMAR = OutputMode.JSON_SCHEMA, OutputMode.TOOL, OutputMode.GRAMMAR


@pytest.mark.parametrize(
    ("mode", "status", "body"),
    [
        (SCHEMA, 400, openai("Invalid parameter: 'response_format' of type 'json_schema' is not supported with this")),
        (SCHEMA, 400, openai("This response_format type is unavailable now")),
        (SCHEMA, 400, openai("This model does not support response format `json_schema`.")),
        (SCHEMA, 400, openai("Invalid schema for response_format 'answer': In context=(), 'required' is missing")),
        (SCHEMA, 400, openai("Invalid input", param="response_format")),
        (SCHEMA, 400, openai("Provider returned error", metadata={"raw": '{"message": "json_schema: not here"}'})),
        (SCHEMA, 400, b'{"error": "structured outputs need a newer server"}'),
        (SCHEMA, 422, b'{"detail": [{"loc": ["body", "response_format"], "msg": "Extra inputs are not permitted"}]}'),
        (SCHEMA, 422, b"Failed to deserialize the JSON body: response_format.type `json_schema` is unavailable now"),
        (TOOL, 400, b'{"error": {"message": "registry.example/llama3:latest does not support tools"}}'),
        (TOOL, 400, openai("tool_choice 'specified' is incompatible with thinking enabled")),
        (TOOL, 400, openai('"auto" tool choice requires a tool call parser to be set')),
        (TOOL, 404, openai("No endpoints found that support tool use.")),
        (TOOL, 400, openai("Function calling is not enabled for this model")),
        (GRAMMAR, 400, openai("Failed to parse grammar")),
    ],
)
def test_a_refusal_that_names_the_way_is_of_that_way_alone(mode: OutputMode, status: int, body: bytes) -> None:
    assert [one for one in OutputMode if refuses(Refusal(status, {}, body), one)] == [mode]


@pytest.mark.parametrize(
    ("mode", "status", "body"),
    [
        (SCHEMA, 400, openai("The model `acme-json` does not exist")),
        (SCHEMA, 400, openai("This model's maximum context length is 8192 tokens, response_format included")),
        (SCHEMA, 400, openai("Generated JSON does not fit the json_schema", code="json_validate_failed")),
        (SCHEMA, 429, openai("Too many requests with response_format")),
        (SCHEMA, 500, openai("json_schema: internal error")),
        (SCHEMA, 401, openai("Your key may not use structured outputs")),
        (SCHEMA, 422, b'{"detail": [{"loc": ["body", "n"], "msg": "too small", "input": {"response_format": {}}}]}'),
        (TOOL, 400, openai("Tool choice is required, but the model called none", code="tool_use_failed")),
        (TOOL, 400, openai("messages with role 'tool' must follow the assistant's")),
        (TOOL, 404, openai("The model 'acme-tools tools' does not exist")),
        (OutputMode.NONE, 400, openai("response_format and tools are not supported")),
    ],
)
def test_a_refusal_of_something_else_is_not_taken_for_one(mode: OutputMode, status: int, body: bytes) -> None:
    assert not refuses(Refusal(status, {}, body), mode)


@pytest.mark.parametrize(
    ("reject", "left", "tries"),
    [
        (set(), Capabilities(), 1),
        ({"response_format"}, Capabilities(json_schema=False), 2),
        ({"response_format", "tools"}, Capabilities(json_schema=False, tools=False), 3),
        ({"response_format", "tool_choice"}, Capabilities(json_schema=False, tools=False), 3),
    ],
)
async def test_a_refused_way_is_lost_for_good_and_the_capabilities_say_so(
    reject: set[str], left: Capabilities, tries: int
) -> None:
    async with FakeServer(scenario=Scenario(reject=frozenset(reject))) as server, client(server) as model:
        assert (await climb(model))[1] == tries
        assert await model.capabilities() == left
        assert (await climb(model))[1] == 1
    assert statuses(server) == [400] * (tries - 1) + [200, 200]
    if tries == 3:
        assert 'Its fields: "risk": text' in server.ledger.requests[-1].prompt


async def test_a_refused_grammar_is_lost_too() -> None:
    known = Capabilities(grammar=True, json_schema=False, tools=False)
    async with (
        FakeServer(scenario=Scenario(reject=frozenset({"grammar"}))) as server,
        client(server, capabilities=known) as model,
    ):
        assert (await climb(model))[1] == 2
        assert not (await model.capabilities()).grammar


async def test_a_field_of_another_kind_is_learnt_beside_a_way() -> None:
    reject = frozenset({"response_format", "temperature", "stream_options"})
    request = ModelRequest("acme:fake", ASK.messages, 64, temperature=0.5, output=OUTPUT)
    async with FakeServer(scenario=Scenario(reject=reject)) as server, client(server) as model:
        assert (await climb(model, request))[1] == 4
    assert statuses(server) == [400, 400, 400, 200]


async def test_of_many_first_calls_only_one_is_refused_on_each_rung(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("romanesco.models._openai_ways.PATIENCE", 60.0)
    reject = frozenset({"response_format", "tools"})
    async with FakeServer(scenario=Scenario(reject=reject)) as server, client(server) as model:
        async with asyncio.TaskGroup() as group:
            for _ in range(8):
                group.create_task(climb(model))
    assert sorted(statuses(server)) == [200] * 8 + [400] * 2


async def test_who_waited_for_a_refusal_sent_nothing_and_may_try_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("romanesco.models._openai_ways.PATIENCE", 60.0)
    async with FakeServer(scenario=Scenario(reject=frozenset({"response_format"}))) as server, client(server) as model:
        calls = [asyncio.create_task(model.complete(ASK)) for _ in range(2)]
        await asyncio.wait(calls)
        first, second = (call.exception() for call in calls)
    assert isinstance(first, RequestRejected) and first.sent and first.retryable
    assert isinstance(second, RequestRejected) and not second.sent and second.retryable
    assert statuses(server) == [400]


async def test_a_request_made_for_a_way_that_is_lost_is_not_sent_without_its_schema() -> None:
    reject = frozenset({"response_format", "tools"})
    async with FakeServer(scenario=Scenario(reject=reject)) as server, client(server) as model:
        await climb(model)
        with pytest.raises(RequestRejected, match="does not take a schema") as caught:
            await model.complete(ASK)
    assert not caught.value.sent and caught.value.retryable
    assert statuses(server) == [400, 400, 200]


async def test_nobody_waits_for_a_slow_first_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server answers nobody before three have asked: a second who waited for the first would wait for ever."""
    monkeypatch.setattr("romanesco.models._openai_ways.PATIENCE", 0.01)
    async with FakeServer(scenario=Scenario(barrier=3)) as server, client(server) as model:
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(climb(model))
    assert statuses(server) == [200, 200, 200]


async def test_a_first_call_that_is_cancelled_leaves_the_way_to_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("romanesco.models._openai_ways.PATIENCE", 60.0)
    arrived = asyncio.Event()

    def reply(body: dict[str, Any], number: int) -> FakeReply:
        arrived.set()
        return FakeReply(fault=Fault(stall=math.inf if number == 0 else 0.0))

    async with FakeServer(reply) as server, client(server) as model:
        first = asyncio.create_task(model.complete(ASK))
        await arrived.wait()
        others = [asyncio.create_task(climb(model)) for _ in range(3)]
        await asyncio.sleep(0)
        first.cancel()
        assert [(await other)[1] for other in others] == [1, 1, 1]
        await asyncio.wait([first])
        assert first.cancelled()


async def test_the_bound_of_a_request_holds_on_every_rung_until_one_is_taken() -> None:
    def ways(**which: bool) -> Capabilities:
        return Capabilities(**{"json_schema": False, "tools": False, **which})

    async with FakeServer() as server:
        sizes = []
        for known, request in (
            (ways(json_schema=True), ASK),
            (ways(tools=True), ASK),
            (ways(), prepare(ASK, first_rung(ways()))),
        ):
            async with client(server, capabilities=known) as model:
                model._ways.took(OutputMode.JSON_SCHEMA)
                model._ways.took(OutputMode.TOOL)
                sizes.append((await model.count(request)).tokens)
        async with client(server) as model:
            assert (await model.count(ASK)).tokens == max(sizes)
            await climb(model)
            assert (await model.count(ASK)).tokens == sizes[0] < max(sizes)


@pytest.mark.parametrize("flavour", ["llamacpp", "vllm"])
async def test_the_count_of_a_server_holds_on_every_rung_until_one_is_taken(flavour: Any) -> None:
    async with FakeServer(scenario=Scenario(flavour=flavour)) as server, client(server) as model:
        before = await model.count(ASK)
        sizes = []
        for put, mode in model._ways.candidates(ASK, await model.capabilities()):
            await model.attempt(put, Capabilities(json_schema=mode is SCHEMA, tools=mode is TOOL))
            sizes.append(server.ledger.requests[-1].tokens_in)
        assert len(sizes) == 3 and before.exact and before.tokens == max(sizes)
        model._ways.took(SCHEMA)
        assert (await model.count(ASK)).tokens == sizes[0] < max(sizes)


async def test_a_rung_that_a_server_does_not_count_is_bounded_by_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    async with FakeServer(scenario=Scenario(flavour="vllm")) as server, client(server) as model:
        counted = await model.count(ASK)
        ask = model._ask

        async def without_tools(path: str, body: dict[str, Any] | None) -> Any:
            return None if body and "tools" in body else await ask(path, body)

        monkeypatch.setattr(model, "_ask", without_tools)
        bound = await model.count(ASK)
        await model.attempt(ASK, Capabilities(json_schema=False))
        tool = server.ledger.requests[-1].tokens_in
    assert bound.exact, "the server counts what it will be asked first"
    assert bound.tokens >= max(tool, counted.tokens)


def test_the_candidates_end_with_the_prompt_and_a_grammar_needs_no_other() -> None:
    def modes(request: ModelRequest, capabilities: Capabilities) -> list[OutputMode]:
        return [mode for _, mode in Ways().candidates(request, capabilities)]

    tool = ToolSpec("look", "Looks.", {"type": "object"})
    with_tools = ModelRequest("m:x", ASK.messages, 64, output=OUTPUT, tools=(tool,))
    assert modes(ASK, Capabilities()) == [SCHEMA, TOOL, OutputMode.NONE]
    assert modes(ASK, Capabilities(json_schema=False)) == [TOOL, OutputMode.NONE]
    assert modes(ASK, Capabilities(grammar=True)) == [GRAMMAR]
    assert modes(with_tools, Capabilities(grammar=True)) == [SCHEMA, TOOL, OutputMode.NONE]
    assert modes(ModelRequest("m:x", ASK.messages, 64), Capabilities()) == [OutputMode.NONE]


@pytest.mark.parametrize(
    ("known", "fields", "window"),
    [
        ("openai", {}, None),
        ("openai", {"usual_window": 5000}, 5000),
        ("vllm", {"usual_window": 5000}, 3000),
        ("vllm", {"window": 2000, "usual_window": 5000}, 2000),
    ],
)
async def test_a_configured_window_wins_then_what_the_server_says_then_what_is_published(
    known: Any, fields: dict[str, int], window: int | None
) -> None:
    async with FakeServer(scenario=Scenario(flavour=known, context_limit=3000)) as server:
        async with client(server, **fields) as model:
            found = await model.capabilities()
            assert (found.window, found.tokenizer) == (window, known == "vllm")
            assert (await probe(model)).window == window, "`romanesco models` shows what is in force"
