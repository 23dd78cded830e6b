"""One object against the schema: as it is, with lossless changes, or out of a wrapper; and schemas that come back."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from romanesco.models._conform import conform, normal
from romanesco.models._schema import Schema, Violation, at_path, has_type, path_text, types_of, violation
from romanesco.models._types import Json

_DOTS = re.compile(r"\s*(?:\.{2,}|…)\s*")
_SLOT = re.compile(r"\s*(?:\.{2,}|…|<[^<>\n]{1,60}>|\[[^\[\]\n]{1,60}\])\s*")
_TYPE_WORDS = frozenset({"string", "text", "integer", "number", "boolean", "array", "object"})
_WRAPPERS = frozenset({"properties", "arguments", "parameters"})
_SCHEMA_WORDS = frozenset({"type", "enum", "properties", "items", "required", "$ref", "description", "title"})
_LIMIT_WORDS = frozenset({"minLength", "maxLength", "minItems", "maxItems", "minimum", "maximum", "default"})
_SCHEMA_TEXT = re.compile(r'"type"\s*:\s*"(?:object|json)".*"properties"\s*:', re.DOTALL)
_TEXT_RULES = ("pattern", "format")


@dataclass(frozen=True, slots=True)
class Fit:
    """An object that fits, and what was changed for it, in plain words."""

    value: dict[str, Json]
    changes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Echo:
    """The object is the schema or the example of the prompt, not an answer."""

    message: str
    path: str = "$"


def fit(value: dict[str, Json], schema: Schema) -> Fit | Echo | Violation:
    """Fit one object to the schema, changing it only where that loses nothing.

    Returns:
        The object that fits; an echo of the schema or of an example; or the first violation that remains.
    """
    first: Violation | None = None
    for candidate, note in _unwrapped(value, schema):
        outcome = _changed(candidate, schema)
        if isinstance(outcome, Fit):
            return Fit(outcome.value, (*note, *outcome.changes))
        if isinstance(outcome, Echo):
            return outcome
        first = first or outcome
    if describes(value, schema):
        return Echo("the reply repeats the description of the answer instead of giving values")
    return first or Violation("$", "the reply has no field that is asked for")


def fit_as_is(value: dict[str, Json], schema: Schema) -> Fit | Echo | Violation:
    """Fit one object to the schema without any change."""
    problem = violation(value, schema)
    if problem is not None:
        return problem
    if describes(value, schema):
        return Echo("the reply repeats the description of the answer instead of giving values")
    slot = _unfilled(value, schema)
    if slot is not None:
        return Echo(f"{path_text(slot)} is not filled in", path_text(slot))
    return Fit(value)


def _changed(value: dict[str, Json], schema: Schema) -> Fit | Echo | Violation:
    plain = fit_as_is(value, schema)
    if not isinstance(plain, Violation):
        return plain
    result, changes = conform(value, schema)
    if not changes or not isinstance(result, dict):
        return plain
    outcome = fit_as_is(result, schema)
    return Fit(outcome.value, changes) if isinstance(outcome, Fit) else outcome


def _unwrapped(value: dict[str, Json], schema: Schema) -> Iterator[tuple[dict[str, Json], tuple[str, ...]]]:
    """The object itself; then what it wraps, if it has one field or the field of a schema or a tool call."""
    yield value, ()
    declared = schema.get("properties", {})
    for key, inner in value.items():
        if key not in declared and isinstance(inner, dict) and (len(value) == 1 or key in _WRAPPERS):
            yield inner, (f'taken out of "{key[:40]}"',)


def describes(value: dict[str, Json], schema: Schema) -> bool:
    """Whether an object is a JSON schema, or has schemas where values must be."""
    declared = schema.get("properties", {})
    if ("properties" in value and "properties" not in declared) or "$schema" in value:
        return True
    if value.get("type") == "object" and "type" not in declared:
        return True
    return any(_is_subschema(value[key]) and not _takes_object((key,), schema) for key in declared if key in value)


def looks_described(text: str, schema: Schema) -> bool:
    """Whether a text that can't be read as JSON was meant as a JSON schema."""
    return "properties" not in schema.get("properties", {}) and _SCHEMA_TEXT.search(text) is not None


def _is_subschema(value: Json) -> bool:
    if not isinstance(value, dict) or not ("type" in value or "enum" in value):
        return False
    return all(key in _SCHEMA_WORDS or key in _LIMIT_WORDS for key in value)


def _takes_object(path: tuple[str | int, ...], schema: Schema) -> bool:
    options = at_path(path, schema)
    return any((not types_of(option) and "enum" not in option) or "object" in types_of(option) for option in options)


def _unfilled(value: dict[str, Json], schema: Schema) -> tuple[str | int, ...] | None:
    """Where the object repeats the placeholders of an example; None if it does not.

    Dots alone are never an answer. Other placeholders (``<name>``, ``[name]``, or a type's name) could be, so they
    count only if the object has no other free text; a type's name only if there are two of them.
    """
    leaves = list(_leaves(value, ()))
    # Nearly always: where each text stands in the schema takes ten times as long to find out.
    if not any(_SLOT.fullmatch(text) or text.strip().lower() in _TYPE_WORDS for _, text in leaves):
        return None
    texts = [(path, text) for path, text in leaves if _is_free(path, schema)]
    for path, text in texts:
        if _DOTS.fullmatch(text):
            return path
    if texts and all(_SLOT.fullmatch(text) for _, text in texts):
        return texts[0][0]
    if len(texts) > 1 and all(text.strip().lower() in _TYPE_WORDS for _, text in texts):
        return texts[0][0]
    return None


def _leaves(value: Json, path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, sub in value.items():
            yield from _leaves(sub, (*path, key))
    elif isinstance(value, list):
        for index, sub in enumerate(value):
            yield from _leaves(sub, (*path, index))


def _is_free(path: tuple[str | int, ...], schema: Schema) -> bool:
    return not any("enum" in option or "const" in option for option in at_path(path, schema))


def cut_is_safe(path: tuple[str | int, ...], text: str, schema: Schema) -> bool:
    """Whether a text that was cut here can stand as it is.

    Free text can. A text that must be one of a list, match a pattern or stand for a number can't, because the rest of
    it could have made it another one; except where it is the only listed value that begins so.
    """
    options = at_path(path, schema)
    return not options or any(_takes_cut(option, text) for option in options)


def _takes_cut(option: Schema, text: str) -> bool:
    allowed = [option["const"]] if "const" in option else option.get("enum")
    if isinstance(allowed, list):
        return [value for value in allowed if isinstance(value, str) and value.startswith(text)] == [text]
    names = types_of(option)
    return (not names or (has_type(text, "string") and "string" in names)) and not any(
        rule in option for rule in _TEXT_RULES
    )


def is_extra(path: tuple[str | int, ...], schema: Schema) -> bool:
    """Whether a path leads into a field at the top that the schema does not declare, in whatever spelling."""
    declared = {normal(name) for name in schema.get("properties", {})}
    return len(path) == 1 and normal(path[0]) not in declared
