"""The ways of putting a schema that an endpoint has left, and who tries an untried one first."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

from romanesco.errors import RequestRejected
from romanesco.models._ladder import Rung, prepare
from romanesco.models._openai_errors import Refusal, is_overflow, parse_error
from romanesco.models._openai_wire import OutputMode, output_mode
from romanesco.models._types import Capabilities, ModelRequest

PATIENCE = 2.0
"""Seconds that other calls wait for the first one on an untried way: a refusal comes at once, a reply may take long."""

_REFUSING = frozenset({400, 404, 422})

# What a refusal may call each way by: the field, the feature, or the setting of the server that is missing.
_NAMES = {
    OutputMode.GRAMMAR: re.compile(r"\bgrammars?\b|llguidance", re.IGNORECASE),
    OutputMode.JSON_SCHEMA: re.compile(
        r"response[_ ]?format|json[_ ]?schema|structured[_ -]?outputs?|guided[_ -]?(?:json|decoding)", re.IGNORECASE
    ),
    OutputMode.TOOL: re.compile(
        r"\btools\b|\btool[_ -]?(?:choice|use|calling|calls)\b|\bfunctions\b|\bfunction[_ -]?(?:calling|calls?)\b",
        re.IGNORECASE,
    ),
}
# The way was taken and the reply did not fit: nothing is refused, the next try may fit.
_FAILED_REPLY = re.compile(r"json_validate_failed|tool_use_failed|failed_generation", re.IGNORECASE)


def refuses(refusal: Refusal, mode: OutputMode) -> bool:
    """Whether a refusal says that the endpoint does not take a schema put in this way.

    Providers word it in many ways, so it is enough that the way is named; a 404, which may be about a model that is
    called after a feature, must speak of support too.
    """
    names = _NAMES.get(mode)
    if names is None or refusal.status not in _REFUSING:
        return False
    message, kind, parameter = parse_error(refusal.body)
    if is_overflow(message, kind) or _FAILED_REPLY.search(refusal.body.decode("utf-8", "replace")):
        return False
    said = f"{_without_echo(message)} {parameter} {_passed_on(refusal.body)}"
    return names.search(said) is not None and (refusal.status != 404 or "support" in said.lower())


def _without_echo(message: str) -> str:
    """The message without the request: validators list their complaints, each beside the input that it is about."""
    if not message.startswith("["):
        return message
    with suppress(ValueError):
        complaints = json.loads(message)
        return " ".join(
            f"{'.'.join(map(str, one.get('loc') or ()))} {one.get('msg') or ''}"
            for one in complaints
            if isinstance(one, dict)
        )
    return message


def _passed_on(body: bytes) -> str:
    """What a router quotes of the provider behind it, beside a message of its own that says nothing."""
    with suppress(ValueError, TypeError, KeyError):
        return str(json.loads(body)["error"]["metadata"]["raw"])
    return ""


class Ways:
    """What one adapter has learnt about its endpoint's ways of holding a reply to a schema.

    A way that was refused is lost for good. The first call on a way that nobody has tried goes alone, and the others
    wait a moment for what becomes of it: else every one of them would be refused, on every rung.
    """

    def __init__(self) -> None:
        self._lost: set[OutputMode] = set()
        self._taken: set[OutputMode] = set()
        self._trials: dict[OutputMode, asyncio.Future[None]] = {}

    def left(self, capabilities: Capabilities) -> Capabilities:
        """The capabilities without what was refused."""
        if not self._lost:
            return capabilities
        return replace(
            capabilities,
            grammar=capabilities.grammar and OutputMode.GRAMMAR not in self._lost,
            json_schema=capabilities.json_schema and OutputMode.JSON_SCHEMA not in self._lost,
            tools=capabilities.tools and OutputMode.TOOL not in self._lost,
        )

    def forget(self, mode: OutputMode) -> None:
        """The endpoint refused this way."""
        self._lost.add(mode)

    def took(self, mode: OutputMode) -> None:
        """The endpoint took a request that was put in this way."""
        self._taken.add(mode)
        trial = self._trials.get(mode)
        if trial is not None and trial.get_loop() is asyncio.get_running_loop() and not trial.done():
            trial.set_result(None)

    def candidates(self, request: ModelRequest, capabilities: Capabilities) -> list[tuple[ModelRequest, OutputMode]]:
        """The request in each way that it may yet be sent in: one way, unless the next one may be refused.

        Args:
            request: What to ask.
            capabilities: What the endpoint has left.
        """
        found: list[tuple[ModelRequest, OutputMode]] = []
        while (mode := output_mode(request, capabilities)) is not OutputMode.NONE:
            found.append((request, mode))
            if mode in self._taken or mode is OutputMode.GRAMMAR:
                return found
            capabilities = replace(capabilities, **{"tools" if mode is OutputMode.TOOL else "json_schema": False})
        return [*found, (prepare(request, Rung.PROMPT), OutputMode.NONE)]

    @asynccontextmanager
    async def trial(self, name: str, mode: OutputMode) -> AsyncIterator[None]:
        """Make one call in this way, after the one that tries it first.

        Args:
            name: Whom the call is for: ``provider:model``.
            mode: The way.

        Raises:
            RequestRejected: The endpoint has refused this way; nothing was sent, and the runtime puts the request
                in the next way.
        """
        if mode is OutputMode.NONE and self._lost:
            raise _lost(name)
        if mode in (OutputMode.NONE, OutputMode.GRAMMAR) or mode in self._taken:
            yield  # who has a grammar was asked about it: nobody takes it for granted
            return
        loop = asyncio.get_running_loop()
        first = self._trials.get(mode)
        if first is None or first.done() or first.get_loop() is not loop:
            mine = self._trials[mode] = loop.create_future()
            try:
                yield
            finally:
                if not mine.done():
                    mine.set_result(None)
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                await asyncio.shield(first)
        if mode in self._lost:
            raise _lost(name)
        yield


def _lost(name: str) -> RequestRejected:
    error = RequestRejected(
        f"{name} does not take a schema in the way that this request was made for",
        advice="Nothing was sent; it is put in another way at the next try.",
    )
    error.sent, error.retryable = False, True
    return error
