"""Whether a failed attempt is made again, and after how long: pure decisions."""

from __future__ import annotations

from dataclasses import dataclass

from romanesco.errors import ModelError, RateLimited, RequestRejected
from romanesco.runtime._spec import RetryPolicy

LONGEST_WAIT = 600.0
"""A server that asks to wait for more seconds than this (a quota of the day) is not waited for: the call fails."""


@dataclass(frozen=True, slots=True)
class Again:
    """Make another attempt after ``delay`` seconds. ``paid`` says that the failed one may have cost tokens."""

    delay: float
    paid: bool


def costs_nothing(error: ModelError) -> bool:
    """Whether a failed attempt certainly cost no tokens: never sent, or turned away before it was read.

    A 4xx status is a refusal before any work; a 5xx, a cut or a stall may come in the middle of it.
    """
    return not error.sent or error.code in (
        "rate-limited",
        "key-missing",
        "request-rejected",
        "context-overflow",
    )


def asked_pause(error: ModelError) -> float:
    """Seconds that the server asked to wait, 0 if it did not."""
    return (error.retry_after or 0.0) if isinstance(error, RateLimited) else 0.0


def decide(error: ModelError, *, paid: int, unpaid: int, policy: RetryPolicy, jitter: float) -> Again | None:
    """Decide on another attempt.

    Args:
        error: Why the last attempt failed.
        paid: Failed attempts of this call so far that may have cost tokens, this one included.
        unpaid: Failed attempts so far that cost nothing, this one included.
        policy: The limits.
        jitter: A random number in [0, 1).

    Returns:
        Another attempt, or None: give up.
    """
    if not error.retryable:
        return None
    free = costs_nothing(error)
    learned = isinstance(error, RequestRejected)  # the adapter leaves out what the server does not know
    most = policy.rate_limited if learned or isinstance(error, RateLimited) else policy.attempts
    failures = unpaid if free else paid
    if failures >= most:
        return None
    backoff = 0.0 if learned else min(policy.cap, policy.base * 2 ** (failures - 1)) * jitter
    asked = asked_pause(error)
    if asked > LONGEST_WAIT:
        return None
    return Again(delay=asked + backoff, paid=not free)
