"""Counting a run's calls anew from its events: their order, what they cost, and whether the bill was kept."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any

from romanesco.journal._event import Event

_BIGGEST = 10**18
"""No call reads so many tokens or costs so many dollars; beyond it sums would overflow."""


class Faults:
    """Faults found in one property: how many, and the first."""

    def __init__(self, checked: str) -> None:
        self.checked = checked
        self.count = 0
        self.first = ""
        self.seq: int | None = None

    def add(self, text: str, seq: int | None) -> None:
        """Note a fault."""
        if not self.count:
            self.first, self.seq = text, seq
        self.count += 1


@dataclass(slots=True)
class Totals:
    """What a run spent, as counted from its events.

    Attributes:
        calls: Attempts that were started.
        tokens_in: Tokens read; for attempts of which it is not known, what was reserved.
        tokens_out: Tokens generated; likewise.
        cached: Part of ``tokens_in`` that a server read from its cache.
        reasoning: Part of ``tokens_out`` that was reasoning.
        usd: Money in US dollars, or None if a price is unknown.
        estimated: Whether some of the tokens are upper bounds.
        unknown: Attempts of which the cost is not known and the reserved amount was counted.
    """

    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cached: int = 0
    reasoning: int = 0
    usd: Decimal | None = Decimal(0)
    estimated: bool = False
    unknown: int = 0

    def __add__(self, other: Totals) -> Totals:
        return Totals(
            self.calls + other.calls,
            self.tokens_in + other.tokens_in,
            self.tokens_out + other.tokens_out,
            self.cached + other.cached,
            self.reasoning + other.reasoning,
            None if self.usd is None or other.usd is None else self.usd + other.usd,
            self.estimated or other.estimated,
            self.unknown + other.unknown,
        )


@dataclass(slots=True)
class _Open:
    """An attempt without an end.

    Attributes:
        seq: Number of the event that started it.
        line: Line of the bill that its tokens are charged to.
        call_line: Line of the bill that its call is charged to.
        fingerprint: Digest of what was asked.
        bound: What was reserved for it.
    """

    seq: int
    line: str
    call_line: str
    fingerprint: str
    bound: Totals


_Attempt = tuple[str, str, Any]


@dataclass(slots=True)
class Audit:
    """Takes a run's events in order; the faults and totals are complete after ``finish``."""

    totals: Totals = field(default_factory=Totals)
    beginning: Faults = field(default_factory=lambda: Faults("one run.created, first"))
    end: Faults = field(default_factory=lambda: Faults("nothing but run.resumed follows run.ended"))
    order: Faults = field(default_factory=lambda: Faults("every call started before it ended, and ended once"))
    sums: Faults = field(default_factory=lambda: Faults("the totals of run.ended are those of its calls"))
    bill: Faults = field(default_factory=lambda: Faults("every line of the bill was kept, and the whole"))
    has_end: bool = False
    has_bill: bool = False
    _seen: int = 0
    _last_kind: str = ""
    _open: dict[_Attempt, _Open] = field(default_factory=dict)
    _lost: dict[_Attempt, list[_Open]] = field(default_factory=dict)
    _finished: dict[tuple[str, str], str] = field(default_factory=dict)
    _lines: dict[str, Totals] = field(default_factory=dict)
    _plan: Any = None
    _raised: dict[str, Totals] = field(default_factory=dict)

    def take(self, event: Event, data: dict[str, Any]) -> None:
        """Take the next event."""
        if (event.kind == "run.created") != (self._seen == 0):
            self.beginning.add(f"event {event.seq} is {event.kind}", event.seq)
        if self._last_kind == "run.ended" and event.kind != "run.resumed":
            self.end.add(f"event {event.seq} ({event.kind}) follows run.ended", event.seq)
        self._seen += 1
        self._last_kind = event.kind
        match event.kind:
            case "run.planned" if event.node in ("", "/"):
                self._plan = data.get("plan")
                self.has_bill = _bill(self._plan) != {}
            case "run.resumed":
                self._session_over()
            case "bill.raised":
                self._raise(event, data)
            case "run.ended":
                self._session_over()
                self._ended(event, data)
            case "call.started":
                self._started(event, data)
            case "call.failed" | "call.finished":
                self._call_ended(event, data)
            case "step.finished":
                self._finish_once(event, str(data.get("fingerprint", "")))

    def finish(self) -> None:
        """Close the count: attempts in flight count at their bounds, and the bill is compared."""
        if self._seen == 0:
            self.beginning.add("the journal is empty", None)
        self._session_over()
        self._sum_up()
        if self.has_bill:
            self._compare_bill()

    def _session_over(self) -> None:
        for attempt, opened in self._open.items():
            self._lost.setdefault(attempt, []).append(opened)
        self._open.clear()

    def _started(self, event: Event, data: dict[str, Any]) -> None:
        attempt = (event.node, event.key, _hashable(data.get("attempt")))
        if attempt in self._open:
            self.order.add(f"event {event.seq} starts an attempt that is in flight already", event.seq)
            self._lost.setdefault(attempt, []).append(self._open[attempt])
        fingerprint = str(data.get("fingerprint", ""))
        if self._finished.get((event.node, event.key)) == fingerprint:
            # The same request again; another request may take its place, after what went before it was tried anew.
            self.order.add(f"event {event.seq} starts a step that is finished already", event.seq)
        line = str(data.get("line", ""))
        call_line = str(data.get("call_line", line))
        self._open[attempt] = _Open(event.seq, line, call_line, fingerprint, self._bound(event, data.get("reserved")))

    def _call_ended(self, event: Event, data: dict[str, Any]) -> None:
        attempt = (event.node, event.key, _hashable(data.get("attempt")))
        opened = self._open.pop(attempt, None)
        if opened is None and event.kind == "call.failed" and self._lost.get(attempt):
            opened = self._lost[attempt].pop()  # a later session noted what became of it
        if opened is None:
            self.order.add(f"event {event.seq} ({event.kind}) ends an attempt that is not in flight", event.seq)
        if event.kind == "call.finished":
            self._finish_once(event, opened.fingerprint if opened is not None else "")
        line = opened.line if opened is not None else str(data.get("line", ""))
        call_line = opened.call_line if opened is not None else str(data.get("call_line", line))
        if event.kind == "call.finished" or data.get("sent") is not False:
            self._count(call_line, Totals(calls=1))
        if data.get("usage") is not None:
            self._count(line, self._reported(event, data))
        elif opened is not None:
            self._count(line, opened.bound)

    def _finish_once(self, event: Event, fingerprint: str) -> None:
        step = (event.node, event.key)
        if self._finished.get(step) == fingerprint:
            self.order.add(f"event {event.seq} finishes a step that is finished already", event.seq)
        self._finished[step] = fingerprint

    def _raise(self, event: Event, data: dict[str, Any]) -> None:
        """The bill was raised for calls in doubt: by no more, all raises together, than was in doubt by then."""
        more = Totals(
            self._tokens(event, data.get("calls")),
            self._tokens(event, data.get("tokens_in")),
            self._tokens(event, data.get("tokens_out")),
            usd=self._money(event, data.get("usd")),
        )
        line = str(data.get("purpose"))
        self._raised[line] = self._raised.get(line, Totals()) + more
        raised, doubt = Totals(), Totals()
        for amount in self._raised.values():
            raised = raised + amount
        for attempts in self._lost.values():
            for opened in attempts:
                doubt = doubt + opened.bound + Totals(calls=1)
        for fault in _over(raised, doubt, "in doubt", "added"):
            self.bill.add(f"event {event.seq} raised the bill: {fault}", event.seq)

    def _count(self, line: str, amount: Totals) -> None:
        self._lines[line] = self._lines.get(line, Totals()) + amount

    def _spent_by_line(self) -> dict[str, Totals]:
        lines = dict(self._lines)
        for attempts in self._lost.values():
            for opened in attempts:
                lines[opened.line] = lines.get(opened.line, Totals()) + opened.bound
                lines[opened.call_line] = lines.get(opened.call_line, Totals()) + Totals(calls=1)
        return lines

    def _sum_up(self) -> None:
        total = Totals()
        for amount in self._spent_by_line().values():
            total = total + amount
        self.totals = total

    def _reported(self, event: Event, data: dict[str, Any]) -> Totals:
        usage = data["usage"] if isinstance(data["usage"], dict) else {}
        return Totals(
            0,
            self._tokens(event, usage.get("input")),
            self._tokens(event, usage.get("output")),
            self._tokens(event, usage.get("cached", 0)),
            self._tokens(event, usage.get("reasoning", 0)),
            self._money(event, data.get("usd")),
            bool(usage.get("estimated")),
        )

    def _bound(self, event: Event, reserved: Any) -> Totals:
        reserved = reserved if isinstance(reserved, dict) else {}
        return Totals(
            0,
            self._tokens(event, reserved.get("tokens_in")),
            self._tokens(event, reserved.get("tokens_out")),
            usd=self._money(event, reserved.get("usd")),
            estimated=True,
            unknown=1,
        )

    def _tokens(self, event: Event, value: Any) -> int:
        if type(value) is int and 0 <= value < _BIGGEST:
            return value
        self.sums.add(f"event {event.seq} gives no usable number of tokens", event.seq)
        return 0

    def _money(self, event: Event, value: Any) -> Decimal | None:
        if value is None:
            return None
        amount = _decimal(value)
        if amount is None:
            self.sums.add(f"event {event.seq} gives no usable amount of money", event.seq)
        return amount

    def _ended(self, event: Event, data: dict[str, Any]) -> None:
        self.has_end = True
        self._sum_up()
        spend = data.get("spend")
        if not isinstance(spend, dict):
            self.sums.add(f"event {event.seq} (run.ended) gives no totals", event.seq)
            return
        for name in ("calls", "tokens_in", "tokens_out", "cached", "reasoning"):
            counted = getattr(self.totals, name)
            if spend.get(name) != counted:
                self.sums.add(f"event {event.seq} says {name} {spend.get(name)}, its calls give {counted}", event.seq)
        said = spend.get("usd")
        counted_usd = self.totals.usd
        if (None if said is None else _decimal(said)) != counted_usd or (said is None) != (counted_usd is None):
            self.sums.add(f"event {event.seq} says usd {said}, its calls give {counted_usd}", event.seq)
        if self.totals.estimated and not spend.get("estimated"):
            self.sums.add(f"event {event.seq} does not say that its tokens are partly estimated", event.seq)

    def _compare_bill(self) -> None:
        limits = _bill(self._plan)
        if limits is None:
            self.bill.add("the plan has no readable bill", None)
            return
        for line, more in self._raised.items():
            limits[line] = limits.get(line, Totals()) + more
        whole = Totals()
        for limit in limits.values():
            whole = whole + limit
        for line, amount in self._spent_by_line().items():
            limit = limits.get(line, Totals())
            for fault in _over(amount, limit):
                self.bill.add(f"line {line!r}: {fault}", None)
        for fault in _over(self.totals, whole):
            self.bill.add(f"in all: {fault}", None)


def _over(amount: Totals, limit: Totals, where: str = "on the bill", done: str = "spent") -> list[str]:
    faults = [
        f"{name} {getattr(amount, name)} {done}, {getattr(limit, name)} {where}"
        for name in ("calls", "tokens_in", "tokens_out")
        if getattr(amount, name) > getattr(limit, name)
    ]
    if limit.usd is not None:
        if amount.usd is None:
            faults.append(f"usd unknown, {limit.usd} {where}")
        elif amount.usd > limit.usd:
            faults.append(f"usd {amount.usd} {done}, {limit.usd} {where}")
    return faults


def _bill(plan: Any) -> dict[str, Totals] | None:
    try:
        lines: dict[str, Totals] = {}
        for line in plan["bill"]["lines"]:
            usd = None if line["usd"] is None else _decimal(line["usd"])
            if usd is None and line["usd"] is not None:
                return None
            amount = Totals(int(line["calls"]), int(line["tokens_in"]), int(line["tokens_out"]), usd=usd)
            purpose = str(line["purpose"])
            lines[purpose] = lines.get(purpose, Totals()) + amount
    except (TypeError, KeyError, ValueError, OverflowError):
        return None
    return lines


def _decimal(value: Any) -> Decimal | None:
    try:
        amount = Decimal(value) if isinstance(value, str) else None
    except InvalidOperation:
        return None
    return amount if amount is not None and amount.is_finite() and 0 <= amount < _BIGGEST else None


def _hashable(value: Any) -> Any:
    return value if isinstance(value, (int, str)) else None
