"""Drives the structured-output ladder: one request, at most one re-ask, then a typed failure.

What to do with a reply is decided by pure functions in ``romanesco.models``; here it is only carried out, each
re-ask as a step of its own on the bill's repair line.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Protocol

from romanesco.models import Accept, Fail, ModelReply, ModelRequest, Reask, judge
from romanesco.runtime._accounts import REPAIR, WRAP_UP
from romanesco.runtime._topology import Structured


class MakeCall(Protocol):
    """Makes one call of a step."""

    def __call__(self, request: ModelRequest, *, key: str, purpose: str) -> Awaitable[ModelReply]:
        """Ask ``request`` under ``key``, charged to ``purpose``."""
        ...


async def climb(
    make: MakeCall,
    request: ModelRequest,
    *,
    key: str,
    purpose: str,
    judging: Callable[..., Accept | Reask | Fail] = judge,
) -> Structured:
    """Ask until the reply is accepted or the ladder ends.

    Args:
        make: Makes one call.
        request: What to ask.
        key: The step's key; re-asks get keys below it.
        purpose: Line of the bill.
        judging: ``judge`` for a value of ``request.output``; ``judge_text`` for plain text, where an empty or
            reasoning-only reply is asked for once more.

    Raises:
        OutputInvalid: The ladder ended without a value, or without text.
    """
    asked, step_key, line = request, key, purpose
    for attempt in range(1, 10):
        reply = await make(asked, key=step_key, purpose=line)
        verdict = judging(reply, request, attempt=attempt)
        if isinstance(verdict, Accept):
            return Structured(verdict.value, _answer(reply, verdict), verdict.truncated)
        if isinstance(verdict, Fail):
            raise verdict.error
        asked = verdict.request
        step_key = f"{key}/repair/{attempt}"
        # A wrap-up's repair stays inside the held-back share: the repair line may be what ran out.
        line = WRAP_UP if purpose == WRAP_UP else REPAIR
    raise AssertionError("the ladder ends by itself")


def _answer(reply: ModelReply, verdict: Accept) -> ModelReply:
    """The reply with the text that was accepted: without the model's thinking."""
    return reply if verdict.text in ("", reply.text) else replace(reply, text=verdict.text)
