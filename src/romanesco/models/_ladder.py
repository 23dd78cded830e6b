"""The structured-output ladder as decisions: how to ask, whether to take the reply, what to say when asking again.

The rungs, from the strongest: a grammar, the native JSON schema, a tool call, the prompt alone. Every reply, from
whichever rung, goes through the tolerant parser; a reply that can't be used is asked for once more with the error in
plain words; then the failure is typed. All of it is pure: the runtime makes the calls.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, replace

from romanesco.errors import OutputInvalid
from romanesco.models._describe import describe
from romanesco.models._parse import FailureKind, Parsed, ParseFailure, is_blank, parse, split_thinking
from romanesco.models._types import (
    Capabilities,
    FinishReason,
    Json,
    Message,
    ModelReply,
    ModelRequest,
    OutputSchema,
)

PROBLEM_BYTES = 160
"""Most bytes of the error that a re-ask repeats."""

QUOTE_BYTES = 120
"""Most bytes of the failed reply that a re-ask repeats, the mark of the cut included."""

_QUOTED = frozenset({FailureKind.NOT_JSON, FailureKind.INVALID, FailureKind.AMBIGUOUS})
_MARK_BYTES = 40

_AGAIN = {
    FailureKind.EMPTY: "Write the answer now.",
    FailureKind.REASONING_ONLY: "Give the answer alone, without any reasoning.",
    FailureKind.SCHEMA_ECHO: "Fill in real values. Do not repeat the description of the fields.",
    FailureKind.TRUNCATED: "Answer again and be shorter: at most {words} words in all.",
    FailureKind.NOT_JSON: "Answer again with one JSON object and nothing else.",
    FailureKind.INVALID: "Answer again with one corrected JSON object and nothing else.",
    FailureKind.AMBIGUOUS: "Answer again with exactly one JSON object and nothing else.",
}

_ADVICE = {
    FailureKind.EMPTY: "Try again, or use another model for this role.",
    FailureKind.REASONING_ONLY: "Give the model room to think on top of each cap with --param reasoning_tokens=N "
    "(2000 to begin with), or lower its reasoning effort.",
    FailureKind.TRUNCATED: "Raise the output cap, or ask for less.",
    FailureKind.REFUSED: "Change the wording of the goal, or use another provider for this role.",
}
_OTHER_ADVICE = "Use a model or an endpoint that supports JSON schemas for this role."


class Rung(enum.StrEnum):
    """How a schema is put to an endpoint, from the strongest hold on the reply to the weakest."""

    GRAMMAR = "grammar"
    JSON_SCHEMA = "json_schema"
    TOOL = "tool"
    PROMPT = "prompt"


@dataclass(frozen=True, slots=True)
class Accept:
    """The reply is good.

    Attributes:
        value: The object; empty for plain text.
        truncated: The reply was cut, and what is here ends where it did.
        repairs: What the parser forgave, in plain words.
        text: For plain text: the text without thinking.
    """

    value: dict[str, Json]
    truncated: bool = False
    repairs: tuple[str, ...] = ()
    text: str = ""


@dataclass(frozen=True, slots=True)
class Reask:
    """Ask again with this request; it is made from the first one, so that nothing piles up."""

    request: ModelRequest
    failure: ParseFailure


@dataclass(frozen=True, slots=True)
class Fail:
    """The ladder has ended without a value."""

    error: OutputInvalid
    failure: ParseFailure


def first_rung(capabilities: Capabilities) -> Rung:
    """The strongest rung that an endpoint has."""
    if capabilities.grammar:
        return Rung.GRAMMAR
    if capabilities.json_schema:
        return Rung.JSON_SCHEMA
    return Rung.TOOL if capabilities.tools else Rung.PROMPT


def prepare(request: ModelRequest, rung: Rung) -> ModelRequest:
    """The request as it goes to the adapter.

    On the first three rungs the request keeps its ``output`` and the adapter puts the schema on the wire. On the rung
    of the prompt alone the fields are told in plain words at the end of the last user message, because small models
    copy a JSON schema when they see one, and ``output`` is taken off. A re-ask tells the fields already, since an
    endpoint may ignore a schema without a word; only a grammar can't be ignored, and there they are taken out again
    to leave a small window its room.
    """
    if request.output is None or rung not in (Rung.PROMPT, Rung.GRAMMAR):
        return request
    told = _told(request.output)
    last = request.messages[-1] if request.messages else None
    has = last is not None and last.role == "user" and last.content.endswith(told)
    if rung is Rung.PROMPT:
        return replace(request, messages=request.messages if has else _appended(request.messages, told), output=None)
    if last is None or not has:
        return request
    return replace(request, messages=(*request.messages[:-1], replace(last, content=last.content.removesuffix(told))))


def judge(reply: ModelReply, request: ModelRequest, attempt: int, max_reasks: int = 1) -> Accept | Reask | Fail:
    """Decide what becomes of a reply to a request with ``output``.

    Args:
        reply: What came back.
        request: The request as it was first made, before ``prepare`` and before any re-ask.
        attempt: 1 for the reply to the first ask, 2 for the reply to the first re-ask, and so on.
        max_reasks: How many times may be asked again.

    Returns:
        The value, the request to ask next, or the failure. A reply that the provider's content filter stopped is not
        asked for again.

    Raises:
        ConfigError: The schema is not valid.
    """
    assert request.output is not None, "judge is for requests with an output schema"
    text = _answer_text(reply, request.output)
    outcome = parse(text, request.output.schema, finish=reply.finish, reasoning=reply.reasoning)
    if isinstance(outcome, Parsed):
        return Accept(outcome.value, outcome.truncated, outcome.repairs)
    if outcome.kind is FailureKind.EMPTY:
        outcome = _blank(reply)
    return _next(outcome, text, request, attempt, max_reasks)


def judge_text(reply: ModelReply, request: ModelRequest, attempt: int, max_reasks: int = 1) -> Accept | Reask | Fail:
    """Decide what becomes of a reply to a request for plain text.

    Any visible text is taken, marked ``truncated`` if the reply was cut. A reply without text, or with reasoning only,
    is asked for again. Arguments and result as for :func:`judge`.
    """
    if reply.finish is FinishReason.CONTENT_FILTER:
        refused = ParseFailure(FailureKind.REFUSED, "the provider's content filter stopped the reply")
        return _next(refused, reply.text, request, attempt, max_reasks)
    visible, thoughts = split_thinking(reply.text)
    if not is_blank(visible):
        return Accept({}, reply.finish is FinishReason.LENGTH, text=visible.strip())
    if is_blank(thoughts or reply.reasoning):
        failure = _blank(reply)
    else:
        failure = ParseFailure(FailureKind.REASONING_ONLY, "the reply has reasoning and no answer")
    return _next(failure, reply.text, request, attempt, max_reasks)


def _blank(reply: ModelReply) -> ParseFailure:
    """What became of a reply without text: many servers keep the thoughts to themselves and only count them."""
    tokens = 0 if reply.usage is None else reply.usage.reasoning
    cut = reply.finish is FinishReason.LENGTH
    if tokens > 0:
        where = "it was cut by the output cap" if cut else "nothing else came"
        return ParseFailure(FailureKind.REASONING_ONLY, f"the reply is {tokens:,} tokens of reasoning and {where}")
    if cut:
        why = "the output cap was used up and no text came, so the model was probably reasoning"
        return ParseFailure(FailureKind.REASONING_ONLY, why)
    return ParseFailure(FailureKind.EMPTY, "the reply is empty")


def reask_overhead(request: ModelRequest) -> int:
    """Most bytes that a re-ask adds to the text of a request, known before the run: its note, and the fields.

    One byte is at most one token. The bytes go into the last user message; if the last message is not the user's, one
    is added, which costs the template's overhead once more.
    """
    problem, quote = "x" * PROBLEM_BYTES, "x" * QUOTE_BYTES
    return max(len(_note(kind, problem, quote, request).encode()) for kind in _AGAIN)


def clip(text: str, limit: int) -> str:
    """The text on one line in at most ``limit`` bytes of UTF-8, with a visible mark where it was cut.

    Args:
        text: Any text; characters that have no UTF-8 become question marks.
        limit: Bytes, at least 48.
    """
    data = " ".join(text.split()).encode("utf-8", "replace")
    if len(data) <= limit:
        return data.decode()
    head = data[: limit - _MARK_BYTES].decode("utf-8", "ignore")
    return f"{head} [... {len(data) - len(head.encode())} bytes left out]"


def _answer_text(reply: ModelReply, output: OutputSchema) -> str:
    """Where the answer stands: in the arguments of the tool that has the output's name, or in the text."""
    arguments = [call.arguments for call in reply.tool_calls if call.name == output.name]
    return "\n".join(arguments) if arguments else reply.text


def _next(failure: ParseFailure, text: str, request: ModelRequest, attempt: int, max_reasks: int) -> Reask | Fail:
    if failure.kind in _AGAIN and attempt <= max_reasks:
        note = _note(failure.kind, clip(failure.message, PROBLEM_BYTES), clip(text, QUOTE_BYTES), request)
        return Reask(replace(request, messages=_appended(request.messages, note)), failure)
    name = f'"{request.output.name}"' if request.output else "text"
    where = f" at {clip(failure.path, PROBLEM_BYTES)}" if failure.path != "$" else ""
    error = OutputInvalid(
        f"No usable reply of {request.model} for the output {name}: {clip(failure.message, PROBLEM_BYTES)}{where}",
        value=f"{failure.kind.value} at try {attempt}",
        limit="1 try" if failure.kind not in _AGAIN or max_reasks < 1 else f"{max_reasks + 1} tries",
        advice=_ADVICE.get(failure.kind, _OTHER_ADVICE),
    )
    return Fail(error, failure)


def _note(kind: FailureKind, problem: str, quote: str, request: ModelRequest) -> str:
    """What a re-ask says: the error, the failed reply where it helps, what to do, and the fields."""
    words = max(5, request.max_output_tokens * 2 // 5)  # about 0.75 words a token, less for quotes and brackets
    again = _AGAIN[kind].format(words=words)
    shown = f"\nIt was: {quote}" if kind in _QUOTED and quote else ""
    told = _told(request.output) if request.output else ""
    return f"\n\nYour last reply can't be used: {problem}.{shown}\n{again}{told}"


def _told(output: OutputSchema) -> str:
    """The fields in plain words, for a model that has seen no schema or took no notice of it."""
    return f"\n\nAnswer with one JSON object and nothing else. Its fields: {describe(output.schema)}."


def _appended(messages: Sequence[Message], note: str) -> tuple[Message, ...]:
    """The conversation with a note at the end of the last user message.

    A second user message in a row would be refused by chat templates that want the roles to alternate.
    """
    if messages and messages[-1].role == "user":
        last = messages[-1]
        return (*messages[:-1], replace(last, content=last.content + note))
    return (*messages, Message("user", note.strip()))
