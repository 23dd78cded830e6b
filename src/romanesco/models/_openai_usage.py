"""What a server reports of the tokens of a call, as it can be believed."""

from __future__ import annotations

from typing import Any

from romanesco.models._types import Usage

_BIGGEST_COUNT = 10**12
"""Tokens of one call that are believed; a larger report says nothing."""


def decode_usage(data: dict[str, Any]) -> Usage | None:
    """Tokens as reported, or None if there is no count. Where one of the two can't be true, the other is kept.

    The report is then marked as estimated; it is zero where it says nothing, and the runtime takes an upper bound.

    Providers differ in what they leave out of ``prompt_tokens`` and ``completion_tokens`` (cached tokens,
    reasoning); the larger reading is taken, so that no token escapes the account: what ``total_tokens`` has
    beyond the two was generated, and cached tokens beyond the prompt's are added to it.
    """
    read = _count(data.get("prompt_tokens"))
    written = _count(data.get("completion_tokens"))
    if not read and not written:
        return None
    doubtful = not read or written is None
    read, written = read or 0, written or 0
    details_in = data.get("prompt_tokens_details")
    details_out = data.get("completion_tokens_details")
    cached = _count(details_in.get("cached_tokens")) if isinstance(details_in, dict) else None
    if cached is None:
        cached = _count(data.get("prompt_cache_hit_tokens"))
    reasoning = _count(details_out.get("reasoning_tokens")) if isinstance(details_out, dict) else None
    cached, reasoning = cached or 0, reasoning or 0
    if cached > read:
        read += cached
    total = _count(data.get("total_tokens")) or 0
    if written and not read:
        read = max(0, total - written)  # what the total has beyond the output was read
    written = max(written, total - read, reasoning)
    return Usage(
        input=min(read, _BIGGEST_COUNT),
        output=min(written, _BIGGEST_COUNT),
        cached=cached,
        reasoning=reasoning,
        estimated=doubtful,
    )


def larger(before: Usage | None, usage: Usage | None) -> Usage | None:
    """What a stream has reported when another report comes: the larger of each; in doubt unless one report is both."""
    if usage is None or before is None:
        return usage or before
    read = max(usage, before, key=lambda one: one.input)  # of equals the later
    wrote = max(usage, before, key=lambda one: one.output)
    doubtful = all(one.estimated for one in (before, usage) if (one.input, one.output) == (read.input, wrote.output))
    return Usage(read.input, wrote.output, cached=read.cached, reasoning=wrote.reasoning, estimated=doubtful)


def _count(value: Any) -> int | None:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _BIGGEST_COUNT:
        return None
    return value
