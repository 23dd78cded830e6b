"""JSON schemas of replies: compiled and checked by ``jsonschema-rs``, made strict.

The library was chosen for its cost: about 20 ms to import and a microsecond a check, where the pure Python one takes
120 ms and hundreds of microseconds. It is imported when the first reply is checked.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any

from romanesco.errors import ConfigError
from romanesco.models._types import Json

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError, Validator

Schema = dict[str, Json]

GUIDANCE: dict[str, Json] = {"whitespace_flexible": False, "item_separator": ",", "key_separator": ":"}
"""The ``x-guidance`` options that forbid white space between tokens of JSON."""

_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)
_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLES = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames")
TYPE_WORDS = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}
_RANK = {"required": 0, "additionalProperties": 2}
_MAX_ERRORS = 50
_DEEPEST = 32


@dataclass(frozen=True, slots=True)
class Violation:
    """What does not fit: ``path`` such as ``$.critiques[1]`` and a message in plain words."""

    path: str
    message: str


def canonical(value: Json) -> str:
    """One text for equal JSON values, with sorted keys and no white space."""
    return _ENCODER.encode(value)


def violation(value: Json, schema: Schema) -> Violation | None:
    """Check a value against a schema.

    Args:
        value: Any JSON value, nested at most a few hundred levels deep.
        schema: A JSON schema; the draft is taken from ``$schema``, else 2020-12. References stay inside the schema:
            nothing is ever fetched.

    Returns:
        The violation that says most, or None if the value fits: missing fields first, superfluous ones last.

    Raises:
        ConfigError: The schema itself is not valid.
    """
    validator = _compiled(canonical(schema))
    if validator.is_valid(value):
        return None
    errors = list(islice(validator.iter_errors(value), _MAX_ERRORS))
    first = min(errors, key=lambda error: _RANK.get(error.kind.name, 1))
    names = [
        str(error.kind.as_dict()["property"])
        for error in errors
        if error.kind.name == "required" and error.instance_path == first.instance_path
    ]
    return Violation(path_text(first.instance_path), _missing(names) if names else _plain(first))


@lru_cache(maxsize=256)
def _compiled(text: str) -> Validator:
    import jsonschema_rs  # lazily: only a run with structured output needs it

    try:
        return jsonschema_rs.validator_for(json.loads(text), offline=True)
    except ValueError as error:
        raise ConfigError(
            "the JSON schema of an output is not valid",
            value=str(error).split("\n", 1)[0][:200],
            advice="Correct the schema that the output declares.",
        ) from error


def path_text(path: Sequence[str | int]) -> str:
    """``["critiques", 1]`` as ``$.critiques[1]``."""
    return "$" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)


def _missing(names: Sequence[str]) -> str:
    quoted = ", ".join(f'"{name}"' for name in names)
    return _clip(f"the field {quoted} is missing" if len(names) == 1 else f"the fields {quoted} are missing")


def _clip(text: str) -> str:
    return text if len(text) <= 200 else text[:199] + "…"


def _plain(error: ValidationError) -> str:
    """The library's error as a sentence that a small model can follow."""
    kind: Any = error.kind
    where = _place(error.instance_path)
    match kind.name:
        case "additionalProperties":
            text = "there must be no field " + ", ".join(f'"{name}"' for name in kind.unexpected)
        case "type":
            text = f"{where} must be {' or '.join(_type_words(kind.types))}"
        case "enum":
            text = f"{where} must be one of {choices(kind.options)}"
        case "const":
            text = f"{where} must be {json.dumps(kind.expected_value, ensure_ascii=False)}"
        case "minItems":
            text = f"{where} must have at least {kind.limit} items"
        case "maxItems":
            text = f"{where} must have at most {kind.limit} items"
        case "minLength":
            text = f"{where} must have at least {kind.limit} characters"
        case "maxLength":
            text = f"{where} must have at most {kind.limit} characters"
        case _:
            text = f"{where}: {error.message}"
    return _clip(text)


def _place(path: Sequence[str | int]) -> str:
    if not path:
        return "the object"
    last = path[-1]
    if isinstance(last, str):
        return f'"{last}"'
    return f"item {last + 1} of {_place(path[:-1])}" if len(path) > 1 else f"item {last + 1}"


def _type_words(names: Sequence[str]) -> list[str]:
    return [word for name, word in TYPE_WORDS.items() if name in names]


def choices(options: Sequence[Json]) -> str:
    """The options as JSON, with commas between."""
    return ", ".join(json.dumps(option, ensure_ascii=False) for option in options)


SIZE = "x-size"
"""Our own keyword of a text: ``[least, most]`` characters that a grammar holds the model to. It is a wish, not a rule:
where no grammar is used, a text of another length still fits."""

_LENGTHS = ("minLength", "maxLength")


def strict(schema: Schema) -> Schema:
    """A copy in which no object takes fields that it does not declare.

    Every object schema with ``properties`` gets ``additionalProperties: false``. A map, that is an object whose
    ``additionalProperties`` is itself a schema, stays a map. Native JSON modes and grammars ask for this.
    """
    result: Schema = _map_schemas(schema, _closed)
    return result


def _closed(node: Schema) -> Schema:
    if "properties" in node and not isinstance(node.get("additionalProperties"), dict):
        node["additionalProperties"] = False
    return node


def _map_schemas(node: Any, change: Any) -> Any:
    """A copy with every subschema changed; values of ``enum``, ``default`` and the like are not schemas."""
    if not isinstance(node, dict):
        return node
    copy = dict(node)
    for key in _MAPS:
        if isinstance(copy.get(key), dict):
            copy[key] = {name: _map_schemas(sub, change) for name, sub in copy[key].items()}
    for key in _LISTS:
        if isinstance(copy.get(key), list):
            copy[key] = [_map_schemas(sub, change) for sub in copy[key]]
    for key in _SINGLES:
        if isinstance(copy.get(key), dict):
            copy[key] = _map_schemas(copy[key], change)
    return change(copy)


def portable(schema: Schema) -> Schema:
    """The schema for an endpoint's native mode or for a tool: strict, without limits of text lengths.

    Some endpoints refuse a schema with such limits. The reply is checked against the whole schema all the same.
    """
    result: Schema = _map_schemas(strict(schema), _without_lengths)
    return result


def _without_lengths(node: Schema) -> Schema:
    return {key: value for key, value in node.items() if key not in (*_LENGTHS, SIZE)}


def with_guidance(schema: Schema) -> Schema:
    """The schema for an llguidance grammar: strict, sizes as limits, and no white space between tokens.

    Without this a small model pads its JSON with white space up to the cap of output tokens.
    """
    return {**_map_schemas(strict(schema), _with_lengths), "x-guidance": dict(GUIDANCE)}


def _with_lengths(node: Schema) -> Schema:
    if SIZE not in node:
        return node
    rest = {key: value for key, value in node.items() if key != SIZE}
    return {**rest, **dict(zip(_LENGTHS, node[SIZE], strict=True))}


def resolve(schema: Any, root: Schema) -> Any:
    """Follow local ``$ref`` (``#/...``) to the schema that it names; an unknown reference gives ``{}``."""
    for _ in range(_DEEPEST):
        if not isinstance(schema, dict) or not isinstance(schema.get("$ref"), str):
            return schema
        node: Any = root
        for part in schema["$ref"].removeprefix("#").split("/")[1:]:
            part = part.replace("~1", "/").replace("~0", "~")
            node = node.get(part, {}) if isinstance(node, dict) else {}
        schema = node
    return {}


def alternatives(schema: Any, root: Schema) -> list[Schema]:
    """The schemas that a value may follow here: itself, or the branches of ``anyOf`` and ``oneOf``, resolved."""
    found: list[Schema] = []
    waiting = [schema]
    while waiting and len(found) < _DEEPEST:
        node = resolve(waiting.pop(0), root)
        if not isinstance(node, dict):
            continue
        branches = node.get("anyOf") or node.get("oneOf")
        if isinstance(branches, list) and len(waiting) < _DEEPEST:
            waiting.extend(branches)
        else:
            found.append(node)
    return found


def at_path(path: Sequence[str | int], root: Schema) -> list[Schema]:
    """The schemas that may hold at a path; empty if the schema says nothing about it."""
    here = alternatives(root, root)
    for step in path:
        below = (_child(node, step) for node in here)
        here = [option for child in below if child is not None for option in alternatives(child, root)]
    return here


def _child(node: Schema, step: str | int) -> Any:
    if isinstance(step, str):
        declared = node.get("properties", {}).get(step)
        return declared if declared is not None else node.get("additionalProperties") or None
    first = node.get("prefixItems", [])
    return first[step] if step < len(first) else node.get("items")


def types_of(schema: Schema) -> tuple[str, ...]:
    """The JSON types that a schema names; empty if it names none."""
    named = schema.get("type")
    return (named,) if isinstance(named, str) else tuple(named or ())


def has_type(value: Json, name: str) -> bool:
    """Whether a value is of a JSON type. ``true`` is no number, and 3.0 is an integer as the standard has it."""
    match name:
        case "string":
            return isinstance(value, str)
        case "integer":
            return (isinstance(value, int) and not isinstance(value, bool)) or (
                isinstance(value, float) and value.is_integer()
            )
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "boolean":
            return isinstance(value, bool)
        case "array":
            return isinstance(value, list)
        case "object":
            return isinstance(value, dict)
        case _:
            return name == "null" and value is None
