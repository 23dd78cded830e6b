"""Events and the replies that they add up to, without a network."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from romanesco.models._openai_events import MAX_DEPTH, MAX_EVENT, EventStream, ProtocolError, parse_json
from romanesco.models._openai_stream import BYTES_A_TOKEN, SPARE_BYTES, SPARE_REASONING, ReplyAssembler
from romanesco.models._openai_usage import decode_usage
from romanesco.models._types import FinishReason, ModelReply, Timing, ToolCall, Usage

USAGE = {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}


def delta(content: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"model": "m", "choices": [{"index": 0, "delta": content, "finish_reason": finish}]}


def call(index: int | None, arguments: Any, name: str | None = None, identity: str | None = None) -> dict[str, Any]:
    function = {"arguments": arguments} if name is None else {"name": name, "arguments": arguments}
    part: dict[str, Any] = {"function": function}
    if index is not None:
        part["index"] = index
    if identity is not None:
        part["id"] = identity
    return delta({"tool_calls": [part]})


def add_up(payloads: list[Any], output_tool: str | None = None, cap: int | None = None) -> ModelReply:
    assembler = ReplyAssembler(output_tool=output_tool, cap=cap)
    for payload in payloads:
        assembler.feed(payload)
    return assembler.reply(Timing())


def wire(payloads: list[Any], newline: bytes = b"\n") -> bytes:
    events = [b": keep-alive" + newline * 2]
    events += [b"data: " + json.dumps(p, ensure_ascii=False).encode() + newline * 2 for p in payloads]
    return b"".join(events) + b"data: [DONE]" + newline * 2


def read(chunks: list[bytes]) -> tuple[ModelReply, bool]:
    events, assembler, done = EventStream(), ReplyAssembler(), False
    found = [data for chunk in chunks for data in events.feed(chunk)]
    found.append(events.rest())  # a carriage return at the very end waits for a line feed
    for data in found:
        if data == b"[DONE]":
            done = True
        elif data:
            assembler.feed(parse_json(data, "event"))
    return assembler.reply(Timing()), done


PAYLOADS = [
    delta({"role": "assistant", "content": ""}),
    delta({"reasoning_content": "hm… 🤔"}),
    delta({"content": "żółć "}),
    delta({"content": "日本語 🥦\r\n"}),
    call(0, '{"a"', "look", "c1"),
    call(0, ":1}"),
    delta({}, "stop"),
    {"choices": [], "usage": USAGE},
]


@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"])
def test_a_body_split_at_every_byte_gives_the_same_reply(newline: bytes) -> None:
    body = wire(PAYLOADS, newline)
    whole = read([body])
    assert whole[1]
    assert whole[0].text == "żółć 日本語 🥦\r\n"
    assert whole[0].usage == Usage(9, 4)
    for place in range(len(body) + 1):
        assert read([body[:place], body[place:]]) == whole
    assert read([body[i : i + 1] for i in range(len(body))]) == whole


@given(st.lists(st.text(max_size=12), max_size=8), st.data())
def test_any_text_cut_anywhere_arrives_whole(texts: list[str], data: st.DataObject) -> None:
    body = wire([delta({"content": text}) for text in texts])
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=6)))
    edges = [0, *cuts, len(body)]
    reply, done = read([body[a:b] for a, b in pairwise(edges)])
    assert done
    assert reply.text == "".join(texts)


def test_data_over_several_lines_other_fields_and_comments() -> None:
    events = EventStream()
    body = b'event: x\nid: 3\ndata: {"a":\ndata:1}\n\n: note\n\ndata\n\ndata: last'
    assert events.feed(body) == [b'{"a":\n1}']
    assert events.rest() == b"last"


def test_an_endless_event_is_refused() -> None:
    events = EventStream()
    with pytest.raises(ProtocolError, match="larger than"):
        events.feed(b"data: " + b"x" * (MAX_EVENT + 1))


@pytest.mark.parametrize("data", [b"{", b'{"a": "\xff"}', b"[" * 100_000])
def test_what_is_not_json_says_so_without_quoting_it(data: bytes) -> None:
    with pytest.raises(ProtocolError, match=r"^an event is not JSON$") as caught:
        parse_json(data, "an event")
    assert caught.value.__context__ is None


def test_parallel_tool_calls_are_put_together_by_index() -> None:
    reply = add_up([
        call(0, "", "first", "a"),
        call(1, '{"y"', "second", "b"),
        call(0, '{"x":'),
        call(1, ":2}"),
        call(0, "1}"),
        delta({}, "tool_calls"),
    ])
    assert reply.tool_calls == (ToolCall("a", "first", '{"x":1}'), ToolCall("b", "second", '{"y":2}'))
    assert reply.finish is FinishReason.TOOL_CALLS


def test_parallel_tool_calls_that_all_say_index_0_are_told_apart_by_id() -> None:
    reply = add_up([call(0, "{}", "f", "a"), call(0, "{}", "f", "b")])
    assert [c.id for c in reply.tool_calls] == ["a", "b"]


def test_tool_calls_without_index_or_id_and_with_arguments_as_an_object() -> None:
    reply = add_up([call(None, {"x": 1}, "f"), delta({}, "stop")])
    assert reply.tool_calls == (ToolCall("call_0", "f", '{"x": 1}'),)


def test_the_output_tools_arguments_become_the_text() -> None:
    reply = add_up([call(0, '{"a"', "answer", "c"), call(0, ":1}"), delta({}, "tool_calls")], output_tool="answer")
    assert (reply.text, reply.tool_calls, reply.finish) == ('{"a":1}', (), FinishReason.STOP)


def test_an_output_tool_cut_by_the_cap_says_length() -> None:
    reply = add_up([call(0, '{"a"', "answer", "c"), delta({}, "length")], output_tool="answer")
    assert (reply.text, reply.finish) == ('{"a"', FinishReason.LENGTH)


def test_without_an_output_tool_call_the_text_stays() -> None:
    assert add_up([delta({"content": "no"}), delta({}, "stop")], output_tool="answer").text == "no"


def test_br_101_opaque_fields_are_kept() -> None:
    reply = add_up([
        delta({"reasoning_content": "a", "signature": "s1", "refusal": None, "annotations": []}),
        delta({"reasoning_content": "b", "reasoning_details": [{"index": 0, "type": "t", "text": "x"}]}),
        delta({"reasoning_details": [{"index": 0, "text": "y"}, {"index": 1, "text": "z"}]}),
    ])
    assert reply.reasoning == "ab"
    assert reply.opaque == {
        "reasoning_content": "ab",
        "signature": "s1",
        "reasoning_details": [{"index": 0, "type": "t", "text": "xy"}, {"index": 1, "text": "z"}],
    }


def test_of_pieces_that_cannot_be_joined_the_later_counts() -> None:
    reply = add_up([
        delta({"number": 1, "list": [1], "object": {"a": 1, "text": "x"}, "kind": "x", "odd": [{"index": [1]}]}),
        delta({
            "number": 2,
            "list": [2],
            "object": {"a": None, "text": "y", "b": 2},
            "kind": 7,
            "odd": [{"index": [1]}],
        }),
        delta({"object": {"text": "z"}}),
    ])
    assert reply.opaque == {
        "number": 2,
        "list": [1, 2],
        "object": {"a": 1, "text": "xyz", "b": 2},
        "kind": 7,
        "odd": [{"index": [1]}, {"index": [1]}],
    }


def test_a_field_in_very_many_pieces_costs_what_its_pieces_cost() -> None:
    """Were what has come copied for each piece, the two parts of this test would take most of an hour."""
    pieces = 150_000
    reply = add_up([delta({"details": [{"index": i // 2, "text": "ab"}], "sig": "abcdefgh"}) for i in range(pieces)])
    assert reply.opaque["details"] == [{"index": i, "text": "abab"} for i in range(pieces // 2)]
    assert reply.opaque["sig"] == "abcdefgh" * pieces
    events = EventStream()
    event = b"data: " + b"x" * 8_000_000 + b"\n\n"
    found = [data for i in range(0, len(event), 16) for data in events.feed(event[i : i + 16])]
    assert found == [b"x" * 8_000_000]


@pytest.mark.parametrize("inside", ["[{}]", '{{"a": {}}}'])
def test_a_value_that_is_nested_too_deep_is_no_protocol(inside: str) -> None:
    def nested(depth: int) -> bytes:
        value = "1"
        for _ in range(depth):
            value = inside.format(value)
        return value.encode()

    parse_json(nested(MAX_DEPTH), "it")
    parse_json(b"[" + b",".join([nested(9)] * 200) + b"]", "it")
    for depth in (MAX_DEPTH + 1, 300):
        with pytest.raises(ProtocolError, match=f"it is nested more than {MAX_DEPTH} deep"):
            parse_json(nested(depth), "it")


@pytest.mark.parametrize("name", ["content", "refusal", "arguments", "name", "parts"])
def test_of_an_answer_far_beyond_its_cap_only_a_part_is_kept_and_all_is_counted(name: str) -> None:
    piece = "ż" * 5_000
    fields: dict[str, dict[str, Any]] = {
        "arguments": {"tool_calls": [{"index": 0, "id": "c", "function": {"arguments": piece}}]},
        "name": {"tool_calls": [{"index": 0, "id": "c", "function": {"name": piece}}]},
        "parts": {"content": [{"type": "text", "text": piece}]},
    }
    assembler = ReplyAssembler(cap=10)
    for _ in range(3):
        assembler.feed(delta(fields.get(name, {name: piece})))
    assembler.feed(delta({}, "stop"))
    reply = assembler.reply(Timing())
    calls = [part for call in reply.tool_calls for part in (call.name, call.arguments)]
    kept = {len(text.encode()) for text in (reply.text, *calls, *reply.opaque.values())}
    assert max(kept) == 10 * BYTES_A_TOKEN + SPARE_BYTES
    assert assembler.full and reply.finish is FinishReason.LENGTH and reply.received == 30_000


@pytest.mark.parametrize("names", [("reasoning",), ("reasoning_content",), ("reasoning", "reasoning_content"), ()])
def test_reasoning_far_beyond_the_cap_takes_nothing_from_the_answer_unless_it_does_not_end(
    names: tuple[str, ...],
) -> None:
    """Some servers have a cap of their own for it, and some send it under two names."""
    piece = "hm, " * 50_000
    typed = {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": piece}]}]}
    thought = delta(dict.fromkeys(names, piece) if names else typed)
    answer = delta({"content": "yes"}, "stop")
    reply = add_up([thought, thought, answer], cap=10)
    assert (reply.text, reply.finish, reply.received) == ("yes", FinishReason.STOP, 0)
    assert reply.reasoning == piece * 2 and reply.opaque == dict.fromkeys(names, piece * 2)
    endless = add_up([*[thought] * 20, answer], cap=10)
    assert endless.finish is FinishReason.LENGTH and endless.received == 20 * len(piece) + 3
    assert len(endless.reasoning) == 10 * BYTES_A_TOKEN + SPARE_REASONING


def test_typed_content_parts() -> None:
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "hi"}]
    reply = add_up([delta({"content": parts}), delta({}, "stop")])
    assert (reply.text, reply.reasoning) == ("hi", "hm")


def test_a_refusal_is_the_text_and_a_content_filter() -> None:
    reply = add_up([delta({"content": None, "refusal": "I can"}), delta({"refusal": "not"}), delta({}, "stop")])
    assert (reply.text, reply.finish) == ("I cannot", FinishReason.CONTENT_FILTER)


@pytest.mark.parametrize(
    ("word", "finish"),
    [
        ("stop", FinishReason.STOP),
        ("length", FinishReason.LENGTH),
        ("max_tokens", FinishReason.LENGTH),
        ("function_call", FinishReason.TOOL_CALLS),
        ("content_filter", FinishReason.CONTENT_FILTER),
        ("whatever", FinishReason.UNKNOWN),
        (None, FinishReason.UNKNOWN),
    ],
)
def test_finish_reasons(word: str | None, finish: FinishReason) -> None:
    assert add_up([delta({"content": "x"}, word)]).finish is finish


def test_other_choices_are_ignored() -> None:
    other = {"choices": [{"index": 1, "delta": {"content": "no"}}]}
    assert add_up([delta({"content": "yes"}), other]).text == "yes"


@pytest.mark.parametrize(
    "payload",
    [
        3,
        {"choices": 3},
        {"choices": ["x"]},
        {"choices": [{"delta": "x"}]},
        {"choices": [{"delta": {"content": 3}}]},
        {"choices": [{"delta": {"tool_calls": 3}}]},
    ],
)
def test_what_is_not_a_chunk_is_refused(payload: Any) -> None:
    with pytest.raises(ProtocolError):
        ReplyAssembler().feed(payload)


@pytest.mark.parametrize(
    ("reported", "usage"),
    [
        (USAGE, Usage(9, 4)),
        ({**USAGE, "prompt_tokens_details": {"cached_tokens": 5}}, Usage(9, 4, cached=5)),
        ({**USAGE, "prompt_cache_hit_tokens": 5}, Usage(9, 4, cached=5)),
        ({**USAGE, "completion_tokens_details": {"reasoning_tokens": 3}}, Usage(9, 4, reasoning=3)),
        ({**USAGE, "completion_tokens_details": None, "prompt_tokens_details": None}, Usage(9, 4)),
        # reasoning left out of completion_tokens, but not of the total
        (
            {**USAGE, "total_tokens": 20, "completion_tokens_details": {"reasoning_tokens": 7}},
            Usage(9, 11, reasoning=7),
        ),
        # cached tokens left out of prompt_tokens
        (
            {"prompt_tokens": 2, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 5}},
            Usage(7, 4, cached=5),
        ),
        ({"prompt_tokens": 0, "completion_tokens": 0}, None),
        # half of it can't be true: the other half is kept, and the whole is marked
        ({"prompt_tokens": 0, "completion_tokens": 5}, Usage(0, 5, estimated=True)),
        ({"prompt_tokens": -1, "completion_tokens": 5}, Usage(0, 5, estimated=True)),
        ({"prompt_tokens": True, "completion_tokens": 5}, Usage(0, 5, estimated=True)),
        ({"prompt_tokens": 2.5, "completion_tokens": 5}, Usage(0, 5, estimated=True)),
        ({"prompt_tokens": 2}, Usage(2, 0, estimated=True)),
        ({"prompt_tokens": 0, "completion_tokens": 5, "total_tokens": 40}, Usage(35, 5, estimated=True)),
        ({"prompt_tokens": 9, "total_tokens": 40}, Usage(9, 31, estimated=True)),
        ({"total_tokens": 40}, None),
        ({"prompt_tokens": None, "completion_tokens": "5"}, None),
        ({}, None),
        # beyond what any call can use: it says nothing
        ({"prompt_tokens": 10**4000, "completion_tokens": 5}, Usage(0, 5, estimated=True)),
        ({"prompt_tokens": 5, "completion_tokens": 10**12 + 1}, Usage(5, 0, estimated=True)),
        ({"prompt_tokens": 10**13, "completion_tokens": 10**12 + 1}, None),
        ({**USAGE, "total_tokens": 10**13}, Usage(9, 4)),
        ({**USAGE, "completion_tokens_details": {"reasoning_tokens": -3}}, Usage(9, 4)),
        ({**USAGE, "total_tokens": 1e300}, Usage(9, 4)),
    ],
)
def test_usage(reported: dict[str, Any], usage: Usage | None) -> None:
    assert decode_usage(reported) == usage


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"])
def test_a_number_that_is_not_finite_is_null(number: str) -> None:
    message = f'{{"content": "x", "odd": {{"deep": [{number}, 1.5]}}, "top": {number}}}'
    for part in ("delta", "message"):
        body = f'{{"choices": [{{"index": 0, "{part}": {message}, "finish_reason": "stop"}}]}}'
        reply = add_up([parse_json(body.encode(), "it")])
        assert (reply.text, reply.opaque) == ("x", {"odd": {"deep": [None, 1.5]}})


def test_an_integer_of_thousands_of_digits_is_no_protocol() -> None:
    with pytest.raises(ProtocolError, match="it is not JSON"):
        parse_json(b'{"usage": {"prompt_tokens": ' + b"9" * 5000 + b"}}", "it")


def test_br_031_no_output_tokens_with_text_is_a_report_in_doubt() -> None:
    zero = {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 0}}
    assert add_up([delta({"content": "x"}), zero]).usage == Usage(5, 0, estimated=True)
    assert add_up([delta({}, "stop"), zero]).usage == Usage(5, 0)


def test_of_several_reports_the_largest_of_each_counts() -> None:
    def report(read: int, wrote: int, **more: Any) -> dict[str, Any]:
        return {"choices": [], "usage": {"prompt_tokens": read, "completion_tokens": wrote, **more}}

    text = delta({"content": "x"})
    assert add_up([text, report(9, 4), report(0, 0)]).usage == Usage(9, 4)
    assert add_up([text, report(9, 4), report(0, 50)]).usage == Usage(9, 50, estimated=True)
    assert add_up([text, report(0, 50), report(9, 4)]).usage == Usage(9, 50, estimated=True)
    assert add_up([text, report(0, 1), report(9, 4)]).usage == Usage(9, 4)
    assert add_up([text, report(9, 4), report(0, 1)]).usage == Usage(9, 4)
    assert add_up([text, report(500, 80), report(1, 1)]).usage == Usage(500, 80)
    cached = {"prompt_tokens_details": {"cached_tokens": 5}}
    assert add_up([text, report(9, 0), report(9, 4, **cached)]).usage == Usage(9, 4, cached=5)
    assert add_up([text, report(9, 4), report(6, 1, **cached)]).usage == Usage(9, 4)
