"""Brings a value that nearly fits a schema into it, where that loses nothing and can be done in one way only.

Numbers written as texts, the case and spacing of field names and of enumerated values, and fields that nobody asked
for: what small models get wrong without being wrong in substance. Nothing is invented, and every change is named.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from romanesco.models._schema import Schema, alternatives, canonical, has_type, path_text, resolve, types_of
from romanesco.models._tokens import whole
from romanesco.models._types import Json

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,14})(?:\.[0-9]{1,15})?")


def conform(value: Json, schema: Schema) -> tuple[Json, tuple[str, ...]]:
    """Change a value so that it may fit a schema.

    Args:
        value: A JSON value, nested at most as deep as the reader allows.
        schema: The JSON schema that it does not fit as it is.

    Returns:
        The changed copy, which the caller checks again, and what was changed, in plain words.
    """
    changes: list[str] = []
    return _visit(value, schema, schema, (), changes), tuple(changes)


def _visit(value: Json, schema: Any, root: Schema, path: tuple[str | int, ...], changes: list[str]) -> Json:
    node = resolve(schema, root)
    if not isinstance(node, dict):
        return value
    if "anyOf" in node or "oneOf" in node:
        return _branch(value, alternatives(node, root), root, path, changes)
    allowed = [node["const"]] if "const" in node else node.get("enum")
    if isinstance(allowed, list):
        return _member(value, allowed, path, changes)
    names = types_of(node)
    if names and not any(has_type(value, name) for name in names):
        return _retyped(value, names, path, changes)
    if isinstance(value, dict):
        return _object(value, node, root, path, changes)
    if isinstance(value, list):
        items = node.get("items")
        return [_visit(item, items, root, (*path, index), changes) for index, item in enumerate(value)]
    return value


def _branch(value: Json, options: list[Schema], root: Schema, path: tuple[str | int, ...], changes: list[str]) -> Json:
    """Follow the one branch whose type the value has; else the one branch that it can be changed for."""
    typed = [node for node in options if any(has_type(value, name) for name in types_of(node))]
    if len(typed) == 1:
        return _visit(value, typed[0], root, path, changes)
    if typed:
        return value
    results: dict[str, tuple[Json, list[str]]] = {}
    for node in options:
        made: list[str] = []
        result = _visit(value, node, root, path, made)
        if made:
            results[canonical(result)] = (result, made)
    if len(results) != 1:
        return value
    result, made = next(iter(results.values()))
    changes.extend(made)
    return result


def normal(value: Json) -> str | None:
    """A text or whole number without case and outer or doubled white space; None for anything else."""
    if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
        return " ".join(str(value).split()).casefold()
    return None


def _member(value: Json, allowed: Iterable[Json], path: tuple[str | int, ...], changes: list[str]) -> Json:
    allowed = list(allowed)
    form = normal(value)
    if form is None or any(value == option and type(value) is type(option) for option in allowed):
        return value
    fitting = [option for option in allowed if normal(option) == form]
    if len(fitting) != 1:
        return value
    changes.append(f"{path_text(path)} written as {canonical(fitting[0])}")
    return fitting[0]


def _retyped(value: Json, names: tuple[str, ...], path: tuple[str | int, ...], changes: list[str]) -> Json:
    results = {canonical(made): made for name in names for made in _casts(value, name)}
    if len(results) != 1:
        return value
    changes.append(f"{path_text(path)} taken as {' or '.join(names)}")
    return next(iter(results.values()))


def _casts(value: Json, name: str) -> list[Json]:
    """The value as another type, as a list of one, or an empty list if something would be lost."""
    if isinstance(value, str):
        text = value.strip()
        if name == "integer" and _INTEGER.fullmatch(text):
            return [int(text)]
        if name == "number" and _NUMBER.fullmatch(text) and len(text.lstrip("-").replace(".", "")) <= 15:
            return [whole(float(text))]  # 15 digits survive a float
        if name == "boolean" and text.lower() in ("true", "false"):
            return [text.lower() == "true"]
    elif name == "string" and isinstance(value, int) and not isinstance(value, bool):
        return [str(value)]
    return []


def _object(
    value: dict[str, Json], node: Schema, root: Schema, path: tuple[str | int, ...], changes: list[str]
) -> Json:
    declared = node.get("properties", {})
    named = _renamed(value, declared, path, changes)
    result = {key: _visit(sub, declared.get(key), root, (*path, key), changes) for key, sub in named.items()}
    extra = [key for key in result if key not in declared]
    if extra and node.get("additionalProperties") is False and all(key in result for key in declared):
        # Every declared field is there, so the others are no misspelling of one.
        for key in extra:
            del result[key]
            changes.append(f"{path_text((*path, key))[:80]} left out, nobody asked for it")
    return result


def _renamed(
    value: dict[str, Json], declared: dict[str, Any], path: tuple[str | int, ...], changes: list[str]
) -> dict[str, Json]:
    """Field names written with other case or spacing, if exactly one field of the value stands for each."""
    result: dict[str, Json] = {}
    forms = [normal(key) for key in value if key not in declared]
    for key, sub in value.items():
        targets = [name for name in declared if normal(name) == normal(key)]
        if key in declared or len(targets) != 1 or targets[0] in value or forms.count(normal(key)) != 1:
            result[key] = sub
        else:
            result[targets[0]] = sub
            changes.append(f"{path_text((*path, targets[0]))} had another spelling")
    return result
