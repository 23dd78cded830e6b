"""Requests in the words of the wire, and the bound on their tokens."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from romanesco.models._openai_wire import (
    Dialect,
    OutputMode,
    cap_field,
    encode_request,
    grammar,
    output_mode,
    to_bytes,
    upper_bound,
)
from romanesco.models._schema import portable
from romanesco.models._types import Capabilities, Message, ModelRequest, OutputSchema, ToolCall, ToolSpec

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "backs": {"enum": ["P1", "P2"]},
        "parts": {"type": "array", "items": {"type": "object", "properties": {"x": {"$ref": "#/$defs/x"}}}},
        "map": {"type": "object", "additionalProperties": {"type": "string"}},
        "properties": {"anyOf": [{"type": "object", "properties": {}}, {"type": "null"}]},
    },
    "required": ["backs"],
    "$defs": {"x": {"type": "object", "properties": {"y": {"const": {"properties": 1}}}, "additionalProperties": True}},
}
OUTPUT = OutputSchema("answer", SCHEMA)
TOOL = ToolSpec("look", "Looks.", {"type": "object", "properties": {"q": {"type": "string"}}})


def ask(**changes: Any) -> ModelRequest:
    fields: dict[str, Any] = {"model": "p:m", "messages": (Message("user", "hi"),), "max_output_tokens": 7}
    return ModelRequest(**{**fields, **changes})


def encode(request: ModelRequest, mode: OutputMode = OutputMode.NONE, **changes: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {"model": "m", "stream": False, "dialect": Dialect(), "extra_body": {}}
    return encode_request(request, mode=mode, **{**fields, **changes})


def test_a_plain_request_has_nothing_that_was_not_asked_for() -> None:
    assert encode(ask()) == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 7,
        "stream": False,
    }


def test_sampling_streaming_and_extra_fields() -> None:
    body = encode(ask(temperature=0.0, seed=0), stream=True, extra_body={"top_k": 3, "temperature": 9})
    assert (body["temperature"], body["seed"], body["top_k"]) == (0.0, 0, 3)
    assert body["stream_options"] == {"include_usage": True}
    assert "stream_options" not in encode(ask(), stream=True, usage_in_stream=False)


def test_what_an_endpoint_does_not_take_is_left_out() -> None:
    dialect = Dialect(cap="max_completion_tokens", dropped={"stream_options", "temperature"})
    body = encode(ask(temperature=1.0), stream=True, dialect=dialect)
    assert body["max_completion_tokens"] == 7
    assert not {"max_tokens", "stream_options", "temperature"} & body.keys()


def test_the_cap_is_named_as_the_host_wants_it() -> None:
    assert cap_field("https://api.openai.com/v1") == "max_completion_tokens"
    assert cap_field("https://mine.openai.azure.com/openai") == "max_completion_tokens"
    assert cap_field("http://127.0.0.1:8080/v1") == "max_tokens"
    assert cap_field("https://api.openai.com.example.org/v1") == "max_tokens"


def test_br_101_opaque_fields_go_back_and_replace_nothing() -> None:
    opaque = {"reasoning_content": "hm", "content": "forged", "role": "system"}
    calls = (ToolCall("c", "look", "{}"),)
    messages = (
        Message("user", "q", opaque={"reasoning_content": "not mine"}),
        Message("assistant", "", tool_calls=calls, opaque=opaque),
        Message("tool", "found", tool_call_id="c"),
    )
    assert encode(ask(messages=messages))["messages"] == [
        {"role": "user", "content": "q"},
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "hm",
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}],
        },
        {"role": "tool", "content": "found", "tool_call_id": "c"},
    ]


@pytest.mark.parametrize(
    ("capabilities", "tools", "mode"),
    [
        (Capabilities(grammar=True), (), OutputMode.GRAMMAR),
        (Capabilities(grammar=True), (TOOL,), OutputMode.JSON_SCHEMA),
        (Capabilities(), (), OutputMode.JSON_SCHEMA),
        (Capabilities(json_schema=False), (), OutputMode.TOOL),
        (Capabilities(json_schema=False, tools=False), (), OutputMode.NONE),
    ],
)
def test_the_strongest_way_to_hold_a_schema(capabilities: Capabilities, tools: Any, mode: OutputMode) -> None:
    assert output_mode(ask(output=OUTPUT, tools=tools), capabilities) is mode
    assert output_mode(ask(tools=tools), capabilities) is OutputMode.NONE


def test_a_strict_schema_is_closed_everywhere_and_data_is_left_alone() -> None:
    form = encode(ask(output=OUTPUT), OutputMode.JSON_SCHEMA)["response_format"]
    assert form["type"] == "json_schema"
    assert (form["json_schema"]["name"], form["json_schema"]["strict"]) == ("answer", True)
    schema = form["json_schema"]["schema"]
    assert schema["additionalProperties"] is False
    properties = schema["properties"]
    assert properties["parts"]["items"]["additionalProperties"] is False
    assert properties["map"]["additionalProperties"] == {"type": "string"}
    assert properties["properties"]["anyOf"][0]["additionalProperties"] is False
    assert schema["$defs"]["x"]["additionalProperties"] is False
    assert schema["$defs"]["x"]["properties"]["y"] == {"const": {"properties": 1}}
    assert "additionalProperties" not in SCHEMA, "the caller's schema is not touched"
    assert portable(schema) == schema


def test_the_grammar_is_the_closed_schema_without_room_for_white_space() -> None:
    body = encode(ask(output=OUTPUT), OutputMode.GRAMMAR)
    assert "response_format" not in body
    head, _, rest = body["grammar"].partition("start: %json ")
    assert head == "%llguidance {}\n"
    schema = json.loads(rest)
    guidance = {"whitespace_flexible": False, "item_separator": ",", "key_separator": ":"}
    assert schema.pop("x-guidance") == guidance
    assert schema == portable(SCHEMA)
    assert grammar(OUTPUT) == body["grammar"]


def test_tools_and_their_choice() -> None:
    body = encode(ask(tools=(TOOL,), tool_choice="look"))
    assert body["tools"] == [
        {"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": TOOL.parameters}}
    ]
    assert body["tool_choice"] == {"type": "function", "function": {"name": "look"}}
    assert encode(ask(tools=(TOOL,), tool_choice="required"))["tool_choice"] == "required"
    assert "tool_choice" not in encode(ask())


def test_a_schema_as_a_forced_tool() -> None:
    alone = encode(ask(output=OUTPUT), OutputMode.TOOL)
    assert alone["tool_choice"] == {"type": "function", "function": {"name": "answer"}}
    assert alone["tools"][0]["function"]["parameters"] == portable(SCHEMA)
    among = encode(ask(output=OUTPUT, tools=(TOOL,)), OutputMode.TOOL)
    assert [tool["function"]["name"] for tool in among["tools"]] == ["look", "answer"]
    assert among["tool_choice"] == "required"


def test_halves_of_surrogate_pairs_do_not_break_the_request() -> None:
    assert json.loads(to_bytes({"a": "x\ud83e\udd66y\ud800z"})) == {"a": "x🥦y\ufffdz"}


@given(st.text(), st.text(), st.integers(0, 40))
def test_the_bound_is_never_below_a_token_a_byte(one: str, two: str, overhead: int) -> None:
    messages = (Message("system", one), Message("assistant", two, opaque={"reasoning_content": one}))
    request = ask(messages=messages, output=OUTPUT, tools=(TOOL,))
    body = encode(request, OutputMode.JSON_SCHEMA)
    bound = upper_bound(body, template_overhead=overhead)
    size = 2 * len(one.encode()) + len(two.encode()) + len(to_bytes(TOOL.parameters)) + len(to_bytes(portable(SCHEMA)))
    assert not bound.exact
    assert bound.tokens >= size + 2 * overhead
