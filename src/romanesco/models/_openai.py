"""A client for servers that speak OpenAI's chat completions: OpenAI, vLLM, llama.cpp, Ollama and others."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from romanesco.errors import ConfigError, ConnectionCut, ConnectionFailed, DeadlineExceeded, ModelError
from romanesco.models._openai_address import Address
from romanesco.models._openai_discovery import Discovery, count_messages, count_templated, discover
from romanesco.models._openai_errors import Caller, Refusal, error_from, names_unsupported, unreadable
from romanesco.models._openai_events import ProtocolError, parse_json
from romanesco.models._openai_exchange import Exchange
from romanesco.models._openai_http import PhaseClock, Pool, payload, read_all
from romanesco.models._openai_ways import Ways, refuses
from romanesco.models._openai_wire import (
    DROPPABLE,
    RESERVED,
    Dialect,
    OutputMode,
    cap_field,
    encode_request,
    output_mode,
    to_bytes,
    upper_bound,
)
from romanesco.models._types import Capabilities, Deadlines, Json, ModelReply, ModelRequest, TokenCount

_log = logging.getLogger("romanesco.models")
_FREE = Deadlines(connect=5.0, first_token=10.0, between_tokens=10.0, total=10.0)


class OpenAICompatible:
    """A model behind an OpenAI-compatible server.

    One attempt a call and one request an attempt. An endpoint that answers 400 because it does not know
    ``stream_options``, ``temperature``, ``seed`` or the name of the output cap gives a ``RequestRejected`` that is
    retryable, and is never asked that way again by this adapter; such a 400 costs no tokens. So it is with a way of
    putting a schema (grammar, ``response_format``, a tool): ``capabilities`` no longer has one that was refused.
    Nothing is connected or read from the environment before the first call. Use it from any number of event loops,
    and ``close`` it.

    Args:
        name: ``provider:model``.
        model: The model's name on the wire.
        base_url: Address of the API, usually ending in ``/v1``. A query (``?api-version=...``) is kept.
        api_key: Sent as bearer token; None sends none. It is in no message, repr or log.
        key_variable: Environment variable that the user keeps the key in, for error messages; by default the
            provider's name followed by ``_API_KEY``.
        stream: Whether replies come in pieces, so that a stalled server is noticed early.
        capabilities: What the endpoint can do; None looks at what the server says of itself, once, when first
            needed.
        window: The context window in tokens, whatever the server says of it; None believes the server.
        usual_window: The window that is published for the model, for a server that says nothing of it.
        extra_body: Further fields of every request, for example ``{"reasoning_effort": "low"}``.
        max_connections: Connections open at once from one event loop; calls beyond wait.
        cap: Field that caps the output; ``None`` takes ``max_completion_tokens`` at OpenAI and ``max_tokens``
            elsewhere.

    Raises:
        ConfigError: A setting can't be used.
    """

    def __init__(
        self,
        *,
        name: str,
        model: str,
        base_url: str,
        api_key: str | None = None,
        key_variable: str | None = None,
        stream: bool = True,
        capabilities: Capabilities | None = None,
        window: int | None = None,
        usual_window: int | None = None,
        extra_body: dict[str, Json] | None = None,
        max_connections: int = 256,
        cap: str | None = None,
    ) -> None:
        self.name = name
        self._model = model
        self._stream = stream
        self._window = window
        self._usual_window = usual_window
        self._capabilities = None if capabilities is None else self._windowed(capabilities)
        self._ways = Ways()
        self._extra_body = _checked_extra(extra_body or {})
        self._dialect = Dialect(cap=cap or cap_field(base_url))
        self._refused_caps: set[str] = set()
        self._templated: bool | None = None
        self._looking: asyncio.Future[Discovery] | None = None
        if max_connections < 1:
            raise ConfigError("max_connections is too small", value=max_connections, limit="1 or more")
        address = Address(name, base_url, api_key)
        provider = re.sub(r"\W", "_", name.partition(":")[0]).upper()
        self.endpoint = address.endpoint
        self._root = address.root
        self._base = address.base
        self._query = address.query
        self._chat_url = self._url("chat/completions")
        self._pool = Pool(base_url, address.headers, max_connections)
        self._caller = Caller(name, address.shown, key_variable or f"{provider}_API_KEY", address.secrets)

    def __repr__(self) -> str:
        return f"OpenAICompatible(name={self.name!r}, endpoint={self.endpoint!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a model adapter holds a key and connections: make a new one instead of copying it")

    async def complete(self, request: ModelRequest, *, on_token: Callable[[str], None] | None = None) -> ModelReply:
        """Answer one request. See ``ChatModel.complete``.

        Raises:
            ModelError: One of its subclasses.
        """
        if request.output is None:  # only a schema changes how it is put; plain text needs no look at the server
            return await self.attempt(request, self._capabilities or Capabilities(), on_token=on_token)
        capabilities = await self.capabilities()
        async with self._ways.trial(self.name, output_mode(request, capabilities)):
            return await self.attempt(request, capabilities, on_token=on_token)

    async def attempt(
        self,
        request: ModelRequest,
        capabilities: Capabilities,
        *,
        on_token: Callable[[str], None] | None = None,
        stream: bool | None = None,
    ) -> ModelReply:
        """Answer one request as if the endpoint had these capabilities; the probe tries them with it.

        Raises:
            ModelError: One of its subclasses.
        """
        import aiohttp  # 100 ms and more at first: before any clock runs

        stream = self._stream if stream is None else stream
        mode = output_mode(request, capabilities)
        output_tool = request.output.name if request.output is not None and mode is OutputMode.TOOL else None
        exchange = Exchange(
            self._caller,
            PhaseClock(request.deadlines, stream=stream),
            output_tool,
            request.max_output_tokens,
            on_token,
            on_taken=lambda: self._ways.took(mode),
        )
        failure: ModelError
        try:
            async with exchange.clock.running():
                body = self._encode(request, capabilities, mode, stream)
                refusal = await exchange.run(self._pool, self._chat_url, to_bytes(body), stream)
                if refusal is None:
                    return exchange.reply()
            failure = error_from(refusal, self._caller)
            if self._learn(refusal, body, mode):
                failure.retryable = True  # and the next attempt, which the caller counts, leaves the field out
        except ModelError as error:
            failure = error.with_traceback(None)  # those frames hold what the server said, word by word
        except ProtocolError as error:
            failure = unreadable(self._caller, str(error), exchange.start)
        except (aiohttp.ClientError, OSError) as error:
            if exchange.listening:
                raise  # the listener's own failure, for example a closed pipe
            if exchange.whole:
                return exchange.reply()
            failure = self._broken(error, exchange.clock)
            if exchange.clock.reused and not exchange.answered and not exchange.clock.expired():
                self._pool.reuse = False  # it may have been closed after the reply before
        # Raised here, outside the handlers: aiohttp's exceptions carry the request's headers, and so the key.
        raise failure

    async def count(self, request: ModelRequest) -> TokenCount:
        """Count the input tokens: exactly where the server has a tokenizer, else one token a byte and more.

        A server that can't count just now gives an upper bound too; ``exact`` tells. The count of a request with a
        schema holds for every way that it may yet be put in, until the server has taken one.
        """
        try:
            capabilities = await self.capabilities()
        except ModelError:
            capabilities = Capabilities()  # the bound needs no server
        bodies = [
            self._encode(put, capabilities, mode, False) for put, mode in self._ways.candidates(request, capabilities)
        ]
        if capabilities.tokenizer:
            try:
                tokens = await self._counted(bodies)
            except ModelError:
                tokens = None  # counted from above instead, and marked so
            if tokens is not None:
                return TokenCount(tokens=tokens, exact=True)
        bounds = (upper_bound(body, template_overhead=capabilities.template_overhead) for body in bodies)
        return max(bounds, key=lambda bound: bound.tokens)

    async def capabilities(self) -> Capabilities:
        """What was configured, or what the server says of itself, read once, less what it refused. Costs no tokens.

        Raises:
            ConnectionFailed: Nobody answers at the address.
            DeadlineExceeded: Connecting took more than 5 s.
        """
        if self._capabilities is None:
            looking = self._looking
            if looking is None or looking.done() or looking.get_loop() is not asyncio.get_running_loop():
                looking = self._looking = asyncio.ensure_future(self.discover())
            # Concurrent first callers share one look, and one that is cancelled leaves it to the others.
            self._capabilities = (await asyncio.shield(looking)).capabilities
        return self._ways.left(self._capabilities)

    async def discover(self) -> Discovery:
        """What the server says of itself: its models, whether it counts tokens, its window. Costs no tokens.

        A window that was configured takes the place of the server's, and the usual one that of none.

        Raises:
            ConnectionFailed: Nobody answers at the address.
            DeadlineExceeded: Connecting took more than 5 s.
        """
        found = await discover(self._ask, self._model)
        return replace(found, capabilities=self._windowed(found.capabilities))

    async def close(self) -> None:
        """Close the connections. May be called twice; a later call opens new ones."""
        await self._pool.close()

    def _windowed(self, found: Capabilities) -> Capabilities:
        """With the window that was configured, else the one that was found, else the usual one."""
        return replace(found, window=self._window or found.window or self._usual_window)

    def _url(self, path: str) -> str:
        base = f"{self._root}{path}" if path.startswith("/") else f"{self._base}/{path}"
        return f"{base}?{self._query}" if self._query else base

    def _encode(
        self, request: ModelRequest, capabilities: Capabilities, mode: OutputMode, stream: bool
    ) -> dict[str, Any]:
        return encode_request(
            request,
            model=self._model,
            stream=stream,
            mode=mode,
            dialect=self._dialect,
            extra_body=self._extra_body,
            usage_in_stream=capabilities.usage_in_stream,
        )

    def _learn(self, refusal: Refusal, body: dict[str, Any], mode: OutputMode) -> bool:
        """Whether the refusal names what can be left out, renamed or put in another way; remembers it."""
        for name in DROPPABLE:
            if name in body and names_unsupported(refusal, name):
                self._dialect.dropped.add(name)
                if name != "stream_options":
                    _log.warning("%s does not support %s: it is left out from now on", self.name, name)
                return True
        for name, other in (("max_tokens", "max_completion_tokens"), ("max_completion_tokens", "max_tokens")):
            if name in body and names_unsupported(refusal, name) and other not in self._refused_caps:
                self._refused_caps.add(name)
                self._dialect.cap = other
                return True
        if refuses(refusal, mode):
            self._ways.forget(mode)
            _log.warning("%s does not take a schema as %s: it is put in another way from now on", self.name, mode.value)
            return True
        return False

    def _broken(self, error: Exception, clock: PhaseClock) -> ModelError:
        """The error for a connection that broke, or for a limit that passed."""
        import aiohttp

        if isinstance(error, TimeoutError) and clock.expired():
            phase, limit = clock.limit()
            late = DeadlineExceeded(
                f"{self.name} did not answer in time ({phase.replace('_', ' ')})",
                phase=phase,
                value=f"{clock.elapsed():.1f} s in all",
                limit=f"{limit:g} s",
                advice="Raise this deadline, or look at the server's load.",
            )
            late.sent = clock.sent  # before a connection nothing was sent and nothing is owed
            return late
        if isinstance(error, aiohttp.ClientResponseError) and not isinstance(error, aiohttp.ClientHttpProxyError):
            return unreadable(self._caller, "not HTTP")
        why = self._caller.clean(_why(error))
        if clock.sent:
            return ConnectionCut(
                f"The connection to {self.name} broke before the reply was whole: {why}",
                advice="The request may have been paid for; it may be tried again.",
            )
        return ConnectionFailed(
            f"Nobody answers for {self.name} at {self._caller.endpoint}: {why}",
            advice="Start the server or correct the base URL.",
        )

    async def _counted(self, bodies: Sequence[dict[str, Any]]) -> int | None:
        """The largest of these bodies of one request; None if the server can't count the first one.

        A server may refuse to count a way that it does not have, tools most of all: that one is bounded by the count
        of the first and a token for every byte that it has more.
        """
        first = await self._count(bodies[0])
        if first is None:
            return None
        most, plain = first, upper_bound({"messages": bodies[0]["messages"]}, template_overhead=0).tokens
        overhead = (self._capabilities or Capabilities()).template_overhead
        for body in bodies[1:]:
            tokens = await self._count(body)
            if tokens is None:
                tokens = first + upper_bound(body, template_overhead=overhead).tokens - plain
            most = max(most, tokens)
        return most

    async def _count(self, body: dict[str, Any]) -> int | None:
        tokens = None
        if self._templated is not False:
            tokens = await count_templated(self._ask, body)
            if tokens is not None:
                self._templated = True
        if tokens is None and self._templated is not True:
            tokens = await count_messages(self._ask, body)
            if tokens is not None:
                self._templated = False
        return tokens

    async def _ask(self, path: str, body: dict[str, Any] | None) -> Any | None:
        """Ask an endpoint that costs nothing. None: it is not there, refuses, or answers nothing of use."""
        clock = PhaseClock(_FREE, stream=False)
        failure = await self._ask_once(path, body, clock)
        if isinstance(failure, ConnectionCut) and clock.reused:
            # The server may have closed the idle connection at that moment; asking again costs nothing.
            clock = PhaseClock(_FREE, stream=False)
            failure = await self._ask_once(path, body, clock)
        if not isinstance(failure, ModelError):
            return failure
        if failure.sent:
            return None  # it is a server, and it has no such endpoint that works
        raise failure

    async def _ask_once(self, path: str, body: dict[str, Any] | None, clock: PhaseClock) -> Any | None:
        """The JSON of the answer, None if it is not one, or the error."""
        import aiohttp

        data = None if body is None else payload(to_bytes(body))
        try:
            async with clock.running():
                session, semaphore = await self._pool.session()
                async with semaphore:
                    clock.connecting()
                    async with session.request(
                        "GET" if body is None else "POST",
                        self._url(path),
                        data=data,
                        allow_redirects=False,
                        trace_request_ctx=clock,
                    ) as response:
                        self._pool.notice(response.headers)
                        if response.status != 200:
                            return None
                        return parse_json(await read_all(response.content), path)
        except ProtocolError:
            return None
        except (aiohttp.ClientError, OSError) as error:
            return self._broken(error, clock)


def _checked_extra(extra: dict[str, Json]) -> dict[str, Json]:
    wrong = sorted(RESERVED & extra.keys())
    if wrong:
        raise ConfigError("extra_body sets fields that the client sets itself", value=", ".join(wrong))
    try:
        to_bytes(extra)
    except (TypeError, ValueError) as error:
        raise ConfigError("extra_body is not JSON", value=str(error)) from error
    return dict(extra)


def _why(error: Exception) -> str:
    """The cause in the system's words; never aiohttp's text, which may hold the address with a key in it."""
    inner = getattr(error, "os_error", None) or error.__cause__ or error
    words = getattr(inner, "strerror", None)
    return f"{words} ({type(error).__name__})" if isinstance(words, str) and words else type(error).__name__
