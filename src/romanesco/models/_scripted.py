"""A model that answers what a script says: for tests, examples and benchmarks, without a server."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from romanesco.errors import ConfigError, ContextOverflow
from romanesco.models._context import CallContext, current_call
from romanesco.models._instance import minimal_instance
from romanesco.models._types import (
    Capabilities,
    FinishReason,
    ModelReply,
    ModelRequest,
    TokenCount,
    Usage,
)

Answer = Any
"""Text, a dict (sent as JSON), a :class:`ModelReply`, an exception to raise, or a function of the request that
gives one of these or an awaitable of one."""

Predicate = Callable[[ModelRequest], bool]
UsageOf = Callable[[ModelRequest, str], Usage | None]

_SHOWN = 120
_USED_UP = object()


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of a script: which calls it matches and what they get. Made by ``by_role``, ``by_key``, ``when``.

    Attributes:
        label: The rule in words, for error messages.
        matches: Whether a call is one of this rule's.
        answer: What it gets. A list is used up in order; when it is empty, the rule matches no more.
    """

    label: str
    matches: Callable[[ModelRequest, CallContext | None], bool]
    answer: Answer


@dataclass(frozen=True, slots=True)
class ScriptedCall:
    """One recorded call: the request, and where in the run it came from (None outside a run)."""

    request: ModelRequest
    context: CallContext | None


def by_role(role: str, answer: Answer) -> Rule:
    """A rule for the calls of one role."""
    return Rule(f"role {role!r}", lambda _request, context: context is not None and context.role == role, answer)


def by_key(pattern: str, answer: Answer) -> Rule:
    """A rule for the calls whose key matches a shell-style pattern, for example ``blind/1/*``."""
    return Rule(
        f"key {pattern!r}",
        lambda _request, context: context is not None and fnmatchcase(context.key, pattern),
        answer,
    )


def when(predicate: Predicate, answer: Answer, *, label: str = "") -> Rule:
    """A rule for the requests that a predicate accepts; ``label`` names it in error messages."""
    name = label or getattr(predicate, "__name__", "predicate")
    return Rule(f"when {name}", lambda request, _context: predicate(request), answer)


def tokens_of(text: str) -> int:
    """Tokens of a text as the scripted model counts them: UTF-8 bytes / 4, rounded up."""
    size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    return -(-size // 4)


def prompt_tokens(request: ModelRequest) -> int:
    """Input tokens of a request as the scripted model counts them: the contents and tool calls of its messages."""
    size = 0
    for message in request.messages:
        text = message.content
        size += len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
        for call in message.tool_calls:
            size += len(call.name) + len(call.arguments.encode("utf-8", "surrogatepass"))
    return -(-size // 4)


def byte_usage(request: ModelRequest, text: str) -> Usage:
    """The usage that the scripted model reports: see :func:`tokens_of`."""
    return Usage(input=prompt_tokens(request), output=tokens_of(text))


def render(request: ModelRequest) -> str:
    """Everything of a request that a model would read, as one text: for assertions on who sees what."""
    lines: list[str] = []
    for message in request.messages:
        lines.append(f"[{message.role}]\n{message.content}")
        lines.extend(f"[call {call.name}]\n{call.arguments}" for call in message.tool_calls)
    lines.extend(f"[tool {tool.name}]\n{tool.description}\n{json.dumps(tool.parameters)}" for tool in request.tools)
    if request.output is not None:
        lines.append(f"[output {request.output.name}]\n{json.dumps(request.output.schema, ensure_ascii=False)}")
    return "\n".join(lines)


class ScriptedModel:
    """A :class:`ChatModel` that answers from a script and records everything it was asked.

    Args:
        replies: The script. One of

            - a sequence of rules (``by_role``, ``by_key``, ``when``) and plain answers: rules are tried in order
              first, then the plain answers are used up in order;
            - a mapping from a role or a key pattern to an answer, tried in order;
            - a function of the request, asked for every call;
            - one answer for every call: text, a ``ModelReply`` or an exception (for one dict use ``default``).
        name: ``provider:model`` name that the runtime looks it up by.
        default: Answer for calls that nothing else matches.
        auto: Answer calls that nothing else matches with the smallest value that fits the requested schema,
            or with ``ok`` where plain text is asked for.
        window: Context window in tokens; a longer prompt raises ``ContextOverflow``. None: no limit.
        latency: Seconds that each call takes, or a function of the request that gives them.
        usage: What is reported as used, given the request and the reply's text; None reports no usage. It is not
            asked for answers that are a ``ModelReply``.

    A text or dict longer than the request's ``max_output_tokens`` is cut there and ends with ``FinishReason.LENGTH``,
    as a server would do; a ``ModelReply`` is passed on as it is. Thread-safe.
    """

    endpoint = "scripted"

    def __init__(
        self,
        replies: Any = (),
        *,
        name: str = "scripted:test",
        default: Answer = None,
        auto: bool = False,
        window: int | None = None,
        latency: float | Callable[[ModelRequest], float] = 0.0,
        usage: UsageOf | None = byte_usage,
    ) -> None:
        self.name = name
        self.calls: list[ScriptedCall] = []
        self.in_flight = 0
        self.max_in_flight = 0
        self.closed = False
        self._always: Answer = None
        self._rules: list[Rule] = []
        self._ordered: list[Answer] = []
        self._default = default
        self._auto = auto
        self._window = window
        self._latency = latency
        self._usage = usage
        self._lock = threading.Lock()
        self._read(replies)

    def _read(self, replies: Any) -> None:
        if isinstance(replies, Mapping):
            self._rules = [_role_or_key(pattern, answer) for pattern, answer in replies.items()]
        elif isinstance(replies, Rule):
            self._rules = [_own(replies)]
        elif isinstance(replies, Sequence) and not isinstance(replies, str):
            self._rules = [_own(one) for one in replies if isinstance(one, Rule)]
            self._ordered = [one for one in replies if not isinstance(one, Rule)]
        elif replies is not None:
            self._always = replies

    @property
    def requests(self) -> list[ModelRequest]:
        """Every request so far, in order of arrival."""
        return [call.request for call in self.calls]

    @property
    def prompts(self) -> list[str]:
        """Everything that was sent, a text for each request: see :func:`render`."""
        return [render(call.request) for call in self.calls]

    async def complete(self, request: ModelRequest, *, on_token: Callable[[str], None] | None = None) -> ModelReply:
        """Answer from the script.

        Raises:
            ConfigError: Nothing in the script matches the request; the message lists what was tried.
            ContextOverflow: The prompt is larger than ``window``.
            Exception: Whatever the script says.
        """
        context = current_call.get()
        with self._lock:
            self.calls.append(ScriptedCall(request, context))
            self.in_flight += 1
            self.max_in_flight = max(self.max_in_flight, self.in_flight)
        try:
            seconds = self._latency(request) if callable(self._latency) else self._latency
            if seconds > 0:
                await asyncio.sleep(seconds)
            if self._window is not None:
                self._check_window(request)
            answer = self._pick(request, context)
            while callable(answer) and not isinstance(answer, type):
                answer = answer(request)
                if isinstance(answer, Awaitable):
                    answer = await answer
            reply = self._reply(request, answer)
        finally:
            with self._lock:
                self.in_flight -= 1
        if on_token is not None and reply.text:
            on_token(reply.text)
        return reply

    async def count(self, request: ModelRequest) -> TokenCount:
        """Count the input tokens exactly as the reported usage does."""
        return TokenCount(tokens=prompt_tokens(request), exact=True)

    async def capabilities(self) -> Capabilities:
        """What it can do: schemas and tools, exact counts, no grammar."""
        return Capabilities(window=self._window, tokenizer=True, template_overhead=0)

    async def close(self) -> None:
        """Mark it closed; it still answers."""
        self.closed = True

    def _pick(self, request: ModelRequest, context: CallContext | None) -> Answer:
        if self._always is not None:
            return self._always
        for rule in self._rules:
            if rule.answer == [] or not rule.matches(request, context):
                continue
            if not isinstance(rule.answer, list):
                return rule.answer
            answer = self._next(rule.answer)
            if answer is not _USED_UP:
                return answer
        answer = self._next(self._ordered) if self._ordered else _USED_UP
        if answer is not _USED_UP:
            return answer
        if self._default is not None:
            return self._default
        if self._auto:
            return "ok" if request.output is None else minimal_instance(request.output.schema)
        raise self._unmatched(request, context)

    def _next(self, answers: list[Answer]) -> Answer:
        with self._lock:
            return answers.pop(0) if answers else _USED_UP

    def _unmatched(self, request: ModelRequest, context: CallContext | None) -> ConfigError:
        where = f"role {context.role!r}, key {context.key!r}" if context else "a call outside a run"
        start = " ".join(request.messages[-1].content.split())[:_SHOWN] if request.messages else ""
        tried = [rule.label + (" (used up)" if rule.answer == [] else "") for rule in self._rules]
        return ConfigError(
            f"The scripted model {self.name} has no answer for {where}, call {len(self.calls)}, "
            f"whose last message starts with {start!r}",
            limit=f"the script: {', '.join(tried) or 'no rules'}; no answers in order are left",
            advice="Add a rule, more answers, default=... or auto=True.",
        )

    def _check_window(self, request: ModelRequest) -> None:
        size = prompt_tokens(request)
        if self._window is not None and size > self._window:
            raise ContextOverflow(
                f"The prompt is larger than the window of {self.name}",
                value=f"{size} tokens",
                limit=f"{self._window} tokens",
                advice="Shorten the prompt or choose a model with a larger window.",
            )

    def _reply(self, request: ModelRequest, answer: Answer) -> ModelReply:
        if isinstance(answer, str):
            text = answer
        elif isinstance(answer, ModelReply):
            return answer
        elif isinstance(answer, BaseException):
            raise answer.with_traceback(None)  # one object may be raised many times: it must not collect traces
        elif isinstance(answer, type) and issubclass(answer, BaseException):
            raise answer
        elif isinstance(answer, dict | list):
            text = json.dumps(answer, ensure_ascii=False)
        else:
            raise ConfigError(
                f"The script of {self.name} gave something that is no answer",
                value=type(answer).__name__,
                advice="Use text, a dict, a ModelReply, an exception or a function that gives one of these.",
            )
        finish = FinishReason.STOP
        if tokens_of(text) > request.max_output_tokens:
            text = _cut(text, request.max_output_tokens)
            finish = FinishReason.LENGTH
        usage = self._usage(request, text) if self._usage is not None else None
        return ModelReply(text=text, finish=finish, usage=usage, model=self.name)


def _cut(text: str, tokens: int) -> str:
    return text.encode("utf-8", "surrogatepass")[: 4 * max(0, tokens)].decode("utf-8", "ignore")


def _own(rule: Rule) -> Rule:
    # A list of answers is used up: each model keeps its own copy, so that a script can be shared.
    return Rule(rule.label, rule.matches, list(rule.answer)) if isinstance(rule.answer, list | tuple) else rule


def _role_or_key(pattern: str, answer: Answer) -> Rule:
    def matches(_request: ModelRequest, context: CallContext | None) -> bool:
        return context is not None and (context.role == pattern or fnmatchcase(context.key, pattern))

    return _own(Rule(f"role or key {pattern!r}", matches, answer))
