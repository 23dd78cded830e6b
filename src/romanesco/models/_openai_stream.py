"""Server-sent events, and the reply that their pieces add up to. No I/O: bytes and dicts in, data out."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

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
_APPENDED = frozenset({"text", "summary", "data"})
_BIGGEST_COUNT = 10**12
"""Tokens of one call that are believed; a larger report counts as this many, and so as an overrun."""


class ProtocolError(ValueError):
    """The bytes are not a chat completion; the text says why, without quoting them."""


class EventStream:
    """Splits a byte stream into the data of its events.

    Works on bytes, so a character cut in two by the network is never decoded in halves. Comments (the
    keep-alives of some gateways) and empty events yield nothing.
    """

    __slots__ = ("_carriage", "_data", "_rest")

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []
        self._carriage = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """Data of the events that this chunk completes.

        Raises:
            ProtocolError: An event is larger than ``MAX_EVENT``.
        """
        if self._carriage or b"\r" in chunk:
            chunk = self._line_feeds(chunk)
        lines = (self._rest + chunk).split(b"\n")
        self._rest = lines.pop()
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
            self._data.append(self._rest[5:].lstrip(b" "))
        data, self._data, self._rest = b"\n".join(self._data), [], b""
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
        ProtocolError: They hold none, or an integer of thousands of digits.
    """
    try:
        return _DECODER.decode(data.decode(json.detect_encoding(data), "surrogatepass"))
    except (ValueError, RecursionError):
        # ValueError covers both broken JSON and broken UTF-8; its text quotes the data, so it is not kept.
        pass
    raise ProtocolError(f"{what} is not JSON")


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


class ReplyAssembler:
    """Adds up the chunks of a stream, or takes the one object of a reply that was not streamed.

    Args:
        output_tool: Name of the tool whose arguments are the reply's text (the tool rung of structured
            output), or None.
    """

    def __init__(self, *, output_tool: str | None = None) -> None:
        self._output_tool = output_tool
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._refusal: list[str] = []
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._opaque: dict[str, Json] = {}
        self._finish: str | None = None
        self._usage: Usage | None = None
        self._model = ""
        self.seen_choice = False
        self.begun = False

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
            self._usage = _later(self._usage, decode_usage(usage))
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
        for name, value in delta.items():
            if name in _OWN_FIELDS or value in (None, "", [], {}):
                continue
            if name == "refusal" and isinstance(value, str):
                self._refusal.append(value)
            self._opaque[name] = merge(self._opaque[name], value) if name in self._opaque else value
            generated = True
        reasoning = next((delta[name] for name in _REASONING if isinstance(delta.get(name), str)), "")
        if reasoning:
            self._reasoning.append(reasoning)
        return visible if generated else None

    def _content(self, content: Any) -> str:
        if isinstance(content, str):
            self._text.append(content)
            return content
        # Some providers send typed parts instead of text.
        if not isinstance(content, list):
            raise ProtocolError("'content' is neither text nor a list of parts")
        visible = ""
        for part in content:
            if isinstance(part, dict) and isinstance(part.get("text"), str):
                visible += part["text"]
            elif isinstance(part, dict) and isinstance(part.get("thinking"), list):
                self._reasoning.extend(str(p.get("text", "")) for p in part["thinking"] if isinstance(p, dict))
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
                call.name += name
            arguments = function.get("arguments")
            if arguments is None or arguments == "":
                continue
            text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
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
            opaque=self._opaque,
            timing=timing,
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


def _later(before: Usage | None, usage: Usage | None) -> Usage | None:
    """What a stream has reported when another report comes: the last, or the larger where the last is in doubt."""
    if usage is None or before is None:
        return usage or before
    if not usage.estimated:
        return usage
    return replace(usage, input=max(before.input, usage.input), output=max(before.output, usage.output))


def _count(value: Any) -> int | None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        return None
    return min(value, _BIGGEST_COUNT)


def merge(old: Json, new: Json) -> Json:
    """Two pieces of a provider's field as one: text is joined, lists by ``index`` or end to end."""
    if isinstance(old, str) and isinstance(new, str):
        return old + new
    if isinstance(old, dict) and isinstance(new, dict):
        merged = dict(old)
        for name, value in new.items():
            if value is not None:
                merged[name] = old[name] + value if _joins(name, old.get(name), value) else value
        return merged
    if not (isinstance(old, list) and isinstance(new, list)):
        return new
    result = list(old)
    places = {item["index"]: i for i, item in enumerate(result) if isinstance(item, dict) and "index" in item}
    for item in new:
        place = places.get(item.get("index")) if isinstance(item, dict) else None
        if place is None:
            result.append(item)
        else:
            result[place] = merge(result[place], item)
    return result


def _joins(name: str, old: Json, new: Json) -> bool:
    return name in _APPENDED and isinstance(old, str) and isinstance(new, str)
