"""Counting a run's calls anew from its events: their order, what they cost, and whether the bill was kept."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from romanesco.journal._ends import Counted, compare_outcome, compare_spend
from romanesco.journal._event import Event
from romanesco.journal._figures import Faults, Totals, over, read_bill, read_count, read_decimal


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
    outcome: Faults = field(
        default_factory=lambda: Faults("the outcome in run.ended is that of its calls and its plan")
    )
    plan: Faults = field(default_factory=lambda: Faults("one plan, before anything is done"))
    bill: Faults = field(default_factory=lambda: Faults("every line of the bill was kept, and the whole"))
    has_end: bool = False
    has_plan: bool = False
    has_bill: bool = False
    _seen: int = 0
    _last_kind: str = ""
    _open: dict[_Attempt, _Open] = field(default_factory=dict)
    _lost: dict[_Attempt, list[_Open]] = field(default_factory=dict)
    _finished: dict[tuple[str, str], str] = field(default_factory=dict)
    _lines: dict[str, Totals] = field(default_factory=dict)
    _worked: bool = False
    _bill: Any = None
    _raised: dict[str, Totals] = field(default_factory=dict)

    def take(self, event: Event, data: dict[str, Any]) -> None:
        """Take the next event."""
        if (event.kind == "run.created") != (self._seen == 0):
            self.beginning.add(f"event {event.seq} is {event.kind}", event.seq)
        if self._last_kind == "run.ended" and event.kind != "run.resumed":
            self.end.add(f"event {event.seq} ({event.kind}) follows run.ended", event.seq)
        self._seen += 1
        self._last_kind = event.kind
        if event.kind.startswith(("call.", "step.", "node.")) and not self._worked:
            self._worked = True
            if not self.has_plan:
                self.plan.add(f"event {event.seq} ({event.kind}) comes before any plan", event.seq)
        match event.kind:
            case "run.planned":
                self._planned(event, data.get("plan"))
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

    def _planned(self, event: Event, plan: Any) -> None:
        """The first plan is the one that was printed; the run's own, and none comes after it."""
        if event.node not in ("", "/"):
            self.plan.add(f"event {event.seq} plans the run under another node, {event.node}", event.seq)
        elif self.has_plan:
            self.plan.add(f"event {event.seq} is a second plan", event.seq)
        else:
            self.has_plan = True
            self._bill = plan.get("bill") if isinstance(plan, dict) else None
            self.has_bill = read_bill(self._bill) != {}

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
        for fault in over(raised, doubt, "in doubt", "added"):
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
        number = read_count(value)
        if number is None:
            self.sums.add(f"event {event.seq} gives no usable number of tokens", event.seq)
        return number or 0

    def _money(self, event: Event, value: Any) -> Decimal | None:
        if value is None:
            return None
        amount = read_decimal(value)
        if amount is None:
            self.sums.add(f"event {event.seq} gives no usable amount of money", event.seq)
        return amount

    def _ended(self, event: Event, data: dict[str, Any]) -> None:
        self.has_end = True
        self._sum_up()
        nodes = self._bill.get("nodes") if isinstance(self._bill, dict) else None
        in_doubt = sum(len(attempts) for attempts in self._lost.values())
        counted = Counted(self.totals, self._spent_by_line(), in_doubt, self._limits() or {}, nodes)
        compare_spend(event, data, counted, self.sums)
        compare_outcome(event, data, counted, self.outcome)

    def _limits(self) -> dict[str, Totals] | None:
        """The plan's bill by line, with what was added to it; None if it can't be read."""
        limits = read_bill(self._bill) if self.has_bill else {}
        if limits:  # a plan without a bill has nothing to add to
            for line, more in self._raised.items():
                limits[line] = limits.get(line, Totals()) + more
        return limits

    def _compare_bill(self) -> None:
        limits = self._limits()
        if limits is None:
            self.bill.add("the plan has no readable bill", None)
            return
        whole = Totals()
        for limit in limits.values():
            whole = whole + limit
        for line, amount in self._spent_by_line().items():
            limit = limits.get(line, Totals())
            for fault in over(amount, limit):
                self.bill.add(f"line {line!r}: {fault}", None)
        for fault in over(self.totals, whole):
            self.bill.add(f"in all: {fault}", None)


def _hashable(value: Any) -> Any:
    return value if isinstance(value, (int, str)) else None
