"""The tokens of JSON as small models write them: names, numbers, literals and strings, and what stands between."""

from __future__ import annotations

import enum
import math
import re
from typing import NoReturn

from romanesco.models._types import Json

_MAX_DIGITS = 300
_SPACE = re.compile(r"(?:[\s\u200b-\u200f\u2060\ufeff\x00]+|//[^\n]*|#\s[^\n]*|/\*(?:[^*]|\*(?!/))*(?:\*/|\*?\Z))*")
_BLANK = re.compile(r"[\s\u200b-\u200f\u2060\ufeff\x00]*")
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?")
_PLAIN_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_PART_OF_NUMBER = re.compile(r"[+-]?\d*\.?\d*(?:[eE][+-]?\d*)?\Z")
_WORD = re.compile(r"[+-]?[^\W\d][\w$]*")
_HEX = re.compile(r"[0-9a-fA-F]{4}")
QUOTES = {'"': '"', "“": '”“"', "„": '“”"', "«": "»", "'": "'", "‘": "’‘'", "＂": "＂"}
_CHUNKS = {quote: re.compile(f"[^\\\\\\x00-\\x1f{closers}]*") for quote, closers in QUOTES.items()}
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
OPENING = {"{": "}", "[": "]", "｛": "}", "［": "]"}
STRUCTURE = {"：": ":", "，": ",", "｛": "{", "｝": "}", "［": "[", "］": "]"}
_LITERALS: dict[str, Json] = {"true": True, "false": False, "null": None}
_NOT_NUMBERS = {"nan", "infinity", "inf"}
_SURROGATE = re.compile("[\ud800-\udfff]")


class Flaw(enum.StrEnum):
    """Why a text can't be read as JSON."""

    SYNTAX = "syntax"
    NOT_A_NUMBER = "not_a_number"
    TOO_DEEP = "too_deep"


class Cut(enum.StrEnum):
    """What was open where the text ended."""

    NOTHING = "nothing"
    BRACKETS = "brackets"
    MEMBER = "member"
    STRING = "string"


class Stop(Exception):
    """A defect on its way out of the reader; caught there, so that nobody else sees it."""

    def __init__(self, flaw: Flaw, message: str) -> None:
        self.flaw = flaw
        self.message = message
        super().__init__(message)


class CutShort(Exception):
    """The text ended inside the value, and for a string: the part that is there. Caught in the reader."""

    def __init__(self, cut: Cut, text: str = "") -> None:
        self.cut = cut
        self.text = text
        super().__init__(cut)


def whole(number: float) -> int | float:
    """A float without a fraction as the integer that JSON says it is."""
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


def scrub(text: str, repairs: set[str]) -> str:
    """The text without lone surrogates, which can be neither stored nor sent.

    The two halves of a pair are joined; a lone one is no character and becomes the replacement character.
    """
    if not _SURROGATE.search(text):
        return text
    joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if "\ufffd" in joined:
        repairs.add("lone surrogate")
    return joined


class Scanner:
    """Reads one token after another from ``pos`` on.

    Attributes:
        text: The whole text.
        pos: Index of the next token.
        size: Index where the text, or the fenced block, ends.
        reach: Index up to which the text was looked at.
        ended: The model stopped by itself, so that a number at the very end of the text is whole.
        gap: White space and comments before the next token.
        repairs: Names of the deviations that were taken.
    """

    def __init__(self, text: str, start: int, ended: bool) -> None:
        self.text = text
        self.pos = self.reach = start
        self.size = len(text)
        self.ended = ended
        self.gap = ""
        self.repairs: set[str] = set()

    def peek(self, cut: Cut) -> str:
        """The next character of the structure, behind white space and comments."""
        match = _SPACE.match(self.text, self.pos, self.size)
        self.gap = match.group() if match else ""
        if self.gap and ("/" in self.gap or "#" in self.gap):
            self.repairs.add("comment")
        self.pos += len(self.gap)
        if self.pos < self.size and self.text.startswith("```", self.pos):
            self.size = self.pos  # the end of a fenced block ends the value
            self.ended = True
        if self.pos >= self.size:
            raise CutShort(cut)
        char = self.text[self.pos]
        if char in STRUCTURE:
            self.repairs.add("full-width punctuation")
            return STRUCTURE[char]
        return char

    def here(self) -> str:
        """The next few characters, for a message."""
        return repr(self.text[self.pos : min(self.pos + 12, self.size)])

    def name(self, char: str) -> str:
        """The name of a field, quoted or not."""
        if char in QUOTES:
            return self.string(char, key=True)
        match = _WORD.match(self.text, self.pos, self.size)
        if match is None or match.group()[0] in "+-":
            raise Stop(Flaw.SYNTAX, f"there is {self.here()} where a field's name must be")
        self.pos = match.end()
        self.repairs.add("unquoted field name")
        return match.group()

    def number(self) -> int | float:
        """A finite number; one without a fraction is an integer."""
        if not self.ended and _PART_OF_NUMBER.match(self.text, self.pos, self.size):
            raise CutShort(Cut.MEMBER)  # more digits may have followed
        match = _NUMBER.match(self.text, self.pos, self.size)
        if match is None or not match.group().isascii():
            raise Stop(Flaw.SYNTAX, f"{self.here()} is not a number")
        end = match.end()
        if end < self.size and not self._delimited(end):
            raise Stop(Flaw.SYNTAX, f"{self.here()} is not a number")
        digits = match.group()
        if len(digits) > _MAX_DIGITS:
            raise Stop(Flaw.SYNTAX, f"a number has more than {_MAX_DIGITS} digits")
        if not _PLAIN_NUMBER.fullmatch(digits):
            if re.match(r"[+-]?0\d", digits):
                raise Stop(Flaw.SYNTAX, f"the number {digits[:20]} begins with a zero")
            self.repairs.add("number in another notation")
        number = float(digits) if re.search(r"[.eE]", digits) else int(digits)
        if isinstance(number, float):
            if not math.isfinite(number):
                raise Stop(Flaw.NOT_A_NUMBER, f"{digits[:20]} is too large for a number")
            number = whole(number)
        self.pos = end
        return number

    def literal(self) -> Json:
        """``true``, ``false`` or ``null``, also as Python writes them."""
        match = _WORD.match(self.text, self.pos, self.size)
        word = match.group() if match else ""
        if word.lstrip("+-").lower() in _NOT_NUMBERS:
            raise Stop(Flaw.NOT_A_NUMBER, f"{word} is not a JSON value; write a number or null")
        plain = "null" if word == "None" else word.lower()
        end = self.pos + len(word)
        if plain not in _LITERALS or (end < self.size and not self._delimited(end)):
            if word and end >= self.size:
                raise CutShort(Cut.MEMBER)
            raise Stop(Flaw.SYNTAX, f"there is {self.here()} where a value must be; texts need double quotes")
        if word != plain:
            self.repairs.add("literal in another spelling")
        self.pos = end
        return _LITERALS[plain]

    def _delimited(self, at: int) -> bool:
        char = self.text[at]
        return char.isspace() or char in ",}]，｝］\ufeff\x00" or self.text.startswith(("//", "/*", "```"), at)

    # Strings.

    def string(self, quote: str, *, key: bool) -> str:
        """A text in any pair of quotes; ``key`` says that it is the name of a field."""
        if quote != '"':
            self.repairs.add("other quotes")
        closers, chunk = QUOTES[quote], _CHUNKS[quote]
        parts: list[str] = []
        inner = 0
        at = self.pos + 1
        while True:
            match = chunk.match(self.text, at, self.size)
            if match:
                parts.append(match.group())
                at = match.end()
            if at >= self.size:
                return self._open_string(parts, inner, key)
            char = self.text[at]
            self.reach = at
            if char == "\\":
                at = self._escape(at, parts)
            elif key and char == "\n":
                raise Stop(Flaw.SYNTAX, "the name of a field has no closing quote")
            elif char not in closers:
                self.repairs.add("control character in a text")
                parts.append(char)
                at += 1
            elif self._closes(at + 1, key):
                self.pos = at + 1
                return self._whole_string(parts, inner)
            else:
                inner += not self._apostrophe(at)
                parts.append(char)
                at += 1

    def _whole_string(self, parts: list[str], inner: int) -> str:
        text = "".join(parts)
        if inner % 2 or (inner and text[:1] in QUOTES):
            raise Stop(Flaw.SYNTAX, "a text has quotes inside that are not escaped")
        if inner:
            self.repairs.add("unescaped quotes")
        return scrub(text, self.repairs)

    def _open_string(self, parts: list[str], inner: int, key: bool) -> NoReturn:
        """The text ends inside a string: it is cut there."""
        self.reach = self.size
        if key:
            raise CutShort(Cut.MEMBER)
        if inner:
            raise Stop(Flaw.SYNTAX, "a text has quotes inside that are not escaped")
        text = "".join(parts)
        if "\ud800" <= text[-1:] <= "\udbff":
            text = text[:-1]
        raise CutShort(Cut.STRING, scrub(text, self.repairs))

    def _escape(self, at: int, parts: list[str]) -> int:
        char = self.text[at + 1] if at + 1 < self.size else ""
        if not char or (char == "u" and at + 6 > self.size):
            parts.append("")
            return self.size  # the cut went through the escape
        if char == "u":
            digits = self.text[at + 2 : at + 6]
            if not _HEX.fullmatch(digits):
                raise Stop(Flaw.SYNTAX, f"\\u{digits} is not a character")
            parts.append(chr(int(digits, 16)))
            return at + 6
        if char == "'":
            self.repairs.add("escaped apostrophe")
        elif char not in _ESCAPES:
            raise Stop(Flaw.SYNTAX, f"a text has a backslash before {char!r}")
        parts.append(_ESCAPES.get(char, char))
        return at + 2

    def _closes(self, at: int, key: bool) -> bool:
        """Whether a quote ends the string, told by what follows it."""
        blank = _BLANK.match(self.text, at, self.size)
        after = blank.end() if blank else at
        if after >= self.size or self.text.startswith(("//", "/*", "# ", "```"), after):
            return True
        char = STRUCTURE.get(self.text[after], self.text[after])
        if key:
            return char == ":"
        if char in ",}]":
            return True
        if char == ":":
            raise Stop(Flaw.SYNTAX, "a comma or a closing quote is missing before a field")
        if char in QUOTES and after > at:
            if "\n" in self.text[at:after]:
                return True
            raise Stop(Flaw.SYNTAX, "a comma is missing between two texts")
        return False

    def _apostrophe(self, at: int) -> bool:
        return self.text[at] in "'’" and self.text[at - 1].isalpha() and self.text[at + 1 : at + 2].isalpha()

    def at_number(self) -> bool:
        """Whether the next token is a number."""
        here = self.text, self.pos, self.size
        return _NUMBER.match(*here) is not None or _PART_OF_NUMBER.match(*here) is not None
