"""What the fake server does with which request: a scenario of rules, from Python or from a JSON file."""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from romanesco.models._types import Json, ToolCall
from romanesco.testing._fake_server_reply import FakeReply, Fault, prompt_text

T = TypeVar("T")

_AUTO = FakeReply()


class Bucket:
    """A token bucket: how a server counts requests a second.

    Args:
        rate: Requests a second that it fills up by.
        burst: Requests that it holds, and begins with.
    """

    def __init__(self, rate: float, burst: int) -> None:
        self._rate = rate
        self._burst = float(burst)
        self._level = float(burst)
        self._filled: float | None = None

    def take(self, now: float) -> float:
        """Let one request through; gives 0, or the seconds until there is room for it."""
        since = 0.0 if self._filled is None else now - self._filled
        self._level = min(self._burst, self._level + since * self._rate)
        self._filled = now
        if self._level >= 1:
            self._level -= 1
            return 0.0
        return (1 - self._level) / self._rate


@dataclass(frozen=True, slots=True)
class Rule:
    """An answer for the requests that it matches. The first rule that matches answers.

    Attributes:
        match: Text that must occur in the prompt; empty matches every prompt.
        role: Only messages of this role are searched; None searches all.
        key: Value of the ``X-Romanesco-Key`` header that is wanted; None takes any.
        calls: Only these requests among those whose prompt and key fit, counted from 0 in order of arrival; None
            takes all.
        attempts: Only these among identical requests (same body and key), counted from 0; None takes all. "Fail
            the first attempt, answer the second" is ``attempts=(0,)`` on the rule that fails.
        reply: The answer.
    """

    match: str = ""
    role: str | None = None
    key: str | None = None
    calls: tuple[int, ...] | None = None
    attempts: tuple[int, ...] | None = None
    reply: FakeReply = _AUTO

    def fits(self, body: dict[str, Any], key: str) -> bool:
        """Whether the request is of this rule's kind, its number aside."""
        if self.key is not None and key != self.key:
            return False
        if not self.match:
            return True
        if self.role is None:
            return self.match in prompt_text(body)
        mine = [message for message in body.get("messages", ()) if message.get("role") == self.role]
        return self.match in prompt_text({"messages": mine})


@dataclass(frozen=True, slots=True)
class Scenario:
    """A server's whole behaviour.

    Attributes:
        model: Name of the model it lists and gives back.
        seed: Seed of log-normal latencies.
        rules: Answers by request, the first that fits; then the default.
        default: Answer to a request that no rule fits.
        context_limit: Window in tokens; prompt and cap beyond it are refused with 400. None has no limit.
        rate_limit: Requests a second that are answered, the rest with 429 and the seconds to wait. None has none.
        burst: Requests that ``rate_limit`` lets through at once.
        barrier: No reply is sent before so many requests are in flight, or ``FakeServer.open_barrier`` is called;
            opens once. 0 has none.
        require_reasoning: Refuse assistant messages that came with reasoning and lack it now.
        reject: Request fields that are refused with a 400 that names them.
        api_key: Key that is wanted; others get a 401 that echoes theirs. None takes any.
        flavour: Which server it resembles in its lists, properties and token counts.
        embedding_size: Numbers in a vector of ``/v1/embeddings``.
    """

    model: str = "fake"
    seed: int = 0
    rules: tuple[Rule, ...] = ()
    default: FakeReply = _AUTO
    context_limit: int | None = None
    rate_limit: float | None = None
    burst: int = 1
    barrier: int = 0
    require_reasoning: bool = False
    reject: frozenset[str] = frozenset()
    api_key: str | None = None
    flavour: Literal["openai", "llamacpp", "vllm"] = "openai"
    embedding_size: int = 32

    @classmethod
    def from_json(cls, data: dict[str, Json]) -> Scenario:
        """A scenario from JSON: the same names as the attributes, sequences as lists.

        A reply may be written as its text alone, and ``"auto"`` is a reply without text.

        Raises:
            ValueError: A name or a value is not one of these.
        """
        fields = dict(data)
        if "rules" in fields:
            fields["rules"] = tuple(_rule(rule) for rule in fields["rules"])
        if "default" in fields:
            fields["default"] = reply_from_json(fields["default"])
        if "reject" in fields:
            fields["reject"] = frozenset(fields["reject"])
        return _build(cls, fields)


def _rule(data: dict[str, Json]) -> Rule:
    fields = dict(data)
    for name in ("calls", "attempts"):
        if fields.get(name) is not None:
            fields[name] = tuple(fields[name])
    fault = fields.pop("fault", None)
    reply = reply_from_json(fields.pop("reply", "auto"))
    if fault is not None:
        reply = dataclasses.replace(reply, fault=_build(Fault, fault))
    return _build(Rule, {**fields, "reply": reply})


def reply_from_json(data: Json) -> FakeReply:
    """A reply from JSON: an object with the attributes of ``FakeReply``, its text alone, or ``auto``.

    Raises:
        ValueError: A name is not one of its attributes.
    """
    if isinstance(data, str):
        return FakeReply(text=None if data == "auto" else data)
    fields = dict(data)
    if fields.get("text") == "auto":
        fields["text"] = None
    if "fault" in fields:
        fields["fault"] = _build(Fault, fields["fault"])
    if "tool_calls" in fields:
        fields["tool_calls"] = tuple(_build(ToolCall, call) for call in fields["tool_calls"])
    return _build(FakeReply, fields)


def _build(kind: type[T], fields: dict[str, Json]) -> T:
    names = {known.name for known in dataclasses.fields(kind)}  # type: ignore[arg-type]  # only dataclasses come here
    unknown = sorted(fields.keys() - names)
    if unknown:
        raise ValueError(f"{kind.__name__} has no {', '.join(unknown)}; it has {', '.join(sorted(names))}")
    if isinstance(fields.get("stall"), str):
        fields = {**fields, "stall": float(fields["stall"])}  # JSON has no infinity: "inf"
    return kind(**fields)


@dataclass(slots=True)
class Matcher:
    """Finds the answer to each request, counting as it goes."""

    scenario: Scenario
    _calls: Counter[int] = field(default_factory=Counter)
    _attempts: Counter[tuple[str, str]] = field(default_factory=Counter)

    def reply(self, body: dict[str, Any], key: str, digest: str) -> FakeReply:
        """The answer to a request that has just arrived."""
        attempt = self._attempts[digest, key]
        self._attempts[digest, key] += 1
        for place, rule in enumerate(self.scenario.rules):
            if not rule.fits(body, key):
                continue
            call = self._calls[place]
            self._calls[place] += 1
            if rule.calls is not None and call not in rule.calls:
                continue
            if rule.attempts is None or attempt in rule.attempts:
                return rule.reply
        return self.scenario.default
