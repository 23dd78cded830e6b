"""What goes to a model and what comes back: plain data, no behaviour."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any, Literal

Json = Any
"""A value that ``json.dumps`` accepts: None, bool, int, float, str, list or dict of these."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call that a model asked for: its id, the tool's name and the raw JSON text of the arguments."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation.

    Attributes:
        role: Who speaks.
        content: The text.
        tool_calls: Calls that an assistant message asked for.
        tool_call_id: For role ``tool``: which call this answers.
        opaque: Provider fields that must be sent back unchanged (for example ``reasoning_content``).
    """

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    opaque: dict[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool that the model may call; ``parameters`` is a JSON schema of an object."""

    name: str
    description: str
    parameters: dict[str, Json]


@dataclass(frozen=True, slots=True)
class OutputSchema:
    """The shape that the reply must have: a JSON schema of an object, and a name for it."""

    name: str
    schema: dict[str, Json]


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Time limits of one call, in seconds. Each is watched on its own."""

    connect: float = 10.0
    first_token: float = 120.0
    between_tokens: float = 60.0
    total: float = 600.0


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One call to a model.

    Attributes:
        model: ``provider:model``.
        messages: The conversation, oldest first.
        max_output_tokens: Hard cap on generated tokens, reasoning included.
        temperature: Sampling temperature; None leaves it to the server.
        seed: Sampling seed; None leaves it to the server.
        output: Shape of the reply, or None for plain text.
        tools: Tools that the model may call.
        tool_choice: ``auto``, ``none``, ``required`` or a tool's name.
        deadlines: Time limits in seconds.
    """

    model: str
    messages: tuple[Message, ...]
    max_output_tokens: int
    temperature: float | None = None
    seed: int | None = None
    output: OutputSchema | None = None
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: str = "auto"
    deadlines: Deadlines = Deadlines()


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call.

    Attributes:
        input: Tokens read, cached ones included.
        output: Tokens generated, reasoning included.
        cached: Part of ``input`` that the server read from its cache.
        reasoning: Part of ``output`` that was reasoning.
        estimated: True if the server did not report (or reported nonsense) and these are upper bounds.
    """

    input: int
    output: int
    cached: int = 0
    reasoning: int = 0
    estimated: bool = False


class FinishReason(enum.StrEnum):
    """Why the model stopped generating."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"
    CONTENT_FILTER = "content_filter"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Timing:
    """Where the seconds of one call went: waiting for a slot, until the first token, in all, and in parsing."""

    queue: float = 0.0
    first_token: float = 0.0
    total: float = 0.0
    parse: float = 0.0


@dataclass(frozen=True, slots=True)
class ModelReply:
    """What a model answered.

    Attributes:
        text: The visible text.
        finish: Why it stopped.
        usage: Tokens; None if the server reported none (the runtime then estimates and marks it).
        model: The model's name as the server gave it.
        reasoning: Reasoning text, if the server sends it apart.
        tool_calls: Calls that the model asked for.
        opaque: Provider fields to send back with this message in a later request.
        timing: Where the time went.
        received: Bytes of generated text that came, where the adapter did not keep all of them; else 0.
    """

    text: str
    finish: FinishReason = FinishReason.STOP
    usage: Usage | None = None
    model: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    opaque: dict[str, Json] = field(default_factory=dict)
    timing: Timing = Timing()
    received: int = 0


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an endpoint can do, as configured or probed.

    Attributes:
        window: Context window in tokens, or None if unknown.
        grammar: Takes an llguidance grammar field.
        json_schema: Takes ``response_format`` of type ``json_schema``.
        tools: Takes tool definitions.
        usage_in_stream: Sends a usage chunk when asked.
        tokenizer: Counts tokens exactly (``/tokenize``).
        template_overhead: Upper bound of the tokens that the chat template adds to a message.
    """

    window: int | None = None
    grammar: bool = False
    json_schema: bool = True
    tools: bool = True
    usage_in_stream: bool = True
    tokenizer: bool = False
    template_overhead: int = 16


@dataclass(frozen=True, slots=True)
class TokenCount:
    """Tokens of a prompt: ``exact`` says whether the endpoint counted or this is an upper bound."""

    tokens: int
    exact: bool
