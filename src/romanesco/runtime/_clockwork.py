"""Where a run's active seconds go, summed up event by event."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from romanesco.task import Times


@dataclass(slots=True)
class Clockwork:
    """Takes a run's events in order; what it has read so far is a ``Times`` at any moment.

    Attributes:
        active: Latest active second that an event told.
        out: Calls that are out at a model, of the process that works on the run.
    """

    active: float = 0.0
    out: int = 0
    _covered: float = 0.0
    _out_since: float = 0.0
    _queue: float = 0.0
    _first: float = 0.0
    _total: float = 0.0
    _parse: float = 0.0
    _calls: int = 0

    def take(self, kind: str, data: dict[str, Any]) -> None:
        """Take the next event."""
        elapsed = data.get("elapsed")
        if elapsed is not None and elapsed > self.active:
            self.active = float(elapsed)
        if kind == "call.started":
            if not self.out:
                self._out_since = self.active
            self.out += 1
        elif kind in ("call.finished", "call.failed"):
            self._back()
            if kind == "call.finished":
                self._add(data.get("timing") or {})
        elif kind == "run.resumed":
            self._close()  # what was out when a process died came back to nobody

    def times(self, active: float | None = None) -> Times:
        """The split so far.

        Args:
            active: Active seconds now; None takes the latest that an event told.
        """
        now = self.active if active is None else max(active, self.active)
        waiting = self._covered + (max(0.0, now - self._out_since) if self.out else 0.0)
        generating = max(0.0, self._total - self._first)
        return Times(
            active=round(now, 6),
            waiting=round(waiting, 6),
            queue=round(self._queue, 6),
            first_token=round(self._first, 6),
            generating=round(generating, 6),
            parse=round(self._parse, 6),
            calls=self._calls,
        )

    def _back(self) -> None:
        if self.out:
            self.out -= 1
            if not self.out:
                self._covered += self.active - self._out_since

    def _close(self) -> None:
        if self.out:
            self.out = 0
            self._covered += self.active - self._out_since

    def _add(self, timing: dict[str, Any]) -> None:
        self._calls += 1
        self._queue += timing.get("queue", 0.0)
        self._first += timing.get("first_token", 0.0)
        self._total += timing.get("total", 0.0)
        self._parse += timing.get("parse", 0.0)
