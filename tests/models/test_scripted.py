"""The scripted model: rules, order, usage, caps, recording."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from romanesco.errors import ConfigError, ContextOverflow, RateLimited
from romanesco.models import (
    CallContext,
    ChatModel,
    FinishReason,
    Message,
    ModelReply,
    ModelRequest,
    OutputSchema,
    ScriptedModel,
    ToolCall,
    ToolSpec,
    Usage,
    by_key,
    by_role,
    current_call,
    when,
)
from romanesco.models._instance import minimal_instance

OBJECT: dict[str, Any] = {
    "type": "object",
    "properties": {"backs": {"enum": ["P1", "P2"]}, "score": {"type": "integer", "minimum": 3}},
    "required": ["backs", "score"],
}


def ask(text: str = "hello", *, cap: int = 100, schema: dict[str, Any] | None = None) -> ModelRequest:
    return ModelRequest(
        model="scripted:test",
        messages=(Message("user", text),),
        max_output_tokens=cap,
        output=None if schema is None else OutputSchema("answer", schema),
    )


async def say(model: ScriptedModel, request: ModelRequest | None = None, *, role: str = "", key: str = "") -> str:
    token = current_call.set(CallContext(role=role, key=key) if role or key else None)
    try:
        return (await model.complete(request or ask())).text
    finally:
        current_call.reset(token)


async def test_it_is_a_chat_model() -> None:
    assert isinstance(ScriptedModel("hi"), ChatModel)


async def test_one_answer_for_every_call() -> None:
    model = ScriptedModel("hi")
    assert [await say(model), await say(model)] == ["hi", "hi"]


async def test_a_list_is_used_up_in_order() -> None:
    model = ScriptedModel(["one", {"two": 2}])
    assert [await say(model), await say(model)] == ["one", '{"two": 2}']
    with pytest.raises(ConfigError, match="no answer"):
        await say(model)


async def test_a_mapping_goes_by_role_and_by_key_pattern() -> None:
    model = ScriptedModel({"critic": "weak", "blind/*": "plan"})
    assert await say(model, role="critic", key="critique/1") == "weak"
    assert await say(model, role="proposer", key="blind/1/optimist") == "plan"


async def test_rules_are_tried_in_order_before_plain_answers() -> None:
    model = ScriptedModel([
        by_role("critic", ["first", "second"]),
        by_key("blind/?/a", "plan a"),
        when(lambda request: "hello" in request.messages[-1].content, "greeting"),
        "rest",
    ])
    assert await say(model, role="critic") == "first"
    assert await say(model, role="critic") == "second"
    assert await say(model, role="critic") == "greeting"
    assert await say(model, ask("bye"), key="blind/1/a") == "plan a"
    assert await say(model, ask("bye"), key="blind/11/a") == "rest"


async def test_a_script_can_be_shared_by_two_models() -> None:
    rule = by_role("critic", ["only"])
    for model in (ScriptedModel([rule]), ScriptedModel([rule])):
        assert await say(model, role="critic") == "only"


async def test_functions_may_be_async_and_return_any_answer() -> None:
    async def later(request: ModelRequest) -> dict[str, str]:
        await asyncio.sleep(0)
        return {"echo": request.messages[-1].content}

    assert json.loads(await say(ScriptedModel(lambda request: later), ask("abc"))) == {"echo": "abc"}


async def test_exceptions_are_raised_and_recorded() -> None:
    error = RateLimited("slow down", retry_after=2.0)
    model = ScriptedModel([error, RateLimited, "fine"], default=error)
    with pytest.raises(RateLimited, match="slow down"):
        await say(model)
    with pytest.raises(TypeError):  # the class needs a text: a mistake in the script is seen
        await say(model)
    assert await say(model) == "fine"
    for _ in range(3):
        with pytest.raises(RateLimited) as caught:
            await say(model)
    depth = 0
    trace = caught.value.__traceback__
    while trace is not None:
        depth, trace = depth + 1, trace.tb_next
    assert depth < 6, "the one object must not collect traces"
    assert len(model.requests) == 6


async def test_unmatched_names_the_prompt_and_the_rules() -> None:
    model = ScriptedModel([by_role("critic", ["x"]), by_key("blind/*", "y")])
    await say(model, role="critic")
    with pytest.raises(ConfigError) as caught:
        await say(model, ask("Propose a plan"), role="critic", key="critique/1/a")
    text = str(caught.value)
    for part in ("'Propose a plan'", "role 'critic' (used up)", "key 'blind/*'", "critique/1/a", "auto=True"):
        assert part in text


async def test_a_wrong_kind_of_answer_is_an_error() -> None:
    with pytest.raises(ConfigError, match="int"):
        await say(ScriptedModel([3]))


async def test_default_comes_before_auto() -> None:
    assert await say(ScriptedModel(default="d", auto=True)) == "d"


async def test_auto_answers_text_and_schema() -> None:
    model = ScriptedModel(auto=True)
    assert await say(model) == "ok"
    assert json.loads(await say(model, ask(schema=OBJECT))) == {"backs": "P1", "score": 3}


async def test_usage_is_bytes_by_four_rounded_up_and_equals_the_count() -> None:
    model = ScriptedModel("aé漢\U0001f950")  # 1 + 2 + 3 + 4 bytes
    request = ask("abcde")
    reply = await model.complete(request)
    assert reply.usage == Usage(input=2, output=3)
    assert (await model.count(request)).tokens == 2
    assert (await model.count(request)).exact


@given(st.text(max_size=200), st.integers(min_value=0, max_value=40))
def test_output_never_exceeds_the_cap(text: str, cap: int) -> None:
    model = ScriptedModel(lambda _request: text)
    reply = asyncio.run(model.complete(ask(cap=cap)))
    assert reply.usage is not None
    assert reply.usage.output <= cap
    cut = len(text.encode()) > 4 * cap
    assert reply.finish is (FinishReason.LENGTH if cut else FinishReason.STOP)
    assert text.startswith(reply.text)


async def test_usage_can_be_missing_or_wrong() -> None:
    assert (await ScriptedModel("x", usage=None).complete(ask())).usage is None
    wrong = Usage(input=10**9, output=0)
    assert (await ScriptedModel("x", usage=lambda _request, _text: wrong).complete(ask())).usage is wrong


async def test_a_whole_reply_is_passed_on_as_it_is() -> None:
    reply = ModelReply("long " * 100, reasoning="because")
    assert await ScriptedModel(reply).complete(ask(cap=1)) is reply


async def test_a_prompt_beyond_the_window_overflows() -> None:
    model = ScriptedModel("x", window=10)
    assert await say(model, ask("a" * 40)) == "x"
    with pytest.raises(ContextOverflow, match="11 tokens"):
        await say(model, ask("a" * 41))
    assert (await model.capabilities()).window == 10


async def test_every_byte_of_the_prompt_is_recorded() -> None:
    model = ScriptedModel("x")
    request = ModelRequest(
        model="scripted:test",
        messages=(
            Message("system", "canary-1"),
            Message("assistant", "canary-2", tool_calls=(ToolCall("1", "canary-3", '{"a": "canary-4"}'),)),
            Message("tool", "canary-5", tool_call_id="1"),
        ),
        max_output_tokens=5,
        output=OutputSchema("canary-6", {"description": "canary-7é"}),
        tools=(ToolSpec("canary-8", "canary-9", {}),),
    )
    await model.complete(request)
    assert model.requests == [request]
    missing = [n for n in range(1, 10) if f"canary-{n}" not in model.prompts[0]]
    assert missing == []
    assert "canary-7é" in model.prompts[0]


async def test_br_142_an_ensemble_of_four_makes_four_calls() -> None:
    model = ScriptedModel(["a", "b", "c", "d"])
    assert {await say(model) for _ in range(4)} == {"a", "b", "c", "d"}
    assert len(model.requests) == 4


async def test_latency_overlaps_and_the_most_in_flight_is_counted() -> None:
    model = ScriptedModel("x", latency=lambda _request: 0.01)
    async with asyncio.TaskGroup() as group:
        for _ in range(7):
            group.create_task(model.complete(ask()))
    assert (model.max_in_flight, model.in_flight) == (7, 0)


async def test_a_cancelled_call_is_no_longer_in_flight() -> None:
    model = ScriptedModel("x", latency=30)
    task = asyncio.create_task(model.complete(ask()))
    await asyncio.sleep(0)
    assert model.in_flight == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert model.in_flight == 0


async def test_threads_lose_no_call() -> None:
    model = ScriptedModel([str(n) for n in range(400)])

    def many() -> list[str]:
        return [asyncio.run(model.complete(ask())).text for _ in range(100)]

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(asyncio.to_thread(many)) for _ in range(4)]
    said = [text for task in tasks for text in task.result()]
    assert sorted(said, key=int) == [str(n) for n in range(400)]
    assert len(model.requests) == 400


async def test_tokens_are_passed_on() -> None:
    seen: list[str] = []
    await ScriptedModel("hi there").complete(ask(), on_token=seen.append)
    assert "".join(seen) == "hi there"


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"const": 4}, 4),
        ({"type": "string", "minLength": 3}, "xxx"),
        ({"type": ["null", "string"]}, None),
        ({"type": "boolean"}, False),
        ({"type": "number", "exclusiveMinimum": 0, "maximum": 1}, 1),
        ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}, 0.5),
        ({"type": "number", "exclusiveMinimum": 2.5}, 3.5),
        ({"type": "integer", "exclusiveMinimum": 4}, 5),
        ({"type": "integer", "minimum": 4, "multipleOf": 3}, 6),
        ({"type": "integer", "maximum": -2}, -2),
        ({"type": "integer", "exclusiveMaximum": 0}, -1),
        ({"type": "array", "items": {"type": "string"}, "minItems": 2}, ["x", "x"]),
        ({"type": "array", "prefixItems": [{"const": 1}], "items": {"const": 2}, "minItems": 2}, [1, 2]),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "x"),
        ({"properties": {"a": {"type": "string", "default": "d"}}, "required": ["a"]}, {"a": "d"}),
        (
            {
                "allOf": [
                    {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]},
                    {"$ref": "#/$defs/b"},
                ],
                "$defs": {"b": {"properties": {"b/c": {"const": 2}}, "required": ["b/c"]}},
            },
            {"a": 1, "b/c": 2},
        ),
        ({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"const": 7}}}, 7),
    ],
)
def test_minimal_instances(schema: dict[str, Any], value: Any) -> None:
    assert minimal_instance(schema) == value


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$ref": "#/$defs/no"},
        {"$ref": "#/title", "title": "text"},
        {"type": "object", "properties": {"me": {"$ref": "#"}}, "required": ["me"]},
        {"type": "integer", "exclusiveMinimum": 1, "exclusiveMaximum": 2},
    ],
)
def test_schemas_without_a_smallest_value(schema: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="schema"):
        minimal_instance(schema)
