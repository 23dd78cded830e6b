"""The smallest value that fits a JSON schema: what a scripted model answers when nothing else is given."""

from __future__ import annotations

import math
from typing import Any

_MAX_DEPTH = 32


def minimal_instance(schema: dict[str, Any]) -> Any:
    """Build the smallest value that fits a JSON schema, deterministically.

    Understands ``const``, ``enum``, ``default``, ``$ref`` into the same document, ``anyOf``/``oneOf`` (the first
    branch), ``allOf``, types, required properties, ``minItems``, ``minLength`` and the numeric bounds. It does not
    solve ``pattern``, ``format``, ``not`` or ``uniqueItems``.

    Args:
        schema: A JSON schema.

    Returns:
        A JSON-able value.

    Raises:
        ValueError: The schema refers to itself without end or to something that is not there, or no number fits.
    """
    return _build(schema, schema, 0)


def _build(schema: Any, root: dict[str, Any], depth: int) -> Any:
    if depth > _MAX_DEPTH:
        raise ValueError("the schema refers to itself without end: no smallest value exists")
    if not isinstance(schema, dict):
        return None
    if "$ref" in schema:
        return _build(_resolve(schema["$ref"], root), root, depth + 1)
    for fixed in ("const", "default"):
        if fixed in schema:
            return schema[fixed]
    if schema.get("enum"):
        return schema["enum"][0]
    if "allOf" in schema:
        schema = _merged(schema, root)
    for choice in ("anyOf", "oneOf"):
        if schema.get(choice):
            return _build(schema[choice][0], root, depth + 1)
    return _typed(schema, root, depth)


def _typed(schema: dict[str, Any], root: dict[str, Any], depth: int) -> Any:
    kind = schema.get("type", "object" if "properties" in schema else "null")
    if isinstance(kind, list):
        kind = kind[0]
    if kind == "object":
        properties = schema.get("properties", {})
        return {name: _build(properties.get(name, {}), root, depth + 1) for name in schema.get("required", ())}
    if kind == "array":
        prefix = schema.get("prefixItems", ())
        items = [_build(one, root, depth + 1) for one in prefix]
        missing = int(schema.get("minItems", 0)) - len(items)
        items.extend(_build(schema.get("items", {}), root, depth + 1) for _ in range(missing))
        return items
    if kind == "string":
        return "x" * max(1, int(schema.get("minLength", 1)))
    if kind in ("integer", "number"):
        return _number(schema, whole=kind == "integer")
    return False if kind == "boolean" else None


def _number(schema: dict[str, Any], *, whole: bool) -> int | float:
    step = schema.get("multipleOf", 1 if whole else None)
    bounds = [schema[name] for name in ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum") if name in schema]
    near = [0, *bounds]
    if step is not None:
        # The multiples next to each bound: the smallest value that fits is one of them.
        near = [step * (math.floor(bound / step) + shift) for bound in near for shift in (0, 1, -1)]
    elif len(bounds) > 1:
        near.append(sum(bounds) / len(bounds))
    near.extend(bound + shift for bound in bounds for shift in (1, -1) if step is None)
    value = next((one for one in near if _fits(one, schema)), None)
    if value is None:
        raise ValueError(f"no number fits the schema's bounds {bounds}")
    return int(value) if whole or float(value).is_integer() else value


def _fits(value: float, schema: dict[str, Any]) -> bool:
    return (
        value >= schema.get("minimum", value)
        and value <= schema.get("maximum", value)
        and ("exclusiveMinimum" not in schema or value > schema["exclusiveMinimum"])
        and ("exclusiveMaximum" not in schema or value < schema["exclusiveMaximum"])
    )


def _merged(schema: dict[str, Any], root: dict[str, Any]) -> dict[str, Any]:
    merged: dict[str, Any] = {key: value for key, value in schema.items() if key != "allOf"}
    for part in schema["allOf"]:
        part = _resolve(part["$ref"], root) if "$ref" in part else part
        for key, value in part.items():
            if key == "properties":
                merged["properties"] = {**merged.get("properties", {}), **value}
            elif key == "required":
                merged["required"] = [*merged.get("required", []), *value]
            else:
                merged[key] = value
    return merged


def _resolve(reference: str, root: dict[str, Any]) -> dict[str, Any]:
    node: Any = root
    for part in reference.removeprefix("#").strip("/").split("/"):
        if part:
            part = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(node, dict) or part not in node:
                raise ValueError(f"the schema refers to {reference}, which is not in it")
            node = node[part]
    if not isinstance(node, dict):
        raise ValueError(f"the schema refers to {reference}, which is no schema")
    return node
