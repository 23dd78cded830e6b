"""Takes the one object that a reply means out of the text that a small model wrote, or says what is wrong.

The finish reason is looked at first. Nothing is guessed: a value is accepted only if it fits the schema and no second
reading does, every deviation that was forgiven is named, and a reply that can't be used is a typed failure with a
message in plain words, never an empty value.

Several objects in one reply: those that fit the schema count. If they are all the same, that one is the value; if two
differ, the reply is ambiguous, because nothing tells a correction from an example.
"""

from __future__ import annotations

import enum
import json
import re
from dataclasses import dataclass, replace

from romanesco.models._fit import Echo, Fit, cut_is_safe, describes, fit, fit_as_is, is_extra, looks_described
from romanesco.models._plain import plain_object
from romanesco.models._read import Defect, Reading, closing, read, same
from romanesco.models._schema import Schema, Violation, path_text
from romanesco.models._tokens import Cut, Flaw, scrub
from romanesco.models._types import FinishReason, Json

_OPENER = re.compile(r"[{\[｛［]")
_EMPTY = re.compile(r"[\s\u200b-\u200f\u2060\ufeff\x00]*\Z")
_THINK = re.compile(r"[\s\ufeff]*<(?:think|thinking|reasoning)>", re.IGNORECASE)
_THOUGHT = re.compile(r"</(?:think|thinking|reasoning)>", re.IGNORECASE)
_ECHO = "the reply repeats the description of the answer instead of giving values"
_MAX_VALUES = 200
_ATTEMPT = 32


class FailureKind(enum.StrEnum):
    """Why a reply can't be used."""

    EMPTY = "empty"
    REASONING_ONLY = "reasoning_only"
    SCHEMA_ECHO = "schema_echo"
    TRUNCATED = "truncated"
    NOT_JSON = "not_json"
    INVALID = "invalid"
    AMBIGUOUS = "ambiguous"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Parsed:
    """A value that fits the schema.

    Attributes:
        value: The object. Floats without a fraction are integers, as in the standard.
        truncated: The reply was cut and the value ends where the text does: what is there is the model's, but more
            may have followed.
        repairs: What was forgiven, in plain words, sorted; empty for plain JSON.
    """

    value: dict[str, Json]
    truncated: bool = False
    repairs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ParseFailure:
    """No usable value: the kind, a message in plain words that a re-ask can carry, and where in the value it is."""

    kind: FailureKind
    message: str
    path: str = "$"


@dataclass(frozen=True, slots=True)
class _Found:
    """What stands in a text: whole values, one that the end of the text cut, and what stopped the reader."""

    whole: tuple[Reading, ...]
    open: Reading | None
    defect: Defect | None


def parse(text: str, schema: Schema, *, finish: FinishReason, reasoning: str = "") -> Parsed | ParseFailure:
    """Find the object that a reply means.

    Args:
        text: The visible text of the reply.
        schema: JSON schema of an object that the value must fit.
        finish: Why the model stopped. A value that the end of the text cut is accepted, closed in the one possible
            way and marked ``truncated``, only if it then fits the schema.
        reasoning: Reasoning text that the server sent apart. It is taken as the answer only if the visible text is
            empty and the reasoning is one plain JSON object that fits and nothing else.

    Returns:
        The value, or the failure. Never raises because of what the text holds.

    Raises:
        ConfigError: The schema is not valid.
    """
    if finish is FinishReason.CONTENT_FILTER:
        return ParseFailure(FailureKind.REFUSED, "the provider's content filter stopped the reply")
    plain = plain_object(text, schema)
    if plain is not None:
        return Parsed(plain)
    repairs: set[str] = set()
    visible, thoughts = split_thinking(scrub(text, repairs))
    if thoughts:
        repairs.add("thinking before the answer")
    if is_blank(visible):
        return _without_text(thoughts or reasoning, schema, finish)
    outcome = _from_text(visible, schema, finish)
    if isinstance(outcome, Parsed):
        return replace(outcome, repairs=tuple(sorted({*outcome.repairs, *repairs})))
    return outcome


def is_blank(text: str) -> bool:
    """Whether a text has nothing but white space and characters without width."""
    return _EMPTY.match(text) is not None


def split_thinking(text: str) -> tuple[str, str]:
    """Part the visible text from a ``<think>`` block before it.

    Chat templates often open the block in the prompt, so a closing tag alone ends it too, unless the reply already
    began as JSON; a block that never closes is all thinking.

    Returns:
        The visible text and the thinking.
    """
    opened = _THINK.match(text)
    closed = _THOUGHT.search(text)
    if opened is not None:
        return (text[closed.end() :], text[opened.end() : closed.start()]) if closed else ("", text[opened.end() :])
    if closed is not None and text.lstrip("\ufeff \t\r\n")[:1] not in ("{", "[", "`", '"'):
        return text[closed.end() :], text[: closed.start()]
    return text, ""


def _without_text(thoughts: str, schema: Schema, finish: FinishReason) -> Parsed | ParseFailure:
    if is_blank(thoughts):
        return ParseFailure(FailureKind.EMPTY, "the reply is empty")
    if finish is not FinishReason.LENGTH:
        answer = plain_object(thoughts, schema)
        if answer is not None:
            return Parsed(answer, repairs=("answer in the reasoning",))
    return ParseFailure(FailureKind.REASONING_ONLY, "the reply has reasoning and no answer")


def _from_text(text: str, schema: Schema, finish: FinishReason) -> Parsed | ParseFailure:
    ended = finish in (FinishReason.STOP, FinishReason.TOOL_CALLS)
    found = _scan(text, ended=ended)
    outcome = _choose(found, schema, finish, ended)
    if isinstance(outcome, Parsed) or found.whole:
        return outcome
    if found.defect is not None and found.open is None and looks_described(text, schema):
        return ParseFailure(FailureKind.SCHEMA_ECHO, _ECHO)
    inner = _unescaped(text)
    if inner is None:
        return outcome
    decoded = _choose(_scan(inner, ended=ended), schema, finish, ended)
    if isinstance(decoded, Parsed):
        return replace(decoded, repairs=(*decoded.repairs, "JSON inside a JSON text"))
    return decoded


def _unescaped(text: str) -> str | None:
    """The text with one level of escaping taken off, if it is one JSON string, with or without its outer quotes."""
    body = text.strip().removeprefix("\ufeff")
    if '\\"' not in body:
        return None
    for candidate in (body, f'"{body}"'):
        try:
            inner = json.loads(candidate)
        except (ValueError, RecursionError):
            continue
        if isinstance(inner, str):
            return scrub(inner, set())
    return None


def _scan(text: str, *, ended: bool) -> _Found:
    """Read every object and list at the top level of the text, in order, in time linear in its length."""
    values: list[Reading] = []
    last: Reading | None = None
    defect: Defect | None = None
    at, spare = 0, len(text) + 4096
    while spare > 0 and len(values) < _MAX_VALUES:
        opener = _OPENER.search(text, at)
        if opener is None:
            break
        result = read(text, opener.start(), ended=ended)
        if isinstance(result, Reading) and (result.cut is Cut.NOTHING or result.end < len(text)):
            values.append(result)
            at = result.end
        elif isinstance(result, Reading):
            last = last or result
            if result.begun:
                return _Found(tuple(values), result, defect)
            spare -= result.end - opener.start() + _ATTEMPT
            at = opener.end()  # a bracket in prose
        elif result.begun or result.flaw is Flaw.TOO_DEEP:
            # It was meant as JSON, so what stands inside it is no answer of its own.
            defect = result
            at = closing(text, result.at, result.depth)
        else:
            spare -= result.reach - opener.start() + _ATTEMPT
            at = opener.end()
    return _Found(tuple(values), last, defect)


def _choose(found: _Found, schema: Schema, finish: FinishReason, ended: bool) -> Parsed | ParseFailure:
    """The one value that the text means, or the most telling failure."""
    objects, last = _spread(found)
    fits: list[Parsed] = []
    problem: ParseFailure | None = None
    for reading in objects:
        outcome = _judge(reading, schema, ended=True)
        if isinstance(outcome, Parsed):
            fits.append(outcome)
        elif problem is None or problem.kind is not FailureKind.SCHEMA_ECHO:
            problem = outcome
    if fits:
        return _only(fits)
    if last is not None:
        outcome = _judge(last, schema, ended=ended)
        echoed = problem is not None and problem.kind is FailureKind.SCHEMA_ECHO
        return problem if problem is not None and echoed and isinstance(outcome, ParseFailure) else outcome
    if problem is not None:
        return problem
    if found.defect is not None:
        return _broken(found.defect)
    if found.open is not None:
        return _unfinished(ended)
    if finish is FinishReason.LENGTH:
        return ParseFailure(FailureKind.TRUNCATED, "the reply reached its length limit before any JSON object began")
    return ParseFailure(FailureKind.NOT_JSON, "the reply has no JSON object")


def _spread(found: _Found) -> tuple[list[Reading], Reading | None]:
    """The whole objects, also those that stand in a list at the top, and the one that the end of the text cut."""
    objects: list[Reading] = []
    for reading in found.whole:
        objects.extend(_items(reading, reading.value) if isinstance(reading.value, list) else [reading])
    last = found.open
    if last is None or not isinstance(last.value, list):
        return objects, last
    item_open = last.hollow or len(last.cut_path) > 1
    closed = last.value[:-1] if item_open else last.value
    objects.extend(_items(replace(last, cut=Cut.NOTHING, hollow=False), closed))
    if item_open and last.value and isinstance(last.value[-1], dict):
        return objects, replace(last, value=last.value[-1], cut_path=last.cut_path[1:])
    return objects, None


def _items(reading: Reading, items: list[Json]) -> list[Reading]:
    repairs = reading.repairs | {"object in a list"}
    return [replace(reading, value=item, repairs=repairs) for item in items[:_MAX_VALUES] if isinstance(item, dict)]


def _judge(reading: Reading, schema: Schema, *, ended: bool) -> Parsed | ParseFailure:
    """One object against the schema; ``ended`` says that the model, not the cap, ended it."""
    finished = reading.cut is Cut.NOTHING or (ended and reading.cut is Cut.BRACKETS)
    if reading.hollow or (reading.cut is Cut.STRING and not _safe(reading, schema)):
        outcome: Fit | Echo | Violation = Violation("$", "")
    elif reading.cut is Cut.STRING and not is_extra(reading.cut_path, schema):
        outcome = fit_as_is(reading.value, schema)  # a text that may go on is never changed
    else:
        outcome = fit(reading.value, schema)
    if isinstance(outcome, Fit) and reading.conflict is not None:
        path = path_text(reading.conflict)
        return ParseFailure(FailureKind.AMBIGUOUS, f"{path[:80]} is given twice with different values", path)
    if isinstance(outcome, Fit):
        return Parsed(outcome.value, not finished, tuple(sorted({*reading.repairs, *outcome.changes})))
    if isinstance(outcome, Echo):
        return ParseFailure(FailureKind.SCHEMA_ECHO, outcome.message, outcome.path)
    if describes(reading.value, schema):
        return ParseFailure(FailureKind.SCHEMA_ECHO, "the reply repeats the description instead of giving values")
    if finished and not reading.hollow:
        return ParseFailure(FailureKind.INVALID, outcome.message, outcome.path)
    return _unfinished(ended)


def _unfinished(ended: bool) -> ParseFailure:
    if ended:
        return ParseFailure(FailureKind.NOT_JSON, "a quote, a bracket or a value is missing at the end")
    return ParseFailure(FailureKind.TRUNCATED, "the reply ends before the answer is complete")


def _safe(reading: Reading, schema: Schema) -> bool:
    if reading.conflict is not None:
        return False  # the path may lead into the value that came first
    text: Json = reading.value
    for step in reading.cut_path:
        text = text[step]
    return isinstance(text, str) and cut_is_safe(reading.cut_path, text, schema)


def _only(fits: list[Parsed]) -> Parsed | ParseFailure:
    if all(same(fits[0].value, other.value) for other in fits[1:]):
        return min(fits, key=lambda parsed: (parsed.truncated, len(parsed.repairs)))
    return ParseFailure(
        FailureKind.AMBIGUOUS, f"the reply has {len(fits)} different objects, and only one is asked for"
    )


def _broken(defect: Defect) -> ParseFailure:
    return ParseFailure(FailureKind.NOT_JSON, defect.message, path_text(defect.path)[:120])
