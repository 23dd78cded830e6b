"""A schema in plain words, for models that copy a JSON schema when they see one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from romanesco.models._schema import SIZE, TYPE_WORDS, Schema, alternatives, choices, types_of

_DEEPEST = 3


def describe(schema: Schema) -> str:
    """The schema as a short list of fields in plain words.

    For example ``"backs": one of "P1", "P2"; "proposal": text of at most 200 characters``.
    """
    return "; ".join(_fields(alternatives(schema, schema), schema, 0)) or "any fields"


def _fields(options: Sequence[Schema], root: Schema, depth: int) -> Iterator[str]:
    for option in options:
        needed = option.get("required", ())
        for name, sub in option.get("properties", {}).items():
            yield f'"{name}"{"" if name in needed else " (optional)"}: {_shape(sub, root, depth)}'


def _shape(schema: Any, root: Schema, depth: int) -> str:
    texts = [_one_shape(option, root, depth) for option in alternatives(schema, root)]
    text = " or ".join(dict.fromkeys(texts)) or "any value"
    note = schema.get("description") if isinstance(schema, dict) else None
    return f"{text} ({' '.join(note.split())[:80]})" if isinstance(note, str) and note.strip() else text


def _one_shape(option: Schema, root: Schema, depth: int) -> str:
    if "const" in option:
        return json.dumps(option["const"], ensure_ascii=False)
    if "enum" in option:
        return f"one of {choices(option['enum'])}"
    names = types_of(option)
    if names == ("array",) and depth < _DEEPEST:
        each = _shape(option.get("items", {}), root, depth + 1)
        return f"a list of {_amount(option, 'minItems', 'maxItems')}items, each {each}"
    if names == ("object",) and depth < _DEEPEST and option.get("properties"):
        return "an object with " + ", ".join(_fields([option], root, depth + 1))
    word = " or ".join(TYPE_WORDS.get(name, name) for name in names) or "any value"
    if names == ("string",) and ("maxLength" in option or SIZE in option):
        most = option.get("maxLength", option.get(SIZE, (0, 0))[-1])
        return f"{word} of at most {most} characters"
    if "minimum" in option and "maximum" in option:
        return f"{word} from {option['minimum']} to {option['maximum']}"
    return word


def _amount(option: Schema, low: str, high: str) -> str:
    least, most = option.get(low), option.get(high)
    if least is not None and least == most:
        return f"exactly {least} "
    if most is not None:
        return f"at most {most} "
    return f"at least {least} " if least else ""
