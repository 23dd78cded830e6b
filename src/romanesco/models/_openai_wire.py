"""Our requests in the words of the OpenAI-compatible wire. Pure functions; nothing here does I/O."""

from __future__ import annotations

import enum
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from romanesco.models._schema import portable, with_guidance
from romanesco.models._types import (
    Capabilities,
    Json,
    Message,
    ModelRequest,
    OutputSchema,
    TokenCount,
    ToolSpec,
)

RESERVED = frozenset({
    "model",
    "messages",
    "stream",
    "stream_options",
    "n",
    "best_of",
    "max_tokens",
    "max_completion_tokens",
})
"""Fields that ``extra_body`` may not set: the reply could not be read, or the bill would not hold."""

DROPPABLE = ("stream_options", "temperature", "seed")
"""Fields that are left out, and stay out, once an endpoint says that it does not support them."""

TEMPLATE_BASE = 8
TOOLS_BASE = 16
"""Chat templates add text of their own: many a default system prompt (up to about 100 tokens), most of them
instructions when tools are offered (up to about 250). In units of ``Capabilities.template_overhead``."""


class OutputMode(enum.StrEnum):
    """How a schema is put to an endpoint."""

    NONE = "none"
    GRAMMAR = "grammar"
    JSON_SCHEMA = "json_schema"
    TOOL = "tool"


@dataclass(slots=True)
class Dialect:
    """What an endpoint was found not to take. The one thing that the client learns from a refusal.

    Attributes:
        cap: The field that caps the output: ``max_tokens`` or ``max_completion_tokens``.
        dropped: Fields that are left out.
    """

    cap: str = "max_tokens"
    dropped: set[str] = field(default_factory=set)


def cap_field(base_url: str) -> str:
    """The field that caps the output at this address, before anything is known of it.

    OpenAI's newer models take only ``max_completion_tokens``; most other servers know ``max_tokens``, and
    some ignore the other without a word, which would leave the call without a cap.
    """
    host = urlsplit(base_url).hostname or ""
    own = host == "api.openai.com" or host.endswith(".openai.azure.com")
    return "max_completion_tokens" if own else "max_tokens"


def output_mode(request: ModelRequest, capabilities: Capabilities) -> OutputMode:
    """The strongest way that the endpoint has to hold the reply to the request's schema.

    A grammar excludes tools on the servers that take one, so it is not used together with them.
    """
    if request.output is None:
        return OutputMode.NONE
    if capabilities.grammar and not request.tools:
        return OutputMode.GRAMMAR
    if capabilities.json_schema:
        return OutputMode.JSON_SCHEMA
    return OutputMode.TOOL if capabilities.tools else OutputMode.NONE


def encode_request(
    request: ModelRequest,
    *,
    model: str,
    stream: bool,
    mode: OutputMode,
    dialect: Dialect,
    extra_body: dict[str, Json],
    usage_in_stream: bool = True,
) -> dict[str, Any]:
    """The body of a chat completion request.

    Args:
        request: What to ask.
        model: The model's name on the wire.
        stream: Whether the reply shall come in pieces.
        mode: How the schema is put.
        dialect: What the endpoint does not take.
        extra_body: Further fields, as the user configured them.
        usage_in_stream: Whether to ask for a usage chunk.
    """
    body: dict[str, Any] = dict(extra_body)
    body["model"] = model
    body["messages"] = [encode_message(message) for message in request.messages]
    body[dialect.cap] = request.max_output_tokens
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if request.seed is not None:
        body["seed"] = request.seed
    _encode_tools(body, request, mode)
    if request.output is not None:
        if mode is OutputMode.GRAMMAR:
            body["grammar"] = grammar(request.output)
        elif mode is OutputMode.JSON_SCHEMA:
            body["response_format"] = {
                "type": "json_schema",
                "json_schema": {
                    "name": request.output.name,
                    "strict": True,
                    "schema": portable(request.output.schema),
                },
            }
    body["stream"] = stream
    if stream and usage_in_stream:
        body["stream_options"] = {"include_usage": True}
    for name in dialect.dropped:
        body.pop(name, None)
    return body


def _encode_tools(body: dict[str, Any], request: ModelRequest, mode: OutputMode) -> None:
    tools = [_encode_tool(tool) for tool in request.tools]
    choice: Any = request.tool_choice
    if mode is OutputMode.TOOL and request.output is not None:
        output = request.output
        tools.append(_encode_tool(ToolSpec(output.name, "Give the answer in this form.", portable(output.schema))))
        choice = "required" if request.tools else output.name
    if not tools:
        return
    body["tools"] = tools
    if choice not in ("auto", "none", "required"):
        choice = {"type": "function", "function": {"name": choice}}
    body["tool_choice"] = choice


def _encode_tool(tool: ToolSpec) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
    }


def encode_message(message: Message) -> dict[str, Any]:
    """One message. An assistant's opaque fields go back as they came, and never over the message's own."""
    wire: dict[str, Any] = dict(message.opaque) if message.role == "assistant" else {}
    wire["role"] = message.role
    wire["content"] = message.content
    if message.tool_calls:
        wire["content"] = message.content or None
        wire["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        wire["tool_call_id"] = message.tool_call_id
    return wire


def to_bytes(body: Any) -> bytes:
    """JSON as UTF-8. Halves of surrogate pairs, which have no UTF-8, are joined or become U+FFFD."""
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()


def grammar(output: OutputSchema) -> str:
    """The schema as an llguidance grammar that leaves no room for white space in the JSON."""
    return _grammar(json.dumps(output.schema, ensure_ascii=False))


@lru_cache(maxsize=256)
def _grammar(schema_text: str) -> str:
    schema = with_guidance(json.loads(schema_text))
    return f"%llguidance {{}}\nstart: %json {json.dumps(schema, ensure_ascii=False)}"


def upper_bound(body: dict[str, Any], *, template_overhead: int) -> TokenCount:
    """More tokens than any byte-level tokenizer makes of this request body.

    One token a UTF-8 byte of everything that can reach the prompt (messages with all their fields, tools,
    schema), ``template_overhead`` a message, ``8 * template_overhead`` once for the template's own text and
    ``16 * template_overhead`` more for its instructions if there are tools.
    """
    size = sum(_bytes(_texts(message)) for message in body["messages"])
    for name in ("tools", "tool_choice", "response_format", "grammar"):
        if name in body:
            size += len(to_bytes(body[name]))
    units = len(body["messages"]) + TEMPLATE_BASE + (TOOLS_BASE if "tools" in body else 0)
    return TokenCount(tokens=size + units * template_overhead, exact=False)


def _texts(message: dict[str, Any]) -> Iterable[Any]:
    for name, value in message.items():
        if name == "role" or value is None:
            continue
        yield value


def _bytes(values: Iterable[Any]) -> int:
    # Text counts as itself, not as JSON: the template puts it in unescaped.
    return sum(
        len(value.encode("utf-8", "surrogatepass")) if isinstance(value, str) else len(to_bytes(value))
        for value in values
    )
