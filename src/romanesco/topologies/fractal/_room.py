"""Room in a window for texts that members wrote: what each may need, and where it is cut if all are too much.

A plan gives each text room in the window by its cap. What a member wrote can have more tokens than that: digits,
Chinese or emoji have many of them in few bytes. So a text is measured before it is shown, by what its server reported
and by its characters, and what does not fit is cut, with a visible mark: a prompt that is too long would lose the call.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from romanesco.models._types import ModelReply
from romanesco.topologies._billing import PIECE_WINDOW_BYTES, Piece
from romanesco.topologies._text import CUT, clip_bytes, clipped_alike, one_line

ENTRY_EXTRA = 3
"""Tokens of the dash before a ledger entry and of the end of its line."""


@dataclass(frozen=True, slots=True)
class Written:
    """What is known of the tokens of a reply.

    Attributes:
        model: Name of the model that wrote it.
        tokens: Tokens that its server reported, reasoning included; None if it reported none.
        rate: Tokens a byte of its letters, at least what a window is planned for.
    """

    model: str = ""
    tokens: int | None = None
    rate: float = 1 / PIECE_WINDOW_BYTES

    @classmethod
    def of(cls, reply: ModelReply, model: str) -> Written:
        """Measure a reply: only recorded figures are used, so that a resumed run shows the same."""
        if reply.usage is None or reply.usage.estimated:
            return cls(model)
        read = "".join([reply.text, reply.reasoning, *(call.arguments for call in reply.tool_calls)])
        seen = reply.usage.output if reply.reasoning else reply.usage.output - reply.usage.reasoning
        rate = seen / max(1, len(read.encode("utf-8", "replace")))
        # Of more than a token a byte most was reasoning that nobody showed: it says nothing of this text.
        usual = cls(model).rate
        return cls(model, reply.usage.output, rate if usual <= rate <= 1 else usual)

    def most(self, texts: Sequence[str], piece: Piece, reader: str) -> int:
        """Tokens that texts of this reply, as far as they are shown, may need in a prompt of this reader."""
        lines = [one_line(text) for text in texts]
        forms = ([clip_bytes("".join(lines), piece.size)], clipped_alike(lines, piece.size))
        by_text = max(math.ceil(sum(cost(line, self.rate) for line in form)) for form in forms)
        if self.tokens is None or self.model != reader:
            return by_text
        return min(by_text, replace(piece, tokens=self.tokens).again())


@dataclass(frozen=True, slots=True)
class Text:
    """One or several texts of one reply that stand in a prompt together, and the room that the plan gave them."""

    texts: tuple[str, ...]
    piece: Piece
    written: Written = Written()

    def need(self, reader: str) -> int:
        """Tokens that it may need in a prompt of this reader."""
        return self.written.most(self.texts, self.piece, reader)

    def cut(self, tokens: int) -> tuple[str, ...]:
        """The texts in at most so many tokens together; those that are longer than others first."""
        rate = self.written.rate
        costs = [math.ceil(cost(text, rate)) for text in self.texts]
        given = shares(costs, tokens)
        return tuple(cut(text, most, rate) for text, most in zip(self.texts, given, strict=True))


def fitted(shown: Sequence[Text], reader: str, room: int) -> list[tuple[str, ...]]:
    """The texts of a prompt, cut where all of them together may need more than the room for them.

    A text that needs no more than its planned room is whole. What others leave of theirs goes to those that need more.

    Args:
        shown: The texts.
        reader: Name of the model that reads them.
        room: Tokens that the window has for all of them together, at least their planned room.
    """
    needs = [text.need(reader) for text in shown]
    if sum(needs) <= room:
        return [text.texts for text in shown]
    planned = [text.piece.room(reader) for text in shown]
    taken = [min(need, most) for need, most in zip(needs, planned, strict=True)]
    more = shares([need - own for need, own in zip(needs, taken, strict=True)], room - sum(taken))
    return [
        text.texts if own + extra >= need else text.cut(own + extra)
        for text, need, own, extra in zip(shown, needs, taken, more, strict=True)
    ]


def shares(needs: Sequence[int], room: int) -> list[int]:
    """What each gets of a room: what it needs, or an equal share of what those who need less leave."""
    given, left = [0] * len(needs), max(0, room)
    order = sorted(range(len(needs)), key=lambda at: needs[at])
    for place, at in enumerate(order):
        given[at] = min(needs[at], left // (len(needs) - place))
        left -= given[at]
    return given


def cost(text: str, rate: float) -> float:
    """Tokens of a text at most, by its characters.

    Letters and spaces have ``rate`` tokens each. Digits, signs and every byte of a character beyond ASCII count as a
    token, as they are in the most wasteful tokenizer.
    """
    plain = sum(char.isascii() and (char.isalpha() or char.isspace()) for char in text)
    return plain * rate + len(text.encode("utf-8", "replace")) - plain


def cut(text: str, tokens: int, rate: float) -> str:
    """The text in at most so many tokens, with a visible mark if something is left out."""
    text = one_line(text)
    if cost(text, rate) <= tokens:
        return text
    left = tokens - cost(CUT, rate)
    for at, char in enumerate(text):
        left -= cost(char, rate)
        if left < 0:
            return text[:at] + CUT
    return text


def cut_entries(entries: Sequence[str], tokens: int, rate: float) -> list[str]:
    """As many ledger entries as fit, oldest first; the next one is cut and the rest is left out."""
    needs = [math.ceil(cost(one_line(entry), rate)) + ENTRY_EXTRA for entry in entries]
    if sum(needs) <= tokens:
        return list(entries)
    mark = math.ceil(cost(CUT, rate)) + ENTRY_EXTRA
    kept: list[str] = []
    left = tokens - mark
    for entry, need in zip(entries, needs, strict=True):
        if need > left:
            part = cut(entry, left + mark - ENTRY_EXTRA, rate)
            return [*kept, part if part.endswith(CUT) else CUT.strip()]
        kept.append(entry)
        left -= need
    return kept
