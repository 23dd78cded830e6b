"""Numbers, times and foreign text as they stand on a screen. Pure."""

from __future__ import annotations

import re
from datetime import datetime
from decimal import ROUND_CEILING, Context, Decimal

from rich.cells import cell_len, set_cell_size

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
_BIDI = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_STEERING = re.compile("[\x7f-\x9f\u2028\u2029\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_SPACE = re.compile(r"\s+")
UNKNOWN = "unknown"
_WIDE = Context(prec=60)


def clean(text: str) -> str:
    """Text of a model or a person without what could move a terminal's cursor or reorder its line.

    Line ends and tabs stay. A model must not be able to write over what the program says.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _SURROGATE.sub("\ufffd", _BIDI.sub("", _CONTROL.sub("\ufffd", text)))


def safe_json(text: str) -> str:
    """JSON text with escapes for what could steer a terminal; it reads as the same value. The rest stays readable.

    JSON itself demands escapes of the first 32 characters only, and such characters stand in its strings alone.
    """
    return _STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def one_line(text: str, most: int = 0) -> str:
    """Text on one line, cut with an ellipsis after ``most`` characters; 0 does not cut."""
    line = _SPACE.sub(" ", clean(text)).strip()
    return line if not most or len(line) <= most else f"{line[: most - 3].rstrip()}..."


def fit(text: str, cells: int) -> str:
    """Text in at most so many columns of a screen, cut with an ellipsis. A wide character takes two columns."""
    if cell_len(text) <= cells:
        return text
    return f"{set_cell_size(text, max(0, cells - 3)).rstrip()}..."[: max(cells, 0)]


def count(number: int, noun: str, plural: str = "") -> str:
    """``1 call``, ``1,200 calls``."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def money(usd: Decimal | None) -> str:
    """Money with as many places as it needs to be told from zero; unknown is never zero."""
    if usd is None:
        return "price unknown"
    if usd == 0:
        return "$0"
    if usd < 0:
        return f"-{money(-usd)}"
    return f"${usd:,.{_places(usd)}f}"


def rounded_up(usd: Decimal) -> Decimal:
    """An amount that ``money`` shows as it is and that is not below this one: a shown bound must hold."""
    return usd.quantize(Decimal(1).scaleb(-_places(usd)), ROUND_CEILING, _WIDE)


def _places(usd: Decimal) -> int:
    return 2 if usd >= 1 else min(12, max(4, 1 - usd.adjusted()))


def seconds(value: float) -> str:
    """A span of time: ``12 ms``, ``2.4 s``, ``41 s``, ``3 min 05 s``, ``2 h 10 min``."""
    if value == 0:
        return "0 s"
    if value < 1:
        return f"{value * 1000:.0f} ms"
    if value < 10:
        return f"{value:.1f} s"
    whole = int(value)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def moment(at: float) -> str:
    """A time of day in the local time zone, to the minute."""
    return datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M")


def ratio(value: float | None) -> str:
    """A measured number, or that it is unknown."""
    return UNKNOWN if value is None else f"{value:.2f}"
