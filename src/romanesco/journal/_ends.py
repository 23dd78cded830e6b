"""Comparing what a run.ended says with what the events before it say: its totals, and the outcome that screens show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from romanesco.journal._event import Event
from romanesco.journal._figures import Faults, Totals, read_bill, read_decimal, read_lines

_COUNTS = ("calls", "tokens_in", "tokens_out", "cached", "reasoning")


@dataclass(frozen=True, slots=True)
class Counted:
    """What a run's events give, up to its end.

    Attributes:
        totals: What was spent.
        lines: What was spent by line of the bill.
        in_doubt: Attempts that were started and have no end.
        bill: The bill by line, with what was added to it; empty if the plan made none.
        nodes: The nodes that the plan's bill counts with.
    """

    totals: Totals
    lines: dict[str, Totals]
    in_doubt: int
    bill: dict[str, Totals]
    nodes: Any


def compare_spend(event: Event, data: dict[str, Any], counted: Counted, faults: Faults) -> None:
    """The totals of a run.ended are those of the calls."""
    spend, totals = data.get("spend"), counted.totals
    if not isinstance(spend, dict):
        faults.add(f"event {event.seq} (run.ended) gives no totals", event.seq)
        return
    figures = {name: (spend.get(name), getattr(totals, name)) for name in _COUNTS}
    figures["in_doubt"] = spend.get("in_doubt", 0), counted.in_doubt
    for name, (said, given) in figures.items():
        if type(said) is not int or said != given:
            faults.add(f"event {event.seq} says {name} {said}, its calls give {given}", event.seq)
    usd = spend.get("usd")
    if (None if usd is None else read_decimal(usd)) != totals.usd or (usd is None) != (totals.usd is None):
        faults.add(f"event {event.seq} says usd {usd}, its calls give {totals.usd}", event.seq)
    if totals.estimated and not spend.get("estimated"):
        faults.add(f"event {event.seq} does not say that its tokens are partly estimated", event.seq)


def compare_outcome(event: Event, data: dict[str, Any], counted: Counted, faults: Faults) -> None:
    """The outcome in a run.ended says what the rest of it, the calls and the plan say."""
    outcome = data.get("outcome")
    if not isinstance(outcome, dict):
        faults.add(f"event {event.seq} (run.ended) has no outcome", event.seq)
        return
    for name in ("status", "reason", "spend"):
        if outcome.get(name) != data.get(name):
            text = f"event {event.seq}: its outcome says {name} {outcome.get(name)}, itself {data.get(name)}"
            faults.add(text, event.seq)
    _compare_lines(event, outcome, counted, faults)
    _compare_bill(event, outcome, counted, faults)


def _compare_lines(event: Event, outcome: dict[str, Any], counted: Counted, faults: Faults) -> None:
    said = read_lines(outcome.get("lines", []))
    if said is None:
        faults.add(f"event {event.seq}: what its outcome says of the bill's lines can't be read", event.seq)
        return
    given = counted.lines if counted.bill else {}  # without a bill there are no lines to tell of
    for purpose in sorted({*said, *given}):
        line, spent = said.get(purpose, Totals()), given.get(purpose, Totals())
        # Money is told line by line only where it is known of all of them.
        usd = None if counted.totals.usd is None else spent.usd
        if _figures(line) != (spent.calls, spent.tokens_in, spent.tokens_out, usd):
            faults.add(
                f"event {event.seq}: its outcome says {_told(line)} of line {purpose!r}, its calls give {_told(spent)}",
                event.seq,
            )


def _compare_bill(event: Event, outcome: dict[str, Any], counted: Counted, faults: Faults) -> None:
    given = outcome.get("bill")
    said = {} if given is None else read_bill(given)
    if said is None:
        faults.add(f"event {event.seq}: the bill in its outcome can't be read", event.seq)
        return
    for purpose in sorted({*said, *counted.bill}):
        line, planned = said.get(purpose), counted.bill.get(purpose)
        if line is None or planned is None or _figures(line) != _figures(planned):
            faults.add(
                f"event {event.seq}: the bill in its outcome has {_told(line)} on line {purpose!r}, "
                f"the plan's has {_told(planned)}",
                event.seq,
            )
    nodes = given.get("nodes") if isinstance(given, dict) else None
    if counted.bill and nodes != counted.nodes:
        text = f"event {event.seq}: the bill in its outcome has {nodes} nodes, the plan's {counted.nodes}"
        faults.add(text, event.seq)


def _figures(amount: Totals) -> tuple[Any, ...]:
    return amount.calls, amount.tokens_in, amount.tokens_out, amount.usd


def _told(amount: Totals | None) -> str:
    if amount is None:
        return "nothing"
    return f"{amount.calls} calls, {amount.tokens_in} + {amount.tokens_out} tokens, usd {amount.usd}"
