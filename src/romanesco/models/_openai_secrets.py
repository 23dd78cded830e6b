"""Secrets that a server echoes are replaced before anything is shown or kept. Pure functions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from urllib.parse import quote, quote_plus

from romanesco.models._types import Json, ModelReply, ToolCall

MARK = "[key]"
"""What stands where a secret was."""

_SHORTEST = 3
_ESCAPE = re.compile("%[0-9A-F]{2}")


def forms(secrets: Iterable[str]) -> tuple[str, ...]:
    """The secrets without white space around them, as they are and as JSON and URLs write them; longest first."""
    found: set[str] = set()
    for secret in secrets:
        bare = secret.strip()
        escaped = json.dumps(bare)[1:-1]
        urls = (quote(bare), quote(bare, safe=""), quote_plus(bare))
        found.update((bare, escaped, escaped.replace("/", "\\/"), *urls))
        found.update(_ESCAPE.sub(lambda match: match.group().lower(), url) for url in urls)
    return tuple(sorted((form for form in found if len(form) >= _SHORTEST), key=len, reverse=True))


def unmistakable(secrets: Iterable[str]) -> tuple[str, ...]:
    """The forms of those secrets that no answer holds by chance.

    Local servers take any word as a key ("none", "ollama", "lm-studio"), and such a word is not cut out of an
    answer: what is left has 8 characters and a digit among them, or 16 characters.
    """
    return tuple(
        form for form in forms(secrets) if len(form) >= 16 or (len(form) >= 8 and any(c.isdigit() for c in form))
    )


def without(text: str, secrets: tuple[str, ...]) -> str:
    """The text with ``MARK`` in place of each of the secrets."""
    for secret in secrets:
        if secret in text:
            text = text.replace(secret, MARK)
    return text


def reply_without(reply: ModelReply, secrets: tuple[str, ...]) -> ModelReply:
    """The reply with ``MARK`` in place of each of the secrets, wherever the server put it."""
    if not secrets:
        return reply
    return replace(
        reply,
        text=without(reply.text, secrets),
        model=without(reply.model, secrets),
        reasoning=without(reply.reasoning, secrets),
        tool_calls=tuple(
            ToolCall(
                id=without(call.id, secrets),
                name=without(call.name, secrets),
                arguments=without(call.arguments, secrets),
            )
            for call in reply.tool_calls
        ),
        opaque={without(name, secrets): _cleared(value, secrets) for name, value in reply.opaque.items()},
    )


def _cleared(value: Json, secrets: tuple[str, ...]) -> Json:
    if isinstance(value, str):
        return without(value, secrets)
    if isinstance(value, list):
        return [_cleared(item, secrets) for item in value]
    if isinstance(value, dict):
        return {without(name, secrets): _cleared(item, secrets) for name, item in value.items()}
    return value
