"""What every model adapter must do, as one function to call from a test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from romanesco.errors import ModelError
from romanesco.models import (
    Capabilities,
    ChatModel,
    FinishReason,
    Message,
    ModelReply,
    ModelRequest,
    OutputSchema,
    TokenCount,
    first_rung,
    judge,
    prepare,
)

_CAP = 24
_SCHEMA = OutputSchema(
    "choice",
    {
        "type": "object",
        "properties": {"choice": {"enum": ["yes", "no"]}},
        "required": ["choice"],
        "additionalProperties": False,
    },
)
_PROMPTS = (
    "Say hello.",
    "Name one bread. " * 12,
    "Ein Satz mit Umlauten: äöü, 漢字 and an emoji \U0001f950.",
)


async def model_conformance(make: Callable[[], ChatModel], *, secret: str = "") -> None:
    """Check an adapter against the contract of :class:`~romanesco.models.ChatModel`.

    Checked: its name and endpoint; its capabilities, the same each time; counts that are exact or an upper bound;
    a plain reply within the output cap, streamed or not; a request with a schema, asked as the ladder would; many
    callers at once; a call that is cancelled, and a call after it; closing twice; that no secret shows.

    Makes about ten calls of at most 24 output tokens.

    Args:
        make: Makes the adapter; called in the loop that it is used in. It is closed here.
        secret: The key that it was made with, which may show nowhere.

    Raises:
        AssertionError: It breaks the contract; the message says where.
    """
    model = make()
    try:
        _check_names(model, secret)
        known = await model.capabilities()
        _require(isinstance(known, Capabilities), "capabilities() gives no Capabilities")
        _require(await model.capabilities() == known, "capabilities() changes from call to call")
        await _check_counts(model)
        for prompt in _PROMPTS:
            await _check_reply(model, _ask(model, prompt))
        await _check_stream(model)
        await _check_schema(model, known)
        await _check_many(model)
        await _check_cancelled(model)
        _check_names(model, secret)
    finally:
        await model.close()
    await model.close()


def _ask(model: ChatModel, text: str) -> ModelRequest:
    return ModelRequest(model=model.name, messages=(Message("user", text),), max_output_tokens=_CAP)


def _check_names(model: ChatModel, secret: str) -> None:
    _require(isinstance(model, ChatModel), f"{type(model).__name__} lacks a part of the ChatModel protocol")
    provider, colon, name = model.name.partition(":")
    _require(bool(provider and colon and name), f"its name is not provider:model but {model.name!r}")
    _require(isinstance(model.endpoint, str) and bool(model.endpoint), "it has no endpoint to limit calls by")
    shown = f"{model.name} {model.endpoint} {model!r}"
    _require(not secret or secret not in shown, "its key shows in its name, endpoint or repr")


async def _check_counts(model: ChatModel) -> None:
    short, long = _ask(model, "word"), _ask(model, "word " * 200)
    counted, more = await model.count(short), await model.count(long)
    for count in (counted, more):
        _require(isinstance(count, TokenCount) and count.tokens > 0, f"count() gives no tokens but {count!r}")
    _require(more.tokens > counted.tokens, "a prompt of 200 words counts no more than one of 1 word")


async def _check_reply(model: ChatModel, request: ModelRequest, reply: ModelReply | None = None) -> ModelReply:
    reply = reply or await model.complete(request)
    _require(isinstance(reply, ModelReply), "complete() gives no ModelReply")
    _require(isinstance(reply.text, str), "the reply's text is no text")
    _require(isinstance(reply.finish, FinishReason), "the reply's finish is no FinishReason")
    usage = reply.usage
    if usage is not None:
        count = await model.count(request)
        limit = request.max_output_tokens
        _require(0 <= usage.output <= limit, f"it reports {usage.output} output tokens under a cap of {limit}")
        _require(
            usage.input <= count.tokens,
            f"it reports {usage.input} input tokens and counted {count.tokens} before: a bill would be too small",
        )
    return reply


async def _check_stream(model: ChatModel) -> None:
    request = _ask(model, _PROMPTS[0])
    pieces: list[str] = []
    reply = await _check_reply(model, request, await model.complete(request, on_token=pieces.append))
    streamed = "".join(pieces)
    _require(not pieces or streamed.strip() == reply.text.strip(), "what on_token got is not the reply's text")


async def _check_schema(model: ChatModel, known: Capabilities) -> None:
    request = replace(_ask(model, "Is bread good?"), output=_SCHEMA)
    reply = await model.complete(prepare(request, first_rung(known)))
    verdict = judge(reply, request, attempt=1)
    _require(
        not known.grammar or bool(getattr(verdict, "value", None)),
        f"it says that it obeys grammars, and its reply does not fit the schema: {reply.text[:80]!r}",
    )


async def _check_many(model: ChatModel) -> None:
    requests = [_ask(model, f"Say the number {number}.") for number in range(4)]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(model.complete(request)) for request in requests]
    for request, task in zip(requests, tasks, strict=True):
        await _check_reply(model, request, task.result())


async def _check_cancelled(model: ChatModel) -> None:
    task = asyncio.ensure_future(model.complete(_ask(model, _PROMPTS[1])))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        error = task.exception()
        _require(error is None, f"a call that was cancelled ends with {error!r}")
    try:
        await _check_reply(model, _ask(model, _PROMPTS[0]))
    except ModelError as error:
        raise AssertionError(f"after a cancelled call the next one fails: {error}") from error


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise AssertionError(message)
