"""The fake server itself: what it answers, what it does wrong on demand, and what its ledger says."""

from __future__ import annotations

import asyncio
import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import aiohttp
import jsonschema_rs
import pytest

import romanesco
from romanesco import load_config
from romanesco.journal import SQLiteStore, verify
from romanesco.testing._fake_server import FakeServer, embedding
from romanesco.testing._fake_server_http import Connection
from romanesco.testing._fake_server_ledger import Ledger
from romanesco.testing._fake_server_process import FakeServerProcess, main
from romanesco.testing._fake_server_reply import FakeReply, Fault, count_prompt, instance
from romanesco.testing._fake_server_scenario import Rule, Scenario
from tests.support import PATIENCE

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "backs": {"enum": ["P1", "P2", "P3"]},
        "why": {"type": "string", "minLength": 3, "maxLength": 20},
        "long": {"type": "string", "minLength": 90},
        "code": {"type": "string", "pattern": "^x+$"},
        "score": {"type": "integer", "minimum": 2, "maximum": 5},
        "items": {
            "type": "array",
            "minItems": 2,
            "items": {"type": "object", "required": ["ok"], "properties": {"ok": {"type": "boolean"}}},
        },
        "either": {"anyOf": [{"type": "null"}, {"type": "string"}]},
        "part": {"$ref": "#/$defs/part"},
    },
    "required": ["backs", "why", "long", "code", "score", "items", "either", "part"],
    "$defs": {"part": {"type": "object", "properties": {"type": {"type": "string"}}, "required": ["type"]}},
    "additionalProperties": False,
}


def body(prompt: str = "hi", **more: Any) -> dict[str, Any]:
    return {"model": "fake", "messages": [{"role": "user", "content": prompt}], "max_tokens": 500, **more}


async def post(
    server: FakeServer, data: Any, *, path: str = "/chat/completions", key: str = ""
) -> tuple[int, Any, Any]:
    headers = {"X-Romanesco-Key": key} if key else {}
    async with (
        aiohttp.ClientSession() as session,
        session.post(server.url + path, json=data, headers=headers) as response,
    ):
        text = await response.text()
        return response.status, response.headers, json.loads(text) if text.startswith("{") else text


async def said(server: FakeServer, prompt: str = "hi", **more: Any) -> str:
    status, _, data = await post(server, body(prompt, **more))
    assert status == 200
    return str(data["choices"][0]["message"]["content"])


async def test_the_ledger_counts_what_was_generated_and_not_what_was_reported() -> None:
    async with FakeServer(lambda b, n: FakeReply("0123456789", fault=Fault(usage="over"))) as server:
        _, _, data = await post(server, body("four"), key="r/1")
    entry = server.ledger.requests[0]
    assert (entry.tokens_in, entry.tokens_out) == (5, 3)
    assert data["usage"]["completion_tokens"] == 30
    assert (entry.prompt, entry.key, entry.status, entry.fault) == ("four", "r/1", 200, "usage_over")
    assert entry.ended is not None
    assert entry.ended >= entry.arrived
    assert entry.finished
    assert not entry.disconnected
    assert server.ledger.in_flight == 0


async def test_an_automatic_answer_fits_the_schema_and_differs_with_the_prompt() -> None:
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}
    async with FakeServer() as server:
        answers = [await said(server, f"prompt {i}", response_format=form) for i in (1, 1, 2, 3, 4)]
    for answer in answers:
        jsonschema_rs.validate(SCHEMA, json.loads(answer))
    assert answers[0] == answers[1], "the same request always gets the same answer"
    assert len(set(answers)) == 4
    assert len({json.loads(answer)["backs"] for answer in answers}) > 1


def test_an_instance_keeps_what_the_schema_fixes() -> None:
    fixed = {"type": "object", "required": ["a", "b"], "properties": {"a": {"const": 3}, "b": {"default": "x"}}}
    assert instance(fixed, "seed") == {"a": 3, "b": "x"}


async def test_a_forced_tool_is_called_and_an_offered_one_is_not() -> None:
    tools = [{"type": "function", "function": {"name": "look", "parameters": SCHEMA}}]
    async with FakeServer() as server:
        forced = {"type": "function", "function": {"name": "look"}}
        for choice in (forced, "required"):
            _, _, data = await post(server, body(tools=tools, tool_choice=choice))
            call = data["choices"][0]["message"]["tool_calls"][0]
            assert call["function"]["name"] == "look"
            jsonschema_rs.validate(SCHEMA, json.loads(call["function"]["arguments"]))
        assert await said(server, tools=tools, tool_choice="auto")


async def test_usage_is_streamed_only_if_asked_for() -> None:
    async with FakeServer(lambda b, n: "words") as server:
        _, headers, plain = await post(server, body(stream=True))
        _, _, asked = await post(server, body(stream=True, stream_options={"include_usage": True}))
    assert headers["content-type"] == "text/event-stream"
    assert "usage" not in plain
    assert asked.count('"usage"') == 1
    assert plain.endswith("data: [DONE]\n\n")


async def test_rules_by_text_role_key_call_and_attempt() -> None:
    rules = [
        {"match": "secret", "role": "system", "reply": "by role"},
        {"key": "k/1", "reply": "by key"},
        {"match": "flaky", "attempts": [0], "fault": {"status": 500}},
        {"match": "third", "calls": [2], "reply": {"text": "the third"}},
        {"match": "auto", "reply": "auto"},
    ]
    async with FakeServer(scenario=Scenario.from_json({"rules": rules, "default": "default"})) as server:
        assert await said(server, "secret") == "default"
        system = {"messages": [{"role": "system", "content": "a secret"}]}
        assert (await post(server, system))[2]["choices"][0]["message"]["content"] == "by role"
        assert (await post(server, body(), key="k/1"))[2]["choices"][0]["message"]["content"] == "by key"
        for prompt in ("flaky one", "flaky two"):
            assert (await post(server, body(prompt)))[0] == 500
            assert await said(server, prompt) == "default"
        assert [await said(server, f"third {i}") for i in range(4)] == ["default", "default", "the third", "default"]
        assert await said(server, "auto") not in ("auto", "default")


@pytest.mark.parametrize(
    "data",
    [{"rule": []}, {"rules": [{"matches": "x"}]}, {"default": {"txt": "x"}}, {"rules": [{"fault": {"stat": 1}}]}],
)
def test_a_scenario_with_a_wrong_name_is_refused(data: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="has no"):
        Scenario.from_json(data)


def test_json_says_for_ever_as_a_word() -> None:
    scenario = Scenario.from_json({"rules": [{"fault": {"stall": "inf"}}], "reject": ["seed"]})
    assert scenario.rules == (Rule(reply=FakeReply(fault=Fault(stall=math.inf))),)
    assert scenario.reject == {"seed"}


async def test_refusals() -> None:
    fault = Fault(status=429, retry_after=7, message="slow down")
    async with FakeServer(lambda b, n: FakeReply(fault=fault)) as server:
        status, headers, data = await post(server, body())
    assert (status, headers["retry-after"], data["error"]["message"]) == (429, "7", "slow down")
    assert (server.ledger.tokens_in, server.ledger.tokens_out) == (0, 0), "a refusal is not billed"
    assert server.ledger.finished() == []


ENDINGS: dict[str, tuple[Fault, bool]] = {
    "whole": (Fault(), False),
    "stream": (Fault(), True),
    "slow stream": (Fault(interval=0.001), True),
    "refusal": (Fault(status=429), False),
    "in two pieces": (Fault(stall=0.001, stall_after=1), False),
}


@pytest.mark.parametrize("name", ENDINGS)
async def test_an_answer_is_in_the_ledger_before_its_last_byte_leaves(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who reads the ledger file after the answer must find it: server and client are two processes."""
    fault, stream = ENDINGS[name]
    file, known = tmp_path / "ledger.jsonl", []
    send = Connection.write

    def watched(connection: Connection, data: bytes) -> None:
        known.append([entry.finished for entry in Ledger.load(file).requests])
        send(connection, data)

    monkeypatch.setattr(Connection, "write", watched)
    async with FakeServer(lambda b, n: FakeReply(fault=fault), ledger_file=file) as server:
        await post(server, body(stream=stream))
    assert known[-1] == [True]


async def test_the_window_counts_the_cap() -> None:
    async with FakeServer(scenario=Scenario(context_limit=20)) as server:
        assert (await post(server, body("x" * 40, max_tokens=6)))[0] == 200
        status, _, data = await post(server, body("x" * 40, max_tokens=7))
    assert status == 400
    assert data["error"]["code"] == "context_length_exceeded"


async def test_the_rate_limit_says_how_long_to_wait() -> None:
    async with FakeServer(scenario=Scenario(rate_limit=0.01, burst=2)) as server:
        answers = [await post(server, body(str(i))) for i in range(4)]
        assert [status for status, _, _ in answers] == [200, 200, 429, 429]
        assert 0 < float(answers[2][1]["retry-after"]) <= 100
    async with FakeServer(scenario=Scenario(rate_limit=1000.0)) as server:
        for number in range(3):
            assert (await post(server, body(str(number))))[0] == 200
            await asyncio.sleep(0.01)


async def test_the_barrier_holds_until_enough_requests_are_in_flight() -> None:
    async with FakeServer(scenario=Scenario(barrier=5)) as server:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(said(server, str(i))) for i in range(4)]
            await asyncio.sleep(0.1)
            assert not any(task.done() for task in tasks)
            group.create_task(said(server, "the fifth"))
        assert server.ledger.max_in_flight == 5
        assert await said(server, "alone"), "it opens once"


async def test_the_barrier_can_be_opened_by_hand() -> None:
    async with FakeServer(scenario=Scenario(barrier=5)) as server, asyncio.TaskGroup() as group:
        tasks = [group.create_task(said(server, str(i))) for i in range(4)]
        while len(server.ledger.requests) < 4:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        assert not any(task.done() for task in tasks)
        server.open_barrier()
        group.create_task(said(server, "the fifth"))
    assert len(server.ledger.finished()) == 5


async def test_latency_is_drawn_from_the_seed() -> None:
    fault = Fault(latency=0.05, sigma=0.5)
    assert fault.delay(1, "a") == fault.delay(1, "a")
    assert len({fault.delay(seed, name) for seed in (1, 2) for name in ("a", "b")}) == 4
    assert Fault(latency=0.05).delay(1, "a") == 0.05
    async with FakeServer(lambda b, n: FakeReply("x", fault=Fault(latency=0.05))) as server:
        await said(server)
    entry = server.ledger.requests[0]
    assert entry.ended is not None
    assert entry.ended - entry.arrived >= 0.05


@pytest.mark.parametrize(
    ("fault", "stream", "status", "generated"),
    [
        (Fault(cut="before_headers"), True, 0, 0),
        (Fault(cut="after_headers"), True, 200, 0),
        (Fault(cut="middle"), True, 200, 2),
        (Fault(cut="before_headers"), False, 0, 0),
        (Fault(cut="after_headers"), False, 200, 4),
        (Fault(cut="middle"), False, 200, 4),
    ],
)
async def test_cuts_are_the_servers_doing(fault: Fault, stream: bool, status: int, generated: int) -> None:
    async with FakeServer(lambda b, n: FakeReply("0123" * 4, fault=fault)) as server:
        with pytest.raises(aiohttp.ClientError):
            await post(server, body(stream=stream))
    entry = server.ledger.requests[0]
    assert (entry.status, entry.tokens_out, entry.finished) == (status, generated, False)
    assert not entry.disconnected
    assert entry.fault == f"cut_{fault.cut}"
    assert entry.billed


@pytest.mark.parametrize(("stream", "generated"), [(True, 2), (False, 4)])
async def test_a_client_that_goes_away_is_noticed(stream: bool, generated: int) -> None:
    fault = Fault(stall=math.inf, stall_after=2)
    async with FakeServer(lambda b, n: FakeReply("0123" * 4, fault=fault)) as server:
        task = asyncio.create_task(post(server, body(stream=stream)))
        async with asyncio.timeout(PATIENCE):
            while server.ledger.tokens_out < generated:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        assert server.ledger.in_flight == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with asyncio.timeout(PATIENCE):
            while not server.ledger.requests[0].disconnected:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
    entry = server.ledger.requests[0]
    assert (entry.tokens_out, entry.finished) == (generated, False)
    assert server.ledger.in_flight == 0


async def test_a_stall_that_ends_and_an_error_event() -> None:
    async with FakeServer(lambda b, n: FakeReply("0123" * 4, fault=Fault(stall=0.05, stall_after=2))) as server:
        assert "[DONE]" in (await post(server, body(stream=True)))[2]
        assert (await said(server)) == "0123" * 4
    fault = Fault(error_event={"message": "boom"})
    async with FakeServer(lambda b, n: FakeReply("0123" * 4, fault=fault)) as server:
        text = (await post(server, body(stream=True)))[2]
    assert text.endswith('data: {"error":{"message":"boom"}}\n\n')
    assert server.ledger.tokens_out == 2


async def test_what_was_paid_for_twice() -> None:
    async with FakeServer(lambda b, n: FakeReply("x", fault=Fault(status=500) if n == 0 else Fault())) as server:
        for prompt, key in [("a", "1"), ("a", "1"), ("b", "1"), ("a", "2"), ("c", ""), ("c", "")]:
            await post(server, body(prompt), key=key)
        await post(server, body("d", seed=1))
        await post(server, body("d", seed=2))
    assert server.ledger.duplicates() == {("c", ""): 2, ("d", ""): 2}
    assert [count for count in server.ledger.duplicates(by="body").values()] == [2]


async def test_lists_properties_and_counts_cost_nothing() -> None:
    async with aiohttp.ClientSession() as session:
        async with FakeServer(scenario=Scenario(flavour="vllm", context_limit=9, model="m")) as server:
            async with session.get(server.url + "/models") as response:
                assert (await response.json())["data"][0] == {
                    "id": "m",
                    "object": "model",
                    "owned_by": "vllm",
                    "max_model_len": 9,
                }
            async with session.post(server.url[:-3] + "/tokenize", json=body("four")) as response:
                assert (await response.json())["count"] == count_prompt(body("four")) == 5
            async with session.get(server.url[:-3] + "/props") as response:
                assert response.status == 404
    assert server.ledger.requests == []
    assert server.ledger.free == {"/v1/models": 1, "/tokenize": 1, "/props": 1}


@pytest.mark.parametrize("flavour", ["openai", "llamacpp", "vllm"])
async def test_a_run_on_each_flavour_keeps_its_bill(flavour: Any, tmp_path: Path) -> None:
    """What a flavour counts beforehand is what its ledger holds afterwards, schemas included."""
    config = load_config(env={}, overrides={"home": str(tmp_path)})
    async with FakeServer(scenario=Scenario(flavour=flavour, context_limit=32768)) as server:
        model = f"{server.url}#fake"
        params = {"k": 3, "rounds": 2}
        outcome = await romanesco.run("Name three risks", model=model, config=config, run="r", params=params)
        assert outcome.spend.tokens_in == server.ledger.tokens_in
    assert outcome.status is romanesco.Status.COMPLETED, outcome.note
    async with SQLiteStore(tmp_path / "journal.db") as store:
        found = await verify(store, "r")
    assert found.ok, found.findings


@pytest.mark.parametrize("stream", [False, True])
async def test_garbage_may_be_no_unicode(stream: bool) -> None:
    async with (
        FakeServer(lambda b, n: FakeReply(fault=Fault(garbage="x\ud800y"))) as server,
        aiohttp.ClientSession() as session,
        session.post(server.url + "/chat/completions", json=body("four", stream=stream)) as response,
    ):
        assert response.status == 200
        assert await response.read() == b"x\xed\xa0\x80y"
    assert [(entry.status, entry.fault, entry.finished) for entry in server.ledger.requests] == [(200, "garbage", True)]


async def test_embeddings_put_like_with_like() -> None:
    texts = ["a red apple pie", "a red apple cake", "steel bridges rust slowly"]
    async with FakeServer() as server:
        _, _, data = await post(server, {"model": "e", "input": texts}, path="/embeddings")
        _, _, one = await post(server, {"model": "e", "input": texts[0]}, path="/embeddings")
    one_, two, three = ([float(x) for x in item["embedding"]] for item in data["data"])
    assert one["data"][0]["embedding"] == one_

    def likeness(a: list[float], b: list[float]) -> float:
        return sum(x * y for x, y in zip(a, b, strict=True))

    assert likeness(one_, one_) == pytest.approx(1.0)
    assert likeness(one_, two) > likeness(one_, three)
    assert embedding("", 4) == [1.0, 0.0, 0.0, 0.0]
    assert server.ledger.tokens_in > 0


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"POST /v1/chat/completions HTTP/1.1\r\ncontent-length: 3\r\n\r\n{x}", b"400"),
        (b"POST /v1/chat/completions HTTP/1.1\r\ncontent-length: 2\r\n\r\n[]", b"400"),
        (b"POST /v1/chat/completions HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n", b"411"),
        (b"GET /nothing HTTP/1.1\r\n\r\n", b"404"),
    ],
)
async def test_requests_that_are_not_requests(request_bytes: bytes, status: bytes) -> None:
    async with FakeServer() as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        for byte in request_bytes:
            writer.write(bytes([byte]))
        assert (await reader.readline()).startswith(b"HTTP/1.1 " + status)
        writer.close()


async def test_requests_sent_at_once_on_one_connection_are_answered_in_order() -> None:
    async with FakeServer(
        lambda b, n: FakeReply(b["messages"][0]["content"], fault=Fault(latency=0.02 * (n == 0)))
    ) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        for prompt in ("first", "second"):
            data = json.dumps(body(prompt)).encode()
            writer.write(b"POST /v1/chat/completions HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % len(data) + data)
        text = b""
        while text.count(b'"usage"') < 2:
            text += await reader.read(4096)
        writer.close()
    assert text.index(b"first") < text.index(b"second")


def test_in_its_own_process_the_ledger_outlives_the_client(tmp_path: Path) -> None:
    client = (
        "import http.client, json, sys, time\n"
        "host = http.client.HTTPConnection('127.0.0.1', int(sys.argv[1]))\n"
        "def ask(prompt):\n"
        "    host.request('POST', '/v1/chat/completions', json.dumps(\n"
        "        {'messages': [{'role': 'user', 'content': prompt}]}))\n"
        "    return host.getresponse().read()\n"
        "ask('first'); print('asked', flush=True); ask('stall')\n"
    )
    scenario = {"rules": [{"match": "stall", "fault": {"stall": "inf"}}], "default": "fine"}
    with FakeServerProcess(tmp_path, scenario) as server:
        port = server.url.rpartition(":")[2].partition("/")[0]
        process = subprocess.Popen([sys.executable, "-c", client, port], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        until(lambda: len(server.ledger.requests) == 2)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
        until(lambda: server.ledger.requests[1].disconnected)
        first, second = server.ledger.requests
        assert (first.prompt, first.status, first.finished) == ("first", 200, True)
        assert (second.prompt, second.finished, second.fault) == ("stall", False, "stall")
        assert server.ledger.tokens_out == 1


def until(condition: Any) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def test_a_ledger_line_that_is_half_written_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "ledger.jsonl"
    file.write_bytes(b'{"free": "/v1/models"}\n{"number": 0, "pa')
    ledger = Ledger.load(file)
    assert ledger.requests == []
    assert ledger.free == {"/v1/models": 1}


def test_the_command_refuses_a_bad_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "script.json"
    script.write_text('{"rulez": []}', encoding="utf-8")
    with pytest.raises(SystemExit) as caught:
        main(["--script", str(script)])
    assert caught.value.code == 2
    assert "Scenario has no rulez" in capsys.readouterr().err


def test_a_process_that_cannot_start_says_so(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="did not start"), FakeServerProcess(tmp_path, {"rulez": []}):
        pass
