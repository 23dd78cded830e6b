"""Reads one JSON object or list that a small model wrote, forgiving what has exactly one reading.

It is a hand-written reader, because the libraries that repair JSON guess: they drop what they can't read and give an
empty value for a failure. This one takes a deviation only if nothing else can have been meant, names every one that it
took, and stops with a defect otherwise. It keeps its own stack, so that no nesting overflows Python's, and reads each
character once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from romanesco.models._tokens import OPENING, QUOTES, Cut, CutShort, Flaw, Scanner, Stop
from romanesco.models._types import Json

MAX_DEPTH = 64
"""Deepest nesting that is read."""

_CLOSING_RUN = re.compile(r"[\s}\]｝］]*")
_BRACKET = re.compile(r"[{}\[\]｛｝［］]")


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


class _Reader(Scanner):
    def __init__(self, text: str, start: int, ended: bool) -> None:
        super().__init__(text, start, ended)
        self.stack: list[_Frame] = []
        self.begun = False
        self.result: Json = None
        self.hollow = False
        self.conflict: tuple[str | int, ...] | None = None

    def run(self) -> Reading | Defect:
        try:
            self._push()
            while self.stack:
                self._step(self.stack[-1])
        except CutShort as short:
            return self._closed(short)
        except Stop as stop:
            return self._defect(stop)
        return Reading(self.result, self.pos, frozenset(self.repairs), conflict=self.conflict)

    def _defect(self, stop: Stop) -> Defect:
        reach = max(self.reach, self.pos)
        return Defect(stop.flaw, stop.message, self.pos, reach, self._path(), self.begun, len(self.stack))

    def _closed(self, short: CutShort) -> Reading:
        """The value closed where the text ends, behind the last whole part."""
        if short.cut is Cut.STRING:
            self.hollow = not short.text.strip() or self._swallowed(short.text)
            self._store(short.text)
        path = self._path()
        while self.stack:
            if not self.stack[-1].into:
                self.hollow = True
            self._pop()
        self.repairs.add("closed where the text ends")
        repairs = frozenset(self.repairs)
        return Reading(self.result, self.size, repairs, short.cut, path, self.hollow, self.conflict, self.begun)

    def _swallowed(self, text: str) -> bool:
        """Whether a closing quote may have been forgotten, which lets brackets or lines of prose into the text."""
        return any(char in text for char in "\n{}") or (self.ended and text.rstrip().endswith("]"))

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
        char = self.peek(Cut.BRACKETS if frame.state == "next" else Cut.MEMBER)
        if char in "}]":
            self._close(frame, char)
        elif frame.state == "next":
            self._comma(frame, char)
        elif isinstance(frame.into, dict):
            frame.key = self.name(char)
            if self.peek(Cut.MEMBER) != ":":
                raise Stop(Flaw.SYNTAX, f'there is no ":" after the field "{frame.key[:40]}"')
            self.pos += 1
            self.begun = True
            self.peek(Cut.MEMBER)
            self._value()
        else:
            self._value()

    def _value(self) -> None:
        char = self.text[self.pos]
        if char in OPENING:
            self._push()
        elif char in QUOTES:
            self._store(self.string(char, key=False))
        elif char.isdigit() or (char in "+-." and self.at_number()):
            self._store(self.number())
        else:
            self._store(self.literal())

    def _comma(self, frame: _Frame, char: str) -> None:
        if char == ",":
            self.pos += 1
        elif "\n" in self.gap and char in QUOTES:
            self.repairs.add("missing comma")
        else:
            raise Stop(Flaw.SYNTAX, f"there is {self.here()} where a comma or a closing bracket must be")
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
        if not any(_closed_by(frame, char) for frame in self.stack) or (after and after in ",:，：") or after in QUOTES:
            raise Stop(Flaw.SYNTAX, f'"{char}" closes a bracket of another kind')
        self.repairs.add("closing bracket left out")
        while not _closed_by(self.stack[-1], char):
            self._pop()

    def _push(self) -> None:
        if len(self.stack) >= MAX_DEPTH:
            raise Stop(Flaw.TOO_DEEP, f"the value is nested more than {MAX_DEPTH} levels deep")
        closer = OPENING[self.text[self.pos]]
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


def _closed_by(frame: _Frame, char: str) -> bool:
    return char == ("}" if isinstance(frame.into, dict) else "]")


def closing(text: str, start: int, depth: int) -> int:
    """Index behind the bracket that closes ``depth`` open ones, counted without regard to strings; or the end."""
    for match in _BRACKET.finditer(text, start):
        depth += 1 if match.group() in OPENING else -1
        if depth == 0:
            return match.end()
    return len(text)
