"""A key that must never be seen: not in a repr, not in an error, not in a trace, not in a log."""

from __future__ import annotations

import asyncio
import copy
import io
import json
import logging
import pickle
import traceback
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest

import romanesco
from romanesco.errors import ModelError
from romanesco.models._openai import OpenAICompatible
from romanesco.models._openai_address import Address
from romanesco.models._openai_errors import Caller
from romanesco.models._openai_secrets import forms, unmistakable
from romanesco.models._probe import probe
from romanesco.models._types import Capabilities, Deadlines, Message, ModelRequest, ToolCall
from romanesco.runtime import read_events
from romanesco.testing import MemoryStore
from romanesco.testing._fake_server import FakeServer
from romanesco.testing._fake_server_reply import FakeReply, Fault
from romanesco.testing._fake_server_scenario import Scenario
from tests.support import PATIENCE, config_in

CANARY = "sk-canary-7Qx2Zp9Lm4Wd8Rt6"


def ask(first_token: float = PATIENCE) -> ModelRequest:
    deadlines = Deadlines(connect=PATIENCE, first_token=first_token, between_tokens=PATIENCE, total=PATIENCE)
    return ModelRequest("acme:fake", (Message("user", "hi"),), max_output_tokens=8, deadlines=deadlines)


def everything(error: BaseException) -> str:
    """All that a person or a log could see of an error, chained ones and the frames' variables included."""
    trace = traceback.TracebackException.from_exception(error, capture_locals=True)
    chain = []
    seen: BaseException | None = error
    while seen is not None:
        chain.append(repr(seen) + str(seen) + repr(vars(seen)))
        seen = seen.__cause__ or seen.__context__
    trace.stack = traceback.StackSummary.from_list([frame for frame in trace.stack if frame.filename != __file__])
    assert trace.stack, "the library's own frames are looked at"
    return "".join(trace.format()) + "".join(chain)


FAULTS = [
    Fault(status=401, message=f"Incorrect API key provided: {CANARY}"),
    Fault(status=400, message=f"you sent Authorization: Bearer {CANARY}"),
    Fault(status=429, message=CANARY),
    Fault(status=500, message=CANARY),
    Fault(garbage=f"<html>{CANARY}</html>"),
    Fault(garbage=f'{{"error": {{"message": "{CANARY}"}}}}'),
    Fault(error_event={"message": CANARY}),
    Fault(cut="before_headers"),
    Fault(cut="middle"),
    Fault(stall=float("inf")),
]


async def fault_errors() -> list[ModelError]:
    errors = []
    for fault in FAULTS:
        async with FakeServer(lambda body, number, fault=fault: FakeReply("words", fault=fault)) as server:  # type: ignore[misc]
            model = OpenAICompatible(name="acme:fake", model="fake", base_url=server.url, api_key=CANARY)
            with pytest.raises(ModelError) as caught:
                await model.complete(ask(first_token=1.0) if fault.stall else ask())
            errors.append(caught.value)
            await model.close()
    return errors


async def test_no_error_shows_the_key(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    asyncio.get_running_loop().set_debug(True)
    errors = await fault_errors()
    dead = OpenAICompatible(name="acme:fake", model="fake", base_url="http://127.0.0.1:1/v1", api_key=CANARY)
    with pytest.raises(ModelError) as caught:
        await dead.complete(ask())
    errors.append(caught.value)
    await dead.close()
    assert len({type(error) for error in errors}) >= 7
    for error in errors:
        assert CANARY[3:] not in everything(error)
        assert CANARY[3:] not in repr(pickle.loads(pickle.dumps(error)))
        assert error.__context__ is None, "aiohttp's exceptions hold the request's headers"
    assert CANARY[3:] not in caplog.text


async def test_neither_repr_nor_log_of_the_adapter_shows_the_key() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    root = logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        rejecting = Scenario(reject=frozenset({"temperature"}))
        async with FakeServer(scenario=rejecting) as server:
            model = OpenAICompatible(name="acme:fake", model="fake", base_url=server.url, api_key=CANARY)
            await model.complete(ask())
            logging.getLogger("test").info("%r %s %r", model, model, vars(model))
            await model.close()
    finally:
        root.removeHandler(handler)
        root.setLevel(before)
    assert "OpenAICompatible(name='acme:fake'" in stream.getvalue()
    assert CANARY[3:] not in stream.getvalue()
    assert CANARY[3:] not in repr(Address("a:b", "http://x/v1", CANARY))


def test_an_adapter_is_not_copied_or_pickled() -> None:
    model = OpenAICompatible(name="a:b", model="b", base_url="http://127.0.0.1/v1", api_key=CANARY)
    with pytest.raises(TypeError, match="holds a key"):
        pickle.dumps(model)
    with pytest.raises(TypeError, match="holds a key"):
        copy.copy(model)


async def test_a_probe_does_not_show_the_key() -> None:
    async with FakeServer(scenario=Scenario(api_key="another")) as server:
        model = OpenAICompatible(name="acme:fake", model="fake", base_url=server.url, api_key=CANARY)
        report = await probe(model)
        await model.close()
    assert report.error is not None
    assert CANARY[3:] not in repr(report) + everything(report.error)


AWKWARD = 'pa"ss/wo\\rd+7 =x&'


@pytest.mark.parametrize(
    "form",
    [
        AWKWARD,
        f"  {AWKWARD}\n",
        json.dumps(AWKWARD)[1:-1],
        json.dumps(AWKWARD)[1:-1].replace("/", "\\/"),
        quote(AWKWARD),
        quote(AWKWARD, safe=""),
        quote_plus(AWKWARD),
        "pa%22ss%2fwo%5crd%2b7%20%3dx%26",
    ],
)
@pytest.mark.parametrize("held", [AWKWARD, f" {AWKWARD} "])
def test_a_key_is_known_in_every_form_that_it_is_echoed_in(form: str, held: str) -> None:
    found = Caller("a:b", "http://x", "A_API_KEY", (held,)).clean(f"no [{form}] here")
    assert found.replace(" ", "") == "no[[key]]here"
    assert AWKWARD in Address("a:b", "http://x/v1", held).secrets
    assert AWKWARD in Address("a:b", f"http://x/v1?key={quote(held)}", None).secrets


def test_a_word_that_serves_as_a_key_is_not_cut_out_of_answers() -> None:
    assert unmistakable(("none", "ollama", "lm-studio", "no-key-required")) == ()
    assert unmistakable((CANARY, "abc-1234")) == (CANARY, "abc-1234")
    assert "ollama" in forms(("ollama",)), "errors are cleaned of it all the same"


KEY = "sk-proj-q7Rt2xLm9Zp4Wd8vTy6KbNc3Hs5JfGa1"


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (f"the key {KEY[8:20]}... is wrong", "the key [key]... is wrong"),
        (f"a key that ends in {KEY[-8:]}", "a key that ends in [key]"),
        (f"<{KEY[12:22]}>, <{KEY[20:]}>", "<[key]>, <[key]>"),
        (f"ends in {KEY[-4:]}, begins with sk-", f"ends in {KEY[-4:]}, begins with sk-"),
        (f"{KEY[9:16]} is seven characters", f"{KEY[9:16]} is seven characters"),
    ],
)
def test_a_part_of_a_key_is_not_shown_either(said: str, shown: str) -> None:
    assert Caller("a:b", "http://x", "A_API_KEY", (KEY,)).clean(said) == shown


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("no-key-required", "a model is required"),
        ("this-is-a-placeholder", "the placeholder is not set"),
        ("acme-production-7f3a9b21c4", "this production endpoint is closed"),
        ("gsk_q7Rt2xLm9Zp4Wd8v", "a key begins with gsk_"),
    ],
)
def test_words_that_a_key_is_made_of_are_shown(key: str, said: str) -> None:
    assert Caller("a:b", "http://x", "A_API_KEY", (key,)).clean(said) == said


async def test_a_run_keeps_no_part_of_a_key_that_a_server_echoes(tmp_path: Path) -> None:
    fault = Fault(status=401, message=f"Incorrect API key provided: ...{KEY[-14:]}")
    store = MemoryStore()
    async with FakeServer(lambda *_: FakeReply(fault=fault), scenario=Scenario(api_key=KEY)) as server:
        model = OpenAICompatible(
            name="acme:fake",
            model="fake",
            base_url=server.url,
            api_key=KEY,
            capabilities=Capabilities(window=9_000),
        )
        outcome = await romanesco.run(
            "Hi", model=model, topology="single", store=store, run="r", config=config_in(tmp_path)
        )
        await model.close()
    kept = repr(outcome) + repr(await read_events(store, "r"))
    assert "Incorrect API key provided: ...[key]" in kept
    assert not any(KEY[at : at + 8] in kept for at in range(8, len(KEY) - 7))


def completion(part: str, message: dict[str, Any], finish: str | None) -> dict[str, Any]:
    return {"model": f"m-{CANARY}", "choices": [{"index": 0, part: message, "finish_reason": finish}]}


MESSAGE: dict[str, Any] = {
    "content": f"your key is {CANARY}.",
    "reasoning_content": f"hm {CANARY}",
    "odd": {CANARY: [f"x{CANARY}", 1, None]},
    "tool_calls": [{"index": 0, "id": CANARY, "function": {"name": "look", "arguments": f'{{"q":"{CANARY}"}}'}}],
}


@pytest.mark.parametrize("stream", [True, False])
async def test_a_reply_that_echoes_the_key_does_not_carry_it_further(stream: bool) -> None:
    if stream:
        halves = [{"content": f" And {CANARY[:9]}"}, {"content": CANARY[9:]}]
        parts = [completion("delta", part, None) for part in (MESSAGE, *halves)] + [completion("delta", {}, "stop")]
        text = "".join(f"data: {json.dumps(part)}\n\n" for part in parts) + "data: [DONE]\n\n"
    else:
        text = json.dumps(completion("message", MESSAGE, "stop"))
    heard: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        kind = "text/event-stream" if stream else "application/json"
        writer.write(f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\nconnection: close\r\n\r\n{text}".encode())
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        model = OpenAICompatible(name="acme:fake", model="fake", base_url=url, api_key=CANARY, stream=stream)
        reply = await model.attempt(ask(), Capabilities(), on_token=heard.append)
        await model.close()
    assert CANARY not in repr(reply)
    assert reply.text == "your key is [key]." + (" And [key]" if stream else "")
    assert (reply.model, reply.reasoning) == ("m-[key]", "hm [key]")
    assert reply.tool_calls == (ToolCall("[key]", "look", '{"q":"[key]"}'),)
    assert reply.opaque["odd"] == {"[key]": ["x[key]", 1, None]}
    assert heard[:1] == (["your key is [key]."] if stream else [])
