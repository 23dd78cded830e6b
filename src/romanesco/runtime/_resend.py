"""A bill with room for what a kill may have cost: only on a person's word, and never more than was in doubt.

A call that was in flight when a process died is counted in full, and sending it again is paid from the bill's retries,
so runs that are killed often enough use these up. A person may then let the bill carry such calls a second time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from romanesco._codec import from_json
from romanesco.runtime._accounts import RETRY
from romanesco.task import BillLine, Plan

if TYPE_CHECKING:
    from romanesco.runtime._recover import Recovery

ADVICE = "Calls that were in flight when its process died used up the bill's retries; resume with --resend."


def room_for_doubts(recovered: Recovery) -> BillLine | None:
    """The worst case of all calls in doubt that no earlier resume made room for; None if there is none.

    Args:
        recovered: The run as its journal tells it.
    """
    room = BillLine(RETRY, 0, 0, 0, Decimal(0))
    for attempt in recovered.attempts:
        if attempt.open:
            spent = attempt.spent
            usd = spent.usd if spent.priced else None
            room += BillLine(RETRY, spent.calls, spent.tokens_in, spent.tokens_out, usd)
    for given in recovered.raises:
        earlier = from_json(BillLine, given)
        usd = None if earlier.usd is None else -earlier.usd
        room += BillLine(RETRY, -earlier.calls, -earlier.tokens_in, -earlier.tokens_out, usd)
    return room if room.calls > 0 else None


def with_raises(plan: Plan, raises: Iterable[dict[str, Any]]) -> Plan:
    """A plan with the bill as it stands after the raises on record. A plan without a bill has nothing to raise."""
    lines = list(plan.bill.lines)
    if not lines:
        return plan
    for given in raises:
        raised = from_json(BillLine, given)
        same = [i for i, line in enumerate(lines) if line.purpose == raised.purpose]
        if same:
            lines[same[0]] += raised
        else:
            lines.append(raised)
    return replace(plan, bill=replace(plan.bill, lines=tuple(lines)))
