"""Dealing sources to members, so that each reads something else and together they read what fits."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from romanesco.errors import InputError
from romanesco.personas._cut import cut
from romanesco.personas._payload import (
    GAP_CHARS,
    Excerpt,
    Payloads,
    Span,
    header,
    marker,
    measure,
    render_payload,
)
from romanesco.task import Source

SHORTEST_PART = 120
"""Characters: a source is not split into shorter parts only to give every member one of its own."""

SHORTEST_SCRAP = 40
"""Characters: room for less than this is left empty, since the end of a sentence tells a reader nothing."""

HEAD_CHARS = 200
HEAD_SHARE = 8
"""A member that reads a later part of a source reads its head too: at most 200 characters, and at most an
eighth of the budget."""

_SHRINK = 0.8


def split(sources: Sequence[Source], members: Sequence[str], *, budget_chars: int) -> Payloads:
    """Different payloads for the members (information asymmetry; the paper leaves the method open).

    With at least as many sources as members, sources stay whole where they fit. With fewer, the longest ones
    are split at paragraphs or sentences until there is a part for each member. Parts go in order to the
    member with the most room. If not everything fits, every source first reaches somebody with its beginning,
    then the rest is dealt in turns. A member that gets a later part also gets the head of that source, unless
    the heads alone would be what keeps the sources from fitting. Where there is not enough text for all,
    members get copies rather than nothing. The same arguments give the same payloads.

    Args:
        sources: Texts with different names; those without text are passed over.
        members: Ids of the members, all different.
        budget_chars: Greatest length of a member's payload as ``render_payload`` writes it, in characters,
            names and markers included; 0 gives empty payloads.

    Returns:
        Payloads by member with coverage and overlap, and what was clipped.

    Raises:
        InputError: No members, a member or source name twice, or a negative budget.
    """
    _check(sources, members, budget_chars)
    texts = [source for source in sources if source.text.strip()]
    dealt, whole = _best_deal(texts, members, budget_chars, heads=True)
    if not whole and sum(len(source.text) for source in texts) <= budget_chars * len(members):
        bare, fits = _best_deal(texts, members, budget_chars, heads=False)
        dealt = bare if fits else dealt
    _share_with_empty(dealt)
    return measure(sources, {hand.member: hand.excerpts(texts) for hand in dealt})


@dataclass(slots=True)
class _Hand:
    """What one member holds so far: spans by index of source."""

    member: str
    budget: int
    heads: bool
    spans: dict[int, list[Span]] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)
    room: int = 0

    def excerpts(self, sources: Sequence[Source]) -> tuple[Excerpt, ...]:
        """The spans as excerpts, in the order of the sources."""
        return tuple(one for index in sorted(self.spans) for one in _excerpts(sources[index], self.spans[index]))

    def take(self, source: Source, index: int, span: Span) -> bool:
        """Add a span if the payload with it fits."""
        spans = _merged(self.spans.get(index, []), span)
        size = len(render_payload(_excerpts(source, spans)))
        sizes = {**self.sizes, index: size}
        left = self.budget - sum(sizes.values()) - GAP_CHARS * (len(sizes) - 1)
        if left < 0:
            return False
        self.spans[index], self.sizes, self.room = spans, sizes, left
        return True


def _excerpts(source: Source, spans: Sequence[Span]) -> list[Excerpt]:
    return [Excerpt(source.name, start, source.text[start:end], len(source.text)) for start, end in spans]


def _merged(spans: Sequence[Span], new: Span) -> list[Span]:
    result: list[Span] = []
    for start, end in sorted([*spans, new]):
        if result and start <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((start, end))
    return result


def _best_deal(
    sources: Sequence[Source], members: Sequence[str], budget: int, *, heads: bool
) -> tuple[list[_Hand], bool]:
    """Deal with shorter and shorter first parts until every source gets its due, or as many as can.

    Returns:
        The hands, and whether they hold every source in full.
    """
    lengths = [len(source.text) for source in sources]
    share = budget * len(members) / max(1, len(sources))
    level = max(lengths, default=0)
    best: list[_Hand] = []
    whole = False
    most = (-1, -1)
    while most < (len(sources), len(sources)):
        hands = [_Hand(member, budget, heads=heads, room=budget) for member in members]
        places = _deal(hands, sources, level)
        # First that every source reaches somebody, then that none gets less than half of an equal share.
        due = [place >= min(length, share / 2) for place, length in zip(places, lengths, strict=True)]
        if (sum(place > 0 for place in places), sum(due)) > most:
            most = (sum(place > 0 for place in places), sum(due))
            best, whole = hands, places == lengths
        if level <= SHORTEST_PART:
            break
        # Names and markers take room too, so an equal share may still be too much.
        level = max(SHORTEST_PART, int(min(level * _SHRINK, share)))
    return best, whole


def _parts(sources: Sequence[Source], members: int, budget: int) -> list[int]:
    """Into how many parts each source is to be split."""
    lengths = [len(source.text) for source in sources]
    parts = [
        -(-length // max(1, budget - _overhead(source))) if len(header(source.name)) + 1 + length > budget else 1
        for source, length in zip(sources, lengths, strict=True)
    ]
    while parts and sum(parts) < members:
        index = max(range(len(parts)), key=lambda i: lengths[i] / (parts[i] + 1))
        if lengths[index] / (parts[index] + 1) < SHORTEST_PART:
            break
        parts[index] += 1
    return parts


def _deal(hands: Sequence[_Hand], sources: Sequence[Source], level: int) -> list[int]:
    """Deal first parts of at most ``level`` characters, then the rest in turns; how far each source got."""
    parts = _parts(sources, len(hands), hands[0].budget)
    places = [0] * len(sources)
    queue = deque(range(len(sources)))
    while queue:
        index = queue.popleft()
        place, length = places[index], len(sources[index].text)
        aim = -(-(length - place) // parts[index])
        places[index] = _place(hands, sources[index], index, place, aim if place else min(aim, level))
        parts[index] = max(1, parts[index] - 1)
        if place < places[index] < length:
            queue.append(index)
    return places


def _place(hands: Sequence[_Hand], source: Source, index: int, start: int, aim: int) -> int:
    """Give the next part of a source to the member with the most room; where it ends, else ``start``."""
    text = source.text
    least = min(SHORTEST_SCRAP, len(text) - start)
    for hand in sorted(hands, key=lambda one: -one.room):  # stable: of equals the first member
        if hand.room < least:
            break  # the others have even less
        # Before the part, since behind it there may be no room left.
        _take_head(hand, source, index, start)
        end = cut(text, start, aim, aim + aim // 2)
        if hand.take(source, index, (start, end)):
            return end
        length = hand.room - _overhead(source, held=index in hand.spans)
        if length < least:
            continue
        end = cut(text, start, length, length)
        if hand.take(source, index, (start, end)):
            return end
    return start


def _take_head(hand: _Hand, source: Source, index: int, start: int) -> None:
    size = min(HEAD_CHARS, hand.budget // HEAD_SHARE)
    if not hand.heads or start == 0 or index in hand.spans or size < SHORTEST_SCRAP:
        return
    if hand.room < size + 2 * _overhead(source) + SHORTEST_PART:
        return
    hand.take(source, index, (0, min(start, cut(source.text, 0, size, size))))


def _overhead(source: Source, *, held: bool = False) -> int:
    """Greatest number of characters that an excerpt of the source adds beside its text.

    A first one brings the name and a marker at each end; a further one parts a gap in two.
    """
    mark = len(marker(len(source.text)))
    if held:
        return mark + len(str(len(source.text))) + 2
    return len(header(source.name)) + 2 * mark + 5  # line breaks


def _share_with_empty(hands: Sequence[_Hand]) -> None:
    """Give copies to members that got nothing, so that nobody has to invent what others read."""
    given = [hand for hand in hands if hand.spans]
    for turn, hand in enumerate(one for one in hands if not one.spans):
        if given:
            hand.spans = {index: list(spans) for index, spans in given[turn % len(given)].spans.items()}


def _check(sources: Sequence[Source], members: Sequence[str], budget: int) -> None:
    if not members:
        raise InputError("there is nobody to split the sources for", value="0 members", limit="at least 1")
    for what, names in (("member", list(members)), ("source", [source.name for source in sources])):
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise InputError(
                f"a {what} is named twice",
                value=", ".join(repr(name) for name in twice),
                limit="different names",
                advice=f"Give each {what} a name of its own.",
            )
    if budget < 0:
        raise InputError(
            "the payload budget is negative",
            value=budget,
            limit="at least 0 characters",
            advice="0 gives no sources.",
        )
