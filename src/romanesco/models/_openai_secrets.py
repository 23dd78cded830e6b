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
_PART = 8
_SURE_PART = 12
_LONG = 16
_BEGINNING = re.compile(r"(?:[a-z]{1,6}\d{0,2}[-_]){0,3}")
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


def without_parts(text: str, secrets: Iterable[str]) -> str:
    """The text with ``MARK`` in place of each run of 8 and more characters that is a part of one of the secrets.

    What all keys of a provider begin with ("sk-proj-", "gsk_") is no secret. A run of letters in one case may be a word
    ("production") and counts from 12 characters on. Neither is looked for in what is short or has no digit: such a key
    is made of words ("no-key-required"), and an error has those by itself.
    """
    parts: set[str] = set()
    for secret in secrets:
        beginning = _BEGINNING.match(secret)
        own = secret[beginning.end() if beginning else 0 :]
        if len(own) >= _LONG and any(char.isdigit() for char in own):
            parts.update(own[at : at + _PART] for at in range(len(own) - _PART + 1))
    pieces: list[str] = []
    done = at = 0
    while at <= len(text) - _PART:
        if text[at : at + _PART] not in parts:
            at += 1
            continue
        end = at + _PART
        while end < len(text) and text[end - _PART + 1 : end + 1] in parts:
            end += 1
        run = text[at:end]
        if len(run) >= _SURE_PART or not (run.isalpha() and (run.islower() or run.isupper())):
            pieces += (text[done:at], MARK)
            done = end
        at = end
    return "".join((*pieces, text[done:]))


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
