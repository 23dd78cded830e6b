"""A provider's own fields, put together from the pieces of a stream, at the cost of the pieces' size."""

from __future__ import annotations

from itertools import takewhile

from romanesco.models._types import Json

_APPENDED = frozenset({"text", "summary", "data"})


def joined(pieces: list[Json]) -> Json:
    """The pieces of one field as one value: text is joined, lists by ``index`` or end to end.

    In an object the texts of a few names are joined. Of what can't be joined the later counts.
    """
    kind = type(pieces[-1])
    same = list(takewhile(lambda piece: isinstance(piece, kind), reversed(pieces)))[::-1]
    if kind is str:
        return "".join(same)
    if kind is dict:
        return _object(same)
    return _items(same) if kind is list else pieces[-1]


def _object(pieces: list[dict[str, Json]]) -> dict[str, Json]:
    values: dict[str, list[Json]] = {name: [value] for name, value in pieces[0].items()}
    for piece in pieces[1:]:
        for name, value in piece.items():
            if value is not None:
                values.setdefault(name, []).append(value)
    return {
        name: joined(found) if name in _APPENDED and isinstance(found[-1], str) else found[-1]
        for name, found in values.items()
    }


def _items(pieces: list[list[Json]]) -> list[Json]:
    items: list[list[Json]] = []
    places: dict[int | str, list[Json]] = {}
    for piece in pieces:
        new: dict[int | str, list[Json]] = {}
        for item in piece:
            index = item.get("index") if isinstance(item, dict) else None
            found = places.get(index) if isinstance(index, int | str) else None
            if found is None:
                found = []
                items.append(found)
                if isinstance(index, int | str):
                    new[index] = found
            found.append(item)
        places.update(new)  # items of one piece stand side by side, whatever their index
    return [joined(found) for found in items]
