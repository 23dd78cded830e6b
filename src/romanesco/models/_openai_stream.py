"""The reply that the pieces of a stream, or of a whole body, add up to. No I/O: dicts in, data out."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from romanesco.models._openai_events import ProtocolError
from romanesco.models._openai_fields import joined
from romanesco.models._openai_usage import decode_usage, larger
from romanesco.models._types import FinishReason, Json, ModelReply, Timing, ToolCall, Usage

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

BYTES_A_TOKEN = 32
SPARE_BYTES = 4096
"""What is kept of an answer: so many bytes for each token of the cap, and so many more. Tokenizers put 3 to 10 bytes
into a token, in any script; only long runs of one character have more. A longer answer ignores its cap and may never
end."""

SPARE_REASONING = 1024 * 1024
"""As ``SPARE_BYTES``, of reasoning: some servers have a cap of its own for it, and the answer behind it is paid too."""


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
            self._usage = larger(self._usage, decode_usage(usage))
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
