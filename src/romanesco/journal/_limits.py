"""Counting anew whether the limits that a person set were kept at every moment, from a run's events alone.

The bill bounds what the plan may cost; these limits are the person's own and may be changed while the run goes on.
So they are looked at each time that something is started, as they stood then.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Any

from romanesco.journal._event import Event
from romanesco.journal._figures import Faults

_DIMENSIONS = ("calls", "tokens", "tokens_in", "tokens_out", "usd", "nodes")

_BIGGEST = 10**18
"""What is beyond this can't be added up; it is a fault of ``totals``."""

_Amounts = dict[str, Decimal]


class LimitsAudit:
    """Takes a run's events in order. What is in flight counts with what was reserved for it.

    A limit that is lowered below what was spent already is no fault; a call that is started after that is one. Wall
    time is not looked at: it is measured, not reserved.
    """

    def __init__(self) -> None:
        self.faults = Faults("nothing was started that a limit in force could not carry")
        self.applies = False
        self._nodes: set[str] = set()
        self._limits: dict[str, _Amounts] = {"the run": {}}
        self._taken: dict[str, _Amounts] = {}
        self._open: dict[tuple[str, str, str], tuple[str, _Amounts]] = {}

    def take(self, event: Event, data: dict[str, Any]) -> None:
        """Take the next event."""
        match event.kind:
            case "run.created":
                self._created(data.get("spec"))
            case "budget.changed":
                self._set(str(data.get("dimension")), data.get("value"))
            case "node.opened":
                self._enter(event, "/")
                self._enter(event, event.node)
            case "call.started":
                self._enter(event, "/")
                role, worst = str(data.get("role", "")), _amounts(data.get("reserved"), "tokens_in", "tokens_out")
                self._open[_attempt(event, data)] = role, worst
                self._take(event, role, worst)
            case "call.failed" | "call.finished":
                self._ended(event, data)

    def _enter(self, event: Event, node: str) -> None:
        """Count a node once, however often a resume opens it. No event opens the root: what is done in it does."""
        if node not in self._nodes:
            self._nodes.add(node)
            self._take(event, "", {"nodes": Decimal(1)})

    def _created(self, spec: Any) -> None:
        spec = spec if isinstance(spec, dict) else {}
        self._limits["the run"] = _limits(spec.get("budget"))
        roles = spec.get("role_limits")
        for role, limits in roles.items() if isinstance(roles, dict) else ():
            self._limits[f"role {role}"] = _limits(limits)
        self.applies = any(self._limits.values())

    def _set(self, dimension: str, value: Any) -> None:
        number = _number(value)
        if number is None:
            self._limits["the run"].pop(dimension, None)
        elif dimension in _DIMENSIONS:
            self._limits["the run"][dimension] = number
            self.applies = True

    def _take(self, event: Event, role: str, amounts: _Amounts) -> None:
        for account in ("the run", f"role {role}"):
            taken = self._taken.setdefault(account, {})
            for dimension, amount in amounts.items():
                taken[dimension] = taken.get(dimension, Decimal(0)) + amount
                limit = self._limits.get(account, {}).get(dimension)
                if limit is not None and amount > 0 and taken[dimension] > limit:
                    what = f"{taken[dimension]} {dimension} of {account}, the limit was {limit}"
                    self.faults.add(f"event {event.seq} ({event.kind}) came to {what}", event.seq)

    def _ended(self, event: Event, data: dict[str, Any]) -> None:
        role, worst = self._open.pop(_attempt(event, data), ("", {}))
        usage, spent = data.get("usage"), dict(worst)
        if isinstance(usage, dict):
            spent = _amounts({**usage, "usd": data.get("usd")}, "input", "output")
        if event.kind == "call.failed" and data.get("sent") is False:
            spent["calls"] = Decimal(0)
        # Only what it cost beyond its bound can pass a limit now; the bound was counted when it started.
        self._take(event, role, {name: amount - worst.get(name, Decimal(0)) for name, amount in spent.items()})


def _attempt(event: Event, data: dict[str, Any]) -> tuple[str, str, str]:
    return event.node, event.key, str(data.get("attempt"))


def _amounts(given: Any, tokens_in: str, tokens_out: str) -> _Amounts:
    """One call with its tokens and money; what is unreadable counts as none here and is a fault of ``totals``."""
    given = given if isinstance(given, dict) else {}
    read, wrote = (_number(given.get(name)) or Decimal(0) for name in (tokens_in, tokens_out))
    usd = _number(given.get("usd")) or Decimal(0)
    return {
        "calls": Decimal(1),
        "tokens": read + wrote,
        "tokens_in": read,
        "tokens_out": wrote,
        "usd": usd,
    }


def _limits(given: Any) -> _Amounts:
    given = given if isinstance(given, dict) else {}
    read = {dimension: _number(given.get(dimension)) for dimension in _DIMENSIONS}
    return {dimension: number for dimension, number in read.items() if number is not None}


def _number(value: Any) -> Decimal | None:
    if value is None or isinstance(value, bool):
        return None
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        return None
    return number if number.is_finite() and 0 <= number < _BIGGEST else None
