"""Where a text may be cut: between paragraphs or sentences rather than words, never in a character."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

_PARAGRAPH = re.compile(r"\n[ \t\r]*\n(?:[ \t\r]*\n)*")
_LINE = re.compile(r"\n")
_SENTENCE = re.compile(r"[.!?\u2026][\"'\u201d\u2019)\]]*\s+|[\u3002\uff01\uff1f]+")
_WORD = re.compile(r"\s+")
# A minified JSON or CSV text has no spaces; an end of an element is the next best place.
_ELEMENT = re.compile(r"[,;|}\]\uff0c\u3001]+")

_GRADES = (_PARAGRAPH, _LINE, _SENTENCE, _WORD)
_LOOK_BACK = 100
"""A boundary that ends in the wanted stretch begins at most so many characters before it, long white space apart."""

_JOINERS = ("\u200d", "\u200c")


def cut(text: str, start: int, aim: int, limit: int) -> int:
    """Where to end an excerpt that begins at ``start``.

    Args:
        text: The whole text.
        start: Where the excerpt begins.
        aim: Wanted length in characters, at least 1.
        limit: Greatest length in characters, at least 1.

    Returns:
        The end, ``start < end <= start + limit``, at most one and a half of ``aim`` behind the start. All
        that is left if it is no longer than that; else, of the boundaries of the best grade within half and
        one and a half of ``aim``, the one nearest to it. Without any, the last end of an element, or else of
        a word, before ``start + aim``; without that, the last whole character.
    """
    aim = min(aim, limit)
    high = start + min(limit, aim + aim // 2)
    if len(text) <= high:
        return len(text)
    low = start + max(1, aim // 2)
    for grade in _GRADES:
        ends = [end for end in _ends(grade, text, start, max(start, low - _LOOK_BACK), high) if end >= low]
        if ends:
            return min(ends, key=_nearness(start + aim))
    ends = [end for end in _ends(_ELEMENT, text, start, start, start + aim) if end >= low]
    ends = ends or _ends(_WORD, text, start, start, start + aim)
    return ends[-1] if ends else _whole_character(text, start, start + aim)


def _ends(grade: re.Pattern[str], text: str, start: int, low: int, high: int) -> list[int]:
    """Ends of boundaries between ``low`` and ``high`` of an excerpt that begins at ``start``."""
    window = text[start:high]
    ink = high - len(window.lstrip())  # an excerpt of white space only would be no excerpt
    # A run of white space at the very edge may go on behind it; the cut is then inside the run, which is harmless.
    ends = [match.end() for match in grade.finditer(text, low, high) if match.end() > ink]
    return [end for end in ends if end == len(text) or not _joined(text[end - 1], text[end])]


def _nearness(wanted: int) -> Callable[[int], tuple[int, int]]:
    return lambda end: (abs(end - wanted), end)


def _whole_character(text: str, start: int, end: int) -> int:
    """The last place at or before ``end`` that parts no base character from its marks, and no CR from LF."""
    place = end
    while place > start + 1 and _joined(text[place - 1], text[place]):
        place -= 1
    return end if _joined(text[place - 1], text[place]) else place


def _joined(before: str, after: str) -> bool:
    if before == "\r" and after == "\n":
        return True
    modifier = "\U0001f3fb" <= after <= "\U0001f3ff"  # skin tones of an emoji
    return before in _JOINERS or after in _JOINERS or modifier or unicodedata.category(after).startswith("M")
