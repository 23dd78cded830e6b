from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from romanesco.errors import ConfigError
from romanesco.models._parse import FailureKind, Parsed, ParseFailure, parse, split_thinking
from romanesco.models._schema import at_path, strict, violation, with_guidance
from romanesco.models._types import FinishReason

CORPUS = Path(__file__).with_name("corpus")
SCHEMAS: dict[str, dict[str, Any]] = json.loads((CORPUS / "schemas.json").read_text(encoding="utf-8"))


def load(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (CORPUS / name).read_text(encoding="utf-8").splitlines()]


CASES = load("captured.jsonl") + load("written.jsonl")


def run(
    text: str, schema: str = "proposal", finish: FinishReason = FinishReason.STOP, reasoning: str = ""
) -> Parsed | ParseFailure:
    return parse(text, SCHEMAS[schema], finish=finish, reasoning=reasoning)


def kind_of(outcome: Parsed | ParseFailure) -> FailureKind:
    assert isinstance(outcome, ParseFailure), outcome
    return outcome.kind


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_corpus(case: dict[str, Any]) -> None:
    outcome = run(case["text"], case["schema"], FinishReason(case["finish"]), case["reasoning"])
    expected = case["expect"]
    if "fail" in expected:
        assert kind_of(outcome) is FailureKind[expected["fail"]]
        assert isinstance(outcome, ParseFailure)
        assert outcome.message
        assert outcome.path.startswith("$")
    else:
        assert isinstance(outcome, Parsed), outcome
        # As JSON texts, because Python takes 1 for True.
        assert json.dumps(outcome.value, sort_keys=True) == json.dumps(expected["ok"], sort_keys=True)
        assert outcome.truncated is expected["truncated"]


def test_br_095_the_corpus_is_large_and_mostly_from_a_small_model() -> None:
    captured = [case for case in CASES if case["origin"] == "captured"]
    assert {case["origin"] for case in CASES} == {"captured", "written"}
    assert len(CASES) >= 300
    assert 2 * len(captured) > len(CASES), "more than half were written by the embedded model"
    assert len({case["text"] for case in captured}) == len(captured)
    assert len({case["id"] for case in CASES}) == len(CASES)
    kinds = {case["expect"].get("fail", "OK") for case in CASES}
    assert kinds == {kind.name for kind in FailureKind} | {"OK"}
    assert all(
        "ok" not in case["expect"] or violation(case["expect"]["ok"], SCHEMAS[case["schema"]]) is None for case in CASES
    )


def test_br_097_a_schema_echo_is_told_from_an_answer() -> None:
    assert kind_of(run(json.dumps(SCHEMAS["proposal"]))) is FailureKind.SCHEMA_ECHO
    wrapped = run('{"type": "object", "properties": {"proposal": "Open early.", "backs": "P2"}}')
    assert isinstance(wrapped, Parsed)
    assert wrapped.value == {"proposal": "Open early.", "backs": "P2"}
    assert wrapped.repairs == ('taken out of "properties"',)


def test_br_098_fences_and_prose_around_the_object() -> None:
    outcome = run('Sure:\n```json\n{"proposal": "Open early.", "backs": "P2"}\n```\nShall I go on?')
    assert outcome == Parsed({"proposal": "Open early.", "backs": "P2"})


def test_br_100_reasoning_without_an_answer_is_its_own_failure() -> None:
    assert kind_of(run("", reasoning="P1 or P2?")) is FailureKind.REASONING_ONLY
    assert kind_of(run("<think>P1 or P2?", finish=FinishReason.LENGTH)) is FailureKind.REASONING_ONLY
    assert kind_of(run("")) is FailureKind.EMPTY


def test_the_finish_reason_is_looked_at_first() -> None:
    good = '{"proposal": "Open early.", "backs": "P2"}'
    assert kind_of(run(good, finish=FinishReason.CONTENT_FILTER)) is FailureKind.REFUSED


def test_the_message_names_the_field_and_the_path_names_the_place() -> None:
    outcome = run('{"entries": [{"kind": "fact", "text": "a"}, {"kind": "guess", "text": "b"}]}', "ledger")
    assert outcome == ParseFailure(
        FailureKind.INVALID, '"kind" must be one of "fact", "constraint", "risk"', "$.entries[1].kind"
    )
    missing = run('{"failure": "none", "more": 1}', "frame")
    assert missing == ParseFailure(FailureKind.INVALID, 'the fields "reframing", "dimension" are missing', "$")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"agree": "maybe", "confidence": 1}', '"agree" must be true or false'),
        ('{"agree": true, "confidence": 7}', '"confidence": 7 is greater than the maximum of 1'),
        ('{"agree": true, "confidence": 1, "x": {}, "y": 1, "agree ": 1}', None),
    ],
)
def test_messages_in_plain_words(text: str, message: str | None) -> None:
    outcome = run(text, "verdict")
    if message is None:
        assert isinstance(outcome, Parsed)
    else:
        assert isinstance(outcome, ParseFailure)
        assert outcome.message == message


@pytest.mark.parametrize(
    ("schema", "value", "message"),
    [
        ({"items": {"type": "string"}, "minItems": 2, "type": "array"}, ["a"], '"x" must have at least 2 items'),
        ({"maxItems": 1, "type": "array"}, [1, 2], '"x" must have at most 1 items'),
        ({"minLength": 3, "type": "string"}, "a", '"x" must have at least 3 characters'),
        ({"maxLength": 1, "type": "string"}, "ab", '"x" must have at most 1 characters'),
        ({"const": 4}, 5, '"x" must be 4'),
        ({"type": ["integer", "null"]}, "a", '"x" must be a whole number or null'),
    ],
)
def test_violations_in_plain_words(schema: dict[str, Any], value: Any, message: str) -> None:
    found = violation({"x": value}, {"type": "object", "properties": {"x": schema}})
    assert found is not None
    assert (found.path, found.message) == ("$.x", message)


def test_long_messages_are_cut_visibly() -> None:
    found = violation({"x": "y" * 5000}, {"type": "object", "properties": {"x": {"pattern": "^a$"}}})
    assert found is not None
    assert len(found.message) == 200
    assert found.message.endswith("…")


@pytest.mark.parametrize("schema", [{"type": "objekt"}, {"$ref": "#/nowhere"}, {"$ref": "http://127.0.0.1:9/x"}])
def test_a_wrong_schema_is_a_config_error_and_nothing_is_fetched(schema: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="JSON schema"):
        parse("{}", schema, finish=FinishReason.STOP)


def test_references_are_followed_when_values_are_brought_into_form() -> None:
    schema = {
        "type": "object",
        "properties": {"votes": {"type": "array", "items": {"$ref": "#/$defs/vote"}}},
        "required": ["votes"],
        "$defs": {"vote": {"type": "object", "properties": {"n": {"anyOf": [{"type": "integer"}, {"type": "null"}]}}}},
    }
    outcome = parse('{"votes": [{"n": "3"}, {"n": null}, {" N": 4}]}', schema, finish=FinishReason.STOP)
    assert isinstance(outcome, Parsed)
    assert outcome.value == {"votes": [{"n": 3}, {"n": None}, {"n": 4}]}
    assert "$.votes[0].n taken as integer" in outcome.repairs


def test_a_value_is_left_alone_if_it_could_become_two_things() -> None:
    both = {"type": "object", "properties": {"x": {"anyOf": [{"type": "integer"}, {"type": "boolean"}]}}}
    assert kind_of(parse('{"x": "maybe"}', both, finish=FinishReason.STOP)) is FailureKind.INVALID
    same_form = {"type": "object", "properties": {"x": {"enum": ["a b", "A B"]}}}
    assert kind_of(parse('{"x": "a  B"}', same_form, finish=FinishReason.STOP)) is FailureKind.INVALID
    two_names = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    assert kind_of(parse('{"A": "1", " a": "2"}', two_names, finish=FinishReason.STOP)) is FailureKind.INVALID


def test_extra_fields_stay_unless_the_schema_forbids_them() -> None:
    outcome = run('{"answer": "yes", "mood": "good"}', "note")
    assert outcome == Parsed({"answer": "yes", "mood": "good"})


def test_thinking_is_split_off() -> None:
    assert split_thinking("<think>a</think>b") == ("b", "a")
    assert split_thinking("a</think>b") == ("b", "a")
    assert split_thinking('{"a": "</think>"}') == ('{"a": "</think>"}', "")
    assert split_thinking("<think>a") == ("", "a")
    assert split_thinking("a") == ("a", "")


# Schemas for the endpoints.


def test_strict_closes_objects_and_leaves_maps_and_data_alone() -> None:
    schema = {
        "type": "object",
        "properties": {
            "properties": {"type": "object", "properties": {"a": {"type": "integer"}}},
            "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {}}},
            "list": {"type": "array", "items": {"anyOf": [{"type": "object", "properties": {}}, True]}},
            "data": {"enum": [{"properties": {}}]},
        },
        "$defs": {"d": {"type": "object", "properties": {}}},
    }
    before = json.dumps(schema)
    closed = strict(schema)
    assert json.dumps(schema) == before
    assert closed["additionalProperties"] is False
    properties = closed["properties"]
    assert properties["properties"]["additionalProperties"] is False
    assert properties["map"]["additionalProperties"] == {
        "type": "object",
        "properties": {},
        "additionalProperties": False,
    }
    assert properties["list"]["items"]["anyOf"][0]["additionalProperties"] is False
    assert properties["list"]["items"]["anyOf"][1] is True
    assert properties["data"] == {"enum": [{"properties": {}}]}
    assert closed["$defs"]["d"]["additionalProperties"] is False


def test_guidance_forbids_white_space() -> None:
    guided = with_guidance(SCHEMAS["proposal"])
    assert guided["x-guidance"] == {"whitespace_flexible": False, "item_separator": ",", "key_separator": ":"}
    assert {key: guided[key] for key in SCHEMAS["proposal"]} == SCHEMAS["proposal"]


def test_a_schema_that_refers_to_itself_ends() -> None:
    loop: dict[str, Any] = {"properties": {"x": {"$ref": "#/properties/x"}}}
    assert at_path(("x",), loop) == [{}]
    tree = {"type": "object", "properties": {"sub": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}}
    outcome = parse('{"sub": {"sub": {"sub": null}}} ...', tree, finish=FinishReason.STOP)
    assert outcome == Parsed({"sub": {"sub": {"sub": None}}})


# Hostile text. None of these may raise, overflow the stack or take quadratic time (a test's time limit would show it).

MEGABYTE = 1_000_000
HOSTILE = {
    "braces": "{" * MEGABYTE,
    "brackets": "[" * MEGABYTE,
    "pairs": "[]" * (MEGABYTE // 2),
    "open-close": "[" * (MEGABYTE // 2) + "]" * (MEGABYTE // 2),
    "keys": '{"a":' * (MEGABYTE // 5),
    "keys-broken": '{"a":' * (MEGABYTE // 5) + "x",
    "quotes": '"' * MEGABYTE,
    "list-quotes": '["' * (MEGABYTE // 2),
    "object-quotes": '{"' * (MEGABYTE // 2),
    "spaced-quotes": '["' + '" ' * (MEGABYTE // 2),
    "backslashes": '{"a": "' + "\\" * MEGABYTE,
    "comments": "{/*" * (MEGABYTE // 3),
    "slashes": "{//" * (MEGABYTE // 3),
    "hashes": "[# " * (MEGABYTE // 3),
    "fences": "{```" * (MEGABYTE // 4),
    "blank": "{" + " " * MEGABYTE,
    "blanks-between": "{ " * (MEGABYTE // 2),
    "digits": '{"a": ' + "9" * MEGABYTE,
    "commas": "[" + "1," * (MEGABYTE // 2),
    "same-field": "{" + '"a": [1, 2, 3],' * (MEGABYTE // 15),
    "many-fields": "{" + ",".join(f'"k{n}": {n}' for n in range(50_000)) + "}",
    "many-objects": '{"proposal": "a", "backs": "P1"}' * (MEGABYTE // 32),
    "think": "<think>" * (MEGABYTE // 7),
    "think-ends": "</think>" * (MEGABYTE // 8),
    "nul": "\x00" * MEGABYTE,
    "surrogates": '{"a": "' + "\ud800" * MEGABYTE,
    "escapes": '{\\"a' * (MEGABYTE // 5),
    "long-text": '{"proposal": "' + "a" * MEGABYTE + '", "backs": "p2"}',
    "dots": '{"proposal": "' + "." * MEGABYTE + '", "backs": "P2"}',
    "type-object": '"type": "object" ' * (MEGABYTE // 17),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_a_result_not_an_error(name: str) -> None:
    whole = run(HOSTILE[name], "proposal", FinishReason.LENGTH)
    start = run(HOSTILE[name][:100_000], "tags", FinishReason.STOP)
    for outcome in (whole, start):
        assert isinstance(outcome, Parsed) is (name in ("long-text", "many-objects") and outcome is whole)


def test_a_lone_surrogate_never_reaches_the_value() -> None:
    for text in ('{"proposal": "a\ud800b", "backs": "P2"}', '{"proposal": "a\\udc00b", "backs": "P2"}'):
        outcome = run(text)
        assert isinstance(outcome, Parsed)
        assert outcome.value["proposal"] == "a\ufffdb"
        assert "lone surrogate" in outcome.repairs
        json.dumps(outcome.value, ensure_ascii=False).encode()


def test_nul_in_a_text_is_kept_and_around_it_is_noise() -> None:
    outcome = run('\x00{"proposal": "a\\u0000b",\x00"backs": "P2"}')
    assert isinstance(outcome, Parsed)
    assert outcome.value["proposal"] == "a\x00b"


def test_depth_is_limited_for_plain_json_too() -> None:
    deep = '{"answer": "a", "x": ' + "[" * 5000 + "]" * 5000 + "}"
    assert kind_of(run(deep, "note")) is FailureKind.NOT_JSON


# Properties.

TEXT = st.text(max_size=30).filter(lambda text: not set(text.strip()) <= set(".…"))
WORDS = TEXT.filter(
    lambda text: text[:1] not in "<[" and text.strip() and text.strip().lower() not in {"string", "text"}
)
INSTANCES: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "proposal": st.fixed_dictionaries({"proposal": WORDS, "backs": st.sampled_from(["P1", "P2", "P3", "P4"])}),
    "critiques": st.fixed_dictionaries({"critiques": st.lists(WORDS, min_size=3, max_size=3)}),
    "decision": st.fixed_dictionaries({
        "chosen": st.sampled_from(["P1", "P2", "P3"]),
        "answer": WORDS,
        "absorbed": st.lists(WORDS, max_size=3),
    }),
    "verdict": st.fixed_dictionaries({"agree": st.booleans(), "confidence": st.floats(0, 1)}),
    "note": st.fixed_dictionaries(
        {"answer": WORDS},
        optional={
            "note": WORDS,
            "id": st.from_regex(r"\AM-[0-9]{1,8}\Z"),
            "other": st.recursive(
                st.none() | st.booleans() | st.integers(-(2**60), 2**60) | WORDS,
                lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
                max_leaves=8,
            ),
        },
    ),
    "tags": st.fixed_dictionaries(
        {"tags": st.lists(WORDS, max_size=3)},
        optional={"level": st.sampled_from(["low", "lower", "high"]), "count": st.none() | st.integers(0, 999)},
    ),
}
PAIRS = st.sampled_from(sorted(INSTANCES)).flatmap(lambda name: st.tuples(st.just(name), INSTANCES[name]))
FINISHES = st.sampled_from([FinishReason.STOP, FinishReason.LENGTH, FinishReason.TOOL_CALLS, FinishReason.UNKNOWN])
NOISE = st.text(st.characters(exclude_characters="{[｛［", exclude_categories=["Cs"]), max_size=60)


@given(pair=PAIRS, ascii_only=st.booleans(), indent=st.sampled_from([None, 2]), finish=FINISHES)
def test_a_valid_instance_comes_back_as_it_was(
    pair: tuple[str, dict[str, Any]], ascii_only: bool, indent: int | None, finish: FinishReason
) -> None:
    name, value = pair
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    assert run(text, name, finish) == Parsed(value)


@given(pair=PAIRS, before=NOISE, after=NOISE, finish=FINISHES)
def test_noise_around_never_changes_the_value(
    pair: tuple[str, dict[str, Any]], before: str, after: str, finish: FinishReason
) -> None:
    assume("think" not in before + after)
    name, value = pair
    outcome = run(before + json.dumps(value) + after, name, finish)
    assert isinstance(outcome, Parsed)
    assert outcome.value == value
    assert not outcome.truncated


def is_part(part: Any, whole: Any) -> bool:
    """Whether a value may be what is left of another one that was cut."""
    if isinstance(part, str) and isinstance(whole, str):
        return whole.startswith(part)
    if isinstance(part, list) and isinstance(whole, list):
        return len(part) <= len(whole) and all(map(is_part, part, whole))
    if isinstance(part, dict) and isinstance(whole, dict):
        return all(key in whole and is_part(part[key], whole[key]) for key in part)
    return bool(part == whole)


@given(pair=PAIRS, data=st.data(), ascii_only=st.booleans())
def test_a_cut_reply_gives_a_part_of_the_value_or_a_failure_never_another_value(
    pair: tuple[str, dict[str, Any]], data: st.DataObject, ascii_only: bool
) -> None:
    name, value = pair
    text = json.dumps(value, ensure_ascii=ascii_only)
    at = data.draw(st.integers(0, len(text) - 1))
    outcome = run(text[:at], name, FinishReason.LENGTH)
    if isinstance(outcome, Parsed):
        assert outcome.truncated
        assert is_part(outcome.value, value)
        assert violation(outcome.value, SCHEMAS[name]) is None
    else:
        assert outcome.kind in (FailureKind.TRUNCATED, FailureKind.EMPTY, FailureKind.SCHEMA_ECHO)


@pytest.mark.parametrize("number", ["7.9e-289", "5e-05", "2.2250738585e-313", "0.25", "1"])
def test_a_number_that_the_end_may_have_cut_is_not_taken(number: str) -> None:
    text = f'{{"agree": true, "confidence": {number}'
    for end in range(len(text) + 1):
        assert not isinstance(run(text[:end], "verdict", FinishReason.LENGTH), Parsed), text[:end]


TOKENS = st.lists(
    st.sampled_from(
        ['{', '}', '[', ']', '"', "'", '“', '”', ':', ',', '：', '，', '\\', '\\"', '\\u12', '\\ud800', '\n', ' ',
         '\x00', 'proposal', '"proposal"', 'backs', '"backs"', '"P1"', 'p2', 'true', 'None', 'NaN', '12', '-',
         '1e999', '...',
         '//', '/*', '*/', '# ', '```', '```json', '<think>', '</think>', '\ud83d', '\ufeff', 'properties', '"type"',
         '{"proposal": "x", "backs": "P1"}', '{"proposal": "y', '"tags": [', '{"answer": ', '"critiques": ["a", "b"']
    ),
    max_size=40,
).map("".join)  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(
    text=TOKENS | st.text(st.characters(exclude_categories=[]), max_size=80),
    reasoning=st.just("") | TOKENS,
    name=st.sampled_from(sorted(SCHEMAS)),
    finish=st.sampled_from(list(FinishReason)),
)
def test_no_text_raises_and_every_value_fits(text: str, reasoning: str, name: str, finish: FinishReason) -> None:
    outcome = run(text, name, finish, reasoning)
    if isinstance(outcome, Parsed):
        assert violation(outcome.value, SCHEMAS[name]) is None
        json.dumps(outcome.value, ensure_ascii=False, allow_nan=False).encode()
    else:
        assert outcome.message
        assert len(outcome.message) <= 300
