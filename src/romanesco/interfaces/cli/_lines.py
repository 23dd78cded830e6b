"""A run that goes on, told line by line where nothing can be drawn. Pure."""

from __future__ import annotations

from typing import Any

from romanesco.interfaces.cli._text import count, money, one_line, ratio
from romanesco.interfaces.cli._view import View
from romanesco.runtime import RunEvent

_REASONS = {
    "supermajority": "a supermajority backs one proposal",
    "saturated": "new proposals add little diversity",
    "diminishing-returns": "the last rounds added little to the ledger",
    "r_max": "the rounds are used up",
}


def tell(event: RunEvent, before: View) -> str | None:
    """One line for a noteworthy event, or None.

    Args:
        event: The event.
        before: The run as it stood before the event.
    """
    teller = _TELLERS.get(event.kind)
    return None if teller is None else teller(event, before)


def _where(event: RunEvent) -> str:
    return "" if event.node in ("", "/") else f"{event.node}: "


def _started(event: RunEvent, before: View) -> str | None:
    attempt = event.data["attempt"]
    if attempt == 1:
        return None
    return f"{_where(event)}{event.data['role']}: {event.data['purpose']} again, attempt {attempt}"


def _role(event: RunEvent, before: View) -> tuple[str, str]:
    role = before.role_of(event) or ""
    member = before.members.get((event.node, role))
    return role or event.key, member.purpose if member else "call"


def _finished(event: RunEvent, before: View) -> str:
    role, purpose = _role(event, before)
    usage = event.data["usage"]
    estimated = ", estimated" if usage["estimated"] else ""
    return (
        f"{_where(event)}{role}: {purpose} done, {usage['input']:,} tokens in, {usage['output']:,} out{estimated} "
        f"({spent(before, event)})"
    )


def spent(before: View, event: RunEvent) -> str:
    """Calls and tokens of the run, this event included."""
    usage = event.data["usage"]
    calls = before.calls + (1 if event.data.get("sent", True) else 0)
    tokens = before.tokens + usage["input"] + usage["output"]
    most_calls, most_tokens = before.most("calls"), before.most("tokens")
    return (
        f"run: {count(calls, 'call') if most_calls is None else f'{calls:,} of {most_calls:,} calls'}, "
        f"{tokens:,}{'' if most_tokens is None else f' of {most_tokens:,}'} tokens"
    )


def _failed(event: RunEvent, before: View) -> str:
    role, purpose = _role(event, before)
    data = event.data
    if data["error"] == "interrupted":
        return f"{_where(event)}{role}: {purpose} interrupted"
    return f"{_where(event)}{role}: {purpose} failed ({data['error']}): {one_line(data['message'], 300)}"


def _asked(event: RunEvent, before: View) -> str:
    data = event.data
    choices = f" [{' / '.join(data['choices'])}]" if data.get("choices") else ""
    return (
        f"{_where(event)}question {data['id']}: {one_line(data['question'], 500)}{choices} "
        f"Answer it: romanesco answer {before.run} {data['id']} TEXT"
    )


def _overrun(event: RunEvent, before: View) -> str:
    more = " and ".join(
        f"{one['by']} {one['dimension']}" for one in event.data["accounts"] if one["dimension"] != "tokens"
    )
    return f"{_where(event)}a call used more than was reserved for it, {more} more: {event.key}"


def _command(event: RunEvent, before: View) -> str:
    return f"{_where(event)}told from outside: {event.data['verb']}"


def _budget(event: RunEvent, before: View) -> str:
    value = event.data["value"]
    return f"limit of {event.data['dimension']}: {'none' if value is None else value}"


def _opened(event: RunEvent, before: View) -> str:
    return f"{event.node}: opened, {event.data['topology']}"


def _node_ended(event: RunEvent, before: View) -> str:
    return f"{event.node}: {event.data['outcome']['status']}"


def _ensemble(event: RunEvent, before: View) -> str:
    data = event.data
    distance = ratio(data["distance"])
    return (
        f"{_where(event)}team: {', '.join(data['proposers'])}; evaluators: {', '.join(data['evaluators'])}; "
        f"least bias distance {distance}"
    )


def _round(event: RunEvent, before: View) -> str:
    data = event.data
    silent = f", silent: {', '.join(data['silent'])}" if data["silent"] else ""
    diversity: dict[str, Any] = data["diversity"]
    return (
        f"{_where(event)}round {data['round']}: {count(len(data['proposals']), 'proposal')}{silent}, "
        f"diversity {ratio(diversity['value'])}, ledger gain {data['ledger_gain']:g}"
    )


def _consensus(event: RunEvent, before: View) -> str:
    data = event.data
    leader = f" {data['leader']}" if data["leader"] else ""
    return f"{_where(event)}backing:{leader} {data['backers']:g} of the {data['needed']} that a supermajority needs"


def _switched(event: RunEvent, before: View) -> str:
    reason = str(event.data["reason"])
    return f"{_where(event)}switch to the convergent mode after round {event.data['round']}: " + _REASONS.get(
        reason, reason
    )


def _matrix(event: RunEvent, before: View) -> str:
    data = event.data
    return f"{_where(event)}critiques: {data['received']} of {data['expected']}"


def _decision(event: RunEvent, before: View) -> str:
    decision = event.data["decision"]
    if decision is None:
        return f"{_where(event)}no decision ({event.data['end']})"
    return f"{_where(event)}decision: {decision['chosen']}, by {decision['by']}"


def _ended(event: RunEvent, before: View) -> str:
    return f"{event.data['status']}: {count(before.calls, 'call')}, {before.tokens:,} tokens, {money(before.usd)}"


_TELLERS = {
    "call.started": _started,
    "call.finished": _finished,
    "call.failed": _failed,
    "question.asked": _asked,
    "budget.overrun": _overrun,
    "command.received": _command,
    "budget.changed": _budget,
    "node.opened": _opened,
    "node.ended": _node_ended,
    "fractal.ensemble": _ensemble,
    "fractal.round": _round,
    "fractal.consensus": _consensus,
    "fractal.switched": _switched,
    "fractal.critique_matrix": _matrix,
    "fractal.decision": _decision,
    "run.ended": _ended,
}
