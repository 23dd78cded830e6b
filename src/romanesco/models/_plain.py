"""The usual reply, plain JSON that fits as it is, taken by the standard library's reader."""

from __future__ import annotations

import json
from typing import NoReturn

from romanesco.models._fit import Fit, fit_as_is
from romanesco.models._read import MAX_DEPTH
from romanesco.models._schema import Schema
from romanesco.models._tokens import whole
from romanesco.models._types import Json


def plain_object(text: str, schema: Schema) -> dict[str, Json] | None:
    """The usual case, plain JSON that fits as it is, without the tolerant reader; None for everything else."""
    try:
        value = _DECODER.decode(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or not _shallow(value) or not _storable(text, value):
        return None
    outcome = fit_as_is(value, schema)
    return outcome.value if isinstance(outcome, Fit) else None


def _unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    value = dict(pairs)
    if len(value) != len(pairs):
        _refuse("a field is given twice")
    return value


def _refuse(word: str) -> NoReturn:
    raise ValueError(word)  # caught in plain_object: the tolerant reader says what is wrong


def _finite(digits: str) -> int | float:
    number = float(digits)
    if number in (float("inf"), float("-inf")):
        _refuse(digits)
    return whole(number)


def _shallow(value: Json) -> bool:
    """Whether a value is nested no deeper than the tolerant reader goes."""
    level: list[Json] = [value]
    for _ in range(MAX_DEPTH):
        members = (sub for item in level for sub in (item.values() if isinstance(item, dict) else item))
        level = [sub for sub in members if isinstance(sub, dict | list)]
        if not level:
            return True
    return False


def _storable(text: str, value: Json) -> bool:
    """Whether the value can be written as UTF-8: only a lone surrogate can't."""
    if text.isascii() and "\\u" not in text:  # nearly always, and cheaper than to write it
        return True
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_refuse, parse_float=_finite)
