"""Requests and replies as JSON-able data: written by hand because every call goes through here twice."""

from __future__ import annotations

from typing import Any

from romanesco.models._types import (
    FinishReason,
    Message,
    ModelReply,
    ModelRequest,
    Timing,
    ToolCall,
    Usage,
)


def _message(message: Message) -> dict[str, Any]:
    data: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        data["tool_calls"] = [[call.id, call.name, call.arguments] for call in message.tool_calls]
    if message.tool_call_id is not None:
        data["tool_call_id"] = message.tool_call_id
    if message.opaque:
        data["opaque"] = message.opaque
    return data


def request_data(request: ModelRequest) -> dict[str, Any]:
    """What identifies a request: all of it but its deadlines, which may differ on another machine."""
    data: dict[str, Any] = {
        "model": request.model,
        "messages": [_message(message) for message in request.messages],
        "max_output_tokens": request.max_output_tokens,
    }
    if request.temperature is not None:
        data["temperature"] = request.temperature
    if request.seed is not None:
        data["seed"] = request.seed
    if request.output is not None:
        data["output"] = {"name": request.output.name, "schema": request.output.schema}
    if request.tools:
        data["tools"] = [[tool.name, tool.description, tool.parameters] for tool in request.tools]
        data["tool_choice"] = request.tool_choice
    return data


def usage_data(usage: Usage) -> dict[str, Any]:
    """Usage as data."""
    return {
        "input": usage.input,
        "output": usage.output,
        "cached": usage.cached,
        "reasoning": usage.reasoning,
        "estimated": usage.estimated,
    }


def reply_data(reply: ModelReply) -> dict[str, Any]:
    """A reply as data, without its usage and timing, which stand beside it in the event."""
    data: dict[str, Any] = {"text": reply.text, "finish": reply.finish.value, "model": reply.model}
    if reply.reasoning:
        data["reasoning"] = reply.reasoning
    if reply.tool_calls:
        data["tool_calls"] = [[call.id, call.name, call.arguments] for call in reply.tool_calls]
    if reply.opaque:
        data["opaque"] = reply.opaque
    return data


def timing_data(timing: Timing) -> dict[str, float]:
    """Timing as data, in seconds rounded to 10 microseconds; reading a reply may take less than that: 1 there."""
    return {
        "queue": round(timing.queue, 5),
        "first_token": round(timing.first_token, 5),
        "total": round(timing.total, 5),
        "parse": round(timing.parse, 6),
    }


def read_reply(event: dict[str, Any]) -> ModelReply:
    """The reply that a ``call.finished`` event holds (payloads resolved)."""
    reply = event["reply"]
    timing = event.get("timing", {})
    return ModelReply(
        text=reply["text"],
        finish=FinishReason(reply["finish"]),
        usage=Usage(**event["usage"]),
        model=reply["model"],
        reasoning=reply.get("reasoning", ""),
        tool_calls=tuple(ToolCall(*call) for call in reply.get("tool_calls", ())),
        opaque=reply.get("opaque", {}),
        timing=Timing(
            queue=timing.get("queue", 0.0),
            first_token=timing.get("first_token", 0.0),
            total=timing.get("total", 0.0),
            parse=timing.get("parse", 0.0),
        ),
    )
