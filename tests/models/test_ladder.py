from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from romanesco.models._describe import describe
from romanesco.models._ladder import (
    PROBLEM_BYTES,
    QUOTE_BYTES,
    Accept,
    Fail,
    Reask,
    Rung,
    clip,
    first_rung,
    judge,
    judge_text,
    prepare,
    reask_overhead,
)
from romanesco.models._parse import FailureKind
from romanesco.models._types import (
    Capabilities,
    FinishReason,
    Message,
    ModelReply,
    ModelRequest,
    OutputSchema,
    ToolCall,
    Usage,
)

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "proposal": {"type": "string", "minLength": 1, "maxLength": 400, "description": "what to do"},
        "backs": {"enum": ["P1", "P2"]},
    },
    "required": ["proposal", "backs"],
    "additionalProperties": False,
}
GOOD = '{"proposal": "Open early.", "backs": "P2"}'


def ask(output: bool = True, *, cap: int = 100, messages: tuple[Message, ...] | None = None) -> ModelRequest:
    return ModelRequest(
        model="embedded:smollm2",
        messages=messages or (Message("system", "You plan."), Message("user", "Grow a bakery.")),
        max_output_tokens=cap,
        output=OutputSchema("proposal", SCHEMA) if output else None,
    )


def reasked(verdict: Accept | Reask | Fail) -> str:
    """The note that a re-ask adds to the last user message."""
    assert isinstance(verdict, Reask), verdict
    first = ask()
    assert verdict.request.messages[0] == first.messages[0]
    assert [message.role for message in verdict.request.messages] == ["system", "user"]
    content = verdict.request.messages[-1].content
    assert content.startswith(first.messages[-1].content)
    return content.removeprefix(first.messages[-1].content)


# Rungs.


@pytest.mark.parametrize(
    ("capabilities", "rung"),
    [
        (Capabilities(grammar=True), Rung.GRAMMAR),
        (Capabilities(grammar=True, json_schema=False, tools=False), Rung.GRAMMAR),
        (Capabilities(), Rung.JSON_SCHEMA),
        (Capabilities(json_schema=False), Rung.TOOL),
        (Capabilities(json_schema=False, tools=False), Rung.PROMPT),
    ],
)
def test_the_first_rung_is_the_strongest_that_the_endpoint_has(capabilities: Capabilities, rung: Rung) -> None:
    assert first_rung(capabilities) is rung


@pytest.mark.parametrize("rung", [Rung.GRAMMAR, Rung.JSON_SCHEMA, Rung.TOOL])
def test_stronger_rungs_leave_the_request_to_the_adapter(rung: Rung) -> None:
    assert prepare(ask(), rung) == ask()


def test_the_prompt_rung_tells_the_fields_and_shows_no_schema() -> None:
    prepared = prepare(ask(), Rung.PROMPT)
    assert prepared.output is None
    assert prepared.messages[:-1] == ask().messages[:-1]
    assert prepared.messages[-1].content == (
        "Grow a bakery.\n\nAnswer with one JSON object and nothing else. Its fields: "
        '"proposal": text of at most 400 characters (what to do); "backs": one of "P1", "P2".'
    )
    assert '"type"' not in prepared.messages[-1].content
    assert prepare(ask(output=False), Rung.PROMPT) == ask(output=False)


@pytest.mark.parametrize("messages", [None, (Message("user", "Look it up."), Message("tool", "42", tool_call_id="1"))])
def test_a_reask_tells_the_fields_once_on_every_rung_but_a_grammar(messages: tuple[Message, ...] | None) -> None:
    """An endpoint may ignore a schema without a word; a grammar can't be ignored."""
    verdict = judge(ModelReply("I back P2."), ask(messages=messages), attempt=1)
    assert isinstance(verdict, Reask)
    told = "Answer with one JSON object and nothing else. Its fields: "
    said = {rung: prepare(verdict.request, rung).messages[-1].content for rung in Rung}
    assert {rung: text.count(told) for rung, text in said.items()} == {
        Rung.GRAMMAR: 0,
        Rung.JSON_SCHEMA: 1,
        Rung.TOOL: 1,
        Rung.PROMPT: 1,
    }
    assert said[Rung.PROMPT] == said[Rung.TOOL] == said[Rung.JSON_SCHEMA]
    assert said[Rung.JSON_SCHEMA].startswith(said[Rung.GRAMMAR])
    assert said[Rung.GRAMMAR].endswith("Answer again with one JSON object and nothing else.")
    assert {rung: prepare(verdict.request, rung).output is None for rung in Rung} == {
        rung: rung is Rung.PROMPT for rung in Rung
    }
    text = judge_text(ModelReply(""), ask(output=False), attempt=1)
    assert isinstance(text, Reask) and told not in text.request.messages[-1].content


def test_a_last_message_that_is_not_the_users_stays_as_it_is() -> None:
    messages = (Message("user", "Look it up."), Message("tool", "42", tool_call_id="1"))
    prepared = prepare(ask(messages=messages), Rung.PROMPT)
    assert prepared.messages[:2] == messages
    assert prepared.messages[2].role == "user"
    assert prepared.messages[2].content.startswith("Answer with one JSON object")


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "integer", "minimum": 1, "maximum": 5}, '"x": a whole number from 1 to 5'),
        ({"type": "boolean"}, '"x": true or false'),
        ({"const": "P1"}, '"x": "P1"'),
        ({"type": ["string", "null"]}, '"x": text or null'),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, '"x": a whole number or null'),
        ({"type": "array", "items": {"type": "string"}, "minItems": 3, "maxItems": 3},
         '"x": a list of exactly 3 items, each text'),
        ({"type": "array", "items": {"type": "string"}, "minItems": 1}, '"x": a list of at least 1 items, each text'),
        ({"type": "array", "maxItems": 2}, '"x": a list of at most 2 items, each any value'),
        ({"$ref": "#/$defs/o"}, '"x": an object with "y" (optional): a number'),
        ({"$ref": "#"}, '"x": an object with "x": an object with "x": an object with "x": an object'),
        ({"$ref": "#/$defs/l"},
         '"x": a list of items, each a list of items, each a list of items, each a list'),
        ({}, '"x": any value'),
    ],
)  # fmt: skip
def test_fields_in_plain_words(schema: dict[str, Any], text: str) -> None:
    whole = {
        "type": "object",
        "properties": {"x": schema},
        "required": ["x"],
        "$defs": {
            "o": {"type": "object", "properties": {"y": {"type": "number"}}},
            "l": {"type": "array", "items": {"$ref": "#/$defs/l"}},
        },
    }
    assert describe(whole) == text


def test_an_object_without_fields_is_told_too() -> None:
    assert describe({"type": "object"}) == "any fields"


# Replies to a request with a schema.


def test_a_good_reply_is_accepted() -> None:
    verdict = judge(ModelReply(GOOD), ask(), attempt=1)
    assert verdict == Accept({"proposal": "Open early.", "backs": "P2"})


def test_br_095_what_was_forgiven_is_kept_with_the_value() -> None:
    verdict = judge(ModelReply("```json\n{'proposal': 'Open early.', 'backs': 'p2'}"), ask(), attempt=1)
    assert isinstance(verdict, Accept)
    assert verdict.value == {"proposal": "Open early.", "backs": "P2"}
    assert verdict.repairs == ('$.backs written as "P2"', "other quotes")


def test_a_cut_value_is_accepted_only_if_it_fits_and_is_marked() -> None:
    cut = judge(ModelReply('{"backs": "P1", "proposal": "Open ea', FinishReason.LENGTH), ask(), attempt=1)
    assert cut == Accept(
        {"backs": "P1", "proposal": "Open ea"}, truncated=True, repairs=("closed where the text ends",)
    )
    assert isinstance(judge(ModelReply('{"proposal": "Op', FinishReason.LENGTH), ask(), attempt=1), Reask)


def test_the_answer_may_stand_in_the_tool_call_of_the_outputs_name() -> None:
    calls = (ToolCall("1", "search", '{"q": "bread"}'), ToolCall("2", "proposal", GOOD))
    verdict = judge(ModelReply("", FinishReason.TOOL_CALLS, tool_calls=calls), ask(), attempt=1)
    assert isinstance(verdict, Accept)
    assert verdict.value["backs"] == "P2"
    twice = (ToolCall("1", "proposal", GOOD), ToolCall("2", "proposal", GOOD.replace("P2", "P1")))
    other = judge(ModelReply("", FinishReason.TOOL_CALLS, tool_calls=twice), ask(), attempt=1)
    assert isinstance(other, Reask)
    assert other.failure.kind is FailureKind.AMBIGUOUS


@pytest.mark.parametrize(
    ("reply", "kind", "says"),
    [
        (ModelReply(""), FailureKind.EMPTY, "Write the answer now."),
        (ModelReply("", reasoning="Hm."), FailureKind.REASONING_ONLY, "the answer alone, without any reasoning"),
        (ModelReply(json.dumps(SCHEMA)), FailureKind.SCHEMA_ECHO, "real values. Do not repeat the description"),
        (ModelReply('{"proposal": "Op', FinishReason.LENGTH), FailureKind.TRUNCATED, "at most 40 words in all"),
        (ModelReply("I back P2."), FailureKind.NOT_JSON, "It was: I back P2.\nAnswer again with one JSON object"),
        (ModelReply('{"proposal": "a", "backs": "P7"}'), FailureKind.INVALID, '"backs" must be one of "P1", "P2".'),
        (ModelReply(GOOD + GOOD.replace("P2", "P1")), FailureKind.AMBIGUOUS, "exactly one JSON object"),
    ],
    ids=lambda value: value.value if isinstance(value, FailureKind) else None,
)  # fmt: skip
def test_each_failure_is_asked_for_again_in_its_own_words(reply: ModelReply, kind: FailureKind, says: str) -> None:
    verdict = judge(reply, ask(), attempt=1)
    note = reasked(verdict)
    assert isinstance(verdict, Reask)
    assert verdict.failure.kind is kind
    assert verdict.request.output == ask().output
    assert note.startswith("\n\nYour last reply can't be used: ")
    assert verdict.failure.message in note
    assert says in note


def test_br_097_a_schema_echo_is_asked_for_once_and_fails_in_plain_words() -> None:
    echo = ModelReply(json.dumps(SCHEMA))
    note = reasked(judge(echo, ask(), attempt=1))
    assert "additionalProperties" not in note
    final = judge(echo, ask(), attempt=2)
    assert isinstance(final, Fail)
    text = str(final.error)
    assert text == (
        'No usable reply of embedded:smollm2 for the output "proposal": the reply repeats the description of the '
        "answer instead of giving values; got schema_echo at try 2; limit 2 tries. "
        "Use a model or an endpoint that supports JSON schemas for this role."
    )


def test_br_100_a_reasoning_only_reply_ends_after_one_reask() -> None:
    thinking = ModelReply("", FinishReason.LENGTH, reasoning="First, " * 900)
    verdict = judge(thinking, ask(), attempt=1)
    assert "First" not in reasked(verdict)
    final = judge(thinking, ask(), attempt=2)
    assert isinstance(final, Fail)
    assert final.failure.kind is FailureKind.REASONING_ONLY
    assert "reasoning effort" in final.error.advice


def test_br_101_a_reask_opens_no_turn_that_would_need_opaque_fields() -> None:
    reply = ModelReply("no", opaque={"reasoning_content": "x" * 5000})
    verdict = judge(reply, ask(), attempt=1)
    assert isinstance(verdict, Reask)
    assert all(message.role != "assistant" for message in verdict.request.messages)


def test_br_103_every_reask_is_made_from_the_first_request_so_nothing_piles_up() -> None:
    sizes = set()
    for attempt in (1, 2, 3):
        verdict = judge(ModelReply("I back P2."), ask(), attempt=attempt, max_reasks=3)
        sizes.add(len(reasked(verdict)))
    assert len(sizes) == 1
    assert isinstance(judge(ModelReply("I back P2."), ask(), attempt=4, max_reasks=3), Fail)


def test_without_reasks_the_first_failure_is_final() -> None:
    verdict = judge(ModelReply("no"), ask(), attempt=1, max_reasks=0)
    assert isinstance(verdict, Fail)
    assert verdict.error.limit == "1 try"


def test_a_refused_reply_is_never_asked_for_again() -> None:
    for decide in (judge, judge_text):
        verdict = decide(ModelReply(GOOD, FinishReason.CONTENT_FILTER), ask(), attempt=1, max_reasks=5)
        assert isinstance(verdict, Fail)
        assert verdict.failure.kind is FailureKind.REFUSED
        assert "content filter" in str(verdict.error)


def test_the_failures_place_is_named() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "integer"}}}}
    request = ModelRequest("m:x", (Message("user", "?"),), 50, output=OutputSchema("numbers", schema))
    verdict = judge(ModelReply('{"a": [1, "b"]}'), request, attempt=2)
    assert isinstance(verdict, Fail)
    assert 'item 2 of "a" must be a whole number at $.a[1]' in str(verdict.error)


# Plain text.


@pytest.mark.parametrize(
    ("reply", "verdict"),
    [
        (ModelReply(" Open early.\n"), Accept({}, text="Open early.")),
        (ModelReply("Open ea", FinishReason.LENGTH), Accept({}, truncated=True, text="Open ea")),
        (ModelReply("<think>hm</think>\nOpen early."), Accept({}, text="Open early.")),
        (ModelReply("Open early.", FinishReason.UNKNOWN), Accept({}, text="Open early.")),
    ],
)
def test_text_is_accepted(reply: ModelReply, verdict: Accept) -> None:
    assert judge_text(reply, ask(output=False), attempt=1) == verdict


@pytest.mark.parametrize("decide", [judge, judge_text])
@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (ModelReply("", usage=Usage(9, 5)), FailureKind.EMPTY),
        (ModelReply("", usage=Usage(9, 5, reasoning=5)), FailureKind.REASONING_ONLY),
        (ModelReply(" ", FinishReason.LENGTH), FailureKind.REASONING_ONLY),
        (ModelReply(" ", FinishReason.LENGTH, Usage(9, 5, reasoning=5)), FailureKind.REASONING_ONLY),
        (ModelReply("", FinishReason.CONTENT_FILTER, Usage(9, 5, reasoning=5)), FailureKind.REFUSED),
    ],
)
def test_thoughts_that_are_only_counted_are_thoughts(decide: Any, reply: ModelReply, kind: FailureKind) -> None:
    final = decide(reply, ask(), attempt=2)
    assert isinstance(final, Fail)
    assert final.failure.kind is kind
    assert ("--param reasoning_tokens=" in final.error.advice) is (kind is FailureKind.REASONING_ONLY)


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (ModelReply(""), FailureKind.EMPTY),
        (ModelReply(" \u200b\n"), FailureKind.EMPTY),
        (ModelReply("", reasoning="Hm."), FailureKind.REASONING_ONLY),
        (ModelReply("<think>Hm.", FinishReason.LENGTH), FailureKind.REASONING_ONLY),
        (ModelReply("<think>Hm.</think> "), FailureKind.REASONING_ONLY),
    ],
)
def test_no_text_is_asked_for_again_then_fails(reply: ModelReply, kind: FailureKind) -> None:
    request = ask(output=False)
    first = judge_text(reply, request, attempt=1)
    assert isinstance(first, Reask)
    assert first.failure.kind is kind
    assert "JSON" not in first.request.messages[-1].content
    second = judge_text(reply, request, attempt=2)
    assert isinstance(second, Fail)
    assert second.failure.kind is kind
    assert "for the output text" in str(second.error)


# What a re-ask costs is known before the run.


@given(
    text=st.text(st.characters(exclude_categories=[]), max_size=600) | st.just(GOOD * 2) | st.just('{"é' * 4000),
    reasoning=st.just("") | st.text(max_size=30),
    finish=st.sampled_from(list(FinishReason)),
    cap=st.integers(0, 10**9),
    output=st.booleans(),
)
def test_a_reask_never_adds_more_than_was_announced(
    text: str, reasoning: str, finish: FinishReason, cap: int, output: bool
) -> None:
    request = ask(output, cap=cap)
    decide = judge if output else judge_text
    verdict = decide(ModelReply(text, finish, reasoning=reasoning), request, attempt=1)
    if isinstance(verdict, Reask):
        before = sum(len(message.content.encode()) for message in request.messages)
        after = sum(len(message.content.encode()) for message in verdict.request.messages)
        assert len(verdict.request.messages) == len(request.messages)
        assert after - before <= reask_overhead(request)
        assert verdict.request.max_output_tokens == cap


def test_the_announced_overhead_is_small_and_reached() -> None:
    assert reask_overhead(ask(output=False)) < 420
    assert reask_overhead(ask()) < 420 + 150, "the note, and the fields of this schema"
    long_name = {"type": "object", "properties": {"é" * 300: {"type": "string"}}, "required": ["é" * 300]}
    request = ModelRequest("m:x", (Message("user", "?"),), 50, output=OutputSchema("long", long_name))
    verdict = judge(ModelReply('{"a": "' + "é" * 900 + '"}'), request, attempt=1)
    assert isinstance(verdict, Reask)
    added = len(verdict.request.messages[-1].content.encode()) - 1
    assert reask_overhead(request) - 40 < added <= reask_overhead(request)


@given(text=st.text(max_size=400), limit=st.integers(48, 300))
def test_br_106_a_clipped_text_says_so_and_splits_no_character(text: str, limit: int) -> None:
    line = " ".join(text.split())
    short = clip(text, limit)
    assert len(short.encode()) <= limit
    if len(line.encode()) <= limit:
        assert short == line
    else:
        head, _, mark = short.rpartition(" [... ")
        assert line.startswith(head)
        assert mark == f"{len(line.encode()) - len(head.encode())} bytes left out]"


def test_clip_limits_are_wide_enough_for_their_mark() -> None:
    assert min(PROBLEM_BYTES, QUOTE_BYTES) >= 48
    assert clip("a\ud800b", 60) == "a?b"
