"""What an endpoint can really do, found out with a handful of tiny calls."""

from __future__ import annotations

import enum
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from romanesco.errors import ModelError, RequestRejected
from romanesco.models._openai import OpenAICompatible
from romanesco.models._protocol import ChatModel
from romanesco.models._types import (
    Capabilities,
    Deadlines,
    Message,
    ModelReply,
    ModelRequest,
    OutputSchema,
    ToolSpec,
    Usage,
)

MAX_TOKENS = 16
"""Cap of each probing call; OpenAI's smallest for reasoning models."""

_DEADLINES = Deadlines(connect=5.0, first_token=60.0, between_tokens=20.0, total=90.0)
_SCHEMA = OutputSchema(
    "probe",
    {
        "type": "object",
        "properties": {"a": {"enum": ["b"]}},
        "required": ["a"],
        "additionalProperties": False,
    },
)
_TOOL = ToolSpec("probe", "Does nothing.", _SCHEMA.schema)


class Verdict(enum.StrEnum):
    """What became of one trial."""

    OK = "ok"
    """It works."""
    REFUSED = "refused"
    """The server says that it can't, or takes the request and does not do it."""
    UNKNOWN = "unknown"
    """Not tried, or the outcome says nothing (a fault, a reply cut by the cap)."""


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """What a probe found.

    Attributes:
        name: ``provider:model``.
        endpoint: Where it was looked for, without secrets.
        reachable: Whether anything answered.
        models: Names of the models that the server lists; None if it has no list.
        listed: Whether the model is among them; None if there is no list.
        window: Context window in tokens, or None if unknown.
        tokenizer: Exact token counts.
        text: A plain reply.
        json_schema: Schema by ``response_format``.
        grammar: Schema by an llguidance grammar.
        tools: A forced tool call.
        usage_in_stream: Token counts at the end of a stream.
        error: Why the probe ended early, or None.
        spent: Tokens that the server reported for the trials.
        calls: Trials that were sent.
    """

    name: str
    endpoint: str
    reachable: bool = False
    models: tuple[str, ...] | None = None
    listed: bool | None = None
    window: int | None = None
    tokenizer: Verdict = Verdict.UNKNOWN
    text: Verdict = Verdict.UNKNOWN
    json_schema: Verdict = Verdict.UNKNOWN
    grammar: Verdict = Verdict.UNKNOWN
    tools: Verdict = Verdict.UNKNOWN
    usage_in_stream: Verdict = Verdict.UNKNOWN
    error: ModelError | None = None
    spent: Usage = field(default_factory=lambda: Usage(0, 0))
    calls: int = 0

    def capabilities(self) -> Capabilities:
        """The report as a configuration.

        What is unknown counts as absent, but for tools and usage, which do no harm where they are absent.
        """
        return Capabilities(
            window=self.window,
            grammar=self.grammar is Verdict.OK,
            json_schema=self.json_schema is Verdict.OK,
            tools=self.tools is not Verdict.REFUSED,
            usage_in_stream=self.usage_in_stream is not Verdict.REFUSED,
            tokenizer=self.tokenizer is Verdict.OK,
        )


async def probe(model: ChatModel) -> ProbeReport:
    """Find out what an endpoint can do.

    Reads what the server says of itself, which is free, then makes at most four calls of at most 16 output tokens
    each. A model that is not behind an OpenAI-compatible server is asked for its capabilities and one plain reply.

    Args:
        model: The model.

    Returns:
        What was found. A server that is down, a refused key, a missing model: the report's ``error``, never raised.
    """
    report = ProbeReport(name=model.name, endpoint=model.endpoint)
    if isinstance(model, OpenAICompatible):
        return await _probe_server(model, report)
    try:
        known = await model.capabilities()
        reply = await model.complete(_request(model))
    except ModelError as error:
        return replace(report, reachable=error.sent, error=error, calls=int(error.sent))
    report = replace(
        _with(report, reply),
        reachable=True,
        window=known.window,
        tokenizer=_verdict(known.tokenizer),
        json_schema=_verdict(known.json_schema),
        grammar=_verdict(known.grammar),
        tools=_verdict(known.tools),
        usage_in_stream=_verdict(_reports(reply)),
    )
    return replace(report, text=_text(reply))


async def _probe_server(model: OpenAICompatible, report: ProbeReport) -> ProbeReport:
    try:
        found = await model.discover()
    except ModelError as error:
        return replace(report, error=error)
    report = replace(report, reachable=True, models=found.models, listed=found.listed, window=found.capabilities.window)
    plain = _request(model)
    try:
        reply = await model.attempt(plain, Capabilities(), stream=True)
    except ModelError as error:
        return replace(report, error=error, calls=1)
    report = replace(_with(report, reply), text=_text(reply), usage_in_stream=_verdict(_reports(reply)))
    counted = await model.count(plain)
    report = replace(report, tokenizer=_verdict(counted.exact))
    for name, request, capabilities, judge in _trials(model):
        try:
            reply = await model.attempt(request, capabilities)
        except RequestRejected:
            report = _note(replace(report, calls=report.calls + 1), name, Verdict.REFUSED)
        except ModelError as error:
            report = replace(report, calls=report.calls + 1, error=error)
        else:
            report = _note(_with(report, reply), name, judge(reply))
    return report


def _note(report: ProbeReport, name: str, verdict: Verdict) -> ProbeReport:
    change: dict[str, Any] = {name: verdict}
    return replace(report, **change)


_Trial = tuple[str, ModelRequest, Capabilities, Callable[[ModelReply], Verdict]]


def _trials(model: ChatModel) -> list[_Trial]:
    only = Capabilities(grammar=False, json_schema=False, tools=False)
    shaped = replace(_request(model), output=_SCHEMA)
    called = replace(_request(model), tools=(_TOOL,), tool_choice=_TOOL.name)
    return [
        ("json_schema", shaped, replace(only, json_schema=True), _shaped),
        ("grammar", shaped, replace(only, grammar=True), _shaped),
        ("tools", called, replace(only, tools=True), _called),
    ]


def _request(model: ChatModel) -> ModelRequest:
    # Nothing in these words leads to {"a": "b"}: only a schema that is enforced does.
    ask = Message("user", "Say hello.")
    return ModelRequest(model.name, (ask,), max_output_tokens=MAX_TOKENS, deadlines=_DEADLINES)


def _with(report: ProbeReport, reply: ModelReply) -> ProbeReport:
    usage = reply.usage or Usage(0, 0)
    spent = Usage(report.spent.input + usage.input, report.spent.output + usage.output)
    return replace(report, calls=report.calls + 1, spent=spent)


def _reports(reply: ModelReply) -> bool:
    return reply.usage is not None and not reply.usage.estimated


def _verdict(works: bool) -> Verdict:
    return Verdict.OK if works else Verdict.REFUSED


def _text(reply: ModelReply) -> Verdict:
    return Verdict.OK if reply.text or reply.reasoning else Verdict.UNKNOWN


def _shaped(reply: ModelReply) -> Verdict:
    text = reply.text.strip()
    try:
        return _verdict(json.loads(text) == {"a": "b"})
    except ValueError:
        # Cut by the cap: white space or reasoning used it up, and nothing is known.
        return Verdict.UNKNOWN if not text or text.startswith("{") else Verdict.REFUSED


def _called(reply: ModelReply) -> Verdict:
    if any(call.name == _TOOL.name for call in reply.tool_calls):
        return Verdict.OK
    return Verdict.REFUSED if reply.text else Verdict.UNKNOWN
