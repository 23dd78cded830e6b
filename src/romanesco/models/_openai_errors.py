"""From a server's refusal to one of our errors. Pure functions; nothing here does I/O.

Providers agree on the status codes and on little else, so the text of the body decides what the status
leaves open: whether a 400 means that the prompt is too long, and whether a 429 can ever pass.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from romanesco.errors import (
    ContextOverflow,
    KeyMissing,
    ModelError,
    RateLimited,
    ReplyUnreadable,
    RequestRejected,
    ServerFault,
)
from romanesco.models._openai_secrets import MARK, forms, without, without_parts

EXCERPT = 300
"""Characters of a server's own words that are quoted in an error."""

_OVERFLOW_CODES = frozenset({"context_length_exceeded", "exceed_context_size_error", "string_above_max_length"})

# One alternative for each family of wording: OpenAI, vLLM, DeepSeek, OpenRouter | llama.cpp | Anthropic |
# Google | Mistral | TGI, Together | SGLang, LM Studio, Ollama | xAI | Bedrock | Groq | Cohere.
_OVERFLOW = re.compile(
    r"maximum (?:context|model|sequence) length"
    r"|exceeds? the (?:available )?(?:context (?:size|length|window)|model'?s? (?:maximum )?context)"
    r"|prompt is too long"
    r"|input token count.{0,40}exceeds the maximum"
    r"|too large for model with \d+ maximum context"
    r"|`?inputs`? (?:tokens \+ `?max_new_tokens`? )?must (?:be <=|have less than)"
    r"|longer than the (?:model'?s? )?(?:maximum )?(?:context|model) length"
    r"|context (?:length|window|size) (?:is )?(?:exceeded|of only)"
    r"|maximum prompt length is \d+"
    r"|input is too long for"
    r"|reduce the length of the messages"
    r"|too many tokens: ",
    re.IGNORECASE,
)
_NEVER_PASSES = re.compile(r"insufficient_quota|exceeded your current quota|billing|credit balance", re.IGNORECASE)
_TRY_AGAIN = re.compile(r"(?:try again|retry) in (\d+(?:\.\d+)?) ?(ms|s)\b", re.IGNORECASE)
_KEY_LIKE = re.compile(r"\b(?:sk|pk|gsk|xai|key)-[\w*.\-]{6,}|\bBearer\s+\S+", re.IGNORECASE)
_UNSUPPORTED = re.compile(
    r"unsupported|unrecogni[sz]ed|unknown|unexpected|not (?:be )?(?:supported|permitted|allowed|accepted)"
    r"|extra.{0,12}forbidden|extra inputs|does not support|additional propert"
    r"|invalid (?:parameter|argument|field)",
    re.IGNORECASE,
)
_STATUS_OF_TYPE = (
    ("rate", 429),
    ("auth", 401),
    ("api_key", 401),
    ("permission", 403),
    ("not_found", 404),
    ("invalid_request", 400),
    ("badrequest", 400),
)


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer that is not a reply: the HTTP status, the headers (lower case) and the start of the body."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes = field(default=b"", repr=False)  # some servers echo the key: traces with variables show no repr


@dataclass(frozen=True, slots=True)
class Caller:
    """Whose request was refused: for messages only.

    Attributes:
        name: ``provider:model``.
        endpoint: The address, without secrets.
        key_variable: The environment variable that the key is expected in.
        secrets: Strings that must never appear in a message, in no form that a server may echo them in.
    """

    name: str
    endpoint: str
    key_variable: str
    secrets: tuple[str, ...] = field(default=(), repr=False)

    def clean(self, text: str) -> str:
        """The text on one line, cut to ``EXCERPT`` characters, without secrets or anything like a key."""
        secrets = forms(self.secrets)
        text = without(text, secrets)
        for secret in secrets:
            if len(secret) >= 12:  # providers echo keys in part ("sk-ab***yz"): what begins like the key goes too
                text = re.sub(re.escape(secret[:8]) + r"\S*", MARK, text)
        text = _KEY_LIKE.sub(MARK, without_parts(text, secrets))
        text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
        return text if len(text) <= EXCERPT else text[: EXCERPT - 1] + "…"


def parse_error(body: bytes) -> tuple[str, str, str]:
    """Message, code-or-type and parameter of an error body, whatever the provider's shape.

    Text that is not JSON is returned as the message, with tags removed.
    """
    try:
        data: Any = json.loads(body)
    except (ValueError, RecursionError):
        text = body.decode("utf-8", "replace")
        return re.sub(r"<(style|script).*?</\1>|<[^>]*>", " ", text, flags=re.DOTALL), "", ""
    if isinstance(data, list) and data:  # Google wraps the object in a list
        data = data[0]
    if not isinstance(data, dict):
        return str(data), "", ""
    error = data.get("error", data)
    if not isinstance(error, dict):
        return str(error), str(data.get("code") or data.get("type") or ""), ""
    message = error.get("message") or error.get("detail") or data.get("message") or data.get("detail") or ""
    if not isinstance(message, str):
        message = json.dumps(message, ensure_ascii=False)
    kinds = [str(error[k]) for k in ("code", "type", "status") if error.get(k) not in (None, "")]
    return message or json.dumps(error, ensure_ascii=False), " ".join(kinds), str(error.get("param") or "")


def is_overflow(message: str, kind: str) -> bool:
    """Whether an error says that the prompt (with the cap on output) is larger than the window."""
    return any(code in kind for code in _OVERFLOW_CODES) or _OVERFLOW.search(message) is not None


def names_unsupported(refusal: Refusal, parameter: str) -> bool:
    """Whether a 400 or 422 says that this request parameter is not supported."""
    if refusal.status not in (400, 422):
        return False
    message, kind, named = parse_error(refusal.body)
    if is_overflow(message, kind):
        return False
    if named == parameter:
        return _UNSUPPORTED.search(f"{message} {kind}") is not None
    first = re.search(rf"\b{parameter}\b", message)
    return first is not None and _UNSUPPORTED.search(message) is not None


def retry_after(headers: Mapping[str, str], message: str = "", *, now: datetime | None = None) -> float | None:
    """Seconds that the server asks to wait, or None if it does not say.

    Looks at ``retry-after-ms``, then ``retry-after`` (seconds or an HTTP date, compared with the server's own
    ``date`` where it sends one, because clocks differ), then at "try again in 1.5s" in the message.

    Args:
        headers: Response headers, names in lower case.
        message: The error's text.
        now: What an HTTP date is compared with if the server sends no ``date``; the clock by default.
    """
    milliseconds = _seconds(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    seconds = _seconds(value)
    if seconds is not None:
        return seconds
    when = _date(value)
    if when is not None:
        base = _date(headers.get("date")) or now or datetime.now(UTC)
        return max(0.0, (when - base).total_seconds())
    found = _TRY_AGAIN.search(message)
    if found is None:
        return None
    wait = _seconds(found[1])
    return None if wait is None else wait / (1000 if found[2].lower() == "ms" else 1)


def _seconds(value: str | None) -> float | None:
    try:
        seconds = float(value) if value is not None else -1.0
    except ValueError:
        return None
    return seconds if 0 <= seconds < float("inf") else None


def _date(value: str | None) -> datetime | None:
    if not value:
        return None
    try:
        when = parsedate_to_datetime(value)
    except ValueError:
        return None
    return when if when.tzinfo else when.replace(tzinfo=UTC)


def error_from(refusal: Refusal, caller: Caller) -> ModelError:
    """The error that a refused request becomes.

    401 and 403 are KeyMissing; 429 is RateLimited unless the account is out of credit; a context error of any
    known wording is ContextOverflow, whatever its status; 408 and 5xx are ServerFault; a success other than 200
    is ReplyUnreadable, as the work may have been done and be charged; every other status is RequestRejected.
    """
    if 200 <= refusal.status < 300:
        return unreadable(caller, f"HTTP status {refusal.status}", refusal.body)
    message, kind, _ = parse_error(refusal.body)
    words = caller.clean(message) or "no message"
    status = refusal.status
    heading = f"{caller.name} answered {status}: {words}"
    if status in (401, 403):
        return KeyMissing(
            heading,
            advice=f"Check that {caller.key_variable} holds a valid key for {caller.endpoint} "
            "and that the key may use this model.",
        )
    if status == 429:
        if _NEVER_PASSES.search(f"{message} {kind}"):
            return RequestRejected(heading, advice="The account is out of credit: waiting will not help.")
        return RateLimited(
            heading,
            retry_after=retry_after(refusal.headers, message),
            advice="Lower the concurrency or wait.",
        )
    if is_overflow(message, kind):
        return ContextOverflow(
            f"The prompt does not fit the window of {caller.name}: {words}",
            advice="Shorten the goal or its sources, or choose a model with a larger window.",
        )
    if status >= 500 or status == 408:
        return ServerFault(heading, advice=f"The fault is at {caller.endpoint}; the request may be tried again.")
    return RequestRejected(heading, advice=_advice(status, caller))


def _advice(status: int, caller: Caller) -> str:
    if status == 404:
        return (
            f"Check the model's name and the base URL ({caller.endpoint}); `romanesco models` lists what the "
            "server offers."
        )
    if status == 402:
        return "The account is out of credit."
    if 300 <= status < 400:
        return f"{caller.endpoint} redirects: set the base URL to where it points, redirects are not followed."
    return "The server does not take this request; `romanesco models` shows what the endpoint can do."


def error_in_stream(payload: Mapping[str, Any], caller: Caller, *, begun: bool) -> ModelError:
    """The error that an error event inside a stream becomes.

    Args:
        payload: The event.
        caller: Whose request.
        begun: Whether tokens had arrived before it. They were generated and paid for, so whatever the event
            says, the call is then a ServerFault (which is charged) and never a refusal (which is free).
    """
    body = json.dumps(payload, ensure_ascii=False).encode()
    message, kind, _ = parse_error(body)
    if begun:
        return ServerFault(
            f"{caller.name} broke off its reply: {caller.clean(message) or 'no message'}",
            advice=f"The fault is at {caller.endpoint}; the request may be tried again.",
        )
    return error_from(Refusal(_status_of(kind), {}, body), caller)


def _status_of(kind: str) -> int:
    code = re.search(r"\b([45]\d\d)\b", kind)
    if code is not None:
        return int(code[1])
    lowered = kind.lower()
    return next((status for word, status in _STATUS_OF_TYPE if word in lowered), 500)


def unreadable(caller: Caller, what: str, body: bytes = b"") -> ReplyUnreadable:
    """The error for a reply that is not the protocol, quoting the start of what came."""
    words = caller.clean(parse_error(body)[0]) if body else ""
    return ReplyUnreadable(
        f"{caller.name} sent something that is not a chat completion: {what}",
        value=words or None,
        advice=f"Check that {caller.endpoint} is the API's base URL (it usually ends in /v1).",
    )
