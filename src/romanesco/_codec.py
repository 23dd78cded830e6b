"""Records to JSON-able data and back, checked on the way in."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Hashable

    from pydantic import TypeAdapter

T = TypeVar("T")


@lru_cache(maxsize=64)
def _adapter(kind: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter  # 70 ms at import: only where a record crosses a boundary

    adapter: TypeAdapter[Any] = TypeAdapter(kind)
    return adapter


def to_json(record: Any) -> Any:
    """A dataclass record as JSON-able data: decimals and enums as text, tuples as lists."""
    return _adapter(cast("Hashable", type(record))).dump_python(record, mode="json")


def from_json(kind: type[T], data: Any) -> T:
    """JSON-able data as a record.

    Raises:
        pydantic.ValidationError: The data does not fit the record.
    """
    result: T = _adapter(cast("Hashable", kind)).validate_python(data)
    return result
