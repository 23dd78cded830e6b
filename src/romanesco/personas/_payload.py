"""What each member reads: its excerpts of the task's sources, how they look in a prompt, what they cover."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from romanesco.task import Source

Span = tuple[int, int]
"""Start and end of a part of a text, in characters."""

_GAP = "\n\n"
GAP_CHARS = len(_GAP)
"""Characters between two sources in a payload."""


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A part of a source, word for word.

    Attributes:
        source: Name of the source.
        start: Where it begins in the source, in characters.
        text: The part: ``source.text[start:start + len(text)]``.
        total: Length of the whole source, in characters.
    """

    source: str
    start: int
    text: str
    total: int

    @property
    def end(self) -> int:
        """Where it ends in the source, in characters."""
        return self.start + len(self.text)


@dataclass(frozen=True, slots=True)
class Clip:
    """A source of which ``left_out`` of ``total`` characters reach no member."""

    source: str
    left_out: int
    total: int


@dataclass(frozen=True, slots=True)
class Payloads:
    """The members' different payloads and what they cover together.

    Attributes:
        by_member: Excerpts by member id, in the order of sources and places; () for a member without any.
        coverage: Share of the sources with any text that reach somebody, 0 to 1; None if there are none.
        text_coverage: Share of these sources' characters that reach somebody, 0 to 1; None if there are none.
        overlap: Share of the characters that reach somebody which reach more than one member, 0 to 1; None if
            no character reaches anybody.
        clipped: Sources that do not reach somebody in full, in their order.
    """

    by_member: dict[str, tuple[Excerpt, ...]]
    coverage: float | None
    text_coverage: float | None
    overlap: float | None
    clipped: tuple[Clip, ...]


def render_payload(excerpts: Sequence[Excerpt]) -> str:
    """Excerpts as they stand in a prompt: each source under its name, each gap with a visible marker.

    Args:
        excerpts: Of one member, those of one source together and in order.

    Returns:
        The text, "" for no excerpts. A marker counts the characters of the source that this member does not
        see at that place.
    """
    blocks = [_block(name, list(group)) for name, group in groupby(excerpts, key=lambda one: one.source)]
    return _GAP.join(blocks)


def marker(characters: int) -> str:
    """The line that stands for text left out."""
    return f"[... {characters} character{'' if characters == 1 else 's'} left out]"


def header(name: str) -> str:
    """The line above a source's excerpts."""
    return f"Source: {' '.join(name.split())}"


def _block(name: str, excerpts: Sequence[Excerpt]) -> str:
    lines = [header(name)]
    seen = 0
    for excerpt in excerpts:
        if excerpt.start > seen:
            lines.append(marker(excerpt.start - seen))
        # Empty lines at the edges of an excerpt say nothing; indentation does.
        lines.append(excerpt.text.strip("\r\n").rstrip())
        seen = excerpt.end
    if excerpts[-1].total > seen:
        lines.append(marker(excerpts[-1].total - seen))
    return "\n".join(lines)


def measure(sources: Sequence[Source], by_member: Mapping[str, tuple[Excerpt, ...]]) -> Payloads:
    """Payloads with their coverage and overlap, computed from the excerpts themselves.

    Args:
        sources: All sources, with different names; those without text do not count.
        by_member: Excerpts by member id; those of one member do not overlap.
    """
    spans: dict[str, list[Span]] = {source.name: [] for source in sources}
    for excerpts in by_member.values():
        for excerpt in excerpts:
            spans[excerpt.source].append((excerpt.start, excerpt.end))
    counted = [(source, *_reach(spans[source.name])) for source in sources if source.text.strip()]
    whole = sum(len(source.text) for source, _, _ in counted)
    once = sum(reached for _, reached, _ in counted)
    clips = (Clip(one.name, len(one.text) - reached, len(one.text)) for one, reached, _ in counted)
    return Payloads(
        by_member=dict(by_member),
        coverage=_share(sum(reached > 0 for _, reached, _ in counted), len(counted)),
        text_coverage=_share(once, whole),
        overlap=_share(sum(shared for _, _, shared in counted), once),
        clipped=tuple(clip for clip in clips if clip.left_out),
    )


def _reach(spans: Iterable[Span]) -> tuple[int, int]:
    """How many characters lie in at least one span, and how many in at least two."""
    edges = sorted(edge for start, end in spans for edge in ((start, 1), (end, -1)))
    once = twice = depth = last = 0
    for place, change in edges:
        once += (place - last) * (depth >= 1)
        twice += (place - last) * (depth >= 2)
        depth, last = depth + change, place
    return once, twice


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
