"""What a run's calls cost by line of its bill, and where its time went. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from romanesco.runtime import Attempted, FoldedEvent
from romanesco.task import Bill, BillLine


@dataclass(frozen=True, slots=True)
class LineCost:
    """One line of the bill: at most so much, and what it came to.

    Attributes:
        purpose: The line.
        most: The worst case, or None for a plan without a bill.
        calls: Calls made.
        tokens_in: Tokens read.
        tokens_out: Tokens generated.
        usd: Money, or None if a price is unknown.
        estimated: Whether some of it are upper bounds.
    """

    purpose: str
    most: BillLine | None
    calls: int
    tokens_in: int
    tokens_out: int
    usd: Decimal | None
    estimated: bool


@dataclass(slots=True)
class _Sum:
    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    usd: Decimal | None = Decimal(0)
    estimated: bool = False


def line_costs(bill: Bill, attempts: Iterable[Attempted]) -> tuple[LineCost, ...]:
    """Costs by line, in the bill's order; lines that the bill does not name come last."""
    sums: dict[str, _Sum] = {line.purpose: _Sum() for line in bill.lines}
    for attempt in attempts:
        spent = attempt.spent
        sum_ = sums.setdefault(attempt.line, _Sum())
        sum_.tokens_in += spent.tokens_in
        sum_.tokens_out += spent.tokens_out
        sum_.usd = None if sum_.usd is None or not spent.priced else sum_.usd + spent.usd
        sum_.estimated = sum_.estimated or spent.estimated
        sums.setdefault(attempt.call_line, _Sum()).calls += spent.calls
    most = {line.purpose: line for line in bill.lines}
    return tuple(
        LineCost(purpose, most.get(purpose), one.calls, one.tokens_in, one.tokens_out, one.usd, one.estimated)
        for purpose, one in sums.items()
    )


@dataclass(frozen=True, slots=True)
class Times:
    """Where a run's active seconds went.

    Attributes:
        active: Seconds that the run was active.
        waiting: Of these, seconds in which at least one call was out at a model.
        queue: Seconds that calls waited for a slot, summed over calls.
        first_token: Seconds until the first token, summed over calls.
        generating: Seconds from the first token to the last, summed over calls.
        parse: Of these, seconds spent on reading the reply, summed over calls.
        calls: Finished calls that these sums are over.
    """

    active: float = 0.0
    waiting: float = 0.0
    queue: float = 0.0
    first_token: float = 0.0
    generating: float = 0.0
    parse: float = 0.0
    calls: int = 0

    @property
    def own(self) -> float:
        """Active seconds in which no call was out: journal, embeddings, retries' pauses, the engine."""
        return max(0.0, self.active - self.waiting)


def times(events: Sequence[FoldedEvent]) -> Times:
    """The split of a run's time, from the elapsed seconds and timings that its events carry."""
    spans: list[tuple[float, float]] = []
    begun: dict[tuple[str, str, int], float] = {}
    active = queue = first = total = parse = 0.0
    calls = 0
    for _, kind, node, key, data in events:
        elapsed = float(data.get("elapsed", 0.0))
        active = max(active, elapsed)
        if kind == "call.started":
            begun[node, key, data["attempt"]] = elapsed
        elif kind in ("call.finished", "call.failed"):
            start = begun.pop((node, key, data["attempt"]), None)
            if start is not None:
                spans.append((start, max(start, elapsed)))
            timing: dict[str, Any] = data.get("timing") or {}
            if kind == "call.finished":
                calls += 1
                queue += timing.get("queue", 0.0)
                first += timing.get("first_token", 0.0)
                total += timing.get("total", 0.0)
                parse += timing.get("parse", 0.0)
    spans.extend((start, active) for start in begun.values())
    return Times(active, _covered(spans), queue, first, max(0.0, total - first), parse, calls)


def _covered(spans: list[tuple[float, float]]) -> float:
    """Length of the union of spans."""
    covered = end = 0.0
    for start, stop in sorted(spans):
        covered += max(0.0, stop - max(start, end))
        end = max(end, stop)
    return covered
