"""Server-sent events, and the reply that their pieces add up to. No I/O: bytes and dicts in, data out."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

from romanesco.models._openai_fields import joined
from romanesco.models._types import FinishReason, Json, ModelReply, Timing, ToolCall, Usage

MAX_EVENT = 16 * 1024 * 1024
"""Bytes of one event; a server that sends more without an end of line is not speaking the protocol."""

_FINISH = {
    "stop": FinishReason.STOP,
    "eos": FinishReason.STOP,
    "end_turn": FinishReason.STOP,
    "stop_sequence": FinishReason.STOP,
    "length": FinishReason.LENGTH,
    "max_tokens": FinishReason.LENGTH,
    "tool_calls": FinishReason.TOOL_CALLS,
    "tool_use": FinishReason.TOOL_CALLS,
    "function_call": FinishReason.TOOL_CALLS,
    "content_filter": FinishReason.CONTENT_FILTER,
    "safety": FinishReason.CONTENT_FILTER,
    "refusal": FinishReason.CONTENT_FILTER,
}
_OWN_FIELDS = frozenset({"role", "content", "tool_calls"})
_REASONING = ("reasoning_content", "reasoning")
_BIGGEST_COUNT = 10**12
"""Tokens of one call that are believed; a larger report says nothing."""

MAX_DEPTH = 100
"""Lists and objects inside each other; whatever walks through a reply by recursion stays far from its limit."""

BYTES_A_TOKEN = 32
SPARE_BYTES = 4096
"""What is kept of an answer: so many bytes for each token of the cap, and so many more. Tokenizers put 3 to 10 bytes
into a token, in any script; only long runs of one character have more. A longer answer ignores its cap and may never
end."""

SPARE_REASONING = 1024 * 1024
"""As ``SPARE_BYTES``, of reasoning: some servers have a cap of its own for it, and the answer behind it is paid too."""


class ProtocolError(ValueError):
    """The bytes are not a chat completion; the text says why, without quoting them."""


class EventStream:
    """Splits a byte stream into the data of its events.

    Works on bytes, so a character cut in two by the network is never decoded in halves. Comments (the
    keep-alives of some gateways) and empty events yield nothing.
    """

    __slots__ = ("_carriage", "_data", "_rest")

    def __init__(self) -> None:
        self._rest = bytearray()  # grows in place: a line may come in very many pieces
        self._data: list[bytes] = []
        self._carriage = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """Data of the events that this chunk completes.

        Raises:
            ProtocolError: An event is larger than ``MAX_EVENT``.
        """
        if self._carriage or b"\r" in chunk:
            chunk = self._line_feeds(chunk)
        self._rest += chunk
        lines: list[bytes] = []
        if b"\n" in chunk:
            lines = bytes(self._rest).split(b"\n")
            self._rest = bytearray(lines.pop())
        if len(self._rest) > MAX_EVENT:
            raise ProtocolError(f"an event is larger than {MAX_EVENT} bytes")
        events: list[bytes] = []
        for line in lines:
            if not line:
                if self._data:
                    events.append(b"\n".join(self._data))
                    self._data = []
            elif line.startswith(b"data:"):
                self._data.append(line[6:] if line[5:6] == b" " else line[5:])
        return events

    def rest(self) -> bytes:
        """Data of the event that was not ended by an empty line, when the stream is over."""
        if self._rest.startswith(b"data:"):
            self._data.append(bytes(self._rest[5:].lstrip(b" ")))
        data, self._data, self._rest = b"\n".join(self._data), [], bytearray()
        return data

    def _line_feeds(self, chunk: bytes) -> bytes:
        # A carriage return alone ends a line too; one at the end of a chunk waits for what follows it.
        if self._carriage:
            chunk = b"\r" + chunk
        self._carriage = chunk.endswith(b"\r")
        if self._carriage:
            chunk = chunk[:-1]
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def parse_json(data: bytes, what: str) -> Any:
    """The JSON value in these bytes. Numbers that are not finite become null: no journal can hold them.

    Raises:
        ProtocolError: They hold none, or an integer of thousands of digits, or one nested deeper than ``MAX_DEPTH``.
    """
    fault = "is not JSON"
    try:
        value = _DECODER.decode(data.decode(json.detect_encoding(data), "surrogatepass"))
    except (ValueError, RecursionError):
        # ValueError covers both broken JSON and broken UTF-8; its text quotes the data, so it is not kept.
        pass
    else:
        if data.count(b"[") + data.count(b"{") <= MAX_DEPTH or not _is_deep(value):
            return value
        fault = f"is nested more than {MAX_DEPTH} deep"
    raise ProtocolError(f"{what} {fault}")


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for outer in level
            if isinstance(outer, list | dict)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
    return any(isinstance(value, list | dict) for value in level)


def _finite(text: str) -> float | None:
    number = float(text)
    return number if math.isfinite(number) else None


_DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=lambda _: None)


class _Call:
    """A tool call under construction."""

    __slots__ = ("arguments", "id", "name")

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.arguments: list[str] = []


class _Room:
    """Keeps so many bytes of text, or all; counts what came."""

    __slots__ = ("full", "left", "received")

    def __init__(self, size: int | None) -> None:
        self.left = size
        self.received = 0
        self.full = False

    def keep(self, text: str) -> str:
        """As much of a text as there is room for."""
        size = len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
        self.received += size
        if self.left is None:
            return text
        if size > self.left:
            self.full = True
            text = text.encode("utf-8", "replace")[: self.left].decode("utf-8", "ignore")
        self.left -= min(size, self.left)
        return text


class ReplyAssembler:
    """Adds up the chunks of a stream, or takes the one object of a reply that was not streamed.

    Args:
        output_tool: Name of the tool whose arguments are the reply's text (the tool rung of structured
            output), or None.
        cap: Most tokens that were asked for, or None. What is longer than any such text is cut and counted.

    Attributes:
        seen_choice: Whether there was a choice at all.
        begun: Whether something that was generated has come.
    """

    def __init__(self, *, output_tool: str | None = None, cap: int | None = None) -> None:
        self._output_tool = output_tool
        self._answer = _Room(None if cap is None else cap * BYTES_A_TOKEN + SPARE_BYTES)
        self._thoughts = _Room(None if cap is None else cap * BYTES_A_TOKEN + SPARE_REASONING)
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._refusal: list[str] = []
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._opaque: dict[str, list[Json]] = {}
        self._finish: str | None = None
        self._usage: Usage | None = None
        self._model = ""
        self.seen_choice = False
        self.begun = False

    @property
    def full(self) -> bool:
        """Whether something was cut; more is not kept either."""
        return self._answer.full or self._thoughts.full

    @property
    def finished(self) -> bool:
        """Whether the model said why it stopped."""
        return self._finish is not None

    def feed(self, payload: Any) -> str | None:
        """Add one chunk or one whole reply.

        Returns:
            The visible text it brought; an empty string if it brought something else that was generated
            (reasoning, a piece of a tool call); None if it brought nothing generated.

        Raises:
            ProtocolError: It is not a chunk of a chat completion.
        """
        if not isinstance(payload, dict):
            raise ProtocolError("a chunk is not an object")
        model = payload.get("model")
        if isinstance(model, str):
            self._model = model
        usage = payload.get("usage")
        if isinstance(usage, dict):
            self._usage = _larger(self._usage, decode_usage(usage))
        choices = payload.get("choices")
        if not choices:
            return None
        if not isinstance(choices, list) or not all(isinstance(choice, dict) for choice in choices):
            raise ProtocolError("'choices' is not a list of objects")
        choice = next((choice for choice in choices if choice.get("index") in (0, None)), None)
        if choice is None:
            return None
        self.seen_choice = True
        finish = choice.get("finish_reason")
        if isinstance(finish, str) and finish:
            self._finish = finish
        delta = choice.get("delta") or choice.get("message")
        if delta is None:
            return None
        if not isinstance(delta, dict):
            raise ProtocolError("'delta' or 'message' is not an object")
        visible = self._delta(delta)
        self.begun = self.begun or visible is not None
        return visible

    def _delta(self, delta: dict[str, Any]) -> str | None:
        visible = ""
        generated = False
        content = delta.get("content")
        if content:
            visible = self._content(content)
            generated = True
        calls = delta.get("tool_calls")
        if calls:
            visible += self._tool_calls(calls)
            generated = True
        texts: dict[str, str] = {}  # some servers send the same reasoning under both names: it came once
        for name, value in delta.items():
            if name in _OWN_FIELDS or value in (None, "", [], {}):
                continue
            if isinstance(value, str) and (name == "refusal" or name in _REASONING):
                if value not in texts:
                    texts[value] = (self._answer if name == "refusal" else self._thoughts).keep(value)
                value = texts[value]
                if name == "refusal":
                    self._refusal.append(value)
            self._opaque.setdefault(name, []).append(value)
            generated = True
        reasoning = next((delta[name] for name in _REASONING if delta.get(name) and isinstance(delta[name], str)), "")
        if reasoning:
            self._reasoning.append(texts[reasoning])
        return visible if generated else None

    def _content(self, content: Any) -> str:
        if isinstance(content, str):
            visible = self._answer.keep(content)
            self._text.append(visible)
            return visible
        # Some providers send typed parts instead of text.
        if not isinstance(content, list):
            raise ProtocolError("'content' is neither text nor a list of parts")
        visible = ""
        for part in content:
            if isinstance(part, dict) and isinstance(part.get("text"), str):
                visible += self._answer.keep(part["text"])
            elif isinstance(part, dict) and isinstance(part.get("thinking"), list):
                thoughts = (str(thought.get("text", "")) for thought in part["thinking"] if isinstance(thought, dict))
                self._reasoning.extend(self._thoughts.keep(thought) for thought in thoughts)
        self._text.append(visible)
        return visible

    def _tool_calls(self, deltas: Any) -> str:
        if not isinstance(deltas, list):
            raise ProtocolError("'tool_calls' is not a list")
        visible = ""
        for delta in deltas:
            function = delta.get("function") if isinstance(delta, dict) else None
            if not isinstance(function, dict):
                continue
            call = self._call_for(delta)
            call.id = call.id or str(delta.get("id") or "")
            name = function.get("name")
            if isinstance(name, str) and name != call.name:
                call.name += self._answer.keep(name)
            arguments = function.get("arguments")
            if arguments is None or arguments == "":
                continue
            text = self._answer.keep(
                arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
            )
            call.arguments.append(text)
            if call.name == self._output_tool and call is self._output_call():
                visible += text
        return visible

    def _call_for(self, delta: dict[str, Any]) -> _Call:
        """The call a delta belongs to: by index, or by id where a server numbers every call 0, or none."""
        index, identity = delta.get("index"), delta.get("id")
        known = self._by_index.get(index) if isinstance(index, int) else (self._calls[-1] if self._calls else None)
        if known is not None and (not identity or not known.id or identity == known.id):
            return known
        call = _Call()
        self._calls.append(call)
        if isinstance(index, int):
            self._by_index[index] = call
        return call

    def _output_call(self) -> _Call | None:
        if self._output_tool is None:
            return None
        return next((call for call in self._calls if call.name == self._output_tool), None)

    def reply(self, timing: Timing) -> ModelReply:
        """The reply as far as it has come."""
        output = self._output_call()
        text = "".join(self._text) if output is None else "".join(output.arguments)
        finish = FinishReason.UNKNOWN if self._finish is None else _FINISH.get(self._finish, FinishReason.UNKNOWN)
        calls = tuple(
            ToolCall(id=call.id or f"call_{number}", name=call.name, arguments="".join(call.arguments))
            for number, call in enumerate(self._calls)
            if call is not output
        )
        if output is not None and not calls and finish is FinishReason.TOOL_CALLS:
            finish = FinishReason.STOP  # the call was the wire's form of the text, not a wish of the model
        if not text and self._refusal:
            text, finish = "".join(self._refusal), FinishReason.CONTENT_FILTER
        if self.full:
            finish = FinishReason.LENGTH
        usage = self._usage
        if usage is not None and usage.output == 0 and (text or calls or self._reasoning):
            usage = replace(usage, estimated=True)
        return ModelReply(
            text=text,
            finish=finish,
            usage=usage,
            model=self._model,
            reasoning="".join(self._reasoning),
            tool_calls=calls,
            opaque={name: joined(pieces) for name, pieces in self._opaque.items()},
            timing=timing,
            received=self._answer.received + self._thoughts.received if self.full else 0,
        )


def decode_usage(data: dict[str, Any]) -> Usage | None:
    """Tokens as reported, or None if there is no count. Where one of the two can't be true, the other is kept.

    The report is then marked as estimated; it is zero where it says nothing, and the runtime takes an upper bound.

    Providers differ in what they leave out of ``prompt_tokens`` and ``completion_tokens`` (cached tokens,
    reasoning); the larger reading is taken, so that no token escapes the account: what ``total_tokens`` has
    beyond the two was generated, and cached tokens beyond the prompt's are added to it.
    """
    read = _count(data.get("prompt_tokens"))
    written = _count(data.get("completion_tokens"))
    if not read and not written:
        return None
    doubtful = not read or written is None
    read, written = read or 0, written or 0
    details_in = data.get("prompt_tokens_details")
    details_out = data.get("completion_tokens_details")
    cached = _count(details_in.get("cached_tokens")) if isinstance(details_in, dict) else None
    if cached is None:
        cached = _count(data.get("prompt_cache_hit_tokens"))
    reasoning = _count(details_out.get("reasoning_tokens")) if isinstance(details_out, dict) else None
    cached, reasoning = cached or 0, reasoning or 0
    if cached > read:
        read += cached
    total = _count(data.get("total_tokens")) or 0
    if written and not read:
        read = max(0, total - written)  # what the total has beyond the output was read
    written = max(written, total - read, reasoning)
    return Usage(
        input=min(read, _BIGGEST_COUNT),
        output=min(written, _BIGGEST_COUNT),
        cached=cached,
        reasoning=reasoning,
        estimated=doubtful,
    )


def _larger(before: Usage | None, usage: Usage | None) -> Usage | None:
    """What a stream has reported when another report comes: the larger of each; in doubt unless one report is both."""
    if usage is None or before is None:
        return usage or before
    read = max(usage, before, key=lambda one: one.input)  # of equals the later
    wrote = max(usage, before, key=lambda one: one.output)
    doubtful = all(one.estimated for one in (before, usage) if (one.input, one.output) == (read.input, wrote.output))
    return Usage(read.input, wrote.output, cached=read.cached, reasoning=wrote.reasoning, estimated=doubtful)


def _count(value: Any) -> int | None:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _BIGGEST_COUNT:
        return None
    return value
