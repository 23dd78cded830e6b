"""Other people's text inside a prompt: clipped to a size known beforehand, and delimited as data."""

from __future__ import annotations

import re
from collections.abc import Sequence

from romanesco.topologies._billing import BYTES_PER_TOKEN

CUT = " [cut]"
"""What stands where a text was clipped."""
FENCE = '"""'
"""Delimiter of foreign text in compact prompts."""
BETWEEN = " | "
"""What stands between foreign texts in one fence."""
# What a model takes for a tag: in any case, and with spaces where none belong.
_TAG = re.compile(r"<(?=\s*+(?:/\s*+)?(?:source|proposal|challenge|critiques|ledger))", re.IGNORECASE)


def byte_cap(tokens: int) -> int:
    """Largest size in UTF-8 bytes of an inserted text that was generated under a cap of so many tokens."""
    return tokens * BYTES_PER_TOKEN


def clip(text: str, tokens: int) -> str:
    """The text, cut to ``byte_cap(tokens)`` with a visible marker; never inside a character."""
    return clip_bytes(text, byte_cap(tokens))


def clip_bytes(text: str, limit: int) -> str:
    """The text, cut to so many UTF-8 bytes with a visible marker; never inside a character."""
    data = text.encode("utf-8", "replace")
    if len(data) <= limit:
        return data.decode("utf-8")
    return data[: max(0, limit - len(CUT))].decode("utf-8", "ignore") + CUT


def one_line(text: str) -> str:
    """The text on one line, so that it can't imitate the lines of a prompt."""
    return " ".join(text.split())


def fenced(text: str, tokens: int) -> str:
    """Foreign text in a compact prompt: on one line, clipped, between fences that it can't close."""
    return f"{FENCE}{clip(_unfenced(one_line(text)), tokens)}{FENCE}"


def fenced_list(texts: Sequence[str], limit: int) -> str:
    """Foreign texts between one pair of fences, in at most so many bytes without these.

    If they are too long together, each is cut to an equal share, so that none drives out another.
    """
    lines = clipped_alike([_unfenced(one_line(text)) for text in texts], limit)
    return f"{FENCE}{clip_bytes(BETWEEN.join(lines), limit)}{FENCE}"


def clipped_alike(lines: Sequence[str], limit: int) -> list[str]:
    """The lines, each cut to an equal share if they are longer together than so many bytes."""
    between = len(BETWEEN) * (len(lines) - 1)
    if sum(len(line.encode("utf-8", "replace")) for line in lines) + between <= limit:
        return list(lines)
    return [clip_bytes(line, (limit - between) // len(lines)) for line in lines]


def _unfenced(text: str) -> str:
    # Of the same length, so that a clipped text stays within its cap.
    return text.replace(FENCE, "'''")


def tagged(tag: str, text: str, tokens: int, **attributes: str) -> str:
    """Foreign text in a full prompt: clipped, between tags that it can't close."""
    return wrap(tag, clip(disarmed(text.strip()), tokens), **attributes)


def wrap(tag: str, text: str, **attributes: str) -> str:
    """Text between tags. The text must be ours, or disarmed."""
    shown = "".join(f' {name}="{value}"' for name, value in attributes.items())
    return f"<{tag}{shown}>\n{text}\n</{tag}>"


def disarmed(text: str) -> str:
    """The text with every angle bracket that could open or close a tag replaced, at the same length in bytes."""
    return _TAG.sub("(", text)
