"""Checking a run's journal with code of its own.

Nothing here is shared with the code that writes the journal, keeps the budget or runs topologies: hashes,
order, totals and bill are computed anew from the stored events. Only the data types of events and
certificates are imported.
"""

from __future__ import annotations

import enum
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from romanesco.errors import JournalCorrupt, UnknownName
from romanesco.journal._audit import Audit
from romanesco.journal._certificate import Certificate
from romanesco.journal._event import Event
from romanesco.journal._figures import Faults, Totals
from romanesco.journal._limits import LimitsAudit
from romanesco.journal._store import Store

__all__ = ["Finding", "Totals", "Verdict", "Verification", "verify"]

_FIRST_PREV = "0" * 64
_PAGE = 500
_BEFORE_ALL = -(2**62)


class Verdict(enum.StrEnum):
    """What was found of a property."""

    HELD = "held"
    VIOLATED = "violated"
    NOT_APPLICABLE = "not applicable"


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found of one property.

    Attributes:
        property: Name of the property.
        verdict: Whether it holds.
        detail: What was checked, or the first fault and how many there are.
        seq: The event of the first fault, if it is one event's.
    """

    property: str
    verdict: Verdict
    detail: str
    seq: int | None = None


@dataclass(frozen=True, slots=True)
class Verification:
    """All findings on a run, and its totals as computed from the events."""

    run: str
    seq: int
    head: str
    findings: tuple[Finding, ...]
    totals: Totals

    @property
    def ok(self) -> bool:
        """Whether no property is violated."""
        return all(finding.verdict is not Verdict.VIOLATED for finding in self.findings)


async def verify(store: Store, run: str, *, certificate: Certificate | None = None) -> Verification:
    """Check a run's journal.

    Properties: ``readable``, ``sequence``, ``chain``, ``hashes``, ``payloads``, ``certificate``, ``one
    beginning``, ``one plan``, ``one end``, ``order of calls``, ``totals``, ``outcome``, ``bill``, ``limits``.

    An attempt that was started and has no end (the process died, or the run ended first) counts as a call;
    its tokens and money are unknown and counted at what was reserved for it, marked in the totals.

    Args:
        store: Where the journal is.
        run: The run's id.
        certificate: What the journal was at some moment. Without it, a journal that was cut at its end or
            rewritten as a whole can't be told from a true one.

    Raises:
        UnknownName: There is no such run, and no certificate that says there was.
    """
    damage = ""
    try:
        events = await store.read(run, _BEFORE_ALL)
    except JournalCorrupt as error:
        damage = str(error)
        events = await _before_damage(store, run)
        if not events:
            return Verification(run, 0, "", (Finding("readable", Verdict.VIOLATED, damage),), Totals())
    if not events and certificate is None:
        raise UnknownName("There is no run of that id", value=run, advice="`romanesco runs` lists them.")
    readable = Faults(f"{len(events)} events read")
    if damage:
        after = events[-1].seq
        readable.add(f"{damage} Nothing after event {after} was read; the other findings are on what is before.", None)
    payloads = Faults("all payloads are there and have their digests")
    datas = await _datas(store, events, readable, payloads)
    audit, limits = Audit(), LimitsAudit()
    for event, data in zip(events, datas, strict=True):
        audit.take(event, data)
        limits.take(event, data)
    audit.finish()
    no_bill = "the plan makes no bill" if audit.has_plan else "the run has no plan"
    findings = (
        _finding("readable", readable),
        _finding("sequence", _sequence(events)),
        _finding("chain", _chain(events)),
        _finding("hashes", _hashes(events)),
        _finding("payloads", payloads),
        _certified(events, datas, run, certificate),
        _finding("one beginning", audit.beginning),
        _finding("one plan", audit.plan, applies=audit.has_plan, otherwise="the run has no plan"),
        _finding("one end", audit.end),
        _finding("order of calls", audit.order),
        _finding("totals", audit.sums, applies=audit.has_end, otherwise="the run has not ended"),
        _finding("outcome", audit.outcome, applies=audit.has_end, otherwise="the run has not ended"),
        _finding("bill", audit.bill, applies=audit.has_bill, otherwise=no_bill),
        _finding("limits", limits.faults, applies=limits.applies, otherwise="the run has no limits"),
    )
    last = events[-1] if events else None
    return Verification(run, last.seq if last else 0, last.hash if last else "", findings, audit.totals)


async def _before_damage(store: Store, run: str) -> list[Event]:
    """The events before the first one that can't be read, which smaller and smaller pages close in on."""
    events: list[Event] = []
    limit = _PAGE
    while limit:
        try:
            page = await store.read(run, events[-1].seq if events else _BEFORE_ALL, limit)
        except JournalCorrupt:
            limit //= 2
            continue
        if not page:
            break
        events += page
    return events


def _finding(name: str, faults: Faults, *, applies: bool = True, otherwise: str = "") -> Finding:
    if faults.count:
        more = f" ({faults.count} faults in all)" if faults.count > 1 else ""
        return Finding(name, Verdict.VIOLATED, faults.first + more, faults.seq)
    if not applies:
        return Finding(name, Verdict.NOT_APPLICABLE, otherwise)
    return Finding(name, Verdict.HELD, faults.checked)


def _sequence(events: Sequence[Event]) -> Faults:
    faults = Faults(f"events 1 to {len(events)} without a gap")
    expected = 1
    for event in events:
        if event.seq != expected:
            faults.add(f"event {expected} is missing; the next one is {event.seq}", expected)
        expected = event.seq + 1
    return faults


def _chain(events: Sequence[Event]) -> Faults:
    faults = Faults("every event names the hash of the one before")
    prev = _FIRST_PREV
    for event in events:
        if event.prev != prev:
            faults.add(f"event {event.seq} does not name the hash of the one before it", event.seq)
        prev = event.hash
    return faults


def _hashes(events: Sequence[Event]) -> Faults:
    faults = Faults("every event has the hash that its content gives")
    for event in events:
        header = [event.run, event.seq, event.kind, event.node, event.key, event.at, event.prev]
        try:
            text = json.dumps(header, ensure_ascii=False, separators=(",", ":")) + "\n" + event.body
            found = hashlib.sha256(text.encode("utf-8")).hexdigest()
        except (TypeError, ValueError):
            found = ""
        if found != event.hash:
            faults.add(f"event {event.seq} is not what its hash says", event.seq)
    return faults


async def _datas(store: Store, events: Sequence[Event], readable: Faults, payloads: Faults) -> list[Any]:
    """Data of all events with their payloads; {} where it can't be read."""
    datas: list[Any] = []
    for start in range(0, len(events), _PAGE):
        page = [(event, _parsed(event, readable)) for event in events[start : start + _PAGE]]
        wanted = {mark for _, data in page for mark in _marks(data).values()}
        try:
            blobs = await store.blobs(wanted) if wanted else {}
        except JournalCorrupt as error:
            payloads.add(str(error), None)
            blobs = {}
        for event, data in page:
            for name, mark in _marks(data).items():
                data[name] = _payload(event, name, mark, blobs.get(mark), payloads)
            datas.append(data)
    return datas


def _parsed(event: Event, readable: Faults) -> dict[str, Any]:
    try:
        data = json.loads(event.body)
    except (TypeError, ValueError, RecursionError):
        data = None
    if not isinstance(data, dict):
        readable.add(f"the data of event {event.seq} is not a JSON object", event.seq)
        return {}
    return data


def _marks(data: dict[str, Any]) -> dict[str, str]:
    marks: dict[str, str] = {}
    for name, value in data.items():
        if isinstance(value, dict) and list(value) == ["$blob"] and isinstance(value["$blob"], str):
            marks[name] = value["$blob"]
    return marks


def _payload(event: Event, name: str, mark: str, raw: bytes | None, faults: Faults) -> Any:
    if raw is None:
        faults.add(f"the payload {name!r} of event {event.seq} is missing", event.seq)
        return None
    if not isinstance(raw, bytes) or hashlib.sha256(raw).hexdigest() != mark:
        faults.add(f"the payload {name!r} of event {event.seq} is not what its digest says", event.seq)
        return None
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        faults.add(f"the payload {name!r} of event {event.seq} is not JSON", event.seq)
        return None


def _certified(events: Sequence[Event], datas: Sequence[Any], run: str, certificate: Certificate | None) -> Finding:
    name = "certificate"
    if certificate is None:
        return Finding(name, Verdict.NOT_APPLICABLE, "none was given: a cut or rewritten journal would not be noticed")
    if certificate.run != run:
        return Finding(name, Verdict.VIOLATED, f"the certificate is of run {certificate.run}")
    position = next((index for index, event in enumerate(events) if event.seq == certificate.seq), None)
    if position is None:
        last = events[-1].seq if events else 0
        return Finding(
            name,
            Verdict.VIOLATED,
            f"the certificate is of {certificate.seq} events, the journal ends at {last}",
            certificate.seq,
        )
    event = events[position]
    if event.hash != certificate.head:
        return Finding(name, Verdict.VIOLATED, f"event {event.seq} is not the one that was certified", certificate.seq)
    spend = datas[position].get("spend")
    if event.kind == "run.ended" and certificate.totals and certificate.totals != spend:
        return Finding(name, Verdict.VIOLATED, "the certificate's totals are not the run's", certificate.seq)
    later = events[-1].seq - certificate.seq
    return Finding(
        name,
        Verdict.HELD,
        f"event {event.seq} has the certified hash" + (f"; {later} events were added since" if later else ""),
    )
