"""A fake OpenAI-compatible server that misbehaves on demand and keeps its own books."""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from romanesco.testing._fake_server_http import (
    STREAM_END,
    STREAM_HEAD,
    Connection,
    HttpRequest,
    chunk,
    event,
    response,
)
from romanesco.testing._fake_server_ledger import Ledger, LedgerEntry, LedgerWriter
from romanesco.testing._fake_server_reply import (
    FakeReply,
    Fault,
    Rendered,
    count_prompt,
    message_of,
    pieces,
    prompt_text,
    refusal,
    render,
    reported,
)
from romanesco.testing._fake_server_scenario import Bucket, Matcher, Scenario

Answer = Callable[[dict[str, Any], int], "FakeReply | str"]
"""From a request body and its number in order of arrival (from 0) to the answer; a string is a reply's text."""


class FakeServer:
    """A server on 127.0.0.1 that speaks OpenAI's chat completions and embeddings. For tests, also users' own.

    Every answer is a function of the scenario, the request and its number, so runs repeat exactly. The ledger
    says what truly arrived and what was truly generated, whatever usage was reported. Use it as an async context
    manager in the loop of the test, or in its own process with ``python -m romanesco.testing.fake_server``.

    Args:
        reply: Answers requests; None lets the scenario's rules answer.
        scenario: Rules and limits.
        ledger_file: File that every change of the ledger is appended to at once.
        port: Port; 0 takes a free one.
    """

    def __init__(
        self,
        reply: Answer | None = None,
        *,
        scenario: Scenario | None = None,
        ledger_file: Path | None = None,
        port: int = 0,
    ) -> None:
        self.scenario = scenario or Scenario()
        self._reply = reply
        self._matcher = Matcher(self.scenario)
        self._books = LedgerWriter(ledger_file)
        self._wanted_port = port
        self._server: asyncio.Server | None = None
        self._connections: set[Connection] = set()
        self._opened = 0
        self._in_flight = 0
        self._gate: list[asyncio.Future[None]] = []
        self._gate_open = self.scenario.barrier <= 1
        rate = self.scenario.rate_limit
        self._bucket = None if rate is None else Bucket(rate, self.scenario.burst)

    @property
    def ledger(self) -> Ledger:
        """What has reached the server so far."""
        return self._books.ledger

    @property
    def port(self) -> int:
        """The port it listens on."""
        assert self._server is not None, "the server is not running"
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def url(self) -> str:
        """Base URL for a client, ending in ``/v1``."""
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def connections(self) -> int:
        """Connections that are open now."""
        return len(self._connections)

    async def __aenter__(self) -> FakeServer:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._connection, "127.0.0.1", self._wanted_port, backlog=4096)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        tasks = []
        for connection in list(self._connections):
            if connection.task is not None:
                connection.task.cancel()
                tasks.append(connection.task)
            connection.close()
        if tasks:
            await asyncio.wait(tasks)
        await self._server.wait_closed()
        await asyncio.sleep(0)  # lets the transports call back before the loop may end
        self._books.close()

    def drop_connections(self) -> None:
        """Close every open connection, as a server does that is restarted."""
        for connection in list(self._connections):
            connection.close()

    def open_barrier(self) -> None:
        """Let out the replies that the scenario's barrier holds, however few requests are in flight."""
        self._gate_open = True
        for waiter in self._gate:
            if not waiter.done():
                waiter.set_result(None)

    def _connection(self) -> Connection:
        self._opened += 1
        return Connection(self._opened, self._handle, self._connections.add, self._gone)

    def _gone(self, connection: Connection) -> None:
        self._connections.discard(connection)
        entry = connection.current
        if entry is not None and entry.ended is None:
            entry.disconnected = True
            self._end(entry)
        if connection.task is not None:
            connection.task.cancel()

    def _handle(self, connection: Connection, request: HttpRequest) -> None:
        try:
            body = json.loads(request.body) if request.body else {}
        except ValueError:
            body = None
        if not isinstance(body, dict):
            connection.write(response(400, refusal(400, "The body is not a JSON object.")))
            connection.answered()
        elif request.path.endswith(("/chat/completions", "/embeddings")) and request.method == "POST":
            self._generate(connection, request, body)
        else:
            self._books.free(request.path)
            status, answer = self._free(request, body)
            connection.write(response(status, answer))
            connection.answered()

    # -- requests that cost nothing

    def _free(self, request: HttpRequest, body: dict[str, Any]) -> tuple[int, bytes]:
        flavour = self.scenario.flavour
        window = self.scenario.context_limit
        if request.path.endswith("/models"):
            entry: dict[str, Any] = {"id": self.scenario.model, "object": "model", "owned_by": flavour}
            if flavour == "vllm":
                entry["max_model_len"] = window
            return 200, json.dumps({"object": "list", "data": [entry]}).encode()
        if request.path == "/props" and flavour == "llamacpp":
            return 200, json.dumps({"default_generation_settings": {"n_ctx": window}, "total_slots": 1}).encode()
        if request.path == "/apply-template" and flavour == "llamacpp":
            # As many pieces as the whole request counts, so that both ways of counting agree.
            return 200, json.dumps({"prompt": "tok " * self._count(body)}).encode()
        if request.path == "/tokenize" and flavour == "llamacpp":
            return 200, json.dumps({"tokens": list(range(len(pieces(body.get("content", "")))))}).encode()
        if request.path == "/tokenize" and flavour == "vllm":
            return 200, json.dumps({"count": self._count(body), "max_model_len": window}).encode()
        return 404, refusal(404, f"No such path: {request.path}", "not_found_error")

    def _count(self, body: dict[str, Any]) -> int:
        """A request's input tokens, the same for who asks for them and in the ledger.

        vLLM holds a reply to its schema without telling the model of it: the schema costs no tokens there.
        """
        return count_prompt(body, schema=self.scenario.flavour != "vllm")

    # -- requests for generation

    def _generate(self, connection: Connection, request: HttpRequest, body: dict[str, Any]) -> None:
        self._in_flight += 1
        embedding = request.path.endswith("/embeddings")
        prompt = "\n".join(_inputs(body)) if embedding else prompt_text(body)
        entry = LedgerEntry(
            number=len(self.ledger.requests),
            path=request.path,
            key=request.headers.get("x-romanesco-key", ""),
            prompt=prompt,
            digest=hashlib.sha256(request.body).hexdigest()[:16],
            tokens_in=len(pieces(prompt)) if embedding else self._count(body),
            arrived=time.monotonic(),
            in_flight=self._in_flight,
            connection=connection.number,
        )
        self._books.arrived(entry)
        connection.current = entry
        reply = self._answer(entry, body)
        fault = reply.fault
        refused = self._refused(request, body, entry) or _as_refusal(fault)
        if not self._gate_open and self._in_flight >= self.scenario.barrier:
            self.open_barrier()
        delay = fault.delay(self.scenario.seed, entry.digest)
        slow = fault.stall > 0 or fault.interval > 0 or fault.cut is not None
        if delay or slow or not self._gate_open:
            connection.task = asyncio.get_running_loop().create_task(
                self._slowly(connection, entry, body, reply, refused, delay)
            )
        elif refused is not None:
            self._refuse(connection, entry, refused)
        else:
            self._at_once(connection, entry, body, reply)

    def _answer(self, entry: LedgerEntry, body: dict[str, Any]) -> FakeReply:
        if self._reply is None:
            return self._matcher.reply(body, entry.key, entry.digest)
        reply = self._reply(body, entry.number)
        return FakeReply(text=reply) if isinstance(reply, str) else reply

    def _refused(
        self, request: HttpRequest, body: dict[str, Any], entry: LedgerEntry
    ) -> tuple[int, bytes, dict[str, str]] | None:
        """Status, body and headers of the refusal that the scenario's limits ask for, if any does."""
        scenario = self.scenario
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        if scenario.api_key is not None and given != scenario.api_key:
            return 401, refusal(401, f"Incorrect API key provided: {given}", "invalid_api_key"), {}
        for name in sorted(scenario.reject & body.keys()):
            hint = " Use 'max_completion_tokens' instead." if name == "max_tokens" else ""
            text = f"Unsupported parameter: '{name}' is not supported with this model.{hint}"
            return 400, refusal(400, text, "unsupported_parameter", name), {}
        if scenario.require_reasoning and any(_lacks_reasoning(message) for message in body.get("messages", ())):
            text = "Missing reasoning_content in an assistant message: it must be passed back."
            return 400, refusal(400, text, "invalid_request_error"), {}
        wanted = entry.tokens_in + (body.get("max_completion_tokens") or body.get("max_tokens") or 0)
        if scenario.context_limit is not None and wanted > scenario.context_limit:
            text = (
                f"This model's maximum context length is {scenario.context_limit} tokens. However, you requested "
                f"{wanted} tokens. Please reduce the length of the messages."
            )
            return 400, refusal(400, text, "context_length_exceeded", "messages"), {}
        wait = 0.0 if self._bucket is None else self._bucket.take(time.monotonic())
        if not wait:
            return None
        return 429, refusal(429, "Rate limit reached.", "rate_limit_exceeded"), {"retry-after": f"{wait:.3f}"}

    def _end(self, entry: LedgerEntry) -> None:
        entry.ended = time.monotonic()
        self._in_flight -= 1
        self._books.ended(entry)

    def _last(self, connection: Connection, entry: LedgerEntry, data: bytes) -> None:
        """Send the end of a response, entered in the ledger first: who has a whole answer finds it there."""
        entry.finished = connection.alive
        self._end(entry)
        connection.write(data)
        connection.answered()

    def _refuse(self, connection: Connection, entry: LedgerEntry, refused: tuple[int, bytes, dict[str, str]]) -> None:
        status, body, headers = refused
        entry.status, entry.fault = status, str(status)
        self._last(connection, entry, response(status, body, headers))

    def _at_once(self, connection: Connection, entry: LedgerEntry, body: dict[str, Any], reply: FakeReply) -> None:
        """Answer without waiting for anything: no task, one write."""
        entry.fault = reply.fault.name()
        entry.status = 200
        if reply.fault.garbage is not None:
            answer = response(200, reply.fault.garbage.encode("utf-8", "surrogatepass"))
        elif entry.path.endswith("/embeddings"):
            answer = response(200, _embeddings(body, entry, self.scenario))
        elif body.get("stream"):
            rendered = render(reply, body, entry.digest)
            tail = _tail(reply.fault, rendered, body, entry, reply, self.scenario.model)
            events = [event(_piece(self.scenario.model, delta)) for delta in _deltas(reply, rendered)]
            answer = STREAM_HEAD + chunk(b"".join(events) + tail) + STREAM_END
        else:
            answer = response(200, _completion(body, reply, entry, self.scenario.model))
        self._last(connection, entry, answer)

    async def _slowly(
        self,
        connection: Connection,
        entry: LedgerEntry,
        body: dict[str, Any],
        reply: FakeReply,
        refused: tuple[int, bytes, dict[str, str]] | None,
        delay: float,
    ) -> None:
        fault = reply.fault
        if delay:
            await asyncio.sleep(delay)
        if not self._gate_open:
            waiter = asyncio.get_running_loop().create_future()
            self._gate.append(waiter)
            await waiter
        if refused is not None:
            self._refuse(connection, entry, refused)
            return
        entry.fault = fault.name()
        if fault.stall and not fault.stall_after:
            await _stall(fault.stall)
        if fault.cut == "before_headers":
            self._cut(connection, entry)
        elif body.get("stream") and fault.garbage is None:
            await self._stream(connection, entry, body, reply)
        elif fault.cut is not None or fault.stall_after:
            await self._part(connection, entry, body, reply)
        else:
            self._at_once(connection, entry, body, reply)

    def _cut(self, connection: Connection, entry: LedgerEntry) -> None:
        self._end(entry)
        connection.current = None
        connection.task = None
        connection.close()

    async def _part(self, connection: Connection, entry: LedgerEntry, body: dict[str, Any], reply: FakeReply) -> None:
        """A reply in one piece that stops in the middle."""
        whole = _completion(body, reply, entry, self.scenario.model)
        entry.status = 200
        half = 0 if reply.fault.cut == "after_headers" else len(whole) // 2
        connection.write(response(200, whole[:half], declared=len(whole)))
        if reply.fault.cut is not None:
            self._cut(connection, entry)
            return
        await _stall(reply.fault.stall)
        self._last(connection, entry, whole[half:])

    async def _stream(self, connection: Connection, entry: LedgerEntry, body: dict[str, Any], reply: FakeReply) -> None:
        fault = reply.fault
        rendered = render(reply, body, entry.digest)
        total = len(rendered.deltas)
        entry.status = 200
        connection.write(STREAM_HEAD)
        stop = {"after_headers": -1, "middle": total // 2}.get(fault.cut or "", total + 1)
        for number, delta in enumerate(_deltas(reply, rendered)):  # the first one is the role's, not a token
            if number > stop:
                self._cut(connection, entry)
                return
            if fault.stall and fault.stall_after and number == fault.stall_after + 1:
                await _stall(fault.stall)
            if fault.interval and number:
                await asyncio.sleep(fault.interval)
            connection.write(chunk(event(_piece(self.scenario.model, delta))))
            entry.tokens_out = number
        tail = _tail(fault, rendered, body, entry, reply, self.scenario.model)
        self._last(connection, entry, chunk(tail) + STREAM_END)


def _completion(body: dict[str, Any], reply: FakeReply, entry: LedgerEntry, model: str) -> bytes:
    rendered = render(reply, body, entry.digest)
    entry.tokens_out = len(rendered.deltas)
    completion: dict[str, Any] = {
        "id": "fake",
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [
            {
                "index": 0,
                "finish_reason": rendered.finish,
                "message": message_of(rendered.deltas, reply.fields),
            }
        ],
    }
    usage = _usage(reply, rendered, entry)
    if usage is not None:
        completion["usage"] = usage
    return json.dumps(completion).encode()


def _embeddings(body: dict[str, Any], entry: LedgerEntry, scenario: Scenario) -> bytes:
    vectors = [embedding(text, scenario.embedding_size) for text in _inputs(body)]
    data = [{"object": "embedding", "index": i, "embedding": vector} for i, vector in enumerate(vectors)]
    usage = {"prompt_tokens": entry.tokens_in, "total_tokens": entry.tokens_in}
    return json.dumps({"object": "list", "data": data, "model": scenario.model, "usage": usage}).encode()


def embedding(text: str, size: int) -> list[float]:
    """A unit vector from the words of a text: texts with common words are near each other, always the same way."""
    vector = [0.0] * size
    for word in text.lower().split():
        digest = hashlib.sha256(word.encode()).digest()
        vector[digest[0] % size] += 1.0 if digest[1] % 2 else -1.0
        vector[digest[2] % size] += 0.5
    length = math.sqrt(sum(x * x for x in vector))
    return [x / length for x in vector] if length else [1.0] + [0.0] * (size - 1)


def _inputs(body: dict[str, Any]) -> list[str]:
    given = body.get("input", "")
    return [str(text) for text in given] if isinstance(given, list) else [str(given)]


def _lacks_reasoning(message: dict[str, Any]) -> bool:
    return message.get("role") == "assistant" and not message.get("reasoning_content")


def _as_refusal(fault: Fault) -> tuple[int, bytes, dict[str, str]] | None:
    if fault.status is None:
        return None
    headers = {} if fault.retry_after is None else {"retry-after": str(fault.retry_after)}
    return fault.status, refusal(fault.status, fault.message or "This fault was injected."), headers


async def _stall(seconds: float) -> None:
    if math.isinf(seconds):
        await asyncio.get_running_loop().create_future()
    await asyncio.sleep(seconds)


def _piece(model: str, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "fake", "object": "chat.completion.chunk", "created": 0, "model": model, "choices": [choice]}


def _deltas(reply: FakeReply, rendered: Rendered) -> list[dict[str, Any]]:
    """What the stream's chunks add: role and further fields, then the tokens; half of them before an error event."""
    tokens = rendered.deltas
    if reply.fault.error_event is not None:
        tokens = tokens[: len(tokens) // 2]
    return [{"role": "assistant", "content": "", **reply.fields}, *tokens]


def _tail(
    fault: Fault, rendered: Rendered, body: dict[str, Any], entry: LedgerEntry, reply: FakeReply, model: str
) -> bytes:
    """What follows the tokens of a stream."""
    entry.tokens_out = len(_deltas(reply, rendered)) - 1
    if fault.error_event is not None:
        return event({"error": fault.error_event})
    if fault.no_end:
        return b": the end is missing\n\n"
    tail = event(_piece(model, {}, rendered.finish))
    usage = _usage(reply, rendered, entry)
    if usage is not None and (body.get("stream_options") or {}).get("include_usage"):
        tail += event({**_piece(model, {}), "choices": [], "usage": usage})
    return tail + b"data: [DONE]\n\n"


def _usage(reply: FakeReply, rendered: Rendered, entry: LedgerEntry) -> dict[str, Any] | None:
    usage = reported(reply.fault.usage, entry.tokens_in, len(rendered.deltas), reply.cached)
    if usage is not None and rendered.reasoning:
        usage["completion_tokens_details"] = {"reasoning_tokens": rendered.reasoning}
    return usage
