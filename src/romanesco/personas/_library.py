"""The persona library: what ships with the package, and a user's own file on top of it."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import fields
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from romanesco.errors import InputError, UnknownName
from romanesco.personas._persona import (
    EVALUATORS,
    GENERATORS,
    Persona,
    PersonaRole,
)

PERSONA_FILE_BYTES = 1_000_000
"""Largest persona file that is read."""

_BUILTIN = "library.toml"
_TABLE = "personas"
_KEYS = tuple(item.name for item in fields(Persona) if item.name != "id")
_NEEDED = ("name", "brief", "bias")
_NAMED = (*GENERATORS, *EVALUATORS)
_FIXED = ("role", "mandatory")
_FORM = f"[{_TABLE}.ID] tables only"


@lru_cache(maxsize=1)
def builtin_personas() -> Mapping[str, Persona]:
    """The library that ships with Romanesco, by id and in the order of its file; read-only."""
    from importlib import resources  # 8 ms at import: only where the library is read

    text = resources.files("romanesco.personas").joinpath(_BUILTIN).read_text(encoding="utf-8")
    return MappingProxyType(parse_personas(text, name=_BUILTIN, base={}))


def load_personas(path: str | Path) -> Mapping[str, Persona]:
    """The library with the personas of a user's TOML file added.

    The file has one table ``[personas.ID]`` for each persona, with the fields of ``Persona``. A new persona
    needs ``name``, ``brief`` and ``bias``; ``role`` is ``generator`` and ``charter`` is the brief if they are
    left out. A table with the id of a library persona changes only the fields and bias axes that it states;
    role and ``mandatory`` of the five named roles can't be changed.

    Args:
        path: The file, UTF-8, at most 1,000,000 bytes.

    Returns:
        Personas by id: the library's in its order, then new ones in the file's order; read-only.

    Raises:
        InputError: The file can't be read or a persona is wrong; the message names file, persona, field,
            value and permitted range.
    """
    file = Path(path)
    return MappingProxyType(parse_personas(_read(file), name=str(file), base=builtin_personas()))


def parse_personas(text: str, *, name: str, base: Mapping[str, Persona]) -> dict[str, Persona]:
    """Personas from TOML text, on top of ``base``.

    Args:
        text: The TOML text, in the form that ``load_personas`` describes.
        name: What errors call the text: the file's path.
        base: Personas that the text adds to or changes.

    Raises:
        InputError: As for ``load_personas``.
    """
    result = dict(base)
    for persona, table in _tables(text, name).items():
        try:
            result[persona] = _persona(persona, table, base.get(persona))
        except InputError as error:
            raise InputError(
                f"{name}: {error.what}", value=error.value, limit=error.limit, advice=error.advice
            ) from error
    return result


def find_persona(library: Mapping[str, Persona], persona: str) -> Persona:
    """The persona of that id.

    Raises:
        UnknownName: There is none; the message lists the ids.
    """
    if persona not in library:
        raise UnknownName(
            "no persona has that id",
            value=repr(persona),
            limit=", ".join(library),
            advice="Use one of these ids, or define it in your own persona file.",
        )
    return library[persona]


def _read(file: Path) -> str:
    advice = "Give the path of a readable TOML file."
    try:
        with file.open("rb") as stream:
            data = stream.read(PERSONA_FILE_BYTES + 1)
    except OSError as error:
        raise InputError(f"persona file {file} can't be read: {error.strerror}", advice=advice) from error
    except ValueError as error:  # a NUL character in the path
        raise InputError(f"persona file can't be read: {error}", value=repr(str(file)), advice=advice) from error
    if len(data) > PERSONA_FILE_BYTES:
        raise InputError(
            f"persona file {file} is too large",
            value=f"more than {PERSONA_FILE_BYTES} bytes",
            limit=f"{PERSONA_FILE_BYTES} bytes",
            advice="Keep only the [personas.ID] tables in it.",
        )
    try:
        return data.decode("utf-8-sig")  # some editors write a byte order mark, which TOML does not know
    except UnicodeDecodeError as error:
        raise InputError(
            f"persona file {file} is not UTF-8 text",
            value=f"byte 0x{data[error.start]:02x} at offset {error.start}",
            advice="Save it as UTF-8.",
        ) from error


def _tables(text: str, name: str) -> dict[str, dict[str, Any]]:
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # tomllib lets int() complain about huge numbers
        reason = str(error) or "nested too deeply"
        raise InputError(f"{name}: not TOML: {reason}", advice="Correct the file at that place.") from error
    for key in document:
        if key != _TABLE:
            raise InputError(
                f"{name}: unknown key '{key}'",
                limit=_FORM,
                advice=f"Write [{_TABLE}.{key}] if it is a persona, or remove it.",
            )
    tables = document.get(_TABLE, {})
    if not isinstance(tables, dict):
        raise InputError(f"{name}: '{_TABLE}' is not a table", limit=_FORM, advice="Rename that key.")
    if not tables:
        raise InputError(f"{name}: no persona in it", limit=_FORM, advice="Add one, or drop the option.")
    return tables


def _persona(persona: str, table: object, old: Persona | None) -> Persona:
    if not isinstance(table, dict):
        raise InputError(f"persona '{persona}' is not a table", value=repr(table), limit=_FORM)
    for key in table:
        if key not in _KEYS:
            raise InputError(
                f"persona '{persona}': unknown field",
                value=repr(key),
                limit=", ".join(_KEYS),
                advice="Correct the name or remove the line.",
            )
    given = {**table, **_flattened(table)}
    if old is None:
        return Persona(**{"id": persona, **_defaults(persona, given), **given})
    _check_fixed(old, given)
    if isinstance(bias := given.get("bias"), dict):
        given["bias"] = {**old.bias, **bias}
    return Persona(**{**{item.name: getattr(old, item.name) for item in fields(Persona)}, **given})


def _flattened(table: Mapping[str, Any]) -> dict[str, str]:
    # In a file a prompt runs over several lines; in a window each line break is a token.
    texts = {key: table.get(key) for key in ("brief", "charter")}
    return {key: " ".join(text.split()) for key, text in texts.items() if isinstance(text, str)}


def _defaults(persona: str, given: Mapping[str, Any]) -> dict[str, Any]:
    for key in _NEEDED:
        if key not in given:
            raise InputError(
                f"persona '{persona}', field '{key}': missing",
                limit=f"a new persona needs {', '.join(_NEEDED)}",
                advice=f"Add '{key}', or correct the id if you meant to change a persona of the library.",
            )
    return {"role": PersonaRole.GENERATOR, "charter": given["brief"]}


def _check_fixed(old: Persona, given: Mapping[str, Any]) -> None:
    if old.id not in _NAMED:
        return
    for key in _FIXED:
        if key in given and given[key] != getattr(old, key):
            raise InputError(
                f"persona '{old.id}', field '{key}': can't be changed",
                value=repr(given[key]),
                limit=str(getattr(old, key)).lower(),
                advice="It is one of the five named roles; define a persona of your own instead.",
            )
