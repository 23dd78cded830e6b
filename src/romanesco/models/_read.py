"""Reads one JSON object or list that a small model wrote, forgiving what has exactly one reading.

It is a hand-written reader, because the libraries that repair JSON guess: they drop what they can't read and give an
empty value for a failure. This one takes a deviation only if nothing else can have been meant, names every one that it
took, and stops with a defect otherwise. It keeps its own stack, so that no nesting overflows Python's, and reads each
character once.
"""

from __future__ import annotations

import enum
import math
import re
from dataclasses import dataclass

from romanesco.models._types import Json

MAX_DEPTH = 64
"""Deepest nesting that is read."""

_MAX_DIGITS = 300
_SPACE = re.compile(r"(?:[\s\u200b-\u200f\u2060\ufeff\x00]+|//[^\n]*|#\s[^\n]*|/\*(?:[^*]|\*(?!/))*(?:\*/|\*?\Z))*")
_BLANK = re.compile(r"[\s\u200b-\u200f\u2060\ufeff\x00]*")
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?")
_PLAIN_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_WORD = re.compile(r"[+-]?[^\W\d][\w$]*")
_HEX = re.compile(r"[0-9a-fA-F]{4}")
_CLOSERS = {'"': '"', "“": '”“"', "„": '“”"', "«": "»", "'": "'", "‘": "’‘'", "＂": "＂"}
_CHUNKS = {quote: re.compile(f"[^\\\\\\x00-\\x1f{closers}]*") for quote, closers in _CLOSERS.items()}
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_OPENING = {"{": "}", "[": "]", "｛": "}", "［": "]"}
_STRUCTURE = {"：": ":", "，": ",", "｛": "{", "｝": "}", "［": "[", "］": "]"}
_LITERALS: dict[str, Json] = {"true": True, "false": False, "null": None}
_NOT_NUMBERS = {"nan", "infinity", "inf"}
_CLOSING_RUN = re.compile(r"[\s}\]｝］]*")


class Flaw(enum.StrEnum):
    """Why a text can't be read as JSON."""

    SYNTAX = "syntax"
    NOT_A_NUMBER = "not_a_number"
    TOO_DEEP = "too_deep"


@dataclass(frozen=True, slots=True)
class Defect:
    """Where and why reading stopped.

    Attributes:
        flaw: The kind.
        message: In plain words.
        at: Index in the text of the token that can't be read.
        reach: Index up to which the text was looked at.
        path: Keys and indices down to the place.
        begun: Whether a field had been read, so that this was meant as JSON and is no prose in brackets.
        depth: Containers open at that point.
    """

    flaw: Flaw
    message: str
    at: int
    reach: int
    path: tuple[str | int, ...]
    begun: bool
    depth: int


class Cut(enum.StrEnum):
    """What was open where the text ended."""

    NOTHING = "nothing"
    BRACKETS = "brackets"
    MEMBER = "member"
    STRING = "string"


@dataclass(frozen=True, slots=True)
class Reading:
    """One value as read.

    Attributes:
        value: A dict or a list.
        end: Index after it.
        repairs: Names of the deviations that were taken.
        cut: What was open at the end of the text; the value is then closed behind the last whole part.
        cut_path: For a cut string: where it stands.
        hollow: The cut left an empty container, an empty text, or a text of which nobody can tell where it should
            have ended: the value can't be used.
        conflict: Where a field is given twice with different values; the value has the first.
        begun: Whether a field had been read, so that this was meant as JSON and is no prose in brackets.
    """

    value: Json
    end: int
    repairs: frozenset[str] = frozenset()
    cut: Cut = Cut.NOTHING
    cut_path: tuple[str | int, ...] = ()
    hollow: bool = False
    conflict: tuple[str | int, ...] | None = None
    begun: bool = True


class _Stop(Exception):
    """Private: a defect on its way out of the reader. Never leaves this module."""

    def __init__(self, flaw: Flaw, message: str) -> None:
        self.flaw = flaw
        self.message = message
        super().__init__(message)


class _Cut(Exception):
    """Private: the text ended inside the value. Never leaves this module."""

    def __init__(self, cut: Cut) -> None:
        self.cut = cut
        super().__init__(cut)


@dataclass(slots=True)
class _Frame:
    """An open container; ``state`` is ``first``, ``item`` (after a comma) or ``next`` (after a value)."""

    into: dict[str, Json] | list[Json]
    key: str | None = None
    state: str = "first"


def read(text: str, start: int, *, ended: bool) -> Reading | Defect:
    """Read the object or list that opens at ``start``.

    Args:
        text: The whole text, without lone surrogates.
        start: Index of an opening bracket.
        ended: The model stopped by itself, so that a number at the very end of the text is whole.

    Returns:
        The value with its repairs, also if the text ends inside it; or the defect that stopped the reader.
    """
    return _Reader(text, start, ended).run()


def same(left: Json, right: Json) -> bool:
    """Equality of JSON values that tells 1 from true."""
    if isinstance(left, bool) != isinstance(right, bool):
        return False
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


def whole(number: float) -> int | float:
    """A float without a fraction as the integer that JSON says it is."""
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


class _Reader:
    def __init__(self, text: str, start: int, ended: bool) -> None:
        self.text = text
        self.pos = start
        self.size = len(text)
        self.ended = ended
        self.stack: list[_Frame] = []
        self.repairs: set[str] = set()
        self.begun = False
        self.gap = ""
        self.result: Json = None
        self.hollow = False
        self.conflict: tuple[str | int, ...] | None = None
        self.reach = start

    def run(self) -> Reading | Defect:
        try:
            self._push()
            while self.stack:
                self._step(self.stack[-1])
        except _Cut as cut:
            try:
                return self._closed(cut.cut)
            except _Stop as stop:
                return self._defect(stop)
        except _Stop as stop:
            return self._defect(stop)
        return Reading(self.result, self.pos, frozenset(self.repairs), conflict=self.conflict)

    def _defect(self, stop: _Stop) -> Defect:
        reach = max(self.reach, self.pos)
        return Defect(stop.flaw, stop.message, self.pos, reach, self._path(), self.begun, len(self.stack))

    def _closed(self, cut: Cut) -> Reading:
        path = self._path()
        while self.stack:
            if not self.stack[-1].into:
                self.hollow = True
            self._pop()
        self.repairs.add("closed where the text ends")
        return Reading(
            self.result, self.size, frozenset(self.repairs), cut, path, self.hollow, self.conflict, self.begun
        )

    def _path(self) -> tuple[str | int, ...]:
        steps: list[str | int] = []
        for frame in self.stack:
            if isinstance(frame.into, list):
                steps.append(max(len(frame.into) - (frame.state == "next"), 0))
            elif frame.key is not None:
                steps.append(frame.key)
        return tuple(steps)

    # One step: a key, a value, a comma or a closing bracket.

    def _step(self, frame: _Frame) -> None:
        char = self._peek(Cut.BRACKETS if frame.state == "next" else Cut.MEMBER)
        if char in "}]":
            self._close(frame, char)
        elif frame.state == "next":
            self._comma(frame, char)
        elif isinstance(frame.into, dict):
            frame.key = self._key(char)
            if self._peek(Cut.MEMBER) != ":":
                raise _Stop(Flaw.SYNTAX, f'there is no ":" after the field "{frame.key[:40]}"')
            self.pos += 1
            self.begun = True
            self._peek(Cut.MEMBER)
            self._value()
        else:
            self._value()

    def _peek(self, cut: Cut) -> str:
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
            raise _Cut(cut)
        char = self.text[self.pos]
        if char in _STRUCTURE:
            self.repairs.add("full-width punctuation")
            return _STRUCTURE[char]
        return char

    def _comma(self, frame: _Frame, char: str) -> None:
        if char == ",":
            self.pos += 1
        elif "\n" in self.gap and char in _CLOSERS:
            self.repairs.add("missing comma")
        else:
            raise _Stop(Flaw.SYNTAX, f"there is {self._here()} where a comma or a closing bracket must be")
        frame.state = "item"

    def _close(self, frame: _Frame, char: str) -> None:
        if not _closed_by(frame, char):
            self._forgotten(char)
            frame = self.stack[-1]
        if frame.state == "item":
            self.repairs.add("trailing comma")
        self.pos += 1
        self._pop()

    def _forgotten(self, char: str) -> None:
        """Close what was left open inside the container that this bracket closes.

        Whether the bracket was left out or is of the wrong kind makes no difference as long as nothing but closing
        brackets follow; if more members do, nobody can tell which container they belong to.
        """
        run = _CLOSING_RUN.match(self.text, self.pos, self.size)
        after = self.text[run.end() : run.end() + 1] if run else ""
        if (
            not any(_closed_by(frame, char) for frame in self.stack)
            or (after and after in ",:，：")
            or after in _CLOSERS
        ):
            raise _Stop(Flaw.SYNTAX, f'"{char}" closes a bracket of another kind')
        self.repairs.add("closing bracket left out")
        while not _closed_by(self.stack[-1], char):
            self._pop()

    def _push(self) -> None:
        if len(self.stack) >= MAX_DEPTH:
            raise _Stop(Flaw.TOO_DEEP, f"the value is nested more than {MAX_DEPTH} levels deep")
        closer = _OPENING[self.text[self.pos]]
        self.pos += 1
        self.stack.append(_Frame({} if closer == "}" else []))

    def _pop(self) -> None:
        done = self.stack.pop().into
        if self.stack:
            self._store(done)
        else:
            self.result = done

    def _store(self, value: Json) -> None:
        frame = self.stack[-1]
        if isinstance(frame.into, list):
            frame.into.append(value)
        elif frame.key is not None:
            if frame.key not in frame.into:
                frame.into[frame.key] = value
            elif same(frame.into[frame.key], value):
                self.repairs.add("repeated field")
            elif self.conflict is None:
                self.conflict = self._path()
        frame.state = "next"

    def _here(self) -> str:
        return repr(self.text[self.pos : min(self.pos + 12, self.size)])

    # Keys and values.

    def _key(self, char: str) -> str:
        if char in _CLOSERS:
            return self._string(char, key=True)
        match = _WORD.match(self.text, self.pos, self.size)
        if match is None or match.group()[0] in "+-":
            raise _Stop(Flaw.SYNTAX, f"there is {self._here()} where a field's name must be")
        self.pos = match.end()
        self.repairs.add("unquoted field name")
        return match.group()

    def _value(self) -> None:
        char = self.text[self.pos]
        if char in _OPENING:
            self._push()
        elif char in _CLOSERS:
            self._store(self._string(char, key=False))
        elif char.isdigit() or (char in "+-." and _NUMBER.match(self.text, self.pos, self.size)):
            self._store(self._number())
        else:
            self._store(self._literal())

    def _number(self) -> int | float:
        match = _NUMBER.match(self.text, self.pos, self.size)
        if match is None or not match.group().isascii():
            raise _Stop(Flaw.SYNTAX, f"{self._here()} is not a number")
        end = match.end()
        if end >= self.size and not self.ended:
            raise _Cut(Cut.MEMBER)  # more digits may have followed
        if end < self.size and not self._delimited(end):
            raise _Stop(Flaw.SYNTAX, f"{self._here()} is not a number")
        digits = match.group()
        if len(digits) > _MAX_DIGITS:
            raise _Stop(Flaw.SYNTAX, f"a number has more than {_MAX_DIGITS} digits")
        if not _PLAIN_NUMBER.fullmatch(digits):
            if re.match(r"[+-]?0\d", digits):
                raise _Stop(Flaw.SYNTAX, f"the number {digits[:20]} begins with a zero")
            self.repairs.add("number in another notation")
        number = float(digits) if re.search(r"[.eE]", digits) else int(digits)
        if isinstance(number, float):
            if not math.isfinite(number):
                raise _Stop(Flaw.NOT_A_NUMBER, f"{digits[:20]} is too large for a number")
            number = whole(number)
        self.pos = end
        return number

    def _literal(self) -> Json:
        match = _WORD.match(self.text, self.pos, self.size)
        word = match.group() if match else ""
        if word.lstrip("+-").lower() in _NOT_NUMBERS:
            raise _Stop(Flaw.NOT_A_NUMBER, f"{word} is not a JSON value; write a number or null")
        plain = "null" if word == "None" else word.lower()
        end = self.pos + len(word)
        if plain not in _LITERALS or (end < self.size and not self._delimited(end)):
            if word and end >= self.size:
                raise _Cut(Cut.MEMBER)
            raise _Stop(Flaw.SYNTAX, f"there is {self._here()} where a value must be; texts need double quotes")
        if word != plain:
            self.repairs.add("literal in another spelling")
        self.pos = end
        return _LITERALS[plain]

    def _delimited(self, at: int) -> bool:
        char = self.text[at]
        return char.isspace() or char in ",}]，｝］\ufeff\x00" or self.text.startswith(("//", "/*", "```"), at)

    # Strings.

    def _string(self, quote: str, *, key: bool) -> str:
        if quote != '"':
            self.repairs.add("other quotes")
        closers, chunk = _CLOSERS[quote], _CHUNKS[quote]
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
                raise _Stop(Flaw.SYNTAX, "the name of a field has no closing quote")
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
        if inner % 2 or (inner and text[:1] in _CLOSERS):
            raise _Stop(Flaw.SYNTAX, "a text has quotes inside that are not escaped")
        if inner:
            self.repairs.add("unescaped quotes")
        return _paired(text, self.repairs)

    def _open_string(self, parts: list[str], inner: int, key: bool) -> str:
        """The text ends inside a string: it is cut there."""
        self.reach = self.size
        if key:
            raise _Cut(Cut.MEMBER)
        if inner:
            raise _Stop(Flaw.SYNTAX, "a text has quotes inside that are not escaped")
        text = "".join(parts)
        if "\ud800" <= text[-1:] <= "\udbff":
            text = text[:-1]
        # A closing quote that was forgotten earlier would have let brackets or lines of prose into the text.
        swallowed = any(char in text for char in "\n{}") or (self.ended and text.rstrip().endswith("]"))
        self.hollow = self.hollow or swallowed or not text.strip()
        frame = self.stack[-1]
        self._store(_paired(text, self.repairs))
        frame.state = "next"
        raise _Cut(Cut.STRING)

    def _escape(self, at: int, parts: list[str]) -> int:
        char = self.text[at + 1] if at + 1 < self.size else ""
        if not char or (char == "u" and at + 6 > self.size):
            parts.append("")
            return self.size  # the cut went through the escape
        if char == "u":
            digits = self.text[at + 2 : at + 6]
            if not _HEX.fullmatch(digits):
                raise _Stop(Flaw.SYNTAX, f"\\u{digits} is not a character")
            parts.append(chr(int(digits, 16)))
            return at + 6
        if char == "'":
            self.repairs.add("escaped apostrophe")
        elif char not in _ESCAPES:
            raise _Stop(Flaw.SYNTAX, f"a text has a backslash before {char!r}")
        parts.append(_ESCAPES.get(char, char))
        return at + 2

    def _closes(self, at: int, key: bool) -> bool:
        """Whether a quote ends the string, told by what follows it."""
        blank = _BLANK.match(self.text, at, self.size)
        after = blank.end() if blank else at
        if after >= self.size or self.text.startswith(("//", "/*", "# ", "```"), after):
            return True
        char = _STRUCTURE.get(self.text[after], self.text[after])
        if key:
            return char == ":"
        if char in ",}]":
            return True
        if char == ":":
            raise _Stop(Flaw.SYNTAX, "a comma or a closing quote is missing before a field")
        if char in _CLOSERS and after > at:
            if "\n" in self.text[at:after]:
                return True
            raise _Stop(Flaw.SYNTAX, "a comma is missing between two texts")
        return False

    def _apostrophe(self, at: int) -> bool:
        return self.text[at] in "'’" and self.text[at - 1].isalpha() and self.text[at + 1 : at + 2].isalpha()


def _closed_by(frame: _Frame, char: str) -> bool:
    return char == ("}" if isinstance(frame.into, dict) else "]")


def _paired(text: str, repairs: set[str]) -> str:
    """Join escaped surrogate pairs; a lone one is no character and becomes the replacement character."""
    if not any("\ud800" <= char <= "\udfff" for char in text):
        return text
    joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if "\ufffd" in joined:
        repairs.add("lone surrogate")
    return joined


def scrub(text: str, repairs: set[str]) -> str:
    """The text without lone surrogates, which can be neither stored nor sent."""
    return _paired(text, repairs)


def closing(text: str, start: int, depth: int) -> int:
    """Index behind the bracket that closes ``depth`` open ones, counted without regard to strings; or the end."""
    for match in re.compile(r"[{}\[\]]").finditer(text, start):
        depth += 1 if match.group() in "{[" else -1
        if depth == 0:
            return match.end()
    return len(text)
