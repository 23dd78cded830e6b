"""What the fake server answers and which faults it injects: data, and the bytes on the wire that they become."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from romanesco.models._instance import minimal_instance
from romanesco.models._types import Json, ToolCall

PIECE = 4
"""Characters of one token of the fake server."""

_WORDS = (
    "small steps first then measure what customers really pay for and stop the rest before it costs more keep one "
    "plan ask early share the risk test with ten people write down why compare two prices wait a week"
).split()


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong with one request. The default is nothing.

    Attributes:
        latency: Seconds before the answer (its median, if ``sigma`` is set).
        sigma: Spread of a log-normal latency, drawn from the server's seed and the request: no two runs differ.
        interval: Seconds between tokens of a stream.
        status: Refuse with this HTTP status instead of answering.
        retry_after: Value of the ``Retry-After`` header of a refusal.
        message: Text of a refusal.
        stall: Stop sending for so many seconds (``inf`` for ever) after ``stall_after`` tokens; 0 is before the
            first one.
        stall_after: See ``stall``.
        cut: Close the connection ``before_headers``, ``after_headers`` or in the ``middle`` of the reply.
        garbage: Answer 200 with this text instead of a completion. A lone surrogate in it becomes bytes that are no
            UTF-8.
        usage: Reported usage: ``true``, ``missing``, ``zero``, ``over`` (10 times as much) or ``under`` (half).
        error_event: Send this as an error event in the middle of a stream.
        no_end: Leave out the stream's finish reason and its ``[DONE]``, ending the response in good order.
    """

    latency: float = 0.0
    sigma: float = 0.0
    interval: float = 0.0
    status: int | None = None
    retry_after: str | float | None = None
    message: str = ""
    stall: float = 0.0
    stall_after: int = 0
    cut: Literal["before_headers", "after_headers", "middle"] | None = None
    garbage: str | None = None
    usage: Literal["true", "missing", "zero", "over", "under"] = "true"
    error_event: dict[str, Json] | None = None
    no_end: bool = False

    def name(self) -> str:
        """Short name for the ledger; empty if nothing is wrong but the time it takes."""
        if self.status is not None:
            return str(self.status)
        if self.cut is not None:
            return f"cut_{self.cut}"
        names = [
            ("stall", self.stall > 0),
            ("garbage", self.garbage is not None),
            ("error_event", self.error_event is not None),
            ("no_end", self.no_end),
            (f"usage_{self.usage}", self.usage != "true"),
        ]
        return next((name for name, is_so in names if is_so), "")

    def delay(self, seed: int, digest: str) -> float:
        """Seconds of latency for one request."""
        if not self.latency or not self.sigma:
            return self.latency
        return self.latency * random.Random(f"{seed}/{digest}").lognormvariate(0.0, self.sigma)  # noqa: S311


@dataclass(frozen=True, slots=True)
class FakeReply:
    """One answer.

    Attributes:
        text: The visible text. None makes the smallest value that fits the requested schema, or some words;
            the same request always gets the same.
        reasoning: Sent as ``reasoning_content``, and counted as output tokens.
        tool_calls: Calls of tools.
        finish: Finish reason; by default ``stop``, ``tool_calls``, or ``length`` where the cap cut the text.
        fields: Further fields of the message.
        cached: Input tokens reported as cached.
        fault: What goes wrong.
    """

    text: str | None = None
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    finish: str | None = None
    fields: dict[str, Json] = field(default_factory=dict)
    cached: int = 0
    fault: Fault = Fault()


def pieces(text: str) -> list[str]:
    """The text as the fake server's tokens."""
    return [text[i : i + PIECE] for i in range(0, len(text), PIECE)]


def count_text(text: str) -> int:
    """Tokens of a text by the fake server's count."""
    return -(-len(text) // PIECE)


def prompt_text(body: dict[str, Any]) -> str:
    """Text of all messages of a request, one after another."""
    return "\n".join(_content(message) for message in body.get("messages", ()))


def count_prompt(body: dict[str, Any], *, schema: bool = True) -> int:
    """Input tokens of a request by the fake server's count; see ``LedgerEntry.tokens_in``.

    Args:
        body: The request.
        schema: Whether what the reply must look like is a part of the prompt.
    """
    tokens = sum(count_text(_content(message)) + 4 for message in body.get("messages", ()))
    for name in ("tools", "response_format", "grammar") if schema else ("tools",):
        if name in body:
            tokens += count_text(json.dumps(body[name]))
    return tokens


def _content(message: dict[str, Any]) -> str:
    content = message.get("content")
    return content if isinstance(content, str) else "" if content is None else json.dumps(content)


def asked_schema(body: dict[str, Any]) -> dict[str, Any] | None:
    """The schema that the reply's text must fit: from ``response_format`` or an llguidance grammar."""
    form = body.get("response_format")
    if isinstance(form, dict) and isinstance(form.get("json_schema"), dict):
        schema = form["json_schema"].get("schema")
        return schema if isinstance(schema, dict) else None
    grammar = body.get("grammar")
    if isinstance(grammar, str) and "%json" in grammar:
        schema = json.loads(grammar.partition("%json")[2])
        return schema if isinstance(schema, dict) else None
    return None


def forced_tool(body: dict[str, Any]) -> dict[str, Any] | None:
    """The function that the request forces the model to call, or None."""
    choice, tools = body.get("tool_choice"), body.get("tools") or []
    functions = [tool["function"] for tool in tools]
    if choice == "required" and functions:
        return functions[-1]  # type: ignore[no-any-return]
    if isinstance(choice, dict):
        name = choice.get("function", {}).get("name")
        return next((function for function in functions if function["name"] == name), None)
    return None


def filled(reply: FakeReply, body: dict[str, Any], digest: str) -> tuple[str, tuple[ToolCall, ...]]:
    """Text and tool calls of a reply, made up where the scenario leaves them open."""
    if reply.text is not None or reply.tool_calls:
        return reply.text or "", reply.tool_calls
    function = forced_tool(body)
    if function is not None:
        arguments = json.dumps(instance(function.get("parameters", {}), digest))
        return "", (ToolCall(id=f"call_{digest[:8]}", name=function["name"], arguments=arguments),)
    schema = asked_schema(body)
    if schema is not None:
        return json.dumps(instance(schema, digest), separators=(",", ":")), ()
    return words(digest, "", 12), ()


def instance(schema: dict[str, Any], seed: str) -> Any:
    """The smallest value that fits a schema, with its free strings and choices varied by the seed."""
    return minimal_instance(_fixed(schema, seed, "$"))


def words(seed: str, place: str, count: int) -> str:
    """So many words, always the same for the same seed and place."""
    digest = hashlib.sha256(f"{seed}/{place}".encode()).digest()
    return " ".join(_WORDS[digest[i % len(digest)] % len(_WORDS)] for i in range(count))


def _fixed(schema: Any, seed: str, place: str) -> Any:
    """The schema with a constant wherever the smallest value would be the same for every request."""
    if isinstance(schema, list):
        return [_fixed(item, seed, f"{place}/{i}") for i, item in enumerate(schema)]
    if not isinstance(schema, dict):
        return schema
    if "const" in schema or "default" in schema:
        return schema
    if schema.get("enum"):
        pick = hashlib.sha256(f"{seed}/{place}".encode()).digest()[0] % len(schema["enum"])
        return {**schema, "const": schema["enum"][pick]}
    if schema.get("type") == "string" and not {"pattern", "format"} & schema.keys():
        text = words(seed, place, 6)
        while len(text) < schema.get("minLength", 0):
            text += " more"
        return {**schema, "const": text[: schema.get("maxLength", len(text))]}
    return {key: _fixed(value, seed, f"{place}/{key}") for key, value in schema.items() if key != "required"} | {
        key: value for key, value in schema.items() if key == "required"
    }


def refusal(status: int, message: str, kind: str = "", parameter: str | None = None) -> bytes:
    """An error body in OpenAI's form."""
    error = {"message": message, "type": kind or "fake_error", "code": kind or status, "param": parameter}
    return json.dumps({"error": error}).encode()


def reported(usage: str, tokens_in: int, tokens_out: int, cached: int) -> dict[str, Any] | None:
    """The usage object that is reported for what was truly used."""
    if usage == "missing":
        return None
    if usage == "zero":
        tokens_in = tokens_out = 0
    elif usage == "over":
        tokens_in, tokens_out = tokens_in * 10, tokens_out * 10
    elif usage == "under":
        tokens_in, tokens_out = max(1, tokens_in // 2), max(1, tokens_out // 2)
    return {
        "prompt_tokens": tokens_in,
        "completion_tokens": tokens_out,
        "total_tokens": tokens_in + tokens_out,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


@dataclass(frozen=True, slots=True)
class Rendered:
    """A reply cut to the request's cap: its tokens in the order in which they are generated, and how it ends.

    Attributes:
        deltas: What each token adds to the message.
        finish: Finish reason.
        reasoning: How many of the tokens are reasoning.
    """

    deltas: list[dict[str, Any]]
    finish: str
    reasoning: int


def render(reply: FakeReply, body: dict[str, Any], digest: str) -> Rendered:
    """The tokens that a request is answered with, at most as many as it permits."""
    text, calls = filled(reply, body, digest)
    deltas: list[dict[str, Any]] = [{"reasoning_content": piece} for piece in pieces(reply.reasoning)]
    reasoning = len(deltas)
    deltas += [{"content": piece} for piece in pieces(text)]
    for index, call in enumerate(calls):
        deltas += _call_deltas(index, call)
    cap = body.get("max_completion_tokens") or body.get("max_tokens")
    finish = reply.finish or ("tool_calls" if calls and "tools" in body else "stop")
    if isinstance(cap, int) and len(deltas) > cap:
        deltas, finish = deltas[:cap], reply.finish or "length"
    return Rendered(deltas, finish, min(reasoning, len(deltas)))


def _call_deltas(index: int, call: ToolCall) -> Iterator[dict[str, Any]]:
    first, *rest = pieces(call.arguments) or [""]
    head = {"index": index, "id": call.id, "type": "function", "function": {"name": call.name, "arguments": first}}
    yield {"tool_calls": [head]}
    for piece in rest:
        yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def message_of(deltas: list[dict[str, Any]], fields: dict[str, Json]) -> dict[str, Any]:
    """The message that these tokens add up to, for a reply in one piece."""
    content: list[str] = []
    reasoning: list[str] = []
    calls: dict[int, dict[str, Any]] = {}
    for delta in deltas:
        content.append(delta.get("content", ""))
        reasoning.append(delta.get("reasoning_content", ""))
        for part in delta.get("tool_calls", ()):
            known = calls.get(part["index"])
            if known is None:
                calls[part["index"]] = {"id": part["id"], "type": "function", "function": dict(part["function"])}
            else:
                known["function"]["arguments"] += part["function"]["arguments"]
    message: dict[str, Any] = {"role": "assistant", "content": "".join(content) or None if calls else "".join(content)}
    if any(reasoning):
        message["reasoning_content"] = "".join(reasoning)
    if calls:
        message["tool_calls"] = list(calls.values())
    return {**message, **fields}
