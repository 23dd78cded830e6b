"""What servers used beyond what was reserved for a call, and how a run's outcome tells it: pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

from romanesco.task import CallOverrun, Outcome

_SHOWN = 3


def call_overruns(node: str, key: str, accounts: Iterable[dict[str, Any]]) -> list[CallOverrun]:
    """The overruns in an event ``budget.overrun``, one for each dimension.

    Args:
        node: The event's node.
        key: Its key.
        accounts: Its list of what was overrun in which account.
    """
    return [
        CallOverrun(node, key, given["dimension"], Decimal(given["by"]), bool(given["reported_by_server"]))
        for given in accounts
    ]


def overrun_text(overruns: Sequence[CallOverrun]) -> str:
    """One sentence on what was used beyond what was reserved, "" if nothing was."""
    by_call: dict[tuple[str, str, bool], list[str]] = {}
    for one in overruns:
        if one.dimension != "tokens":  # they are told as tokens_in and tokens_out
            by_call.setdefault((one.node, one.key, one.reported), []).append(f"{one.by:,f} {one.dimension}")
    if not by_call:
        return ""
    told = [_told(*call, amounts) for call, amounts in by_call.items()]
    more = f"; and {len(told) - _SHOWN} more" if len(told) > _SHOWN else ""
    what = "A call" if len(told) == 1 else f"{len(told)} calls"
    return (
        f"{what} used more than the most that was reserved, and the bill does not bound that: "
        f"{'; '.join(told[:_SHOWN])}{more}."
    )


def _told(node: str, key: str, reported: bool, amounts: Sequence[str]) -> str:
    where = key if node == "/" else f"{node}: {key}"
    return f"{where}, {' and '.join(amounts)} more{'' if reported else ' by our estimate'}"


def with_overruns(outcome: Outcome, overruns: Sequence[CallOverrun]) -> Outcome:
    """The outcome with the overruns in it, and a sentence on them in its note. They change nothing else of it."""
    said = overrun_text(overruns)
    note = outcome.note if said in outcome.note else f"{outcome.note} {said}".strip()
    return replace(outcome, note=note, overruns=tuple(overruns))
